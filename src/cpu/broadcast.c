/* broadcast.c - kernels cpu_<unit>_f32_broadcast: vector-wise, block-wise and shuffled weights (and dense ones), outputs
 * along the vector and inputs broadcast. Row groups share their columns, so a vector of outputs takes one broadcast of an
 * input for all of them. Preparing re-tiles W once into panels of up to 2 vectors of outputs:
 *
 *     values   [panel][slot][lanes * vectors]    in the weight's own dtype, read front to back
 *     columns  [row group][slot]                 stored columns, blocks of unit_k inputs written out
 *
 * Executing packs X (panel.h), a tile at a time where threads share out the tokens, then goes: item of panels -> block of slots -> tile of tokens -> panel. What a block needs of
 * a tile's X is gathered from the first-level cache; the weights, read front to back, come from the second, where the item's
 * block stays over all tiles. While a block is worked on, the next one is asked for from memory, a part with each tile.
 * Sums live in the thread's scratch between blocks, so Y is written once and C may be Y.
 *
 * Workspace:  packed panel of tokens | sums that wait (finish.h) | for each thread: sums [panel of the item][token of the panel][width]
 *             or, for each thread: packed tile of tokens | sums [panel of the item][token of the tile][width] | sums that wait
 * Bottleneck: the FMA pipes; with few tokens, reading W from memory, which happens once. */
#include "cpu/broadcast.h"

#include <string.h>

#include "core/arithmetic.h"
#include "core/dtype.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"
#include "cpu/finish.h"
#include "cpu/panel.h"
#include "format/weight.h"

/* Slots in a block: as many as span the columns whose activations fill a quarter of the first-level cache, within these. */
enum { LEAST_BLOCK_SLOTS = 128, MOST_BLOCK_SLOTS = 1024 };
/* When a call is the last to read its weights, it asks for the memory so far ahead: soon to be read, front to back. */
enum { AHEAD_BYTES = 1024 };
/* Sums that are independent of each other and keep two FMA pipes of four cycles busy. */
enum { FMAS_UNDER_WAY = 8 };

typedef struct panel_of_w {
    int64_t first_row; /* stored                                             */
    int rows, vectors; /* rows <= vectors * lanes; the rest is padding       */
    int64_t slots;
    const uint32_t *columns; /* [slots], those of its row group              */
    char *values;            /* [slots][vectors * lanes]                     */
} panel_of_w;

typedef struct broadcast_state {
    const lac_cpu_unit *unit;
    int64_t count;
    panel_of_w *panels; /* [count]                                           */
    void *storage;
} broadcast_state;

