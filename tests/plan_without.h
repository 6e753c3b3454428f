/* plan_without.h - for the tests of plans whose kernels cannot all be had: the fake driver, compiler and dense library, plans on them, and
 * what is told of these. */
#ifndef TEST_PLAN_WITHOUT_H
#define TEST_PLAN_WITHOUT_H

#include "support/support.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "fakes/cache_file.h"
#include "fakes/steer.h"

enum { M = 128, FEW = 8, N = 256, K = 256, CU_OUT_OF_MEMORY = 2, CU_LAUNCH_FAILED = 719 };
#define DENSE "cuda_cublaslt_dense"
static const size_t no_limit = (size_t)1 << 40;

/* Beside what steer.h steers. */
static long (*fake_compiled)(void);
static void (*fake_lose_at)(long number), (*fake_refuse_source)(const char *name);
static const char *(*fake_last_source)(void);

/* The setup of a group of tests. */
static inline int load_all_fakes(void **state)
{
    void *cuda = dlopen(FAKE_CUDA, RTLD_NOW), *nvrtc = dlopen(FAKE_NVRTC, RTLD_NOW);
    assert_true(cuda && nvrtc);
    fake_find(cuda, "fake_lose_at", &fake_lose_at);
    fake_find(nvrtc, "fake_compiled", &fake_compiled);
    fake_find(nvrtc, "fake_refuse_source", &fake_refuse_source);
    fake_find(nvrtc, "fake_last_source", &fake_last_source);
    return load_fakes(state);
}

/* ---- plans, and what is told of them */

typedef struct told {
    int count;
    char first[512]; /* the first warning */
} told;

static told warnings;

static inline void listen(void *user, lac_log_level level, const char *message)
{
    told *t = user;
    if (level != LAC_LOG_LEVEL_WARNING || !strstr(message, "could not be prepared")) return;
    if (!t->count++) snprintf(t->first, sizeof t->first, "%s", message);
}

typedef struct made {
    lac_status status;
    char kernel[64], note[512], error[1024];
    lac_plan_info info;
    int warnings;
} made;

static inline lac_weight *make_weight(const char *text)
{
    static float values[N * K];
    for (int i = 0; i < N * K; i++) values[i] = (float)(i % 7 - 3);
    lac_matrix dense = {.data = values, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K};
    lac_pattern pattern;
    lac_mask *mask = NULL;
    lac_weight *weight = NULL;
    lac_compress_options options = {.size = sizeof options, .dtype = LAC_DTYPE_F16};
    assert_ok(lac_pattern_parse(text, &pattern));
    assert_ok(lac_prune(&dense, &pattern, NULL, &mask));
    assert_ok(lac_weight_compress(&dense, mask, &options, &weight));
    lac_mask_free(mask);
    return weight;
}

/* On a device of its own, so that nothing is loaded yet; nothing may stay behind. */
static inline made plan_of(const lac_weight *weight, int64_t m, lac_plan_options options)
{
    made made = {.info = {.size = sizeof made.info}};
    lac_device *device = NULL;
    lac_plan *plan = NULL;
    int64_t live = test_allocator_live();
    options.size = sizeof options;
    warnings.count = 0;
    made.status = lac_device_open("cuda:0", &device);
    if (!made.status) made.status = lac_plan_create(device, weight, m, &options, &plan);
    if (made.status) {
        snprintf(made.error, sizeof made.error, "%s", lac_last_error());
        assert_null(plan);
    } else {
        assert_ok(lac_plan_get_info(plan, &made.info));
        snprintf(made.kernel, sizeof made.kernel, "%s", made.info.kernel);
        snprintf(made.note, sizeof made.note, "%s", made.info.note);
    }
    made.warnings = warnings.count;
    lac_plan_free(plan);
    lac_device_close(device);
    assert_int_equal(fake_live(), 0);
    assert_int_equal(fake_lt_live(), 0);
    assert_int_equal(test_allocator_live(), live);
    return made;
}

/* Comes first in main. */
static inline void use_fakes(void)
{
    setenv("LAC_CUDA_LIBRARY", FAKE_CUDA, 1);
    setenv("LAC_NVRTC_LIBRARY", FAKE_NVRTC, 1);
    setenv("LAC_CUBLASLT_LIBRARY", FAKE_CUBLASLT, 1);
    setenv("LAC_CACHE_DIR", test_path("cache"), 1);
    test_allocator_install();
    lac_set_log(listen, &warnings, LAC_LOG_LEVEL_WARNING);
}

#endif
