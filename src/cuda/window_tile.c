/* window_tile.c - cuts a weight into tiles of W for kernels/window.cu: which inputs a vector reads in a window, in an order
 * that keeps their rows in different banks, and their weights as scaled half pairs in core matrices.
 *
 * Rows are read eight at a time; those that differ in their last three bits do not collide. So the inputs of a window are
 * dealt out in eights with one of each residue, as long as there are. */
#include "cuda/window_tile.h"

#include <math.h>
#include <string.h>

#include "core/dtype.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"
#include "format/row.h"

enum { RESIDUES = LAC_WINDOW_RESIDUES };

/* What a thread works with. */
typedef struct tile_scratch {
    uint32_t *units;   /* [selected]                                                          */
    uint32_t *columns; /* [row capacity]                                                      */
    float *values;     /* [row capacity]                                                      */
    float *line;       /* [k] one row of W with its zeros                                     */
    uint32_t *inputs;  /* [most inputs of a vector] ascending                                 */
    int32_t *slots;    /* [windows][steps][16] the input of each slot of a vector; -1: padding */
} tile_scratch;

typedef struct tile_job {
    const lac_weight *weight;
    const lac_window_shape *shape;
    lac_window_tiled *out;
    char *scratch;
    uint64_t scratch_bytes; /* of a thread */
    int32_t *shift;         /* [outputs] the power of two that an output's weights were multiplied by */
    uint8_t *odd;           /* [output_tiles] */
} tile_job;

static uint64_t rounded_up(uint64_t bytes) { return (bytes / 64 + 1) * 64; }

static uint64_t lay_out_scratch(const lac_weight *w, const lac_window_shape *s, char *block, tile_scratch *out)
{
    uint64_t k = (uint64_t)w->geometry.k, selected = (uint64_t)w->geometry.selected, row = (uint64_t)lac_weight_row_capacity(w);
    uint64_t bytes[] = {selected * 4, row * 4, row * 4,
                        k * 4,        k * 4,   (uint64_t)s->windows * (uint64_t)s->steps * LAC_WINDOW_SLOTS * 4};
    char *at[6];
    uint64_t total = 0;
    for (int i = 0; i < 6; ++i) {
        at[i] = block ? block + total : NULL;
        total += rounded_up(bytes[i]);
    }
    *out = (tile_scratch){(void *)at[0], (void *)at[1], (void *)at[2], (void *)at[3], (void *)at[4], (void *)at[5]};
    return total;
}

static void put_half(uint8_t *at, uint16_t bits) { memcpy(at, &bits, sizeof bits); }

/* ---- which inputs, in which slots */

/* The inputs of a row group, ascending: all that one of its rows may read. */
static int64_t list_inputs(const lac_weight *w, const lac_window_shape *s, int64_t group, tile_scratch *t)
{
    const lac_geometry *g = &w->geometry;
    if (s->variant.dense) {
        for (int64_t i = 0; i < g->k; ++i) t->inputs[i] = (uint32_t)i;
        return g->k;
    }
    int64_t count = lac_weight_units(w, group, t->units), total = 0;
    for (int64_t i = 0; i < count; ++i)
        for (int64_t j = 0; j < lac_geometry_inputs(g, t->units[i]); ++j)
            t->inputs[total++] = (uint32_t)(t->units[i] * g->unit_k + j);
    return total;
}

/* Where the place of a vector's slot stands in its tile of W. `step` counts the steps of its warpgroup. */
static uint8_t *place_at(const lac_window_shape *s, uint8_t *tile, int group, int step, int slot)
{
    uint8_t *chunk = tile + step / s->chunk * lac_window_w_chunk(s) + group * lac_window_group_index(s);
    int places = lac_window_places(s), at = step % s->chunk;
    return chunk + at / places * places * LAC_WINDOW_SLOTS * 2 + slot * places * 2 + at % places * 2;
}

/* Deals the inputs of one window out to the slots of vector `v` of the tile, and says where they lie. */
static void deal_window(const lac_window_shape *s, const uint32_t *inputs, int64_t count, int64_t first, uint8_t *tile, int v,
                        int32_t *slots)
{
    int bucket[RESIDUES][LAC_WINDOW_MOST / RESIDUES], left[RESIDUES] = {0};
    int padding = s->steps * LAC_WINDOW_SLOTS - (int)count, unit = (int)(lac_window_row_bytes(s) / 16);
    for (int64_t i = count; i-- > 0;) {
        int input = (int)((int64_t)inputs[i] - first), residue = lac_window_row(s, input) % RESIDUES;
        bucket[residue][left[residue]++] = input;
    }
    for (int eight = 0; eight < s->steps * LAC_WINDOW_SLOTS; eight += RESIDUES) {
        bool used[RESIDUES] = {false};
        for (int slot = eight; slot < eight + RESIDUES; ++slot) {
            int best = -1, any = -1, unused = -1;
            for (int r = 0; r < RESIDUES; ++r) {
                if (!used[r]) unused = r;
                if (!left[r]) continue;
                if (any < 0 || left[r] > left[any]) any = r;
                if (!used[r] && (best < 0 || left[r] > left[best])) best = r;
            }
            if (best < 0 && !padding) best = any;
            bool pads = best < 0;
            int residue = pads ? unused : best;
            int input = pads ? -1 : bucket[residue][--left[residue]];
            int row = pads ? s->window * (s->zero_rows > 0) + residue : lac_window_row(s, input);
            padding -= pads;
            used[residue] = true;
            put_half(
                place_at(s, tile, v / s->vectors, v % s->vectors * s->steps + slot / LAC_WINDOW_SLOTS, slot % LAC_WINDOW_SLOTS),
                (uint16_t)(row * unit + row % RESIDUES));
            slots[slot] = pads ? -1 : (int32_t)(first + input);
        }
    }
}

