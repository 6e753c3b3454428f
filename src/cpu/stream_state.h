/* stream_state.h - what preparing (stream_prepare.c) leaves for executing (stream.c) of dataflow "stream": the weight in the
 * order of use,
 *
 *     strip    [block][strip]         how many slots it has in the block and, of 2 rows, which of its item's they are
 *     columns  [block][strip][slot]   one, or of an own slot one for each row; 16 bits, counted from the block's first column
 *     values   [block][strip][slot]   one for each row; fp32; what a row does not have is zero */
#ifndef LAC_CPU_STREAM_STATE_H
#define LAC_CPU_STREAM_STATE_H

#include "cpu/stream.h"

/* Slots before and columns before: where something begins. */
typedef struct lac_cpu_stream_place {
    int64_t slot, column;
} lac_cpu_stream_place;

typedef struct lac_cpu_stream_state {
    int rows;           /* of W in a strip: 2 or 4                              */
    int64_t group_rows; /* a strip ends where so many rows do                   */
    int64_t strips, items, item_strips;
    int64_t block_columns, blocks;
    lac_cpu_stream_strip *strip; /* [blocks][strips]                                     */
    lac_cpu_stream_place *first; /* [blocks][items]                                      */
    float *values;               /* [slots of all][rows]                                 */
    uint16_t *columns;           /* of all slots, behind the values                      */
} lac_cpu_stream_state;

/* Past the slots of a strip. */
static inline void lac_cpu_stream_move_on(lac_cpu_stream_strip strip, lac_cpu_stream_place *at)
{
    at->slot += 2 * strip.turns + strip.shared + strip.own;
    at->column += 3 * strip.turns + strip.shared + 2 * strip.own;
}

/* Rows of W in a work item, a power of two: strips number them in 8 bits. */
enum { LAC_CPU_STREAM_ITEM_ROWS = 256 };
int64_t lac_cpu_stream_item_rows(const lac_problem *problem);
/* Rows of W among which pairs are chosen, a power of two: an item has whole pools. */
enum { LAC_CPU_STREAM_POOL_ROWS = 128 };
int64_t lac_cpu_stream_pool_rows(const lac_problem *problem);

#endif
