/* random.h - random numbers that are the same everywhere, and the loop over numbered random cases. Every case has its own
 * generator, made of the seed, the loop's name and the case's number, so that one case can be run alone:
 *
 *     LAC_TEST_SEED=7      another seed than the fixed one
 *     LAC_TEST_CASE=NAME:5 only case 5 of the loop NAME; other loops run nothing
 *     LAC_TEST_SCALE=20    a twentieth of the cases
 */
#ifndef TEST_SUPPORT_RANDOM_H
#define TEST_SUPPORT_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

typedef struct test_random {
    uint64_t state;
} test_random;

/* LAC_TEST_SEED or the fixed seed. Printed once. */
uint64_t test_seed(void);
/* LAC_TEST_SCALE, at least 1. */
int64_t test_scale(void);
/* A count of cases divided by the scale, at least 1. */
int64_t test_scaled(int64_t full);

/* The generator of case `index` of the loop `name`. */
test_random test_random_make(const char *name, int64_t index);
uint64_t test_random_bits(test_random *random);
/* low <= result <= high */
int64_t test_random_between(test_random *random, int64_t low, int64_t high);
/* 0 <= result < 1 */
double test_random_unit(test_random *random);
/* true in `percent` of 100 calls */
bool test_random_chance(test_random *random, int percent);
double test_random_gaussian(test_random *random);

/* One of the arguments, all of one type int64_t. */
#define test_random_pick(random, ...)                                                                                          \
    (((const int64_t[]){__VA_ARGS__})[test_random_between(                                                                     \
        (random), 0, (int64_t)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)) - 1)])

typedef void (*test_case_fn)(test_random *random, int64_t index, void *user);

/* Runs `full` / scale cases. When one fails (cmocka jumps out), what reproduces it is printed by test_report, which must
 * be the teardown of the test: use test_of_cases in the table of tests. A crash prints it too. */
void test_run_cases(const char *name, int64_t full, test_case_fn body, void *user);
/* The same for a table, of which the scale leaves nothing out. */
void test_run_all(const char *name, int64_t count, test_case_fn body, void *user);
/* Says more of the current case, for the failure report: "2:4, 7 x 9, f16". */
__attribute__((format(printf, 1, 2))) void test_describe(const char *format, ...);
/* Prints the command that repeats the case that did not finish, if any. Always 0. */
int test_report(void **state);

#define test_of_cases(function) cmocka_unit_test_teardown(function, test_report)

#endif
