/* test_contract_fork.c - a child of fork() whose parent has used several threads: every call that keeps to one thread works in it, and
 * so does every call that does not say how many threads it takes. A child that waits for threads which are not there would wait
 * for ever, so it has so many seconds. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/support.h"

#if defined(__SANITIZE_THREAD__)
#define HAS_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HAS_THREAD_SANITIZER 1
#endif
#endif

/* Enough elements that several threads are worth it to everything that asks itself. */
enum { N = 320, K = 320, M = 64, SECONDS = 60 };

static struct {
    float w[N * K], x[M * K], y[M * N], out[N * K];
    lac_matrix dense;
    lac_pattern pattern;
    lac_mask *mask;
    lac_weight *weight;
    lac_device *device, *described; /* the CPU, and a GPU that is not here */
    lac_calibration *calibration;
} the;

/* ---- what is called, with so many threads where a call takes a number. Each returns 0 when all was well. */

static int calibrates(int32_t threads)
{
    lac_matrix x = {.data = the.x, .dtype = LAC_DTYPE_F32, .rows = M, .cols = K};
    return lac_calibration_add(the.calibration, &x, threads);
}

/* No argument of it says how many threads it takes. */
static int finds_the_error(int32_t threads)
{
    (void)threads;
    double error, total;
    return lac_calibration_error(the.calibration, &the.dense, &the.dense, &error, &total);
}

static int prunes_by(lac_method method, int32_t threads)
{
    lac_matrix out = {.data = the.out, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K};
    lac_prune_options options = {.size = sizeof options, .method = method, .threads = threads, .calibration = the.calibration};
    lac_mask *mask = NULL;
    if (lac_prune_and_correct(&the.dense, &the.pattern, &options, &out, &mask)) return 1;
    double kept, total;
    int failed = lac_mask_energy(mask, &the.dense, &kept, &total) || lac_pattern_check(&out, &the.pattern, NULL);
    lac_mask_free(mask);
    return failed;
}

static int prunes(int32_t threads) { return prunes_by(LAC_METHOD_MAGNITUDE, threads) || prunes_by(LAC_METHOD_WANDA, threads); }
static int prunes_by_obs(int32_t threads) { return prunes_by(LAC_METHOD_OBS, threads); }

/* Orders, gradients and both directions. */
static int prunes_otherwise(int32_t threads)
{
    lac_matrix out = {.data = the.out, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K};
    lac_gradients gradients = {.size = sizeof gradients, .data = the.w, .dtype = LAC_DTYPE_F32, .samples = 1};
    for (int way = 0; way < 3; way++) {
        lac_prune_options options = {.size = sizeof options, .threads = threads, .permute_rounds = 1};
        options.calibration = the.calibration, options.gradients = &gradients;
        options.method = way == 0 ? LAC_METHOD_OBS : way == 1 ? LAC_METHOD_FISHER : LAC_METHOD_MAGNITUDE;
        options.permute = way < 2 ? LAC_PERMUTE_COLUMNS : 0;
        options.transposable = way == 2;
        lac_mask *mask = NULL;
        if (lac_prune_and_correct(&the.dense, &the.pattern, &options, &out, &mask)) return 1 + way;
        lac_mask_free(mask);
    }
    return 0;
}

/* A checkpoint pruned to a pattern, and patterns chosen for it. */
static int prunes_a_checkpoint(int32_t threads)
{
    lac_prune_options prune = {.size = sizeof prune, .threads = threads};
    lac_compress_options compress = {.size = sizeof compress, .threads = threads};
    lac_plan_options plan = {.size = sizeof plan, .threads = threads};
    lac_checkpoint_options options = {.size = sizeof options, .prune = &prune, .compress = &compress};
    lac_allocate_options budget = {.size = sizeof budget, .patterns = &the.pattern, .pattern_count = 1, .m = M};
    lac_allocation *allocation = NULL;
    budget.budget = LAC_BUDGET_DENSITY, budget.amount = 0.5, budget.device = the.described, budget.plan = &plan;
    if (lac_checkpoint_allocate(test_path("in.npy"), &options, &budget, &allocation)) return 3;
    lac_allocation_free(allocation);
    budget.device = the.device;
    if (lac_checkpoint_allocate(test_path("in.npy"), &options, &budget, &allocation)) return 1;
    options.allocation = allocation;
    int failed = lac_checkpoint_prune(test_path("in.npy"), test_path("out.safetensors"), &options);
    lac_allocation_free(allocation);
    return failed ? 2 : 0;
}

static int compresses(int32_t threads)
{
    lac_compress_options options = {.size = sizeof options, .threads = threads};
    lac_weight *weight = NULL;
    int failed = lac_weight_compress(&the.dense, the.mask, &options, &weight);
    lac_weight_free(weight);
    return failed;
}

static int multiplies(int32_t threads)
{
    static const char *const kernels[] = {NULL, "cpu_scalar_f32_gather", "cpu_scalar_f32_dense"};
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        lac_plan_options options = {.size = sizeof options, .threads = threads, .kernel = kernels[i]};
        lac_plan *plan = NULL;
        lac_plan_info info = {.size = sizeof info};
        if (lac_plan_create(the.device, the.weight, M, &options, &plan) || lac_plan_get_info(plan, &info)) return 1;
        void *workspace = aligned_alloc(64, info.workspace_bytes / 64 * 64 + 64);
        lac_execute_args args = {.size = sizeof args, .x = the.x, .y = the.y, .workspace = workspace};
        args.workspace_bytes = info.workspace_bytes;
        int failed = lac_plan_execute(plan, &args);
        free(workspace);
        lac_plan_free(plan);
        if (failed) return 1;
    }
    return 0;
}

