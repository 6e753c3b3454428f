/* stream.c - kernels cpu_<unit>_f32_stream: every family, tokens along the vector and weights broadcast. It is what
 * element-wise and V:N:M weights want, whose rows have columns of their own, and vectors too short to fill a vector unit.
 *
 * Preparing (stream_prepare.c) writes W in the order of use (stream_state.h).
 *
 * Executing packs X (panel.h), then goes: item of rows -> block -> tile of tokens -> strip. The block of X stays in the
 * first-level cache over all strips of the item; the item's part of the block of W comes from memory for the first tile and
 * from the second-level cache for the others; sums live in the thread's scratch between blocks.
 *
 * Workspace:  packed panel of tokens | sums that wait (finish.h) | for each thread: sums [tile][row of the item][token of the tile]
 *             or, where threads share out the tokens, for each: packed tile of tokens | sums [row of the item][token] | sums
 *             that wait
 * Bottleneck: loads from the first-level cache (stream_body.h). */
#include "cpu/stream.h"

#include <math.h>

#include "core/arithmetic.h"
#include "core/parallel.h"
#include "cpu/finish.h"
#include "cpu/kernels.h"
#include "cpu/panel.h"
#include "cpu/stream_state.h"
#include "format/weight.h"

/* The fewest rows in a work item. */
enum { LEAST_ITEM_ROWS = 32 };
/* The more rows in a pool, the more the two of a pair have in common; but threads must have items to share out. */
enum { LEAST_POOLS = 32 };
/* Parts that the tiles of a panel are cut into at most, so that threads have enough to share out. */
enum { MOST_TOKEN_PARTS = 4 };
/* Columns and slots are counted in 16 bits within a block. */
enum { MOST_BLOCK_COLUMNS = 65535 };
/* Slots of a strip in a block that pay for its sums; with fewer, blocks are wider, by half at most. */
enum { LEAST_SLOTS = 24 };
/* Strips with common columns that pay for bringing these to the first-level cache. */
enum { SHARING_STRIPS = 8 };

bool lac_cpu_stream_applies(const lac_problem *problem)
{
    const lac_cpu_unit *unit = problem->kernel->config;
    return unit->is_supported();
}

/* ---- sizes */

int lac_cpu_stream_rows(const lac_weight *w) { return w->pattern.family != LAC_FAMILY_VNM && w->geometry.unit_n >= 4 ? 4 : 2; }

/* As few tiles as possible, as equal as possible: ceil(vectors / tiles) vectors in the widest. */
static int widest(const lac_problem *problem, int64_t tokens, int64_t *tiles, int64_t *vectors)
{
    const lac_cpu_unit *unit = problem->kernel->config;
    int most = unit->stream_vectors[lac_cpu_stream_rows(problem->weight) == 4];
    *vectors = lac_ceil_divide(tokens > 0 ? tokens : 1, unit->lanes);
    *tiles = lac_ceil_divide(*vectors, most);
    return (int)lac_ceil_divide(*vectors, *tiles);
}

int lac_cpu_stream_tile_vectors(const lac_problem *problem)
{
    int64_t tiles, vectors;
    return widest(problem, lac_smaller(problem->m, lac_cpu_panel_tokens(problem->m)), &tiles, &vectors);
}

static int tile_tokens(const lac_problem *problem)
{
    const lac_cpu_unit *unit = problem->kernel->config;
    return lac_cpu_stream_tile_vectors(problem) * unit->lanes;
}

/* The panel at token `first`; the tiles that the vectors do not fill have one vector less. */
static lac_cpu_panel panel_at(const lac_problem *problem, const lac_call *call, int64_t first)
{
    const lac_cpu_unit *unit = problem->kernel->config;
    lac_cpu_panel panel = lac_cpu_panel_at(problem, call, tile_tokens(problem), first);
    int64_t vectors;
    int most = widest(problem, panel.tokens, &panel.tiles, &vectors);
    panel.tile = most * unit->lanes;
    panel.narrow = panel.tile - unit->lanes;
    panel.narrow_tiles = panel.tiles * most - vectors;
    return panel;
}

