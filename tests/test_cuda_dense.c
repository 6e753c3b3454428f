/* test_cuda_dense.c - cuda_cublaslt_dense against a library that multiplies by plain loops in the fake driver's memory, which is
 * the host's: layouts, strides, alignment and what the library adds must come out exactly. And a library that fails, refuses
 * or knows no algorithm. What needs kernels/finish.cu runs on a GPU alone, in tests/gpu. */
#include "gpu/gpu_case.h"

#include <pthread.h>

#include "cuda/dense_product.h"
#include "cuda/state.h"
#include "fakes/steer.h"

static const char name[] = "cuda_cublaslt_dense";
enum { LT_FAILED = 13, CU_OUT_OF_MEMORY = 2 };

static lac_device *open_device(void)
{
    lac_device *device = NULL;
    assert_ok(lac_device_open("cuda:0", &device));
    return device;
}

/* ---- products */

typedef struct dtypes {
    lac_dtype weight, x, y;
} dtypes;
static const dtypes all_dtypes[] = {{LAC_DTYPE_F32, LAC_DTYPE_F32, LAC_DTYPE_F32},
                                    {LAC_DTYPE_F16, LAC_DTYPE_F16, LAC_DTYPE_F16},
                                    {LAC_DTYPE_BF16, LAC_DTYPE_BF16, LAC_DTYPE_BF16},
                                    {LAC_DTYPE_F16, LAC_DTYPE_F16, LAC_DTYPE_F32},
                                    {LAC_DTYPE_F16, LAC_DTYPE_F32, LAC_DTYPE_F32}};
enum { DTYPES = sizeof all_dtypes / sizeof *all_dtypes };
static const char *const patterns[] = {"2:4", "3:7", "vw4:2:4", "bw2x3:1:3", "8:2:8", "shfl4:50%"};
enum { PATTERNS = sizeof patterns / sizeof *patterns };

/* What the library adds by itself, by number: nothing, a bias, a residual. */
static lac_plan_options options_of(int64_t number)
{
    const dtypes *d = &all_dtypes[number % DTYPES];
    lac_plan_options o = {.size = sizeof o,
                          .x_dtype = d->x,
                          .y_dtype = d->y,
                          .x_layout = (lac_layout)(number / DTYPES % 2),
                          .y_layout = (lac_layout)(number / DTYPES / 2 % 2),
                          .precision = number % 2 ? LAC_PRECISION_FAST : LAC_PRECISION_STRICT,
                          .no_timing = number % 11 != 0};
    o.has_residual = number / DTYPES / 4 % 3 == 2;
    o.has_bias = number / DTYPES / 4 % 3 == 1 && o.y_layout == LAC_LAYOUT_TOKEN_MAJOR;
    return o;
}

/* Operands as they usually lie: with others a bias is added by a kernel, which the fake driver does not run (test_gpu_runtime.c). */
static void lay_as_usual(test_random *random, plan_case *c, test_fill fill)
{
    test_matrix *const all[] = {&c->x, &c->y, &c->bias};
    for (int i = 0; i < 3; i++) {
        const lac_matrix v = all[i]->view;
        test_matrix_free(all[i]);
        *all[i] = test_matrix_make(v.rows, v.cols, v.dtype, v.layout, 0, 0);
        test_matrix_fill(random, all[i], fill);
    }
}

static void one_product(test_random *random, int64_t number, void *user)
{
    lac_device *device = user;
    lac_plan_options options = options_of(number);
    int64_t m = test_random_between(random, 1, 20), n = test_random_between(random, 1, 40);
    int64_t k = test_random_between(random, 1, 40);
    if (number % 17 == 0) m = 256; /* where both ways to lay W are asked about */
    lac_pattern pattern = pattern_of(patterns[test_random_between(random, 0, PATTERNS - 1)]);
    lac_weight *weight = weight_make(random, &pattern, n, k, all_dtypes[number % DTYPES].weight, TEST_FILL_INTEGER);
    if (number % 7 == 0) weight = weight_permuted(random, weight, true, true);
    plan_case c = case_make(random, weight, m, &options, TEST_FILL_INTEGER);
    if (options.has_bias) lay_as_usual(random, &c, TEST_FILL_INTEGER);
    long products = fake_lt_products();
    gpu_case_check(device, &c, name, JUDGE_EXACT);
    if (options.no_timing)
        assert_int_equal(fake_lt_products(), products + 2);
    else
        assert_true(fake_lt_products() > products + 2);
    case_free(&c);
}

