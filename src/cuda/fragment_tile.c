/* fragment_tile.c - re-tiles a weight for kernels/fragment.cu: which rows of X a tile of outputs reads, and the values in the
 * order in which the lanes of a warp want them for mma and mma.sp. */
#include "cuda/fragment_tile.h"

#include <string.h>

#include "core/dtype.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"
#include "format/row.h"

/* ---- the layout of a stage */

/* A lane's fragment is 16 bytes; word 0 has row g, word 1 row g + 8, words 2 and 3 the second half of k. A word is a pair of
 * rows of X, or, sparse, the two kept of a group of four. */
int64_t lac_fragment_value_at(const lac_fragment_shape *shape, int row, int slot)
{
    int bands = lac_fragment_outputs(shape) / 16, step = slot / 16, pair = slot % 16 / 2;
    int lane = row % 8 * 4 + pair % 4, word = pair / 4 * 2 + row % 16 / 8;
    return ((int64_t)(step * bands + row / 16) * 32 + lane) * 16 + word * 4 + slot % 2 * 2;
}

/* A word for each lane and 64 rows of X: lane 4g + 2s + h holds of product s the groups of four 4h to 4h + 3, of row g in its
 * low half, of row g + 8 in its high half. */
void lac_fragment_place_at(const lac_fragment_shape *shape, int row, int group, int64_t *byte, int *shift)
{
    int words = shape->rows / 64, lane = row % 8 * 4 + group % 16 / 4, bit = row % 16 / 8 * 16 + group % 4 * 4;
    int64_t values = (int64_t)lac_fragment_outputs(shape) * shape->rows;
    *byte = values + ((int64_t)(row / 16 * words + group / 16) * 32 + lane) * 4 + bit / 8;
    *shift = bit % 8;
}

int64_t lac_fragment_kept_at(const lac_fragment_shape *shape, int row, int t, int number)
{
    return (int64_t)(row / 8) * lac_fragment_eight(shape) + number / 2 * 128 + (row % 8 * 4 + t) * 4 + number % 2 * 2;
}

int64_t lac_fragment_mask_at(const lac_fragment_shape *shape, int row, int t)
{
    int64_t kept = (shape->kept + 1) / 2 * 128;
    return (int64_t)(row / 8) * lac_fragment_eight(shape) + kept + (row % 8 * 4 + t) * (shape->rows / 32);
}

/* Place p of a step belongs to lane p % 8 / 2, as its element 2 * (p / 8) + p % 2: the lane's inputs are neighbours. */
int lac_fragment_input_of(const lac_fragment_shape *shape, int slot)
{
    int step = slot / 16, place = slot % 16;
    return place % 8 / 2 * (shape->rows / 4) + step * 4 + place / 8 * 2 + place % 2;
}

/* ---- tiles */

/* A thread's own. */
typedef struct scratch {
    uint32_t *units;
    int32_t *columns; /* [most_stages * rows] stored columns in the order of the slots; -1: none */
    int32_t *slot_of; /* [k] the slot of a stored column                                       */
    float *values;    /* of one row */
    uint32_t *row_columns;
} scratch;

typedef struct tiler {
    const lac_weight *weight;
    const lac_fragment_shape *shape;
    lac_fragment_tiled *tiled;
    scratch *scratch; /* [threads] */
} tiler;

static uint16_t bits_of(const lac_weight *w, float value)
{
    return w->dtype == LAC_DTYPE_BF16 ? lac_f32_to_bf16(value) : lac_f32_to_f16(value);
}

static void put(uint8_t *at, uint16_t bits) { memcpy(at, &bits, sizeof bits); }

