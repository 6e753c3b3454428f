/* stream_state.h - what preparing (stream_prepare.c) leaves for executing (stream.c) of dataflow "stream": the weight in the
 * order of use,
 *
 *     counts   [block][strip]         slots of the strip in the block: shared, own
 *     columns  [block][strip]         [shared], [own][row]; 16 bits, counted from the block's first column
 *     values   [block][strip]         [shared][row], [own][row]; fp32; what a row does not have is zero */
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
    lac_cpu_stream_count *counts; /* [blocks][strips]                                     */
    lac_cpu_stream_place *first;  /* [blocks][items]                                      */
    float *values;                /* [slots of all][rows]                                 */
    uint16_t *columns;            /* of all slots, behind the values                      */
} lac_cpu_stream_state;

/* Rows of W in a work item. */
int64_t lac_cpu_stream_item_rows(const lac_problem *problem);

#endif