static void products_are_those_of_the_oracle(void **state)
{
    (void)state;
    lac_device *device = open_device();
    test_run_all("dense", 12 * DTYPES * 12, one_product, device);
    assert_int_equal(fake_lt_live(), 1); /* one handle for all plans of a device */
    lac_device_close(device);
    expect_fakes_clean();
}

/* Infinities, NaNs, denormals, and what overflows: W is laid out anew, and nothing of it may be lost on the way. */
static void one_odd_product(test_random *random, int64_t number, void *user)
{
    static const test_fill fills[] = {TEST_FILL_NONFINITE, TEST_FILL_DENORMAL, TEST_FILL_HEAVY_TAIL};
    test_fill fill = fills[number % 3];
    lac_plan_options options = options_of(number / 3);
    lac_pattern pattern = pattern_of(patterns[test_random_between(random, 0, PATTERNS - 1)]);
    lac_weight *weight = weight_make(random, &pattern, 30, 35, all_dtypes[number / 3 % DTYPES].weight, fill);
    plan_case c = case_make(random, weight, test_random_between(random, 1, 20), &options, fill);
    if (options.has_bias) lay_as_usual(random, &c, fill);
    gpu_case_check(user, &c, name, JUDGE_BOUND);
    case_free(&c);
}

static void numbers_of_all_kinds_come_through(void **state)
{
    (void)state;
    lac_device *device = open_device();
    test_run_all("dense_odd", 3 * 12 * DTYPES, one_odd_product, device);
    lac_device_close(device);
    expect_fakes_clean();
}

/* ---- what the library is asked for */

static lac_weight *make_weight(const char *text, int64_t n, int64_t k, lac_dtype dtype)
{
    test_random random = test_random_make("dense_weight", 0);
    lac_pattern pattern = pattern_of(text);
    return weight_make(&random, &pattern, n, k, dtype, TEST_FILL_INTEGER);
}

static lac_dense_product product_of(lac_dtype dtype, lac_plan_options options, bool *made)
{
    lac_device *target = NULL;
    lac_weight *weight = make_weight("2:4", 24, 20, dtype);
    lac_dense_product product = {0};
    assert_ok(lac_cuda_target_open("sm_90a", &target));
    lac_problem problem = {target, weight, 6, options, NULL};
    assert_ok(lac_plan_options_resolve(weight, target, &problem.options));
    *made = lac_dense_product_make(&problem, &product);
    lac_weight_free(weight);
    lac_device_close(target);
    return product;
}

