/* test_cuda_machine.c - the same library on different machines: without a driver, with one that is too old or sees no GPU,
 * without the compiler, with another version of it. What is found is found once in a process, so each machine is a child
 * process of its own, with its own environment. */
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* In a child cmocka cannot judge: the first thing that does not hold ends it. */
#define need(condition)                                                                                                        \
    do {                                                                                                                       \
        if (!(condition)) {                                                                                                    \
            fprintf(stderr, "%s:%d: %s does not hold; last error: %s\n", __FILE__, __LINE__, #condition, lac_last_error());    \
            _exit(1);                                                                                                          \
        }                                                                                                                      \
    } while (0)

typedef struct machine {
    const char *cuda, *nvrtc, *init, *nvrtc_minor, *cache, *cublaslt;
} machine;

static void put_env(const char *name, const char *value)
{
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

static void on(const machine *m, void (*body)(void))
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        put_env("LAC_CUDA_LIBRARY", m->cuda);
        put_env("LAC_NVRTC_LIBRARY", m->nvrtc);
        put_env("FAKE_CUDA_INIT", m->init);
        put_env("FAKE_NVRTC_MINOR", m->nvrtc_minor);
        put_env("LAC_CACHE_DIR", m->cache);
        put_env("LAC_CUBLASLT_LIBRARY", m->cublaslt ? m->cublaslt : "/nowhere/libcublasLt.so");
        body();
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* The CPU works as ever, and "auto" is it. */
static void need_cpu(void)
{
    lac_device *device = NULL;
    lac_device_info info = {.size = sizeof info};
    need(!lac_device_open("auto", &device) && !lac_device_get_info(device, &info));
    need(!strcmp(info.name, "cpu"));
    lac_device_close(device);
}

static void need_no_gpu(const char *in_note)
{
    lac_device *device = NULL;
    lac_device_info info = {.size = sizeof info};
    lac_component_info component = {.size = sizeof component};
    need_cpu();
    need(!lac_component_probe(0, &component));
    need(!component.available && strstr(component.note, in_note));
    if (lac_device_probe(1, &info)) {
        need(lac_device_open("cuda:0", &device) == LAC_STATUS_NOT_FOUND);
    } else {
        need(!info.available && strstr(info.note, in_note) && lac_device_probe(2, &info) == LAC_STATUS_NOT_FOUND);
        need(lac_device_open("cuda:0", &device) == LAC_STATUS_DEVICE && strstr(lac_last_error(), in_note));
    }
    need(!device);
}

static void expect_missing(void) { need_no_gpu("/nowhere/libcuda.so"); }
static void expect_old(void) { need_no_gpu("CUDA 11.4) is too old: it has no cuLaunchKernelEx"); }
static void expect_none(void) { need_no_gpu("finds no GPU"); }
static void expect_stub(void) { need_no_gpu("stub"); }
static void expect_broken(void) { need_no_gpu("cuInit failed: CUDA_ERROR_FAKE"); }

static void no_driver(void **state)
{
    (void)state;
    on(&(machine){.cuda = "/nowhere/libcuda.so", .nvrtc = FAKE_NVRTC}, expect_missing);
}

static void a_driver_that_will_not_do(void **state)
{
    (void)state;
    on(&(machine){.cuda = FAKE_CUDA_OLD, .nvrtc = FAKE_NVRTC}, expect_old);
    on(&(machine){.cuda = FAKE_CUDA, .nvrtc = FAKE_NVRTC, .init = "100"}, expect_none);
    on(&(machine){.cuda = FAKE_CUDA, .nvrtc = FAKE_NVRTC, .init = "34"}, expect_stub);
    on(&(machine){.cuda = FAKE_CUDA, .nvrtc = FAKE_NVRTC, .init = "999"}, expect_broken);
}

/* ---- the compiler */

static lac_status plan_on_gpu(void)
{
    float values[8 * 8];
    for (int i = 0; i < 64; i++) values[i] = (float)i;
    lac_matrix dense = {.data = values, .dtype = LAC_DTYPE_F32, .rows = 8, .cols = 8};
    lac_pattern pattern;
    lac_mask *mask = NULL;
    lac_weight *weight = NULL;
    lac_device *device = NULL;
    lac_plan *plan = NULL;
    need(!lac_pattern_parse("2:4", &pattern) && !lac_prune(&dense, &pattern, NULL, &mask));
    need(!lac_weight_compress(&dense, mask, NULL, &weight) && !lac_device_open("cuda:0", &device));
    lac_plan_options options = {.size = sizeof options, .kernel = "cuda_f32_plain"};
    lac_status status = lac_plan_create(device, weight, 4, &options, &plan);
    lac_plan_free(plan);
    lac_weight_free(weight);
    lac_mask_free(mask);
    lac_device_close(device);
    return status;
}

static void expect_plan(void) { need(plan_on_gpu() == LAC_STATUS_OK); }

static void expect_no_compiler(void)
{
    lac_component_info component = {.size = sizeof component};
    lac_device_info info = {.size = sizeof info};
    need(!lac_component_probe(1, &component) && !component.available && strstr(component.note, "/nowhere/libnvrtc.so"));
    need(!lac_device_probe(1, &info) && info.available && strstr(info.note, "only kernels from the cache"));
    need(plan_on_gpu() == LAC_STATUS_UNSUPPORTED && strstr(lac_last_error(), "there is no compiler"));
    lac_pattern pattern;
    const char *arch = "sm_90a";
    need(!lac_pattern_parse("2:4", &pattern));
    lac_kernels_compile_options options = {
        .size = sizeof options, .archs = &arch, .arch_count = 1, .patterns = &pattern, .pattern_count = 1};
    need(lac_kernels_compile(&options) == LAC_STATUS_UNSUPPORTED && strstr(lac_last_error(), "cuda_f32_plain, sm_90a, 2:4"));
}

static int64_t files_in(const char *folder)
{
    char command[600];
    snprintf(command, sizeof command, "ls -A '%s' | wc -l", folder);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    long long count = -1;
    assert_int_equal(fscanf(pipe, "%lld", &count), 1);
    pclose(pipe);
    return count;
}

static void no_compiler(void **state)
{
    (void)state;
    char cache[512];
    snprintf(cache, sizeof cache, "%s", test_path("cache"));
    on(&(machine){.cuda = FAKE_CUDA, .nvrtc = "/nowhere/libnvrtc.so", .cache = cache}, expect_no_compiler);
    on(&(machine){.cuda = FAKE_CUDA, .nvrtc = FAKE_NVRTC, .cache = cache}, expect_plan);
    assert_int_equal(files_in(cache), 1);
    /* What one machine compiled runs on another without a compiler. */
    on(&(machine){.cuda = FAKE_CUDA, .nvrtc = "/nowhere/libnvrtc.so", .cache = cache}, expect_plan);
}

static void another_compiler_has_entries_of_its_own(void **state)
{
    (void)state;
    char cache[512];
    snprintf(cache, sizeof cache, "%s", test_path("versions"));
    machine m = {.cuda = FAKE_CUDA, .nvrtc = FAKE_NVRTC, .cache = cache};
    on(&m, expect_plan);
    on(&m, expect_plan);
    assert_int_equal(files_in(cache), 1);
    m.nvrtc_minor = "1";
    on(&m, expect_plan);
    assert_int_equal(files_in(cache), 2);
}

/* ---- the vendor's dense library */

/* What is picked where dense would win, and what the plan says; with the library named as a wish too. */
static void need_dense(bool there, const char *in_note)
{
    enum { SIZE = 1024 };
    lac_component_info component = {.size = sizeof component};
    need(!lac_component_probe(4, &component) && component.available == there && strstr(component.note, in_note));
    float *values = calloc((size_t)SIZE * SIZE, sizeof *values);
    lac_matrix dense = {.data = values, .dtype = LAC_DTYPE_F32, .rows = SIZE, .cols = SIZE};
    lac_pattern pattern;
    lac_mask *mask = NULL;
    lac_weight *weight = NULL;
    lac_device *device = NULL;
    lac_plan *plan = NULL;
    lac_plan_info info = {.size = sizeof info};
    need(values && !lac_pattern_parse("15:16", &pattern) && !lac_prune(&dense, &pattern, NULL, &mask));
    need(!lac_weight_compress(&dense, mask, NULL, &weight) && !lac_device_open("cuda:0", &device));
    lac_plan_options options = {.size = sizeof options, .precision = LAC_PRECISION_STRICT, .no_timing = 1};
    need(!lac_plan_create(device, weight, SIZE, &options, &plan) && !lac_plan_get_info(plan, &info));
    need(there == !strcmp(info.kernel, "cuda_cublaslt_dense"));
    need(there ? !*info.note : !strncmp(info.note, "cuda_cublaslt_dense is not offered: ", 36) && strstr(info.note, in_note));
    lac_plan_free(plan);
    plan = NULL;
    options.kernel = "cuda_cublaslt_dense";
    lac_status status = lac_plan_create(device, weight, SIZE, &options, &plan);
    need(there ? !status : status == LAC_STATUS_UNSUPPORTED && strstr(lac_last_error(), in_note));
    lac_plan_free(plan);
    lac_weight_free(weight);
    lac_mask_free(mask);
    lac_device_close(device);
    free(values);
}

static void expect_dense(void) { need_dense(true, ""); }
static void expect_no_dense(void) { need_dense(false, "/nowhere/libcublasLt.so"); }
static void expect_old_dense(void) { need_dense(false, "has no cublasLtMatmul: it is too old"); }

static void no_dense_library(void **state)
{
    (void)state;
    char cache[512];
    snprintf(cache, sizeof cache, "%s", test_path("dense"));
    machine m = {.cuda = FAKE_CUDA, .nvrtc = FAKE_NVRTC, .cache = cache, .cublaslt = FAKE_CUBLASLT};
    on(&m, expect_dense);
    m.cublaslt = "/nowhere/libcublasLt.so";
    on(&m, expect_no_dense);
    m.cublaslt = FAKE_CUBLASLT_OLD;
    on(&m, expect_old_dense);
}

int main(void)
{
    test_folder();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_driver),        cmocka_unit_test(a_driver_that_will_not_do),
        cmocka_unit_test(no_compiler),      cmocka_unit_test(another_compiler_has_entries_of_its_own),
        cmocka_unit_test(no_dense_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
