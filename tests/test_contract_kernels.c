/* test_contract_kernels.c - what lacuna.h says of the registry of kernels, and of compiling them ahead: with a compiler made for the tests
 * and no driver, so that what is judged is what is asked of the compiler, what is told of it, and where it is kept. */
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plan_case.h"

/* ---- the registry */

static void kernels_are_counted_and_named(void **state)
{
    (void)state;
    const char *names[256];
    lac_kernel_info info = {.size = sizeof info}, before;
    size_t count = 0;
    for (; lac_kernel_probe(count, &info) == LAC_STATUS_OK; count++) {
        assert_true(count < 256);
        assert_true(info.device == LAC_DEVICE_KIND_CPU || info.device == LAC_DEVICE_KIND_CUDA);
        assert_true(strlen(info.summary) > 10 && !strchr(info.summary, '\n'));
        assert_true(info.families && info.weight_dtypes && info.x_dtypes && info.y_dtypes);
        for (size_t i = 0; i < count; i++) assert_string_not_equal(names[i], info.name);
        names[count] = info.name;
    }
    before = info;
    assert_fails(lac_kernel_probe(count, &info), LAC_STATUS_NOT_FOUND, "index is");
    assert_fails(lac_kernel_probe(SIZE_MAX, &info), LAC_STATUS_NOT_FOUND, "index is");
    assert_memory_equal(&info, &before, sizeof info);
}

static const char *const families[] = {NULL, "2:4", "vw32:8:32", "bw32x32:1:2", "64:2:8", "shfl32:50%"};
static const char *const others[] = {NULL, "50%", "vw32:25%", "bw4x4:2:8", "4:2:4", "shfl64:25%"};

/* Adds what the kernel takes of this weight to the bits that it was seen to take. */
static void try_kernel(lac_device *device, const lac_kernel_info *kernel, const lac_weight *weight, lac_kernel_info *seen)
{
    lac_weight_info info = weight_info(weight);
    for (int code = 0; code < 3 * 3 * 3 * 2; code++) {
        static const int64_t tokens[] = {1, 8, 256};
        int x = LAC_DTYPE_F32 + code % 3, y = LAC_DTYPE_F32 + code / 3 % 3;
        lac_plan_options options = {.size = sizeof options, .kernel = kernel->name, .predict_only = 1};
        options.x_dtype = (lac_dtype)x, options.y_dtype = (lac_dtype)y;
        options.x_layout = options.y_layout = (lac_layout)(code / 27);
        lac_plan *plan = NULL;
        lac_status status = lac_plan_create(device, weight, tokens[code / 9 % 3], &options, &plan);
        lac_plan_free(plan);
        if (status == LAC_STATUS_UNSUPPORTED) continue;
        assert_ok(status);
        seen->families |= 1u << info.pattern.family;
        seen->weight_dtypes |= 1u << info.dtype;
        seen->x_dtypes |= 1u << x;
        seen->y_dtypes |= 1u << y;
    }
}

/* The bits of a kernel of this CPU are what it takes, no less and no more. */
static void bits_say_what_a_kernel_takes(void **state)
{
    (void)state;
    static lac_kernel_info seen[256];
    test_random random = test_random_make("bits", 0);
    lac_kernel_info kernel = {.size = sizeof kernel};
    lac_device *cpu = NULL;
    assert_ok(lac_device_open("cpu", &cpu));
    for (int code = 0; code < 5 * 3 * 2; code++) {
        int family = LAC_FAMILY_ELEMENT + code % 5, dtype = LAC_DTYPE_F32 + code / 5 % 3;
        lac_pattern pattern = pattern_of((code < 15 ? families : others)[family]);
        lac_weight *weight = weight_make(&random, &pattern, 64, 128, (lac_dtype)dtype, TEST_FILL_GAUSSIAN);
        for (size_t i = 0; lac_kernel_probe(i, &kernel) == LAC_STATUS_OK; i++)
            if (kernel.device == LAC_DEVICE_KIND_CPU) try_kernel(cpu, &kernel, weight, &seen[i]);
        lac_weight_free(weight);
    }
    lac_device_close(cpu);
    for (size_t i = 0; lac_kernel_probe(i, &kernel) == LAC_STATUS_OK; i++) {
        const lac_kernel_info *s = &seen[i];
        if (!s->families) continue; /* a GPU's, or of a vector unit that is not here */
        if (s->families != kernel.families || s->weight_dtypes != kernel.weight_dtypes || s->x_dtypes != kernel.x_dtypes ||
            s->y_dtypes != kernel.y_dtypes)
            fail_msg("%s says families %x, weights %x, x %x, y %x, but takes %x, %x, %x, %x", kernel.name, kernel.families,
                     kernel.weight_dtypes, kernel.x_dtypes, kernel.y_dtypes, s->families, s->weight_dtypes, s->x_dtypes,
                     s->y_dtypes);
    }
}

