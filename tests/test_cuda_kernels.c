/* test_cuda_kernels.c - every registered CUDA kernel compiles for every architecture, by NVRTC alone and without a GPU, and
 * none uses more registers than there are. A problem is a pattern, a variant (dtypes, precision, layouts, epilogue) and a
 * number of tokens; of those that a kernel takes on an architecture two are compiled, others on each architecture, or all with
 * LAC_TEST_KERNELS=all; and always some that take every register. One case is one architecture: ctest runs each as a test of its
 * own. Compiled programs stay in the folder that LAC_TEST_KERNEL_CACHE names, so that a second run takes seconds. */
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/backend.h"
#include "cuda/nvrtc.h"
#include "cuda/program.h"
#include "cuda/runtime.h"
#include "cuda/state.h"
#include "format/sample.h"

static const char *const archs[] = {"sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120"};
static const char *const patterns[] = {"2:4",        "vw32:8:32", "vw32:16:32", "64:2:8", "shfl64:25%",
                                       "bw4x4:2:8",  "3:7",       "vw24:3:10",  "8:32",   "128:2:16",
                                       "bw16x4:25%", "vw32:4:32", "5:13",       "25%",    "vw128:8:32"};
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

/* Arrays on a thread's stack cost what spills cost. cuda_f16_mma_expand has some on sm_75, and with 1 and 8 tokens on sm_86 and sm_89; what
 * they cost there nobody has measured. With one token the planner has cuda_spmv_gather, and only its name chooses this one. */
static bool may_have_a_stack(const lac_compile_report *r)
{
    return !strcmp(r->arch, "sm_75") || (r->m <= 8 && !strcmp(r->kernel, "cuda_f16_mma_expand"));
}

/* Tiles of cuda_f16_gather of which two are on a multiprocessor have 80 registers, and with a residual and an erf-GELU one of them is
 * spilled, once a tile, by itself and within cuda_unshuffle (docs/testing.md tells of all that spill). */
static bool may_spill_a_register(const lac_compile_report *r)
{
    return !strcmp(r->entry, "lac_gather") && r->registers == 80 && r->spill_bytes == 4;
}

static int on_program(void *user, const lac_compile_report *report)
{
    const variant *v = user;
    programs++;
    if (may_spill_a_register(report)) return 0;
    bool stacked = report->stack_bytes > 0 && !may_have_a_stack(report);
    if (report->spill_bytes == 0 && !stacked && report->registers > 0 && !report->serialized) return 0;
    spilling++;
    print_error("%s, entry %s, %s, %s, m %lld, %s, precision %d: %d registers, %d bytes spilled, %d of stack%s\n",
                report->kernel, report->entry, report->arch, report->pattern, (long long)report->m, lac_dtype_name(v->dtype),
                (int)v->plan.precision, (int)report->registers, (int)report->spill_bytes, (int)report->stack_bytes,
                report->serialized ? ", products one behind the other" : "");
    return 0;
}

static const int64_t tokens[] = {1, 8, 64, 4096};
enum {
    TOKENS = sizeof tokens / sizeof *tokens,
    MANY = TOKENS - 1,
    SIZE = 1024,
    PROBLEMS = PATTERNS * VARIANTS * TOKENS,
    CASES = 2
};

typedef struct problem {
    int pattern, variant, tokens; /* numbers in the tables */
} problem;