/* The columns that row group `group` selects, in slots; returns how many slots there are. */
static int64_t select_columns(const tiler *t, scratch *s, int64_t group)
{
    const lac_geometry *g = &t->weight->geometry;
    const lac_fragment_shape *shape = t->shape;
    int64_t slots = 0;
    if (shape->kind == LAC_FRAGMENT_EXPAND) {
        for (slots = 0; slots < shape->most_stages * shape->rows; ++slots) {
            int64_t column = slots / shape->rows * shape->rows + lac_fragment_input_of(shape, (int)(slots % shape->rows));
            s->columns[slots] = column < g->k ? (int32_t)column : -1;
        }
    } else if (shape->shares_index) {
        for (; slots < g->k; ++slots) s->columns[slots] = (int32_t)slots;
    } else {
        int64_t count = lac_weight_units(t->weight, group, s->units);
        for (int64_t i = 0; i < count; ++i) {
            int64_t inputs = lac_geometry_inputs(g, s->units[i]);
            /* A group of V:N:M starts at a multiple of four, whatever the one before it has. */
            if (shape->kind == LAC_FRAGMENT_SPARSE && slots % 4 && s->units[i] / g->group_m != s->units[i - 1] / g->group_m)
                while (slots % 4) s->columns[slots++] = -1;
            for (int64_t j = 0; j < inputs; ++j) s->columns[slots++] = (int32_t)(s->units[i] * g->unit_k + j);
        }
    }
    for (int64_t i = 0; i < slots; ++i)
        if (s->columns[i] >= 0) s->slot_of[s->columns[i]] = (int32_t)i;
    return slots;
}

/* Values of one row to their slots. */
static void fill_dense(const tiler *t, const scratch *s, const lac_weight_row *row, int place, uint8_t *stages)
{
    int64_t bytes = lac_fragment_w_stage(t->shape);
    int rows = t->shape->rows;
    for (int64_t i = 0; i < row->count; ++i) {
        int32_t slot = s->slot_of[row->columns[i]];
        put(stages + slot / rows * bytes + lac_fragment_value_at(t->shape, place, slot % rows),
            bits_of(t->weight, row->values[i]));
    }
}

/* Values of one row, two for each four slots, and their positions. A row's columns ascend, and so do its slots. */
static void fill_sparse(const tiler *t, const scratch *s, const lac_weight_row *row, int place, int64_t stages_here,
                        uint8_t *stages)
{
    int64_t bytes = lac_fragment_w_stage(t->shape), next = 0, quads_a_stage = t->shape->rows / 4;
    for (int64_t quad = 0; quad < stages_here * quads_a_stage; ++quad) {
        int position[2] = {0, 1}, count = 0;
        float value[2] = {0.0f, 0.0f};
        for (; next < row->count && s->slot_of[row->columns[next]] / 4 == quad; ++next, ++count) {
            position[count] = s->slot_of[row->columns[next]] % 4;
            value[count] = row->values[next];
        }
        if (count == 1 && position[0] == 3) { /* a zero before it, or behind it */
            position[0] = 0;
            value[1] = value[0];
            value[0] = 0.0f;
        }
        if (count == 1) position[1] = 3;
        uint8_t *stage = stages + quad / quads_a_stage * bytes;
        int group = (int)(quad % quads_a_stage), shift;
        int64_t byte;
        for (int i = 0; i < 2; ++i)
            put(stage + lac_fragment_value_at(t->shape, place, group * 2 + i), bits_of(t->weight, value[i]));
        lac_fragment_place_at(t->shape, place, group, &byte, &shift);
        stage[byte] |= (uint8_t)((position[0] | position[1] << 2) << shift);
    }
}

/* Masks and values of one row. The kernel counts on `kept` bits of every mask: those left over are the lowest free ones, with
 * zeros for values. */
