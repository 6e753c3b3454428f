/* sample.h - a weight of a pattern out of nowhere, for what needs one and not its numbers: compiling kernels ahead. */
#ifndef LAC_FORMAT_SAMPLE_H
#define LAC_FORMAT_SAMPLE_H

#include "format/weight.h"

/* n x k of `dtype`: units drawn at random (always the same for the same arguments), values all zero, rows of SHUFFLED in
 * order. */
lac_status lac_weight_sample(const lac_pattern *pattern, int64_t n, int64_t k, lac_dtype dtype, lac_weight **out);

#endif
