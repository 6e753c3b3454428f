/* gather_shape.c - which tile, cluster and split of k kernels/gather.cu runs with: every candidate is asked what it costs. */
#include "cuda/gather_shape.h"

#include <math.h>

#include "core/arithmetic.h"
#include "core/dtype.h"
#include "cuda/gather_join.h"
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
    MOST_SHORT = 3
};

/* The first stages of a block and its last stores, and what the first wait for where their number must be loaded first. */
static const double FILL_SECONDS = 0.2e-6, RANGE_SECONDS = 2.4e-6;
/* What a tile costs beside its stages, and one of 128 x 256 for its size; blocks of a cluster wait for each other. */
static const double SWITCH_SECONDS = 0.2e-6, EPILOGUE_SECONDS = 0.3e-6, CLUSTER_SECONDS = 1.0e-6;
/* The same where rows of Y are in another order and no multiple of 8 elements long: they are stored one by one. */
static const double SCATTER_SECONDS = 4e-6;
/* Token-major Y that is not staged for the copy engine leaves in pieces of a few bytes, at so many bytes a second. */
static const double UNSTAGED_RATE = 0.67e12;
/* A block with one stage reads, multiplies and writes in turn, and others somewhat out of step with it; with each further stage, so much
 * more of it overlaps. */
static const double OVERLAP_A_STAGE = 0.02, ONE_STAGE = 0.8;
/* From the moment when a stage of a gathering block is free to the end of its next products, if no other block asks for any, and of
 * the rate of L2 what all of them get; a stage of boxes, at least. */
static const double TRIP_SECONDS = 1.3e-6, TRIP_RATE = 2.5, BOX_SECONDS = 0.55e-6;
/* The streaming kernel: a tile's epilogue, which no copy hides and parts that meet share, the first stages of a block, and a stage of
 * packed weights, whatever else there is to do. */
static const double TILE_SECONDS = 1.2e-6, STREAM_FILL_SECONDS = 1.5e-6, UNPACK_SECONDS = 0.21e-6;
/* Its parts that meet: every one beyond the second with 128 tokens; with up to 64 three, whose shares are uneven, and four; what 128 more
 * tokens cost, and X that is token-major, but for 32. */
static const double PART_SECONDS = 2.0e-6, THREE_SECONDS = 1.3e-6, FOUR_SECONDS = 0.3e-6, WIDE_SECONDS = 1.0e-6,
                    STRAIGHT_SECONDS = 0.9e-6;
/* The gathering kernel's parts that meet. */
static const double MEET_SECONDS = 0.5e-6;
/* What boxes of X that reach past the last token cost it, a stage of a block: token-major ones of several, and each of 64 tokens of
 * feature-major rows that do not end with a sector of L2; others do not mind. */
static const double PADDING_SECONDS = 0.07e-6, CUT_SECONDS = 0.11e-6;
enum { SECTOR_TOKENS = 16 };

/* Tiles for few tokens: a block's first stages and its last stores; and of its rate, what is left where blocks have more than one
 * tile. */
static const double FEW_SECONDS = 1.1e-6, AGAIN_SHARE = 0.82;

/* Of the bound's rate, what the streaming kernels, their tiles for few tokens, parts that meet, and whole blocks reached on an
 * H200. The rate of L2 is that of cp.async, which the copy engine exceeds; boxes wait for each other, and rows that come one by one
 * were the faster in (256 and 1024,5120,20480) and (256,20480,5120). */
static const double STREAM_EFFICIENCY = 1.4, FEW_EFFICIENCY = 1.4, MEET_EFFICIENCY = 1.27, BOX_EFFICIENCY = 1.0;

/* Of what a tile reached, what is left where row groups of fewer than 64 outputs are joined. */
static const double JOINED_SHARE = 0.74;

/* And where they are joined in fours: a tile of 128 x 256, and those of half its size or less. Of the time in which the first writes
 * rows of Y in another order, what no products hide. */
static const double WIDE_FOURS_SHARE = 1.06, FEW_FOURS_SHARE = 0.96, SCATTERED_SHARE = 0.8;

