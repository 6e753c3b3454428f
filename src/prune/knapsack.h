/* knapsack.h - one option for each layer, the least loss in all, within a budget. Used by allocate.c. */
#ifndef LAC_PRUNE_KNAPSACK_H
#define LAC_PRUNE_KNAPSACK_H

#include <stdbool.h>

#include "lacuna.h"

typedef struct lac_option {
    double cost; /* 0 or more */
    double loss;
} lac_option;

typedef struct lac_knapsack {
    int64_t layers;
    const int32_t *counts;            /* [layers], each 1 or more */
    const lac_option *const *options; /* [layers][counts]         */
    double budget;                    /* for the sum of the costs */
} lac_knapsack;

/* The least that any choice costs: the budget must not lie below it. */
double lac_knapsack_least_cost(const lac_knapsack *problem);

/* Fills in chosen [layers]; no choice within the budget loses less than *bound. They are equal where the search was exact, as it is unless
 * very many choices are nearly as good. */
lac_status lac_knapsack_solve(const lac_knapsack *problem, int32_t *chosen, double *bound);

#endif
