/* test_gpu_cases.c - what tests/gpu promises, as far as it needs no GPU: that its rows cover every pair, that every kernel of
 * the registry gets rows, and that the host's half of them works: weights re-tiled, plans made, launches that a driver would take,
 * all given back. */
#include "cuda/state.h"
#include "format/sample.h"
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

/* The list is made once for all tests. */
static int make_tiles(void **state)
{
    static gpu_tiles tiles;
    lac_device *target = NULL;
    if (lac_cuda_target_open("sm_90a", &target)) return -1;
    gpu_tiles_make(target, INFINITY, &tiles);
    lac_device_close(target);
    *state = &tiles;
    return 0;
}

static int free_tiles(void **state)
{
    gpu_tiles_free(*state);
    return 0;
}

static int count_of(const gpu_tiles *tiles, const char *kernel, double least_tiles)
{
    int count = 0;
    for (int i = 0; i < tiles->count; ++i)
        count += !strcmp(tiles->tile[i].kernel, kernel) && tiles->tile[i].tiles_a_block >= least_tiles;
    return count;
}

/* Narrow layers with many tokens have a tile that no row reaches. */
static void tiles_of_large_problems_are_found(void **state)
{
    const gpu_tiles *tiles = *state;
    bool found = false;
    print_message("%d problems, %d programs\n", tiles->count, tiles->programs);
    assert_true(tiles->count > 100 && tiles->programs > 300);
    for (int i = 0; i < tiles->count; ++i)
        found |= !strcmp(tiles->tile[i].kernel, "cuda_f16_stream") && tiles->tile[i].m >= 8192 && tiles->tile[i].n <= 320;
    assert_true(found);
}

/* Of every kernel, in each layout that it takes, with tokens that are a multiple of 8 and that are not. Nothing ends where a tile does. */
static void several_tiles_of_a_block_are_ragged(void **state)
{
    const gpu_tiles *tiles = *state;
    for (int k = 0; k < GPU_TILE_KERNELS; ++k) {
        int ways[2][2] = {{0}};
        print_message("%s: %d problems, %d with two tiles a block or more\n", gpu_tile_kernels[k],
                      count_of(tiles, gpu_tile_kernels[k], 0), count_of(tiles, gpu_tile_kernels[k], 2));
        for (int i = 0; i < tiles->count; ++i) {
            const gpu_tile *t = &tiles->tile[i];
            bool ragged = t->m % 64 && t->n % 64 && t->k % 64;
            if (t->tiles_a_block >= 2 && ragged && !strcmp(t->kernel, gpu_tile_kernels[k]))
                ++ways[t->layout == LAC_LAYOUT_TOKEN_MAJOR][t->m % 8 == 0];
        }
        bool takes_both = strcmp(gpu_tile_kernels[k], "cuda_f16_choose") != 0; /* which is for token-major X and Y alone */
        for (int i = takes_both ? 0 : 2; i < 4; ++i)
            if (!ways[i / 2][i % 2])
                fail_msg("%s: none is %s-major with %s", gpu_tile_kernels[k], i / 2 ? "token" : "feature",
                         i % 2 ? "8s" : "odd m");
    }
}

/* How many kernels of the list, in either layout, have several tiles a block with this weight, and how many of these run programs of which the
 * list knows none that has. */
static void ask_kernels(const gpu_tiles *tiles, const lac_device *target, const lac_weight *weight, int64_t m, int *asked,
                        int *missing)
{
    for (int i = 0; i < 2 * GPU_TILE_KERNELS; ++i) {
        lac_problem problem;
        gpu_tile tile = {
            .kernel = gpu_tile_kernels[i / 2], .m = m, .layout = i % 2 ? LAC_LAYOUT_FEATURE_MAJOR : LAC_LAYOUT_TOKEN_MAJOR};
        if (!gpu_tiles_problem(target, weight, &tile, &problem) || gpu_tiles_a_block(&problem) < 2) continue;
        double most = gpu_tiles_most(tiles, &problem);
        ++*asked;
        *missing += most < 2;
        if (most < 2) print_error("%s, %s-major: %.1f tiles a block\n", tile.kernel, i % 2 ? "feature" : "token", most);
    }
}

/* Asked of sizes that are not in the list, ordinary layers: what multiplies these has been seen to go from a tile to the next. (At 8,192^3
 * some take tiles that no problem reaches in less than 10^11 products.) */
static void programs_of_many_tokens_have_several_tiles_a_block(void **state)
{
    static const char *const patterns[] = {"2:4",        "2:8",      "4:8",         "8:16",       "16:32",       "4:16",
                                           "8:32",       "3:7",      "vw32:16:32",  "vw64:8:32",  "vw128:16:32", "vw128:4:32",
                                           "vw256:8:32", "64:2:8",   "64:2:32",     "128:2:8",    "128:2:16",    "128:2:32",
                                           "256:2:8",    "256:2:16", "bw64x64:1:4", "shfl64:25%", "shfl128:50%"};
    static const int64_t sizes[][3] = {
        {4096, 4096, 4096}, {4096, 1024, 4096}, {4096, 4096, 1024}, {2048, 2048, 2048}, {16384, 768, 768}}; /* m, n, k */
    const gpu_tiles *tiles = *state;
    lac_device *target = NULL;
    int asked = 0, missing = 0;
    assert_ok(lac_cuda_target_open("sm_90a", &target));
    for (size_t p = 0; p < sizeof patterns / sizeof *patterns; ++p)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; ++s) {
            lac_pattern pattern = pattern_of(patterns[p]);
            lac_weight *weight = NULL;
            int before = missing;
            assert_ok(lac_weight_sample(&pattern, sizes[s][1], sizes[s][2], LAC_DTYPE_F16, &weight));
            ask_kernels(tiles, target, weight, sizes[s][0], &asked, &missing);
            lac_weight_free(weight);
            if (missing > before)
                print_error("... with %s at (%lld,%lld,%lld)\n", patterns[p], (long long)sizes[s][0], (long long)sizes[s][1],
                            (long long)sizes[s][2]);
        }
    lac_device_close(target);
    print_message("%d asked\n", asked);
    assert_true(asked > 200);
    assert_int_equal(missing, 0);
}

/* On a driver that refuses what the real one refuses, and runs nothing. */
static void the_host_does_its_half_of_every_kernel(void **state)
{
    (void)state;
    lac_device *device = NULL;
    gpu_list list;
    gpu_list_make("sm_90a", NULL, test_scale() > 1 ? 3 : 12, &list); /* rows of each kernel */
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_cover_every_pair),
                                       cmocka_unit_test(a_filter_is_obeyed),
                                       cmocka_unit_test(every_kernel_of_the_gpu_has_rows),
                                       cmocka_unit_test(tiles_of_large_problems_are_found),
                                       cmocka_unit_test(several_tiles_of_a_block_are_ragged),
                                       cmocka_unit_test(programs_of_many_tokens_have_several_tiles_a_block),
                                       cmocka_unit_test(the_host_does_its_half_of_every_kernel)};
    return cmocka_run_group_tests(tests, make_tiles, free_tiles);
}
