/* test_threads.c - many threads on one weight, one plan and one device: what the header promises to be shareable. Run
 * under the thread sanitizer too, where the plans keep to one OpenMP thread: the sanitizer cannot see into the OpenMP
 * library, so the case with OpenMP inside is skipped there. Threads count their failures; the main thread asserts. */
#include <pthread.h>

#include "plan_case.h"

#if defined(__SANITIZE_THREAD__)
#define HAS_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HAS_THREAD_SANITIZER 1
#endif
#endif

enum { THREADS = 8, ROUNDS = 20, TOKENS = 5, OUTPUTS = 40, INPUTS = 64 };

typedef struct shared {
    lac_device *device;
    lac_weight *weight;
    lac_plan *plan;
    lac_execute_args args; /* of the plan, without y and workspace */
    size_t workspace_bytes;
    float want[TOKENS * OUTPUTS];
    pthread_barrier_t barrier;
} shared;

typedef struct worker {
    pthread_t thread;
    shared *shared;
    int number;
    int failures;
    char first_failure[256];
} worker;

static void check(worker *w, bool good, const char *what)
{
    if (good) return;
    if (!w->failures++)
        snprintf(w->first_failure, sizeof w->first_failure, "%.100s (last error: %.100s)", what, lac_last_error());
}
#define CHECK(condition) check(w, (condition), #condition)

static void execute_into_own_y(worker *w, const lac_plan *plan, size_t workspace_bytes)
{
    float y[TOKENS * OUTPUTS];
    for (int i = 0; i < TOKENS * OUTPUTS; ++i) y[i] = -1.0f;
    lac_execute_args args = w->shared->args;
    args.y = y;
    args.workspace = aligned_alloc(64, workspace_bytes / 64 * 64 + 64);
    args.workspace_bytes = workspace_bytes;
    CHECK(lac_plan_execute(plan, &args) == LAC_STATUS_OK);
    CHECK(!memcmp(y, w->shared->want, sizeof y));
    free(args.workspace);
}

/* ---- what each thread does */

static void *run_shared_plan(void *user)
{
    worker *w = user;
    pthread_barrier_wait(&w->shared->barrier);
    for (int round = 0; round < ROUNDS; ++round) execute_into_own_y(w, w->shared->plan, w->shared->workspace_bytes);
    return NULL;
}

static void *run_own_plans(void *user)
{
    worker *w = user;
    const shared *s = w->shared;
    pthread_barrier_wait(&w->shared->barrier);
    for (int round = 0; round < ROUNDS; ++round) {
        lac_weight *weight = lac_weight_retain(s->weight);
        lac_weight_info weight_info = {.size = sizeof weight_info};
        CHECK(lac_weight_get_info(weight, &weight_info) == LAC_STATUS_OK && weight_info.n == OUTPUTS);

        static const char *const kernels[] = {NULL, "cpu_scalar_f32_gather", "cpu_scalar_f32_dense", "ref_f64"};
        lac_plan_options options = {.size = sizeof options, .threads = 1, .kernel = kernels[(w->number + round) % 4]};
        lac_plan *plan = NULL;
        CHECK(lac_plan_create(s->device, weight, TOKENS, &options, &plan) == LAC_STATUS_OK);
        lac_weight_free(weight); /* the plan holds on to it */
        lac_plan_info info = {.size = sizeof info};
        CHECK(lac_plan_get_info(plan, &info) == LAC_STATUS_OK && info.n == OUTPUTS);
        if (plan) execute_into_own_y(w, plan, info.workspace_bytes);

        double y[TOKENS * OUTPUTS];
        CHECK(lac_plan_reference(s->plan, &s->args, y, NULL, OUTPUTS) == LAC_STATUS_OK);
        for (int i = 0; i < TOKENS * OUTPUTS; ++i) CHECK(y[i] == (double)s->want[i]);
        lac_plan_free(plan);
    }
    return NULL;
}

