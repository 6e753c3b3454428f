/* pick_tile.c - cuts a weight into chunks for kernels/pick.cu: which inputs stand in which slots of which load of a pair of
 * vectors, and their weights in core matrices.
 *
 * Rows are read eight at a time; those of different classes (eighths of the window) do not collide. So slots are dealt out in
 * eights with one of each class, as long as there are. Inputs that both vectors of a pair keep go to the shared loads first. */
#include "cuda/pick_tile.h"

#include <string.h>

#include "core/arithmetic.h"
#include "core/dtype.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"
#include "cuda/vector_rows.h"
#include "format/row.h"

enum { CLASSES = LAC_PICK_CLASSES, EIGHTH = LAC_PICK_EIGHTH, SLOTS = LAC_PICK_SLOTS, WINDOW = LAC_PICK_WINDOW };

/* What a thread works with. */
typedef struct tile_scratch {
    uint32_t *units;   /* [selected]                                                                 */
    uint32_t *columns; /* [row capacity]                                                             */
    float *values;     /* [row capacity]                                                             */
    uint8_t *reads;    /* [windows * 256] of a column of X: bit e: vector e of the pair reads it     */
    uint32_t *stored;  /* [windows * 256] the stored column that reads a column of X                 */
    int32_t *place[2]; /* [k] of a stored column, for each vector: (window * products + product) * 16 + slot */
} tile_scratch;

typedef struct tile_job {
    const lac_weight *weight;
    const lac_pick_shape *shape;
    lac_pick_tiled *out;
    char *scratch;
    uint64_t scratch_bytes; /* of a thread */
} tile_job;

static uint64_t rounded_up(uint64_t bytes) { return (bytes / 64 + 1) * 64; }

static uint64_t lay_out_scratch(const lac_weight *w, const lac_pick_shape *s, char *block, tile_scratch *out)
{
    uint64_t k = (uint64_t)w->geometry.k, row = (uint64_t)lac_weight_row_capacity(w), inputs = (uint64_t)s->windows * WINDOW;
    uint64_t bytes[] = {(uint64_t)w->geometry.selected * 4, row * 4, row * 4, inputs, inputs * 4, k * 4, k * 4};
    char *at[7];
    uint64_t total = 0;
    for (int i = 0; i < 7; ++i) {
        at[i] = block ? block + total : NULL;
        total += rounded_up(bytes[i]);
    }
    *out = (tile_scratch){(void *)at[0], (void *)at[1], (void *)at[2],
                          (void *)at[3], (void *)at[4], {(void *)at[5], (void *)at[6]}};
    return total;
}

/* ---- which inputs, in which slots */

/* Inputs of a window that are left, by class. */
typedef struct hand {
    uint8_t input[CLASSES][EIGHTH];
    int left[CLASSES], total;
} hand;

static void hand_add(hand *h, int input)
{
    int class = input / EIGHTH;
    h->input[class][h->left[class]++] = (uint8_t)input;
    ++h->total;
}

/* An input of the class that has most left among those that are not `used` yet; of any, if none is and `any`; else -1. */
static int hand_take(hand *h, bool used[CLASSES], bool any)
{
    int best = -1, most = -1;
    for (int c = 0; c < CLASSES; ++c) {
        if (!h->left[c]) continue;
        if (most < 0 || h->left[c] > h->left[most]) most = c;
        if (!used[c] && (best < 0 || h->left[c] > h->left[best])) best = c;
    }
    if (best < 0 && any) best = most;
    if (best < 0) return -1;
    used[best] = true;
    --h->total;
    return h->input[best][--h->left[best]];
}

/* A row for a slot without an input: the first of an eighth that the other slots do not read. It exists, or is zero. */
static int spare_row(bool used[CLASSES])
{
    int class = 0;
    while (class < CLASSES - 1 && used[class]) ++class;
    used[class] = true;
    return lac_pick_row(class * EIGHTH);
}

/* One pair of vectors in one window. */
typedef struct dealing {
    const lac_pick_shape *shape;
    const tile_scratch *scratch;
    int64_t window;
    uint8_t *chunk;
    int set;
} dealing;

/* Writes down that `input` (-1: none) stands in a slot, for the vectors of `readers`; products are those of its load. */
static void put_slot(const dealing *d, int load, int slot, int input, const int product[2], int readers, bool used[CLASSES])
{
    const tile_scratch *t = d->scratch;
    int row = input < 0 ? spare_row(used) : lac_pick_row(input);
    uint16_t place = (uint16_t)(row * 128 + row % CLASSES * 16); /* bytes, swizzle included */
    memcpy(d->chunk + lac_pick_place_at(d->shape, d->set, load, slot), &place, sizeof place);
    for (int e = 0; e < 2 && input >= 0; ++e)
        if (readers >> e & 1)
            t->place[e][t->stored[d->window * WINDOW + input]] =
                (int32_t)((d->window * 2 * d->shape->steps + product[e]) * SLOTS + slot);
}

