#include "support/gather_runs.h"

#include "plan_case.h"

#include "format/sample.h"
#include "support/table.h"

enum { FIRST_OF_COMMITTED = 4 };

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

int gather_runs_read(gather_run runs[GATHER_RUNS_MOST])
{
    test_table table;
    int count = 0;
    test_table_open(&table, "bench/results/h200_gather_tiles.csv");
    while (test_table_next(&table)) {
        if (number_in(&table, "run") < FIRST_OF_COMMITTED || !*test_table_text(&table, "apart")) continue;
        assert_true(count < GATHER_RUNS_MOST);
        gather_run *r = &runs[count++];
        *r = (gather_run){.number = number_in(&table, "run"),
                          .m = (int64_t)test_table_number(&table, "m"),
                          .n = (int64_t)test_table_number(&table, "n"),
                          .k = (int64_t)test_table_number(&table, "k"),
                          .tile = tile_in(&table),
                          .directly = strstr(test_table_text(&table, "variant"), "direct") != NULL,
                          .us = test_table_number(&table, "time_us")};
        snprintf(r->pattern, sizeof r->pattern, "%s", test_table_text(&table, "pattern"));
        snprintf(r->layout, sizeof r->layout, "%s", test_table_text(&table, "layout"));
    }
    assert_in_range(count, 1000, GATHER_RUNS_MOST);
    return count;
}

bool gather_runs_share_weight(const gather_run *a, const gather_run *b)
{
    return a->n == b->n && a->k == b->k && !strcmp(a->pattern, b->pattern);
}

bool gather_runs_share_problem(const gather_run *a, const gather_run *b)
{
    return a->number == b->number && a->m == b->m && gather_runs_share_weight(a, b) && !strcmp(a->layout, b->layout);
}

bool gather_run_had_tile(const gather_run *run, const lac_gather_shape *b)
{
    const lac_gather_shape *a = &run->tile;
    return a->kind == b->kind && a->tile_outputs == b->tile_outputs && a->tile_tokens == b->tile_tokens && a->rows == b->rows &&
           a->cluster == b->cluster && a->parts == b->parts && a->resident == b->resident && a->few == b->few &&
           a->meets == b->meets && a->paired == b->paired && a->joined == b->joined && a->apart == b->apart && !a->every &&
           !b->every;
}

lac_weight *gather_run_weight(const gather_run *run)
{
    lac_weight *weight = NULL;
    lac_pattern pattern = pattern_of(run->pattern);
    assert_ok(lac_weight_sample(&pattern, run->n, run->k, LAC_DTYPE_F16, &weight));
    return weight;
}

lac_problem gather_run_problem(const gather_run *run, lac_device *device, lac_weight *weight)
{
    lac_plan_options options = {.size = sizeof options};
    options.x_layout = options.y_layout = !strcmp(run->layout, "feature") ? LAC_LAYOUT_FEATURE_MAJOR : LAC_LAYOUT_TOKEN_MAJOR;
    assert_ok(lac_plan_options_resolve(weight, device, &options));
    return (lac_problem){.device = device, .weight = weight, .m = run->m, .options = options};
}

void gather_runs_each_problem(lac_device *device, const gather_run *runs, int count, gather_problem_look *look, void *context)
{
    bool shown[GATHER_RUNS_MOST] = {false};
    for (int i = 0, weights = 0; i < count; i++) {
        if (shown[i]) continue;
        lac_weight *weight = gather_run_weight(&runs[i]);
        for (int j = i; j < count; j++) {
            if (shown[j] || !gather_runs_share_weight(&runs[i], &runs[j])) continue;
            lac_problem problem = gather_run_problem(&runs[j], device, weight);
            look(&problem, &runs[j], weights, context);
            for (int same = j; same < count; same++) shown[same] |= gather_runs_share_problem(&runs[same], &runs[j]);
        }
        lac_weight_free(weight);
        weights++;
    }
}
