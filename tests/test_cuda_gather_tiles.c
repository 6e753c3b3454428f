/* test_cuda_gather_tiles.c - how gathered products are cut (gather_shape.c, gather_cost.c), held against what an H200 took for it: runs with
 * forced tiles and picks, stored in bench/results/h200_gather_tiles.csv. No GPU is needed to find a model that has gone astray. */
#include "plan_case.h"

#include "cuda/gather_shape.h"
#include "format/sample.h"
#include "support/gather_runs.h"
#include "support/timed.h"

static gather_run runs[GATHER_RUNS_MOST];
static test_timed timed[GATHER_RUNS_MOST];
static bool other_way[GATHER_RUNS_MOST]; /* the tile is still there, but Y leaves it otherwise */
static int run_count;

/* ---- what the model says of them */

/* The quickest candidate of all, and a problem's runs. */
typedef struct question {
    const gather_run *first;
    double least;
    lac_gather_shape best;
    bool directly;
} question;

static void look(const lac_problem *problem, const lac_gather_shape *shape, void *context)
{
    question *q = context;
    double us = 1e6 * lac_gather_cost(problem, shape).seconds;
    bool directly = lac_gather_leaves_directly(problem, shape);
    for (int i = 0; i < run_count; i++) {
        if (!gather_runs_share_problem(&runs[i], q->first) || !gather_run_had_tile(&runs[i], shape)) continue;
        other_way[i] = runs[i].directly != directly;
        if (!other_way[i]) timed[i].predicted_us = us;
    }
    if (us >= q->least) return;
    q->least = us;
    q->best = *shape;
    q->directly = directly;
}

/* The kernels of a problem are asked for apart: which of them is taken is not this test's. */
static void ask_of_problem(const lac_problem *problem, const gather_run *first, int weight, void *context)
{
    (void)weight;
    int *number = context;
    question q[2] = {{.first = first, .least = HUGE_VAL}, {.first = first, .least = HUGE_VAL}};
    lac_gather_candidates(problem, LAC_GATHER_DENSE, look, &q[0]);
    lac_gather_candidates(problem, LAC_GATHER_SPARSE, look, &q[1]);
    const question *best = &q[q[1].least < q[0].least];
    for (int i = 0; i < run_count; i++) {
        if (!gather_runs_share_problem(&runs[i], first)) continue;
        timed[i].problem = *number;
        timed[i].taken = gather_run_had_tile(&runs[i], &best->best) && runs[i].directly == best->directly;
    }
    ++*number;
}

/* A problem may have runs that no candidate is any more: they stand for what the model left out, and are only compared with. */
static int ask_the_model(void **state)
{
    (void)state;
    lac_device *device = NULL;
    int problems = 0;
    assert_ok(lac_device_open("h200", &device));
    run_count = gather_runs_read(runs);
    for (int i = 0; i < run_count; i++) timed[i].us = runs[i].us;
    gather_runs_each_problem(device, runs, run_count, ask_of_problem, &problems);
    lac_device_close(device);
    return 0;
}

static void the_model_is_near_what_they_took(void **state)
{
    (void)state;
    static test_timed known[GATHER_RUNS_MOST];
    int count = 0, were = 0;
    for (int i = 0; i < run_count; i++) {
        were += other_way[i];
        if (timed[i].predicted_us > 0.0) known[count++] = timed[i];
    }
    assert_true(count >= 0.98 * (run_count - were) && count > 2 * were);
    test_timed_near(known, count, 0.055, 0.14); /* the goals are 15 and 30% */
}

static void its_tiles_were_the_quick_ones(void **state)
{
    (void)state;
    test_timed_quick(timed, run_count, 1.2, 0.01, 0.65);
}

/* ---- Y's way out */

typedef struct ways {
    int direct, staged;
} ways;

/* Directly only out of tiles that have no others behind them in their block, and then nothing is kept free for the copy engine. */
static void count_ways(const lac_problem *problem, const lac_gather_shape *s, void *context)
{
    ways *seen = context;
    bool directly = lac_gather_leaves_directly(problem, s);
    int64_t tiles = s->output_tiles * s->token_tiles, blocks = (int64_t)132 * s->resident;
    if (directly) {
        assert_int_equal(s->staging, 0);
        assert_false(s->by_last);
        assert_true(s->tile_outputs * s->tile_tokens < 128 * 256 && tiles <= blocks * s->resident);
    }
    assert_true(lac_gather_shared(s) <= lac_cuda_target_of(problem->device)->shared_per_block);
    seen->direct += directly;
    seen->staged += s->staging > 0;
}