/* Each thread's message is its own, though others fail between its failure and its look. */
static void *run_failures(void *user)
{
    worker *w = user;
    const shared *s = w->shared;
    char own[32];
    snprintf(own, sizeof own, "m is -%d;", 1000 + w->number);
    CHECK(!strcmp(lac_last_error(), "")); /* a new thread has none */
    for (int round = 0; round < ROUNDS; ++round) {
        lac_plan *plan = NULL;
        CHECK(lac_plan_create(s->device, s->weight, -1000 - w->number, NULL, &plan) == LAC_STATUS_INVALID_ARGUMENT);
        pthread_barrier_wait(&w->shared->barrier);
        CHECK(strstr(lac_last_error(), own) != NULL);
        CHECK(plan == NULL);
        pthread_barrier_wait(&w->shared->barrier);
    }
    return NULL;
}

/* ---- the main thread */

/* A shared weight and plan on small integers, and what the plan gives on one thread. */
static shared *shared_make(int32_t openmp_threads, plan_case *c)
{
    test_random random = test_random_make("shared", 0);
    lac_pattern pattern = pattern_of("vw4:3:8");
    lac_weight *weight = weight_make(&random, &pattern, OUTPUTS, INPUTS, LAC_DTYPE_F32, TEST_FILL_INTEGER);
    lac_plan_options options = {0};
    *c = case_make(&random, weight, TOKENS, &options, TEST_FILL_INTEGER);
    shared *s = calloc(1, sizeof *s);
    s->weight = weight;
    s->plan = plan_make(c, NULL, openmp_threads);
    s->args = case_args(c);
    s->args.y = NULL;
    s->args.ldy = OUTPUTS;
    lac_plan_info info = {.size = sizeof info};
    assert_ok(lac_plan_get_info(s->plan, &info));
    s->workspace_bytes = info.workspace_bytes;
    double y[TOKENS * OUTPUTS];
    assert_ok(lac_plan_reference(s->plan, &s->args, y, NULL, OUTPUTS));
    for (int i = 0; i < TOKENS * OUTPUTS; ++i) s->want[i] = (float)y[i];
    assert_ok(lac_device_open("cpu", &s->device));
    assert_int_equal(pthread_barrier_init(&s->barrier, NULL, THREADS), 0);
    return s;
}

static void run_threads(int32_t openmp_threads, void *(*first)(void *), void *(*second)(void *))
{
    plan_case c;
    shared *s = shared_make(openmp_threads, &c);
    worker workers[THREADS];
    memset(workers, 0, sizeof workers);
    for (int i = 0; i < THREADS; ++i) {
        workers[i].shared = s;
        workers[i].number = i;
        assert_int_equal(pthread_create(&workers[i].thread, NULL, i % 2 ? first : second, &workers[i]), 0);
    }
    int failures = 0;
    for (int i = 0; i < THREADS; ++i) {
        pthread_join(workers[i].thread, NULL);
        if (workers[i].failures) print_error("thread %d: %s\n", i, workers[i].first_failure);
        failures += workers[i].failures;
    }
    pthread_barrier_destroy(&s->barrier);
    lac_plan_free(s->plan);
    lac_device_close(s->device);
    free(s);
    case_free(&c);
    assert_int_equal(failures, 0);
}

static void one_plan_many_threads(void **state)
{
    (void)state;
    run_threads(1, run_shared_plan, run_shared_plan);
}

static void plans_come_and_go_on_one_weight(void **state)
{
    (void)state;
    run_threads(1, run_shared_plan, run_own_plans);
}

static void each_thread_has_its_own_message(void **state)
{
    (void)state;
    run_threads(1, run_failures, run_failures);
}

static void plans_with_openmp_inside(void **state)
{
    (void)state;
#ifdef HAS_THREAD_SANITIZER
    skip();
#endif
    run_threads(2, run_shared_plan, run_shared_plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_plan_many_threads),
        cmocka_unit_test(plans_come_and_go_on_one_weight),
        cmocka_unit_test(each_thread_has_its_own_message),
        cmocka_unit_test(plans_with_openmp_inside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