/* ---- the weights of a row */

/* Brings the largest finite weight to [2^14, 2^15). */
static int shift_of(const float *values, int64_t count, bool *odd)
{
    float largest = 0.0f;
    for (int64_t i = 0; i < count; ++i) {
        float magnitude = fabsf(values[i]);
        if (!isfinite(magnitude))
            *odd = true;
        else if (magnitude > largest)
            largest = magnitude;
    }
    int exponent = 0;
    if (largest > 0.0f) (void)frexpf(largest, &exponent);
    return largest > 0.0f ? 15 - exponent : 0;
}

/* The column of the matrices where row `row` of a vector stands: a thread has two of every eight, and of 16 four neighbours. */
static int column_of(const lac_window_shape *s, int row)
{
    return row < s->width / 16 * 16 ? row / 16 * 16 + row % 4 / 2 * 8 + row % 16 / 4 * 2 + row % 2 : row;
}

/* The weights of column `r` of vector `v` into the matrices of every window. */
static void put_row(const tile_job *job, const tile_scratch *t, uint8_t *tiles, int v, int r, int shift)
{
    const lac_window_shape *s = job->shape;
    const int64_t matrix = lac_window_matrix_bytes(s), tile = lac_window_w_tile(s), chunk = lac_window_w_chunk(s);
    const int32_t *slots = t->slots;
    const float low_scale = ldexpf(1.0f, s->low_shift);
    uint8_t *first =
        tiles + lac_window_index_bytes(s) + v / s->vectors * s->chunk * s->variant.planes * matrix + r / 8 * 256 + r % 8 * 16;
    for (int64_t window = 0; window < s->windows; ++window, first += tile)
        for (int step = v % s->vectors * s->steps, end = step + s->steps; step < end; ++step) {
            uint8_t *to = first + step / s->chunk * chunk + step % s->chunk * s->variant.planes * matrix;
            for (int slot = 0; slot < LAC_WINDOW_SLOTS; ++slot) {
                int32_t input = *slots++;
                float value = input < 0 ? 0.0f : t->line[input];
                if (value == 0.0f) continue; /* the tiles are cleared */
                float scaled = ldexpf(value, shift);
                uint16_t high = lac_f32_to_f16(scaled);
                float rest = (scaled - lac_f16_to_f32(high)) * low_scale;
                uint8_t *at = to + slot / 8 * 128 + slot % 8 * 2;
                put_half(at, high);
                if (s->variant.planes == 2 && isfinite(rest)) put_half(at + matrix, lac_f32_to_f16(rest));
            }
        }
}

/* ---- vectors and tiles */

typedef struct vector_rows {
    int64_t group, first; /* its row group, and its first stored row */
    int count;
} vector_rows;

static vector_rows rows_of(const lac_geometry *g, const lac_window_shape *s, int64_t vector)
{
    vector_rows rows = {.group = 0, .first = vector * s->rows, .count = 0};
    int64_t end = g->n;
    if (!s->variant.dense) {
        rows.group = vector / s->pieces;
        rows.first = rows.group * g->unit_n + vector % s->pieces * s->rows;
        end = rows.group * g->unit_n + (rows.group < g->row_groups ? lac_geometry_rows(g, rows.group) : 0);
    }
    int64_t left = vector < s->vector_count ? end - rows.first : 0;
    rows.count = left < 0 ? 0 : left < s->rows ? (int)left : s->rows;
    return rows;
}

/* Where each input of a vector goes, over all windows. */
static void deal_vector(const tile_job *job, tile_scratch *t, uint8_t *tiles, int v, int64_t count)
{
    const lac_window_shape *s = job->shape;
    int64_t at = 0;
    for (int64_t window = 0; window < s->windows; ++window) {
        int64_t first = window * s->window, begin = at;
        while (at < count && t->inputs[at] < first + s->window) ++at;
        deal_window(s, t->inputs + begin, at - begin, first, tiles + window * lac_window_w_tile(s), v,
                    t->slots + window * s->steps * LAC_WINDOW_SLOTS);
    }
}

