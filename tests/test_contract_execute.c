/* test_contract_execute.c - what lacuna.h promises of execute and of the oracle, of every kernel of this machine: nothing is allocated, operands
 * are only read, and the bits are the same every time, wherever operands lie, whatever the workspace holds, however many threads
 * there are, and where numbers are not finite. */
#include "plan_case.h"

#include <dirent.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
#define HAS_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HAS_THREAD_SANITIZER 1
#endif
#endif

static const char *const patterns[] = {"2:4", "vw8:25%", "bw4x4:1:2", "8:2:8"};
enum { PATTERNS = sizeof patterns / sizeof *patterns, OUTPUTS = 41, INPUTS = 72 };
static const int64_t tokens[] = {1, 5, 48};

/* Runs `body` for every kernel that takes a case of each pattern, number of tokens and way to lay X and Y. */
static void for_every_kernel(const char *seed, test_fill fill,
                             void (*body)(test_random *random, plan_case *c, const char *kernel))
{
    test_random random = test_random_make(seed, 0);
    const char *name[MOST_KERNELS];
    int count = kernel_names(name), ran = 0;
    for (int p = 0; p < PATTERNS; p++) {
        lac_pattern pattern = pattern_of(patterns[p]);
        for (size_t t = 0; t < sizeof tokens / sizeof *tokens; t++) {
            if ((p + (int)t) % (test_scale() > 1 ? 3 : 2)) continue; /* each pattern has some, and each number of tokens */
            lac_plan_options options = {.has_bias = 1, .has_residual = 1, .activation = LAC_ACTIVATION_SILU};
            options.x_layout = (lac_layout)((p + (int)t) % 2);
            options.y_layout = (lac_layout)((p / 2 + (int)t) % 2);
            lac_weight *weight = weight_make(&random, &pattern, OUTPUTS, INPUTS, LAC_DTYPE_F32, fill);
            plan_case c = case_make(&random, weight, tokens[t], &options, fill);
            for (int i = 0; i < count; i++) {
                if (!kernel_applies(&c, name[i])) continue;
                test_describe("%s, %s, %lld tokens", name[i], patterns[p], (long long)tokens[t]);
                body(&random, &c, name[i]);
                ran++;
            }
            case_free(&c);
        }
    }
    assert_true(ran > 20);
}

static void *workspace_of(const lac_plan *plan, int fill, size_t *bytes)
{
    lac_plan_info info = {.size = sizeof info};
    assert_ok(lac_plan_get_info(plan, &info));
    *bytes = info.workspace_bytes;
    void *workspace = aligned_alloc(64, info.workspace_bytes / 64 * 64 + 64);
    assert_non_null(workspace);
    memset(workspace, fill, info.workspace_bytes / 64 * 64 + 64);
    return workspace;
}

/* ---- nothing is allocated */

static void check_allocations(test_random *random, plan_case *c, const char *kernel)
{
    (void)random;
    for (int32_t threads = 1; threads <= 2; threads++) {
        lac_plan *plan = plan_make(c, kernel, threads);
        lac_execute_args args = case_args(c);
        args.workspace = workspace_of(plan, 0, &args.workspace_bytes);
        test_allocator_fail_from(1);
        lac_status status = lac_plan_execute(plan, &args);
        int64_t count = test_allocator_count();
        test_allocator_fail_at(0);
        assert_ok(status);
        if (count) fail_msg("%s allocates %lld times", kernel, (long long)count);
        free(args.workspace);
        lac_plan_free(plan);
    }
}

static void executing_allocates_nothing(void **state)
{
    (void)state;
    for_every_kernel("allocations", TEST_FILL_GAUSSIAN, check_allocations);
}

/* ---- operands are only read */

/* The same bytes in pages that nobody may write. */
static void *sealed(const test_matrix *matrix, size_t *bytes)
{
    *bytes = matrix->bytes + 64;
    char *pages = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED);
    memcpy(pages, matrix->block, matrix->bytes);
    assert_int_equal(mprotect(pages, *bytes, PROT_READ), 0);
    return pages;
}

static const void *same_place(const test_matrix *matrix, const void *pages)
{
    return (const char *)pages + ((const unsigned char *)matrix->view.data - matrix->block);
}

