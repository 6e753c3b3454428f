/* test_cuda_gather_tiles.c - how gathered products are cut (gather_shape.c, gather_cost.c), held against what an H200 took for it: runs with
 * forced tiles and picks, stored in bench/results/h200_gather_tiles.csv. No GPU is needed to find a model that has gone astray. */
#include "plan_case.h"

#include "cuda/gather_shape.h"
#include "format/sample.h"

enum { MOST_RUNS = 2048, FIRST_OF_COMMITTED = 4 };

/* A problem of one of the stored runs, and a tile that was timed for it. */
typedef struct run {
    int number;
    int64_t m, n, k;
    char pattern[16], layout[16];
    lac_gather_shape tile; /* what names it; the rest is the model's to fill in */
    bool directly;         /* Y left the registers directly, not through shared memory */
    bool was;              /* the tile is still there, but Y leaves it the other way   */
} run;

static run runs[MOST_RUNS];
static test_timed timed[MOST_RUNS];
static int run_count;

/* ---- the stored runs */

static int number_in(const test_table *table, const char *column) { return (int)test_table_number(table, column); }

static lac_gather_shape tile_in(const test_table *table)
{
    bool sparse = !strcmp(test_table_text(table, "kernel"), "cuda_f16_gather_sparse");
    return (lac_gather_shape){.kind = sparse ? LAC_GATHER_SPARSE : LAC_GATHER_DENSE,
                              .tile_outputs = number_in(table, "tile_outputs"),
                              .tile_tokens = number_in(table, "tile_tokens"),
                              .rows = number_in(table, "rows"),
                              .cluster = number_in(table, "cluster"),
                              .parts = number_in(table, "parts"),
                              .resident = number_in(table, "resident"),
                              .few = number_in(table, "few"),
                              .meets = number_in(table, "meets"),
                              .paired = number_in(table, "paired"),
                              .joined = number_in(table, "joined"),
                              .apart = number_in(table, "apart")};
}

/* Those of kernels and tiles as they are committed; of blocks whose way into shared memory was not noted, none. */
static void read_runs(void)
{
    test_table table;
    test_table_open(&table, "bench/results/h200_gather_tiles.csv");
    while (test_table_next(&table)) {
        if (number_in(&table, "run") < FIRST_OF_COMMITTED || !*test_table_text(&table, "apart")) continue;
        assert_true(run_count < MOST_RUNS);
        run *r = &runs[run_count];
        *r = (run){.number = number_in(&table, "run"),
                   .m = (int64_t)test_table_number(&table, "m"),
                   .n = (int64_t)test_table_number(&table, "n"),
                   .k = (int64_t)test_table_number(&table, "k"),
                   .tile = tile_in(&table),
                   .directly = strstr(test_table_text(&table, "variant"), "direct") != NULL};
        snprintf(r->pattern, sizeof r->pattern, "%s", test_table_text(&table, "pattern"));
        snprintf(r->layout, sizeof r->layout, "%s", test_table_text(&table, "layout"));
        timed[run_count++].us = test_table_number(&table, "time_us");
    }
    assert_in_range(run_count, 1000, MOST_RUNS);
}

/* ---- what the model says of them */

static bool same_weight(const run *a, const run *b) { return a->n == b->n && a->k == b->k && !strcmp(a->pattern, b->pattern); }

static bool same_problem(const run *a, const run *b)
{
    return a->number == b->number && a->m == b->m && same_weight(a, b) && !strcmp(a->layout, b->layout);
}

static bool same_tile(const lac_gather_shape *a, const lac_gather_shape *b)
{
    return a->kind == b->kind && a->tile_outputs == b->tile_outputs && a->tile_tokens == b->tile_tokens && a->rows == b->rows &&
           a->cluster == b->cluster && a->parts == b->parts && a->resident == b->resident && a->few == b->few &&
           a->meets == b->meets && a->paired == b->paired && a->joined == b->joined && a->apart == b->apart && !a->every &&
           !b->every;
}

/* The quickest candidate of all, and a problem's runs. */
typedef struct question {
    const run *first;
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
        if (!same_problem(&runs[i], q->first) || !same_tile(&runs[i].tile, shape)) continue;
        runs[i].was = runs[i].directly != directly;
        if (!runs[i].was) timed[i].predicted_us = us;
    }
    if (us >= q->least) return;
    q->least = us;
    q->best = *shape;
    q->directly = directly;
}

/* The kernels of a problem are asked for apart: which of them is taken is not this test's. */
static void ask_of_problem(lac_device *device, lac_weight *weight, const run *first, int number)
{
    lac_plan_options options = {.size = sizeof options};
    options.x_layout = options.y_layout = !strcmp(first->layout, "feature") ? LAC_LAYOUT_FEATURE_MAJOR : LAC_LAYOUT_TOKEN_MAJOR;
    assert_ok(lac_plan_options_resolve(weight, device, &options));
    lac_problem problem = {.device = device, .weight = weight, .m = first->m, .options = options};
    question q[2] = {{.first = first, .least = HUGE_VAL}, {.first = first, .least = HUGE_VAL}};
    lac_gather_candidates(&problem, LAC_GATHER_DENSE, look, &q[0]);
    lac_gather_candidates(&problem, LAC_GATHER_SPARSE, look, &q[1]);
    for (int i = 0; i < run_count; i++) {
        if (!same_problem(&runs[i], first)) continue;
        timed[i].problem = number;
        const question *best = &q[q[1].least < q[0].least];
        timed[i].taken = same_tile(&runs[i].tile, &best->best) && runs[i].directly == best->directly;
    }
}

/* A problem may have runs that no candidate is any more: they stand for what the model left out, and are only compared with. */
static int ask_the_model(void **state)
{
    (void)state;
    lac_device *device = NULL;
    lac_weight *weight = NULL;
    static bool asked[MOST_RUNS];
    int problems = 0;
    assert_ok(lac_device_open("h200", &device));
    read_runs();
    for (int i = 0; i < run_count; i++) { /* all problems of a weight, so that it is made once */
        if (asked[i]) continue;
        lac_pattern pattern = pattern_of(runs[i].pattern);
        assert_ok(lac_weight_sample(&pattern, runs[i].n, runs[i].k, LAC_DTYPE_F16, &weight));
        for (int j = i; j < run_count; j++) {
            if (asked[j] || !same_weight(&runs[i], &runs[j])) continue;
            ask_of_problem(device, weight, &runs[j], problems++);
            for (int same = j; same < run_count; same++) asked[same] = asked[same] || same_problem(&runs[same], &runs[j]);
        }
        lac_weight_free(weight);
    }
    lac_device_close(device);
    return 0;
}

static void the_model_is_near_what_they_took(void **state)
{
    (void)state;
    static test_timed known[MOST_RUNS];
    int count = 0, were = 0;
    for (int i = 0; i < run_count; i++) {
        were += runs[i].was;
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_model_is_near_what_they_took),
                                       cmocka_unit_test(its_tiles_were_the_quick_ones),
                                       cmocka_unit_test(last_tiles_leave_directly)};
    return cmocka_run_group_tests(tests, ask_the_model, NULL);
}