/* The loads that both vectors use: inputs of both, then, where these are too few, what of a single one has no room elsewhere. */
static void deal_common(const dealing *d, hand *both, hand only[2])
{
    const lac_pick_shape *s = d->shape;
    int shared = s->common * SLOTS, own = (s->steps - s->common) * SLOTS, used_up = both->total < shared ? both->total : shared;
    int rest = used_up, more[2];
    for (int e = 0; e < 2; ++e) {
        more[e] = both->total + only[e].total - used_up - own;
        more[e] = more[e] > 0 ? more[e] : 0;
    }
    for (int first = 0; first < shared; first += CLASSES) {
        bool used[CLASSES] = {false};
        for (int slot = first % SLOTS; slot < first % SLOTS + CLASSES; ++slot) {
            int load = first / SLOTS, product[2] = {2 * load, 2 * load + 1}, reader = 3;
            int left = shared - first - slot % CLASSES, spare = left - rest - more[0] - more[1];
            int input = rest > 0 ? hand_take(both, used, spare <= 0) : -1;
            if (input >= 0) {
                --rest;
            } else {
                reader = more[0] ? 1 : more[1] ? 2 : 0;
                if (reader) input = hand_take(&only[reader - 1], used, spare <= 0);
                if (reader && input >= 0) --more[reader - 1];
            }
            put_slot(d, load, slot, input, product, reader, used);
        }
    }
}

/* The loads of vector `e` alone. */
static void deal_own(const dealing *d, hand *inputs, int e)
{
    const lac_pick_shape *s = d->shape;
    int slots = (s->steps - s->common) * SLOTS;
    for (int first = 0; first < slots; first += CLASSES) {
        bool used[CLASSES] = {false};
        for (int slot = first % SLOTS; slot < first % SLOTS + CLASSES; ++slot) {
            int step = 2 * (first / SLOTS) + e, product[2] = {2 * s->common + step, 2 * s->common + step};
            int left = slots - first - slot % CLASSES;
            put_slot(d, s->common + step, slot, hand_take(inputs, used, inputs->total >= left), product, 1 << e, used);
        }
    }
}

static void deal_window(const dealing *d)
{
    hand both = {.total = 0}, only[2] = {{.total = 0}, {.total = 0}};
    const uint8_t *reads = d->scratch->reads + d->window * WINDOW;
    for (int i = 0; i < WINDOW; ++i)
        if (reads[i]) hand_add(reads[i] == 3 ? &both : &only[reads[i] - 1], i);
    deal_common(d, &both, only);
    for (int e = 0; e < 2; ++e) {
        hand own = only[e];
        for (int c = 0; c < CLASSES; ++c)
            for (int i = 0; i < both.left[c]; ++i) hand_add(&own, both.input[c][i]);
        deal_own(d, &own, e);
    }
}

/* ---- vectors */

static lac_vector_rows rows_of(const lac_geometry *g, const lac_pick_shape *s, int64_t vector)
{
    return lac_vector_rows_of(g, (lac_vector_cut){s->vectors, s->pieces, s->rows}, vector);
}

/* Marks the columns of X that a row group reads, as vector `e` of the pair. */
static void mark_inputs(const lac_weight *w, int64_t group, int e, tile_scratch *t)
{
    const lac_geometry *g = &w->geometry;
    const uint32_t *col_perm = w->part[LAC_PART_COL_PERM].data;
    int64_t units = lac_weight_units(w, group, t->units);
    for (int64_t i = 0; i < units; ++i)
        for (int64_t j = 0; j < lac_geometry_inputs(g, t->units[i]); ++j) {
            uint32_t column = (uint32_t)(t->units[i] * g->unit_k + j), input = col_perm ? col_perm[column] : column;
            t->reads[input] |= (uint8_t)(1 << e);
            t->stored[input] = column;
        }
}

