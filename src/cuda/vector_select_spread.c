/* vector_select_spread.c - the batches of kernels/vector_select.cu where each row keeps inputs of its own, N of 8, 16 or 32: kept
 * weights and the numbers of their inputs, for the lanes to spread. vector_select_tile.c calls it for every unit. */
#include <string.h>

#include "core/dtype.h"
#include "cuda/vector_select_tile.h"
#include "format/weight.h"

enum { LANE_INPUTS = 32, STEP_INPUTS = 128, LANE_ROWS = 4 };

/* What number `number` of a lane's slots in a batch is: a value, and the number of an input within its group. */
static void put_slot(const lac_select_shape *s, uint8_t *batch, int lane, int number, uint16_t value, uint32_t input)
{
    int words = lac_select_value_words(s), bit = number * s->entry_bits;
    memcpy(batch + lac_select_word_at(words, lane, number / 2) + number % 2 * 2, &value, sizeof value);
    for (int done = 0; done < s->entry_bits;) { /* an entry may lie in two words */
        int word = (bit + done) / 32, shift = (bit + done) % 32, bits = s->entry_bits - done;
        if (bits > 32 - shift) bits = 32 - shift;
        uint8_t *at = batch + words * 128 + lac_select_word_at(lac_select_place_words(s), lane, word);
        uint32_t all;
        memcpy(&all, at, sizeof all);
        all |= (input >> done & ((UINT32_C(1) << bits) - 1)) << shift;
        memcpy(at, &all, sizeof all);
        done += bits;
    }
}

/* The lowest input of a group that is not among `kept`, a bit each. */
static uint32_t first_free(uint32_t kept)
{
    uint32_t input = 0;
    while (kept >> input & 1) ++input;
    return input;
}

static uint16_t bits_of(const lac_weight *w, float value)
{
    return w->dtype == LAC_DTYPE_BF16 ? lac_f32_to_bf16(value) : lac_f32_to_f16(value);
}

/* Row `r` of the unit; `row` may have no weights at all. */
static void spread_row(const lac_weight *w, const lac_select_shape *s, int r, const lac_weight_row *row, uint8_t *batches)
{
    int groups = LANE_INPUTS / s->group_inputs, lane_slots = groups * s->group_slots;
    int64_t next = 0, steps = (int64_t)s->chunks * s->chunk_batches * s->batch;
    for (int64_t group = 0; group < steps * 4 * groups; ++group) {
        int64_t step = group / groups / 4, batch = step / s->batch;
        int lane = r % 8 * 4 + (int)(group / groups % 4);
        int number = ((int)(step % s->batch) * LANE_ROWS + r / 8) * lane_slots + (int)(group % groups) * s->group_slots;
        uint32_t kept = 0;
        int slot = 0;
        for (; next < row->count && row->columns[next] < (group + 1) * s->group_inputs; ++next, ++slot) {
            uint32_t input = (uint32_t)(row->columns[next] - group * s->group_inputs);
            kept |= UINT32_C(1) << input;
            put_slot(s, batches + batch * s->batch_bytes, lane, number + slot, bits_of(w, row->values[next]), input);
        }
        for (; slot < s->group_slots; ++slot) put_slot(s, batches + batch * s->batch_bytes, lane, number + slot, 0, first_free(kept));
    }
}

void lac_select_spread_unit(const lac_weight *weight, const lac_select_shape *shape, int64_t unit, uint32_t *units, lac_weight_row *row,
                            uint8_t *batches)
{
    for (int r = 0; r < shape->unit_rows; ++r) {
        int64_t stored = unit * shape->unit_rows + r;
        row->count = 0;
        if (stored < weight->geometry.n) lac_weight_decode_row(weight, stored, NULL, units, row);
        spread_row(weight, shape, r, row, batches);
    }
}