/* The clock falls under long work: by so much at most. */
static const double HOT_SHARE = 0.2;

/* Of the multiprocessors, those that clusters of more than two blocks can have: 32 of 4 blocks did not fit at once on an H200's 132, nor
 * did 43 of 3. */
static const double LARGE_CLUSTERS = 0.9;

/* A copy of 512 bytes by a warp's cp.async occupies shared memory for 12 clocks. */
static const double CP_ASYNC_PORT = 3.0;

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

/* Whether the rows of X of every stage are neighbours, the first a multiple of how many they are. */
static bool in_boxes(const lac_weight *w, int rows)
{
    return w->pattern.family == LAC_FAMILY_BLOCK && w->geometry.unit_k % rows == 0 && !w->part[LAC_PART_COL_PERM].data;
}

/* Rows of X that a tile of outputs reads at most. */
static int64_t rows_of(const lac_weight *w, lac_gather_kind kind)
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
    double one = element ? (double)(g->selected * g->unit_k) : (double)rows_of(w, s->kind), k = (double)g->k;
    double units = (double)lac_ceil_divide(s->tile_outputs, g->unit_n);
    if (s->kind == LAC_GATHER_SPARSE)
        return lac_gather_joined_places(units, one, k, g->unit_k > 1 && g->unit_k <= MOST_CROWDING);
    return s->every ? k : k * (1.0 - pow(fmax(0.0, 1.0 - one / k), units));
}

uint64_t lac_gather_turned_bytes(const lac_problem *problem, const lac_gather_shape *s)
{
    if (!lac_gather_copies_x(s) && problem->options.x_layout == LAC_LAYOUT_FEATURE_MAJOR && problem->m % 8 == 0) return 0;
    return (uint64_t)lac_gather_turned_ld(problem) * (uint64_t)problem->weight->k_in * 2;
}

bool lac_gather_by_engine(const lac_problem *problem, const lac_gather_shape *s)
{
    return s->boxes || (s->kind == LAC_GATHER_STREAM && !problem->weight->part[LAC_PART_COL_PERM].data);
}

/* ---- what a shape asks of the GPU */

/* Clusters of so many blocks that run at once. */
static double clusters_at_once(const lac_problem *problem, int blocks)
{
    return floor(lac_cuda_rates_of(problem->device)->multiprocessors * (blocks > 2 ? LARGE_CLUSTERS : 1.0) / blocks);
}

/* What parts that meet cost beside an epilogue. */
static double meeting_seconds(const lac_problem *problem, const lac_gather_shape *s)
{
    double few = s->parts == 4 ? FOUR_SECONDS : s->parts == 3 ? THREE_SECONDS : 0.0;
    return (s->tile_tokens > 64 ? (s->parts - 2) * PART_SECONDS : few) +
           WIDE_SECONDS * fmax(0.0, s->tile_tokens / 128.0 - 1.0) +
           (problem->options.x_layout == LAC_LAYOUT_TOKEN_MAJOR && s->tile_tokens > 32 ? STRAIGHT_SECONDS : 0.0);
}

/* A stage of a stream whose last tile has tokens that do not exist. */
static double padding_seconds(const lac_problem *problem, const lac_gather_shape *s)
{
    if (problem->m % s->tile_tokens == 0) return 0.0;
    if (problem->options.x_layout == LAC_LAYOUT_TOKEN_MAJOR) return problem->m > s->tile_tokens ? PADDING_SECONDS : 0.0;
    return problem->m % SECTOR_TOKENS ? CUT_SECONDS * s->tile_tokens / 64.0 : 0.0;
}

