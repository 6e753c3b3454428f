/* gpu_patterns.c - see gpu_patterns.h. */
#include "gpu/gpu_patterns.h"

#include <stdlib.h>
#include <string.h>

bool gpu_patterns_are_random(void)
{
    const char *which = getenv("LAC_TEST_GPU_PATTERNS");
    return which && !strcmp(which, "random");
}

lac_pattern gpu_random_pattern(int number)
{
    test_random random = test_random_make("gpu_patterns", number);
    int families = LAC_FAMILY_SHUFFLED - LAC_FAMILY_ELEMENT + 1, round = number / families;
    lac_pattern pattern = test_random_pattern_of(&random, (lac_family)(LAC_FAMILY_ELEMENT + number % families));
    if (pattern.family == LAC_FAMILY_ELEMENT && round % 4 == 0) {
        pattern.density = 0.0;
        pattern.n = (int32_t)test_random_between(&random, 1, 2);
        pattern.m = (int32_t)(4 * test_random_between(&random, 1, 12));
    } else if (pattern.family != LAC_FAMILY_ELEMENT && round % 3 == 0) {
        pattern.unit_n = (int32_t)test_random_between(&random, 65, 300);
        if (pattern.family == LAC_FAMILY_BLOCK) pattern.unit_k = (int32_t)(32 * test_random_between(&random, 1, 4));
    }
    return pattern;
}