static void check_sealed(test_random *random, plan_case *c, const char *kernel)
{
    (void)random;
    size_t bytes[3];
    void *x = sealed(&c->x, &bytes[0]), *bias = sealed(&c->bias, &bytes[1]), *residual = sealed(&c->c, &bytes[2]);
    lac_plan *plan = plan_make(c, kernel, 2);
    lac_execute_args args = case_args(c);
    args.x = same_place(&c->x, x), args.bias = same_place(&c->bias, bias), args.c = same_place(&c->c, residual);
    args.workspace = workspace_of(plan, 0xff, &args.workspace_bytes);
    double *y = malloc((size_t)(c->m * OUTPUTS) * sizeof *y);
    assert_ok(lac_plan_execute(plan, &args)); /* a write would end the program */
    assert_ok(lac_plan_reference(plan, &args, y, NULL, 0));
    free(y);
    free(args.workspace);
    lac_plan_free(plan);
    munmap(x, bytes[0]), munmap(bias, bytes[1]), munmap(residual, bytes[2]);
}

static void operands_are_only_read(void **state)
{
    (void)state;
    for_every_kernel("sealed", TEST_FILL_GAUSSIAN, check_sealed);
}

/* ---- the same bits */

static void copy_matrix(const test_matrix *from, const test_matrix *to)
{
    for (int64_t i = 0; i < from->view.rows; i++)
        for (int64_t j = 0; j < from->view.cols; j++) test_matrix_set(to, i, j, test_matrix_get(from, i, j));
}

/* The same plan and numbers at other addresses, with other strides, on a workspace that holds something else. */
static void check_places(test_random *random, plan_case *c, const char *kernel)
{
    lac_plan *plan = plan_make(c, kernel, 2);
    test_matrix first = test_matrix_make(c->m, OUTPUTS, LAC_DTYPE_F32, LAC_LAYOUT_ROW_MAJOR, 0, 0);
    for (int run = 0; run < 3; run++) {
        int64_t padding = run ? test_random_between(random, 0, 9) : 0, offset = run ? test_random_between(random, 0, 15) : 0;
        test_matrix x = test_matrix_make(c->m, INPUTS, LAC_DTYPE_F32, c->options.x_layout, padding, offset);
        test_matrix y = test_matrix_make(c->m, OUTPUTS, LAC_DTYPE_F32, c->options.y_layout, padding, offset);
        test_matrix residual = test_matrix_make(c->m, OUTPUTS, LAC_DTYPE_F32, c->options.y_layout, padding, offset);
        copy_matrix(&c->x, &x);
        copy_matrix(&c->c, &residual);
        lac_execute_args args = case_args(c);
        args.x = x.view.data, args.ldx = x.view.ld, args.y = y.view.data, args.ldy = y.view.ld;
        args.c = residual.view.data, args.ldc = residual.view.ld;
        args.workspace = workspace_of(plan, run % 2 ? 0xff : 0, &args.workspace_bytes);
        assert_ok(lac_plan_execute(plan, &args));
        for (int64_t i = 0; i < c->m; i++)
            for (int64_t j = 0; j < OUTPUTS; j++) {
                double got = test_matrix_get(&y, i, j);
                if (run == 0) test_matrix_set(&first, i, j, got);
                if (!test_same_number(got, test_matrix_get(&first, i, j)))
                    fail_msg("%s: Y[%lld][%lld] is %.9g at offset %lld with padding %lld, %.9g without", kernel, (long long)i,
                             (long long)j, got, (long long)offset, (long long)padding, test_matrix_get(&first, i, j));
            }
        free(args.workspace);
        test_matrix_free(&x);
        test_matrix_free(&y);
        test_matrix_free(&residual);
    }
    test_matrix_free(&first);
    lac_plan_free(plan);
}

static void bits_are_the_same_wherever_operands_lie(void **state)
{
    (void)state;
    for_every_kernel("places", TEST_FILL_GAUSSIAN, check_places);
}

/* A NaN stays a NaN with another number of threads, and everything else stays the same to the bit. */
static void check_nonfinite(test_random *random, plan_case *c, const char *kernel)
{
    static const int32_t threads[] = {1, 2, 5};
    test_matrix_fill(random, &c->bias, TEST_FILL_NONFINITE);
    test_matrix first = test_matrix_make(c->m, OUTPUTS, LAC_DTYPE_F32, LAC_LAYOUT_ROW_MAJOR, 0, 0);
    for (size_t run = 0; run < sizeof threads / sizeof *threads; run++) {
        lac_plan *plan = plan_make(c, kernel, threads[run]);
        case_reset_y(c);
        case_execute(c, plan);
        for (int64_t i = 0; i < c->m; i++)
            for (int64_t j = 0; j < OUTPUTS; j++) {
                double got = test_matrix_get(&c->y, i, j);
                if (run == 0) test_matrix_set(&first, i, j, got);
                double want = test_matrix_get(&first, i, j);
                if (isnan(want) ? !isnan(got) : !test_same_number(got, want))
                    fail_msg("%s: Y[%lld][%lld] is %.9g on %d threads, %.9g on one", kernel, (long long)i, (long long)j, got,
                             (int)threads[run], want);
            }
        lac_plan_free(plan);
    }
    test_matrix_free(&first);
}

