/* gather_tile.c - re-tiles a weight for kernels/gather.cu: which rows of X a tile of outputs reads, and the values as wgmma
 * and wgmma.sp want them in shared memory. */
#include "cuda/gather_tile.h"

#include <string.h>

#include "core/arithmetic.h"
#include "core/dtype.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"
#include "cuda/gather_join.h"
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
    int32_t *columns;  /* [most_stages * rows] stored columns in the order of the slots; -1: none */
    int32_t *pair;     /* [2][most_stages * rows] of a pair's row groups, each by itself        */
    int32_t *slot_of;  /* [k] the slot of a stored column                                       */
    int32_t *entry;    /* [most_stages * rows] sparse: which of a row's values a slot has, from 1; 0: none */
    uint64_t *readers; /* [k] which row groups of a tile read a stored column */
    float *values;     /* of one row */
    uint32_t *row_columns;
} tiler;

/* Whether every tile has all columns in their order. */
static bool shares_all(const tiler *t)
{
    return t->shape->kind == LAC_GATHER_STREAM || t->weight->pattern.family == LAC_FAMILY_ELEMENT;
}

/* The columns that row group `group` selects; returns how many. A group of V:N:M starts at a multiple of four, whatever the one
 * before it has. */
static int64_t list_columns(tiler *t, int64_t group, int32_t *columns)
{
    const lac_geometry *g = &t->weight->geometry;
    int64_t slots = 0;
    if (shares_all(t)) {
        for (int64_t c = 0; c < g->k; ++c) columns[slots++] = (int32_t)c;
        return slots;
    }
    int64_t count = lac_weight_units(t->weight, group, t->units);
    for (int64_t i = 0; i < count; ++i) {
        int64_t inputs = lac_geometry_inputs(g, t->units[i]);
        if (lac_gather_is_sparse(t->shape) && slots % 4 && t->units[i] / g->group_m != t->units[i - 1] / g->group_m)
            while (slots % 4) columns[slots++] = -1;
        for (int64_t j = 0; j < inputs; ++j) columns[slots++] = (int32_t)(t->units[i] * g->unit_k + j);
    }
    return slots;
}

/* The slots of a tile. */
typedef struct slots {
    int64_t count;
    int64_t first_end, second_begin; /* of a pair */
} slots;

/* Columns of the row group, or of two: those that only the first has, those that both have, those that only the second has. Each
 * list ascends. */
static slots select_columns(tiler *t, int64_t group)
{
    slots s = {0};
    if (!t->shape->paired || group + 1 >= t->shape->groups) {
        s.count = s.first_end = s.second_begin = list_columns(t, group, t->columns);
    } else {
        int32_t *first = t->pair, *second = t->pair + t->shape->most_stages * t->shape->rows;
        int64_t counts[2] = {list_columns(t, group, first), list_columns(t, group + 1, second)};
        for (int pass = 0; pass < 3; ++pass) {
            if (pass == 1) s.second_begin = s.count;
            for (int64_t a = 0, b = 0; a < counts[0] || b < counts[1];) {
                int64_t of_a = a < counts[0] ? first[a] : INT32_MAX, of_b = b < counts[1] ? second[b] : INT32_MAX;
                int which = of_a < of_b ? 0 : of_a > of_b ? 2 : 1;
                if (which == pass) t->columns[s.count++] = (int32_t)(which == 2 ? of_b : of_a);
                a += which <= 1;
                b += which >= 1;
            }
            if (pass == 1) s.first_end = s.count;
        }
    }
    for (int64_t i = 0; i < s.count; ++i)
        if (t->columns[i] >= 0) t->slot_of[t->columns[i]] = (int32_t)i;
    return s;
}

