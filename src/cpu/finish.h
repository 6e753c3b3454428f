/* finish.h - from a tile of sums to Y: permutation, layouts, bias, activation, residual, dtype. All vector kernels end
 * here. */
#ifndef LAC_CPU_FINISH_H
#define LAC_CPU_FINISH_H

#include "cpu/panel.h"
#include "cpu/unit.h"

/* Sums of `rows` adjacent stored rows and the tokens of one tile of the panel. */
typedef struct lac_cpu_tile {
    int64_t first_row; /* stored                                   */
    int rows;
    int64_t first_token;              /* within the panel; those past its end are padding */
    const float *sums;                /* row r, token t at r * row_stride + t * token_stride */
    int64_t row_stride, token_stride; /* one of them is 1                       */
} lac_cpu_tile;

void lac_cpu_finish_tile(const lac_cpu_unit *unit, const lac_problem *problem, const lac_call *call, const lac_cpu_panel *panel,
                         const lac_cpu_tile *tile);

#endif
