/* strict_shape.h - the tile, the path and the split of strict.cu that the model likes best for a problem. strict.c calls it. */
#ifndef LAC_CUDA_STRICT_SHAPE_H
#define LAC_CUDA_STRICT_SHAPE_H

#include "core/kernel.h"
#include "cuda/strict_tile.h"

/* What the choice looks at: a weight's pattern and sizes, never its contents. */
typedef struct lac_strict_facts {
    int64_t rows;    /* outputs stored                                                          */
    int64_t vector;  /* outputs that share their columns                                        */
    int64_t k;       /* columns                                                                 */
    int64_t group_k; /* columns of a group, of which ...                                        */
    int64_t group_n; /* ... so many are kept; both 0: a free distribution                       */
    double density;  /* of the columns                                                          */
    int in_order;    /* column i is row i of X: the direct path may be taken                    */
    int joinable;    /* rows of different vectors may stand in one, with zeros                  */
    int joined;      /* rows that keep columns of their own but stand in one vector, or 0: see lac_strict_facts_for */
} lac_strict_facts;

lac_strict_facts lac_strict_facts_of(const lac_problem *problem, bool dense);
/* The facts as a shape sees them. A tile of vectors takes rows that share nothing as a vector that keeps every column that one of
 * them keeps, with zeros where a row does not: more products, but a load from shared memory serves them all. */
lac_strict_facts lac_strict_facts_for(const lac_strict_facts *facts, const lac_strict_shape *shape);
/* Vectors of list_n outputs, those padded at the end of a row group included. */
int64_t lac_strict_vectors(const lac_strict_facts *facts, int list_n);
/* False when no tile fits the device. */
bool lac_strict_choose(const lac_problem *problem, const lac_strict_facts *facts, lac_strict_shape *shape, lac_cost *cost);
/* Slots that strict.cu unrolls. */
int lac_strict_unroll(const lac_strict_shape *shape);
/* Whether X goes through transpose.cu first: when it is not feature-major fp32 in rows that can be copied by 16 bytes; and the floats from row to row of what that makes. */
bool lac_strict_transposes(const lac_problem *problem);
int64_t lac_strict_pitch(const lac_problem *problem);

#endif
