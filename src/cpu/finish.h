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

/* Where the results of stored rows [first_row, end_row) and the tokens of a tile will go, to be asked for early; nothing where
 * these are not adjacent. */
lac_cpu_region lac_cpu_finish_region(const lac_problem *problem, const lac_call *call, const lac_cpu_panel *panel,
                                     int64_t first_token, int64_t first_row, int64_t end_row);

/* Outputs of shuffled rows in a token-major Y: their sums wait until the panel's are all there.
 *
 * lac_cpu_aside_bytes: of workspace for the sums of so many tokens, a multiple of 64; 0 where outputs need not wait. The
 * caller points lac_cpu_panel.aside there; lac_cpu_finish_tile then fills it.
 * lac_cpu_finish_aside: the sums of the panel's token `token` go to Y. */
uint64_t lac_cpu_aside_bytes(const lac_problem *problem, int64_t tokens);
void lac_cpu_finish_aside(const lac_cpu_unit *unit, const lac_problem *problem, const lac_call *call,
                          const lac_cpu_panel *panel, int64_t token);

#endif
