/* broadcast.c - kernels cpu_<unit>_f32_broadcast: vector-wise, block-wise and shuffled weights (and dense ones), outputs
 * along the vector and inputs broadcast. Row groups share their columns, so a vector of outputs takes one broadcast of an
 * input for all of them. Preparing re-tiles W once into panels of up to 2 vectors of outputs:
 *
 *     values   [panel][slot][lanes * vectors]    in the weight's own dtype, read front to back
 *     columns  [row group][slot]                 stored columns, blocks of unit_k inputs written out
 *
 * Executing packs X (panel.h), then goes: chunk of tokens -> item of panels -> block of slots -> panel -> tile. A block of a
 * panel's slots stays in the first-level cache over the tiles of the chunk; what a block needs of X stays in the second.
 * Sums live in the thread's scratch between blocks, so Y is written once and C may be Y.
 *
 * Workspace:  packed panel of tokens | for each thread: sums [panel of the item][token of the chunk][width]
 * Bottleneck: the FMA pipes; with few tokens, reading W from memory, which happens once. */
#include "cpu/broadcast.h"

#include <string.h>

#include "core/dtype.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"
#include "cpu/finish.h"
#include "cpu/panel.h"
#include "format/weight.h"

/* A block's weights take 16 to 32 KiB: most of a first-level cache. */
enum { BLOCK_SLOTS = 256 };
typedef struct panel_of_w {
    int64_t first_row; /* stored                                             */
    int rows, vectors; /* rows <= vectors * lanes; the rest is padding       */
    int64_t slots;
    const uint32_t *columns; /* [slots], those of its row group              */
    const char *values;      /* [slots][vectors * lanes]                     */
} panel_of_w;

typedef struct broadcast_state {
    const lac_cpu_unit *unit;
    int64_t count;
    panel_of_w *panels; /* [count]                                           */
    void *storage;
} broadcast_state;

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Every row of a row group reads the same columns; narrower groups than half a vector waste its lanes. */
bool lac_cpu_broadcast_applies(const lac_problem *problem)
{
    const lac_cpu_unit *unit = problem->kernel->config;
    const lac_weight *w = problem->weight;
    return unit->is_supported() && w->pattern.family != LAC_FAMILY_VNM && 2 * w->geometry.unit_n >= unit->lanes;
}

/* ---- the tile */

