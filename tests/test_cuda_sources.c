/* test_cuda_sources.c - what can be said of the device code as text. A kernel that wants something of a shared file defines a macro
 * before it includes it; the file gives a default where nobody did. Two defaults of one name would be two meanings: the first would hide
 * the second, and a kernel that means the one would get the other as well. */
#include <string.h>

#include "cuda/sources.h"
#include "support/support.h"

enum { MOST = 64, LENGTH = 64 };

/* The names after `#ifndef LAC_` at the beginning of a line, without include guards; true when `at` is one. */
static bool default_at(const char *at, char name[LENGTH])
{
    if (strncmp(at, "#ifndef LAC_", 12) != 0) return false;
    size_t length = strspn(at + 8, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    assert_true(length < LENGTH);
    memcpy(name, at + 8, length);
    name[length] = '\0';
    const char *end = name + length;
    return !(length > 4 && !strcmp(end - 4, "_CUH")) && !(length > 2 && !strcmp(end - 2, "_H"));
}

static void a_macro_has_one_default(void **state)
{
    (void)state;
    static char names[MOST][LENGTH];
    int count = 0;
    for (size_t i = 0; i < lac_cuda_source_count; i++) {
        const char *text = lac_cuda_sources[i].text;
        for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
            char name[LENGTH];
            if (!default_at(line, name)) continue;
            for (int j = 0; j < count; j++)
                if (!strcmp(names[j], name)) fail_msg("%s: a second default of %s", lac_cuda_sources[i].name, name);
            assert_true(count < MOST);
            memcpy(names[count++], name, LENGTH);
        }
    }
    assert_true(count > 0);
}

/* The search itself: it finds a default, and passes over a guard and over what stands elsewhere in a line. */
static void defaults_are_found(void **state)
{
    (void)state;
    char name[LENGTH];
    assert_true(default_at("#ifndef LAC_MEETS /* why */\n", name));
    assert_string_equal(name, "LAC_MEETS");
    assert_false(default_at("#ifndef LAC_CUDA_KERNELS_CHAIN_CUH\n", name));
    assert_false(default_at("#ifndef LAC_CUDA_PLAIN_H\n", name));
    assert_false(default_at("#ifdef LAC_MEETS\n", name));
    assert_false(default_at(" #ifndef LAC_MEETS\n", name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_macro_has_one_default), cmocka_unit_test(defaults_are_found)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
