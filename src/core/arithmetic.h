/* arithmetic.h - the few operations on whole numbers that nearly every file needs: tiles are counted and cut everywhere. */
#ifndef LAC_CORE_ARITHMETIC_H
#define LAC_CORE_ARITHMETIC_H

#include <stdbool.h>
#include <stdint.h>

static inline int64_t lac_smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t lac_larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* For a >= 0 and b > 0: how many pieces of b cover a, and how long these are together. */
static inline int64_t lac_ceil_divide(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t lac_round_up(int64_t a, int64_t b) { return lac_ceil_divide(a, b) * b; }

/* Whether what lies in so many tiles, the padding of the last one too, can be numbered by ints. */
static inline bool lac_tiles_fit_int(int64_t tiles, int64_t side) { return tiles <= INT32_MAX / side; }

#endif