/* Adds the problems that each kernel takes on the target: problems[kernel][counts[kernel]]. */
static void find_problems(const lac_device *target, problem (*problems)[PROBLEMS], int *counts)
{
    for (int pattern = 0; pattern < PATTERNS; pattern++) {
        for (int number = 0; number < VARIANTS; number++) {
            lac_pattern parsed;
            lac_weight *weight = NULL;
            const variant *v = &variants[number];
            assert_ok(lac_pattern_parse(patterns[pattern], &parsed));
            assert_ok(lac_weight_sample(&parsed, SIZE, SIZE, v->dtype, &weight));
            lac_problem asked = {target, weight, 0, v->plan, NULL};
            asked.options.y_dtype = v->y_dtype;
            assert_ok(lac_plan_options_resolve(weight, target, &asked.options));
            for (size_t i = 0; i < lac_cuda_kernel_count; i++) {
                for (int t = 0; t < TOKENS; t++) {
                    asked.m = tokens[t];
                    asked.kernel = &lac_cuda_kernels[i];
                    if (asked.kernel->applies(&asked)) problems[i][counts[i]++] = (problem){pattern, number, t};
                }
            }
            lac_weight_free(weight);
        }
    }
}

static void compile(const char *kernel, int arch, const char *pattern, const variant *v, int many)
{
    lac_pattern parsed;
    assert_ok(lac_pattern_parse(pattern, &parsed));
    lac_plan_options plan = v->plan;
    plan.size = sizeof plan, plan.y_dtype = v->y_dtype, plan.kernel = kernel;
    lac_kernels_compile_options options = {.size = sizeof options,
                                           .archs = &archs[arch],
                                           .arch_count = 1,
                                           .patterns = &parsed,
                                           .pattern_count = 1,
                                           .n = SIZE,
                                           .k = SIZE,
                                           .m = &tokens[many],
                                           .m_count = 1,
                                           .dtype = v->dtype,
                                           .plan = &plan,
                                           .folder = getenv("LAC_TEST_KERNEL_CACHE"),
                                           .on_program = on_program,
                                           .user = (void *)(uintptr_t)v};
    test_describe("%s, %s, %s, %s, precision %d, %lld tokens", kernel, archs[arch], pattern, lac_dtype_name(v->dtype),
                  (int)v->plan.precision, (long long)tokens[many]);
    assert_ok(lac_kernels_compile(&options));
}

/* Tiles that are stored under the next one's products take every register that there is, and few of the problems have them: they are compiled
 * always. So is a ring whose threads hold so much of W that its tiles are not stored so. */
static const struct {
    const char *kernel, *pattern;
    bool is_early;
} early[] = {
    {"cuda_f16_gather", "vw128:8:32", true}, {"cuda_f16_expand_ring", "4:8", true},   {"cuda_f16_expand_ring", "8:16", true},
    {"cuda_f16_expand_ring", "16:32", true}, {"cuda_f16_expand_ring", "4:16", true},  {"cuda_f16_expand_ring", "8:32", true},
    {"cuda_f16_expand_ring", "9:16", true},  {"cuda_f16_expand_ring", "17:32", true}, {"cuda_f16_expand_ring", "5:8", false}};
static const variant early_variants[] = {
    {LAC_DTYPE_F16, LAC_DTYPE_NONE, {.x_layout = LAC_LAYOUT_FEATURE_MAJOR, .y_layout = LAC_LAYOUT_FEATURE_MAJOR}},
    {LAC_DTYPE_F16,
     LAC_DTYPE_NONE,
     {.has_bias = 1, .x_layout = LAC_LAYOUT_FEATURE_MAJOR, .y_layout = LAC_LAYOUT_FEATURE_MAJOR}}};

/* Whether the program that multiplies aligned X is of that kind. */
static bool is_early(const lac_device *target, const char *kernel, const char *pattern, const variant *v)
{
    lac_pattern parsed;
    lac_weight *weight = NULL;
    lac_cuda_request requests[LAC_CUDA_MOST_REQUESTS];
    int count = 0;
    bool found = false;
    assert_ok(lac_pattern_parse(pattern, &parsed));
    assert_ok(lac_weight_sample(&parsed, SIZE, SIZE, v->dtype, &weight));
    lac_problem asked = {target, weight, tokens[MANY], v->plan, NULL};
    assert_ok(lac_plan_options_resolve(weight, target, &asked.options));
    for (size_t i = 0; i < lac_cuda_kernel_count; i++)
        if (!strcmp(lac_cuda_kernels[i].info.name, kernel)) asked.kernel = &lac_cuda_kernels[i];
    assert_true(asked.kernel && asked.kernel->applies(&asked));
    assert_ok(((const lac_cuda_flow *)asked.kernel->config)->requests(&asked, requests, &count));
    for (int i = 0; i < requests[0].define_count; i++) found |= !strcmp(requests[0].defines[i].name, "LAC_EARLY");
    lac_weight_free(weight);
    return found;
}

