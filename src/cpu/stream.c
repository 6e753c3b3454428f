/* stream.c - kernels cpu_<unit>_f32_stream: every family, tokens along the vector and weights broadcast. It is what
 * element-wise and V:N:M weights want, whose rows have columns of their own, and vectors too short to fill a vector unit.
 *
 * Preparing cuts k into blocks of columns whose packed activations fit the first-level cache, and the rows of W into strips
 * of 4 rows where row groups share their columns, of 1 row elsewhere. It writes, in the order of use:
 *
 *     counts   [block][strip]         slots of the strip in the block
 *     columns  [block][strip][slot]   16 bits, counted from the block's first column
 *     values   [block][strip][slot][row of the strip]    fp32; rows past the group's end are zeros
 *
 * Executing packs X (panel.h), then goes: item of rows -> block -> tile of tokens -> strip. The block of X stays in the
 * first-level cache over all strips of the item; the item's part of the block of W comes from memory for the first tile and
 * from the second-level cache for the others; sums live in the thread's scratch between blocks.
 *
 * Workspace:  packed panel of tokens | for each thread: sums [tile][row of the item][token of the tile]
 * Bottleneck: loads from the first-level cache (stream_body.h). */
#include "cpu/stream.h"

#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"
#include "cpu/finish.h"
#include "cpu/kernels.h"
#include "cpu/panel.h"
#include "format/weight.h"

/* Rows in a work item, a power of two: over so many the block of X is used again. */
enum { MOST_ITEM_ROWS = 256, LEAST_ITEM_ROWS = 32 };
/* Columns are 16-bit numbers within a block. */
enum { MOST_BLOCK_COLUMNS = 65536 };
/* Strips with common columns that pay for bringing these to the first-level cache. */
enum { SHARING_STRIPS = 8 };

