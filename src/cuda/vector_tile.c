/* vector_tile.c - re-tiles a weight for kernels/vector.cu and kernels/vector_mma.cu, whatever its family: rows are read as
 * ascending columns, and every column finds its place by its number alone. vector_tile.h describes the result. */
#include "cuda/vector_tile.h"

#include <string.h>

#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"
#include "format/index.h"
#include "format/row.h"

/* A thread's own: the columns of the row at hand, and the row group that they and the units belong to. */
typedef struct scratch {
    int64_t group;
    uint32_t *units;   /* [selected]      */
    uint32_t *columns; /* [row capacity]  */
    int64_t count;
    uint32_t *steps; /* [chunks] COLUMNS: tiles that a row block needs of each */
} scratch;

typedef struct tiling {
    const lac_weight *weight;
    const lac_vector_shape *shape;
    lac_vector_tiled *tiled;
    scratch *scratch; /* [threads] */
} tiling;

/* ---- rows as columns */

static void expand_units(const lac_geometry *g, scratch *s, int64_t units)
{
    s->count = 0;
    for (int64_t i = 0; i < units; ++i) {
        int64_t inputs = lac_geometry_inputs(g, s->units[i]);
        for (int64_t j = 0; j < inputs; ++j) s->columns[s->count++] = (uint32_t)(s->units[i] * g->unit_k + j);
    }
}

static void expand_positions(const lac_weight *w, scratch *s, int64_t row, int64_t rows)
{
    const lac_geometry *g = &w->geometry;
    const uint8_t *positions = lac_weight_group_positions(w, s->group); /* NULL when N is 4 */
    s->count = lac_weight_slots(w, s->group);
    int64_t slot = 0;
    for (const uint32_t *selected = s->units; slot < s->count; selected += LAC_VNM_SELECTED)
        for (int i = 0; i < g->slot_n && slot < s->count; ++i, ++slot)
            s->columns[slot] = selected[positions ? lac_position_get(positions, slot * rows + row) : i];
}

/* The columns of stored row `stored`, none past the last; returns where its values are, `*stride` elements apart. */
static const uint8_t *read_row(const tiling *t, scratch *s, int64_t stored, int64_t *stride)
{
    const lac_weight *w = t->weight;
    const lac_geometry *g = &w->geometry;
    *stride = 0;
    if (stored >= g->n) {
        s->group = -1;
        s->count = 0;
        return NULL;
    }
    int64_t group = stored / g->unit_n, row = stored - group * g->unit_n, rows = lac_geometry_rows(g, group);
    bool is_vnm = w->pattern.family == LAC_FAMILY_VNM;
    if (s->group != group) {
        int64_t units = lac_weight_units(w, group, s->units);
        s->group = group;
        if (!is_vnm) expand_units(g, s, units);
    }
    if (is_vnm) expand_positions(w, s, row, rows);
    *stride = rows * t->shape->value_bytes;
    return (const uint8_t *)w->part[LAC_PART_VALUES].data + (lac_weight_first_value(w, group) + row) * t->shape->value_bytes;
}

/* ---- places in a tile */

static void put_value(const lac_vector_shape *s, uint8_t *tile, int lane, int slot, const uint8_t *value)
{
    int load = 16 / s->value_bytes;
    memcpy(tile + slot / load * 512 + lane * 16 + slot % load * s->value_bytes, value, (size_t)s->value_bytes);
}

/* Word `number` of a lane's index. */
static uint32_t *index_word(const tiling *t, int64_t tile, int lane, int number)
{
    const lac_vector_shape *s = t->shape;
    if (s->shared_index) return t->tiled->index + tile * ((s->index_words + 3) / 4 * 4) + number;
    uint8_t *at = t->tiled->tiles + tile * s->step_bytes + s->value_loads * 512;
    at += number < s->index_words / 4 * 4 ? number / 4 * 512 + lane * 16 + number % 4 * 4 : number * 128 + lane * 4;
    return (uint32_t *)(void *)at;
}

/* The bits must be clear. Where rows share the index, the first row's is everybody's. */
static void put_bits(const tiling *t, int64_t tile, int lane, int first, int bits, uint32_t value)
{
    if (t->shape->shared_index && lane) return;
    int word = first / 32, shift = first % 32;
    *index_word(t, tile, lane, word) |= value << shift;
    if (shift + bits > 32) *index_word(t, tile, lane, word + 1) |= value >> (32 - shift);
}