static void fill_expand(const tiler *t, const lac_weight_row *row, int place, uint8_t *stages)
{
    const lac_fragment_shape *shape = t->shape;
    int unit = shape->rows / 4;
    int64_t bytes = lac_fragment_w_stage(shape), next = 0;
    for (int64_t at = 0; at < shape->most_stages * 4; ++at) {
        uint8_t *stage = stages + at / 4 * bytes;
        int64_t first = next, base = at * unit;
        uint32_t kept = 0, mask;
        for (; next < row->count && row->columns[next] < base + unit; ++next)
            kept |= UINT32_C(1) << (row->columns[next] - base);
        mask = kept;
        for (int bit = 0, bits = (int)(next - first); bits < shape->kept; ++bit) {
            bits += !(mask >> bit & 1);
            mask |= UINT32_C(1) << bit;
        }
        memcpy(stage + lac_fragment_mask_at(shape, place, (int)(at % 4)), &mask,
               (size_t)unit / 8); /* little-endian, as the GPU */
        int64_t value = next - 1;
        for (int bit = unit - 1, number = 0; bit >= 0; --bit) {
            if (!(mask >> bit & 1)) continue;
            if (kept >> bit & 1)
                put(stage + lac_fragment_kept_at(shape, place, (int)(at % 4), number),
                    bits_of(t->weight, row->values[value--]));
            ++number;
        }
    }
}

/* A tile of outputs: stored rows from `begin` on, `rows` of them. Its stages are clear. */
static void fill_tile(const tiler *t, const scratch *s, int64_t tile, int64_t begin, int64_t rows)
{
    const lac_fragment_shape *shape = t->shape;
    const uint32_t *row_perm = t->weight->part[LAC_PART_ROW_PERM].data;
    lac_fragment_tiled *out = t->tiled;
    int64_t first = out->range[2 * tile], count = out->range[2 * tile + 1] - first;
    int outputs = lac_fragment_outputs(shape);
    uint8_t *stages = out->stages + first * lac_fragment_w_stage(shape);
    for (int r = 0; r < outputs; ++r) {
        lac_weight_row row = {s->values, s->row_columns, 0};
        bool padding = r >= rows;
        out->output[tile * outputs + r] = padding ? -1 : (int32_t)(row_perm ? row_perm[begin + r] : begin + r);
        if (!padding) lac_weight_decode_row(t->weight, begin + r, NULL, s->units, &row);
        if (shape->kind == LAC_FRAGMENT_SPARSE) /* of padding too: its positions must be legal */
            fill_sparse(t, s, &row, r, count, stages);
        else if (shape->kind == LAC_FRAGMENT_EXPAND)
            fill_expand(t, &row, r, stages);
        else
            fill_dense(t, s, &row, r, stages);
    }
}

/* A row group, all its tiles; where tiles share their rows of X, one tile. */
static void fill_task(void *state, int thread, int64_t task)
{
    const tiler *t = state;
    const lac_fragment_shape *shape = t->shape;
    const lac_geometry *g = &t->weight->geometry;
    const uint32_t *col_perm = t->weight->part[LAC_PART_COL_PERM].data;
    scratch *s = &t->scratch[thread];
    int64_t group = shape->shares_index ? 0 : task, slots = select_columns(t, s, group);
    int64_t tile = shape->shares_index ? task : task * shape->tiles_a_group;
    int64_t end = shape->shares_index ? tile + 1 : tile + shape->tiles_a_group;
    int64_t rows = shape->shares_index ? g->n : lac_geometry_rows(g, group), outputs = lac_fragment_outputs(shape);
    for (; tile < end; ++tile) {
        int64_t at = (tile - group * shape->tiles_a_group) * outputs, left = rows - at;
        int64_t first = shape->shares_index ? 0 : t->tiled->range[2 * tile];
        int64_t entries = (t->tiled->range[2 * tile + 1] - t->tiled->range[2 * tile]) * shape->rows;
        int32_t *index = t->tiled->index + first * shape->rows;
        for (int64_t i = 0; i < entries && (tile == 0 || !shape->shares_index); ++i) {
            int32_t column = i < slots ? s->columns[i] : -1;
            index[i] = column >= 0 && col_perm ? (int32_t)col_perm[column] : column;
        }
        fill_tile(t, s, tile, group * shape->height + at, left < 0 ? 0 : left);
    }
}

/* ---- the whole weight */

