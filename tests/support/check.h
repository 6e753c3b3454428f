/* check.h - assertions on statuses and on matrices. */
#ifndef TEST_SUPPORT_CHECK_H
#define TEST_SUPPORT_CHECK_H

#include <stdbool.h>

#include "lacuna.h"
#include "support/matrix.h"

/* The call returns OK; its message otherwise. */
#define assert_ok(call) test_expect_status((call), LAC_STATUS_OK, NULL, #call, __FILE__, __LINE__)
/* The call returns `status`. */
#define assert_status(call, status) test_expect_status((call), (status), NULL, #call, __FILE__, __LINE__)
/* The call returns `status` and its message contains `text`. */
#define assert_fails(call, status, text) test_expect_status((call), (status), (text), #call, __FILE__, __LINE__)

void test_expect_status(lac_status got, lac_status want, const char *text, const char *call, const char *file, int line);

/* The same bits, so that -0.0 is not 0.0; NaNs are equal to NaNs of the same sign. */
bool test_same_number(double a, double b);
/* |got - want| <= bound; where want is infinite got is that infinity, where it is NaN got is NaN. A bound that is NaN or
 * infinite says that anything goes where want is not finite. */
bool test_within(double got, double want, double bound);

/* Same shape and same numbers, bit for bit, whatever the layouts; dtypes must be equal. */
#define assert_same_matrix(got, want) test_expect_same((got), (want), #got " and " #want, __FILE__, __LINE__)
void test_expect_same(const test_matrix *got, const test_matrix *want, const char *what, const char *file, int line);

#endif