/* ---- groups */

/* Where group `group` of row `row` of a block goes: its tile within the row block, its lane and first slot, and the lane and
 * the first bit of its index. */
typedef struct place {
    int64_t step;
    int lane, slot, index_lane, index_bit;
} place;

/* As mma.cuh describes the fragments: group `group` of the step is one of 8 of 32 inputs. */
static place place_direct(int row, int64_t step, int group)
{
    int k = group / 8, half = row / 16, upper = row / 8 % 2, quad = row % 8 * 4;
    int part = group / 4 % 2, t = group % 4;
    return (place){.step = step,
                   .lane = quad + t,
                   .slot = ((k * 2 + half) * 4 + part * 2 + upper) * 2,
                   .index_lane = quad + half * 2 + part,
                   .index_bit = k * 32 + upper * 16 + t * 4};
}

static place place_group(const lac_vector_shape *s, int row, int64_t group)
{
    if (s->direct) return place_direct(row, group / 32, (int)(group % 32));
    place p = {.lane = row, .index_lane = row};
    int number; /* among the lane's groups */
    if (s->mma) {
        int64_t unit = group / s->unit_groups;
        number = row / 8 * s->unit_groups + (int)(group % s->unit_groups);
        p.step = unit / 4;
        p.lane = p.index_lane = row % 8 * 4 + (int)(unit % 4);
    } else {
        number = (int)(group % s->step_groups);
        p.step = group / s->step_groups * s->group_steps;
    }
    p.slot = number * s->group_slots;
    p.index_bit = s->index == LAC_VECTOR_INDEX_BITMASK ? number * s->group_inputs : p.slot * s->entry_bits;
    return p;
}

/* The lowest input of a group that is not among the `count` ascending ones kept. */
static uint32_t first_free(const uint32_t *inputs, int count)
{
    uint32_t input = 0;
    while ((int)input < count && inputs[input] == input) ++input;
    return input;
}

/* `count` kept inputs of a group, with their values. Packed: slots left over hold zero, and an input that is not kept, for
 * vector_mma.cu stores them where a kept one must not be. */
static void put_packed(const tiling *t, int64_t first_tile, place p, const uint32_t *inputs, int count, const uint8_t *values,
                       int64_t stride)
{
    const lac_vector_shape *s = t->shape;
    bool cut = s->group_steps > 1; /* the group takes several steps, and begins with the first slot of one */
    for (int i = 0; i < s->group_slots; ++i) {
        int64_t tile = first_tile + p.step + (cut ? i / s->slots : 0);
        int slot = cut ? i % s->slots : p.slot + i, bit = cut ? slot * s->entry_bits : p.index_bit + i * s->entry_bits;
        if (i < count) put_value(s, t->tiled->tiles + tile * s->step_bytes, p.lane, slot, values + i * stride);
        if (s->index == LAC_VECTOR_INDEX_PACKED)
            put_bits(t, tile, p.index_lane, bit, s->entry_bits, i < count ? inputs[i] : first_free(inputs, count));
    }
}

/* Direct: the two inputs of a group must differ and ascend, so a zero may have to stand before a kept weight. */
static void put_direct(const tiling *t, int64_t first_tile, place p, const uint32_t *inputs, int count, const uint8_t *values,
                       int64_t stride)
{
    static const uint8_t zero[4];
    if (count == 2) {
        put_packed(t, first_tile, p, inputs, count, values, stride);
        return;
    }
    uint32_t kept = count ? inputs[0] : 1, other = kept ? 0 : 1;
    uint32_t both[2] = {kept < other ? kept : other, kept < other ? other : kept};
    uint8_t pair[2][4];
    for (int i = 0; i < 2; ++i) memcpy(pair[i], count && both[i] == kept ? values : zero, (size_t)t->shape->value_bytes);
    put_packed(t, first_tile, p, both, 2, pair[0], 4);
}

