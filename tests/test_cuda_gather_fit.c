/* test_cuda_gather_fit.c - the constants of gathered tiles (lac_gather_constants, and each tile's rate) fitted anew to what an H200 took for
 * runs with named tiles. It prints what it finds beside what is committed: who has such runs of another GPU puts them into
 * bench/results/h200_gather_tiles.csv's place and sets gather_cost.c and gather_shape.c by it.
 *
 * Levenberg's way on the logarithms: constants and times are both known to a factor, and an error of 10% counts the same in 3 us and in
 * 300. Runs that are far off count less (Huber), constants that no run tells of stay where they are. */
#include "plan_case.h"

#include "support/gather_runs.h"

enum {
    MOST_RATES = 48,
    CONSTANTS = sizeof(lac_gather_constants) / sizeof(double),
    MOST = CONSTANTS + MOST_RATES,
    LEAST_RUNS = 6,
    PASSES = 6
};

static const double STEP = 0.02, FAR = 0.15, DAMPING = 0.5, FURTHEST = 0.25;

static const char *const names[] = {"fill",   "change",    "epilogue",        "last", "last_share",
                                    "direct", "one_stage", "overlap_a_stage", "trip", "trip_rate",
                                    "joined", "fours",     "few_fours"};
_Static_assert(sizeof names / sizeof *names == CONSTANTS, "each has its name");

/* A run that the model knows, and which of the rates is its tile's. */
typedef struct known_run {
    const gather_run *run;
    lac_gather_shape shape;
    int rate;
    bool held; /* out */
} known_run;

/* What is fitted: constants, then rates of tiles. */
typedef struct setting {
    double value[MOST];
} setting;

static gather_run runs[GATHER_RUNS_MOST];
static known_run known[GATHER_RUNS_MOST];
static lac_gather_shape tiles[MOST_RATES]; /* whose rates they are */
static int run_count, known_count, rate_count, runs_of_rate[MOST_RATES];
static setting committed;
static lac_device *device;
static bool is_known[GATHER_RUNS_MOST];

/* ---- the runs */

static int rate_of(const lac_gather_shape *s)
{
    for (int i = 0; i < rate_count; i++) {
        const lac_gather_shape *t = &tiles[i];
        if (t->kind == s->kind && t->tile_outputs == s->tile_outputs && t->tile_tokens == s->tile_tokens &&
            t->resident == s->resident && t->few == s->few && t->paired == s->paired)
            return i;
    }
    assert_true(rate_count < MOST_RATES);
    tiles[rate_count] = *s;
    committed.value[CONSTANTS + rate_count] = s->efficiency;
    return rate_count++;
}

/* A problem's first run, and the number of its weight. */
typedef struct place {
    const gather_run *first;
    int weight;
} place;

/* Runs of every second weight may be held out. Two tiles of the list may be the same one where a second block has no room. */
static void remember(const lac_problem *problem, const lac_gather_shape *shape, void *context)
{
    const place *at = context;
    bool directly = lac_gather_leaves_directly(problem, shape);
    for (int i = 0; i < run_count; i++) {
        if (is_known[i] || runs[i].directly != directly || !gather_runs_share_problem(&runs[i], at->first) ||
            !gather_run_had_tile(&runs[i], shape))
            continue;
        is_known[i] = true;
        int rate = rate_of(shape);
        runs_of_rate[rate]++;
        known[known_count++] = (known_run){.run = &runs[i], .shape = *shape, .rate = rate, .held = at->weight % 2};
    }
}

typedef void each_run(const lac_problem *problem, known_run *run, void *context);

/* Every known run with its problem; those of a weight one after the other, so that it is made once. */
static void for_each(each_run *act, void *context)
{
    for (int i = 0; i < known_count;) {
        lac_weight *weight = gather_run_weight(known[i].run);
        const gather_run *first = known[i].run;
        for (; i < known_count && gather_runs_share_weight(known[i].run, first); i++) {
            lac_problem problem = gather_run_problem(known[i].run, device, weight);
            act(&problem, &known[i], context);
        }
        lac_weight_free(weight);
    }
}

