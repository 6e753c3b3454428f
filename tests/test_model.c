/* test_model.c - the performance model of the CPU: its numbers hang together, the planner's picks over a grid of shapes and
 * patterns are the sensible ones, and measuring the machine works and fails as promised. The picks are judged under fixed
 * rates (LAC_CPU_RATES), each set in a process of its own, so they are the same on every machine of one vector unit. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/kernel.h"
#include "model/rates.h"
#include "support/support.h"

/* One core of a server: fma, loads, l2, l3, one core's memory, all cores' memory. */
#define FIXED_RATES "5,5,120,30,12,24"

enum { ROWS = 512, COLUMNS = 1024 };

typedef struct grid_weight {
    const char *pattern;
    lac_weight *weight;
} grid_weight;

static grid_weight grid[] = {{"2:4", NULL},          {"1:4", NULL},       {"1:8", NULL},         {"1:16", NULL},
                             {"50%", NULL},          {"64:2:4", NULL},    {"64:2:8", NULL},      {"64:2:16", NULL},
                             {"vw32:16:32", NULL},   {"vw32:8:32", NULL}, {"vw32:4:32", NULL},   {"vw4:8:32", NULL},
                             {"bw4x4:4:8", NULL},    {"bw4x4:2:8", NULL}, {"bw32x32:25%", NULL}, {"shfl64:25%", NULL},
                             {"shfl64:12.5%", NULL}, {"4:4", NULL}};
enum { GRID = sizeof grid / sizeof *grid };

static lac_device *device;
static lac_device_info device_info = {.size = sizeof device_info};

/* ---- setting up */

static int make_grid(void **state)
{
    (void)state;
    static float dense[ROWS * COLUMNS];
    test_random random = test_random_make("model", 0);
    for (int i = 0; i < ROWS * COLUMNS; ++i) dense[i] = (float)test_random_gaussian(&random);
    lac_matrix matrix = {.data = dense, .dtype = LAC_DTYPE_F32, .rows = ROWS, .cols = COLUMNS};
    for (int i = 0; i < GRID; ++i) {
        lac_pattern pattern;
        lac_mask *mask = NULL;
        assert_ok(lac_pattern_parse(grid[i].pattern, &pattern));
        assert_ok(lac_prune(&matrix, &pattern, NULL, &mask));
        assert_ok(lac_weight_compress(&matrix, mask, NULL, &grid[i].weight));
        lac_mask_free(mask);
    }
    assert_ok(lac_device_open("cpu", &device));
    assert_ok(lac_device_get_info(device, &device_info));
    return 0;
}

static int free_grid(void **state)
{
    (void)state;
    for (int i = 0; i < GRID; ++i) lac_weight_free(grid[i].weight);
    lac_device_close(device);
    return 0;
}

/* ---- measuring the machine, in processes of its own: it happens once in each */

/* Runs `body` in a child under these rates (NULL: none said); it returns 0 when all was well, 77 when it cannot tell. */
static void in_child(const char *rates, int (*body)(void))
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (rates)
            setenv("LAC_CPU_RATES", rates, 1);
        else
            unsetenv("LAC_CPU_RATES");
        _exit(body());
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        print_message("this machine cannot tell\n");
        return;
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status)) fail_msg("the child ended with %d", status);
}

static int measured_rates_are_sound(void)
{
    if (lac_cpu_rates_prepare(2)) return 1;
    const lac_cpu_rates *r = lac_cpu_rates_get();
    lac_cpu_rates first = *r;
    const double bytes[] = {r->l2, r->l3, r->core, r->memory};
    for (int i = 0; i < 4; ++i)
        if (!(bytes[i] > 1e6 && bytes[i] < 1e14)) return 2;
    if (!(r->fma[0] > 1e6 && r->loads[0] > 1e6 && r->memory >= r->core && r->l2 >= r->l3 && r->l3 >= r->core)) return 3;
    for (int i = 0; i < LAC_CPU_RATES_UNITS; ++i)
        if (!isfinite(r->fma[i]) || !isfinite(r->loads[i]) || (r->fma[i] > 0) != (r->loads[i] > 0)) return 4;
    if (lac_cpu_rates_prepare(1) || memcmp(&first, lac_cpu_rates_get(), sizeof first)) return 5; /* once is enough */
    return 0;
}