static void who_does_the_epilogue(void **state)
{
    (void)state;
    enum { LIBRARY = LAC_DENSE_FINISH_LIBRARY, IN_PLACE = LAC_DENSE_FINISH_IN_PLACE, APART = LAC_DENSE_FINISH_APART };
    static const struct {
        lac_dtype dtype;
        lac_plan_options options;
        int finish, bias, residual;
    } rows[] = {
        {LAC_DTYPE_F16, {0}, LIBRARY, 0, 0},
        {LAC_DTYPE_F16, {.has_bias = 1}, LIBRARY, 1, 0},
        {LAC_DTYPE_F16, {.has_residual = 1}, LIBRARY, 0, 1},
        {LAC_DTYPE_F16, {.has_bias = 1, .has_residual = 1}, APART, 0, 0},
        {LAC_DTYPE_F16, {.has_bias = 1, .bias_dtype = LAC_DTYPE_F32}, APART, 0, 0},
        {LAC_DTYPE_F16, {.has_residual = 1, .c_dtype = LAC_DTYPE_F32}, APART, 0, 0},
        {LAC_DTYPE_F16, {.has_bias = 1, .y_layout = LAC_LAYOUT_FEATURE_MAJOR}, APART, 0, 0},
        {LAC_DTYPE_F16, {.has_bias = 1, .activation = LAC_ACTIVATION_RELU}, IN_PLACE, 1, 0},
        {LAC_DTYPE_F16, {.has_residual = 1, .activation = LAC_ACTIVATION_RELU}, APART, 0, 0},
        {LAC_DTYPE_F16, {.activation = LAC_ACTIVATION_SILU}, APART, 0, 0},
        {LAC_DTYPE_F16, {.activation = LAC_ACTIVATION_SILU, .y_dtype = LAC_DTYPE_F32}, IN_PLACE, 0, 0},
        {LAC_DTYPE_F16, {.y_dtype = LAC_DTYPE_BF16}, APART, 0, 0},
        {LAC_DTYPE_F32, {.y_dtype = LAC_DTYPE_F16}, APART, 0, 0},
        {LAC_DTYPE_F32, {.has_bias = 1, .activation = LAC_ACTIVATION_GELU_ERF}, IN_PLACE, 1, 0},
        {LAC_DTYPE_F32, {.has_bias = 1, .y_layout = LAC_LAYOUT_FEATURE_MAJOR}, IN_PLACE, 0, 0},
        {LAC_DTYPE_F32, {.has_residual = 1, .activation = LAC_ACTIVATION_RELU}, APART, 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool made;
        lac_dense_product p = product_of(rows[i].dtype, rows[i].options, &made);
        if (!made || (int)p.finish != rows[i].finish || p.has_bias != rows[i].bias || p.has_residual != rows[i].residual)
            fail_msg("row %zu: made %d, finish %d, bias %d, residual %d", i, made, (int)p.finish, p.has_bias, p.has_residual);
        assert_int_equal(p.result, p.finish == LAC_DENSE_FINISH_APART ? LAC_DTYPE_F32
                                   : rows[i].options.y_dtype          ? rows[i].options.y_dtype
                                                                      : rows[i].dtype);
    }
    bool made;
    lac_dense_product p = product_of(LAC_DTYPE_F32, (lac_plan_options){.x_dtype = LAC_DTYPE_F16}, &made);
    assert_false(made); /* X is taken as it is */
    p = product_of(LAC_DTYPE_F16, (lac_plan_options){.x_dtype = LAC_DTYPE_F32, .precision = LAC_PRECISION_STRICT}, &made);
    assert_true(made && p.operand == LAC_DTYPE_F32 && p.compute == LAC_LT_COMPUTE_F32);
}

static void an_answer_that_fills_the_gpu_is_preferred(void **state)
{
    (void)state;
    static const struct {
        lac_dtype dtype;
        float waves[4];
        int count, picked;
    } rows[] = {{LAC_DTYPE_F16, {0.2f, 0.9f, 0.5f}, 3, 1},  {LAC_DTYPE_F16, {0.2f, 0.25f, 0.5f}, 3, 2},
                {LAC_DTYPE_F16, {0.8f, 0.9f}, 2, 0},        {LAC_DTYPE_F16, {0.2f, 1.5f, 0.3f, 0.9f}, 4, 2},
                {LAC_DTYPE_BF16, {0.2f, 1.5f, 0.3f}, 2, 0}, {LAC_DTYPE_F16, {1.5f, 0.9f}, 2, 0},
                {LAC_DTYPE_F32, {0.2f, 0.9f}, 2, 0},        {LAC_DTYPE_F16, {0.2f}, 1, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lac_dense_product product = {.operand = rows[i].dtype, .result = rows[i].dtype, .m = 64, .n = 64, .k = 64};
        lac_lt_answer answers[4] = {
            {.waves = rows[i].waves[0]}, {.waves = rows[i].waves[1]}, {.waves = rows[i].waves[2]}, {.waves = rows[i].waves[3]}};
        int picked = lac_dense_pick(&product, answers, rows[i].count);
        if (picked != rows[i].picked) fail_msg("row %zu: %d", i, picked);
        product.has_bias = true;
        assert_int_equal(lac_dense_pick(&product, answers, rows[i].count), 0);
        product.has_bias = false, product.m = 63; /* X and Y by features: lines of 126 bytes */
        assert_int_equal(lac_dense_pick(&product, answers, rows[i].count), 0);
    }
}

static void w_is_laid_as_waves_promise(void **state)
{
    (void)state;
    static const struct {
        float as_it_lies, other;
        bool prefers;
    } rows[] = {{2.606f, 4.0f, true}, {1.9f, 2.0f, false}, {0.0f, 0.0f, false}, {4.0f, 2.606f, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lac_lt_answer as_it_lies = {.waves = rows[i].as_it_lies}, other = {.waves = rows[i].other};
        if (lac_dense_prefers(&as_it_lies, &other) != rows[i].prefers) fail_msg("row %zu", i);
    }
    assert_true(lac_dense_has_choice(&(lac_dense_product){.operand = LAC_DTYPE_F16, .m = 256}));
    assert_false(lac_dense_has_choice(&(lac_dense_product){.operand = LAC_DTYPE_F16, .m = 255}));
    assert_false(lac_dense_has_choice(&(lac_dense_product){.operand = LAC_DTYPE_F32, .m = 4096}));
}

static void operands_out_of_line_get_another_algorithm(void **state)
{
    (void)state;
    lac_device *device = open_device();
    lac_weight *weight = make_weight("2:4", 32, 64, LAC_DTYPE_F16);
    lac_plan_options options = {.size = sizeof options, .kernel = name, .no_timing = 1};
    lac_plan *plan = NULL;
    lac_plan_info info = {.size = sizeof info};
    assert_ok(lac_plan_create(device, weight, 16, &options, &plan));
    assert_ok(lac_plan_get_info(plan, &info));
    assert_int_equal(info.is_dense, 1);
    assert_int_equal(info.dense_bytes, 32 * 64 * 2);
    assert_string_equal(info.note, "");
    char *x = NULL, *y = NULL, *workspace = NULL;
    assert_ok(lac_device_allocate(device, 16 * 80 * 2, (void **)&x));
    assert_ok(lac_device_allocate(device, 16 * 80 * 2, (void **)&y));
    assert_ok(lac_device_allocate(device, info.workspace_bytes + 64, (void **)&workspace));
    memset(x, 0, 16 * 80 * 2); /* the fake's memory is the host's */
    static const struct {
        int x_offset, y_offset, ldx, ldy, refused, first_refused, algorithm;
    } rows[] = {{0, 0, 0, 0, 0, 0, 0},    {2, 0, 0, 0, 0, 0, 100},  {0, 2, 0, 0, 0, 0, 100},   {0, 0, 65, 0, 0, 0, 100},
                {0, 0, 72, 0, 0, 0, 0},   {0, 0, 0, 33, 0, 0, 100}, {16, 16, 72, 40, 0, 0, 0}, {0, 0, 0, 0, 1, 0, 100},
                {2, 0, 65, 0, 0, 1, 102}, {0, 0, 0, 0, 1, 1, 102}}; /* the fake's second answer is none */
    int64_t live = test_allocator_live();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lac_execute_args args = {.size = sizeof args,
                                 .x = x + rows[i].x_offset,
                                 .y = y + rows[i].y_offset,
                                 .ldx = rows[i].ldx,
                                 .ldy = rows[i].ldy,
                                 .workspace = workspace + 64, /* aligned to no more than 64 bytes */
                                 .workspace_bytes = info.workspace_bytes};
        fake_lt_refuse_aligned(rows[i].refused);
        fake_lt_refuse_first(rows[i].first_refused);
        test_allocator_fail_from(1); /* executing allocates nothing */
        assert_ok(lac_plan_execute(plan, &args));
        assert_int_equal(test_allocator_count(), 0);
        test_allocator_fail_at(0);
        fake_lt_refuse_aligned(0);
        fake_lt_refuse_first(0);
        if (fake_lt_last_algorithm() != rows[i].algorithm) fail_msg("row %zu: %ld", i, fake_lt_last_algorithm());
    }
    lac_execute_args args = {
        .size = sizeof args, .x = x + 2, .y = y, .workspace = workspace, .workspace_bytes = info.workspace_bytes};
    fake_lt_refuse_first(3); /* all of them */
    assert_fails(lac_plan_execute(plan, &args), LAC_STATUS_UNSUPPORTED, "operands that lie like these");
    fake_lt_refuse_first(0);
    assert_int_equal(test_allocator_live(), live);
    void *blocks[] = {x, y, workspace};
    for (int i = 0; i < 3; i++) lac_device_release(device, blocks[i]);
    lac_plan_free(plan);
    lac_weight_free(weight);
    lac_device_close(device);
    expect_fakes_clean();
}

/* ---- what goes wrong */

static lac_status whole_life(const lac_weight *weight, bool *executed)
{
    lac_device *device = NULL;
    lac_plan *plan = NULL;
    void *x = NULL, *y = NULL, *workspace = NULL;
    lac_plan_info info = {.size = sizeof info};
    lac_plan_options options = {.size = sizeof options, .kernel = name, .activation = LAC_ACTIVATION_RELU, .no_timing = 1};
    lac_status status = lac_device_open("cuda:0", &device);
    if (!status) status = lac_plan_create(device, weight, 4, &options, &plan);
    if (!status) status = lac_plan_get_info(plan, &info);
    if (!status) status = lac_device_allocate(device, 4 * 24 * 4, &x);
    if (!status) status = lac_device_allocate(device, 4 * 24 * 4, &y);
    if (!status) status = lac_device_allocate(device, info.workspace_bytes, &workspace);
    lac_execute_args args = {
        .size = sizeof args, .x = x, .y = y, .workspace = workspace, .workspace_bytes = info.workspace_bytes};
    *executed = !status;
    if (!status) memset(x, 0, 4 * 24 * 4);
    if (!status) status = lac_plan_execute(plan, &args);
    lac_device_release(device, x);
    lac_device_release(device, y);
    lac_device_release(device, workspace);
    lac_plan_free(plan);
    lac_device_close(device);
    return status;
}

static void every_call_fails_in_turn(void **state)
{
    (void)state;
    lac_weight *weight = make_weight("2:4", 24, 24, LAC_DTYPE_F32);
    bool executed;
    int calls = 0, at_execute = 0;
    for (long number = 1;; number++, calls++) {
        int64_t live = test_allocator_live();
        fake_lt_fail_at(number, LT_FAILED);
        lac_status status = whole_life(weight, &executed);
        fake_lt_fail_at(0, 0);
        expect_fakes_clean();
        assert_int_equal(test_allocator_live(), live);
        if (!status) break;
        at_execute += executed;
        assert_fails(status, executed ? LAC_STATUS_DEVICE : status, "CUBLAS_STATUS_FAKE");
        assert_true(status == LAC_STATUS_DEVICE || status == LAC_STATUS_UNSUPPORTED);
    }
    print_message("%d calls failed, %d of them when executing\n", calls, at_execute);
    assert_true(at_execute >= 7 && calls - at_execute >= 30);
    for (long number = 1;; number++) {
        int64_t live = test_allocator_live();
        fake_fail_at(number, CU_OUT_OF_MEMORY);
        lac_status status = whole_life(weight, &executed);
        fake_fail_at(0, 0);
        expect_fakes_clean();
        assert_int_equal(test_allocator_live(), live);
        if (!status) break;
        assert_fails(status, LAC_STATUS_OUT_OF_MEMORY, "out of memory");
    }
    for (int64_t number = 1;; number++) {
        test_allocator_fail_at(number);
        lac_status status = whole_life(weight, &executed);
        bool reached = test_allocator_failed();
        test_allocator_fail_at(0);
        expect_fakes_clean();
        if (!reached) break;
        assert_fails(status, LAC_STATUS_OUT_OF_MEMORY, "memory");
    }
    lac_weight_free(weight);
}

/* The planner's pick where dense is the fastest, and what the plan says of it. */
static void expect_pick(lac_device *device, const lac_plan_options *options, bool dense, const char *in_note)
{
    lac_weight *weight = make_weight("15:16", 1024, 1024, LAC_DTYPE_F32);
    lac_plan *plan = NULL;
    lac_plan_info info = {.size = sizeof info};
    assert_ok(lac_plan_create(device, weight, 1024, options, &plan));
    assert_ok(lac_plan_get_info(plan, &info));
    if (dense != !strcmp(info.kernel, name)) fail_msg("%s was picked: %s", info.kernel, info.note);
    if (!strstr(info.note, in_note) || !*in_note != !*info.note) fail_msg("the note is '%s'", info.note);
    assert_int_equal(info.dense_bytes, info.is_dense ? 4 << 20 : 0);
    lac_plan_free(plan);
    lac_weight_free(weight);
}

static void without_the_library_the_next_best_is_taken(void **state)
{
    (void)state;
    lac_plan_options options = {.size = sizeof options, .precision = LAC_PRECISION_STRICT, .predict_only = 1, .no_timing = 1};
    lac_device *device = open_device();
    expect_pick(device, &options, true, "");
    fake_lt_set_answers(0);
    expect_pick(device, &options, false, "cuda_cublaslt_dense is not offered: cuBLASLt has no algorithm for this product");
    lac_plan_options forced = {.size = sizeof forced, .kernel = name};
    lac_weight *weight = make_weight("2:4", 8, 8, LAC_DTYPE_F32);
    lac_plan *plan = NULL;
    assert_fails(lac_plan_create(device, weight, 4, &forced, &plan), LAC_STATUS_UNSUPPORTED, "has no algorithm");
    fake_lt_set_answers(3);
    lac_device_close(device);
    device = open_device();
    fake_lt_refuse_handles(1);
    expect_pick(device, &options, false, "does not start on cuda:0");
    fake_lt_refuse_handles(0);
    expect_pick(device, &options, true, "");
    options.predict_only = 0;
    expect_pick(device, &options, true, "");
    options.no_dense = 1;
    expect_pick(device, &options, false, "");
    forced.no_dense = 1;
    assert_fails(lac_plan_create(device, weight, 4, &forced, &plan), LAC_STATUS_INVALID_ARGUMENT, "no_dense");
    forced.no_dense = 2;
    assert_fails(lac_plan_create(device, weight, 4, &forced, &plan), LAC_STATUS_INVALID_ARGUMENT, "options->no_dense is 2");
    assert_null(plan);
    lac_weight_free(weight);
    lac_device_close(device);
    expect_fakes_clean();
}

/* ---- threads */

typedef struct worker {
    lac_device *device;
    const lac_plan *plan;
    size_t workspace_bytes;
    int failed;
} worker;

static void *work(void *user)
{
    worker *w = user;
    void *x = NULL, *y = NULL, *workspace = NULL;
    w->failed = lac_device_allocate(w->device, 8 * 32 * 4, &x) || lac_device_allocate(w->device, 8 * 32 * 4, &y) ||
                lac_device_allocate(w->device, w->workspace_bytes, &workspace);
    for (int i = 0; i < 8 * 32 && !w->failed; i++) ((float *)x)[i] = (float)(i % 5);
    lac_execute_args args = {
        .size = sizeof args, .x = x, .y = y, .workspace = workspace, .workspace_bytes = w->workspace_bytes};
    float first[8 * 32];
    for (int i = 0; i < 50 && !w->failed; i++) {
        w->failed = lac_plan_execute(w->plan, &args) != LAC_STATUS_OK || (i && memcmp(first, y, sizeof first) != 0);
        memcpy(first, y, sizeof first);
    }
    lac_device_release(w->device, x);
    lac_device_release(w->device, y);
    lac_device_release(w->device, workspace);
    return NULL;
}

static void many_threads_execute_one_plan(void **state)
{
    (void)state;
    enum { THREADS = 6 };
    lac_device *device = open_device();
    lac_weight *weight = make_weight("2:4", 32, 32, LAC_DTYPE_F32);
    lac_plan_options options = {.size = sizeof options, .kernel = name, .no_timing = 1};
    lac_plan_info info = {.size = sizeof info};
    lac_plan *plan = NULL;
    assert_ok(lac_plan_create(device, weight, 8, &options, &plan));
    assert_ok(lac_plan_get_info(plan, &info));
    pthread_t threads[THREADS];
    worker workers[THREADS];
    long products = fake_lt_products();
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){device, plan, info.workspace_bytes, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].failed, 0);
    }
    assert_int_equal(fake_lt_products() - products, THREADS * 50);
    lac_plan_free(plan);
    lac_weight_free(weight);
    lac_device_close(device);
    expect_fakes_clean();
}

int main(void)
{
    setenv("LAC_CUDA_LIBRARY", FAKE_CUDA, 1);
    setenv("LAC_NVRTC_LIBRARY", FAKE_NVRTC, 1);
    setenv("LAC_CUBLASLT_LIBRARY", FAKE_CUBLASLT, 1);
    setenv("LAC_CACHE_DIR", test_path("cache"), 1);
    test_allocator_install();
    test_seed();
    const struct CMUnitTest tests[] = {
        test_of_cases(products_are_those_of_the_oracle), test_of_cases(numbers_of_all_kinds_come_through),
        cmocka_unit_test(who_does_the_epilogue),         cmocka_unit_test(an_answer_that_fills_the_gpu_is_preferred),
        cmocka_unit_test(w_is_laid_as_waves_promise),    cmocka_unit_test(operands_out_of_line_get_another_algorithm),
        cmocka_unit_test(every_call_fails_in_turn),      cmocka_unit_test(without_the_library_the_next_best_is_taken),
        cmocka_unit_test(many_threads_execute_one_plan),
    };
    return cmocka_run_group_tests(tests, load_fakes, NULL);
}