static lac_cost cost_of(const lac_problem *problem, const lac_gather_shape *s)
{
    const lac_gpu_rates *rates = lac_cuda_rates_of(problem->device);
    const lac_plan_options *o = &problem->options;
    double tiles = (double)s->token_tiles * (double)s->output_tiles, stages = tiles * s->usual_stages;
    /* Of a pair, each warpgroup multiplies its own row group's stages only, and only their W comes. */
    double own = s->paired ? (double)rows_of(problem->weight, s->kind) / s->rows / s->usual_stages : 1.0;
    bool engine = lac_gather_by_engine(problem, s), streams = engine && !s->boxes, sparse = lac_gather_is_sparse(s);
    /* Token-major boxes of a stream end with the last token. */
    double brought = streams && o->x_layout == LAC_LAYOUT_TOKEN_MAJOR ? 2.0 * s->rows * fmin(s->tile_tokens, (double)problem->m)
                                                                      : lac_gather_x_stage(s);
    double pulled = stages * (s->filled * brought / (streams ? (double)s->cluster : 1.0) +
                              own * lac_gather_w_stage(s) / (streams ? 1.0 : (double)s->cluster));
    /* Rows of X that no row group selects are not read. */
    double k = (double)problem->weight->geometry.k,
           none = k > 0.0 ? fmax(0.0, 1.0 - (double)rows_of(problem->weight, s->kind) / k) : 0.0;
    double x_bytes = (double)problem->m * k * (s->joined ? 1.0 : 1.0 - pow(none, (double)s->groups)) * 2.0;
    double w_bytes = (double)s->output_tiles * s->usual_stages * own * lac_gather_w_stage(s);
    double y_bytes = (double)problem->m * (double)problem->weight->n_out * (double)lac_dtype_size(o->y_dtype);
    double partial = s->parts > 1 && !s->meets ? tiles * s->parts * s->tile_outputs * s->tile_tokens * 4.0 : 0.0;
    bool as_is = engine && (o->x_layout == LAC_LAYOUT_TOKEN_MAJOR ? problem->weight->k_in : problem->m) % 8 == 0;
    double turned = as_is ? 0.0 : 2.0 * (double)lac_gather_turned_bytes(problem, s);
    /* Copies and tensor cores share the port of shared memory. Each warpgroup reads W's rows once for each product and X's rows
     * once for each 64 outputs; cp.async takes the port for three times its bytes, the copy engine for once. */
    double read = stages * own *
                  (s->tile_outputs / 64.0 * lac_gather_x_stage(s) + (double)s->tile_tokens / s->width * lac_gather_w_stage(s));
    double written = stages * ((engine ? 1.0 : CP_ASYNC_PORT) * lac_gather_x_stage(s) + own * lac_gather_w_stage(s));
    int blocks = s->cluster * (s->meets ? s->parts : 1);
    double clusters = clusters_at_once(problem, blocks);
    double waves = ceil(tiles * s->parts / blocks / (clusters * s->resident));
    double chain = fmax(1.0, waves * s->usual_stages / s->parts); /* stages of a block */
    bool stream = s->kind == LAC_GATHER_STREAM;
    double padding = streams ? chain * padding_seconds(problem, s) : 0.0;
    double area = s->tile_outputs * s->tile_tokens / 32768.0, tile = SWITCH_SECONDS + EPILOGUE_SECONDS * area;
    bool scatters = problem->weight->part[LAC_PART_ROW_PERM].data && problem->m % 8;
    double fill = stream ? waves * TILE_SECONDS / (s->meets ? s->parts : 1) + padding +
                               (s->meets ? meeting_seconds(problem, s) : STREAM_FILL_SECONDS)
                         : waves * tile + FILL_SECONDS + (s->paired ? RANGE_SECONDS : 0.0) +
                               (s->cluster > 1 ? CLUSTER_SECONDS : 0.0) + (scatters ? SCATTER_SECONDS * area : 0.0);
    if (s->few) fill += FEW_SECONDS + (s->meets ? MEET_SECONDS : 0.0);
    double scattered = lac_cuda_scatter_seconds(problem);
    bool direct = o->y_layout == LAC_LAYOUT_TOKEN_MAJOR && s->staging == 0 && !s->by_last && !stream;
    fill += scattered > 0.0 ? scattered : direct ? y_bytes / UNSTAGED_RATE : 0.0;
    if (lac_gather_in_fours(s) && s->tile_outputs > 64 && problem->weight->part[LAC_PART_ROW_PERM].data)
        fill += SCATTERED_SHARE * y_bytes / rates->memory;
    double overlap = OVERLAP_A_STAGE * fmax(0.0, s->usual_stages / s->parts * waves - 1.0);
    bool few = s->few || (stream && s->tile_tokens < 256);
    double efficiency = s->meets && stream ? MEET_EFFICIENCY
                        : few && stream    ? FEW_EFFICIENCY
                        : engine           ? s->boxes ? BOX_EFFICIENCY : STREAM_EFFICIENCY
                                           : s->efficiency;
    if (s->joined && !engine && !sparse) efficiency *= JOINED_SHARE;
    if (lac_gather_in_fours(s))
        efficiency *= s->tile_outputs * s->tile_tokens <= 128 * 128 ? FEW_FOURS_SHARE
                      : s->tile_outputs > 64                        ? WIDE_FOURS_SHARE
                                                                    : 1.0;
    if (s->few && tiles * s->parts > clusters * blocks) efficiency *= AGAIN_SHARE;
    if (!s->few && !s->meets) efficiency /= 1.0 + HOT_SHARE * lac_model_gpu_heat((read + written) / rates->shared / efficiency);
    /* A block asks for a stage when one that it had is done with: its stages are so many round trips, one behind the other,
     * each behind what all blocks have asked for. */
    double deep = fmin(chain, s->stages);
    double asked = fmin(tiles * s->parts, clusters * blocks * s->resident) * deep * lac_gather_stage(s);
    double trips = chain / deep * (TRIP_SECONDS + asked / rates->l2 / TRIP_RATE);
    lac_gpu_work work = {.memory_bytes = x_bytes + w_bytes + y_bytes * (o->has_residual ? 2 : 1),
                         .l2_bytes = pulled,
                         .shared_bytes = read + written,
                         .instructions = stages * (s->rows * 8 + 200),
                         .mma_flops = stages * own * 2.0 * s->tile_outputs * s->tile_tokens * s->rows * (sparse ? 0.56 : 1.0),
                         .blocks = tiles * s->parts,
                         .blocks_at_once = clusters * blocks,
                         .fill_seconds = turned / rates->memory + lac_model_gpu_parts(rates, partial, tiles) + fill,
                         .chain_seconds = s->packed          ? chain * UNPACK_SECONDS
                                          : stream || s->few ? 0.0
                                          : s->boxes         ? chain * BOX_SECONDS
                                                             : trips,
                         .exposed = stream || s->few ? 0.0 : ONE_STAGE / (1.0 + overlap),
                         .efficiency = efficiency,
                         .launches = 1 + (turned > 0.0) + (s->parts > 1 && !s->meets),
                         .early = !stream};
    return lac_model_gpu_cost(rates, &work);
}