static ways ways_of(lac_device *device, const char *name, int64_t m, lac_layout layout, lac_gather_kind kind)
{
    lac_weight *weight = NULL;
    lac_pattern pattern = pattern_of(name);
    assert_ok(lac_weight_sample(&pattern, 768, 768, LAC_DTYPE_F16, &weight));
    lac_plan_options options = {.size = sizeof options, .x_layout = layout, .y_layout = layout};
    assert_ok(lac_plan_options_resolve(weight, device, &options));
    lac_problem problem = {.device = device, .weight = weight, .m = m, .options = options};
    ways seen = {0};
    lac_gather_candidates(&problem, kind, count_ways, &seen);
    lac_weight_free(weight);
    return seen;
}

static void last_tiles_leave_directly(void **state)
{
    (void)state;
    lac_device *device = NULL;
    assert_ok(lac_device_open("h200", &device));
    ways seen = ways_of(device, "64:2:40", 4096, LAC_LAYOUT_FEATURE_MAJOR, LAC_GATHER_SPARSE);
    assert_true(seen.direct > 0 && seen.staged > 0);
    seen = ways_of(device, "vw64:8:32", 256, LAC_LAYOUT_FEATURE_MAJOR, LAC_GATHER_DENSE);
    assert_true(seen.direct > 0);
    seen = ways_of(device, "64:2:40", 65536, LAC_LAYOUT_FEATURE_MAJOR, LAC_GATHER_SPARSE); /* each block has many */
    assert_true(seen.direct == 0 && seen.staged > 0);
    seen = ways_of(device, "64:2:40", 4096, LAC_LAYOUT_TOKEN_MAJOR, LAC_GATHER_SPARSE);
    assert_true(seen.direct == 0 && seen.staged > 0);
    seen = ways_of(device, "2:4", 4096, LAC_LAYOUT_FEATURE_MAJOR, LAC_GATHER_STREAM);
    assert_true(seen.direct == 0 && seen.staged > 0);
    seen = ways_of(device, "shfl64:25%", 4096, LAC_LAYOUT_FEATURE_MAJOR, LAC_GATHER_DENSE); /* the engine could not take it */
    assert_true(seen.direct == 0 && seen.staged == 0);
    lac_device_close(device);
}

/* ---- what the kernels cannot take */

/* Boxes of token-major X have the swizzle of 128 bytes; numbers of tokens and outputs are ints, those of padding too. */
static void check_limits(const lac_problem *problem, const lac_gather_shape *s, void *context)
{
    ++*(int *)context;
    assert_true(s->token_tiles * s->tile_tokens <= INT32_MAX && s->output_tiles * s->tile_outputs <= INT32_MAX);
    assert_false(problem->weight->k_in == 0 && lac_gather_copies_x(s));
}

static int candidates_of(lac_device *device, const char *name, int64_t m, int64_t n, int64_t k, lac_layout layout)
{
    lac_weight *weight = NULL;
    lac_pattern pattern = pattern_of(name);
    int seen = 0;
    assert_ok(lac_weight_sample(&pattern, n, k, LAC_DTYPE_F16, &weight));
    lac_plan_options options = {.size = sizeof options, .x_layout = layout, .y_layout = layout};
    assert_ok(lac_plan_options_resolve(weight, device, &options));
    lac_problem problem = {.device = device, .weight = weight, .m = m, .options = options};
    for (lac_gather_kind kind = LAC_GATHER_DENSE; kind <= LAC_GATHER_STREAM; ++kind)
        lac_gather_candidates(&problem, kind, check_limits, &seen);
    lac_weight_free(weight);
    return seen;
}

static void candidates_are_what_kernels_can_take(void **state)
{
    (void)state;
    lac_device *device = NULL;
    assert_ok(lac_device_open("h200", &device));
    for (lac_layout layout = LAC_LAYOUT_TOKEN_MAJOR; layout <= LAC_LAYOUT_FEATURE_MAJOR; ++layout) {
        assert_true(candidates_of(device, "bw64x96:1:8", 4096, 4096, 768, layout) > 0);
        assert_true(candidates_of(device, "bw64x32:1:32", 1024, 1024, 3072, layout) > 0);
        assert_true(candidates_of(device, "bw64x64:1:4", 64, 128, 32, layout) > 0);
        assert_true(candidates_of(device, "1:4", 7, 65536, 0, layout) > 0);
        assert_true(candidates_of(device, "vw64:1:4", 2000000000, 64, 8, layout) > 0);
        assert_int_equal(candidates_of(device, "vw64:1:4", 2147483640, 64, 8, layout), 0);
    }
    lac_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_model_is_near_what_they_took), cmocka_unit_test(its_tiles_were_the_quick_ones),
        cmocka_unit_test(last_tiles_leave_directly), cmocka_unit_test(candidates_are_what_kernels_can_take)};
    return cmocka_run_group_tests(tests, ask_the_model, NULL);
}
