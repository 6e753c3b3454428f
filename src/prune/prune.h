/* prune.h - what the families' prunings share. lac_prune fills in a job; one of these then sets the mask's bits. */
#ifndef LAC_PRUNE_PRUNE_H
#define LAC_PRUNE_PRUNE_H

#include "core/pattern.h"
#include "format/mask.h"
#include "prune/source.h"

/* The factor of a calibration's damped moments, which is most of the work of OBS: made at the first step, freed by its owner. */
typedef struct lac_obs_factor {
    float *u; /* [k][k], or NULL while there is none */
} lac_obs_factor;

typedef struct lac_prune_job {
    lac_source source;
    lac_pattern pattern;
    lac_geometry geometry;
    lac_score score; /* L1 or L2, never DEFAULT */
    int threads;     /* as the caller asked; 0: as many as OpenMP gives */
    bool transposable;
    lac_mask *mask;
    const lac_mask *within; /* OBS, FISHER: what an earlier step left; the rest goes first. NULL: everything */
    const uint32_t *row_order,
        *col_order;         /* FISHER: where row i and column j of the matrix stand in the gradients; NULL: there too */
    lac_obs_factor *factor; /* OBS: kept from step to step; NULL: made and freed                             */
} lac_prune_job;

/* What a choice of units is worth. Units with an infinity or a NaN are counted, not summed. */
typedef struct lac_worth {
    int64_t not_finite;
    double sum;
} lac_worth;

/* 1 when a is worth more than b, -1 when less, else 0. */
int lac_worth_compare(const lac_worth *a, const lac_worth *b);

/* The best units of each row group (all families but V:N:M); row group g holds the rows perm[g * unit_n ...], or the
 * rows in order when perm is NULL. Overwrites every bit. `worth` may be NULL. */
lac_status lac_prune_units(const lac_prune_job *job, const uint32_t *perm, lac_worth *worth);

/* N:M along rows and columns. */
lac_status lac_prune_transposable(const lac_prune_job *job);

/* V:N:M. */
lac_status lac_prune_vnm(const lac_prune_job *job);

/* SHUFFLED, and VECTOR where rows may be permuted: finds the permutation too and hands it to the mask. */
lac_status lac_prune_shuffled(const lac_prune_job *job);

/* lac_prune and lac_prune_and_correct over the steps of options->schedule, and then the job's pattern; `corrected` may be NULL by MAGNITUDE and WANDA.
 * Arguments are resolved. */
lac_status lac_prune_schedule(const lac_prune_job *job, const lac_prune_options *options, const lac_matrix *corrected,
                              lac_mask **out);

/* Every weight times the norm of its input, [n][k]: doubles, so that no product overflows or vanishes. Free *out. */
lac_status lac_wanda_scale(const lac_matrix *dense, const lac_calibration *calibration, double **out);

/* Wanda: by magnitude after each column was multiplied by the norm of its input. */
lac_status lac_prune_wanda(const lac_prune_job *job, const lac_calibration *calibration, lac_mask **out);

/* Second order; `corrected` is resolved and receives what stays. */
lac_status lac_prune_obs(const lac_prune_job *job, const lac_prune_options *options, const lac_matrix *corrected,
                         lac_mask **out);

/* What lac_prune_and_correct cannot be told: as in the job. */
typedef struct lac_prune_extras {
    lac_obs_factor *factor;
    const uint32_t *row_order, *col_order;
    const uint32_t *settled_rows, *settled_cols; /* [n], [k]: the order that W is pruned in, and the mask carries; or NULL */
} lac_prune_extras;

lac_status lac_prune_with(const lac_matrix *dense, const lac_pattern *pattern, const lac_prune_options *options,
                          const lac_prune_extras *extras, lac_mask **out);

lac_status lac_prune_and_correct_with(const lac_matrix *dense, const lac_pattern *pattern, const lac_prune_options *options,
                                      const lac_matrix *corrected, const lac_prune_extras *extras, lac_mask **out);

/* VALUE_OUT_OF_RANGE, with its place, where a finite value that stays does not fit `dtype`. With mask NULL `from` is what a correction made: everything in it
 * counts, what is not finite too. */
lac_status lac_prune_check_range(const lac_matrix *from, const lac_mask *mask, lac_dtype dtype);

/* Every weight times the root of the mean square of its gradient, [n][k]. Free *out. */
lac_status lac_fisher_scale(const lac_matrix *dense, const lac_gradients *gradients, double **out);

/* What the loss is taken to rise by when `pruned` takes the place of `original`: 1/2 dw^T F dw, with the Fisher matrix of each whole row and the
 * damping (0: 0.01) as a share of the mean square of all gradients. */
lac_status lac_fisher_rise(const lac_matrix *original, const lac_matrix *pruned, const lac_gradients *gradients, double damping,
                           int threads, double *out);

/* The same by gradients. */
lac_status lac_prune_fisher(const lac_prune_job *job, const lac_gradients *gradients, double damping,
                            const lac_matrix *corrected, lac_mask **out);

#endif