/* ---- candidates */

/* Whether 64 outputs of a tile are neighbours in Y, which the copy engine then stores. */
static bool stores(const lac_problem *problem, const lac_gather_shape *s)
{
    const lac_weight *w = problem->weight;
    return problem->options.y_dtype != LAC_DTYPE_F32 && !w->part[LAC_PART_ROW_PERM].data &&
           (s->height % 64 == 0 || s->groups == 1);
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
    if (!lac_gather_copies_x(s)) return true;
    if (s->kind != LAC_GATHER_STREAM || s->cluster > 1 || !lac_gather_by_engine(problem, s)) return false;
    if (s->width == 32 && (!s->meets || !token_major || problem->m > s->tile_tokens)) return false;
    return !s->packed || (s->tile_tokens <= 128 && s->tile_outputs >= 128 && hold_two(&problem->weight->geometry, 8));
}

bool lac_gather_shape_complete(const lac_problem *problem, lac_gather_shape *s)
{
    const lac_geometry *g = &problem->weight->geometry;
    int64_t rows = rows_of(problem->weight, s->kind), both = 2 * rows < g->k ? 2 * rows : g->k;
    double density = g->k > 0 ? (double)rows / (double)g->k : 0.0;
    if (s->joined && s->paired) return false;
    /* Such tiles hold W with nearly all its zeros. */
    if (s->joined && s->kind == LAC_GATHER_DENSE && problem->options.no_dense &&
        joined_rows(problem->weight, s) > NEARLY_ALL * (double)g->k)
        return false;
    int64_t units = lac_ceil_divide(s->tile_outputs, g->unit_n) + 1; /* of a tile, cut anywhere */
    if (lac_gather_in_fours(s) && (s->every || units > LAC_GATHER_MOST_JOINED)) return false;
    if (s->few && (s->kind == LAC_GATHER_STREAM || s->every || s->cluster > 1 || s->rows != 64 || problem->m > s->tile_tokens ||
                   in_boxes(problem->weight, s->rows)))
        return false;
    if (s->few && s->meets && s->tile_outputs < 128) return false;
    if (s->every && problem->weight->part[LAC_PART_COL_PERM].data) return false;
    s->boxes = s->kind == LAC_GATHER_DENSE && !s->apart && (s->every || in_boxes(problem->weight, s->rows));
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
    s->stages = bytes / stage < MOST_STAGES ? (int)(bytes / stage) : MOST_STAGES;
    s->staging = lac_gather_in_turns(s) ? 1 : s->meets || !stores(problem, s) ? 0 : s->few ? 1 : staging_beside(s, bytes);
    s->by_last = leaves_by_last(problem, s);
    if (s->staging) s->stages = (int)lac_smaller(s->stages, (bytes - lac_gather_staging(s->staging)) / stage);
    if (lac_gather_in_turns(s)) s->stages -= s->stages % 2;
    int64_t turned = lac_ceil_divide(problem->weight->k_in, 64) * (lac_gather_turned_ld(problem) / 64); /* blocks of turn.cu */
    if (s->meets && s->stages * stage < (int64_t)s->tile_outputs * s->tile_tokens * 4) return false; /* sums, in their place */
    return s->stages >= 2 && turned <= INT32_MAX && s->token_tiles * s->output_tiles < INT32_MAX / MOST_PARTS &&
           s->output_tiles * s->most_stages < INT32_MAX / s->rows;
}

