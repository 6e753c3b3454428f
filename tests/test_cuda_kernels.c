/* test_cuda_kernels.c - every registered CUDA kernel compiles for every architecture, by NVRTC alone and without a GPU, and
 * none uses more registers than there are. Patterns, dtypes, precisions, layouts and epilogues rotate over the cases, and each
 * case compiles a quarter of the kernels, so that every kernel meets every architecture and every pattern; with
 * LAC_TEST_KERNELS=all every case compiles every kernel. One case is one architecture: ctest runs each as a test of its own.
 * Compiled programs stay in the folder that LAC_TEST_KERNEL_CACHE names, so that a second run takes seconds. */
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/backend.h"
#include "cuda/nvrtc.h"
#include "cuda/state.h"
#include "format/sample.h"

static const char *const archs[] = {"sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120"};
static const char *const patterns[] = {"2:4",       "vw32:8:32", "vw32:16:32", "64:2:8",     "shfl64:25%", "bw4x4:2:8", "3:7",
                                       "vw24:3:10", "8:32",      "128:2:16",   "bw16x4:25%", "vw32:4:32",  "5:13",      "25%"};
enum { ARCHS = sizeof archs / sizeof *archs, PATTERNS = sizeof patterns / sizeof *patterns };

typedef struct variant {
    lac_dtype dtype, y_dtype;
    lac_plan_options plan;
} variant;

