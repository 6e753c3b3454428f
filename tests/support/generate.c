/* generate.c - see generate.h. */
#include "support/generate.h"

/* A density is a percentage of at most 12 decimals, divided once: what lac_pattern_parse would make of its text. */
static double random_density(test_random *random)
{
    static const double powers[] = {1e2, 1e4, 1e8, 1e14};
    if (test_random_chance(random, 60))
        return (double)test_random_pick(random, 500, 250, 125, 100, 1000, 375, 333, 10, 55) / 1e3;
    double whole = powers[test_random_between(random, 0, 3)];
    return (double)test_random_between(random, 1, (int64_t)whole) / whole;
}

static void random_ratio(test_random *random, lac_pattern *pattern)
{
    static const int32_t usual[][2] = {{2, 4}, {1, 2}, {3, 7},   {5, 13}, {3, 10}, {8, 32},
                                       {1, 1}, {4, 4}, {1, 256}, {7, 8},  {2, 16}};
    if (test_random_chance(random, 60)) {
        const int32_t *pair = usual[test_random_between(random, 0, (int64_t)(sizeof usual / sizeof *usual) - 1)];
        pattern->n = pair[0];
        pattern->m = pair[1];
        return;
    }
    int64_t m = test_random_chance(random, 80) ? test_random_between(random, 1, 40) : test_random_between(random, 1, 256);
    pattern->m = (int32_t)m;
    pattern->n = (int32_t)test_random_between(random, 1, m);
}

static int32_t random_length(test_random *random)
{
    if (test_random_chance(random, 5)) return (int32_t)test_random_pick(random, 1000, 65536, INT32_MAX);
    return (int32_t)test_random_pick(random, 1, 2, 3, 4, 5, 8, 13, 16, 24, 32, 64, 100, 128);
}

lac_pattern test_random_pattern_of(test_random *random, lac_family family)
{
    lac_pattern pattern = {.family = family, .unit_n = 1, .unit_k = 1};
    if (family != LAC_FAMILY_ELEMENT) pattern.unit_n = random_length(random);
    if (family == LAC_FAMILY_BLOCK) pattern.unit_k = random_length(random);
    if (family == LAC_FAMILY_VNM) {
        pattern.n = (int32_t)test_random_between(random, 1, 4);
        pattern.m = (int32_t)test_random_pick(random, 4, 5, 6, 7, 8, 8, 9, 10, 12, 16, 17, 20, 32, 100, 256);
    } else if (family == LAC_FAMILY_SHUFFLED || test_random_chance(random, 25)) {
        pattern.density = random_density(random);
    } else {
        random_ratio(random, &pattern);
    }
    return pattern;
}

lac_pattern test_random_pattern(test_random *random)
{
    return test_random_pattern_of(random, (lac_family)test_random_between(random, LAC_FAMILY_ELEMENT, LAC_FAMILY_SHUFFLED));
}

/* A length around multiples of `inner` and of `inner * outer`. */
static int64_t random_extent(test_random *random, int64_t inner, int64_t outer, int64_t most)
{
    int64_t step = test_random_chance(random, 50) ? inner : inner * outer;
    int64_t extent;
    switch (test_random_between(random, 0, 9)) {
    case 0:
        extent = test_random_pick(random, 0, 1, 1, 2);
        break;
    case 1:
        extent = test_random_between(random, 1, inner * outer);
        break;
    case 2:
        extent = test_random_between(random, 1, 70);
        break;
    default:
        extent = step * test_random_between(random, 1, 5) + test_random_pick(random, -1, 0, 0, 1);
        break;
    }
    return extent > most ? test_random_between(random, most / 2, most) : extent;
}

void test_random_shape(test_random *random, const lac_pattern *pattern, int64_t most, int64_t *n, int64_t *k)
{
    int64_t group = pattern->m ? pattern->m : 8;
    int64_t along_k = random_extent(random, pattern->unit_k, group, most < 600 ? most : 600);
    int64_t left = along_k ? most / along_k : most;
    int64_t along_n = random_extent(random, pattern->unit_n, 1, left < 200 ? left : 200);
    *n = along_n;
    *k = along_k;
}

lac_dtype test_random_dtype(test_random *random, int allow_f64)
{
    static const lac_dtype all[] = {LAC_DTYPE_F32, LAC_DTYPE_F16, LAC_DTYPE_BF16, LAC_DTYPE_F64};
    return all[test_random_between(random, 0, allow_f64 ? 3 : 2)];
}
