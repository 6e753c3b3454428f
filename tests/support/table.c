/* table.c - reads stored CSV files: commas between quotes do not separate. */
#include "support/table.h"

#include <stdlib.h>
#include <string.h>

#include "support/support.h"

/* Cuts a line at its commas; how many fields it has. */
static int cut(char *line, char *field[TEST_TABLE_COLUMNS])
{
    bool quoted = false;
    int count = 0;
    line[strcspn(line, "\r\n")] = 0;
    field[count++] = line;
    for (char *at = line; *at; at++) {
        if (*at == '"') quoted = !quoted;
        if (*at != ',' || quoted) continue;
        *at = 0;
        assert_true(count < TEST_TABLE_COLUMNS);
        field[count++] = at + 1;
    }
    return count;
}

void test_table_open(test_table *table, const char *path)
{
    table->file = fopen(test_source_path(path), "r");
    if (!table->file) fail_msg("%s cannot be opened", path);
    assert_non_null(fgets(table->head, sizeof table->head, table->file));
    table->columns = cut(table->head, table->name);
}

bool test_table_next(test_table *table)
{
    if (!fgets(table->line, sizeof table->line, table->file)) {
        fclose(table->file);
        table->file = NULL;
        return false;
    }
    assert_int_equal(cut(table->line, table->field), table->columns);
    return true;
}

const char *test_table_text(const test_table *table, const char *column)
{
    for (int i = 0; i < table->columns; i++)
        if (!strcmp(table->name[i], column)) return table->field[i];
    fail_msg("there is no column %s", column);
    return NULL;
}

double test_table_number(const test_table *table, const char *column)
{
    const char *text = test_table_text(table, column);
    char *end;
    double number = strtod(text, &end);
    if (end == text || *end) fail_msg("column %s has '%s', which is no number", column, text);
    return number;
}