/* The weights of a stored row, which is row `r` of vector `e`. `tile`: the first chunk of the pair. */
static void put_row(const tile_job *job, const tile_scratch *t, const lac_weight_row *row, int set, int e, int r, uint8_t *tile)
{
    const lac_pick_shape *s = job->shape;
    int products = 2 * s->steps;
    for (int64_t i = 0; i < row->count; ++i) {
        int32_t place = t->place[e][row->columns[i]], product = place / SLOTS;
        uint16_t bits = job->weight->dtype == LAC_DTYPE_BF16 ? lac_f32_to_bf16(row->values[i]) : lac_f32_to_f16(row->values[i]);
        memcpy(tile + product / products * (s->pairs * lac_pick_chunk_bytes(s)) +
                   lac_pick_value_at(s, set, product % products, r, place % SLOTS),
               &bits, sizeof bits);
    }
}

static void put_vector(const tile_job *job, tile_scratch *t, int64_t vector, int set, int e, uint8_t *tile)
{
    const lac_weight *w = job->weight;
    const lac_pick_shape *s = job->shape;
    const uint32_t *row_perm = w->part[LAC_PART_ROW_PERM].data;
    lac_vector_rows rows = rows_of(&w->geometry, s, vector);
    for (int r = 0; r < s->width; ++r) {
        int32_t *output = &job->out->output[vector * s->width + r];
        *output = -1;
        if (r >= rows.count) continue;
        *output = (int32_t)(row_perm ? row_perm[rows.first + r] : rows.first + r);
        lac_weight_row row = {t->values, t->columns, 0};
        lac_weight_decode_row(w, rows.first + r, NULL, t->units, &row);
        put_row(job, t, &row, set, e, r, tile);
    }
}

/* A pair of vectors, over all windows. `number`: of all pairs, in the order of the tiles, sets and pairs of a set. */
static void tile_pair(void *state, int thread, int64_t number)
{
    const tile_job *job = state;
    const lac_pick_shape *s = job->shape;
    int sets = lac_pick_sets(s);
    int64_t chunk = lac_pick_chunk_bytes(s), number_in_tile = number % (sets * s->pairs), tile = number / (sets * s->pairs);
    int set = (int)(number_in_tile / s->pairs);
    uint8_t *first = job->out->chunks + (tile * s->windows * s->pairs + number_in_tile % s->pairs) * chunk;
    tile_scratch t;
    lay_out_scratch(job->weight, s, job->scratch + (uint64_t)thread * job->scratch_bytes, &t);
    memset(t.reads, 0, (size_t)(s->windows * WINDOW));
    for (int e = 0; e < 2; ++e) {
        lac_vector_rows rows = rows_of(&job->weight->geometry, s, 2 * number + e);
        if (rows.count) mark_inputs(job->weight, rows.group, e, &t);
    }
    for (int64_t window = 0; window < s->windows; ++window) {
        dealing d = {s, &t, window, first + window * s->pairs * chunk, set};
        deal_window(&d);
    }
    for (int e = 0; e < 2; ++e) put_vector(job, &t, 2 * number + e, set, e, first);
}

lac_status lac_pick_tile(const lac_weight *weight, const lac_pick_shape *shape, lac_pick_tiled *out)
{
    int64_t pairs = shape->output_tiles * lac_pick_sets(shape) * shape->pairs;
    *out = (lac_pick_tiled){.outputs = (uint64_t)(2 * pairs * shape->width)};
    if (!lac_multiply_u64((uint64_t)(shape->output_tiles * shape->windows * shape->pairs),
                          (uint64_t)lac_pick_chunk_bytes(shape), &out->chunk_bytes))
        return lac_fail(LAC_STATUS_OUT_OF_MEMORY, "the weight does not fit memory as chunks of windows");
    tile_scratch unused;
    tile_job job = {weight, shape, out, NULL, lay_out_scratch(weight, shape, NULL, &unused)};
    int threads = lac_parallel_threads_for(0, pairs, weight->geometry.n * weight->geometry.k);
    out->chunks = lac_allocate_zeroed(out->chunk_bytes);
    out->output = lac_allocate(out->outputs * sizeof *out->output);
    job.scratch = lac_allocate((uint64_t)threads * job.scratch_bytes);
    lac_status status = LAC_STATUS_OK;
    if (out->chunks && out->output && job.scratch)
        lac_parallel_for_each(pairs, threads, tile_pair, &job);
    else
        status = lac_fail_memory("chunks of windows", out->chunk_bytes + (uint64_t)threads * job.scratch_bytes);
    lac_release(job.scratch);
    if (status) {
        lac_pick_tiled_release(out);
        *out = (lac_pick_tiled){0};
    }
    return status;
}

void lac_pick_tiled_release(lac_pick_tiled *tiled)
{
    lac_release(tiled->chunks);
    lac_release(tiled->output);
}
