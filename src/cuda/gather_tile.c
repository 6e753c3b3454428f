/* gather_tile.c - re-tiles a weight for kernels/gather.cu: which rows of X a tile of outputs reads, and the values as wgmma
 * and wgmma.sp want them in shared memory. */
#include "cuda/gather_tile.h"

#include <string.h>

#include "core/dtype.h"
#include "core/memory.h"
#include "core/status.h"
#include "format/row.h"

/* 16-byte chunks trade places by the bits of the row's address above them: the swizzle of the tensor cores. */
int64_t lac_gather_value_at(const lac_gather_shape *shape, int row, int slot)
{
    int64_t bytes = lac_gather_w_row(shape), at = row * bytes + slot * 2;
    return at ^ ((at >> 7 & (bytes / 16 - 1)) << 4);
}

/* A word for each lane that brings places: lane 4g + 2s + h of the warp that has rows 16w ... holds, of product s (32 rows of
 * X), the groups of four 4h to 4h + 3: of row g in its low half, of row g + 8 in its high half. */
void lac_gather_place_at(const lac_gather_shape *shape, int row, int group, int64_t *byte, int *shift)
{
    int products = shape->rows / 32, lane = (row % 8 * products + group / 8) * 2 + group % 8 / 4;
    int64_t word = row / 16 * 16 * products + lane;
    int bit = row % 16 / 8 * 16 + group % 4 * 4;
    *byte = word * 4 + bit / 8;
    *shift = bit % 8;
}

typedef struct tiler {
    const lac_weight *weight;
    const lac_gather_shape *shape;
    uint32_t *units;
    int32_t *columns; /* [most_stages * rows] stored columns in the order of the slots; -1: none */
    int32_t *slot_of; /* [k] the slot of a stored column                                       */
    float *values;    /* of one row */
    uint32_t *row_columns;
} tiler;

static bool shares_all(const lac_weight *w) { return w->pattern.family == LAC_FAMILY_ELEMENT; }

/* The columns that row group `group` selects, in slots; returns how many slots there are. */
static int64_t select_columns(tiler *t, int64_t group)
{
    const lac_geometry *g = &t->weight->geometry;
    int64_t slots = 0;
    if (shares_all(t->weight)) {
        for (int64_t c = 0; c < g->k; ++c) t->columns[slots++] = (int32_t)c;
    } else {
        int64_t count = lac_weight_units(t->weight, group, t->units);
        for (int64_t i = 0; i < count; ++i) {
            int64_t inputs = lac_geometry_inputs(g, t->units[i]);
            /* A group of V:N:M starts at a multiple of four, whatever the one before it has. */
            if (lac_gather_is_sparse(t->shape) && slots % 4 && t->units[i] / g->group_m != t->units[i - 1] / g->group_m)
                while (slots % 4) t->columns[slots++] = -1;
            for (int64_t j = 0; j < inputs; ++j) t->columns[slots++] = (int32_t)(t->units[i] * g->unit_k + j);
        }
    }
    for (int64_t i = 0; i < slots; ++i)
        if (t->columns[i] >= 0) t->slot_of[t->columns[i]] = (int32_t)i;
    return slots;
}

static uint16_t bits_of(const lac_weight *w, float value)
{
    return w->dtype == LAC_DTYPE_BF16 ? lac_f32_to_bf16(value) : lac_f32_to_f16(value);
}

static void put(uint8_t *at, uint16_t bits) { memcpy(at, &bits, sizeof bits); }

/* Values of one row to their slots. */
static void fill_dense(const tiler *t, const lac_weight_row *row, int place, uint8_t *stages)
{
    int64_t bytes = lac_gather_w_stage(t->shape);
    for (int64_t i = 0; i < row->count; ++i) {
        int32_t slot = t->slot_of[row->columns[i]];
        put(stages + slot / t->shape->rows * bytes + lac_gather_value_at(t->shape, place, slot % t->shape->rows),
            bits_of(t->weight, row->values[i]));
    }
}

