/* test_gpu_cases.c - what tests/gpu promises, as far as it needs no GPU: that its rows cover every pair, and that every kernel of
 * the registry gets rows. */
#include "gpu/gpu_case.h"
#include "gpu/pairwise.h"

enum { FACTORS = 5, MOST = 400 };
static const int counts[FACTORS] = {12, 5, 3, 2, 7};

static bool anything(const pairwise_row *row, void *user)
{
    (void)row;
    (void)user;
    return true;
}

/* Value 3 of the first factor goes with value 0 of the second alone. */
static bool particular(const pairwise_row *row, void *user)
{
    ++*(int *)user;
    return row->value[0] != 3 || row->value[1] == 0;
}

static bool is_covered(const pairwise_row *rows, int count, int a, int va, int b, int vb)
{
    for (int i = 0; i < count; ++i)
        if (rows[i].value[a] == va && rows[i].value[b] == vb) return true;
    return false;
}

/* How many pairs no row has. */
static int count_missing(const pairwise_row *rows, int count)
{
    int missing = 0;
    for (int a = 0; a < FACTORS; ++a)
        for (int b = a + 1; b < FACTORS; ++b)
            for (int va = 0; va < counts[a]; ++va)
                for (int vb = 0; vb < counts[b]; ++vb) missing += !is_covered(rows, count, a, va, b, vb);
    return missing;
}

static void rows_cover_every_pair(void **state)
{
    (void)state;
    static pairwise_row rows[MOST];
    test_random random = test_random_make("pairwise", 0);
    int made = pairwise_make(&random, counts, FACTORS, anything, NULL, rows, MOST);
    assert_int_equal(count_missing(rows, made), 0);
    assert_true(made >= 12 * 7 && made < 12 * 7 * 3 / 2); /* the two largest factors need 84 */
}

static void a_filter_is_obeyed(void **state)
{
    (void)state;
    static pairwise_row rows[MOST];
    test_random random = test_random_make("pairwise", 1);
    int asked = 0, made = pairwise_make(&random, counts, FACTORS, particular, &asked, rows, MOST);
    assert_true(asked > made);
    for (int i = 0; i < made; ++i) assert_true(rows[i].value[0] != 3 || rows[i].value[1] == 0);
    assert_int_equal(count_missing(rows, made), counts[1] - 1);
    assert_int_equal(pairwise_make(&random, counts, FACTORS, anything, NULL, rows, 10), 10);
}

static void every_kernel_of_the_gpu_has_rows(void **state)
{
    (void)state;
    gpu_list list;
    gpu_list_make("sm_90a", NULL, 6, &list);
    assert_true(list.kernels > 0 && list.count > 0 && list.programs > 0);
    assert_int_equal(list.unused, 0);
    for (int i = 0; i < list.count; ++i) {
        char text[512];
        gpu_row_describe(&list.rows[i], text, sizeof text);
        assert_ptr_equal(strstr(text, list.rows[i].kernel), text);
    }
    gpu_list_free(&list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_cover_every_pair), cmocka_unit_test(a_filter_is_obeyed),
                                       cmocka_unit_test(every_kernel_of_the_gpu_has_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
