/* gather_shape.c - which tile, cluster and split of k kernels/gather.cu runs with: every candidate is asked what it costs. */
#include "cuda/gather_shape.h"

#include <math.h>

#include "core/arithmetic.h"
#include "core/dtype.h"
#include "cuda/gather_join.h"
#include "cuda/turn.h"
#include "format/weight.h"

enum {
    MOST_STAGES = 12,
    MOST_PARTS = 8,
    LEAST_HEIGHT = 16,
    LEAST_JOINED = 4,
    MOST_CROWDING = 8,
    BARRIER_BYTES = 1024,
    RESERVED_BYTES = 1024,
    LEAST_BESIDE = 4,
    LEAST_ALONE = 64,
    MOST_MEETING = 4,
    MOST_MEETING_BYTES = 24576,
    LEAST_RUNS = 4, /* stages of few tokens: of two one is multiplied and one is given back, and none would be under way */
    MOST_SHORT = 3
};

/* Of the multiprocessors, those that clusters of more than two blocks can have: 32 of 4 blocks did not fit at once on an H200's 132, nor
 * did 43 of 3. */
static const double LARGE_CLUSTERS = 0.9;

/* ---- what the kernel can take */

/* Whether so many inputs from a multiple of that on never hold more than two kept ones of a row. */
static bool hold_two(const lac_geometry *g, int64_t inputs)
{
    for (int64_t begin = 0; begin < inputs * g->group_m; begin += inputs) {
        int64_t kept = 0;
        for (int64_t at = begin; at < begin + inputs;) {
            int64_t end = (at / g->group_m + 1) * g->group_m;
            if (end > begin + inputs) end = begin + inputs;
            kept += end - at < g->slot_n ? end - at : g->slot_n;
            at = end;
        }
        if (kept > 2) return false;
    }
    return true;
}

/* Whether a tile is a row group's, or a part of one. */
static bool takes(const lac_weight *w, lac_gather_kind kind)
{
    const lac_geometry *g = &w->geometry;
    bool element = w->pattern.family == LAC_FAMILY_ELEMENT;
    bool halves = w->pattern.family == LAC_FAMILY_VNM && w->pattern.n <= 2;
    if (kind == LAC_GATHER_STREAM) return (element || halves) && !g->is_free && hold_two(g, 4);
    return !element && halves == (kind == LAC_GATHER_SPARSE) && g->unit_n >= LEAST_HEIGHT;
}

/* Whether a tile may have what many row groups select: dense, each output with zeros where only the others do; sparse, each row group
 * with at most two columns of every four. */
static bool joins(const lac_weight *w, lac_gather_kind kind)
{
    const lac_geometry *g = &w->geometry;
    bool low = g->unit_n < LEAST_ALONE && g->k > 0;
    if (kind == LAC_GATHER_SPARSE)
        return low && g->unit_n >= LEAST_JOINED && w->pattern.family != LAC_FAMILY_ELEMENT &&
               w->pattern.family != LAC_FAMILY_VNM;
    return low && kind == LAC_GATHER_DENSE;
}

/* Whether the rows of X of every stage are neighbours, the first a multiple of how many they are. Boxes lie in shared memory with a
 * swizzle of 128 bytes, token-major ones of 32 inputs with one of 64 (launch.c, kernels/wgmma_tile.cuh). */
static bool in_boxes(const lac_problem *problem, int rows)
{
    const lac_weight *w = problem->weight;
    return w->pattern.family == LAC_FAMILY_BLOCK && w->geometry.unit_k % rows == 0 && !w->part[LAC_PART_COL_PERM].data;
}

int64_t lac_gather_rows(const lac_weight *w, lac_gather_kind kind)
{
    const lac_geometry *g = &w->geometry;
    if (kind == LAC_GATHER_STREAM || w->pattern.family == LAC_FAMILY_ELEMENT) return lac_ceil_divide(g->k, 4) * 4;
    if (w->pattern.family == LAC_FAMILY_VNM) return g->groups * LAC_VNM_SELECTED;
    return g->selected * g->unit_k < g->k ? g->selected * g->unit_k : g->k;
}

