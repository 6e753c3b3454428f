/* generate.h - random patterns and shapes, leaning towards the odd ones. */
#ifndef TEST_SUPPORT_GENERATE_H
#define TEST_SUPPORT_GENERATE_H

#include "lacuna.h"
#include "support/random.h"

/* Every family, N:M and free. */
lac_pattern test_random_pattern(test_random *random);
lac_pattern test_random_pattern_of(test_random *random, lac_family family);
/* A shape for the pattern: n and k of 0, 1, less than a unit or a group, one off its boundaries, or several of them;
 * n * k stays near `most` or less. */
void test_random_shape(test_random *random, const lac_pattern *pattern, int64_t most, int64_t *n, int64_t *k);
/* F32, F16 or BF16; with F64 when `allow_f64`. */
lac_dtype test_random_dtype(test_random *random, int allow_f64);

#endif
