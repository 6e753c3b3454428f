/* test_cuda_unshuffle.c - cuda_unshuffle on the fake driver: for which problems it is offered, which kernel multiplies within, what it
 * launches for a bias and a residual, and every call failing in turn. That the outputs come to their places is for the GPU to show. */
#include "support/support.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "fakes/find.h"
#include "plan_case.h"

#define NAME "cuda_unshuffle"
enum { CU_OUT_OF_MEMORY = 2 };

static long (*fake_live)(void), (*fake_calls)(void), (*fake_launches)(void);
static void (*fake_fail_at)(long number, int result);

static int load_fakes(void **state)
{
    (void)state;
    void *cuda = dlopen(FAKE_CUDA, RTLD_NOW);
    assert_non_null(cuda);
    fake_find(cuda, "fake_live", &fake_live);
    fake_find(cuda, "fake_calls", &fake_calls);
    fake_find(cuda, "fake_launches", &fake_launches);
    fake_find(cuda, "fake_fail_at", &fake_fail_at);
    return 0;
}

static lac_weight *make_weight(const char *pattern, int64_t n, int64_t k, lac_dtype dtype, bool shuffled)
{
    test_random random = test_random_make(pattern, 0);
    lac_pattern parsed = pattern_of(pattern);
    lac_weight *weight = weight_make(&random, &parsed, n, k, dtype, TEST_FILL_GAUSSIAN);
    return shuffled ? weight_permuted(&random, weight, true, false) : weight;
}

/* What a plan by name tells; the status where there is none. */
static lac_status try_plan(const char *device_name, const lac_weight *weight, int64_t m, lac_plan_options options,
                           lac_plan_info *info, char note[64])
{
    lac_device *device = NULL;
    lac_plan *plan = NULL;
    options.size = sizeof options;
    *info = (lac_plan_info){.size = sizeof *info};
    lac_status status = lac_device_open(device_name, &device);
    if (!status) status = lac_plan_create(device, weight, m, &options, &plan);
    if (!status) status = lac_plan_get_info(plan, info);
    if (!status && note) snprintf(note, 64, "%.60s", info->note);
    lac_plan_free(plan);
    lac_device_close(device);
    return status;
}

/* ---- for which problems */

static void it_is_offered_where_rows_are_shuffled_and_y_is_token_major(void **state)
{
    (void)state;
    static const struct {
        const char *pattern;
        bool shuffled, half, feature_major, offered;
        int64_t n, m;
    } cases[] = {
        {"shfl16:50%", false, false, false, true, 64, 5},  {"shfl16:50%", false, false, true, false, 64, 5},
        {"shfl16:50%", false, true, false, false, 64, 5}, /* other outputs must stay as they are */
        {"shfl16:50%", false, false, false, false, 64, 0}, {"vw16:2:4", false, false, false, false, 64, 5},
        {"vw16:2:4", true, false, false, true, 64, 5},     {"2:4", true, false, false, true, 33, 1},
        {"16:2:8", true, false, false, true, 48, 300},     {"bw4x4:1:2", true, false, false, true, 20, 7},
        {"2:4", true, false, false, true, 58000, 3},       {"2:4", true, false, false, false, 59000, 3}, /* too long a line */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lac_weight *weight = make_weight(cases[i].pattern, cases[i].n, 32, LAC_DTYPE_F16, cases[i].shuffled);
        if (cases[i].half) weight = weight_half(weight, LAC_AXIS_N);
        lac_plan_options options = {.kernel = NAME,
                                    .predict_only = 1,
                                    .y_layout = cases[i].feature_major ? LAC_LAYOUT_FEATURE_MAJOR : LAC_LAYOUT_TOKEN_MAJOR};
        lac_plan_info info;
        lac_status status = try_plan("cuda:0", weight, cases[i].m, options, &info, NULL);
        if (status != (cases[i].offered ? LAC_STATUS_OK : LAC_STATUS_UNSUPPORTED))
            fail_msg("%s, n %lld, m %lld: %s", cases[i].pattern, (long long)cases[i].n, (long long)cases[i].m,
                     lac_last_error());
        lac_weight_free(weight);
    }
}

/* Many tokens pay for another kernel over Y, few do not; and the kernel within is the one that the same weight has in order. */
static void the_model_weighs_it(void **state)
{
    (void)state;
    lac_weight *weight = make_weight("shfl64:25%", 1024, 1024, LAC_DTYPE_F16, false);
    lac_weight *in_order = make_weight("vw64:25%", 1024, 1024, LAC_DTYPE_F16, false);
    lac_plan_options options = {.predict_only = 1, .no_dense = 1}, direct = {.predict_only = 1, .kernel = "cuda_f16_gather"};
    lac_plan_info many, few, ordered, scattered;
    char note[64];
    assert_ok(try_plan("h200", weight, 4096, options, &many, note));
    assert_string_equal(many.kernel, NAME);
    assert_ok(try_plan("h200", weight, 4096, direct, &scattered, NULL));
    assert_true(many.predicted_seconds < scattered.predicted_seconds);
    assert_ok(try_plan("h200", in_order, 4096, options, &ordered, NULL));
    assert_true(many.predicted_seconds > ordered.predicted_seconds);
    char expected[64];
    snprintf(expected, sizeof expected, "its products are by %s", ordered.kernel);
    assert_string_equal(note, expected);
    assert_true(many.workspace_bytes >= (uint64_t)4096 * 1024 * 2 + ordered.workspace_bytes);
    assert_ok(try_plan("h200", weight, 4, options, &few, note));
    assert_string_not_equal(few.kernel, NAME);
    assert_string_equal(note, "");
    lac_weight_free(weight);
    lac_weight_free(in_order);
}