/* Of all inputs, from how many on a copy of W is taken for a dense one. */
static const double NEARLY_ALL = 0.9;

/* Rows of X that a joined tile reads, or its slots where some are empty: as many as independent choices have. */
static double joined_rows(const lac_weight *w, const lac_gather_shape *s)
{
    const lac_geometry *g = &w->geometry;
    bool element = w->pattern.family == LAC_FAMILY_ELEMENT;
    double one = element ? (double)(g->selected * g->unit_k) : (double)lac_gather_rows(w, s->kind), k = (double)g->k;
    double units = (double)lac_ceil_divide(s->tile_outputs, g->unit_n);
    if (s->kind == LAC_GATHER_SPARSE)
        return lac_gather_joined_places(units, one, k, g->unit_k > 1 && g->unit_k <= MOST_CROWDING);
    return s->every ? k : k * (1.0 - pow(fmax(0.0, 1.0 - one / k), units));
}

uint64_t lac_gather_turned_bytes(const lac_problem *problem, const lac_gather_shape *s)
{
    if (!lac_gather_copies_x(s) && problem->options.x_layout == LAC_LAYOUT_FEATURE_MAJOR && problem->m % 8 == 0) return 0;
    return lac_turn_bytes(problem, problem->weight->k_in);
}

bool lac_gather_by_engine(const lac_problem *problem, const lac_gather_shape *s)
{
    return s->boxes || (s->kind == LAC_GATHER_STREAM && !problem->weight->part[LAC_PART_COL_PERM].data);
}

double lac_gather_clusters_at_once(const lac_problem *problem, int blocks)
{
    return floor(lac_cuda_rates_of(problem->device)->multiprocessors * (blocks > 2 ? LARGE_CLUSTERS : 1.0) / blocks);
}

/* ---- candidates */

/* Whether 64 outputs of a tile are neighbours in Y, which the copy engine then stores. */
static bool stores(const lac_problem *problem, const lac_gather_shape *s)
{
    const lac_weight *w = problem->weight;
    return problem->options.y_dtype != LAC_DTYPE_F32 && !w->part[LAC_PART_ROW_PERM].data &&
           (s->height % 64 == 0 || s->groups == 1);
}

/* A block's last tile is there sooner without the way through shared memory; those before it have the next one's stages to hide that
 * behind. So where blocks have one tile each or, two on a multiprocessor, two each; a tile of 128 x 256 takes as long either way
 * (docs/kernels/small.md, step 59). */
bool lac_gather_leaves_directly(const lac_problem *problem, const lac_gather_shape *s)
{
    int64_t most = (int64_t)lac_cuda_rates_of(problem->device)->multiprocessors * s->resident * s->resident;
    bool small = s->tile_outputs * s->tile_tokens < 128 * 256 && s->token_tiles * s->output_tiles <= most;
    bool gathers = s->kind != LAC_GATHER_STREAM && !s->boxes && !lac_gather_in_turns(s) && s->parts == 1;
    return small && gathers && stores(problem, s) && problem->options.y_layout == LAC_LAYOUT_FEATURE_MAJOR;
}

/* Pieces of Y that have room beside enough stages; three where the third costs none. */
static int staging_beside(const lac_gather_shape *s, int64_t bytes)
{
    int64_t stage = lac_gather_stage(s), least = s->most_stages < LEAST_BESIDE ? s->most_stages : LEAST_BESIDE;
    int64_t two = (bytes - lac_gather_staging(2)) / stage, three = (bytes - lac_gather_staging(3)) / stage;
    if (two >= (least < 2 ? 2 : least)) return two == three ? 3 : 2;
    return s->resident > 1 && (bytes - lac_gather_staging(1)) / stage >= 2 ? 1 : 0;
}

/* Whether Y leaves through the last stage of a tile: a tile of 512 tokens has no room beside its stages. Feature-major Y leaves as fast
 * from the registers, of which there are too few for this with a residual. */
