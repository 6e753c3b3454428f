/* tile_case.h - what the tests of re-tiled weights share, beside format_case.h: weights, the problems that they are cut for, and the
 * comparison of what a reader found in the tiles. */
#ifndef LAC_TESTS_TILE_CASE_H
#define LAC_TESTS_TILE_CASE_H

#include "format_case.h"

#include "core/kernel.h"
#include "format/sample.h"
#include "format/weight.h"

/* A random weight in 16 bits, of case `number` (case_weight), and its elements [n][k], for the caller to free; NULL: they are not wanted. */
static inline lac_weight *tile_weight(case_rng *rng, const lac_pattern *p, int64_t n, int64_t k, int number, float **dense)
{
    uint8_t *keep = malloc((size_t)(n * k));
    float *values;
    assert_non_null(keep);
    case_keep(rng, p, n, k, number % 4 > 0, keep);
    lac_weight *w = case_weight(rng, p, n, k, number, keep, &values);
    free(keep);
    if (dense)
        *dense = values;
    else
        free(values);
    return w;
}

/* One in fp16 with its units drawn at random. */
static inline lac_weight *tile_sample(const char *text, int64_t n, int64_t k)
{
    lac_pattern p;
    lac_weight *w = NULL;
    ASSERT_OK(lac_pattern_parse(text, &p));
    ASSERT_OK(lac_weight_sample(&p, n, k, LAC_DTYPE_F16, &w));
    return w;
}

/* Everything in the weight's dtype, X and Y token-major, no epilogue. */
static inline lac_problem tile_problem(lac_device *target, const lac_weight *w, int64_t m)
{
    lac_problem problem = {.device = target, .weight = w, .m = m};
    problem.options.x_dtype = problem.options.y_dtype = w->dtype;
    return problem;
}

/* That what was read out of the tiles, which `where` names, is the weight [n][k]: its elements, or their bits. */
static inline void tile_expect(const double *read, const float *wanted, int64_t n, int64_t k, const char *where)
{
    for (int64_t i = 0; i < n * k; i++)
        if (read[i] != (double)wanted[i])
            fail_msg("row %lld, column %lld: %.9g in the %s, %.9g in the weight", (long long)(i / k), (long long)(i % k),
                     read[i], where, (double)wanted[i]);
}

static inline void tile_expect_bits(const uint32_t *read, const uint32_t *wanted, int64_t n, int64_t k, const char *where)
{
    for (int64_t i = 0; i < n * k; i++)
        if (read[i] != wanted[i])
            fail_msg("row %lld, column %lld: %08x in the %s, %08x in the weight", (long long)(i / k), (long long)(i % k),
                     read[i], where, wanted[i]);
}

#endif