static void *allocate_nothing(size_t bytes, void *user)
{
    (void)bytes, (void)user;
    return NULL;
}

static void release_nothing(void *block, void *user) { (void)block, (void)user; }

static int measuring_needs_memory_and_can_be_repeated(void)
{
    if (lac_set_allocator(allocate_nothing, release_nothing, NULL)) return 1;
    if (lac_cpu_rates_prepare(2) != LAC_STATUS_OUT_OF_MEMORY || !strstr(lac_last_error(), "measuring the machine")) return 2;
    if (lac_set_allocator(NULL, NULL, NULL)) return 3;
    return measured_rates_are_sound();
}

static int wrong_rates_are_refused(void)
{
    static const char *const wrong[] = {"fast",         "1,2,3",         "1,2,3,4,5,6,7", "1,2,3,4,5,0",
                                        "1,2,-3,4,5,6", "1,2,3,4,5,inf", "1;2;3;4;5;6",   "1e-320,2,3,4,5,6"};
    lac_device *opened = NULL;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
        setenv("LAC_CPU_RATES", wrong[i], 1);
        if (lac_device_open("cpu", &opened) != LAC_STATUS_INVALID_ARGUMENT || opened) return 1;
        if (!strstr(lac_last_error(), "LAC_CPU_RATES") || !strstr(lac_last_error(), wrong[i])) return 2;
    }
    setenv("LAC_CPU_RATES", "1,2,3,4,5,6", 1);
    if (lac_device_open("cpu", &opened)) return 3;
    lac_device_close(opened);
    const lac_cpu_rates *r = lac_cpu_rates_get();
    return r->fma[3] == 1e9 && r->fma[0] == 0.5e9 && r->loads[0] == 2e9 && r->l2 == 3e9 && r->l3 == 4e9 && r->core == 5e9 &&
                   r->memory == 6e9
               ? 0
               : 4;
}

/* A program's locale is not the environment's grammar: 77 where there is no such locale. */
static int rates_have_points_in_every_locale(void)
{
    lac_device *opened = NULL;
    if (!test_comma_locale()) return 77;
    setenv("LAC_CPU_RATES", "1.5,2.25,3,4,5,6", 1);
    if (lac_device_open("cpu", &opened)) return 1;
    lac_device_close(opened);
    return lac_cpu_rates_get()->fma[3] == 1.5e9 && lac_cpu_rates_get()->loads[0] == 2.25e9 ? 0 : 2;
}

static void machine_is_measured(void **state)
{
    (void)state;
    in_child(NULL, measured_rates_are_sound);
    in_child(NULL, measuring_needs_memory_and_can_be_repeated);
    in_child(NULL, wrong_rates_are_refused);
    in_child(NULL, rates_have_points_in_every_locale);
}

/* ---- the planner's picks */

static lac_plan *plan_of(const grid_weight *w, int64_t m, lac_plan_options options)
{
    lac_plan *plan = NULL;
    options.size = sizeof options;
    assert_ok(lac_plan_create(device, w->weight, m, &options, &plan));
    return plan;
}

static lac_plan_info info_of(const lac_plan *plan)
{
    lac_plan_info info = {.size = sizeof info};
    assert_ok(lac_plan_get_info(plan, &info));
    return info;
}

static bool is_dataflow(const char *kernel, const char *name)
{
    size_t length = strlen(kernel), tail = strlen(name);
    return length > tail && !strcmp(kernel + length - tail, name);
}

