/* number.c - see number.h. The locale is this thread's for the moment, and is put back: others do not see it change. */
#include "core/number.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

/* Without memory for it (the C library needs none) the program's own locale stays. */
static locale_t enter_c(locale_t *before)
{
    locale_t c = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    if (c) *before = uselocale(c);
    return c;
}

static void leave_c(locale_t c, locale_t before)
{
    if (!c) return;
    uselocale(before);
    freelocale(c);
}

double lac_number_read(const char *text, char **end)
{
    locale_t before, c = enter_c(&before);
    double value = strtod(text, end);
    leave_c(c, before);
    return value;
}

void lac_number_write(double value, char *buffer, size_t size)
{
    locale_t before, c = enter_c(&before);
    snprintf(buffer, size, "%.17g", value);
    leave_c(c, before);
}