/* The tiles of all tokens, where threads share these out: as many for each, none wider than preparing knew. */
static lac_cpu_panel every_token(const lac_problem *problem)
{
    const lac_cpu_unit *unit = problem->kernel->config;
    int64_t vectors = lac_ceil_divide(problem->m > 0 ? problem->m : 1, unit->lanes), threads = problem->options.threads;
    int64_t tiles = lac_ceil_divide(vectors, lac_cpu_stream_tile_vectors(problem)),
            equal = lac_ceil_divide(tiles, threads) * threads;
    if (tiles > 1 && equal <= vectors) tiles = equal;
    int most = (int)lac_ceil_divide(vectors, tiles);
    return (lac_cpu_panel){.tokens = problem->m,
                           .tiles = tiles,
                           .tile = most * unit->lanes,
                           .narrow = (most - 1) * unit->lanes,
                           .narrow_tiles = tiles * most - vectors};
}

/* 4 bytes and a column of 2 for each weight. */
static bool by_tokens(const lac_problem *problem)
{
    return lac_cpu_shares_tokens(problem, (uint64_t)problem->weight->kept * 6, every_token(problem).tiles,
                                 LAC_CPU_STREAM_CACHES);
}

/* Items that the threads can share out: four for each at least, so that they end together. */
static int64_t least_items(const lac_problem *problem) { return 4 * (int64_t)problem->options.threads; }

/* Tiles of the largest panel. */
static int64_t panel_tiles(const lac_problem *problem)
{
    int64_t tiles, vectors;
    widest(problem, lac_smaller(problem->m, lac_cpu_panel_tokens(problem->m)), &tiles, &vectors);
    return tiles;
}

/* Which rows are a pair decides in which order their products are summed: it must not depend on the number of threads. */
int64_t lac_cpu_stream_pool_rows(const lac_problem *problem)
{
    int64_t rows = LAC_CPU_STREAM_POOL_ROWS;
    while (rows > LEAST_ITEM_ROWS && problem->weight->geometry.n < LEAST_POOLS * rows) rows /= 2;
    return rows;
}

/* The more rows an item has, the more often its block of X is used again; so where threads are many, items are cut by tiles first,
 * each of which reads the item's part of W again, from the third-level cache. Where threads share out the tokens, as few
 * items as possible. */
int64_t lac_cpu_stream_item_rows(const lac_problem *problem)
{
    int64_t rows = LAC_CPU_STREAM_ITEM_ROWS, n = problem->weight->geometry.n, items = least_items(problem);
    if (by_tokens(problem))
        items = 2;
    else
        items = lac_ceil_divide(items, lac_smaller(panel_tiles(problem), MOST_TOKEN_PARTS));
    while (rows > LEAST_ITEM_ROWS && n < items * rows) rows /= 2;
    return lac_cpu_stream_rows(problem->weight) == 2 ? lac_larger(rows, lac_cpu_stream_pool_rows(problem)) : rows;
}

/* Parts of a panel's tiles, an item of each. */
static int64_t token_parts(const lac_problem *problem)
{
    int64_t items = lac_ceil_divide(problem->weight->geometry.n, lac_cpu_stream_item_rows(problem));
    return items >= least_items(problem) ? 1 : lac_smaller(panel_tiles(problem), lac_ceil_divide(least_items(problem), items));
}

static double density_of(const lac_weight *w)
{
    const lac_geometry *g = &w->geometry;
    return g->n && g->k ? (double)w->kept / ((double)g->n * (double)g->k) : 0.0;
}

/* Columns of X whose tile fills five eighths of the first-level cache. Where many strips in a row have the same columns
 * (or choose among the same), only those need to fit, so blocks may be that much wider. Where rows keep few columns blocks fill
 * all but a sixteenth of the cache: what is pushed out costs less than sums that change after a few slots. */