/* Tokens in a tile: as few tiles as possible, and then as few tokens in each as possible. */
static int tile_tokens(const lac_cpu_unit *unit, int64_t m)
{
    const int *tiles = unit->broadcast_tiles;
    int64_t count = (m + tiles[0] - 1) / tiles[0];
    int64_t wanted = count ? (m + count - 1) / count : 1;
    int best = tiles[0];
    for (int i = 0; tiles[i]; ++i)
        if (tiles[i] >= wanted) best = tiles[i];
    return best;
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

/* How work is cut: a chunk of tokens whose activations, over the columns that a block of slots spans, take half of the
 * second-level cache; and an item of panels whose sums over the chunk take a quarter. A block of X is then read from that
 * cache by all panels of the item, and W comes from memory once a chunk. */
typedef struct blocking {
    int tile;            /* tokens in a tile                    */
    int64_t chunk_tiles; /* tiles in a chunk                    */
    int64_t panels;      /* panels in an item                   */
    int64_t items;       /* items in all                        */
    uint64_t floats;     /* of the sums of an item over a chunk */
} blocking;

static blocking blocking_of(const lac_problem *problem)
{
    const lac_cpu_unit *unit = problem->kernel->config;
    const lac_geometry *g = &problem->weight->geometry;
    int64_t l2 = problem->device->info.l2_bytes ? (int64_t)problem->device->info.l2_bytes : 1 << 20;
    int64_t width = (int64_t)unit->broadcast_vectors * unit->lanes, panels = panel_count(unit, g);
    int64_t slots = g->selected * g->unit_k;
    int64_t span = slots > BLOCK_SLOTS ? g->k * BLOCK_SLOTS / slots + 1 : g->k + 1; /* columns of a block */
    blocking b = {.tile = tile_tokens(unit, problem->m)};
    int64_t tiles = (smaller(problem->m, lac_cpu_panel_tokens(problem->m)) + b.tile - 1) / b.tile;
    b.chunk_tiles = clamp(l2 / 2 / (int64_t)sizeof(float) / span / b.tile, 2, tiles > 2 ? tiles : 2);
    int64_t share = panels / (2 * (int64_t)problem->options.threads); /* two items a thread at least */
    b.panels = clamp(l2 / 4 / (int64_t)sizeof(float) / (b.chunk_tiles * b.tile * width), 1, clamp(share, 1, 64));
    b.items = (panels + b.panels - 1) / b.panels;
    b.floats = (uint64_t)(b.panels * b.chunk_tiles * b.tile * width);
    return b;
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

/* Copies rows [first, first + rows) of the group's columns into one panel, padding each vector with zeros. */
static void retile(const lac_weight *w, int64_t group, int64_t first, panel_of_w *panel, char *values, int lanes)
{
    size_t size = lac_dtype_size(w->dtype);
    int64_t group_rows = lac_geometry_rows(&w->geometry, group);
    const char *from = (const char *)w->part[LAC_PART_VALUES].data + (size_t)lac_weight_first_value(w, group) * size;
    size_t width = (size_t)panel->vectors * (size_t)lanes * size;
    size_t used = (size_t)panel->rows * size;
    for (int64_t s = 0; s < panel->slots; ++s) {
        memcpy(values + (size_t)s * width, from + (size_t)(s * group_rows + first) * size, used);
        memset(values + (size_t)s * width + used, 0, width - used);
    }
    panel->values = values;
}

/* What the state takes, counted before anything is allocated. */
typedef struct sizes {
    int64_t panels;
    uint64_t columns; /* entries */
    uint64_t values;  /* bytes   */
} sizes;

static uint64_t rounded_up(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

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
        panel->rows = (int)smaller(rows - first, width);
        panel->vectors = (panel->rows + unit->lanes - 1) / unit->lanes;
        panel->slots = slots;
        panel->columns = *columns;
        retile(w, group, first, panel, *values, unit->lanes);
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

size_t lac_cpu_broadcast_workspace(const lac_problem *problem)
{
    blocking b = blocking_of(problem);
    return lac_cpu_packed_bytes(problem, b.tile) + (uint64_t)problem->options.threads * b.floats * sizeof(float);
}

/* Panels [first, last) over tiles [begin, end) of the packed tokens. */
typedef struct item {
    const broadcast_state *state;
    const lac_problem *problem;
    const lac_call *call;
    const lac_cpu_panel *tokens;
    int64_t first, last, begin, end;
    float *sums; /* [panel][tile][token][width] */
} item;

static float *sums_of(const item *it, int64_t panel, int64_t tile)
{
    const lac_cpu_unit *unit = it->state->unit;
    int64_t width = (int64_t)unit->broadcast_vectors * unit->lanes;
    return it->sums + ((panel - it->first) * (it->end - it->begin) + (tile - it->begin)) * it->tokens->tile * width;
}

static void multiply_block(const item *it, int64_t block)
{
    const lac_weight *w = it->problem->weight;
    const lac_cpu_unit *unit = it->state->unit;
    for (int64_t p = it->first; p < it->last; ++p) {
        const panel_of_w *panel = &it->state->panels[p];
        int64_t from = block * BLOCK_SLOTS;
        if (block && from >= panel->slots) continue; /* the first block runs even when empty: it clears the sums */
        size_t width = (size_t)panel->vectors * (size_t)unit->lanes * lac_dtype_size(w->dtype);
        lac_cpu_broadcast_call call = {.tokens = it->tokens->tile,
                                       .vectors = panel->vectors,
                                       .fresh = block == 0,
                                       .dtype = w->dtype,
                                       .slots = smaller(panel->slots - from, BLOCK_SLOTS),
                                       .columns = panel->columns + from,
                                       .values = panel->values + (size_t)from * width};
        for (int64_t tile = it->begin; tile < it->end; ++tile) {
            call.packed = it->tokens->packed + tile * w->geometry.k * it->tokens->tile;
            call.sums = sums_of(it, p, tile);
            unit->broadcast(&call);
        }
    }
}

static void run_item(const item *it)
{
    int64_t most = 0;
    for (int64_t p = it->first; p < it->last; ++p)
        if (it->state->panels[p].slots > most) most = it->state->panels[p].slots;
    for (int64_t block = 0; block == 0 || block * BLOCK_SLOTS < most; ++block) multiply_block(it, block);
    for (int64_t p = it->first; p < it->last; ++p) {
        const panel_of_w *panel = &it->state->panels[p];
        int width = panel->vectors * it->state->unit->lanes;
        for (int64_t tile = it->begin; tile < it->end; ++tile) {
            lac_cpu_tile result = {.first_row = panel->first_row,
                                   .rows = panel->rows,
                                   .first_token = tile * it->tokens->tile,
                                   .sums = sums_of(it, p, tile),
                                   .row_stride = 1,
                                   .token_stride = width};
            lac_cpu_finish_tile(it->state->unit, it->problem, it->call, it->tokens, &result);
        }
    }
}

lac_status lac_cpu_broadcast_execute(const lac_problem *problem, const void *opaque, const lac_call *call)
{
    const broadcast_state *state = opaque;
    const blocking b = blocking_of(problem);
    float *scratch = (float *)(void *)((char *)call->workspace + lac_cpu_packed_bytes(problem, b.tile));
    const int threads = problem->options.threads;
    (void)threads; /* unused without OpenMP */
    for (int64_t first = 0; first < problem->m; first += lac_cpu_panel_tokens(problem->m)) {
        const lac_cpu_panel tokens = lac_cpu_panel_at(problem, call, b.tile, first);
        const int64_t strips = lac_cpu_strips(problem, &tokens);
        const int64_t chunks = (tokens.tiles + b.chunk_tiles - 1) / b.chunk_tiles;
        LAC_OMP(omp parallel num_threads(threads) if (threads > 1))
        {
            float *sums = scratch + (uint64_t)lac_parallel_number() * b.floats;
            LAC_OMP(omp for schedule(static))
            for (int64_t strip = 0; strip < strips; ++strip) lac_cpu_pack_strip(state->unit, problem, call, &tokens, strip);
            LAC_OMP(omp for schedule(dynamic))
            for (int64_t i = 0; i < b.items * chunks; ++i) {
                int64_t group = i % b.items, chunk = i / b.items; /* a chunk of X meets all of W, then the next */
                item it = {.state = state,
                           .problem = problem,
                           .call = call,
                           .tokens = &tokens,
                           .first = group * b.panels,
                           .last = smaller((group + 1) * b.panels, state->count),
                           .begin = chunk * b.chunk_tiles,
                           .end = smaller((chunk + 1) * b.chunk_tiles, tokens.tiles),
                           .sums = sums};
                run_item(&it);
            }
        }
    }
    return LAC_STATUS_OK;
}