static void ask_of_problem(const lac_problem *problem, const gather_run *first, int weight, void *context)
{
    (void)context;
    place at = {first, weight};
    lac_gather_candidates(problem, LAC_GATHER_DENSE, remember, &at);
    lac_gather_candidates(problem, LAC_GATHER_SPARSE, remember, &at);
}

static int read_all(void **state)
{
    (void)state;
    assert_ok(lac_device_open("h200", &device));
    run_count = gather_runs_read(runs);
    memcpy(committed.value, &lac_gather_fitted, sizeof lac_gather_fitted);
    gather_runs_each_problem(device, runs, run_count, ask_of_problem, NULL);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    lac_device_close(device);
    return 0;
}

/* ---- the model of a setting */

static double seconds_by(const lac_problem *problem, const known_run *run, const setting *s)
{
    lac_gather_constants constants;
    memcpy(&constants, s->value, sizeof constants);
    lac_gather_shape shape = run->shape;
    shape.efficiency = s->value[CONSTANTS + run->rate];
    return lac_gather_cost_by(problem, &shape, &constants).seconds;
}

/* Errors of a setting: median and 90th percentile, of the runs that are held out or of the others, or of all. */
enum { ALL, FITTED, HELD };

typedef struct errors {
    const setting *of;
    int which, count;
    double error[GATHER_RUNS_MOST], median, most;
} errors;

static bool counts(const known_run *run, int which) { return which == ALL || run->held == (which == HELD); }