int64_t lac_cpu_stream_block_columns(const lac_problem *problem)
{
    const lac_geometry *g = &problem->weight->geometry;
    bool is_vnm = problem->weight->pattern.family == LAC_FAMILY_VNM;
    uint64_t l1 = problem->device->info.l1_bytes ? problem->device->info.l1_bytes : 32768;
    int64_t columns = (int64_t)(l1 * 5 / 8 / ((uint64_t)tile_tokens(problem) * sizeof(float)));
    if (g->unit_n / lac_cpu_stream_rows(problem->weight) >= SHARING_STRIPS) {
        int64_t used = is_vnm ? g->selected : problem->weight->kept / g->n;
        if (used > 0 && used < g->k) columns = columns * g->k / used;
    }
    double density = density_of(problem->weight);
    if (density > 0.0 && (double)columns * density < LEAST_SLOTS)
        columns = lac_smaller((int64_t)(LEAST_SLOTS / density), columns * 3 / 2);
    if (g->group_m) columns = columns / (g->group_m * g->unit_k) * (g->group_m * g->unit_k); /* equal counts in every block */
    if (columns < 16) columns = 16;
    return lac_smaller(columns, MOST_BLOCK_COLUMNS);
}

/* Two rows share a column by chance as often as the density says, or among the 4 inputs selected for a V:N:M group. A pair is the
 * best of a pool: by so many standard deviations of what rows share within a block, 1 for 32 rows and a quarter more with each
 * doubling (fitted to random masks of six patterns, which it meets within 2% of the slots but for few slots in small pools). */
double lac_cpu_stream_shared(const lac_problem *problem)
{
    const lac_weight *w = problem->weight;
    if (lac_cpu_stream_rows(w) == 4) return 1.0;
    double density = density_of(w);
    double chance = w->pattern.family == LAC_FAMILY_VNM ? w->pattern.n / (double)LAC_VNM_SELECTED : density;
    double slots = density * (double)lac_smaller(lac_cpu_stream_block_columns(problem), w->geometry.k), doublings = 0.0;
    for (int64_t rows = LEAST_ITEM_ROWS; rows < lac_cpu_stream_pool_rows(problem); rows *= 2) doublings += 1.0;
    if (slots < 4.0) return 0.0; /* fours are shared, or none */
    double shared = chance + (1.0 + doublings / 4.0) * (1.0 - chance) * sqrt(chance / slots);
    return shared < 1.0 ? shared : 1.0;
}

/* ---- executing */

