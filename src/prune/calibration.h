/* calibration.h - what a layer's inputs are like, inside. */
#ifndef LAC_PRUNE_CALIBRATION_H
#define LAC_PRUNE_CALIBRATION_H

#include "lacuna.h"

struct lac_calibration {
    int64_t k, samples;
    float *moments; /* [k][k], symmetric: the sum over the samples of x x^T */
};

/* lac_calibration_error by so many threads; 0: as many as OpenMP gives. */
lac_status lac_calibration_error_by(const lac_calibration *calibration, const lac_matrix *original, const lac_matrix *pruned,
                                    int32_t threads, double *error, double *total);

#endif