/* Bitmask: always group_slots bits, for the kernel counts on them; those left over are the lowest free ones, with zeros. */
static void put_bitmask(const tiling *t, int64_t first_tile, place p, const uint32_t *inputs, int count, const uint8_t *values,
                        int64_t stride)
{
    const lac_vector_shape *s = t->shape;
    int64_t tile = first_tile + p.step;
    uint32_t kept = 0, mask;
    for (int i = 0; i < count; ++i) kept |= UINT32_C(1) << inputs[i];
    mask = kept;
    for (int bit = 0, bits = count; bits < s->group_slots; ++bit) {
        bits += !(mask >> bit & 1);
        mask |= UINT32_C(1) << bit;
    }
    put_bits(t, tile, p.index_lane, p.index_bit, s->group_inputs, mask);
    int slot = p.slot, next = count - 1;
    for (int bit = s->group_inputs - 1; bit >= 0; --bit) {
        if (!(mask >> bit & 1)) continue;
        if (kept >> bit & 1) put_value(s, t->tiled->tiles + tile * s->step_bytes, p.lane, slot, values + next-- * stride);
        ++slot;
    }
}

static void tile_groups(const tiling *t, scratch *s, int64_t row_block)
{
    const lac_vector_shape *shape = t->shape;
    int64_t groups = shape->steps / shape->group_steps * (shape->mma ? 4 * shape->unit_groups : shape->step_groups);
    for (int row = 0; row < LAC_VECTOR_ROWS; ++row) {
        int64_t stride, next = 0;
        const uint8_t *values = read_row(t, s, row_block * LAC_VECTOR_ROWS + row, &stride);
        for (int64_t group = 0; group < groups; ++group) {
            uint32_t inputs[1024];
            int count = 0;
            int64_t base = group * shape->group_inputs, first = next;
            for (; next < s->count && s->columns[next] < base + shape->group_inputs; ++next)
                inputs[count++] = (uint32_t)(s->columns[next] - base);
            place p = place_group(shape, row, group);
            const uint8_t *from = values ? values + first * stride : NULL;
            int64_t first_tile = row_block * shape->steps;
            if (shape->direct)
                put_direct(t, first_tile, p, inputs, count, from, stride);
            else if (shape->index == LAC_VECTOR_INDEX_BITMASK)
                put_bitmask(t, first_tile, p, inputs, count, from, stride);
            else
                put_packed(t, first_tile, p, inputs, count, from, stride);
        }
    }
}

/* ---- columns */

/* How many tiles of each chunk a row block needs, into begin[row_block][1 ...]. */
static void count_columns(void *state, int thread, int64_t row_block)
{
    const tiling *t = state;
    const lac_vector_shape *shape = t->shape;
    scratch *s = &t->scratch[thread];
    memset(s->steps, 0, (size_t)shape->chunks * sizeof *s->steps);
    for (int row = 0; row < LAC_VECTOR_ROWS; ++row) {
        int64_t stride, next = 0;
        read_row(t, s, row_block * LAC_VECTOR_ROWS + row, &stride);
        for (int chunk = 0; chunk < shape->chunks; ++chunk) {
            int64_t first = next, end = (int64_t)(chunk + 1) * shape->chunk_inputs;
            while (next < s->count && s->columns[next] < end) ++next;
            uint32_t steps = (uint32_t)((next - first + shape->slots - 1) / shape->slots);
            if (steps > s->steps[chunk]) s->steps[chunk] = steps;
        }
    }
    memcpy(t->tiled->begin + row_block * (shape->chunks + 1) + 1, s->steps, (size_t)shape->chunks * sizeof *s->steps);
}

static void tile_columns(const tiling *t, scratch *s, int64_t row_block)
{
    const lac_vector_shape *shape = t->shape;
    const uint32_t *begin = t->tiled->begin + row_block * (shape->chunks + 1);
    for (int row = 0; row < LAC_VECTOR_ROWS; ++row) {
        int64_t stride, first = 0;
        const uint8_t *values = read_row(t, s, row_block * LAC_VECTOR_ROWS + row, &stride);
        int chunk = 0;
        for (int64_t i = 0; i < s->count; ++i) {
            for (; s->columns[i] >= (int64_t)(chunk + 1) * shape->chunk_inputs; ++chunk) first = i;
            int64_t tile = begin[chunk] + (i - first) / shape->slots;
            int slot = (int)((i - first) % shape->slots);
            put_value(shape, t->tiled->tiles + tile * shape->step_bytes, row, slot, values + i * stride);
            put_bits(t, tile, row, slot * 16, 16, (uint32_t)(s->columns[i] - (int64_t)chunk * shape->chunk_inputs));
        }
    }
}

static void tile_row_block(void *state, int thread, int64_t row_block)
{
    const tiling *t = state;
    if (t->shape->index == LAC_VECTOR_INDEX_COLUMNS)
        tile_columns(t, &t->scratch[thread], row_block);
    else
        tile_groups(t, &t->scratch[thread], row_block);
}

