/* gpu_patterns.h - random patterns for the GPU's tests. The lists of gpu_list.c and gpu_tiles.c hold what users prune to and what was
 * found to be special; what nobody thought of is in neither. LAC_TEST_GPU_PATTERNS=random puts others in their place, other ones with
 * every LAC_TEST_SEED. */
#ifndef TEST_GPU_PATTERNS_H
#define TEST_GPU_PATTERNS_H

#include "support/support.h"

bool gpu_patterns_are_random(void);
/* All families in turns, every third time with a unit that large tiles take (blocks as boxes), every fourth element-wise one with two of
 * four at most, which is what sparse tensor cores take. */
lac_pattern gpu_random_pattern(int number);

#endif
