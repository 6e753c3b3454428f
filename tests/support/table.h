/* table.h - a stored CSV file (bench/results), a line at a time, its fields by the names of their columns. */
#ifndef TEST_SUPPORT_TABLE_H
#define TEST_SUPPORT_TABLE_H

#include <stdbool.h>
#include <stdio.h>

enum { TEST_TABLE_COLUMNS = 40, TEST_TABLE_LINE = 2048 };

typedef struct test_table {
    FILE *file;
    char head[TEST_TABLE_LINE], line[TEST_TABLE_LINE];
    char *name[TEST_TABLE_COLUMNS], *field[TEST_TABLE_COLUMNS];
    int columns;
} test_table;

/* `path` from the project's root. The test fails where there is no such file, and where a line has not as many fields as the head. */
void test_table_open(test_table *table, const char *path);
/* To the next line; closes the file behind the last. */
bool test_table_next(test_table *table);
/* Of the line at hand; the test fails where there is no such column, or no number in it. */
const char *test_table_text(const test_table *table, const char *column);
double test_table_number(const test_table *table, const char *column);

#endif