typedef struct stream_state {
    int rows; /* of W in a strip: 1 or 4                                 */
    int64_t strips, items, item_strips;
    int64_t block_columns, blocks;
    uint32_t *counts;  /* [blocks][strips]                                        */
    int64_t *first;    /* [blocks][items] the number of the item's first slot     */
    uint16_t *columns; /* [slots of all]                                          */
    float *values;     /* [slots of all][rows]                                    */
    void *storage;
} stream_state;

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t ceil_divide(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool lac_cpu_stream_applies(const lac_problem *problem)
{
    const lac_cpu_unit *unit = problem->kernel->config;
    return unit->is_supported();
}

/* ---- sizes */

int lac_cpu_stream_rows(const lac_weight *w) { return w->pattern.family != LAC_FAMILY_VNM && w->geometry.unit_n >= 4 ? 4 : 1; }

/* As few tiles as possible, as equal as possible: ceil(vectors / tiles) vectors in the widest. */
static int widest(const lac_problem *problem, int64_t tokens, int64_t *tiles, int64_t *vectors)
{
    const lac_cpu_unit *unit = problem->kernel->config;
    int most = unit->stream_vectors[lac_cpu_stream_rows(problem->weight) == 4];
    *vectors = ceil_divide(tokens > 0 ? tokens : 1, unit->lanes);
    *tiles = ceil_divide(*vectors, most);
    return (int)ceil_divide(*vectors, *tiles);
}

int lac_cpu_stream_tile_vectors(const lac_problem *problem)
{
    int64_t tiles, vectors;
    return widest(problem, smaller(problem->m, lac_cpu_panel_tokens(problem->m)), &tiles, &vectors);
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

/* Four items for each thread at least, so that they end together. */
static int64_t item_rows(const lac_problem *problem)
{
    int64_t rows = MOST_ITEM_ROWS, n = problem->weight->geometry.n;
    while (rows > LEAST_ITEM_ROWS && n < 4 * rows * problem->options.threads) rows /= 2;
    return rows;
}

/* Strips in a row group, and in all. */
static int64_t group_strips(const lac_geometry *g, int64_t group, int rows)
{
    return ceil_divide(lac_geometry_rows(g, group), rows);
}

static int64_t strip_count(const lac_geometry *g, int rows)
{
    if (!g->row_groups) return 0;
    return (g->row_groups - 1) * ceil_divide(g->unit_n, rows) + group_strips(g, g->row_groups - 1, rows);
}

/* Columns of X whose tile fills three quarters of the first-level cache. Where many strips in a row have the same columns
 * (or choose among the same), only those need to fit, so blocks may be that much wider. */
static int64_t block_columns(const lac_problem *problem)
{
    const lac_geometry *g = &problem->weight->geometry;
    bool is_vnm = problem->weight->pattern.family == LAC_FAMILY_VNM;
    uint64_t l1 = problem->device->info.l1_bytes ? problem->device->info.l1_bytes : 32768;
    int64_t columns = (int64_t)(l1 * 3 / 4 / ((uint64_t)tile_tokens(problem) * sizeof(float)));
    if (g->unit_n / lac_cpu_stream_rows(problem->weight) >= SHARING_STRIPS) {
        int64_t used = is_vnm ? g->selected : problem->weight->kept / g->n;
        if (used > 0 && used < g->k) columns = columns * g->k / used;
    }
    if (g->group_m) columns = columns / (g->group_m * g->unit_k) * (g->group_m * g->unit_k); /* equal counts in every block */
    if (columns < 16) columns = 16;
    return smaller(columns, MOST_BLOCK_COLUMNS);
}

/* ---- preparing */

/* Rows of one strip, decoded: all have the columns of row[0] where rows > 1. */
typedef struct decoder {
    const lac_weight *weight;
    int rows;
    int64_t group, strip_in_group;
    uint32_t *units; /* [geometry.selected]                       */
    lac_weight_row row[4];
    void *storage;
} decoder;

static lac_status decoder_make(const lac_weight *w, int rows, decoder *d)
{
    uint64_t capacity = (uint64_t)lac_weight_row_capacity(w);
    uint64_t bytes =
        (uint64_t)w->geometry.selected * sizeof(uint32_t) + (uint64_t)rows * capacity * (sizeof(float) + sizeof(uint32_t));
    *d = (decoder){.weight = w, .rows = rows, .storage = lac_allocate(bytes)};
    if (!d->storage) return lac_fail_memory("decoding a weight", bytes);
    d->units = d->storage;
    uint32_t *columns = d->units + w->geometry.selected;
    float *values = (float *)(void *)(columns + (uint64_t)rows * capacity);
    for (int r = 0; r < rows; ++r)
        d->row[r] = (lac_weight_row){values + (uint64_t)r * capacity, columns + (uint64_t)r * capacity, 0};
    return LAC_STATUS_OK;
}

/* Decodes the next strip; returns how many rows it really has. */
static int decoder_next(decoder *d)
{
    const lac_geometry *g = &d->weight->geometry;
    int64_t first = d->strip_in_group * d->rows;
    int rows = (int)smaller(lac_geometry_rows(g, d->group) - first, d->rows);
    for (int r = 0; r < rows; ++r)
        lac_weight_decode_row(d->weight, d->group * g->unit_n + first + r, r ? &d->row[0] : NULL, d->units, &d->row[r]);
    if (++d->strip_in_group == group_strips(g, d->group, d->rows)) {
        d->strip_in_group = 0;
        ++d->group;
    }
    return rows;
}

static uint64_t rounded_up(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

/* Where each block's slots begin, from the counts; returns how many slots there are. */
static int64_t block_starts(const stream_state *s, int64_t *starts)
{
    int64_t total = 0;
    for (int64_t b = 0; b < s->blocks; ++b) {
        starts[b] = total;
        for (int64_t i = 0; i < s->strips; ++i) total += s->counts[b * s->strips + i];
    }
    return total;
}

static void count_slots(stream_state *s, decoder d)
{
    for (int64_t strip = 0; strip < s->strips; ++strip) {
        decoder_next(&d);
        for (int64_t i = 0; i < d.row[0].count; ++i) ++s->counts[d.row[0].columns[i] / s->block_columns * s->strips + strip];
    }
}

static void write_slots(stream_state *s, decoder d, int64_t *cursor)
{
    const int64_t item_strips = s->item_strips;
    for (int64_t strip = 0; strip < s->strips; ++strip) {
        int rows = decoder_next(&d);
        if (strip % item_strips == 0)
            for (int64_t b = 0; b < s->blocks; ++b) s->first[b * s->items + strip / item_strips] = cursor[b];
        for (int64_t i = 0; i < d.row[0].count; ++i) {
            int64_t column = d.row[0].columns[i], block = column / s->block_columns, at = cursor[block]++;
            s->columns[at] = (uint16_t)(column % s->block_columns);
            for (int r = 0; r < s->rows; ++r) s->values[at * s->rows + r] = r < rows ? d.row[r].values[i] : 0.0f;
        }
    }
}

static lac_status build(const lac_weight *w, stream_state *s, decoder *d)
{
    uint64_t count_bytes = rounded_up((uint64_t)(s->blocks * s->strips) * sizeof *s->counts);
    uint64_t first_bytes = rounded_up((uint64_t)(s->blocks * (s->items + 1)) * sizeof *s->first);
    s->counts = lac_allocate_zeroed(count_bytes);
    int64_t *cursor = lac_allocate((uint64_t)s->blocks * sizeof *cursor);
    lac_status status = LAC_STATUS_OK;
    if (!s->counts || !cursor) {
        status = lac_fail_memory("re-tiled weight", count_bytes);
    } else if (!(status = decoder_make(w, s->rows, d))) {
        count_slots(s, *d);
        uint64_t slots = (uint64_t)block_starts(s, cursor);
        uint64_t value_bytes = rounded_up(slots * (uint64_t)s->rows * sizeof(float));
        uint64_t bytes = first_bytes + value_bytes + slots * sizeof(uint16_t);
        char *storage = lac_allocate(bytes);
        if (storage) {
            s->storage = storage;
            s->first = (int64_t *)(void *)storage;
            s->values = (float *)(void *)(storage + first_bytes);
            s->columns = (uint16_t *)(void *)(storage + first_bytes + value_bytes);
            write_slots(s, *d, cursor);
        } else {
            status = lac_fail_memory("re-tiled weight", bytes);
        }
        lac_release(d->storage);
    }
    lac_release(cursor);
    return status;
}

lac_status lac_cpu_stream_prepare(const lac_problem *problem, void **out)
{
    const lac_weight *w = problem->weight;
    stream_state *s = lac_allocate_zeroed(sizeof *s);
    if (!s) return lac_fail_memory("stream", sizeof *s);
    s->rows = lac_cpu_stream_rows(w);
    s->strips = strip_count(&w->geometry, s->rows);
    s->item_strips = item_rows(problem) / s->rows;
    s->items = ceil_divide(s->strips, s->item_strips);
    s->block_columns = block_columns(problem);
    s->blocks = ceil_divide(w->geometry.k > 0 ? w->geometry.k : 1, s->block_columns);
    decoder d;
    lac_status status = build(w, s, &d);
    if (status) {
        lac_cpu_stream_release(s);
        return status;
    }
    *out = s;
    return LAC_STATUS_OK;
}

void lac_cpu_stream_release(void *state)
{
    stream_state *s = state;
    if (!s) return;
    lac_release(s->counts);
    lac_release(s->storage);
    lac_release(s);
}

/* ---- executing */

/* Floats of an item's sums over the largest panel. */
static int64_t sums_floats(const lac_problem *problem)
{
    int64_t tile = tile_tokens(problem), tokens = smaller(problem->m, lac_cpu_panel_tokens(problem->m));
    return item_rows(problem) * ceil_divide(tokens, tile) * tile;
}

size_t lac_cpu_stream_workspace(const lac_problem *problem)
{
    return lac_cpu_packed_bytes(problem, tile_tokens(problem)) +
           (uint64_t)problem->options.threads * (uint64_t)sums_floats(problem) * sizeof(float);
}

/* Strips [first, last) of W against all tiles of a panel. */
typedef struct item {
    const stream_state *state;
    const lac_problem *problem;
    const lac_cpu_panel *tokens;
    int64_t number, first, last;
    float *sums; /* [tile][row][token of the tile] */
} item;

static float *sums_of(const item *it, int64_t first_token)
{
    return it->sums + first_token * it->state->item_strips * it->state->rows;
}

static void multiply_item(const item *it)
{
    const stream_state *s = it->state;
    const lac_cpu_unit *unit = it->problem->kernel->config;
    const int64_t k = it->problem->weight->geometry.k;
    for (int64_t b = 0; b < s->blocks; ++b) {
        int64_t slot = s->first[b * s->items + it->number];
        for (int64_t tile = 0; tile < it->tokens->tiles; ++tile) {
            int64_t first_token = lac_cpu_tile_first(it->tokens, tile);
            int width = lac_cpu_tile_at(it->tokens, first_token);
            lac_cpu_stream_call call = {.rows = s->rows,
                                        .vectors = width / unit->lanes,
                                        .fresh = b == 0,
                                        .strips = it->last - it->first,
                                        .counts = s->counts + b * s->strips + it->first,
                                        .columns = s->columns + slot,
                                        .values = s->values + slot * s->rows,
                                        .packed = it->tokens->packed + first_token * k + b * s->block_columns * width,
                                        .sums = sums_of(it, first_token)};
            unit->stream(&call);
        }
    }
}

/* Strips end where their row groups do, so adjacent strips are adjacent rows but for the padding of a group's last. */
static void finish_item(const item *it, const lac_call *call, int64_t first_token)
{
    const stream_state *s = it->state;
    const lac_geometry *g = &it->problem->weight->geometry;
    const int width = lac_cpu_tile_at(it->tokens, first_token);
    const int64_t full = ceil_divide(g->unit_n, s->rows); /* strips of a whole row group */
    for (int64_t strip = it->first; strip < it->last;) {
        int64_t group = strip / full, within = strip % full;
        int64_t first_row = group * g->unit_n + within * s->rows;
        int64_t group_end = group * g->unit_n + lac_geometry_rows(g, group);
        bool whole = g->unit_n % s->rows == 0; /* then rows run on from one group to the next */
        int64_t end_row = smaller(whole ? g->n : group_end, first_row + (it->last - strip) * s->rows);
        lac_cpu_tile result = {.first_row = first_row,
                               .rows = (int)(end_row - first_row),
                               .first_token = first_token,
                               .sums = sums_of(it, first_token) + (strip - it->first) * s->rows * width,
                               .row_stride = width,
                               .token_stride = 1};
        lac_cpu_finish_tile(it->problem->kernel->config, it->problem, call, it->tokens, &result);
        strip += ceil_divide(end_row - first_row, s->rows);
    }
}

lac_status lac_cpu_stream_execute(const lac_problem *problem, const void *opaque, const lac_call *call)
{
    const stream_state *s = opaque;
    const lac_cpu_unit *unit = problem->kernel->config;
    float *scratch = (float *)(void *)((char *)call->workspace + lac_cpu_packed_bytes(problem, tile_tokens(problem)));
    const int threads = problem->options.threads;
    (void)threads; /* unused without OpenMP */
    for (int64_t first = 0; first < problem->m; first += lac_cpu_panel_tokens(problem->m)) {
        const lac_cpu_panel tokens = panel_at(problem, call, first);
        const int64_t pieces = lac_cpu_strips(problem, &tokens);
        LAC_OMP(omp parallel num_threads(threads) if (threads > 1))
        {
            float *sums = scratch + (int64_t)lac_parallel_number() * sums_floats(problem);
            LAC_OMP(omp for schedule(static))
            for (int64_t piece = 0; piece < pieces; ++piece) lac_cpu_pack_strip(unit, problem, call, &tokens, piece);
            LAC_OMP(omp for schedule(dynamic))
            for (int64_t i = 0; i < s->items; ++i) {
                item it = {.state = s, .problem = problem, .tokens = &tokens, .number = i, .sums = sums};
                it.first = i * s->item_strips;
                it.last = smaller(it.first + s->item_strips, s->strips);
                multiply_item(&it);
                for (int64_t tile = 0; tile < tokens.tiles; ++tile) finish_item(&it, call, lac_cpu_tile_first(&tokens, tile));
            }
        }
    }
    return LAC_STATUS_OK;
}
