/* test_gpu_time.c - the host's time: of lac_plan_execute, beside that of the driver's own launches, and of a plan whose programs are
 * in the cache. LAC_TEST_GPU_TIMES=FILE.csv writes all of it down. */
#include <dlfcn.h>
#include <time.h>

#include "cuda/state.h"
#include "gpu/gpu_case.h"
#include "gpu/test_gpu.h"

enum { CALLS = 2000, BURST = 100, PLANS = 5, ONE_BUFFER = 1, BUFFER_SIZE = 2 };

/* Kernels that do nothing: without parameters, and with as many bytes of them as Lacuna's have. */
static const char nothing[] = ".version 6.5\n.target sm_75\n.address_size 64\n.visible .entry empty() { ret; }\n"
                              ".visible .entry taking(.param .align 8 .b8 a[96], .param .align 8 .b8 b[64]) { ret; }\n";

typedef int (*launch_fn)(lac_cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                         unsigned block_y, unsigned block_z, unsigned shared_bytes, lac_cu_stream stream, void **parameters,
                         void **extra);

static struct {
    lac_device *device;
    const lac_cuda_driver *driver;
    lac_cu_stream stream;
    lac_cu_module module;
    lac_cu_function empty, taking;
    launch_fn launch;
    lac_cu_pointer memory;
    FILE *csv;
} time_of;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* ---- what is timed; each returns nonzero when it failed */

static char first[96], second[64], both[160];

static int launch_empty(void *user)
{
    (void)user;
    return time_of.launch(time_of.empty, 1, 1, 1, 32, 1, 1, 0, time_of.stream, NULL, NULL);
}

static int launch_taking(void *user)
{
    (void)user;
    return time_of.launch(time_of.taking, 1, 1, 1, 32, 1, 1, 0, time_of.stream, (void *[]){first, second}, NULL);
}

static int launch_buffer(void *user)
{
    (void)user;
    size_t bytes = sizeof both;
    void *extra[] = {(void *)ONE_BUFFER, both, (void *)BUFFER_SIZE, &bytes, NULL};
    return time_of.launch(time_of.taking, 1, 1, 1, 32, 1, 1, 0, time_of.stream, NULL, extra);
}

static int launch_ex(void *user)
{
    (void)user;
    lac_cu_launch_config config = {1, 1, 1, 32, 1, 1, 0, time_of.stream, NULL, 0};
    return time_of.driver->cuLaunchKernelEx(&config, time_of.taking, (void *[]){first, second}, NULL);
}

static int ask_pointer(void *user)
{
    (void)user;
    unsigned type = 0, managed = 0;
    int ordinal = 0, attributes[] = {LAC_CU_POINTER_MEMORY_TYPE, LAC_CU_POINTER_IS_MANAGED, LAC_CU_POINTER_ORDINAL};
    void *values[] = {&type, &managed, &ordinal};
    return time_of.driver->cuPointerGetAttributes(3, attributes, values, time_of.memory);
}

typedef struct product {
    lac_plan *plan;
    lac_execute_args args;
} product;

static int execute(void *user)
{
    const product *p = user;
    return lac_plan_execute(p->plan, &p->args) != LAC_STATUS_OK;
}

/* ---- timing */

static void tell(const char *what, double median, double low)
{
    lac_device_info info = {.size = sizeof info};
    const char *commit = getenv("LAC_COMMIT");
    assert_ok(lac_device_get_info(time_of.device, &info));
    printf("  %-64s %8.2f us, a tenth of them under %.2f\n", what, 1e6 * median, 1e6 * low);
    if (!time_of.csv) return;
    int version = lac_cuda_driver_version();
    fprintf(time_of.csv, "%s,%.3f,%.3f,%s,cuda %d.%d,%s\n", what, 1e6 * median, 1e6 * low, info.model, version / 1000,
            version / 10 % 100, commit ? commit : "");
}