static void compile_early(const lac_device *target, int arch)
{
    if (!lac_cuda_target_of(target)->has_wgmma) return;
    for (size_t i = 0; i < sizeof early / sizeof *early; i++)
        for (size_t v = 0; v < sizeof early_variants / sizeof *early_variants; v++) {
            if (is_early(target, early[i].kernel, early[i].pattern, &early_variants[v]) != early[i].is_early)
                fail_msg("%s with %s: whether LAC_EARLY is set has changed", early[i].kernel, early[i].pattern);
            compile(early[i].kernel, arch, early[i].pattern, &early_variants[v], MANY);
        }
}

static void one_arch(test_random *random, int64_t arch, void *user)
{
    (void)random, (void)user;
    const char *wish = getenv("LAC_TEST_KERNELS");
    bool all = wish && !strcmp(wish, "all");
    lac_device *target = NULL;
    problem(*problems)[PROBLEMS] = calloc(lac_cuda_kernel_count, sizeof *problems);
    int *counts = calloc(lac_cuda_kernel_count, sizeof *counts);
    assert_true(problems && counts);
    assert_ok(lac_cuda_target_open(archs[arch], &target));
    find_problems(target, problems, counts);
    for (size_t i = 0; i < lac_cuda_kernel_count; i++) {
        int cases = all || counts[i] < CASES ? counts[i] : CASES;
        /* Evenly over the list, from a place of its own for each architecture and kernel. */
        for (int j = 0; j < cases; j++) {
            int64_t at = arch * counts[i] / ARCHS + 5 * (int64_t)i + (int64_t)j * counts[i] / cases;
            const problem *p = &problems[i][at % counts[i]];
            compile(lac_cuda_kernels[i].info.name, (int)arch, patterns[p->pattern], &variants[p->variant], p->tokens);
        }
    }
    compile_early(target, (int)arch);
    lac_device_close(target);
    free(problems);
    free(counts);
}

static void every_kernel_compiles_without_spills(void **state)
{
    (void)state;
    test_run_all("arch", ARCHS, one_arch, NULL);
    print_message("%lld programs, %lld of them spill\n", (long long)programs, (long long)spilling);
    assert_true(programs > 0);
    assert_int_equal(spilling, 0);
}

/* A kernel that no architecture ever compiles would not be tested at all. */
static void the_problems_reach_every_kernel(void **state)
{
    (void)state;
    problem(*problems)[PROBLEMS] = calloc(lac_cuda_kernel_count, sizeof *problems);
    int *counts = calloc(lac_cuda_kernel_count, sizeof *counts), *reached = calloc(lac_cuda_kernel_count, sizeof *reached);
    assert_true(problems && counts && reached);
    for (int arch = 0; arch < ARCHS; arch++) {
        lac_device *target = NULL;
        assert_ok(lac_cuda_target_open(archs[arch], &target));
        memset(counts, 0, lac_cuda_kernel_count * sizeof *counts);
        find_problems(target, problems, counts);
        for (size_t i = 0; i < lac_cuda_kernel_count; i++) reached[i] += counts[i];
        lac_device_close(target);
    }
    for (size_t i = 0; i < lac_cuda_kernel_count; i++)
        if (!reached[i]) fail_msg("%s takes none of the problems: add a pattern or a variant", lac_cuda_kernels[i].info.name);
    free(problems);
    free(counts);
    free(reached);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_problems_reach_every_kernel),
                                       test_of_cases(every_kernel_compiles_without_spills)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