/* Stages of each tile; a free distribution gives each row group its own number of slots. */
static void number_stages(const lac_weight *w, const lac_fragment_shape *s, lac_fragment_tiled *out)
{
    const lac_geometry *g = &w->geometry;
    for (int64_t tile = 0; tile < s->output_tiles; ++tile) {
        int64_t count = s->most_stages;
        if (g->is_free && !s->shares_index) {
            int64_t slots = lac_weight_slots(w, tile / s->tiles_a_group) * g->unit_k; /* a partial last unit has fewer */
            count = (slots + s->rows - 1) / s->rows;
            if (count > s->most_stages) count = s->most_stages;
        }
        out->range[2 * tile] = (int32_t)out->stage_count;
        out->stage_count += count;
        out->range[2 * tile + 1] = (int32_t)out->stage_count;
    }
    out->index_stages = s->shares_index ? s->most_stages : out->stage_count;
}

static void release_scratch(scratch *s, int threads)
{
    for (int i = 0; s && i < threads; ++i) {
        lac_release(s[i].units);
        lac_release(s[i].columns);
        lac_release(s[i].slot_of);
        lac_release(s[i].values);
        lac_release(s[i].row_columns);
    }
    lac_release(s);
}

static scratch *make_scratch(const lac_weight *w, const lac_fragment_shape *shape, int threads)
{
    const lac_geometry *g = &w->geometry;
    uint64_t most = (uint64_t)shape->most_stages * (uint64_t)shape->rows, capacity = (uint64_t)lac_weight_row_capacity(w);
    scratch *all = lac_allocate_zeroed((uint64_t)threads * sizeof *all);
    for (int i = 0; all && i < threads; ++i) {
        scratch *s = &all[i];
        s->units = lac_allocate((uint64_t)g->selected * sizeof *s->units);
        s->columns = lac_allocate(most * sizeof *s->columns);
        s->slot_of = lac_allocate((uint64_t)g->k * sizeof *s->slot_of);
        s->values = lac_allocate(capacity * sizeof *s->values);
        s->row_columns = lac_allocate(capacity * sizeof *s->row_columns);
        if (s->units && s->columns && s->slot_of && s->values && s->row_columns) continue;
        release_scratch(all, threads);
        return NULL;
    }
    return all;
}

static lac_status allocate_tiled(const lac_weight *w, const lac_fragment_shape *s, lac_fragment_tiled *out)
{
    out->range = lac_allocate((uint64_t)s->output_tiles * 2 * sizeof *out->range);
    out->output = lac_allocate((uint64_t)(s->output_tiles * lac_fragment_outputs(s)) * sizeof *out->output);
    if (!out->range || !out->output) return lac_fail_memory("tiles of the weight", (uint64_t)s->output_tiles * 16);
    number_stages(w, s, out);
    uint64_t bytes = (uint64_t)out->stage_count * (uint64_t)lac_fragment_w_stage(s);
    out->stages = lac_allocate_zeroed(bytes);
    out->index = lac_allocate((uint64_t)out->index_stages * (uint64_t)s->rows * sizeof *out->index);
    return out->stages && out->index ? LAC_STATUS_OK : lac_fail_memory("stages of the weight", bytes);
}

lac_status lac_fragment_tile(const lac_weight *weight, const lac_fragment_shape *shape, lac_fragment_tiled *out)
{
    *out = (lac_fragment_tiled){0};
    tiler t = {.weight = weight, .shape = shape, .tiled = out};
    int64_t tasks = shape->shares_index ? shape->output_tiles : shape->groups;
    int threads = lac_parallel_threads_for(0, tasks, weight->kept);
    lac_status status = allocate_tiled(weight, shape, out);
    if (!status) {
        t.scratch = make_scratch(weight, shape, threads);
        if (t.scratch)
            lac_parallel_for_each(tasks, threads, fill_task, &t);
        else
            status = lac_fail_memory("columns of the weight", (uint64_t)threads * (uint64_t)weight->geometry.k * 8);
        release_scratch(t.scratch, threads);
    }
    if (status) {
        lac_fragment_tiled_release(out);
        *out = (lac_fragment_tiled){0};
    }
    return status;
}

void lac_fragment_tiled_release(lac_fragment_tiled *tiled)
{
    lac_release(tiled->stages);
    lac_release(tiled->index);
    lac_release(tiled->range);
    lac_release(tiled->output);
}