/* The median of many calls, in bursts that the GPU's queue has room for. */
static double time_calls(const char *what, int (*call)(void *user), void *user)
{
    static double seconds[CALLS];
    int failed = 0;
    for (int i = 0; i < CALLS; ++i) {
        if (i % BURST == 0) assert_int_equal(time_of.driver->cuStreamSynchronize(time_of.stream), 0);
        double begin = now();
        failed |= call(user);
        seconds[i] = now() - begin;
    }
    assert_int_equal(time_of.driver->cuStreamSynchronize(time_of.stream), 0);
    assert_int_equal(failed, 0);
    qsort(seconds, CALLS, sizeof *seconds, compare_doubles);
    tell(what, seconds[CALLS / 2], seconds[CALLS / 10]);
    return seconds[CALLS / 2];
}

/* A plan whose programs are in the cache but not in memory, PLANS times; the last one stays. Returns the least time: others may use
 * the GPU, and a plan is made but once. */
static double time_plan(const lac_weight *weight, int64_t m, const lac_plan_options *options, lac_plan **plan)
{
    double seconds[PLANS];
    assert_ok(lac_plan_create(time_of.device, weight, m, options, plan)); /* compiles what is not in the cache */
    for (int i = 0; i < PLANS; ++i) {
        lac_plan_free(*plan);
        lac_device_close(time_of.device); /* nobody has it open: its programs are unloaded */
        assert_ok(lac_device_open("cuda:0", &time_of.device));
        double begin = now();
        assert_ok(lac_plan_create(time_of.device, weight, m, options, plan));
        seconds[i] = now() - begin;
    }
    qsort(seconds, PLANS, sizeof *seconds, compare_doubles);
    lac_plan_info info = {.size = sizeof info};
    assert_ok(lac_plan_get_info(*plan, &info));
    char what[160];
    snprintf(what, sizeof what, "lac_plan_create from the cache (%d of them): %s", PLANS, info.kernel);
    tell(what, seconds[PLANS / 2], seconds[0]);
    return seconds[0];
}

static void time_product(const char *kernel, const char *pattern, lac_dtype dtype, lac_precision precision, int64_t m,
                         double floor)
{
    enum { SIZE = 256 };
    test_random random = test_random_make("gpu_time", m);
    lac_pattern parsed = pattern_of(pattern);
    lac_weight *weight = weight_make(&random, &parsed, SIZE, SIZE, dtype, TEST_FILL_GAUSSIAN);
    lac_plan_options options = {.size = sizeof options,
                                .x_layout = LAC_LAYOUT_FEATURE_MAJOR,
                                .y_layout = LAC_LAYOUT_FEATURE_MAJOR,
                                .precision = precision,
                                .kernel = kernel};
    product p = {.args = {.size = sizeof p.args, .stream = time_of.stream}};
    double create = time_plan(weight, m, &options, &p.plan);
    lac_plan_info info = {.size = sizeof info};
    assert_ok(lac_plan_get_info(p.plan, &info));
    void *x, *y, *workspace = NULL;
    assert_ok(lac_device_allocate(time_of.device, (uint64_t)m * SIZE * sizeof(float), &x));
    assert_ok(lac_device_allocate(time_of.device, (uint64_t)m * SIZE * sizeof(float), &y));
    if (info.workspace_bytes) assert_ok(lac_device_allocate(time_of.device, info.workspace_bytes, &workspace));
    p.args.x = x;
    p.args.y = y;
    p.args.workspace = workspace;
    p.args.workspace_bytes = info.workspace_bytes;
    char what[160];
    /* A workspace is there for a first kernel that prepares X. */
    bool vendor = !strcmp(info.kernel, "cuda_cublaslt_dense"); /* its workspace is the library's, which may launch twice too */
    snprintf(what, sizeof what, "lac_plan_execute: %s%s", info.kernel, workspace && !vendor ? " (two launches)" : "");
    double seconds = time_calls(what, execute, &p);
    assert_true(create < 5e-3);
    /* The goal is 3 us where the driver leaves so much; machines differ. */
    assert_true(seconds < (vendor ? 4 : workspace ? 2 : 1) * floor + 2e-6);
    lac_device_release(time_of.device, x);
    lac_device_release(time_of.device, y);
    lac_device_release(time_of.device, workspace);
    lac_plan_free(p.plan);
    lac_weight_free(weight);
}

