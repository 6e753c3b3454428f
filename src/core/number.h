/* number.h - numbers as text with a decimal point, whatever the locale of the program: for files and the environment. */
#ifndef LAC_CORE_NUMBER_H
#define LAC_CORE_NUMBER_H

#include <stddef.h>

/* strtod, and %.17g, which reads back to the same number. */
double lac_number_read(const char *text, char **end);
void lac_number_write(double value, char *buffer, size_t size);

#endif