static bool leaves_by_last(const lac_problem *problem, const lac_gather_shape *s)
{
    return s->staging == 0 && s->tile_tokens == 512 && s->cluster == 1 && s->kind != LAC_GATHER_STREAM && stores(problem, s) &&
           problem->options.y_layout == LAC_LAYOUT_TOKEN_MAJOR && !problem->options.has_residual;
}

/* Tokens of Y that one block of parts that meet writes at once, at least. */
static int least_share(const lac_problem *problem) { return problem->options.y_layout == LAC_LAYOUT_TOKEN_MAJOR ? 16 : 32; }

/* What stream.cu alone can do: 32 tokens of a warpgroup, packed weights. */
static bool streams_so(const lac_problem *problem, const lac_gather_shape *s)
{
    bool token_major =
        problem->options.x_layout == LAC_LAYOUT_TOKEN_MAJOR && problem->options.y_layout == LAC_LAYOUT_TOKEN_MAJOR;
    if (s->kind != LAC_GATHER_STREAM) return !s->packed && s->width != 32;
    if (!lac_gather_copies_x(s)) return true;
    if (problem->weight->k_in == 0) return false; /* there is no box of nothing */
    if (s->cluster > 1 || !lac_gather_by_engine(problem, s)) return false;
    if (s->width == 32 && (!s->meets || !token_major || problem->m > s->tile_tokens)) return false;
    return !s->packed || (s->tile_tokens <= 128 && s->tile_outputs >= 128 && hold_two(&problem->weight->geometry, 8));
}

/* Room for a stream's sums must not cost it a stage. */
static lac_gather_sums sums_of(const lac_gather_shape *s, int64_t stage)
{
    int meeting = lac_gather_meeting(s);
    if (s->kind != LAC_GATHER_STREAM || meeting == 0) return LAC_GATHER_SUMS_READ;
    return meeting <= MOST_MEETING_BYTES ? LAC_GATHER_SUMS_KEPT
           : meeting <= stage            ? LAC_GATHER_SUMS_STAGED
                                         : LAC_GATHER_SUMS_READ;
}