/* What must hold of the pick; NULL when all does. */
static const char *judge(const grid_weight *w, int64_t m, const char *kernel)
{
    lac_pattern pattern;
    assert_ok(lac_pattern_parse(w->pattern, &pattern));
    double density = lac_pattern_density(&pattern);
    bool own_columns = pattern.family == LAC_FAMILY_ELEMENT || pattern.family == LAC_FAMILY_VNM;
    bool dense = is_dataflow(kernel, "_dense"), expand = is_dataflow(kernel, "_expand") || is_dataflow(kernel, "_permute");
    bool stream = is_dataflow(kernel, "_stream"), broadcast = is_dataflow(kernel, "_broadcast");
    if (strcmp(device_info.vector_unit, "scalar") && strstr(kernel, "scalar")) return "a vector unit is there";
    if (density == 1.0) return dense || broadcast || m <= 8 ? NULL : "everything is kept: dense";
    if (density <= 0.25 && dense) return "three weights of four are zero: never dense";
    if (m >= 64 && dense) return "half of the products are with zeros: not dense";
    if (own_columns && density >= 0.25 && m <= 4 && !expand) return "few tokens: expand or permute";
    if (own_columns && density >= 0.5 && m <= 8 && !expand) return "few tokens, many weights: expand or permute";
    if (own_columns && density <= 0.25 && m >= 16 && !stream) return "rows with columns of their own: stream";
    if (!own_columns && m >= 16 && !stream && !broadcast) return "shared columns: broadcast or stream";
    return NULL;
}

static int count_silly_picks(void)
{
    static const int64_t tokens[] = {1, 2, 3, 4, 5, 8, 16, 17, 32, 64, 128, 500};
    static const lac_plan_options variants[] = {{.threads = 1},
                                                {.threads = 2},
                                                {.threads = 1, .x_layout = LAC_LAYOUT_FEATURE_MAJOR, .has_bias = 1},
                                                {.threads = 1, .x_dtype = LAC_DTYPE_BF16, .has_residual = 1}};
    int wrong = 0;
    make_grid(NULL);
    for (int i = 0; i < GRID; ++i) {
        for (size_t t = 0; t < sizeof tokens / sizeof *tokens; ++t) {
            for (size_t v = 0; v < sizeof variants / sizeof *variants; ++v) {
                lac_plan *plan = plan_of(&grid[i], tokens[t], variants[v]);
                const char *why = judge(&grid[i], tokens[t], info_of(plan).kernel);
                if (why && ++wrong)
                    print_error("LAC_CPU_RATES=%s, %s, m %lld, variant %zu: %s, but %s\n", getenv("LAC_CPU_RATES"),
                                grid[i].pattern, (long long)tokens[t], v, info_of(plan).kernel, why);
                lac_plan_free(plan);
            }
        }
    }
    free_grid(NULL);
    return wrong != 0;
}

/* Quiet, busy, fast and faster machines: the picks below hold on all of them. */
static void picks_are_sensible(void **state)
{
    (void)state;
    static const char *const machines[] = {FIXED_RATES, "5,4.3,120,30,15,15", "7,7,140,35,17,35", "3.6,3.6,100,25,10,12"};
    for (int64_t i = 0; i < test_scaled(sizeof machines / sizeof *machines); ++i) in_child(machines[i], count_silly_picks);
}

/* ---- the numbers */

/* What the model says of a kernel, without preparing it. */
static bool cost_of(const lac_kernel *kernel, const lac_weight *weight, int64_t m, int threads, lac_cost *out)
{
    lac_problem problem = {.device = device, .weight = weight, .m = m, .kernel = kernel};
    problem.options = (lac_plan_options){.x_dtype = LAC_DTYPE_F32, .y_dtype = LAC_DTYPE_F32, .threads = threads};
    if (kernel->oracle || kernel->info.device != LAC_DEVICE_KIND_CPU || !kernel->applies(&problem)) return false;
    *out = kernel->cost(&problem);
    return true;
}