static void tile_outputs(void *state, int thread, int64_t number)
{
    const tile_job *job = state;
    const lac_weight *w = job->weight;
    const lac_window_shape *s = job->shape;
    const uint32_t *row_perm = w->part[LAC_PART_ROW_PERM].data;
    tile_scratch t;
    lay_out_scratch(w, s, job->scratch + (uint64_t)thread * job->scratch_bytes, &t);
    uint8_t *tiles = job->out->tiles + number * s->windows * lac_window_w_tile(s);
    memset(t.line, 0, (size_t)w->geometry.k * sizeof *t.line);
    for (int v = 0; v < 2 * s->vectors; ++v) {
        int64_t vector = number * 2 * s->vectors + v;
        vector_rows rows = rows_of(&w->geometry, s, vector);
        deal_vector(job, &t, tiles, v, rows.count ? list_inputs(w, s, rows.group, &t) : 0);
        for (int r = 0; r < s->width; ++r) {
            int column = column_of(s, r);
            int64_t output = vector * s->width + column;
            job->out->output[output] = -1;
            job->shift[output] = 0;
            if (r >= rows.count) continue;
            int64_t stored = rows.first + r;
            lac_weight_row row = {t.values, t.columns, 0};
            bool odd = false;
            lac_weight_decode_row(w, stored, NULL, t.units, &row);
            int shift = shift_of(row.values, row.count, &odd);
            job->odd[number] |= odd;
            for (int64_t i = 0; i < row.count; ++i) t.line[row.columns[i]] = row.values[i];
            put_row(job, &t, tiles, v, column, shift);
            for (int64_t i = 0; i < row.count; ++i) t.line[row.columns[i]] = 0.0f;
            job->out->output[output] = (int32_t)(row_perm ? row_perm[stored] : stored);
            job->shift[output] = shift;
        }
    }
}

/* The powers of two that undo the shifts: most of each with X, where sums are small, the rest in the end. */
static void finish_factors(const tile_job *job)
{
    lac_window_tiled *out = job->out;
    double sum = 0.0, count = 0.0;
    for (uint64_t i = 0; i < out->outputs; ++i)
        if (out->output[i] >= 0) sum += job->shift[i], count += 1.0;
    int common = count > 0.0 ? (int)lrint(sum / count) : 0, most = 15, least = 14;
    /* A shifted weight lies below 2^15: with so much of the shift undone beside X, a row's sum with the largest X is finite. With more,
     * where many outputs have tiny weights, the factors of ordinary X would lie below the normal numbers, and split.cu cuts them off. */
    for (int64_t products = 1; products < lac_weight_row_capacity(job->weight); products *= 2) ++most;
    if (common > most) common = most;
    /* With less, where most outputs have huge weights, sums of the others would overflow before their factors make them small again. The
     * largest weights have a shift of -113, so that all factors are still fp32 numbers. */
    if (common < least) common = least;
    out->exponent = -common;
    for (uint64_t i = 0; i < out->outputs; ++i) {
        int exponent = common - job->shift[i];
        out->factor[i] = ldexpf(1.0f, exponent > 127 ? 127 : exponent);
    }
    for (int64_t i = 0; i < job->shape->output_tiles; ++i) out->odd |= job->odd[i] != 0;
}

lac_status lac_window_tile(const lac_weight *weight, const lac_window_shape *shape, lac_window_tiled *out)
{
    *out = (lac_window_tiled){.outputs = (uint64_t)(shape->output_tiles * lac_window_tile_width(shape))};
    uint64_t tile = (uint64_t)lac_window_w_tile(shape);
    if (!lac_multiply_u64((uint64_t)shape->output_tiles * (uint64_t)shape->windows, tile, &out->tile_bytes))
        return lac_fail(LAC_STATUS_OUT_OF_MEMORY, "the weight does not fit memory as tiles of windows");
    tile_scratch unused;
    tile_job job = {weight, shape, out, NULL, lay_out_scratch(weight, shape, NULL, &unused), NULL, NULL};
    int threads = lac_parallel_threads_for(0, shape->output_tiles, weight->geometry.n * weight->geometry.k);
    out->tiles = lac_allocate_zeroed(out->tile_bytes);
    out->factor = lac_allocate(out->outputs * sizeof *out->factor);
    out->output = lac_allocate(out->outputs * sizeof *out->output);
    job.shift = lac_allocate(out->outputs * sizeof *job.shift);
    job.odd = lac_allocate_zeroed((uint64_t)shape->output_tiles);
    job.scratch = lac_allocate((uint64_t)threads * job.scratch_bytes);
    lac_status status = LAC_STATUS_OK;
    if (out->tiles && out->factor && out->output && job.shift && job.odd && job.scratch) {
        lac_parallel_for_each(shape->output_tiles, threads, tile_outputs, &job);
        finish_factors(&job);
    } else {
        lac_window_tiled_release(out);
        status = lac_fail_memory("tiles of windows", out->tile_bytes);
    }
    lac_release(job.shift);
    lac_release(job.odd);
    lac_release(job.scratch);
    return status;
}

void lac_window_tiled_release(lac_window_tiled *tiled)
{
    lac_release(tiled->tiles);
    lac_release(tiled->factor);
    lac_release(tiled->output);
}