bool lac_gather_shape_complete(const lac_problem *problem, lac_gather_shape *s)
{
    const lac_geometry *g = &problem->weight->geometry;
    int64_t rows = lac_gather_rows(problem->weight, s->kind), both = 2 * rows < g->k ? 2 * rows : g->k;
    double density = g->k > 0 ? (double)rows / (double)g->k : 0.0;
    if (s->joined && s->paired) return false;
    if (s->cluster * (s->meets ? s->parts : 1) > lac_cuda_target_of(problem->device)->multiprocessors)
        return false; /* no room for a cluster, whose blocks have a multiprocessor each */
    /* Such tiles hold W with nearly all its zeros. */
    if (s->joined && s->kind == LAC_GATHER_DENSE && problem->options.no_dense &&
        joined_rows(problem->weight, s) > NEARLY_ALL * (double)g->k)
        return false;
    int64_t units = lac_ceil_divide(s->tile_outputs, g->unit_n) + 1; /* of a tile, cut anywhere */
    if (lac_gather_in_fours(s) && (s->every || units > LAC_GATHER_MOST_JOINED)) return false;
    if (s->few && (s->kind == LAC_GATHER_STREAM || s->every || s->cluster > 1 || s->rows != 64 || problem->m > s->tile_tokens ||
                   in_boxes(problem, s->rows)))
        return false;
    if (s->few && s->meets && (s->tile_outputs < 128 || s->height < s->tile_outputs)) return false; /* W half empty */
    if (s->every && problem->weight->part[LAC_PART_COL_PERM].data) return false;
    s->boxes = s->kind == LAC_GATHER_DENSE && !s->apart && (s->every || in_boxes(problem, s->rows));
    if (s->paired && (s->kind != LAC_GATHER_DENSE || s->boxes || s->height > 64 || s->groups < 2)) return false;
    /* A cluster pays where X is shared, or where W is and the copies of X are bound by L2: elsewhere blocks lose more by waiting
     * for each other than they save. */
    if (s->cluster > 1 && s->kind != LAC_GATHER_STREAM && (s->boxes || s->tile_outputs > 64)) return false;
    if (s->kind == LAC_GATHER_STREAM && s->tile_outputs > 128) return false; /* stream.cu: 64 outputs a warpgroup */
    if (!streams_so(problem, s)) return false;
    if (s->kind == LAC_GATHER_STREAM && (s->cluster > 1 || s->meets) && !lac_gather_by_engine(problem, s)) return false;
    /* Each block fetches its share of the tokens in boxes of 64 (stream_x.cuh); more bytes than a stage waits for would never do. */
    if (s->kind == LAC_GATHER_STREAM && s->cluster > 1 && s->tile_tokens / s->cluster < 64) return false;
    int64_t places = lac_smaller(units * rows, g->k) * 4; /* of joined columns, were each in a four of its own */
    s->most_stages = lac_ceil_divide(lac_gather_in_fours(s) ? places : s->joined ? g->k : s->paired ? both : rows, s->rows);
    s->usual_stages = s->joined   ? fmax(1.0, joined_rows(problem->weight, s) / s->rows)
                      : s->paired ? fmax(1.0, (double)g->k * density * (2.0 - density) / s->rows)
                                  : (double)s->most_stages;
    double read =
        s->joined ? joined_rows(problem->weight, &(lac_gather_shape){.kind = LAC_GATHER_DENSE, .tile_outputs = s->tile_outputs})
                  : 0.0;
    s->filled = lac_gather_has_holes(s) ? fmin(1.0, read / s->rows / s->usual_stages) : 1.0;
    s->tiles_a_group = lac_ceil_divide(s->height, s->tile_outputs);
    s->output_tiles = s->paired ? lac_ceil_divide(s->groups, 2) : s->groups * s->tiles_a_group;
    s->token_tiles = lac_ceil_divide(problem->m, s->tile_tokens);
    if (s->kind == LAC_GATHER_STREAM)
        s->output_tiles = lac_ceil_divide(s->output_tiles, s->cluster) * s->cluster;
    else
        s->token_tiles = lac_ceil_divide(s->token_tiles, s->cluster) * s->cluster;
    if (s->cluster > 1 || s->boxes || s->kind == LAC_GATHER_STREAM) s->resident = 1;
    if (s->width == 192 && (s->boxes || s->kind == LAC_GATHER_STREAM)) return false;
    int64_t bytes = (int64_t)lac_cuda_target_of(problem->device)->shared_per_block, stage = lac_gather_stage(s);
    if (s->resident > 1) bytes = (bytes + RESERVED_BYTES) / s->resident - RESERVED_BYTES;
    bytes -= s->kind == LAC_GATHER_STREAM ? BARRIER_BYTES : LAC_GATHER_NUMBERS_BYTES;
    s->sums = sums_of(s, stage);
    if (s->sums == LAC_GATHER_SUMS_KEPT) bytes -= lac_gather_meeting(s);
    s->stages = bytes / stage < MOST_STAGES ? (int)(bytes / stage) : MOST_STAGES;
    bool staged = !s->meets && stores(problem, s) && !lac_gather_leaves_directly(problem, s);
    s->staging = lac_gather_in_turns(s) ? 1 : !staged ? 0 : s->few ? 1 : staging_beside(s, bytes);
    s->by_last = leaves_by_last(problem, s);
    if (s->staging) s->stages = (int)lac_smaller(s->stages, (bytes - lac_gather_staging(s->staging)) / stage);
    if (lac_gather_in_turns(s)) s->stages -= s->stages % 2;
    if (s->meets && s->stages * stage < (int64_t)s->tile_outputs * s->tile_tokens * 4) return false; /* sums, in their place */
    return s->stages >= (lac_gather_streams_few(s) ? LEAST_RUNS : 2) && lac_turn_fits(problem) &&
           lac_tiles_fit_int(s->token_tiles, s->tile_tokens) && lac_tiles_fit_int(s->output_tiles, s->tile_outputs) &&
           s->token_tiles * s->output_tiles < INT32_MAX / MOST_PARTS && s->output_tiles * s->most_stages < INT32_MAX / s->rows;
}