/* Values of one row, two for each four slots, and their positions. A row's columns ascend, and so do its slots. */
static void fill_sparse(const tiler *t, const lac_weight_row *row, int place, int64_t slots, uint8_t *stages)
{
    const lac_gather_shape *s = t->shape;
    int64_t bytes = lac_gather_w_stage(s), next = 0;
    int64_t quads_a_stage = s->rows / 4, quads = (slots + s->rows - 1) / s->rows * quads_a_stage;
    for (int64_t quad = 0; quad < quads; ++quad) {
        int position[2] = {0, 1};
        float value[2] = {0.0f, 0.0f};
        int count = 0;
        for (; next < row->count && t->slot_of[row->columns[next]] / 4 == quad; ++next, ++count) {
            position[count] = t->slot_of[row->columns[next]] % 4;
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
        for (int i = 0; i < 2; ++i) put(stage + lac_gather_value_at(s, place, group * 2 + i), bits_of(t->weight, value[i]));
        lac_gather_place_at(s, place, group, &byte, &shift);
        stage[s->tile_outputs * lac_gather_w_row(s) + byte] |= (uint8_t)((position[0] | position[1] << 2) << shift);
    }
}

/* A tile of outputs: stored rows from `begin` on, `rows` of them. */
static void fill_tile(tiler *t, int64_t tile, int64_t begin, int64_t rows, int64_t slots, lac_gather_tiled *out)
{
    const lac_gather_shape *s = t->shape;
    const uint32_t *row_perm = t->weight->part[LAC_PART_ROW_PERM].data, *col_perm = t->weight->part[LAC_PART_COL_PERM].data;
    int64_t first = out->stage_count, count = (slots + s->rows - 1) / s->rows;
    out->stage_count += count;
    out->range[2 * tile] = (int32_t)first;
    out->range[2 * tile + 1] = (int32_t)out->stage_count;
    uint8_t *stages = out->stages + first * lac_gather_w_stage(s);
    memset(stages, 0, (size_t)(count * lac_gather_w_stage(s)));
    int32_t *index = out->index + first * s->rows;
    for (int64_t i = 0; i < count * s->rows; ++i) {
        int32_t column = i < slots ? t->columns[i] : -1;
        index[i] = column >= 0 && col_perm ? (int32_t)col_perm[column] : column;
    }
    lac_weight_row row = {t->values, t->row_columns, 0};
    for (int r = 0; r < s->tile_outputs; ++r) {
        int32_t *place = &out->output[tile * s->tile_outputs + r];
        *place = -1;
        if (r >= rows) {
            lac_weight_row none = {0};
            if (lac_gather_is_sparse(s)) fill_sparse(t, &none, r, slots, stages); /* its positions must be legal nevertheless */
            continue;
        }
        *place = (int32_t)(row_perm ? row_perm[begin + r] : begin + r);
        lac_weight_row before = row;
        lac_weight_decode_row(t->weight, begin + r, r > 0 && !lac_gather_is_sparse(s) ? &before : NULL, t->units, &row);
        if (lac_gather_is_sparse(s))
            fill_sparse(t, &row, r, slots, stages);
        else
            fill_dense(t, &row, r, stages);
    }
}

static void fill(tiler *t, lac_gather_tiled *out)
{
    const lac_geometry *g = &t->weight->geometry;
    const lac_gather_shape *s = t->shape;
    for (int64_t group = 0; group < s->groups; ++group) {
        int64_t rows = shares_all(t->weight) ? g->n : lac_geometry_rows(g, group);
        int64_t slots = select_columns(t, group), begin = group * s->height;
        for (int64_t i = 0; i < s->tiles_a_group; ++i) {
            int64_t at = i * s->tile_outputs, left = rows - at;
            fill_tile(t, group * s->tiles_a_group + i, begin + at, left < 0 ? 0 : left, slots, out);
        }
    }
    for (int64_t tile = s->groups * s->tiles_a_group; tile < s->output_tiles; ++tile) { /* a cluster's, beyond the last */
        out->range[2 * tile] = out->range[2 * tile - 2];
        out->range[2 * tile + 1] = out->range[2 * tile - 1];
        for (int r = 0; r < s->tile_outputs; ++r) out->output[tile * s->tile_outputs + r] = -1;
    }
}

static void release_tiler(tiler *t)
{
    lac_release(t->units);
    lac_release(t->columns);
    lac_release(t->slot_of);
    lac_release(t->values);
    lac_release(t->row_columns);
}

static lac_status allocate_all(const lac_gather_shape *s, tiler *t, lac_gather_tiled *out)
{
    const lac_geometry *g = &t->weight->geometry;
    uint64_t most = (uint64_t)s->most_stages * (uint64_t)s->rows, capacity = (uint64_t)lac_weight_row_capacity(t->weight);
    uint64_t stages = (uint64_t)(s->output_tiles * s->most_stages), bytes = stages * (uint64_t)lac_gather_w_stage(s);
    t->units = lac_allocate((uint64_t)g->selected * sizeof *t->units);
    t->columns = lac_allocate(most * sizeof *t->columns);
    t->slot_of = lac_allocate((uint64_t)g->k * sizeof *t->slot_of);
    t->values = lac_allocate(capacity * sizeof *t->values);
    t->row_columns = lac_allocate(capacity * sizeof *t->row_columns);
    out->stages = lac_allocate(bytes);
    out->index = lac_allocate(stages * (uint64_t)s->rows * sizeof *out->index);
    out->range = lac_allocate((uint64_t)s->output_tiles * 2 * sizeof *out->range);
    out->output = lac_allocate((uint64_t)(s->output_tiles * s->tile_outputs) * sizeof *out->output);
    if (t->units && t->columns && t->slot_of && t->values && t->row_columns && out->stages && out->index && out->range &&
        out->output)
        return LAC_STATUS_OK;
    return lac_fail_memory("stages of the weight", bytes);
}

lac_status lac_gather_tile(const lac_weight *weight, const lac_gather_shape *shape, lac_gather_tiled *out)
{
    tiler t = {.weight = weight, .shape = shape};
    *out = (lac_gather_tiled){0};
    lac_status status = allocate_all(shape, &t, out);
    if (!status) fill(&t, out);
    release_tiler(&t);
    if (status) {
        lac_gather_tiled_release(out);
        *out = (lac_gather_tiled){0};
    }
    return status;
}

void lac_gather_tiled_release(lac_gather_tiled *tiled)
{
    lac_release(tiled->stages);
    lac_release(tiled->index);
    lac_release(tiled->range);
    lac_release(tiled->output);
}
