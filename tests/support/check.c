/* check.c - see check.h. */
#include <stdarg.h>
#include <stddef.h>

#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/check.h"

#include <math.h>
#include <string.h>

void test_expect_status(lac_status got, lac_status want, const char *text, const char *call, const char *file, int line)
{
    if (got != want) {
        print_error("%s:%d: %s\n  gave \"%s\" (%s), expected \"%s\"\n", file, line, call, lac_status_name(got),
                    got == LAC_STATUS_OK ? "" : lac_last_error(), lac_status_name(want));
        _fail(file, line);
    }
    if (text && !strstr(lac_last_error(), text)) {
        print_error("%s:%d: %s\n  message \"%s\" does not contain \"%s\"\n", file, line, call, lac_last_error(), text);
        _fail(file, line);
    }
}

bool test_same_number(double a, double b)
{
    if (isnan(a) || isnan(b)) return isnan(a) && isnan(b) && signbit(a) == signbit(b);
    return a == b && signbit(a) == signbit(b);
}

bool test_within(double got, double want, double bound)
{
    if (isnan(want)) return isnan(got);
    if (isinf(want)) return got == want;
    return fabs(got - want) <= bound;
}

void test_expect_same(const test_matrix *got, const test_matrix *want, const char *what, const char *file, int line)
{
    const lac_matrix *a = &got->view, *b = &want->view;
    if (a->rows != b->rows || a->cols != b->cols || a->dtype != b->dtype) {
        print_error("%s:%d: %s differ in shape or dtype\n", file, line, what);
        _fail(file, line);
    }
    for (int64_t row = 0; row < a->rows; row++) {
        for (int64_t col = 0; col < a->cols; col++) {
            double x = test_matrix_get(got, row, col), y = test_matrix_get(want, row, col);
            if (test_same_number(x, y)) continue;
            print_error("%s:%d: %s differ at [%lld][%lld] of %lld x %lld: %a and %a\n", file, line, what, (long long)row,
                        (long long)col, (long long)a->rows, (long long)a->cols, x, y);
            _fail(file, line);
        }
    }
}
