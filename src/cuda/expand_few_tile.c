/* expand_few_tile.c - re-tiles an element-wise weight for kernels/expand_few.cu: 32 inputs of a row are a mask and as many values as it marks.
 * Called once a plan by expand_few.c; the layout is unit-tested. */
#include <string.h>

#include "core/dtype.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"
#include "cuda/expand_few.h"
#include "format/row.h"

int64_t lac_few_word_at(const lac_few_shape *s, int warp, int lane, int word)
{
    int words = lac_few_lane_words(s), whole = words / 4 * 4;
    int64_t part = (int64_t)warp * words * 128;
    return part + (word < whole ? word / 4 * 512 + lane * 16 + word % 4 * 4 : whole * 128 + lane * 8 + (word - whole) * 4);
}

/* `count` values of 32 inputs from `begin` on, in ascending order, to the place of row `row` of a chunk. The mask marks as many inputs as there are
 * places: where the row keeps fewer, zeros stand for others. */
static void fill_span(const lac_few_shape *s, lac_dtype dtype, uint8_t *chunk, int row, int64_t begin, const float *values,
                      const uint32_t *columns, int count)
{
    uint32_t kept = 0, marked;
    for (int i = 0; i < count; ++i) kept |= 1u << (columns[i] - (uint32_t)begin);
    marked = kept;
    for (int bit = 0, missing = 2 * s->words - count; missing > 0; ++bit)
        if (!(marked >> bit & 1u)) marked |= 1u << bit, --missing;
    int warp = row / 16, lane = row % 8 * 4 + (int)(begin % LAC_FEW_INPUTS) / LAC_FEW_SPAN, second = row % 16 / 8, place = 0;
    for (int bit = 0; bit < LAC_FEW_SPAN; ++bit) {
        if (!(marked >> bit & 1u)) continue;
        uint16_t value = 0;
        if (kept >> bit & 1u) {
            value = dtype == LAC_DTYPE_BF16 ? lac_f32_to_bf16(*values) : lac_f32_to_f16(*values);
            ++values;
        }
        memcpy(chunk + lac_few_word_at(s, warp, lane, second * s->words + place / 2) + place % 2 * 2, &value, sizeof value);
        ++place;
    }
    memcpy(chunk + lac_few_word_at(s, warp, lane, 2 * s->words + second), &marked, sizeof marked);
}

static void fill_row(const lac_few_shape *s, lac_dtype dtype, const lac_weight_row *row, int64_t index, uint8_t *tile)
{
    int64_t at = 0;
    for (int64_t begin = 0; begin < s->chunks * LAC_FEW_INPUTS; begin += LAC_FEW_SPAN) {
        int count = 0;
        while (at + count < row->count && row->columns[at + count] < begin + LAC_FEW_SPAN) ++count;
        fill_span(s, dtype, tile + begin / LAC_FEW_INPUTS * lac_few_chunk_bytes(s), (int)(index % LAC_FEW_ROWS), begin,
                  row->values + at, row->columns + at, count);
        at += count;
    }
}

typedef struct tiling {
    const lac_weight *weight;
    const lac_few_shape *shape;
    lac_row_room *rooms; /* [threads] */
    uint8_t *parts;
    uint64_t stride; /* bytes of a tile */
} tiling;

static void fill_tile(void *opaque, int thread, int64_t tile)
{
    const tiling *t = opaque;
    lac_row_room *room = &t->rooms[thread];
    for (int64_t i = tile * LAC_FEW_ROWS; i < (tile + 1) * LAC_FEW_ROWS; ++i) {
        room->row.count = 0;
        if (i < t->weight->geometry.n) lac_weight_decode_row(t->weight, i, NULL, room->units, &room->row);
        fill_row(t->shape, t->weight->dtype, &room->row, i, t->parts + (uint64_t)tile * t->stride);
    }
}

lac_status lac_few_tile(const lac_weight *weight, const lac_few_shape *s, uint8_t **out)
{
    uint64_t stride = (uint64_t)s->chunks * (uint64_t)lac_few_chunk_bytes(s), bytes = (uint64_t)s->tiles * stride;
    int threads = lac_parallel_threads_for(0, s->tiles, weight->geometry.n * weight->geometry.k);
    tiling t = {weight, s, lac_row_rooms_make(weight, threads), lac_allocate_zeroed(bytes), stride};
    lac_status status = LAC_STATUS_OK;
    if (t.rooms && t.parts) {
        lac_parallel_for_each(s->tiles, threads, fill_tile, &t);
        *out = t.parts;
    } else {
        status = lac_fail_memory("parts of the weight", bytes);
        lac_release(t.parts);
    }
    lac_release(t.rooms);
    return status;
}