static uint64_t rounded_up(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

/* Floats of an item's sums over the largest panel. */
static int64_t sums_floats(const lac_problem *problem)
{
    int64_t tile = tile_tokens(problem), tokens = lac_smaller(problem->m, lac_cpu_panel_tokens(problem->m));
    return lac_cpu_stream_item_rows(problem) * lac_ceil_divide(tokens, tile) * tile;
}

/* Bytes of what a thread has for itself where threads share out tokens: a packed tile, the sums of an item, and, behind
 * these, sums that wait. */
static uint64_t before_aside(const lac_problem *problem, int tile)
{
    return lac_cpu_tile_bytes(problem, tile) +
           rounded_up((uint64_t)lac_cpu_stream_item_rows(problem) * (uint64_t)tile * sizeof(float));
}

static uint64_t own_bytes(const lac_problem *problem, int tile)
{
    return before_aside(problem, tile) + lac_cpu_aside_bytes(problem, tile);
}

/* Sums that wait, of the largest panel. */
static uint64_t aside_bytes(const lac_problem *problem)
{
    return lac_cpu_aside_bytes(problem, lac_smaller(problem->m, lac_cpu_panel_tokens(problem->m)));
}

size_t lac_cpu_stream_workspace(const lac_problem *problem)
{
    if (by_tokens(problem)) return (uint64_t)problem->options.threads * own_bytes(problem, every_token(problem).tile);
    return lac_cpu_packed_bytes(problem, tile_tokens(problem)) + aside_bytes(problem) +
           (uint64_t)problem->options.threads * (uint64_t)sums_floats(problem) * sizeof(float);
}

/* Strips [first, last) of W against all tiles of a panel. */
typedef struct item {
    const lac_cpu_stream_state *state;
    const lac_problem *problem;
    const lac_call *call;
    const lac_cpu_panel *tokens;
    int64_t number, first, last;
    int64_t first_tile, last_tile;
    float *sums; /* [tile][row][token of the tile] */
} item;

static float *sums_of(const item *it, int64_t first_token)
{
    return it->sums + first_token * it->state->item_strips * it->state->rows;
}

/* The activations of block `b` for the tile at `first_token`. */
static const float *block_of(const item *it, int64_t b, int64_t first_token)
{
    return it->tokens->packed + first_token * it->problem->weight->geometry.k +
           b * it->state->block_columns * lac_cpu_tile_at(it->tokens, first_token);
}

/* Asks for the block of X that follows block `b` of tile `tile`. Rows that share their columns need but some of its columns, and
 * asking for all of them cost more than it saved. */
static void ask_for_next(const item *it, int64_t b, int64_t tile, lac_cpu_stream_call *call)
{
    const lac_cpu_stream_state *s = it->state;
    const int64_t k = it->problem->weight->geometry.k;
    if (++tile == it->last_tile) tile = it->first_tile, ++b;
    if (b == s->blocks || s->rows == 4) return;
    int64_t first_token = lac_cpu_tile_first(it->tokens, tile);
    int64_t columns = lac_smaller(s->block_columns, k - b * s->block_columns);
    call->next = (const char *)block_of(it, b, first_token);
    call->next_bytes = columns * lac_cpu_tile_at(it->tokens, first_token) * (int64_t)sizeof(float);
}

static void multiply_item(const item *it)
{
    const lac_cpu_stream_state *s = it->state;
    const lac_cpu_unit *unit = it->problem->kernel->config;
    const bool runs_on = s->group_rows % s->rows == 0 || s->group_rows >= it->problem->weight->geometry.n; /* no padded rows */
    for (int64_t b = 0; b < s->blocks; ++b) {
        lac_cpu_stream_place first = s->first[b * s->items + it->number];
        for (int64_t tile = it->first_tile; tile < it->last_tile; ++tile) {
            int64_t first_token = lac_cpu_tile_first(it->tokens, tile);
            lac_cpu_stream_call call = {.rows = s->rows,
                                        .vectors = lac_cpu_tile_at(it->tokens, first_token) / unit->lanes,
                                        .fresh = b == 0,
                                        .count = it->last - it->first,
                                        .strips = s->strip + b * s->strips + it->first,
                                        .columns = s->columns + first.column,
                                        .values = s->values + first.slot * s->rows,
                                        .packed = block_of(it, b, first_token),
                                        .sums = sums_of(it, first_token)};
            ask_for_next(it, b, tile, &call);
            if (b == s->blocks - 1 && runs_on && !it->tokens->asked)
                call.ahead = lac_cpu_finish_region(it->problem, it->call, it->tokens, first_token, it->first * s->rows,
                                                   it->last * s->rows);
            unit->stream(&call);
        }
    }
}

/* Strips end where their row groups do, so adjacent strips are adjacent rows but for the padding of a group's last. */
static void finish_item(const item *it, int64_t first_token)
{
    const lac_cpu_stream_state *s = it->state;
    const lac_geometry *g = &it->problem->weight->geometry;
    const int width = lac_cpu_tile_at(it->tokens, first_token);
    const int64_t full = lac_ceil_divide(s->group_rows, s->rows); /* strips of a whole group */
    for (int64_t strip = it->first; strip < it->last;) {
        int64_t group = strip / full, within = strip % full;
        int64_t first_row = group * s->group_rows + within * s->rows;
        int64_t group_end = lac_smaller(g->n, (group + 1) * s->group_rows);
        bool whole = s->group_rows % s->rows == 0; /* then rows run on from one group to the next */
        int64_t end_row = lac_smaller(whole ? g->n : group_end, first_row + (it->last - strip) * s->rows);
        lac_cpu_tile result = {.first_row = first_row,
                               .rows = (int)(end_row - first_row),
                               .first_token = first_token,
                               .sums = sums_of(it, first_token) + (strip - it->first) * s->rows * width,
                               .row_stride = width,
                               .token_stride = 1};
        lac_cpu_finish_tile(it->problem->kernel->config, it->problem, it->call, it->tokens, &result);
        strip += lac_ceil_divide(end_row - first_row, s->rows);
    }
}

static void run_item(item *it)
{
    it->first = it->number * it->state->item_strips;
    it->last = lac_smaller(it->first + it->state->item_strips, it->state->strips);
    multiply_item(it);
    for (int64_t tile = it->first_tile; tile < it->last_tile; ++tile) finish_item(it, lac_cpu_tile_first(it->tokens, tile));
}

/* All of W against the tiles of all tokens, each thread its own tiles. */
static void run_by_tokens(const lac_problem *problem, const lac_cpu_stream_state *s, const lac_call *call)
{
    const lac_cpu_panel all = every_token(problem);
    const int threads = problem->options.threads;
    const bool asks = lac_cpu_asks_for_results(problem, &all), waits = !asks && lac_cpu_aside_bytes(problem, 1) > 0;
    LAC_OMP(omp parallel for schedule(static, 1) num_threads(threads) if (threads > 1))
    for (int64_t tile = 0; tile < all.tiles; ++tile) {
        char *own = (char *)call->workspace + (uint64_t)lac_parallel_number() * own_bytes(problem, all.tile);
        lac_cpu_panel tokens = lac_cpu_tile_panel(&all, tile, (float *)(void *)own);
        if (waits) tokens.aside = (float *)(void *)(own + before_aside(problem, all.tile));
        tokens.asked = tile >= threads && asks;
        float *sums = (float *)(void *)(own + lac_cpu_tile_bytes(problem, all.tile));
        lac_cpu_pack(problem->kernel->config, problem, call, &tokens);
        for (int64_t i = 0; i < s->items; ++i) {
            item it = {
                .state = s, .problem = problem, .call = call, .tokens = &tokens, .number = i, .last_tile = 1, .sums = sums};
            lac_cpu_ask_ahead(problem, call, &all, tile + threads, i, s->items);
            run_item(&it);
        }
        for (int64_t token = 0; waits && token < tokens.tokens; ++token)
            lac_cpu_finish_aside(problem->kernel->config, problem, call, &tokens, token);
    }
}

lac_status lac_cpu_stream_execute(const lac_problem *problem, const void *opaque, const lac_call *call)
{
    const lac_cpu_stream_state *s = opaque;
    const lac_cpu_unit *unit = problem->kernel->config;
    char *aside = (char *)call->workspace + lac_cpu_packed_bytes(problem, tile_tokens(problem));
    float *scratch = (float *)(void *)(aside + aside_bytes(problem));
    const int threads = problem->options.threads;
    (void)threads; /* unused without OpenMP */
    if (by_tokens(problem)) {
        run_by_tokens(problem, s, call);
        return LAC_STATUS_OK;
    }
    for (int64_t first = 0; first < problem->m; first += lac_cpu_panel_tokens(problem->m)) {
        lac_cpu_panel tokens = panel_at(problem, call, first);
        const int64_t pieces = lac_cpu_strips(problem, &tokens), parts = lac_smaller(token_parts(problem), tokens.tiles);
        if (aside_bytes(problem)) tokens.aside = (float *)(void *)aside;
        LAC_OMP(omp parallel num_threads(threads) if (threads > 1))
        {
            float *sums = scratch + (int64_t)lac_parallel_number() * sums_floats(problem);
            LAC_OMP(omp for schedule(static))
            for (int64_t piece = 0; piece < pieces; ++piece) lac_cpu_pack_strip(unit, problem, call, &tokens, piece);
            LAC_OMP(omp for schedule(dynamic))
            for (int64_t i = 0; i < s->items * parts; ++i) {
                item it = {.state = s, .problem = problem, .call = call, .tokens = &tokens, .number = i / parts, .sums = sums};
                it.first_tile = tokens.tiles * (i % parts) / parts;
                it.last_tile = tokens.tiles * (i % parts + 1) / parts;
                run_item(&it);
            }
            if (tokens.aside) {
                LAC_OMP(omp for schedule(static))
                for (int64_t token = 0; token < tokens.tokens; ++token)
                    lac_cpu_finish_aside(unit, problem, call, &tokens, token);
            }
        }
    }
    return LAC_STATUS_OK;
}
