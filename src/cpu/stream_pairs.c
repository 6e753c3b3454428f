/* stream_pairs.c - which two rows of W make a strip of dataflow "stream", and their slots.
 *
 * A slot whose column both rows have loads X once for two FMAs, a slot of own columns once for each (stream_body.h), so the rows
 * of a pair should have much in common. Neighbours share what chance gives them, a quarter of the columns at 8:32. Within each
 * block of columns a row takes the one of its pool that shares most with it, of those that are left: about a third at 8:32, and
 * where neighbours share one column in a hundred (4:32), a quarter. A pair holds for one block; the next one has others, and sums
 * lie by rows. docs/kernels/cpu.md has what that brings.
 *
 * Rows become bit masks of the columns they have in each block; pairs are chosen from these, and the slots follow from the masks
 * of both, so that each row is decoded twice, by itself, and no more than one at a time. */
#include "cpu/stream_pairs.h"

#include <string.h>

#include "core/arithmetic.h"
#include "core/memory.h"
#include "format/bits.h"
#include "format/row.h"

/* Where the rows of the item are that a thread writes: room for it. */
typedef struct seating {
    lac_cpu_stream_place *places; /* [blocks][strips of the item] where the slots of each begin */
    uint8_t *seats;               /* [blocks][rows of the item] strip * 2 + side of each         */
} seating;

struct lac_cpu_stream_pairs {
    const lac_weight *weight;
    const lac_cpu_unit *unit;
    lac_cpu_stream_state *state;
    int64_t pool_rows;
    int64_t words;       /* of a row's mask of a block                                           */
    uint64_t *masks;     /* [blocks][2 * strips][words] a bit for each column of the block       */
    lac_row_room *rooms; /* [threads]                                                            */
    seating *seatings;   /* [threads]                                                            */
};

static int64_t item_rows(const lac_cpu_stream_state *s) { return 2 * s->item_strips; }

static seating *seatings_make(const lac_cpu_stream_state *s, int threads)
{
    uint64_t places = (uint64_t)(s->blocks * s->item_strips);
    lac_rooms of;
    seating *seatings = lac_allocate_rooms(threads, sizeof *seatings, places * (sizeof(lac_cpu_stream_place) + 2), &of);
    for (int i = 0; seatings && i < threads; ++i) {
        seatings[i].places = (lac_cpu_stream_place *)(void *)(of.first + (uint64_t)i * of.each);
        seatings[i].seats = (uint8_t *)(seatings[i].places + places);
    }
    return seatings;
}

lac_cpu_stream_pairs *lac_cpu_stream_pairs_make(const lac_problem *problem, lac_cpu_stream_state *s, int threads)
{
    lac_cpu_stream_pairs *p = lac_allocate_zeroed(sizeof *p);
    if (!p) return NULL;
    p->weight = problem->weight;
    p->unit = problem->kernel->config;
    p->state = s;
    p->pool_rows = lac_cpu_stream_pool_rows(problem);
    p->words = lac_ceil_divide(s->block_columns, 64);
    p->masks = lac_allocate_zeroed((uint64_t)(2 * s->strips * s->blocks) * (uint64_t)p->words * sizeof *p->masks);
    p->rooms = lac_row_rooms_make(p->weight, threads);
    p->seatings = seatings_make(s, threads);
    if (p->masks && p->rooms && p->seatings) return p;
    lac_cpu_stream_pairs_release(p);
    return NULL;
}

void lac_cpu_stream_pairs_release(lac_cpu_stream_pairs *p)
{
    if (!p) return;
    lac_release(p->masks);
    lac_release(p->rooms);
    lac_release(p->seatings);
    lac_release(p);
}

/* The masks of a block from row `row` on. */
static uint64_t *masks_at(const lac_cpu_stream_pairs *p, int64_t block, int64_t row)
{
    return p->masks + (block * 2 * p->state->strips + row) * p->words;
}

static uint32_t count_columns(const lac_cpu_stream_pairs *p, const uint64_t *mask)
{
    return (uint32_t)lac_bits_count(mask, 0, p->words * 64);
}

/* Columns of a row ascend, and so do its blocks. */
static void mark_row(const lac_cpu_stream_pairs *p, const lac_weight_row *row, int64_t number)
{
    int64_t block = 0, first_column = 0;
    for (int64_t i = 0; i < row->count; ++i) {
        while (row->columns[i] - first_column >= p->state->block_columns) ++block, first_column += p->state->block_columns;
        lac_bits_set(masks_at(p, block, number), row->columns[i] - first_column);
    }
}

/* Of the columns that two rows have in common a multiple of four are shared, and a multiple of four of the slots come in turns:
 * the inner loops go without a rest. */
static lac_cpu_stream_strip lay_out(uint32_t common, uint32_t first, uint32_t second)
{
    uint32_t shared = common / 4 * 4, own = (first > second ? first : second) - shared;
    uint32_t turns = shared < own ? shared : own / 4 * 4;
    return (lac_cpu_stream_strip){(uint16_t)turns, (uint16_t)(shared - turns), (uint16_t)(own - turns), {0, 0}};
}