/* ---- the whole weight */

void lac_vector_tiled_release(lac_vector_tiled *tiled)
{
    lac_release(tiled->tiles);
    lac_release(tiled->index);
    lac_release(tiled->begin);
    *tiled = (lac_vector_tiled){0};
}

static void free_scratch(scratch *s, int threads)
{
    for (int i = 0; s && i < threads; ++i) {
        lac_release(s[i].units);
        lac_release(s[i].columns);
        lac_release(s[i].steps);
    }
    lac_release(s);
}

static scratch *make_scratch(const lac_weight *w, const lac_vector_shape *shape, int threads)
{
    scratch *s = lac_allocate_zeroed((uint64_t)threads * sizeof *s);
    for (int i = 0; s && i < threads; ++i) {
        s[i] = (scratch){.group = -1,
                         .units = lac_allocate((uint64_t)w->geometry.selected * sizeof *s->units),
                         .columns = lac_allocate((uint64_t)lac_weight_row_capacity(w) * sizeof *s->columns),
                         .steps = lac_allocate((uint64_t)shape->chunks * sizeof *s->steps)};
        if (s[i].units && s[i].columns && s[i].steps) continue;
        free_scratch(s, threads);
        return NULL;
    }
    return s;
}

/* From tiles in each chunk to the number of its first, over all row blocks. */
static lac_status number_chunks(const lac_vector_shape *shape, int64_t row_blocks, lac_vector_tiled *tiled)
{
    int64_t next = 0;
    for (int64_t block = 0; block < row_blocks; ++block) {
        uint32_t *begin = tiled->begin + block * (shape->chunks + 1);
        begin[0] = (uint32_t)next;
        for (int chunk = 1; chunk <= shape->chunks; ++chunk) {
            next += begin[chunk];
            begin[chunk] = (uint32_t)next;
        }
        if (next > UINT32_MAX) return lac_fail(LAC_STATUS_UNSUPPORTED, "the weight has more than 2^32 tiles of 32 rows");
    }
    tiled->tile_count = next;
    return LAC_STATUS_OK;
}

static lac_status make_tiles(tiling *t, int64_t row_blocks, int threads)
{
    const lac_vector_shape *shape = t->shape;
    lac_vector_tiled *tiled = t->tiled;
    tiled->tile_count = row_blocks * shape->steps;
    if (shape->index == LAC_VECTOR_INDEX_COLUMNS) {
        uint64_t bytes = (uint64_t)row_blocks * (uint64_t)(shape->chunks + 1) * sizeof *tiled->begin;
        tiled->begin = lac_allocate_zeroed(bytes);
        if (!tiled->begin) return lac_fail_memory("chunks of the weight", bytes);
        lac_parallel_for_each(row_blocks, threads, count_columns, t);
        lac_status status = number_chunks(shape, row_blocks, tiled);
        if (status) return status;
    }
    uint64_t bytes = (uint64_t)tiled->tile_count * (uint64_t)shape->step_bytes;
    tiled->tiles = lac_allocate_zeroed(bytes);
    if (!tiled->tiles) return lac_fail_memory("re-tiled weight", bytes);
    if (shape->shared_index) {
        bytes = (uint64_t)tiled->tile_count * (uint64_t)((shape->index_words + 3) / 4 * 4) * sizeof *tiled->index;
        tiled->index = lac_allocate_zeroed(bytes);
        if (!tiled->index) return lac_fail_memory("index of the re-tiled weight", bytes);
    }
    lac_parallel_for_each(row_blocks, threads, tile_row_block, t);
    return LAC_STATUS_OK;
}

lac_status lac_vector_tile(const lac_weight *weight, const lac_vector_shape *shape, lac_vector_tiled *out)
{
    int64_t row_blocks = (weight->geometry.n + LAC_VECTOR_ROWS - 1) / LAC_VECTOR_ROWS;
    int threads = lac_parallel_threads_for(0, row_blocks, weight->kept);
    lac_vector_tiled tiled = {0};
    tiling t = {weight, shape, &tiled, make_scratch(weight, shape, threads)};
    if (!t.scratch) return lac_fail_memory("rows of the weight", (uint64_t)lac_weight_row_capacity(weight) * 4);
    lac_status status = make_tiles(&t, row_blocks, threads);
    free_scratch(t.scratch, threads);
    if (status)
        lac_vector_tiled_release(&tiled);
    else
        *out = tiled;
    return status;
}