/* Who is shown every candidate. */
typedef struct viewer {
    lac_gather_look *look;
    void *context;
} viewer;

/* Parts that meet in a cluster: each block writes some of the tokens that they add up, through the memory of the stages. So a second
 * tile's stages could not come before the first one's sums were read: only where there is none. */
static void consider_meeting(const lac_problem *problem, lac_gather_shape shape, const viewer *viewer)
{
    /* Half of the tokens brings as much of X, or less, and multiplies less. */
    if (shape.tile_tokens > 64 && 2 * problem->m <= shape.tile_tokens) return;
    shape.meets = true;
    int most = shape.few || shape.tile_outputs < 128 ? 2 : MOST_MEETING;
    for (shape.parts = 2; shape.cluster == 1 && shape.parts <= most; ++shape.parts)
        if (shape.width / shape.parts >= least_share(problem) && lac_gather_shape_complete(problem, &shape) &&
            shape.most_stages >= shape.parts &&
            (double)(shape.token_tiles * shape.output_tiles) <= lac_gather_clusters_at_once(problem, shape.parts))
            viewer->look(problem, &shape, viewer->context);
}

/* Whether any two blocks would run beside each other: where each has a multiprocessor to itself, the same tile meant to be alone has more
 * stages and loses nothing. */
static bool has_neighbours(const lac_problem *problem, const lac_gather_shape *s)
{
    return s->resident == 1 ||
           s->token_tiles * s->output_tiles * s->parts > lac_cuda_rates_of(problem->device)->multiprocessors;
}

static void consider(const lac_problem *problem, lac_gather_shape shape, const viewer *viewer)
{
    if (shape.kind == LAC_GATHER_STREAM || shape.few) consider_meeting(problem, shape, viewer);
    if (!lac_gather_shape_complete(problem, &shape)) return;
    int64_t most = shape.few || shape.packed ? 1 : shape.most_stages < MOST_PARTS ? shape.most_stages : MOST_PARTS;
    for (shape.parts = 1; shape.parts == 1 || shape.parts <= most; ++shape.parts)
        if (has_neighbours(problem, &shape)) viewer->look(problem, &shape, viewer->context);
}

/* A tile as it is, in a cluster, its rows of X one by one, or with short stages where these are few and waste less. */
static void consider_ways(const lac_problem *problem, lac_gather_shape shape, const viewer *viewer)
{
    int64_t halves = lac_ceil_divide(lac_gather_rows(problem->weight, shape.kind), 32);
    bool saves = shape.kind != LAC_GATHER_STREAM && !shape.joined && halves % 2 && halves <= MOST_SHORT;
    /* Blocks of a cluster: they ask L2 for less of X, but take in as much, and small ones of a stream are bound by that. */
    bool large = shape.tile_outputs >= 128 && shape.tile_tokens >= 128;
    int most = (shape.kind == LAC_GATHER_STREAM && large) || shape.tile_tokens == 512 ? 2 : 1;
    for (shape.rows = 64; shape.rows >= (saves ? 32 : 64); shape.rows -= 32)
        for (shape.cluster = most; shape.cluster >= 1; --shape.cluster) {
            shape.apart = false;
            consider(problem, shape, viewer);
            shape.packed = shape.kind == LAC_GATHER_STREAM;
            if (shape.packed) consider(problem, shape, viewer);
            shape.packed = false;
            shape.apart = shape.kind == LAC_GATHER_DENSE && !shape.every && in_boxes(problem, shape.rows);
            if (shape.apart) consider(problem, shape, viewer);
        }
}