static void check_cost(const char *kernel, const lac_cost *c)
{
    double longest = 0.0;
    const char *bound = "";
    for (int i = 0; i < c->levels; ++i) {
        const lac_level *l = &c->level[i];
        if (!(l->amount >= 0.0 && l->rate > 0.0) || !isfinite(l->amount))
            fail_msg("%s: %s %g at %g", kernel, l->name, l->amount, l->rate);
        if (fabs(l->seconds * l->rate - l->amount) > 1e-9 * l->amount) fail_msg("%s: %s takes %g", kernel, l->name, l->seconds);
        if (l->seconds > longest) longest = l->seconds, bound = l->name;
        assert_true(strlen(l->unit) > 0 && strlen(l->remedy) > 20);
    }
    assert_string_equal(c->bound, bound);
    if (c->ceiling != longest || c->seconds < longest)
        fail_msg("%s: ceiling %g, longest %g, predicted %g", kernel, c->ceiling, longest, c->seconds);
}

static void numbers_hang_together(void **state)
{
    (void)state;
    const lac_kernel *kernel;
    int checked = 0;
    for (size_t i = 0; (kernel = lac_registry_kernel(i)); ++i) {
        for (int w = 0; w < GRID; ++w) {
            double before = 0.0;
            for (int64_t m = 1; m <= 4096; m *= 2) {
                lac_cost one, two;
                if (!cost_of(kernel, grid[w].weight, m, 1, &one)) continue;
                check_cost(kernel->info.name, &one);
                if (one.seconds < 0.999 * before)
                    fail_msg("%s, %s: %lld tokens are faster than half as many", kernel->info.name, grid[w].pattern,
                             (long long)m);
                before = one.seconds;
                assert_true(cost_of(kernel, grid[w].weight, m, 2, &two));
                if (device_info.cores > 1 && one.seconds > 1e-4 && two.seconds > one.seconds)
                    fail_msg("%s: two threads are slower", kernel->info.name);
                ++checked;
            }
        }
    }
    assert_true(checked > 500);
}

/* A problem without work still has a cost, and it is not a NaN. */
static void nothing_costs_little(void **state)
{
    (void)state;
    const lac_kernel *kernel;
    for (size_t i = 0; (kernel = lac_registry_kernel(i)); ++i) {
        lac_cost cost;
        if (!cost_of(kernel, grid[0].weight, 0, 1, &cost)) continue;
        if (!(cost.seconds >= 0.0 && cost.seconds < 1e-2) || isnan(cost.ceiling))
            fail_msg("%s: %g s", kernel->info.name, cost.seconds);
    }
}

static void plan_shows_its_levels(void **state)
{
    (void)state;
    lac_plan *plan = plan_of(&grid[0], 8, (lac_plan_options){.threads = 1});
    lac_plan_info info = info_of(plan);
    lac_level_info level = {.size = sizeof level};
    size_t count = 0;
    double longest = 0.0;
    for (; lac_plan_explain(plan, count, &level) == LAC_STATUS_OK; ++count) {
        assert_int_equal(level.is_bound, !strcmp(level.name, info.bound));
        if (level.seconds > longest) longest = level.seconds;
    }
    assert_int_equal(count, LAC_COST_LEVELS);
    assert_true(longest == info.ceiling_seconds);
    assert_fails(lac_plan_explain(plan, count, &level), LAC_STATUS_NOT_FOUND, "levels");
    lac_plan_free(plan);
    plan = plan_of(&grid[0], 8, (lac_plan_options){.kernel = "ref_f64"});
    assert_fails(lac_plan_explain(plan, 0, &level), LAC_STATUS_NOT_FOUND, "ref_f64");
    lac_plan_free(plan);
}

int main(void)
{
    /* First of all, while this process has neither rates nor threads of its own. */
    const struct CMUnitTest alone[] = {cmocka_unit_test(machine_is_measured), cmocka_unit_test(picks_are_sensible)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_hang_together),
        cmocka_unit_test(nothing_costs_little),
        cmocka_unit_test(plan_shows_its_levels),
    };
    int failed = cmocka_run_group_tests(alone, NULL, NULL);
    setenv("LAC_CPU_RATES", FIXED_RATES, 1);
    return failed + cmocka_run_group_tests(tests, make_grid, free_grid);
}
