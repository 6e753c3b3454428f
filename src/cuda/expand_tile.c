/* expand_tile.c - re-tiles an element-wise weight for kernels/expand.cu: what each thread spreads out, in the order in which it
 * loads it. */
#include "cuda/expand_tile.h"

#include <string.h>

#include "core/dtype.h"
#include "core/memory.h"
#include "core/parallel.h"
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

typedef struct tiling {
    const lac_weight *weight;
    const lac_expand_shape *shape;
    lac_row_room *rooms; /* [threads] */
    lac_expand_tiled *out;
} tiling;

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
static void fill_row(const tiling *t, const lac_weight_row *kept, int row, uint8_t *first, int64_t stride)
{
    const lac_expand_shape *s = t->shape;
    for (int64_t i = 0; i < kept->count;) {
        int64_t begin = kept->columns[i] / s->run * s->run;
        int front = count_before(kept, i, begin + s->run / 2), all = count_before(kept, i, begin + s->run);
        uint8_t *piece = first + begin / LAC_EXPAND_INPUTS * stride;
        int start = (int)(begin % LAC_EXPAND_SPAN) / s->run * s->per;
        for (int j = 0; j < all; ++j, ++i) {
            int bit, place = start + (j < front || s->team == 0 ? j : s->per - all + j);
            int thread = lac_expand_bit_at(row, (int)(kept->columns[i] % LAC_EXPAND_INPUTS), &bit);
            put(piece, lac_expand_word_at(s->words, thread, place / 2) + place % 2 * 2, bits_of(t->weight, kept->values[i]));
            piece[lac_expand_word_at(s->words, thread, s->words - 1) + bit / 8] |= (uint8_t)(1 << bit % 8);
        }
    }
}

/* Rows of a tile have bits in the same bytes: a tile is one thread's. */
static void fill_tile(void *opaque, int thread, int64_t tile)
{
    const tiling *t = opaque;
    const lac_expand_shape *s = t->shape;
    const uint32_t *row_perm = t->weight->part[LAC_PART_ROW_PERM].data;
    lac_row_room *room = &t->rooms[thread];
    int64_t stride = (int64_t)lac_expand_pieces(s) * lac_expand_piece(s);
    uint8_t *pieces = t->out->pieces + tile * s->steps * stride;
    t->out->range[2 * tile] = (int32_t)(tile * s->steps);
    t->out->range[2 * tile + 1] = (int32_t)((tile + 1) * s->steps);
    for (int within = 0; within < s->tile_outputs; ++within) {
        int64_t i = tile * s->tile_outputs + within;
        bool real = i < t->weight->geometry.n;
        t->out->output[i] = !real ? -1 : row_perm ? (int32_t)row_perm[i] : (int32_t)i;
        if (!real) continue;
        lac_weight_decode_row(t->weight, i, NULL, room->units, &room->row);
        fill_row(t, &room->row, within % LAC_EXPAND_OUTPUTS, pieces + within / LAC_EXPAND_OUTPUTS * lac_expand_piece(s),
                 stride);
    }
}

lac_status lac_expand_tile(const lac_weight *weight, const lac_expand_shape *shape, lac_expand_tiled *out)
{
    const lac_expand_shape *s = shape;
    uint64_t tiles = (uint64_t)s->output_tiles;
    uint64_t bytes = tiles * (uint64_t)s->steps * (uint64_t)lac_expand_pieces(s) * (uint64_t)lac_expand_piece(s);
    int threads = lac_parallel_threads_for(0, s->output_tiles, weight->geometry.n * weight->geometry.k);
    tiling t = {weight, shape, lac_row_rooms_make(weight, threads), out};
    lac_status status = LAC_STATUS_OK;
    out->pieces = lac_allocate_zeroed(bytes);
    out->range = lac_allocate(tiles * 2 * sizeof *out->range);
    out->output = lac_allocate(tiles * (uint64_t)s->tile_outputs * sizeof *out->output);
    if (t.rooms && out->pieces && out->range && out->output)
        lac_parallel_for_each(s->output_tiles, threads, fill_tile, &t);
    else
        status = lac_fail_memory("pieces of the weight", bytes);
    lac_release(t.rooms);
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
