/* reference.h - the oracle inside: one row of W at a time, one element of Y at a time, in double. Used by
 * lac_plan_reference and by the kernel ref_f64. */
#ifndef LAC_REF_REFERENCE_H
#define LAC_REF_REFERENCE_H

#include "core/kernel.h"

/* One stored row of W: the products that make up one output. */
typedef struct lac_reference_row {
    int64_t output;   /* which column of Y it makes                          */
    int64_t count;    /* products                                            */
    int64_t *inputs;  /* [count] the column of X that each product reads     */
    double *weights;  /* [count] the value that it is multiplied by          */
    uint32_t *units;  /* scratch: the units that the row group keeps         */
    int64_t capacity; /* the most products that any row of the weight has    */
} lac_reference_row;

/* Bytes of scratch for one row, and where in such a block its arrays lie. */
uint64_t lac_reference_scratch_bytes(const lac_weight *weight);
void lac_reference_bind(const lac_weight *weight, void *scratch, lac_reference_row *row);

/* Fills in `row` with stored row `stored` of the weight. */
void lac_reference_expand(const lac_weight *weight, int64_t stored, lac_reference_row *row);

/* Y[token][row->output] in double. `bound`, unless NULL, gets how far a plan's result may be from it; see reference.c. */
double lac_reference_element(const lac_problem *problem, const lac_call *call, const lac_reference_row *row, int64_t token,
                             double *bound);

/* act(z) in double. */
double lac_reference_activation(lac_activation activation, double z);

#endif