static void add_error(const lac_problem *problem, known_run *run, void *context)
{
    errors *e = context;
    if (counts(run, e->which)) e->error[e->count++] = fabs(1e6 * seconds_by(problem, run, e->of) / run->run->us - 1.0);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(errors *e, const setting *of, int which, const char *what)
{
    *e = (errors){.of = of, .which = which};
    for_each(add_error, e);
    qsort(e->error, (size_t)e->count, sizeof *e->error, by_size);
    e->median = e->error[e->count / 2];
    e->most = e->error[e->count * 9 / 10];
    printf("%s: %d runs, %.1f%% in the median, %.1f%% at the 90th percentile\n", what, e->count, 100 * e->median,
           100 * e->most);
}

/* ---- the fit */

/* Sums over runs: a[i][j] of slopes' products, b[i] of slopes times what is missing, all of logarithms. */
typedef struct normal {
    setting *at;
    int which;
    double a[MOST][MOST], b[MOST];
} normal;

static bool is_fitted(int i) { return i < CONSTANTS || runs_of_rate[i - CONSTANTS] >= LEAST_RUNS; }

static void add_slopes(const lac_problem *problem, known_run *run, void *context)
{
    normal *n = context;
    if (!counts(run, n->which)) return;
    double slope[MOST] = {0}, now = log(seconds_by(problem, run, n->at)), missing = log(1e-6 * run->run->us) - now;
    double weight = fabs(missing) > FAR ? FAR / fabs(missing) : 1.0;
    for (int i = 0; i < CONSTANTS + rate_count; i++) {
        if (!is_fitted(i) || (i >= CONSTANTS && i != CONSTANTS + run->rate)) continue;
        double kept = n->at->value[i];
        n->at->value[i] *= exp(STEP);
        slope[i] = (log(seconds_by(problem, run, n->at)) - now) / STEP;
        n->at->value[i] = kept;
    }
    for (int i = 0; i < CONSTANTS + rate_count; i++) {
        n->b[i] += weight * slope[i] * missing;
        for (int j = 0; j < CONSTANTS + rate_count; j++) n->a[i][j] += weight * slope[i] * slope[j];
    }
}

/* Solves a x = b in b's place; a is symmetric and positive definite. */
static void solve(normal *n, int count)
{
    for (int i = 0; i < count; i++)
        for (int j = i + 1; j < count; j++) {
            double factor = n->a[j][i] / n->a[i][i];
            for (int k = i; k < count; k++) n->a[j][k] -= factor * n->a[i][k];
            n->b[j] -= factor * n->b[i];
        }
    for (int i = count; i-- > 0;) {
        for (int k = i + 1; k < count; k++) n->b[i] -= n->a[i][k] * n->b[k];
        n->b[i] /= n->a[i][i];
    }
}

static void fit(setting *s, int which)
{
    static normal n;
    for (int pass = 0; pass < PASSES; pass++) {
        n = (normal){.at = s, .which = which};
        for_each(add_slopes, &n);
        for (int i = 0; i < CONSTANTS + rate_count; i++) n.a[i][i] += DAMPING;
        solve(&n, CONSTANTS + rate_count);
        for (int i = 0; i < CONSTANTS + rate_count; i++) s->value[i] *= exp(fmax(-FURTHEST, fmin(FURTHEST, n.b[i])));
    }
}

static void print_setting(const setting *s)
{
    for (int i = 0; i < CONSTANTS; i++) printf("  %-18s %10.4g %10.4g\n", names[i], committed.value[i], s->value[i]);
    for (int i = 0; i < rate_count; i++) {
        const lac_gather_shape *t = &tiles[i];
        if (!is_fitted(CONSTANTS + i)) continue;
        printf("  %-6s %3d x %3d%s%s%s %8.3g %10.3g\n", t->kind == LAC_GATHER_DENSE ? "dense" : "sparse", t->tile_outputs,
               t->tile_tokens, t->resident > 1 ? ", two" : "", t->few ? ", few" : "", t->paired ? ", pair" : "",
               committed.value[CONSTANTS + i], s->value[CONSTANTS + i]);
    }
}

/* What is committed is near what fits best: nobody has set it by hand and forgotten the runs. */
static void what_is_committed_fits(void **state)
{
    (void)state;
    static errors before, after;
    setting s = committed;
    assert_true(known_count > 1000);
    measure(&before, &s, ALL, "as committed");
    fit(&s, ALL);
    measure(&after, &s, ALL, "fitted");
    print_setting(&s);
    assert_true(after.median < before.median + 0.003 && before.median < after.median + 0.01);
    assert_true(after.most < before.most + 0.01 && before.most < after.most + 0.03);
}

/* Constants 30% off what is committed, rates 15%. */
static setting far_off(void)
{
    setting s = committed;
    for (int i = 0; i < CONSTANTS + rate_count; i++)
        if (is_fitted(i)) s.value[i] *= exp((i % 2 ? 1.0 : -1.0) * (i < CONSTANTS ? 0.3 : 0.15));
    return s;
}

/* From there it comes back to errors as small. */
static void it_finds_its_way_back(void **state)
{
    (void)state;
    static errors right, wrong, after;
    setting s = far_off();
    measure(&right, &committed, ALL, "as committed");
    measure(&wrong, &s, ALL, "all of it off");
    fit(&s, ALL);
    measure(&after, &s, ALL, "fitted from there");
    assert_true(wrong.median > 1.5 * right.median);
    assert_true(after.median < right.median + 0.005 && after.most < right.most + 0.015);
}

/* Fitted on the runs of every second weight and told on the others'; not from what is committed, which was set on them all. */
static void runs_that_it_has_not_seen(void **state)
{
    (void)state;
    static errors seen, held;
    setting s = far_off();
    fit(&s, FITTED);
    measure(&seen, &s, FITTED, "fitted");
    measure(&held, &s, HELD, "held out");
    assert_true(held.median < 0.15 && held.most < 0.3); /* the goals */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_committed_fits), cmocka_unit_test(it_finds_its_way_back),
                                       cmocka_unit_test(runs_that_it_has_not_seen)};
    return cmocka_run_group_tests(tests, read_all, close_all);
}