/* No argument of it says how many threads it takes. */
static int decompresses(int32_t threads)
{
    (void)threads;
    lac_matrix out = {.data = the.out, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K};
    if (lac_weight_decompress(the.weight, &out)) return 1;
    for (int i = 0; i < N * K; i++)
        if (the.out[i] != (lac_mask_get(the.mask, i / K, i % K) ? the.w[i] : 0)) return 2;
    return 0;
}

static int goes_through_a_file(int32_t threads)
{
    (void)threads;
    const char *path = test_path("forked.safetensors");
    lac_weight *weight = NULL;
    lac_matrix out = {.data = the.out, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K};
    if (lac_weight_save(the.weight, path, "w") || lac_weight_load(path, NULL, &weight)) return 1;
    int failed = lac_weight_decompress(weight, &out);
    lac_weight_free(weight);
    lac_file *file = NULL;
    if (lac_matrix_save_npy(&the.dense, path) || lac_file_open(path, &file)) return 2;
    failed = failed || lac_file_read_matrix(file, "array", &out);
    lac_file_close(file);
    unlink(path);
    return failed;
}

static const struct call {
    const char *name;
    int (*run)(int32_t threads);
} calls[] = {{"calibrations", calibrates},
             {"errors of calibrations", finds_the_error},
             {"pruning", prunes},
             {"pruning by obs", prunes_by_obs},
             {"other ways of pruning", prunes_otherwise},
             {"checkpoints", prunes_a_checkpoint},
             {"compressing", compresses},
             {"plans", multiplies},
             {"decompressing", decompresses},
             {"files", goes_through_a_file}};
enum { CALLS = sizeof calls / sizeof *calls };

/* ---- the two processes */

/* The child's result, or -1 when it had to be ended. */
static int in_child(const struct call *call)
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(SECONDS);
        signal(SIGALRM, SIG_DFL);
        _exit(call->run(1));
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void a_child_keeps_to_one_thread(void **state)
{
    (void)state;
#ifdef HAS_THREAD_SANITIZER
    skip(); /* it does not follow a fork of several threads */
#endif
    for (int i = 0; i < CALLS; i++) assert_int_equal(calls[i].run(3), 0);
    int failures = 0;
    for (int i = 0; i < CALLS; i++) {
        int result = in_child(&calls[i]);
        if (result == -1) print_error("%s: the child did not come back within %d s\n", calls[i].name, SECONDS);
        if (result > 0) print_error("%s: failed in the child with %d\n", calls[i].name, result);
        failures += result != 0;
    }
    assert_int_equal(failures, 0);
    for (int i = 0; i < CALLS; i++) assert_int_equal(calls[i].run(3), 0); /* and the parent is none the worse for it */
}

static int uses_the_cpu(int32_t threads)
{
    lac_device *device = NULL;
    if (lac_device_open("cpu", &device)) return 1;
    int failed = multiplies(threads);
    lac_device_close(device);
    return failed ? 2 : 0;
}

/* The driver is one made for the tests. */
static void a_child_keeps_to_the_cpu(void **state)
{
    (void)state;
#ifdef HAS_THREAD_SANITIZER
    skip();
#endif
    lac_device *gpu = NULL;
    assert_ok(lac_device_open("cuda:0", &gpu));
    assert_int_equal(in_child(&(struct call){"the CPU", uses_the_cpu}), 0);
    lac_device_close(gpu);
}

static int set_up(void **state)
{
    (void)state;
    test_random random = test_random_make("fork", 0);
    for (int i = 0; i < N * K; i++) the.w[i] = (float)test_random_gaussian(&random);
    for (int i = 0; i < M * K; i++) the.x[i] = (float)test_random_gaussian(&random);
    the.dense = (lac_matrix){.data = the.w, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K};
    test_folder();
    assert_ok(lac_pattern_parse("2:4", &the.pattern));
    assert_ok(lac_prune(&the.dense, &the.pattern, NULL, &the.mask));
    assert_ok(lac_weight_compress(&the.dense, the.mask, NULL, &the.weight));
    assert_ok(lac_calibration_create(K, &the.calibration));
    assert_ok(lac_device_open("cpu", &the.device));
    assert_ok(lac_device_open("h200", &the.described));
    assert_ok(lac_matrix_save_npy(&the.dense, test_path("in.npy")));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    lac_device_close(the.described);
    lac_device_close(the.device);
    lac_calibration_free(the.calibration);
    lac_weight_free(the.weight);
    lac_mask_free(the.mask);
    return 0;
}

int main(void)
{
    setenv("LAC_CUDA_LIBRARY", FAKE_CUDA, 1);
    setenv("LAC_NVRTC_LIBRARY", FAKE_NVRTC, 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_child_keeps_to_one_thread),
                                       cmocka_unit_test(a_child_keeps_to_the_cpu)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