static void bits_are_the_same_where_numbers_are_not_finite(void **state)
{
    (void)state;
    for_every_kernel("nonfinite", TEST_FILL_NONFINITE, check_nonfinite);
}

/* ---- C as Y */

static void c_may_be_y_when_both_are_alike(void **state)
{
    (void)state;
    test_random random = test_random_make("alias", 0);
    lac_pattern pattern = pattern_of("2:4");
    lac_plan_options options = {.size = sizeof options, .has_residual = 1, .c_dtype = LAC_DTYPE_F16};
    lac_weight *weight = weight_make(&random, &pattern, 8, 8, LAC_DTYPE_F32, TEST_FILL_INTEGER);
    plan_case c = case_make(&random, weight, 2, &options, TEST_FILL_INTEGER);
    float y[2 * 8] = {0}, before[2 * 8] = {0};
    for (int halves = 0; halves < 2; halves++) {
        c.options.c_dtype = halves ? LAC_DTYPE_F16 : LAC_DTYPE_F32;
        lac_plan *plan = plan_make(&c, NULL, 1);
        lac_execute_args args = {.size = sizeof args, .x = c.x.view.data, .ldx = c.x.view.ld, .y = y, .c = y};
        args.workspace = workspace_of(plan, 0xff, &args.workspace_bytes);
        if (halves) {
            memcpy(before, y, sizeof y);
            assert_fails(lac_plan_execute(plan, &args), LAC_STATUS_INVALID_ARGUMENT, "args->c is args->y, but c is f16");
            assert_memory_equal(y, before, sizeof y);
        } else {
            args.ldc = 8; /* 0 means no padding, and so does 8 */
            assert_ok(lac_plan_execute(plan, &args));
            double *want = calloc(16, sizeof *want);
            float none[16] = {0};
            args.c = none;
            assert_ok(lac_plan_reference(plan, &args, want, NULL, 0));
            for (int i = 0; i < 16; i++) assert_true(y[i] == want[i]);
            free(want);
        }
        free(args.workspace);
        lac_plan_free(plan);
    }
    case_free(&c);
}

/* ---- the oracle */

/* Y, the workspace and the stream are nobody's business here; with or without bounds the numbers are the same. */
static void the_oracle_reads_only_what_it_says(void **state)
{
    (void)state;
    test_random random = test_random_make("oracle", 0);
    lac_pattern pattern = pattern_of("vw4:2:4");
    lac_plan_options options = {.has_bias = 1, .has_residual = 1, .x_layout = LAC_LAYOUT_FEATURE_MAJOR};
    options.y_layout = LAC_LAYOUT_FEATURE_MAJOR;
    lac_weight *weight = weight_make(&random, &pattern, 12, 16, LAC_DTYPE_F32, TEST_FILL_GAUSSIAN);
    plan_case c = case_make(&random, weight, 3, &options, TEST_FILL_GAUSSIAN);
    lac_plan *plan = plan_make(&c, NULL, 1);
    lac_execute_args args = case_args(&c), odd = args;
    float alpha = 1, beta = 1;
    double y[3 * 12], other[3 * 12], bound[3 * 12];
    odd.y = (void *)1, odd.ldy = -5, odd.workspace = (void *)3, odd.workspace_bytes = 0, odd.stream = (void *)7;
    odd.alpha = &alpha, odd.beta = &beta; /* what NULL stands for */
    assert_ok(lac_plan_reference(plan, &args, y, NULL, 0));
    assert_ok(lac_plan_reference(plan, &odd, other, bound, 12));
    assert_memory_equal(y, other, sizeof y);
    for (int i = 0; i < 3 * 12; i++) assert_true(bound[i] > 0 && bound[i] < 1e-4);
    lac_plan_free(plan);
    case_free(&c);
}