/* ---- what is launched */

static long launches_of(const lac_weight *weight, int64_t m, lac_plan_options options, bool pass_c)
{
    lac_device *device = NULL;
    lac_plan *plan = NULL;
    lac_plan_info info = {.size = sizeof info};
    void *memory = NULL, *workspace = NULL;
    float one = 1.0f, none = 0.0f;
    options.size = sizeof options;
    assert_ok(lac_device_open("cuda:0", &device));
    assert_ok(lac_plan_create(device, weight, m, &options, &plan));
    assert_ok(lac_plan_get_info(plan, &info));
    assert_ok(lac_device_allocate(device, 1 << 20, &memory));
    assert_ok(lac_device_allocate(device, info.workspace_bytes, &workspace));
    lac_execute_args args = {.size = sizeof args,
                             .x = memory,
                             .y = memory,
                             .bias = options.has_bias ? memory : NULL,
                             .c = pass_c ? (char *)memory + (1 << 19) : NULL,
                             .alpha = &one,
                             .beta = options.has_residual ? pass_c ? &one : &none : NULL,
                             .workspace = workspace,
                             .workspace_bytes = info.workspace_bytes};
    long before = fake_launches();
    assert_ok(lac_plan_execute(plan, &args));
    long launches = fake_launches() - before;
    args.y = &one; /* not the GPU's: the kernel within would not have seen it */
    assert_int_equal(lac_plan_execute(plan, &args), LAC_STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(lac_last_error(), "args->y"));
    lac_device_release(device, memory);
    lac_device_release(device, workspace);
    lac_plan_free(plan);
    lac_device_close(device);
    assert_int_equal(fake_live(), 0);
    return launches;
}

static void bias_and_residual_are_brought_into_order_first(void **state)
{
    (void)state;
    for (lac_dtype dtype = LAC_DTYPE_F32; dtype <= LAC_DTYPE_BF16; dtype++) {
        lac_weight *weight = make_weight("vw16:2:4", 64, 64, dtype, true);
        lac_plan_options plain = {.kernel = NAME};
        long alone = launches_of(weight, 9, plain, false);
        assert_true(alone >= 2);
        for (int bias = 0; bias < 2; bias++)
            for (int residual = 0; residual < 2; residual++) {
                lac_plan_options options = {.kernel = NAME,
                                            .has_bias = bias,
                                            .bias_dtype = LAC_DTYPE_F32,
                                            .has_residual = residual,
                                            .c_dtype = LAC_DTYPE_F16};
                assert_int_equal(launches_of(weight, 9, options, residual), alone + bias + residual);
                if (residual) assert_int_equal(launches_of(weight, 9, options, false), alone + bias); /* beta is 0 */
            }
        lac_weight_free(weight);
    }
}

/* ---- failures */

static lac_status whole_life(const lac_weight *weight)
{
    lac_plan_info info;
    return try_plan("cuda:0", weight, 40, (lac_plan_options){.kernel = NAME, .has_bias = 1, .bias_dtype = LAC_DTYPE_F32}, &info,
                    NULL);
}

static void every_call_fails_in_turn(void **state)
{
    (void)state;
    lac_weight *weight = make_weight("shfl32:50%", 64, 64, LAC_DTYPE_F16, false);
    int64_t live = test_allocator_live();
    bool reached = true;
    int failed = 0;
    for (long number = 1; reached; number++) {
        fake_fail_at(number, CU_OUT_OF_MEMORY);
        lac_status status = whole_life(weight);
        reached = fake_calls() >= number;
        fake_fail_at(0, 0);
        if (status != (reached ? LAC_STATUS_OUT_OF_MEMORY : LAC_STATUS_OK)) fail_msg("call %ld: %s", number, lac_last_error());
        assert_int_equal(fake_live(), 0);
        assert_int_equal(test_allocator_live(), live);
        failed += reached;
    }
    assert_true(failed > 5);
    for (int64_t number = 1;; number++) {
        test_allocator_fail_at(number);
        lac_status status = whole_life(weight);
        reached = test_allocator_failed();
        test_allocator_fail_at(0);
        assert_int_equal(fake_live(), 0);
        assert_int_equal(test_allocator_live(), live);
        if (!reached) break;
        assert_true(!status || status == LAC_STATUS_OUT_OF_MEMORY);
    }
    lac_weight_free(weight);
}

int main(void)
{
    setenv("LAC_CUDA_LIBRARY", FAKE_CUDA, 1);
    setenv("LAC_NVRTC_LIBRARY", FAKE_NVRTC, 1);
    setenv("LAC_CACHE_DIR", test_path("cache"), 1);
    test_allocator_install();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_offered_where_rows_are_shuffled_and_y_is_token_major),
        cmocka_unit_test(the_model_weighs_it),
        cmocka_unit_test(bias_and_residual_are_brought_into_order_first),
        cmocka_unit_test(every_call_fails_in_turn),
    };
    return cmocka_run_group_tests(tests, load_fakes, NULL);
}
