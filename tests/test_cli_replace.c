/* test_cli_replace.c - a file of text that is replaced (cli/replace.h), with memory that runs out at each step of it: what was there before
 * stays, and the reason is said. The linker sends replace.c's calls of realloc here. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../cli/replace.h"
#include "support/folder.h"

enum { LINES = 4000, MOST = 1 << 20 };

static int left; /* calls of realloc that are granted; -1: all */

void *__real_realloc(void *block, size_t bytes);
void *__wrap_realloc(void *block, size_t bytes)
{
    if (left == 0) {
        errno = ENOMEM;
        return NULL;
    }
    if (left > 0) --left;
    return __real_realloc(block, bytes);
}

static void write_lines(FILE *to)
{
    for (int i = 0; i < LINES; ++i) fprintf(to, "%d\n", i);
}

/* What the file holds, in a static buffer. */
static const char *text_of(const char *path)
{
    static char text[MOST];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t bytes = fread(text, 1, sizeof text - 1, file);
    text[bytes] = 0;
    fclose(file);
    return text;
}

static void memory_that_runs_out_leaves_the_old_file(void **state)
{
    (void)state;
    static char whole[MOST];
    const char *path = test_path("table.txt");
    FILE *to = fmemopen(whole, sizeof whole, "w");
    assert_non_null(to);
    write_lines(to);
    fclose(to);
    test_write_file(path, "old\n", 4);
    for (int granted = 0;; ++granted) {
        cli_replacement file;
        assert_int_equal(cli_replace_open(&file, path), 0);
        left = granted;
        write_lines(file.to);
        int failed = cli_replace_close(&file, 1), error = errno;
        left = -1;
        assert_int_equal(test_folder_files(), 1);
        if (!failed) {
            assert_true(granted > 2); /* at the beginning, in the midst and in the end */
            break;
        }
        assert_int_equal(error, ENOMEM);
        assert_string_equal(text_of(path), "old\n");
    }
    assert_string_equal(text_of(path), whole);
}

static void a_file_without_text_and_one_that_is_not_kept(void **state)
{
    (void)state;
    cli_replacement file;
    const char *path = test_path("table.txt");
    left = -1;
    test_write_file(path, "old\n", 4);
    assert_int_equal(cli_replace_open(&file, path), 0);
    write_lines(file.to);
    assert_int_equal(cli_replace_close(&file, 0), 0);
    assert_string_equal(text_of(path), "old\n");
    assert_int_equal(cli_replace_open(&file, path), 0);
    assert_int_equal(cli_replace_close(&file, 1), 0);
    assert_string_equal(text_of(path), "");
    assert_int_equal(test_folder_files(), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_that_runs_out_leaves_the_old_file),
        cmocka_unit_test(a_file_without_text_and_one_that_is_not_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