typedef struct choice {
    bool found;
    lac_gather_shape *shape;
    lac_cost *cost;
} choice;

static void compare(const lac_problem *problem, const lac_gather_shape *shape, choice *best)
{
    lac_cost now = cost_of(problem, shape);
    if (best->found && now.seconds >= best->cost->seconds) return;
    *best->shape = *shape;
    *best->cost = now;
    best->found = true;
}

/* Parts that meet in a cluster: each block writes some of the tokens that they add up, through the memory of the stages. So a second
 * tile's stages could not come before the first one's sums were read: only where there is none. */
static void consider_meeting(const lac_problem *problem, lac_gather_shape shape, choice *best)
{
    /* Half of the tokens brings as much of token-major X and multiplies less. */
    if (problem->options.x_layout == LAC_LAYOUT_TOKEN_MAJOR && shape.tile_tokens > 64 && 2 * problem->m <= shape.tile_tokens)
        return;
    shape.meets = true;
    int most = shape.few ? 2 : MOST_MEETING;
    for (shape.parts = 2; shape.cluster == 1 && shape.parts <= most; ++shape.parts)
        if (shape.width / shape.parts >= least_share(problem) && lac_gather_shape_complete(problem, &shape) &&
            shape.most_stages >= shape.parts &&
            (double)(shape.token_tiles * shape.output_tiles) <= clusters_at_once(problem, shape.parts))
            compare(problem, &shape, best);
}

/* Whether any two blocks would run beside each other: where each has a multiprocessor to itself, the same tile meant to be alone has more
 * stages and loses nothing. */
static bool has_neighbours(const lac_problem *problem, const lac_gather_shape *s)
{
    return s->resident == 1 ||
           s->token_tiles * s->output_tiles * s->parts > lac_cuda_rates_of(problem->device)->multiprocessors;
}