static const variant variants[] = {
    {LAC_DTYPE_F32, LAC_DTYPE_NONE, {.precision = LAC_PRECISION_STRICT}},
    {LAC_DTYPE_F32,
     LAC_DTYPE_NONE,
     {.precision = LAC_PRECISION_FAST, .has_bias = 1, .activation = LAC_ACTIVATION_SILU, .x_layout = LAC_LAYOUT_FEATURE_MAJOR}},
    {LAC_DTYPE_F16, LAC_DTYPE_NONE, {.has_residual = 1, .activation = LAC_ACTIVATION_GELU_ERF}},
    {LAC_DTYPE_F32,
     LAC_DTYPE_BF16,
     {.precision = LAC_PRECISION_TF32, .has_bias = 1, .has_residual = 1, .y_layout = LAC_LAYOUT_FEATURE_MAJOR}},
    {LAC_DTYPE_F32,
     LAC_DTYPE_NONE,
     {.precision = LAC_PRECISION_STRICT,
      .x_layout = LAC_LAYOUT_FEATURE_MAJOR,
      .y_layout = LAC_LAYOUT_FEATURE_MAJOR,
      .activation = LAC_ACTIVATION_GELU_TANH}},
    {LAC_DTYPE_BF16, LAC_DTYPE_F32, {.activation = LAC_ACTIVATION_RELU}},
    {LAC_DTYPE_F32, LAC_DTYPE_NONE, {.precision = LAC_PRECISION_FAST}},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

static int64_t programs, spilling;

static int on_program(void *user, const lac_compile_report *report)
{
    const variant *v = user;
    programs++;
    if (report->spill_bytes == 0 && report->registers > 0) return 0;
    spilling++;
    print_error("%s, entry %s, %s, %s, m %lld, %s, precision %d: %d registers, %d bytes spilled\n", report->kernel,
                report->entry, report->arch, report->pattern, (long long)report->m, lac_dtype_name(v->dtype),
                (int)v->plan.precision, (int)report->registers, (int)report->spill_bytes);
    return 0;
}

static const int64_t tokens[] = {1, 8, 64, 4096};
enum { TOKENS = sizeof tokens / sizeof *tokens, SHARE = 4 };

static void compile(const char *kernel, int arch, int pattern, int number)
{
    lac_pattern parsed;
    assert_ok(lac_pattern_parse(patterns[pattern], &parsed));
    lac_kernels_compile_options options = {.size = sizeof options,
                                           .archs = &archs[arch],
                                           .arch_count = 1,
                                           .patterns = &parsed,
                                           .pattern_count = 1,
                                           .n = 1024,
                                           .k = 1024,
                                           .m = tokens,
                                           .m_count = TOKENS,
                                           .dtype = variants[number].dtype,
                                           .plan = variants[number].plan,
                                           .folder = getenv("LAC_TEST_KERNEL_CACHE"),
                                           .on_program = on_program,
                                           .user = (void *)(uintptr_t)&variants[number]};
    options.plan.y_dtype = variants[number].y_dtype;
    options.plan.kernel = kernel;
    test_describe("%s, %s, %s, variant %d", kernel, archs[arch], patterns[pattern], number);
    lac_status status = lac_kernels_compile(&options);
    if (status != LAC_STATUS_NOT_FOUND) assert_ok(status); /* that one: it does not apply here */
}

static void one_arch(test_random *random, int64_t arch, void *user)
{
    (void)random, (void)user;
    const char *wish = getenv("LAC_TEST_KERNELS");
    bool all = wish && !strcmp(wish, "all");
    for (size_t kernel = 0; kernel < lac_cuda_kernel_count; kernel++)
        for (int pattern = 0; pattern < PATTERNS; pattern++)
            for (int number = 0; number < VARIANTS; number++)
                if (all || ((pattern + number + arch) % VARIANTS == 0 && ((int64_t)kernel + 2 * arch + pattern) % SHARE == 0))
                    compile(lac_cuda_kernels[kernel].info.name, (int)arch, pattern, number);
}

static void every_kernel_compiles_without_spills(void **state)
{
    (void)state;
    test_run_all("arch", ARCHS, one_arch, NULL);
    print_message("%lld programs, %lld of them spill\n", (long long)programs, (long long)spilling);
    assert_true(programs > 0);
    assert_int_equal(spilling, 0);
}

/* Whether a kernel applies to anything at all that is compiled above. */
static bool applies_somewhere(const lac_kernel *kernel, const lac_device *target, const lac_weight *weight, const variant *v)
{
    lac_problem problem = {target, weight, 0, v->plan, kernel};
    problem.options.y_dtype = v->y_dtype;
    assert_ok(lac_plan_options_resolve(weight, target, &problem.options));
    for (int i = 0; i < TOKENS; i++) {
        problem.m = tokens[i];
        if (kernel->applies(&problem)) return true;
    }
    return false;
}

static void the_cases_reach_every_kernel(void **state)
{
    (void)state;
    bool reached[256] = {false};
    for (int arch = 0; arch < ARCHS; arch++) {
        lac_device *target = NULL;
        assert_ok(lac_cuda_target_open(archs[arch], &target));
        for (int pattern = 0; pattern < PATTERNS; pattern++) {
            for (int number = 0; number < VARIANTS; number++) {
                lac_pattern parsed;
                lac_weight *weight = NULL;
                if ((pattern + number + arch) % VARIANTS) continue;
                assert_ok(lac_pattern_parse(patterns[pattern], &parsed));
                assert_ok(lac_weight_sample(&parsed, 1024, 1024, variants[number].dtype, &weight));
                for (size_t i = 0; i < lac_cuda_kernel_count; i++)
                    if (((int64_t)i + 2 * arch + pattern) % SHARE == 0)
                        reached[i] = applies_somewhere(&lac_cuda_kernels[i], target, weight, &variants[number]) || reached[i];
                lac_weight_free(weight);
            }
        }
        lac_device_close(target);
    }
    for (size_t i = 0; i < lac_cuda_kernel_count; i++)
        if (!reached[i]) fail_msg("%s comes up in no case: add a pattern or a variant", lac_cuda_kernels[i].info.name);
}

int main(void)
{
    const char *note;
    if (!lac_nvrtc_get(&note)) {
        printf("skipped: %s\n", note);
        return 77;
    }
    printf("%s\n", note);
    test_seed();
    if (!getenv("LAC_TEST_KERNEL_CACHE")) setenv("LAC_TEST_KERNEL_CACHE", test_path("kernels"), 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_cases_reach_every_kernel),
                                       test_of_cases(every_kernel_compiles_without_spills)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
