/* pairwise.h - covers every pair of values of any two factors by few rows. The GPU's kernels have too many options to try
 * them all together, and mistakes rarely need more than two of them to show. */
#ifndef TEST_GPU_PAIRWISE_H
#define TEST_GPU_PAIRWISE_H

#include <stdbool.h>

#include "support/random.h"

enum { PAIRWISE_FACTORS = 16, PAIRWISE_VALUES = 32 };

typedef struct pairwise_row {
    int value[PAIRWISE_FACTORS];
} pairwise_row;

/* Whether a row may be tried at all. */
typedef bool (*pairwise_filter)(const pairwise_row *row, void *user);

/* Fills up to `most` rows over `factors` factors of counts[i] values each; returns how many. Greedy: each row is the one of
 * some random ones that covers most pairs which no row before it did. Ends when nothing new is found for a while. */
int pairwise_make(test_random *random, const int *counts, int factors, pairwise_filter allowed, void *user, pairwise_row *rows,
                  int most);

#endif