void lac_gather_candidates(const lac_problem *problem, lac_gather_kind kind, lac_gather_look *look, void *context)
{
    /* Outputs x tokens of a tile, tokens of one product, whether two row groups of up to 64 outputs share it, blocks on a
     * multiprocessor, whether it is for few tokens, and of the bound's rate what it reached on an H200, dense and sparse. Both
     * warpgroups have all tokens, or half of them each where there are only 64 outputs. A tile alone on its multiprocessor comes
     * before the same one beside another: where both are as good, its stages are more. */
    static const struct {
        int outputs, tokens, width, paired, resident, few;
        double dense, sparse;
    } tiles[] = {
        {128, 256, 256, 0, 1, 0, 1.28, 1.63}, {64, 512, 256, 0, 1, 0, 1.71, 1.84},  {128, 128, 128, 0, 1, 0, 1.2, 1.3},
        {64, 256, 128, 0, 1, 0, 1.48, 1.61},  {128, 64, 64, 0, 1, 0, 1.31, 1.1},    {64, 128, 64, 0, 1, 0, 1.24, 1.19},
        {128, 64, 64, 0, 2, 0, 1.37, 1.52},   {64, 128, 64, 0, 2, 0, 1.5, 1.43},    {128, 256, 256, 1, 1, 0, 1.36, 0.0},
        {128, 128, 128, 1, 1, 0, 1.0, 0.0},   {256, 128, 128, 0, 1, 0, 1.3, 1.38},  {128, 192, 192, 0, 1, 0, 1.2, 1.5},
        {64, 384, 192, 0, 1, 0, 1.39, 1.55},  {64, 64, 64, 0, 1, 1, 1.05, 0.9},     {64, 128, 64, 0, 1, 1, 1.2, 1.22},
        {128, 64, 64, 0, 1, 1, 1.0, 1.15},    {128, 128, 128, 0, 1, 1, 0.98, 1.38}, {128, 32, 32, 0, 1, 0, 0.0, 0.0},
        {64, 64, 32, 0, 1, 0, 0.0, 0.0}};
    const lac_weight *w = problem->weight;
    const lac_geometry *g = &w->geometry;
    if (problem->m == 0 || g->n == 0) return;
    const viewer viewer = {look, context};
    bool shared = w->pattern.family == LAC_FAMILY_ELEMENT || kind == LAC_GATHER_STREAM;
    lac_gather_shape alone = {.kind = kind, .parts = 1};
    alone.height = shared ? g->n : g->unit_n;
    alone.groups = shared ? 1 : g->row_groups;
    lac_gather_shape joined = {.kind = kind, .parts = 1, .height = g->n, .groups = 1, .joined = true};
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; ++i) {
        lac_gather_shape *both[] = {&alone, &joined};
        for (int j = 0; j < 2; ++j) {
            both[j]->paired = tiles[i].paired;
            both[j]->tile_outputs = tiles[i].outputs;
            both[j]->tile_tokens = tiles[i].tokens;
            both[j]->width = tiles[i].width;
            both[j]->resident = tiles[i].resident;
            both[j]->few = tiles[i].few;
            both[j]->efficiency = kind == LAC_GATHER_DENSE ? tiles[i].dense : tiles[i].sparse;
        }
        if (takes(w, kind)) consider_ways(problem, alone, &viewer);
        for (int every = 0; every < 2 && joins(w, kind) && !tiles[i].paired; ++every) {
            joined.every = every;
            consider_ways(problem, joined, &viewer);
        }
    }
}

/* ---- the best */

typedef struct choice {
    bool found;
    lac_gather_shape *shape;
    lac_cost *cost;
} choice;

static void compare(const lac_problem *problem, const lac_gather_shape *shape, void *context)
{
    choice *best = context;
    lac_cost now = lac_gather_cost(problem, shape);
    if (best->found && now.seconds >= best->cost->seconds) return;
    *best->shape = *shape;
    *best->cost = now;
    best->found = true;
}

bool lac_gather_shape_make(const lac_problem *problem, lac_gather_kind kind, lac_gather_shape *out, lac_cost *cost)
{
    choice best = {false, out, cost};
    lac_gather_candidates(problem, kind, compare, &best);
    return best.found;
}
