/* test_bench_cold.c - a benchmark's turns on a device that records calls: after a sweep no copy of the weight is used twice, however
 * few there are, for it would be found warm. The device and the contender are made up here; nothing multiplies. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "support/support.h"

enum { MOST_COPIES = 64, MOST_CALLS = 4096 };

static struct {
    double now, marks[BENCH_MOST_MARKS];
    int is_recording, calls, recorded[MOST_CALLS]; /* which copy each call uses */
    int uses[MOST_COPIES], most_uses, sweeps;      /* since the last sweep */
} fake;

static void use(int copy)
{
    fake.now += 1e-5;
    if (++fake.uses[copy] > fake.most_uses && fake.sweeps) fake.most_uses = fake.uses[copy];
}

static int run_copy(void *handle, const void *x, void *y, void *stream)
{
    (void)x, (void)y, (void)stream;
    int copy = *(const int *)handle;
    if (!fake.is_recording)
        use(copy);
    else if (fake.calls < MOST_CALLS)
        fake.recorded[fake.calls++] = copy;
    return 0;
}

static void sweep(size_t bytes)
{
    (void)bytes;
    fake.sweeps++;
    memset(fake.uses, 0, sizeof fake.uses);
}
static void mark(int index) { fake.marks[index] = fake.now; }
static void finish(void) {}
static double elapsed(int from, int to) { return fake.marks[to] - fake.marks[from]; }
static const char *trouble(void) { return NULL; }
static int record_begin(void)
{
    fake.calls = 0;
    fake.is_recording = 1;
    return 0;
}
static void *record_end(void)
{
    fake.is_recording = 0;
    return &fake;
}
static void replay(void *recording)
{
    assert_ptr_equal(recording, &fake);
    for (int i = 0; i < fake.calls; i++) use(fake.recorded[i]);
}
static void watch(void) {}

static const bench_backend backend = {.kind = LAC_DEVICE_KIND_CUDA,
                                      .sweep = sweep,
                                      .mark = mark,
                                      .finish = finish,
                                      .elapsed = elapsed,
                                      .trouble = trouble,
                                      .record_begin = record_begin,
                                      .record_end = record_end,
                                      .replay = replay,
                                      .watch = watch};

static void time_copies(size_t copies, size_t slots, int swept)
{
    static void *handles[MOST_COPIES], *buffers[MOST_COPIES];
    static int numbers[MOST_COPIES];
    for (int i = 0; i < MOST_COPIES; i++) {
        numbers[i] = i;
        handles[i] = &numbers[i];
    }
    bench_options options = {.min_seconds = 1e-3};
    bench_session session = {.options = &options, .backend = &backend, .cache_bytes = 1 << 20, .deadline = 1e300};
    bench_problem problem = {.session = &session};
    bench_peer peer = {.run = run_copy};
    bench_ring ring = {.x = buffers, .y = buffers, .count = slots};
    bench_contender c = {
        .role = BENCH_ROLE_PEER, .problem = &problem, .ring = &ring, .peer = &peer, .handles = handles, .copies = copies};
    memset(&fake, 0, sizeof fake);
    assert_int_equal(bench_time(&session, &c, 1, swept, "a test"), 0);
    assert_non_null(c.recording);
    assert_true(c.count > 0 && c.median > 0.99e-5 && c.median < 1.01e-5);
    if (swept)
        assert_int_equal(fake.most_uses, 1);
    else /* each copy as often as any other, and enough calls that a replay's own time is little */
        assert_true(c.recorded >= 16 && c.recorded % (int)copies == 0 && !fake.sweeps);
    free(c.samples);
}

static void no_copy_is_used_twice_after_a_sweep(void **state)
{
    (void)state;
    static const size_t cases[][2] = {{1, 1}, {2, 2}, {3, 3}, {5, 12}, {15, 15}, {16, 16}, {16, 40}, {17, 17}, {64, 64}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) time_copies(cases[i][0], cases[i][1], 1);
}

static void copies_go_round_without_a_sweep(void **state)
{
    (void)state;
    static const size_t cases[][2] = {{1, 1}, {3, 3}, {5, 12}, {17, 17}, {64, 64}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) time_copies(cases[i][0], cases[i][1], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_copy_is_used_twice_after_a_sweep),
        cmocka_unit_test(copies_go_round_without_a_sweep),
    };
    return cmocka_run_group_tests_name("bench: cold turns", tests, NULL, NULL);
}
