/* timed.h - runs that are stored with what they took (bench/results), judged beside what the model says of them. */
#ifndef TEST_SUPPORT_TIMED_H
#define TEST_SUPPORT_TIMED_H

#include <stdbool.h>

typedef struct test_timed {
    int problem; /* its number: what was timed together and can be compared */
    double us, predicted_us;
    bool taken; /* the model would run it so */
} test_timed;

/* Errors of the prediction: fails where the median or the 90th percentile is not less. */
void test_timed_near(const test_timed *runs, int count, double median, double most);
/* What the model takes, over the quickest of its problem: fails where one of them takes more than `worst` times as long, where the mean is
 * not less than `mean`, and where less than `least` of the problems have a run that it takes. */
void test_timed_quick(const test_timed *runs, int count, double worst, double mean, double least);

#endif
