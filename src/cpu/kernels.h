/* kernels.h - the functions behind the CPU's table of kernels, which kernels.c puts together. */
#ifndef LAC_CPU_KERNELS_H
#define LAC_CPU_KERNELS_H

#include "core/kernel.h"

/* gather.c */
size_t lac_cpu_gather_workspace(const lac_problem *problem);
lac_status lac_cpu_gather_execute(const lac_problem *problem, const void *state, const lac_call *call);

/* decode.c: one stored row of W as the products it makes. */
typedef struct lac_cpu_row {
    float *values;     /* [count]                                    */
    uint32_t *columns; /* [count] stored columns                     */
    int64_t count;
} lac_cpu_row;

/* The most products of a row. */
int64_t lac_cpu_row_capacity(const lac_weight *weight);
/* Decodes stored row `stored` into `row`, whose arrays hold lac_cpu_row_capacity elements. `units` is scratch for
 * geometry.selected units. `neighbour`, unless NULL, is another row of the same row group: where a row group shares its
 * columns, they are taken from it. */
void lac_cpu_decode_row(const lac_weight *weight, int64_t stored, const lac_cpu_row *neighbour, uint32_t *units,
                        lac_cpu_row *row);

#endif