/* The pairs of one pool, from its first row on: each takes what suits it best of the rows that are left. */
static void choose_pool(const lac_cpu_stream_pairs *p, int64_t block, int64_t first_row, int rows)
{
    lac_cpu_stream_state *s = p->state;
    const uint64_t *masks = masks_at(p, block, first_row);
    const int64_t within = first_row % item_rows(s); /* strips number the rows of their item */
    uint8_t left[LAC_CPU_STREAM_POOL_ROWS];
    for (int i = 0; i < rows; ++i) left[i] = (uint8_t)i;
    for (lac_cpu_stream_strip *strip = s->strip + block * s->strips + first_row / 2; rows > 0; ++strip, rows -= 2) {
        uint32_t common;
        int first = left[0], at = 1 + p->unit->closest(masks, p->words, first, left + 1, rows - 1, &common), second = left[at];
        memmove(left + at, left + at + 1, (size_t)(rows - at - 1));
        memmove(left, left + 1, (size_t)(rows - 2));
        *strip = lay_out(common, count_columns(p, masks + first * p->words), count_columns(p, masks + second * p->words));
        strip->sums_of[0] = (uint8_t)(within + first);
        strip->sums_of[1] = (uint8_t)(within + second);
    }
}

/* The last strip of all may have a row that W has not; it stays empty. */
void lac_cpu_stream_pairs_choose(void *opaque, int thread, int64_t item)
{
    const lac_cpu_stream_pairs *p = opaque;
    const lac_cpu_stream_state *s = p->state;
    lac_row_room *room = &p->rooms[thread];
    const int64_t first = item * item_rows(s), end = lac_smaller(2 * s->strips, first + item_rows(s));
    for (int64_t row = first; row < lac_smaller(end, p->weight->geometry.n); ++row) {
        lac_weight_decode_row(p->weight, row, NULL, room->units, &room->row);
        mark_row(p, &room->row, row);
    }
    for (int64_t block = 0; block < s->blocks; ++block)
        for (int64_t pool = first; pool < end; pool += p->pool_rows)
            choose_pool(p, block, pool, (int)lac_smaller(p->pool_rows, end - pool));
}

/* Where each strip of an item begins and each row is, in every block; slots that not both rows fill are zeros. */
static void find_seats(const lac_cpu_stream_pairs *p, seating *to, int64_t item, int64_t first_strip, int64_t strips)
{
    const lac_cpu_stream_state *s = p->state;
    for (int64_t block = 0; block < s->blocks; ++block) {
        lac_cpu_stream_place at = s->first[block * s->items + item];
        for (int64_t i = 0; i < strips; ++i) {
            lac_cpu_stream_strip strip = s->strip[block * s->strips + first_strip + i];
            lac_cpu_stream_place begin = at;
            to->places[block * s->item_strips + i] = begin;
            lac_cpu_stream_move_on(strip, &at);
            memset(s->values + 2 * begin.slot, 0, 2 * (size_t)(at.slot - begin.slot) * sizeof *s->values);
            memset(s->columns + begin.column, 0, (size_t)(at.column - begin.column) * sizeof *s->columns);
            for (int side = 0; side < 2; ++side)
                to->seats[block * item_rows(s) + strip.sums_of[side]] = (uint8_t)(2 * i + side);
        }
    }
}

/* A row's part of a block, `count` entries from `from` on: side `side` of `strip`, whose slots begin at `at`. Of the columns that
 * the strip's other row, `other`, has as well the first are shared, as many as the strip says. */
static void write_side(const lac_cpu_stream_state *s, const lac_weight_row *row, int64_t from, int64_t count,
                       int64_t first_column, const uint64_t *other, lac_cpu_stream_strip strip, lac_cpu_stream_place at,
                       int side)
{
    const int64_t turns = strip.turns, shared_in_all = turns + strip.shared;
    float *values = s->values + 2 * at.slot + side, *after_turns = values + 4 * turns;
    uint16_t *columns = s->columns + at.column, *left = columns + 3 * turns;
    int64_t shared = 0, own = 0;
    for (int64_t i = from; i < from + count; ++i) {
        uint16_t column = (uint16_t)(row->columns[i] - first_column);
        float value = row->values[i];
        if (shared < shared_in_all && lac_bits_test(other, column)) {
            *(shared < turns ? values + 4 * shared : after_turns + 2 * (shared - turns)) = value;
            *(shared < turns ? columns + 3 * shared : left + (shared - turns)) = column;
            ++shared;
        } else {
            *(own < turns ? values + 4 * own + 2 : after_turns + 2 * (strip.shared + own - turns)) = value;
            *(own < turns ? columns + 3 * own + 1 + side : left + strip.shared + 2 * (own - turns) + side) = column;
            ++own;
        }
    }
}

void lac_cpu_stream_pairs_write(void *opaque, int thread, int64_t item)
{
    const lac_cpu_stream_pairs *p = opaque;
    const lac_cpu_stream_state *s = p->state;
    lac_row_room *room = &p->rooms[thread];
    const int64_t first_strip = item * s->item_strips, strips = lac_smaller(s->item_strips, s->strips - first_strip);
    const int64_t first_row = 2 * first_strip;
    seating *seated = &p->seatings[thread];
    find_seats(p, seated, item, first_strip, strips);
    for (int64_t i = 0; i < lac_smaller(2 * strips, p->weight->geometry.n - first_row); ++i) {
        lac_weight_decode_row(p->weight, first_row + i, NULL, room->units, &room->row);
        int64_t from = 0;
        for (int64_t block = 0; block < s->blocks; ++block) {
            const int seat = seated->seats[block * item_rows(s) + i], side = seat % 2;
            lac_cpu_stream_strip strip = s->strip[block * s->strips + first_strip + seat / 2];
            int64_t count = count_columns(p, masks_at(p, block, first_row + i));
            write_side(s, &room->row, from, count, block * s->block_columns,
                       masks_at(p, block, first_row + strip.sums_of[!side]), strip,
                       seated->places[block * s->item_strips + seat / 2], side);
            from += count;
        }
    }
}
