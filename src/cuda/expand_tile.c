/* expand_tile.c - re-tiles an element-wise weight for kernels/expand.cu: what each thread spreads out, in the order in which it
 * loads it. */
#include "cuda/expand_tile.h"

#include <string.h>

#include "core/dtype.h"
#include "core/memory.h"
#include "core/status.h"
#include "format/row.h"

int64_t lac_expand_word_at(int words, int thread, int word)
{
    int whole = words / 4 * 4;
    if (word < whole) return word / 4 * 2048 + thread * 16 + word % 4 * 4;
    if (word < words / 2 * 2) return whole * 512 + thread * 8 + (word - whole) * 4;
    return (words - 1) * 512 + thread * 4;
}

int lac_expand_bit_at(int row, int input, int *bit)
{
    int pair = input % LAC_EXPAND_SPAN / 2;
    *bit = 8 * (pair % 2 * 2 + input % 2) + 7 - pair / 2;
    return input / LAC_EXPAND_SPAN * LAC_EXPAND_OUTPUTS + row;
}

typedef struct tiler {
    const lac_weight *weight;
    const lac_expand_shape *shape;
    uint32_t *units;
    lac_weight_row row;
} tiler;

static uint16_t bits_of(const lac_weight *w, float value)
{
    return w->dtype == LAC_DTYPE_BF16 ? lac_f32_to_bf16(value) : lac_f32_to_f16(value);
}

static void put(uint8_t *piece, int64_t at, uint16_t bits) { memcpy(piece + at, &bits, sizeof bits); }

/* How many values of the row from number `i` on lie before column `end`. */
static int count_before(const lac_weight_row *row, int64_t i, int64_t end)
{
    int count = 0;
    while (i + count < row->count && row->columns[i + count] < end) ++count;
    return count;
}

/* The pieces of a row are `stride` bytes apart, from `first` on; `row` is its number within a piece. A run fills its places
 * from the first one on; for the ring its second half does so up to the last one. */
static void fill_row(const tiler *t, int row, uint8_t *first, int64_t stride)
{
    const lac_expand_shape *s = t->shape;
    for (int64_t i = 0; i < t->row.count;) {
        int64_t begin = t->row.columns[i] / s->run * s->run;
        int front = count_before(&t->row, i, begin + s->run / 2), all = count_before(&t->row, i, begin + s->run);
        uint8_t *piece = first + begin / LAC_EXPAND_INPUTS * stride;
        int start = (int)(begin % LAC_EXPAND_SPAN) / s->run * s->per;
        for (int j = 0; j < all; ++j, ++i) {
            int bit, place = start + (j < front || s->team == 0 ? j : s->per - all + j);
            int thread = lac_expand_bit_at(row, (int)(t->row.columns[i] % LAC_EXPAND_INPUTS), &bit);
            put(piece, lac_expand_word_at(s->words, thread, place / 2) + place % 2 * 2, bits_of(t->weight, t->row.values[i]));
            piece[lac_expand_word_at(s->words, thread, s->words - 1) + bit / 8] |= (uint8_t)(1 << bit % 8);
        }
    }
}

static void fill(tiler *t, lac_expand_tiled *out)
{
    const lac_expand_shape *s = t->shape;
    const uint32_t *row_perm = t->weight->part[LAC_PART_ROW_PERM].data;
    int64_t stride = (int64_t)lac_expand_pieces(s) * lac_expand_piece(s);
    for (int64_t tile = 0; tile < s->output_tiles; ++tile) {
        out->range[2 * tile] = (int32_t)(tile * s->steps);
        out->range[2 * tile + 1] = (int32_t)((tile + 1) * s->steps);
    }
    for (int64_t i = 0; i < s->output_tiles * s->tile_outputs; ++i) {
        bool real = i < t->weight->geometry.n;
        out->output[i] = !real ? -1 : row_perm ? (int32_t)row_perm[i] : (int32_t)i;
        t->row.count = 0;
        if (real) lac_weight_decode_row(t->weight, i, NULL, t->units, &t->row);
        int64_t within = i % s->tile_outputs;
        uint8_t *first =
            out->pieces + i / s->tile_outputs * s->steps * stride + within / LAC_EXPAND_OUTPUTS * lac_expand_piece(s);
        fill_row(t, (int)(within % LAC_EXPAND_OUTPUTS), first, stride);
    }
}

lac_status lac_expand_tile(const lac_weight *weight, const lac_expand_shape *shape, lac_expand_tiled *out)
{
    const lac_expand_shape *s = shape;
    uint64_t capacity = (uint64_t)lac_weight_row_capacity(weight), tiles = (uint64_t)s->output_tiles;
    uint64_t bytes = tiles * (uint64_t)s->steps * (uint64_t)lac_expand_pieces(s) * (uint64_t)lac_expand_piece(s);
    tiler t = {.weight = weight, .shape = shape};
    lac_status status = LAC_STATUS_OK;
    t.units = lac_allocate((uint64_t)weight->geometry.selected * sizeof *t.units);
    t.row.values = lac_allocate(capacity * sizeof *t.row.values);
    t.row.columns = lac_allocate(capacity * sizeof *t.row.columns);
    out->pieces = lac_allocate_zeroed(bytes);
    out->range = lac_allocate(tiles * 2 * sizeof *out->range);
    out->output = lac_allocate(tiles * (uint64_t)s->tile_outputs * sizeof *out->output);
    if (t.units && t.row.values && t.row.columns && out->pieces && out->range && out->output)
        fill(&t, out);
    else
        status = lac_fail_memory("pieces of the weight", bytes);
    lac_release(t.units);
    lac_release(t.row.values);
    lac_release(t.row.columns);
    if (status) lac_expand_tiled_release(out);
    return status;
}

void lac_expand_tiled_release(lac_expand_tiled *tiled)
{
    lac_release(tiled->pieces);
    lac_release(tiled->range);
    lac_release(tiled->output);
    *tiled = (lac_expand_tiled){0};
}