static void consider(const lac_problem *problem, lac_gather_shape shape, choice *best)
{
    if (shape.kind == LAC_GATHER_STREAM || shape.few) consider_meeting(problem, shape, best);
    if (!lac_gather_shape_complete(problem, &shape)) return;
    int64_t most = shape.few || shape.packed ? 1 : shape.most_stages < MOST_PARTS ? shape.most_stages : MOST_PARTS;
    for (shape.parts = 1; shape.parts == 1 || shape.parts <= most; ++shape.parts)
        if (has_neighbours(problem, &shape)) compare(problem, &shape, best);
}

/* A tile as it is, in a cluster, its rows of X one by one, or with short stages where these are few and waste less. */
static void consider_ways(const lac_problem *problem, lac_gather_shape shape, choice *best)
{
    int64_t halves = lac_ceil_divide(rows_of(problem->weight, shape.kind), 32);
    bool saves = shape.kind != LAC_GATHER_STREAM && !shape.joined && halves % 2 && halves <= MOST_SHORT;
    int most = shape.kind == LAC_GATHER_STREAM || shape.tile_tokens == 512 ? 2 : 1; /* blocks of a cluster */
    for (shape.rows = 64; shape.rows >= (saves ? 32 : 64); shape.rows -= 32)
        for (shape.cluster = most; shape.cluster >= 1; --shape.cluster) {
            shape.apart = false;
            consider(problem, shape, best);
            shape.packed = shape.kind == LAC_GATHER_STREAM;
            if (shape.packed) consider(problem, shape, best);
            shape.packed = false;
            shape.apart = shape.kind == LAC_GATHER_DENSE && !shape.every && in_boxes(problem->weight, shape.rows);
            if (shape.apart) consider(problem, shape, best);
        }
}

bool lac_gather_shape_make(const lac_problem *problem, lac_gather_kind kind, lac_gather_shape *out, lac_cost *cost)
{
    /* Outputs x tokens of a tile, tokens of one product, whether two row groups of up to 64 outputs share it, blocks on a
     * multiprocessor, whether it is for few tokens, and of the bound's rate what it reached on an H200, dense and sparse. Both
     * warpgroups have all tokens, or half of them each where there are only 64 outputs. A tile alone on its multiprocessor comes
     * before the same one beside another: where both are as good, its stages are more. */
    static const struct {
        int outputs, tokens, width, paired, resident, few;
        double dense, sparse;
    } tiles[] = {
        {128, 256, 256, 0, 1, 0, 1.42, 1.6}, {64, 512, 256, 0, 1, 0, 1.74, 1.92},  {128, 128, 128, 0, 1, 0, 1.33, 1.22},
        {64, 256, 128, 0, 1, 0, 1.5, 1.6},   {128, 64, 64, 0, 1, 0, 1.38, 1.32},   {64, 128, 64, 0, 1, 0, 1.36, 1.28},
        {128, 64, 64, 0, 2, 0, 1.5, 1.32},   {64, 128, 64, 0, 2, 0, 1.45, 1.28},   {128, 256, 256, 1, 1, 0, 1.36, 0.0},
        {128, 128, 128, 1, 1, 0, 1.0, 0.0},  {256, 128, 128, 0, 1, 0, 1.3, 1.38},  {128, 192, 192, 0, 1, 0, 1.32, 1.52},
        {64, 384, 192, 0, 1, 0, 1.24, 1.5},  {64, 64, 64, 0, 1, 1, 1.05, 0.9},     {64, 128, 64, 0, 1, 1, 1.2, 1.22},
        {128, 64, 64, 0, 1, 1, 1.0, 1.15},   {128, 128, 128, 0, 1, 1, 0.98, 1.38}, {128, 32, 32, 0, 1, 0, 0.0, 0.0},
        {64, 64, 32, 0, 1, 0, 0.0, 0.0}};
    const lac_weight *w = problem->weight;
    const lac_geometry *g = &w->geometry;
    if (problem->m == 0 || g->n == 0) return false;
    choice best = {false, out, cost};
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
        if (takes(w, kind)) consider_ways(problem, alone, &best);
        for (int every = 0; every < 2 && joins(w, kind) && !tiles[i].paired; ++every) {
            joined.every = every;
            consider_ways(problem, joined, &best);
        }
    }
    return best.found;
}
