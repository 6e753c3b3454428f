/* steer.h - the fake driver and the fake cuBLASLt, opened by a test that steers both: when they fail, what they refuse, how long their
 * works take, and what they have been asked. */
#ifndef TEST_FAKES_STEER_H
#define TEST_FAKES_STEER_H

#include "fakes/find.h"

typedef double fake_lt_takes(int number, int left, int right);

static long (*fake_live)(void), (*fake_calls)(void), (*fake_launches)(void), (*fake_lt_live)(void), (*fake_lt_calls)(void),
    (*fake_lt_products)(void), (*fake_lt_last_algorithm)(void);
static void (*fake_fail_at)(long number, int result), (*fake_lt_fail_at)(long number, int result);
static void (*fake_set_most_bytes)(size_t bytes), (*fake_lt_set_answers)(int count), (*fake_lt_refuse_aligned)(int refuse),
    (*fake_lt_refuse_first)(int count), (*fake_lt_refuse_handles)(int refuse);
static void (*fake_advance)(double milliseconds), (*fake_set_launch_time)(double milliseconds),
    (*fake_set_untold_time)(double milliseconds),
    (*fake_lt_set_times)(fake_lt_takes *takes, void (*advance)(double milliseconds));

/* The setup of a group of tests. */
static int load_fakes(void **state)
{
    (void)state;
    void *cuda = dlopen(FAKE_CUDA, RTLD_NOW), *lt = dlopen(FAKE_CUBLASLT, RTLD_NOW);
    assert_true(cuda && lt);
    fake_find(cuda, "fake_live", &fake_live);
    fake_find(cuda, "fake_calls", &fake_calls);
    fake_find(cuda, "fake_launches", &fake_launches);
    fake_find(cuda, "fake_fail_at", &fake_fail_at);
    fake_find(cuda, "fake_set_most_bytes", &fake_set_most_bytes);
    fake_find(cuda, "fake_advance", &fake_advance);
    fake_find(cuda, "fake_set_launch_time", &fake_set_launch_time);
    fake_find(cuda, "fake_set_untold_time", &fake_set_untold_time);
    fake_find(lt, "fake_lt_live", &fake_lt_live);
    fake_find(lt, "fake_lt_calls", &fake_lt_calls);
    fake_find(lt, "fake_lt_products", &fake_lt_products);
    fake_find(lt, "fake_lt_last_algorithm", &fake_lt_last_algorithm);
    fake_find(lt, "fake_lt_fail_at", &fake_lt_fail_at);
    fake_find(lt, "fake_lt_set_answers", &fake_lt_set_answers);
    fake_find(lt, "fake_lt_refuse_aligned", &fake_lt_refuse_aligned);
    fake_find(lt, "fake_lt_refuse_first", &fake_lt_refuse_first);
    fake_find(lt, "fake_lt_refuse_handles", &fake_lt_refuse_handles);
    fake_find(lt, "fake_lt_set_times", &fake_lt_set_times);
    return 0;
}

/* Nothing is left on the GPU or in the library. */
static inline void expect_fakes_clean(void)
{
    assert_int_equal(fake_live(), 0);
    assert_int_equal(fake_lt_live(), 0);
}

#endif