/* ---- compiling ahead */

enum { MOST_PROGRAMS = 512 };

typedef struct programs {
    int count, found, timing, stop_after, archs; /* archs: bits, which of `archs` were told */
    int64_t total, least_m, most_m;
    bool usual;      /* every m was one of the header's */
    char kernel[64]; /* all of this one; "" when of several */
    int64_t n, k;
} programs;

static const char *const archs[] = {"sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120"};
enum { ARCHS = sizeof archs / sizeof *archs };
static const int64_t tokens[] = {1, 8, 16, 64, 256, 4096}; /* unless others are said */

static int see(void *user, const lac_compile_report *report)
{
    programs *p = user;
    lac_kernel_info kernel = {.size = sizeof kernel};
    bool known = false;
    assert_int_equal(report->size, sizeof *report);
    assert_int_equal(report->index, p->count);
    assert_true(report->total > report->index && (p->count == 0 || report->total == p->total));
    assert_true(strlen(report->entry) > 0 && report->image_bytes > 0 && report->seconds >= 0 && report->m > 0);
    assert_string_equal(report->pattern, "2:4");
    int arch = 0;
    while (arch < ARCHS && strcmp(archs[arch], report->arch) != 0) arch++;
    assert_true(arch < ARCHS);
    p->archs |= 1 << arch;
    assert_true(report->found == 0 || report->found == 1);
    assert_true(report->registers >= 0 && report->spill_bytes >= 0 && report->shared_bytes >= 0 && report->stack_bytes >= 0);
    for (size_t i = 0; lac_kernel_probe(i, &kernel) == LAC_STATUS_OK; i++)
        known = known || (kernel.device == LAC_DEVICE_KIND_CUDA && !strcmp(kernel.name, report->kernel));
    bool timing = !strcmp(report->kernel, "timing");
    assert_true(known || timing);
    if (p->count == 0) snprintf(p->kernel, sizeof p->kernel, "%s", report->kernel);
    if (strcmp(p->kernel, report->kernel) != 0) p->kernel[0] = '\0';
    p->total = report->total, p->n = report->n, p->k = report->k;
    p->timing += timing;
    p->found += report->found;
    if (p->count == 0) p->usual = true, p->least_m = p->most_m = report->m;
    if (report->m > p->most_m) p->most_m = report->m;
    if (report->m < p->least_m) p->least_m = report->m;
    bool usual = false;
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) usual = usual || report->m == tokens[i];
    p->usual = p->usual && usual;
    return ++p->count == p->stop_after;
}

/* With what `given` says, and what must be said where it says nothing. */
static lac_status compile(lac_kernels_compile_options given, const char *folder, programs *p)
{
    static lac_pattern pattern;
    assert_ok(lac_pattern_parse("2:4", &pattern));
    given.size = sizeof given;
    if (!given.archs) given.archs = &archs[4], given.arch_count = 1;
    given.patterns = &pattern, given.pattern_count = 1;
    given.folder = folder, given.on_program = see, given.user = p;
    return lac_kernels_compile(&given);
}

static bool is_folder(const char *path)
{
    struct stat found;
    return stat(path, &found) == 0 && S_ISDIR(found.st_mode);
}

/* The folder is made; what was compiled is found; another default than the header's would be compiled anew. */
static void defaults_are_those_of_the_header(void **state)
{
    (void)state;
    char folder[512];
    programs first = {0}, again = {0}, said = {0}, fewer = {0}, plan = {0};
    lac_plan_options unsaid = {.size = sizeof unsaid};
    snprintf(folder, sizeof folder, "%s", test_path("defaults"));
    assert_false(is_folder(folder));
    assert_ok(compile((lac_kernels_compile_options){0}, folder, &first));
    assert_true(is_folder(folder));
    assert_true(first.count > 10 && first.count == first.total && first.found == 0 && first.timing == 1);
    assert_true(first.n == 4096 && first.k == 4096 && first.least_m == 1 && first.most_m == 4096 && first.usual);
    assert_string_equal(first.kernel, "");
    assert_ok(compile((lac_kernels_compile_options){0}, folder, &again));
    assert_true(again.count == first.count && again.found == first.count);
    assert_ok(compile((lac_kernels_compile_options){.n = 4096, .k = 4096, .m = tokens, .m_count = 6, .dtype = LAC_DTYPE_F32},
                      folder, &said));
    assert_true(said.count == first.count && said.found == first.count);
    assert_ok(compile((lac_kernels_compile_options){.plan = &unsaid}, folder, &plan));
    assert_true(plan.count == first.count && plan.found == first.count);
    assert_ok(compile((lac_kernels_compile_options){.m = tokens, .m_count = 1}, folder, &fewer));
    assert_true(fewer.count < first.count && fewer.found == fewer.count);
}