static void executing_and_planning_take_little_time(void **state)
{
    (void)state;
    printf("the host's time, median of %d calls:\n", CALLS);
    double floor = time_calls("cuLaunchKernel: an empty kernel without parameters", launch_empty, NULL);
    time_calls("cuLaunchKernel: 160 bytes of parameters", launch_taking, NULL);
    time_calls("cuLaunchKernel: 160 bytes of parameters as one buffer", launch_buffer, NULL);
    time_calls("cuLaunchKernelEx: 160 bytes of parameters", launch_ex, NULL);
    time_calls("cuPointerGetAttributes: one pointer", ask_pointer, NULL);
    time_product(NULL, "vw32:8:32", LAC_DTYPE_F32, LAC_PRECISION_STRICT, 128, floor);
    time_product(NULL, "vw32:8:32", LAC_DTYPE_F32, LAC_PRECISION_FAST, 128, floor);
    time_product(NULL, "8:32", LAC_DTYPE_F16, LAC_PRECISION_DEFAULT, 1, floor);
    time_product(NULL, "128:2:8", LAC_DTYPE_F16, LAC_PRECISION_DEFAULT, 128, floor);
    time_product("cuda_cublaslt_dense", "16:32", LAC_DTYPE_F32, LAC_PRECISION_STRICT, 128, floor);
    time_product("cuda_cublaslt_dense", "16:32", LAC_DTYPE_F16, LAC_PRECISION_DEFAULT, 128, floor);
}

static int open_all(void **state)
{
    (void)state;
    const char *path = getenv("LAC_TEST_GPU_TIMES");
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *symbol = library ? dlsym(library, "cuLaunchKernel") : NULL;
    assert_non_null(symbol);
    memcpy(&time_of.launch, &symbol, sizeof symbol);
    assert_ok(lac_device_open("cuda:0", &time_of.device));
    const lac_cuda_state *opened = lac_cuda_state_of(time_of.device);
    const lac_cuda_driver *driver = time_of.driver = opened->driver;
    lac_cu_context context = NULL;
    assert_int_equal(driver->cuDevicePrimaryCtxRetain(&context, opened->device), 0); /* as a program with a CUDA runtime does */
    assert_int_equal(driver->cuCtxPushCurrent(context), 0);
    assert_int_equal(driver->cuStreamCreate(&time_of.stream, LAC_CU_STREAM_NON_BLOCKING), 0);
    assert_int_equal(driver->cuModuleLoadData(&time_of.module, nothing), 0);
    assert_int_equal(driver->cuModuleGetFunction(&time_of.empty, time_of.module, "empty"), 0);
    assert_int_equal(driver->cuModuleGetFunction(&time_of.taking, time_of.module, "taking"), 0);
    assert_int_equal(driver->cuMemAlloc(&time_of.memory, 4096), 0);
    time_of.csv = path ? fopen(path, "w") : NULL;
    if (path) assert_non_null(time_of.csv);
    if (time_of.csv) fprintf(time_of.csv, "what,median_us,tenth_us,gpu,driver,commit\n");
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    const lac_cuda_driver *driver = time_of.driver;
    lac_cu_context popped;
    driver->cuMemFree(time_of.memory);
    driver->cuModuleUnload(time_of.module);
    driver->cuStreamDestroy(time_of.stream);
    driver->cuCtxPopCurrent(&popped);
    driver->cuDevicePrimaryCtxRelease(lac_cuda_state_of(time_of.device)->device);
    lac_device_close(time_of.device);
    if (time_of.csv) assert_int_equal(fclose(time_of.csv), 0);
    return 0;
}

int test_gpu_time(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(executing_and_planning_take_little_time)};
    return cmocka_run_group_tests_name("the time of the GPU's host side", tests, open_all, close_all);
}
