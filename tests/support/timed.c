/* timed.c - how near the model is to stored runs, and whether it takes the quick ones. */
#include "support/timed.h"

#include <math.h>
#include <stdlib.h>

#include "support/support.h"

static int compare_numbers(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

void test_timed_near(const test_timed *runs, int count, double median, double most)
{
    double *error = malloc((size_t)count * sizeof *error);
    assert_true(count > 0 && error);
    for (int i = 0; i < count; i++) error[i] = fabs(runs[i].predicted_us / runs[i].us - 1.0);
    qsort(error, (size_t)count, sizeof *error, compare_numbers);
    double middle = error[count / 2], ninth = error[count * 9 / 10];
    free(error);
    print_message("%d runs: errors of %.1f%% in the median, %.1f%% at the 90th percentile\n", count, 100 * middle, 100 * ninth);
    assert_true(middle < median && ninth < most);
}

/* What the model's took over the quickest of the problem; 0: none of its runs is the model's. */
static double share_of_best(const test_timed *runs, int count, int problem)
{
    double best = HUGE_VAL, own = 0.0;
    for (int i = 0; i < count; i++) {
        if (runs[i].problem != problem) continue;
        best = fmin(best, runs[i].us);
        if (runs[i].taken) own = runs[i].us;
    }
    return own / best;
}

void test_timed_quick(const test_timed *runs, int count, double worst, double mean, double least)
{
    double sum = 0.0;
    int problems = 0, timed = 0;
    for (int i = 0; i < count; i++)
        if (runs[i].problem >= problems) problems = runs[i].problem + 1;
    for (int problem = 0; problem < problems; problem++) {
        double share = share_of_best(runs, count, problem);
        if (share > worst) fail_msg("problem %d: the model's tile takes %.2f of the best one's time", problem, share);
        if (share == 0.0) continue;
        timed++;
        sum += share - 1.0;
    }
    print_message("%d problems, the tiles of %d timed: %.2f%% slower than the best in the mean\n", problems, timed,
                  100 * sum / timed);
    assert_true(timed >= least * problems && sum < mean * timed);
}