static void other_requests_are_other_programs(void **state)
{
    (void)state;
    char folder[512];
    programs half = {0}, one = {0}, strict = {0};
    snprintf(folder, sizeof folder, "%s", test_path("requests"));
    assert_ok(compile((lac_kernels_compile_options){0}, folder, &(programs){0}));
    assert_ok(compile((lac_kernels_compile_options){.dtype = LAC_DTYPE_F16}, folder, &half));
    assert_true(half.found < half.count);
    lac_plan_options forced = {.size = sizeof forced, .kernel = "cuda_f32_plain"};
    assert_ok(compile((lac_kernels_compile_options){.plan = &forced}, folder, &one));
    assert_string_equal(one.kernel, "cuda_f32_plain");
    assert_int_equal(one.found, one.count);
    forced = (lac_plan_options){.size = sizeof forced, .activation = LAC_ACTIVATION_SILU, .x_layout = LAC_LAYOUT_FEATURE_MAJOR};
    assert_ok(compile((lac_kernels_compile_options){.plan = &forced}, folder, &strict));
    assert_true(strict.found < strict.count);
}

static void every_architecture_has_its_programs(void **state)
{
    (void)state;
    lac_plan_options plan = {.size = sizeof plan, .kernel = "cuda_f32_plain"};
    programs all = {0};
    lac_kernels_compile_options options = {.archs = archs, .arch_count = ARCHS, .plan = &plan};
    assert_ok(compile(options, test_path("archs"), &all));
    assert_true(all.found == 0 && all.count >= ARCHS && all.archs == (1 << ARCHS) - 1);
}

static void a_callback_stops_it(void **state)
{
    (void)state;
    for (int stop = 1; stop < 4; stop++) {
        programs p = {.stop_after = stop};
        assert_fails(compile((lac_kernels_compile_options){0}, test_path("stopped"), &p), LAC_STATUS_CANCELLED, "on_program");
        assert_int_equal(p.count, stop);
        assert_int_equal(p.found, stop - 1); /* what was compiled before it stopped stays */
    }
}

static void without_a_folder_it_goes_where_plans_look(void **state)
{
    (void)state;
    programs p = {0}, again = {0};
    assert_false(is_folder(getenv("LAC_CACHE_DIR")));
    assert_ok(compile((lac_kernels_compile_options){0}, NULL, &p));
    assert_true(is_folder(getenv("LAC_CACHE_DIR")) && p.found == 0);
    assert_ok(compile((lac_kernels_compile_options){0}, getenv("LAC_CACHE_DIR"), &again));
    assert_int_equal(again.found, p.count);
}

static void its_options_can_grow(void **state)
{
    (void)state;
    struct {
        lac_kernels_compile_options known;
        uint64_t later;
    } grown = {.known = {.size = sizeof grown, .archs = &archs[4], .arch_count = 1}};
    lac_pattern pattern = pattern_of("2:4");
    char folder[512];
    snprintf(folder, sizeof folder, "%s", test_path("grown"));
    grown.known.patterns = &pattern, grown.known.pattern_count = 1, grown.known.folder = folder;
    assert_ok(lac_kernels_compile(&grown.known));
    grown.later = 1;
    assert_fails(lac_kernels_compile(&grown.known), LAC_STATUS_INVALID_ARGUMENT, "options->size is");
    grown.known.size = offsetof(lac_kernels_compile_options, n); /* an old caller's; what is behind it is not read */
    grown.known.n = grown.known.k = -1, grown.known.m_count = 77, grown.known.dtype = (lac_dtype)99;
    grown.known.folder = (const char *)&grown, grown.known.on_program = NULL;
    assert_ok(lac_kernels_compile(&grown.known));
}

int main(void)
{
    setenv("LAC_CUDA_LIBRARY", "/nowhere/libcuda.so", 1);
    setenv("LAC_NVRTC_LIBRARY", FAKE_NVRTC, 1);
    setenv("LAC_CUBLASLT_LIBRARY", "/nowhere/libcublasLt.so", 1);
    setenv("LAC_CACHE_DIR", test_path("cache"), 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_are_counted_and_named),
        cmocka_unit_test(bits_say_what_a_kernel_takes),
        cmocka_unit_test(defaults_are_those_of_the_header),
        cmocka_unit_test(other_requests_are_other_programs),
        cmocka_unit_test(every_architecture_has_its_programs),
        cmocka_unit_test(a_callback_stops_it),
        cmocka_unit_test(without_a_folder_it_goes_where_plans_look),
        cmocka_unit_test(its_options_can_grow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
