/* test_gpu_cases.c - what tests/gpu promises, as far as it needs no GPU: that its rows cover every pair, that every kernel of
 * the registry gets rows, and that the host's half of them works: weights re-tiled, plans made, launches that a driver would take,
 * all given back. */
#include "cuda/state.h"
#include "gpu/gpu_case.h"
#include "gpu/gpu_tiles.h"
#include "gpu/pairwise.h"

#include <dlfcn.h>

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

/* Narrow layers with many tokens have a tile that no row reaches. */
static void tiles_of_large_problems_are_found(void **state)
{
    (void)state;
    lac_device *target = NULL;
    gpu_tiles tiles;
    bool found = false;
    assert_ok(lac_cuda_target_open("sm_90a", &target));
    gpu_tiles_make(target, &tiles);
    print_message("%d problems, %d programs\n", tiles.count, tiles.programs);
    assert_true(tiles.count > 100 && tiles.programs > tiles.count);
    for (int i = 0; i < tiles.count; ++i)
        found |= !strcmp(tiles.tile[i].kernel, "cuda_f16_stream") && tiles.tile[i].m >= 8192 && tiles.tile[i].n <= 320;
    assert_true(found);
    gpu_tiles_free(&tiles);
    lac_device_close(target);
}

/* On a driver that refuses what the real one refuses, and runs nothing. */
static void the_host_does_its_half_of_every_kernel(void **state)
{
    (void)state;
    enum { ROWS = 12 }; /* of each kernel */
    lac_device *device = NULL;
    gpu_list list;
    gpu_list_make("sm_90a", NULL, ROWS, &list);
    void *fake = dlopen(FAKE_CUDA, RTLD_NOW);
    assert_non_null(fake);
    long (*live)(void), (*launches)(void);
    *(void **)&live = dlsym(fake, "fake_live");
    *(void **)&launches = dlsym(fake, "fake_launches");
    assert_true(live && launches);
    assert_ok(lac_device_open("cuda:0", &device));
    for (int i = 0; i < list.count; ++i) {
        long before = launches();
        gpu_row_run(device, &list.rows[i], 1, gpu_case_launch);
        if (launches() == before && strcmp(list.rows[i].kernel, "cuda_cublaslt_dense") != 0)
            fail_msg("%s:%d launched nothing", list.rows[i].kernel, list.rows[i].index);
    }
    lac_device_close(device);
    assert_int_equal(live(), 0);
    dlclose(fake);
    gpu_list_free(&list);
}

int main(void)
{
    setenv("LAC_CUDA_LIBRARY", FAKE_CUDA, 1);
    setenv("LAC_NVRTC_LIBRARY", FAKE_NVRTC, 1);
    setenv("LAC_CUBLASLT_LIBRARY", FAKE_CUBLASLT, 1);
    setenv("LAC_CACHE_DIR", test_path("cache"), 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_cover_every_pair), cmocka_unit_test(a_filter_is_obeyed),
                                       cmocka_unit_test(every_kernel_of_the_gpu_has_rows),
                                       cmocka_unit_test(tiles_of_large_problems_are_found),
                                       cmocka_unit_test(the_host_does_its_half_of_every_kernel)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
