/* test_gpu_tiles.c - every tile that the model reaches (gpu_tiles.h), with numbers whose sums are exact, against cuda_f32_plain on the same
 * operands: X as it is, and with rows that are not aligned, which other programs take. */
#include "gpu/gpu_case.h"
#include "gpu/gpu_tiles.h"
#include "gpu/test_gpu.h"
#include "plan_case.h"

static lac_device *device;
static gpu_tiles tiles;

static lac_weight *weight_of(const gpu_tile *tile)
{
    test_random random = test_random_make("gpu_tiles_weight", tile->n + tile->k);
    lac_pattern pattern = pattern_of(tile->pattern);
    return weight_make(&random, &pattern, tile->n, tile->k, LAC_DTYPE_F16, TEST_FILL_INTEGER);
}

static lac_status plan_of(const gpu_tile *tile, const lac_weight *weight, const char *kernel, lac_plan **plan)
{
    lac_plan_options options = {.size = sizeof options, .kernel = kernel, .x_layout = tile->layout, .y_layout = tile->layout};
    return lac_plan_create(device, weight, tile->m, &options, plan);
}

/* Y of f16 in `out`, which held something else. */
static void run(const gpu_tile *tile, const lac_weight *weight, const char *kernel, const void *x, int64_t ldx, uint16_t *out)
{
    lac_plan *plan = NULL;
    void *y = NULL, *workspace = NULL;
    uint64_t bytes = (uint64_t)(tile->m * tile->n) * sizeof *out;
    lac_plan_info info = {.size = sizeof info};
    assert_ok(plan_of(tile, weight, kernel, &plan));
    assert_ok(lac_plan_get_info(plan, &info));
    assert_ok(lac_device_allocate(device, bytes, &y));
    if (info.workspace_bytes) assert_ok(lac_device_allocate(device, info.workspace_bytes, &workspace));
    memset(out, 0xff, bytes);
    assert_ok(lac_device_upload(device, y, out, bytes));
    lac_execute_args args = {
        .size = sizeof args, .x = x, .ldx = ldx, .y = y, .workspace = workspace, .workspace_bytes = info.workspace_bytes};
    assert_ok(lac_plan_execute(plan, &args));
    assert_ok(lac_device_synchronize(device));
    assert_ok(lac_device_download(device, out, y, bytes));
    lac_device_release(device, y);
    lac_device_release(device, workspace);
    lac_plan_free(plan);
}

/* How many differ; -0 is 0. */
static int64_t count_wrong(const uint16_t *got, const uint16_t *want, int64_t count)
{
    int64_t wrong = 0;
    for (int64_t i = 0; i < count; ++i) wrong += got[i] != want[i] && ((got[i] | want[i]) & 0x7fff) != 0;
    return wrong;
}

/* X of -1, 0 and 1: sums of up to some thousand products with weights of -8 to 8 are whole numbers that f16 holds, but for one in ages. */
static bool is_right(const gpu_tile *tile, const lac_weight *weight, int64_t padding)
{
    static const uint16_t numbers[] = {0x0000, 0x3c00, 0xbc00, 0x3c00};
    bool token_major = tile->layout == LAC_LAYOUT_TOKEN_MAJOR;
    int64_t rows = token_major ? tile->m : tile->k, ldx = (token_major ? tile->k : tile->m) + padding;
    int64_t outputs = tile->m * tile->n;
    test_random random = test_random_make("gpu_tiles_x", rows);
    uint16_t *x = malloc((size_t)(rows * ldx) * sizeof *x), *got = malloc((size_t)outputs * sizeof *got),
             *want = malloc((size_t)outputs * sizeof *want);
    void *there = NULL;
    for (int64_t i = 0; i < rows * ldx; ++i) x[i] = numbers[test_random_bits(&random) & 3];
    assert_ok(lac_device_allocate(device, (uint64_t)(rows * ldx) * sizeof *x, &there));
    assert_ok(lac_device_upload(device, there, x, (uint64_t)(rows * ldx) * sizeof *x));
    run(tile, weight, "cuda_f32_plain", there, ldx, want);
    run(tile, weight, tile->kernel, there, ldx, got);
    int64_t wrong = count_wrong(got, want, outputs);
    if (wrong)
        print_message("%s %s at (%lld,%lld,%lld), %s-major, %lld beside each row of X: %lld of %lld outputs are wrong\n",
                      tile->kernel, tile->pattern, (long long)tile->m, (long long)tile->n, (long long)tile->k,
                      token_major ? "token" : "feature", (long long)padding, (long long)wrong, (long long)outputs);
    lac_device_release(device, there);
    free(x);
    free(got);
    free(want);
    return wrong == 0;
}

static gpu_step check(int index)
{
    if (!device) assert_ok(lac_device_open("cuda:0", &device));
    if (!tiles.tile) gpu_tiles_make(device, &tiles);
    if (index == 0) print_message("%d problems, %d programs\n", tiles.count, tiles.programs);
    if (index >= tiles.count) return GPU_STEP_NONE;
    if (!gpu_kernel_is_wanted(tiles.tile[index].kernel, getenv("LAC_TEST_GPU_KERNEL"))) return GPU_STEP_PASSED;
    lac_weight *weight = weight_of(&tiles.tile[index]);
    bool right = is_right(&tiles.tile[index], weight, 0);
    right &= is_right(&tiles.tile[index], weight, 1);
    lac_weight_free(weight);
    return right ? GPU_STEP_PASSED : GPU_STEP_FAILED;
}

static int processes;

static void every_tile_that_is_reached_is_right(void **state)
{
    (void)state;
    assert_int_equal(gpu_workers_each(check, processes), 0);
}

int test_gpu_tiles(int workers)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_tile_that_is_reached_is_right)};
    processes = workers;
    return cmocka_run_group_tests_name("tiles", tests, NULL, NULL);
}