static uint64_t rounded_up(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

/* Every row of a row group reads the same columns; narrower groups than half a vector waste its lanes. */
bool lac_cpu_broadcast_applies(const lac_problem *problem)
{
    const lac_cpu_unit *unit = problem->kernel->config;
    const lac_weight *w = problem->weight;
    return unit->is_supported() && w->pattern.family != LAC_FAMILY_VNM && 2 * w->geometry.unit_n >= unit->lanes;
}

/* ---- the tiles */

/* What a tile costs: its FMAs, but not less than it takes them to follow each other. */
static int64_t tile_cost(const lac_cpu_unit *unit, int tile)
{
    int least = (FMAS_UNDER_WAY + unit->broadcast_vectors - 1) / unit->broadcast_vectors;
    return tile > least ? tile : least;
}

/* Tokens in the tiles of a panel: as few tiles as possible, of the widest and one narrower kind, with the least waste. */
static void cut_tokens(const lac_cpu_unit *unit, lac_cpu_panel *panel)
{
    const int *tiles = unit->broadcast_tiles;
    int64_t tokens = panel->tokens > 0 ? panel->tokens : 1, best = INT64_MAX;
    panel->tile = tiles[0];
    panel->tiles = (tokens + tiles[0] - 1) / tiles[0];
    for (int i = 0; tiles[i]; ++i) {
        int64_t missing = tokens - panel->tiles * tiles[i]; /* that wide tiles must take up */
        int64_t wide = i && missing > 0 ? (missing + tiles[0] - tiles[i] - 1) / (tiles[0] - tiles[i]) : 0;
        int64_t cost = wide * tile_cost(unit, tiles[0]) + (panel->tiles - wide) * tile_cost(unit, tiles[i]);
        if (cost > best || (i && wide == panel->tiles)) continue;
        best = cost;
        panel->narrow = tiles[i];
        panel->narrow_tiles = panel->tiles - wide;
    }
    if (panel->narrow_tiles == panel->tiles) {
        panel->tile = panel->narrow;
        panel->narrow_tiles = 0;
    }
}

/* The tiles of the first panel, which no other exceeds. */
static lac_cpu_panel first_panel(const lac_problem *problem)
{
    lac_cpu_panel panel = {.tokens = lac_smaller(problem->m, lac_cpu_panel_tokens(problem->m))};
    cut_tokens(problem->kernel->config, &panel);
    return panel;
}

/* The tiles of all tokens, where threads share these out. */
static lac_cpu_panel every_token(const lac_problem *problem)
{
    lac_cpu_panel all = {.tokens = problem->m};
    cut_tokens(problem->kernel->config, &all);
    return all;
}

/* ---- blocking */

/* Panels that a row group of `rows` rows is cut into, and all of them. */
static int64_t panels_of(const lac_cpu_unit *unit, int64_t rows)
{
    int64_t width = (int64_t)unit->broadcast_vectors * unit->lanes;
    return (rows + width - 1) / width;
}

static int64_t panel_count(const lac_cpu_unit *unit, const lac_geometry *g)
{
    return g->n / g->unit_n * panels_of(unit, g->unit_n) + (g->n % g->unit_n ? panels_of(unit, g->n % g->unit_n) : 0);
}

static int64_t clamp(int64_t value, int64_t least, int64_t most) { return value < least ? least : value > most ? most : value; }

/* How work is cut. The weights of an item's block take half of the second-level cache at most, its sums a quarter. */
typedef struct blocking {
    int tile;            /* tokens in the widest tile           */
    int64_t tiles;       /* in the largest panel of tokens      */
    int64_t slots;       /* in a block                          */
    int64_t panels;      /* in an item                          */
    int64_t items;       /* in all                              */
    bool by_tokens;      /* threads share out tokens, a tile at a time      */
    uint64_t sums_bytes; /* of an item, in whole lines                  */
} blocking;

static blocking blocking_by(const lac_problem *problem, bool by_tokens)
{
    const lac_cpu_unit *unit = problem->kernel->config;
    const lac_weight *w = problem->weight;
    const lac_geometry *g = &w->geometry;
    const lac_device_info *device = &problem->device->info;
    int64_t l1 = device->l1_bytes ? (int64_t)device->l1_bytes : 32768;
    int64_t l2 = device->l2_bytes ? (int64_t)device->l2_bytes : 1 << 20;
    int64_t width = (int64_t)unit->broadcast_vectors * unit->lanes, panels = panel_count(unit, g);
    lac_cpu_panel tokens = by_tokens ? every_token(problem) : first_panel(problem);
    blocking b = {.tile = tokens.tile, .tiles = tokens.tiles, .by_tokens = by_tokens};
    double density = (double)w->kept / ((double)g->n * (double)g->k + 1.0);
    int64_t span = l1 / 4 / ((int64_t)sizeof(float) * b.tile); /* columns */
    b.slots = clamp((int64_t)((double)span * density), LEAST_BLOCK_SLOTS, MOST_BLOCK_SLOTS);
    int64_t share = clamp(panels / (4 * (int64_t)problem->options.threads), 1, 64); /* four items a thread at least */
    int64_t by_weights = l2 / 2 / (b.slots * width * (int64_t)lac_dtype_size(w->dtype));
    int64_t by_sums = l2 / 4 / ((int64_t)sizeof(float) * b.tiles * b.tile * width);
    b.panels = clamp(lac_smaller(by_weights, by_sums), 1, share);
    if (by_tokens) { /* sums go no further than the first-level cache; one block where a tile leaves room for more */
        b.panels = clamp(l1 / 4 / ((int64_t)sizeof(float) * b.tile * width), 1, panels > 0 ? panels : 1);
        if (g->k * b.tile * (int64_t)sizeof(float) <= l1 / 2) b.slots = MOST_BLOCK_SLOTS;
    }
    b.items = (panels + b.panels - 1) / b.panels;
    b.sums_bytes = rounded_up((uint64_t)(b.panels * (by_tokens ? 1 : b.tiles) * b.tile * width) * sizeof(float));
    return b;
}

static blocking blocking_of(const lac_problem *problem)
{
    const lac_weight *w = problem->weight;
    uint64_t bytes = (uint64_t)w->kept * lac_dtype_size(w->dtype);
    return blocking_by(problem, lac_cpu_shares_tokens(problem, bytes, every_token(problem).tiles, LAC_CPU_BROADCAST_CACHES));
}

/* ---- preparing */

/* Products of a row of row group `group`: columns past k, in a partial last unit, do not count. */
static int64_t expand_columns(const lac_weight *w, int64_t group, uint32_t *units, uint32_t *columns)
{
    const lac_geometry *g = &w->geometry;
    int64_t kept = lac_weight_units(w, group, units), count = 0;
    for (int64_t i = 0; i < kept; ++i)
        for (int64_t c = 0; c < lac_geometry_inputs(g, units[i]); ++c)
            columns[count++] = units[i] * (uint32_t)g->unit_k + (uint32_t)c;
    return count;
}

typedef struct retiling {
    const lac_weight *weight;
    const broadcast_state *state;
} retiling;

/* Copies a panel's rows of its group's columns to where its values are to be, padding each vector with zeros. */
static void retile(void *opaque, int thread, int64_t number)
{
    const retiling *job = opaque;
    const lac_weight *w = job->weight;
    const panel_of_w *panel = &job->state->panels[number];
    (void)thread;
    size_t size = lac_dtype_size(w->dtype);
    int64_t group = panel->first_row / w->geometry.unit_n, first = panel->first_row - group * w->geometry.unit_n;
    int64_t group_rows = lac_geometry_rows(&w->geometry, group);
    const char *from = (const char *)w->part[LAC_PART_VALUES].data + (size_t)lac_weight_first_value(w, group) * size;
    size_t width = (size_t)panel->vectors * (size_t)job->state->unit->lanes * size;
    size_t used = (size_t)panel->rows * size;
    for (int64_t s = 0; s < panel->slots; ++s) {
        memcpy(panel->values + (size_t)s * width, from + (size_t)(s * group_rows + first) * size, used);
        memset(panel->values + (size_t)s * width + used, 0, width - used);
    }
}

/* What the state takes, counted before anything is allocated. */
typedef struct sizes {
    int64_t panels;
    uint64_t columns; /* entries */
    uint64_t values;  /* bytes   */
} sizes;

static sizes measure(const lac_cpu_unit *unit, const lac_weight *w)
{
    const lac_geometry *g = &w->geometry;
    sizes total = {0};
    for (int64_t group = 0; group < g->row_groups; ++group) {
        int64_t rows = lac_geometry_rows(g, group);
        uint64_t slots = (uint64_t)(lac_weight_slots(w, group) * g->unit_k);
        uint64_t vectors = (uint64_t)((rows + unit->lanes - 1) / unit->lanes);
        total.panels += panels_of(unit, rows);
        total.columns += slots;
        total.values += rounded_up(slots * vectors * (uint64_t)unit->lanes * lac_dtype_size(w->dtype)) +
                        64 * (uint64_t)panels_of(unit, rows);
    }
    return total;
}

static void cut_group(broadcast_state *state, const lac_weight *w, int64_t group, uint32_t *units, uint32_t **columns,
                      char **values)
{
    const lac_cpu_unit *unit = state->unit;
    int64_t rows = lac_geometry_rows(&w->geometry, group);
    int64_t width = (int64_t)unit->broadcast_vectors * unit->lanes;
    int64_t slots = expand_columns(w, group, units, *columns);
    for (int64_t first = 0; first < rows; first += width) {
        panel_of_w *panel = &state->panels[state->count++];
        panel->first_row = group * w->geometry.unit_n + first;
        panel->rows = (int)lac_smaller(rows - first, width);
        panel->vectors = (panel->rows + unit->lanes - 1) / unit->lanes;
        panel->slots = slots;
        panel->columns = *columns;
        panel->values = *values;
        *values += rounded_up((uint64_t)slots * (uint64_t)(panel->vectors * unit->lanes) * lac_dtype_size(w->dtype));
    }
    *columns += slots;
}

lac_status lac_cpu_broadcast_prepare(const lac_problem *problem, void **out)
{
    const lac_cpu_unit *unit = problem->kernel->config;
    const lac_weight *w = problem->weight;
    sizes need = measure(unit, w);
    uint64_t panel_bytes = rounded_up((uint64_t)need.panels * sizeof(panel_of_w));
    uint64_t column_bytes = rounded_up(need.columns * sizeof(uint32_t));
    uint64_t bytes = panel_bytes + column_bytes + need.values;
    broadcast_state *state = lac_allocate_zeroed(sizeof *state);
    uint32_t *units = lac_allocate((uint64_t)w->geometry.selected * sizeof *units);
    char *storage = lac_allocate(bytes);
    if (!state || !units || !storage) {
        lac_release(state);
        lac_release(units);
        lac_release(storage);
        return lac_fail_memory("re-tiled weight", bytes);
    }
    state->unit = unit;
    state->storage = storage;
    state->panels = (panel_of_w *)(void *)storage;
    uint32_t *columns = (uint32_t *)(void *)(storage + panel_bytes);
    char *values = storage + panel_bytes + column_bytes;
    for (int64_t group = 0; group < w->geometry.row_groups; ++group) cut_group(state, w, group, units, &columns, &values);
    lac_release(units);
    retiling job = {w, state};
    lac_parallel_for_each(state->count, lac_parallel_threads_for(problem->options.threads, state->count, w->kept), retile,
                          &job);
    *out = state;
    return LAC_STATUS_OK;
}

void lac_cpu_broadcast_release(void *state)
{
    if (!state) return;
    lac_release(((broadcast_state *)state)->storage);
    lac_release(state);
}

/* ---- executing */

/* Sums that wait, of the largest panel. */
static uint64_t aside_bytes(const lac_problem *problem)
{
    return lac_cpu_aside_bytes(problem, lac_smaller(problem->m, lac_cpu_panel_tokens(problem->m)));
}

/* What a thread has for itself where threads share out the tokens. */
static uint64_t own_bytes(const lac_problem *problem, const blocking *b)
{
    return lac_cpu_tile_bytes(problem, b->tile) + b->sums_bytes + lac_cpu_aside_bytes(problem, b->tile);
}

/* Enough for either way: dense.c asks with the sparse weight, and runs with the dense one. */
size_t lac_cpu_broadcast_workspace(const lac_problem *problem)
{
    const uint64_t threads = (uint64_t)problem->options.threads;
    blocking one = blocking_by(problem, false), other = blocking_by(problem, true);
    uint64_t by_outputs = lac_cpu_packed_bytes(problem, one.tile) + aside_bytes(problem) + threads * one.sums_bytes;
    uint64_t by_tokens = threads * own_bytes(problem, &other);
    return by_outputs > by_tokens ? by_outputs : by_tokens;
}

/* Panels [first, last) over all tiles of the packed tokens. */
typedef struct item {
    const broadcast_state *state;
    const lac_problem *problem;
    const lac_call *call;
    const lac_cpu_panel *tokens;
    int64_t first, last;
    int64_t slots; /* in a block                                                     */
    int64_t later; /* panels from these to those of the item that comes after        */
    float *sums;   /* [panel][tile][token][width] */
} item;

static float *sums_of(const item *it, int64_t panel, int64_t tile)
{
    const lac_cpu_unit *unit = it->state->unit;
    int64_t width = (int64_t)unit->broadcast_vectors * unit->lanes;
    return it->sums + ((panel - it->first) * it->tokens->tiles + tile) * it->tokens->tile * width;
}

static size_t slot_bytes(const item *it, const panel_of_w *panel)
{
    return (size_t)(panel->vectors * it->state->unit->lanes) * lac_dtype_size(it->problem->weight->dtype);
}

/* A tile's part of the weights that come after a panel's block: those of its next, or of a later panel's first. */
static void look_ahead(const item *it, int64_t p, int64_t next_slot, int64_t tile, lac_cpu_broadcast_call *call)
{
    const panel_of_w *panel = &it->state->panels[p];
    if (it->tokens->tiles == 1) { /* every call reads new weights */
        call->ahead = (const char *)call->values + AHEAD_BYTES;
        call->ahead_step = 2 * (int64_t)slot_bytes(it, panel);
        return;
    }
    if (next_slot >= panel->slots) {
        p = lac_smaller(p + it->later, it->state->count - 1);
        panel = &it->state->panels[p];
        next_slot = 0;
    }
    size_t bytes = (size_t)lac_smaller(panel->slots - next_slot, it->slots) * slot_bytes(it, panel);
    size_t part = bytes / (size_t)it->tokens->tiles;
    call->ahead = panel->values + (size_t)next_slot * slot_bytes(it, panel) + (size_t)tile * part;
    call->ahead_step = (int64_t)(2 * part / (size_t)(call->slots ? call->slots : 1)) + 1;
}

/* The part of Y that a panel's last block leads to. */
static void ask_for_results(const item *it, const panel_of_w *panel, int64_t first_token)
{
    lac_cpu_region y =
        lac_cpu_finish_region(it->problem, it->call, it->tokens, first_token, panel->first_row, panel->first_row + panel->rows);
    for (int64_t row = 0; row < y.rows; ++row)
        for (int64_t line = 0; line < y.bytes; line += 64) __builtin_prefetch(y.begin + row * y.stride + line, 1, 2);
}

static void multiply_block(const item *it, int64_t from)
{
    const lac_weight *w = it->problem->weight;
    const lac_cpu_unit *unit = it->state->unit;
    for (int64_t tile = 0; tile < it->tokens->tiles; ++tile) {
        int64_t first_token = lac_cpu_tile_first(it->tokens, tile);
        lac_cpu_broadcast_call call = {.tokens = lac_cpu_tile_at(it->tokens, first_token),
                                       .fresh = from == 0,
                                       .dtype = w->dtype,
                                       .packed = it->tokens->packed + first_token * w->geometry.k};
        for (int64_t p = it->first; p < it->last; ++p) {
            const panel_of_w *panel = &it->state->panels[p];
            if (from && from >= panel->slots) continue; /* the first block runs even when empty: it clears the sums */
            call.vectors = panel->vectors;
            call.slots = lac_smaller(panel->slots - from, it->slots);
            call.columns = panel->columns + from;
            call.values = panel->values + (size_t)from * slot_bytes(it, panel);
            call.sums = sums_of(it, p, tile);
            look_ahead(it, p, from + it->slots, tile, &call);
            if (from + it->slots >= panel->slots && !it->tokens->asked) ask_for_results(it, panel, first_token);
            unit->broadcast(&call);
        }
    }
}

static void finish(const item *it, int64_t p, int64_t tile)
{
    const panel_of_w *panel = &it->state->panels[p];
    lac_cpu_tile result = {.first_row = panel->first_row,
                           .rows = panel->rows,
                           .first_token = lac_cpu_tile_first(it->tokens, tile),
                           .sums = sums_of(it, p, tile),
                           .row_stride = 1,
                           .token_stride = (int64_t)panel->vectors * it->state->unit->lanes};
    lac_cpu_finish_tile(it->state->unit, it->problem, it->call, it->tokens, &result);
}

static void run_item(const item *it)
{
    int64_t most = 0;
    for (int64_t p = it->first; p < it->last; ++p)
        if (it->state->panels[p].slots > most) most = it->state->panels[p].slots;
    for (int64_t from = 0; from == 0 || from < most; from += it->slots) multiply_block(it, from);
    for (int64_t p = it->first; p < it->last; ++p)
        for (int64_t tile = 0; tile < it->tokens->tiles; ++tile) finish(it, p, tile);
}

/* All of W against the tiles of all tokens, each thread its own tiles. */
static void run_by_tokens(const lac_problem *problem, const broadcast_state *state, const lac_call *call, const blocking *b)
{
    const lac_cpu_panel all = every_token(problem);
    const int threads = problem->options.threads;
    const uint64_t tile_bytes = lac_cpu_tile_bytes(problem, all.tile);
    const bool asks = lac_cpu_asks_for_results(problem, &all), waits = !asks && lac_cpu_aside_bytes(problem, 1) > 0;
    LAC_OMP(omp parallel for schedule(static, 1) num_threads(threads) if (threads > 1))
    for (int64_t tile = 0; tile < all.tiles; ++tile) {
        char *own = (char *)call->workspace + (uint64_t)lac_parallel_number() * own_bytes(problem, b);
        lac_cpu_panel tokens = lac_cpu_tile_panel(&all, tile, (float *)(void *)own);
        if (waits) tokens.aside = (float *)(void *)(own + tile_bytes + b->sums_bytes);
        tokens.asked = tile >= threads && asks;
        lac_cpu_pack(state->unit, problem, call, &tokens);
        for (int64_t i = 0; i < b->items; ++i) {
            item it = {.state = state,
                       .problem = problem,
                       .call = call,
                       .tokens = &tokens,
                       .first = i * b->panels,
                       .last = lac_smaller((i + 1) * b->panels, state->count),
                       .slots = b->slots,
                       .later = b->panels,
                       .sums = (float *)(void *)(own + tile_bytes)};
            lac_cpu_ask_ahead(problem, call, &all, tile + threads, i, b->items);
            run_item(&it);
        }
        for (int64_t token = 0; waits && token < tokens.tokens; ++token)
            lac_cpu_finish_aside(state->unit, problem, call, &tokens, token);
    }
}

lac_status lac_cpu_broadcast_execute(const lac_problem *problem, const void *opaque, const lac_call *call)
{
    const broadcast_state *state = opaque;
    const blocking b = blocking_of(problem);
    char *aside = (char *)call->workspace + lac_cpu_packed_bytes(problem, b.tile), *scratch = aside + aside_bytes(problem);
    const int threads = problem->options.threads;
    if (b.by_tokens) {
        run_by_tokens(problem, state, call, &b);
        return LAC_STATUS_OK;
    }
    for (int64_t first = 0; first < problem->m; first += lac_cpu_panel_tokens(problem->m)) {
        lac_cpu_panel tokens = lac_cpu_panel_at(problem, call, b.tile, first);
        cut_tokens(state->unit, &tokens);
        if (aside_bytes(problem)) tokens.aside = (float *)(void *)aside;
        const int64_t strips = lac_cpu_strips(problem, &tokens);
        LAC_OMP(omp parallel num_threads(threads) if (threads > 1))
        {
            float *sums = (float *)(void *)(scratch + (uint64_t)lac_parallel_number() * b.sums_bytes);
            LAC_OMP(omp for schedule(static))
            for (int64_t strip = 0; strip < strips; ++strip) lac_cpu_pack_strip(state->unit, problem, call, &tokens, strip);
            LAC_OMP(omp for schedule(dynamic))
            for (int64_t i = 0; i < b.items; ++i) {
                item it = {.state = state,
                           .problem = problem,
                           .call = call,
                           .tokens = &tokens,
                           .first = i * b.panels,
                           .last = lac_smaller((i + 1) * b.panels, state->count),
                           .slots = b.slots,
                           .later = b.panels * threads,
                           .sums = sums};
                run_item(&it);
            }
            if (tokens.aside) {
                LAC_OMP(omp for schedule(static))
                for (int64_t token = 0; token < tokens.tokens; ++token)
                    lac_cpu_finish_aside(state->unit, problem, call, &tokens, token);
            }
        }
    }
    return LAC_STATUS_OK;
}