/* The columns of a tile that joins row groups: those that any output in [begin, end) reads, or all. Ascending; sparse: in fours. */
static slots join_columns(tiler *t, int64_t begin, int64_t end)
{
    const lac_geometry *g = &t->weight->geometry;
    int64_t first = begin / g->unit_n;
    slots s = {0};
    for (int64_t c = 0; c < g->k; ++c) t->readers[c] = t->shape->every;
    for (int64_t group = first; group * g->unit_n < end && !t->shape->every; ++group) {
        int64_t count = lac_weight_units(t->weight, group, t->units);
        uint64_t reader = lac_gather_in_fours(t->shape) ? UINT64_C(1) << (group - first) : 1;
        for (int64_t i = 0; i < count; ++i)
            for (int64_t j = 0; j < lac_geometry_inputs(g, t->units[i]); ++j) t->readers[t->units[i] * g->unit_k + j] |= reader;
    }
    if (lac_gather_in_fours(t->shape))
        s.count = lac_gather_join(t->readers, g->k, t->columns);
    else
        for (int64_t c = 0; c < g->k; ++c)
            if (t->readers[c]) t->columns[s.count++] = (int32_t)c;
    for (int64_t i = 0; i < s.count; ++i)
        if (t->columns[i] >= 0) t->slot_of[t->columns[i]] = (int32_t)i;
    s.first_end = s.second_begin = s.count;
    return s;
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

/* Values of one row, two for each four slots, and their positions. */
static void fill_sparse(const tiler *t, const lac_weight_row *row, int place, int64_t slots, uint8_t *stages)
{
    const lac_gather_shape *s = t->shape;
    int64_t bytes = lac_gather_w_stage(s);
    for (int64_t i = 0; i < row->count; ++i) t->entry[t->slot_of[row->columns[i]]] = (int32_t)i + 1;
    int64_t quads_a_stage = s->rows / 4, quads = (slots + s->rows - 1) / s->rows * quads_a_stage;
    for (int64_t quad = 0; quad < quads; ++quad) {
        int position[2] = {0, 1};
        float value[2] = {0.0f, 0.0f};
        int count = 0;
        for (int slot = 0; slot < 4; ++slot) {
            int32_t *entry = &t->entry[quad * 4 + slot];
            if (*entry == 0) continue;
            position[count] = slot;
            value[count++] = row->values[*entry - 1];
            *entry = 0;
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

int64_t lac_gather_word_at(int row, int eight)
{
    int lane = row % 8 * 2 + eight % 2, word = eight % 4 / 2 * 2 + row % 16 / 8;
    return row / 16 * 512 + eight / 4 * 256 + lane * 16 + word * 4;
}

void lac_gather_code_at(int row, int four, int64_t *byte, int *shift)
{
    *byte = (row / 16 * 32 + row % 8 * 4 + four % 4) * 2 + row % 16 / 8;
    *shift = four / 4 * 2;
}

/* Values of one row, two for each eight slots, which four of the eight have them, and their positions. */
static void fill_packed(const tiler *t, const lac_weight_row *row, int place, int64_t slots, uint8_t *stages)
{
    enum { NONE, BOTH, HALF, MOVED };
    const lac_gather_shape *s = t->shape;
    int64_t bytes = lac_gather_w_stage(s), next = 0, eights = (slots + s->rows - 1) / s->rows * s->rows / 8;
    int64_t places = s->tile_outputs * lac_gather_w_row(s), codes = places + s->tile_outputs * s->rows / 8, byte;
    for (int64_t at = 0; at < eights; ++at) {
        uint8_t *stage = stages + at / (s->rows / 8) * bytes;
        int eight = (int)(at % (s->rows / 8)), shift;
        uint8_t *word = stage + lac_gather_word_at(place, eight);
        for (int four = 0; four < 2; ++four) {
            int position[2] = {0, 1}, count = 0, code = NONE;
            uint16_t value[2];
            for (; next < row->count && t->slot_of[row->columns[next]] / 4 == at * 2 + four; ++next, ++count) {
                position[count] = t->slot_of[row->columns[next]] % 4;
                value[count] = bits_of(t->weight, row->values[next]);
            }
            if (count == 2) {
                code = BOTH;
                put(word, value[0]);
                put(word + 2, value[1]);
            } else if (count ==
                       1) { /* the first four's is the low half, whose position comes first if another can come behind it */
                bool moves = position[0] == (four ? 0 : 3), last = four ? !moves : moves;
                code = moves ? MOVED : HALF;
                put(word + 2 * four, value[0]);
                if (last) position[1] = position[0], position[0] = 0;
                if (!last) position[1] = 3;
            }
            lac_gather_place_at(s, place, eight * 2 + four, &byte, &shift);
            stage[places + byte] |= (uint8_t)((position[0] | position[1] << 2) << shift);
            lac_gather_code_at(place, eight * 2 + four, &byte, &shift);
            stage[codes + byte] |= (uint8_t)(code << shift);
        }
    }
}

static void fill_row(const tiler *t, const lac_weight_row *row, int place, int64_t slots, uint8_t *stages)
{
    if (t->shape->packed)
        fill_packed(t, row, place, slots, stages);
    else if (lac_gather_is_sparse(t->shape))
        fill_sparse(t, row, place, slots, stages);
    else
        fill_dense(t, row, place, stages);
}

/* Outputs [first, first + stored_rows) of a tile: stored rows from `begin` on; up to `end` padding follows. */
static void fill_outputs(tiler *t, int64_t tile, int first, int end, int64_t begin, int64_t stored_rows, int64_t slot_count,
                         uint8_t *stages, lac_gather_tiled *out)
{
    const lac_gather_shape *s = t->shape;
    const uint32_t *row_perm = t->weight->part[LAC_PART_ROW_PERM].data;
    lac_weight_row row = {t->values, t->row_columns, 0};
    for (int r = first; r < end; ++r) {
        int32_t *place = &out->output[tile * s->tile_outputs + r];
        int64_t stored = begin + r - first;
        *place = -1;
        if (r - first >= stored_rows) {
            lac_weight_row none = {0};
            if (lac_gather_is_sparse(s))
                fill_row(t, &none, r, slot_count, stages); /* its positions must be legal all the same */
            continue;
        }
        *place = (int32_t)(row_perm ? row_perm[stored] : stored);
        lac_weight_row before = row;
        bool shares = r > first && !lac_gather_is_sparse(s) && !s->joined;
        lac_weight_decode_row(t->weight, stored, shares ? &before : NULL, t->units, &row);
        fill_row(t, &row, r, slot_count, stages);
    }
}

/* The stages of a tile, whose range is known, zeroed, and the rows of X that they read; returns the first one's W. */
static uint8_t *begin_tile(const tiler *t, int64_t tile, const slots *selected, lac_gather_tiled *out)
{
    const lac_gather_shape *s = t->shape;
    const uint32_t *col_perm = t->weight->part[LAC_PART_COL_PERM].data;
    int64_t first = out->range[2 * tile], count = out->range[2 * tile + 1] - first;
    int32_t *own = out->range + 2 * (s->output_tiles + tile);
    own[0] = (int32_t)(first + (selected->first_end + s->rows - 1) / s->rows);
    own[1] = (int32_t)(first + selected->second_begin / s->rows);
    uint8_t *stages = out->stages + first * lac_gather_w_stage(s);
    memset(stages, 0, (size_t)(count * lac_gather_w_stage(s)));
    int32_t *index = out->index + first * s->rows;
    /* Where there is no row W is zero, and any row will do. One that the tile reads anyway: if all tiles read the same one for it, they
     * would wait for each other. Where holes are many, they are marked and nothing is read. */
    bool holes = lac_gather_has_holes(s);
    for (int64_t i = 0; i < count * s->rows; ++i) {
        int32_t column = holes && i >= selected->count ? -1 : t->columns[i % selected->count];
        index[i] = column >= 0 ? col_perm ? (int32_t)col_perm[column] : column
                   : holes     ? LAC_GATHER_HOLE
                   : i > 0     ? index[i - 1]
                               : 0;
    }
    return stages;
}

/* ---- all tiles: a strip is the tiles that read the same columns */

typedef struct tiling {
    tiler *tilers; /* [threads] */
    const lac_gather_shape *shape;
    int64_t *stages; /* [strips] of a tile */
    lac_gather_tiled *out;
} tiling;

static int64_t groups_of_strip(const lac_gather_shape *s) { return s->paired ? 2 : 1; }
static int64_t strips_of(const lac_gather_shape *s)
{
    return s->joined ? s->output_tiles : lac_ceil_divide(s->groups, groups_of_strip(s));
}
static int64_t tiles_of_strip(const lac_gather_shape *s) { return s->joined ? 1 : s->tiles_a_group; }

/* Joined tiles cut the outputs as they come, wherever a row group ends. */
static slots select_strip(tiler *t, int64_t strip)
{
    const lac_gather_shape *s = t->shape;
    int64_t begin = strip * s->tile_outputs;
    if (s->joined) return join_columns(t, begin, lac_smaller(begin + s->tile_outputs, t->weight->geometry.n));
    return select_columns(t, strip * groups_of_strip(s));
}

static void count_strip(void *opaque, int thread, int64_t strip)
{
    const tiling *all = opaque;
    all->stages[strip] = lac_ceil_divide(select_strip(&all->tilers[thread], strip).count, all->shape->rows);
}

static void fill_tile(void *opaque, int thread, int64_t tile)
{
    const tiling *all = opaque;
    tiler *t = &all->tilers[thread];
    const lac_geometry *g = &t->weight->geometry;
    const lac_gather_shape *s = t->shape;
    int64_t strip = tile / tiles_of_strip(s), at = tile % tiles_of_strip(s) * s->tile_outputs, groups = groups_of_strip(s);
    slots selected = select_strip(t, strip);
    uint8_t *stages = begin_tile(t, tile, &selected, all->out);
    if (s->joined) {
        int64_t begin = tile * s->tile_outputs, end = lac_smaller(begin + s->tile_outputs, g->n);
        fill_outputs(t, tile, 0, s->tile_outputs, begin, end - begin, selected.count, stages, all->out);
        return;
    }
    int height = s->tile_outputs / (int)groups; /* outputs of a row group in one tile */
    for (int half = 0; half < groups; ++half) {
        int64_t which = strip * groups + half, rows = which >= s->groups ? 0
                                                      : shares_all(t)    ? g->n
                                                                         : lac_geometry_rows(g, which);
        fill_outputs(t, tile, half * height, (half + 1) * height, which * s->height + at, rows > at ? rows - at : 0,
                     selected.count, stages, all->out);
    }
}

/* Tiles of a cluster beyond the last: they read what that reads, and write nothing. */
static void fill_beyond(const lac_gather_shape *s, int64_t tile, lac_gather_tiled *out)
{
    for (; tile < s->output_tiles; ++tile) {
        memcpy(&out->range[2 * tile], &out->range[2 * tile - 2], 2 * sizeof *out->range);
        memcpy(&out->range[2 * (s->output_tiles + tile)], &out->range[2 * (s->output_tiles + tile) - 2],
               2 * sizeof *out->range);
        for (int r = 0; r < s->tile_outputs; ++r) out->output[tile * s->tile_outputs + r] = -1;
    }
}

static void release_tiler(tiler *t)
{
    lac_release(t->units);
    lac_release(t->columns);
    lac_release(t->pair);
    lac_release(t->slot_of);
    lac_release(t->entry);
    lac_release(t->readers);
    lac_release(t->values);
    lac_release(t->row_columns);
}

static lac_status allocate_scratch(const lac_gather_shape *s, tiler *t)
{
    const lac_geometry *g = &t->weight->geometry;
    uint64_t most = (uint64_t)s->most_stages * (uint64_t)s->rows, capacity = (uint64_t)lac_weight_row_capacity(t->weight);
    t->units = lac_allocate((uint64_t)g->selected * sizeof *t->units);
    t->columns = lac_allocate(most * sizeof *t->columns);
    t->pair = lac_allocate(2 * most * sizeof *t->pair);
    t->slot_of = lac_allocate((uint64_t)g->k * sizeof *t->slot_of);
    t->entry = lac_allocate_zeroed(most * sizeof *t->entry);
    t->readers = lac_allocate((uint64_t)g->k * sizeof *t->readers);
    t->values = lac_allocate(capacity * sizeof *t->values);
    t->row_columns = lac_allocate(capacity * sizeof *t->row_columns);
    if (t->units && t->columns && t->pair && t->slot_of && t->entry && t->readers && t->values && t->row_columns)
        return LAC_STATUS_OK;
    return lac_fail_memory("columns of a tile", most * sizeof *t->columns);
}

static lac_status allocate_stages(const lac_gather_shape *s, int64_t count, lac_gather_tiled *out)
{
    uint64_t stages = (uint64_t)count, bytes = stages * (uint64_t)lac_gather_w_stage(s);
    out->stages = lac_allocate(bytes);
    out->index = lac_allocate(stages * (uint64_t)s->rows * sizeof *out->index);
    out->range = lac_allocate((uint64_t)s->output_tiles * 4 * sizeof *out->range);
    out->output = lac_allocate((uint64_t)(s->output_tiles * s->tile_outputs) * sizeof *out->output);
    if (out->stages && out->index && out->range && out->output) return LAC_STATUS_OK;
    return lac_fail_memory("stages of the weight", bytes);
}

/* Counts, makes room, fills: tiles have places of their own, so no result depends on the number of threads. */
static lac_status fill_all(tiling *all, int threads)
{
    const lac_gather_shape *s = all->shape;
    lac_gather_tiled *out = all->out;
    int64_t strips = strips_of(s), tiles = strips * tiles_of_strip(s);
    lac_parallel_for_each(strips, (int)lac_smaller(threads, strips), count_strip, all);
    for (int64_t strip = 0; strip < strips; ++strip) out->stage_count += all->stages[strip] * tiles_of_strip(s);
    lac_status status = allocate_stages(s, out->stage_count, out);
    if (status) return status;
    int64_t next = 0;
    for (int64_t tile = 0; tile < tiles; ++tile) {
        out->range[2 * tile] = (int32_t)next;
        next += all->stages[tile / tiles_of_strip(s)];
        out->range[2 * tile + 1] = (int32_t)next;
    }
    lac_parallel_for_each(tiles, (int)lac_smaller(threads, tiles), fill_tile, all);
    fill_beyond(s, tiles, out);
    return LAC_STATUS_OK;
}

lac_status lac_gather_tile(const lac_weight *weight, const lac_gather_shape *shape, lac_gather_tiled *out)
{
    int64_t tiles = strips_of(shape) * tiles_of_strip(shape);
    int threads = lac_parallel_threads_for(0, tiles, weight->kept), ready = 0;
    tiling all = {.shape = shape, .out = out};
    *out = (lac_gather_tiled){0};
    all.tilers = lac_allocate_zeroed((uint64_t)threads * sizeof *all.tilers);
    all.stages = lac_allocate((uint64_t)strips_of(shape) * sizeof *all.stages);
    lac_status status =
        all.tilers && all.stages ? LAC_STATUS_OK : lac_fail_memory("tiles of a weight", (uint64_t)tiles * sizeof *all.stages);
    for (; !status && ready < threads; ++ready) {
        all.tilers[ready] = (tiler){.weight = weight, .shape = shape};
        status = allocate_scratch(shape, &all.tilers[ready]);
    }
    if (!status) status = fill_all(&all, threads);
    for (int i = 0; i < ready; ++i) release_tiler(&all.tilers[i]);
    lac_release(all.tilers);
    lac_release(all.stages);
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
