/* calibration.h - what a layer's inputs are like, inside. */
#ifndef LAC_PRUNE_CALIBRATION_H
#define LAC_PRUNE_CALIBRATION_H

#include "lacuna.h"

struct lac_calibration {
    int64_t k, samples;
    float *moments; /* [k][k], symmetric: the sum over the samples of x x^T */
};

#endif
