/* permute.h - permutations that let a pattern keep more. */
#ifndef LAC_PRUNE_PERMUTE_H
#define LAC_PRUNE_PERMUTE_H

#include "prune/prune.h"

/* What lac_prune_options say of permutations, resolved. */
typedef struct lac_permute {
    bool rows, columns;                    /* to be searched for                */
    int rounds;                            /* of the search over columns        */
    const uint32_t *row_order, *col_order; /* [n], [k]: settled already, or NULL */
} lac_permute;

/* LAC_PERMUTE_* that the pattern can gain by. */
uint32_t lac_permute_possible(const lac_pattern *pattern);

/* UNSUPPORTED where the pattern has nothing to gain: blocks, free distributions (columns), rows of element-wise patterns. */
lac_status lac_permute_check(const lac_permute *permute, const lac_pattern *pattern);

/* The order of rows under which vectors of rows want the same inputs: perm [n]. Reads the job's source. */
lac_status lac_permute_rows(const lac_prune_job *job, uint32_t *perm);

/* The order of columns under which groups keep more, for rows in the order of row_perm (NULL: their own): perm [k]. */
lac_status lac_permute_columns(const lac_prune_job *job, const uint32_t *row_perm, int rounds, uint32_t *perm);

/* Prunes in the order that is best, or as W stands when that is no better; orders that are settled hold in any case. The job's source holds what weights are judged by; `dense` is
 * W, `options` are resolved; `corrected` may be NULL. */
lac_status lac_prune_permuted(const lac_prune_job *job, const lac_matrix *dense, const lac_prune_options *options,
                              const lac_permute *permute, const lac_matrix *corrected, lac_mask **out);

#endif
