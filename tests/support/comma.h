/* comma.h - a locale whose decimals follow a comma, made for the test. */
#ifndef TEST_SUPPORT_COMMA_H
#define TEST_SUPPORT_COMMA_H

#include <stdbool.h>

/* Makes it this process's for numbers; false where it cannot be made. setlocale(LC_NUMERIC, "C") goes back. */
bool test_comma_locale(void);

#endif