/* ---- sums of 16-bit numbers */

/* 4096 ones and a 2048: in 16 bits the sum would stand still. */
static void halves_are_summed_in_fp32(void **state)
{
    (void)state;
    enum { K = 4097 };
    test_random random = test_random_make("sums", 0);
    const char *name[MOST_KERNELS];
    int count = kernel_names(name);
    for (int dtype = LAC_DTYPE_F16; dtype <= LAC_DTYPE_BF16; dtype++) {
        lac_pattern pattern = pattern_of("vw8:1:1");
        lac_weight *weight = weight_make(&random, &pattern, 8, K, (lac_dtype)dtype, TEST_FILL_GAUSSIAN);
        lac_weight_info info = weight_info(weight);
        uint16_t *ones = malloc(8 * K * sizeof *ones);
        lac_span parts[LAC_PART_COUNT] = {[LAC_PART_VALUES] = {ones, 8 * K * sizeof *ones}};
        for (int i = 0; i < 8 * K; i++) ones[i] = (uint16_t)test_encode((lac_dtype)dtype, 1);
        lac_weight_free(weight);
        assert_ok(lac_weight_from_parts(&info, parts, &weight));
        free(ones);
        lac_plan_options options = {.y_dtype = LAC_DTYPE_F32};
        plan_case c = case_make(&random, weight, 3, &options, TEST_FILL_GAUSSIAN);
        for (int64_t i = 0; i < 3 * K; i++) test_matrix_set(&c.x, i / K, i % K, i % K ? 1 : 2048);
        for (int i = 0; i < count; i++) {
            if (!kernel_applies(&c, name[i])) continue;
            lac_plan *plan = plan_make(&c, name[i], 2);
            case_execute(&c, plan);
            for (int j = 0; j < 3 * 8; j++)
                if (test_matrix_get(&c.y, j / 8, j % 8) != 2048 + 4096)
                    fail_msg("%s sums in %s", name[i], lac_dtype_name(dtype));
            lac_plan_free(plan);
        }
        case_free(&c);
    }
}

/* ---- threads */

static int count_threads(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    if (!folder) return -1;
    for (const struct dirent *entry; (entry = readdir(folder));) count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

/* In a process of its own: OpenMP keeps the threads that it has made, and ends the process where it cannot make one. */
static int executes_on_thousands(const plan_case *c)
{
    lac_device *device = NULL;
    lac_device_info info = {.size = sizeof info};
    if (lac_device_open("cpu", &device) || lac_device_get_info(device, &info)) return 1;
    lac_device_close(device);
    case_execute(c, plan_make(c, NULL, 4096));
    enum { OTHERS = 16 }; /* an emulator has threads of its own */
    return count_threads() <= (info.cores > 256 ? info.cores : 256) + OTHERS ? 0 : 2;
}

static void thousands_of_threads_are_not_made(void **state)
{
    (void)state;
#ifdef HAS_THREAD_SANITIZER
    skip(); /* it does not follow a fork of several threads */
#endif
    test_random random = test_random_make("thousands", 0);
    lac_pattern pattern = pattern_of("2:4");
    lac_plan_options options = {.size = sizeof options};
    lac_weight *weight = weight_make(&random, &pattern, 4096, 64, LAC_DTYPE_F32, TEST_FILL_INTEGER);
    plan_case c = case_make(&random, weight, 64, &options, TEST_FILL_INTEGER);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(executes_on_thousands(&c));
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    case_free(&c);
}

int main(void)
{
    setenv("LAC_CPU_RATES", "5,5,120,30,12,24", 1);
    test_allocator_install();
    const struct CMUnitTest first[] = {cmocka_unit_test(thousands_of_threads_are_not_made)}; /* before OpenMP has threads */
    const struct CMUnitTest tests[] = {
        test_of_cases(executing_allocates_nothing),
        test_of_cases(operands_are_only_read),
        test_of_cases(bits_are_the_same_wherever_operands_lie),
        test_of_cases(bits_are_the_same_where_numbers_are_not_finite),
        cmocka_unit_test(c_may_be_y_when_both_are_alike),
        cmocka_unit_test(the_oracle_reads_only_what_it_says),
        cmocka_unit_test(halves_are_summed_in_fp32),
    };
    int failed = cmocka_run_group_tests_name("threads", first, NULL, NULL);
    return failed + cmocka_run_group_tests_name("execute", tests, NULL, NULL);
}
