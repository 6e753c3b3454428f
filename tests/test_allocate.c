/* test_allocate.c - patterns by budget: the choice against every choice, losses and times against those of single calls, layers that do not pay, the checkpoint
 * that is pruned so, and refusals. Times are predicted for a GPU that need not be here, and for this machine by fixed rates. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/support.h"

enum { LAYERS = 4, SAMPLES = 200, PATTERNS = 4 };

static const int64_t shapes[LAYERS][2] = {{64, 96}, {128, 64}, {32, 256}, {256, 32}};
static const char *const texts[PATTERNS] = {"2:4", "1:4", "vw16:8:32", "vw32:4:32"};
static lac_pattern patterns[PATTERNS];

static void write_all(const char *path, bool samples)
{
    lac_writer *writer;
    assert_ok(lac_writer_open(test_path(path), &writer));
    for (int pass = 0; pass < 2; pass++)
        for (int l = 0; l < LAYERS; l++) {
            test_random random = test_random_make("allocate", 2 * l + samples);
            int64_t rows = samples ? SAMPLES : shapes[l][0], k = shapes[l][1];
            char name[32];
            snprintf(name, sizeof name, samples ? "l%d.input" : "l%d.weight", l);
            lac_tensor_info info = {.size = sizeof info, .name = name, .dtype = LAC_DTYPE_F32, .rank = 2, .shape = {rows, k}};
            if (pass == 0) {
                assert_ok(lac_writer_declare_tensor(writer, &info));
                continue;
            }
            float *data = malloc((size_t)(rows * k) * sizeof *data);
            for (int64_t r = 0; r < rows; r++) {
                double common = test_random_gaussian(&random);
                for (int64_t c = 0; c < k; c++)
                    data[r * k + c] =
                        (float)(test_random_gaussian(&random) * (samples ? 1 : 1 + l) + (samples ? common * l : 0));
            }
            assert_ok(lac_writer_write_tensor(writer, name, data, (uint64_t)(rows * k) * sizeof *data));
            free(data);
        }
    assert_ok(lac_writer_commit(writer));
    lac_writer_free(writer);
}

static int set_up(void **state)
{
    (void)state;
    test_folder_clear();
    write_all("in.safetensors", false);
    write_all("x.safetensors", true);
    for (int i = 0; i < PATTERNS; i++) assert_ok(lac_pattern_parse(texts[i], &patterns[i]));
    return 0;
}

static lac_prune_options prune;

static lac_checkpoint_options checkpoint_options(lac_method method)
{
    lac_checkpoint_options o = {.size = sizeof o, .prune = &prune};
    prune = (lac_prune_options){.size = sizeof prune, .method = method, .threads = 1};
    if (method >= LAC_METHOD_WANDA) o.calibration = test_path("x.safetensors");
    return o;
}

static lac_status allocate(lac_method method, lac_device *device, lac_budget budget, double amount, int64_t m,
                           lac_allocation **out)
{
    lac_checkpoint_options checkpoint = checkpoint_options(method);
    lac_allocate_options options = {.size = sizeof options,
                                    .patterns = patterns,
                                    .pattern_count = PATTERNS,
                                    .budget = budget,
                                    .amount = amount,
                                    .device = device,
                                    .m = m};
    lac_plan_options plan = {.size = sizeof plan, .threads = 1};
    options.plan = &plan;
    return lac_checkpoint_allocate(test_path("in.safetensors"), &checkpoint, &options, out);
}

static double cost_of(const lac_choice_info *c, lac_budget budget)
{
    return budget == LAC_BUDGET_SPEEDUP ? c->seconds : c->density * (double)(c->n * c->k);
}

/* The least loss of all choices, by trying them. */
static double try_all(const lac_allocation *a, int64_t layer, lac_budget budget, double left, double loss)
{
    lac_choice_info c = {.size = sizeof c};
    if (left < 0) return INFINITY;
    if (layer == LAYERS) return loss;
    double best = INFINITY;
    for (int64_t o = 0; lac_allocation_get_option(a, layer, o, &c) == LAC_STATUS_OK; o++)
        best = fmin(best, try_all(a, layer + 1, budget, left - cost_of(&c, budget), loss + c.loss));
    return best;
}

static void check_choice(const lac_allocation *a, lac_budget budget, double amount)
{
    lac_allocation_info all = {.size = sizeof all};
    lac_choice_info c = {.size = sizeof c};
    double cost = 0, dense = 0, loss = 0;
    assert_ok(lac_allocation_get_info(a, &all));
    assert_int_equal(all.layers, LAYERS);
    for (int64_t l = 0; l < LAYERS; l++) {
        assert_ok(lac_allocation_get_option(a, l, 0, &c));
        assert_true(!c.pruned && c.loss == 0 && c.density == 1 && c.seconds == c.dense_seconds);
        dense += cost_of(&c, budget);
        assert_ok(lac_allocation_get_layer(a, l, &c));
        cost += cost_of(&c, budget), loss += c.loss;
    }
    double limit = budget == LAC_BUDGET_SPEEDUP ? dense / amount : dense * amount;
    assert_true(cost <= limit * (1 + 1e-9));
    assert_true(fabs(loss - all.loss) <= 1e-12 * loss);
    assert_true(fabs(all.loss_bound - all.loss) <= 1e-9 * loss);
    assert_true(fabs(loss - try_all(a, 0, budget, limit * (1 + 1e-9), 0)) <= 1e-9 * loss);
}

static void choices_are_the_best(void **state)
{
    static const double amounts[] = {1.0, 1.2, 1.7}, shares[] = {1, 0.7, 0.3, 0.2};
    (void)state;
    for (lac_method method = LAC_METHOD_MAGNITUDE; method <= LAC_METHOD_OBS; method++)
        for (int where = 0; where < 2; where++) {
            lac_device *device;
            assert_ok(lac_device_open(where ? "h200" : "cpu", &device));
            for (size_t i = 0; i < sizeof amounts / sizeof *amounts; i++) {
                lac_allocation *a = NULL;
                lac_status status = allocate(method, device, LAC_BUDGET_SPEEDUP, amounts[i], 64, &a);
                if (status !=
                    LAC_STATUS_OK) { /* small layers gain little on a large GPU; then the most is said, and can be had */
                    const char *most = strstr(lac_last_error(), "the most is ");
                    assert_int_equal(status, LAC_STATUS_INVALID_ARGUMENT);
                    assert_non_null(most);
                    double reach = atof(most + strlen("the most is ")) * 0.999;
                    assert_true(reach < amounts[i]);
                    assert_ok(allocate(method, device, LAC_BUDGET_SPEEDUP, reach, 64, &a));
                    check_choice(a, LAC_BUDGET_SPEEDUP, reach);
                } else {
                    check_choice(a, LAC_BUDGET_SPEEDUP, amounts[i]);
                }
                lac_allocation_free(a);
            }
            lac_device_close(device);
        }
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) { /* densities need no device */
        lac_allocation *a = NULL;
        lac_allocation_info all = {.size = sizeof all};
        assert_ok(allocate(LAC_METHOD_WANDA, NULL, LAC_BUDGET_DENSITY, shares[i], 0, &a));
        check_choice(a, LAC_BUDGET_DENSITY, shares[i]);
        assert_ok(lac_allocation_get_info(a, &all));
        assert_true(all.density <= shares[i] + 1e-9 && all.seconds == -1 && all.dense_seconds == -1);
        if (shares[i] == 1) assert_true(all.pruned == 0 && all.loss == 0);
        lac_allocation_free(a);
    }
}

/* Losses and times are those that the calls for single layers tell. */
static void numbers_are_those_of_single_calls(void **state)
{
    (void)state;
    lac_device *device;
    lac_allocation *a = NULL;
    lac_file *weights, *inputs;
    assert_ok(lac_device_open("h200", &device));
    assert_ok(allocate(LAC_METHOD_OBS, device, LAC_BUDGET_SPEEDUP, 1, 4096, &a));
    assert_ok(lac_file_open(test_path("in.safetensors"), &weights));
    assert_ok(lac_file_open(test_path("x.safetensors"), &inputs));
    for (int l = 0; l < LAYERS; l++)
        for (int p = 0; p < PATTERNS; p++) {
            lac_choice_info c = {.size = sizeof c};
            char name[32];
            test_matrix w = test_matrix_make(shapes[l][0], shapes[l][1], LAC_DTYPE_F32, LAC_LAYOUT_ROW_MAJOR, 0, 0);
            test_matrix v = test_matrix_make(shapes[l][0], shapes[l][1], LAC_DTYPE_F32, LAC_LAYOUT_ROW_MAJOR, 0, 0);
            test_matrix x = test_matrix_make(SAMPLES, shapes[l][1], LAC_DTYPE_F32, LAC_LAYOUT_ROW_MAJOR, 0, 0);
            lac_calibration *calibration;
            lac_mask *mask;
            lac_weight *weight;
            lac_plan *plan;
            lac_plan_info info = {.size = sizeof info};
            double error, total;
            snprintf(name, sizeof name, "l%d.weight", l);
            assert_ok(lac_file_read_matrix(weights, name, &w.view));
            snprintf(name, sizeof name, "l%d.input", l);
            assert_ok(lac_file_read_matrix(inputs, name, &x.view));
            assert_ok(lac_calibration_create(shapes[l][1], &calibration));
            assert_ok(lac_calibration_add(calibration, &x.view, 1));
            lac_prune_options prune = {
                .size = sizeof prune, .method = LAC_METHOD_OBS, .calibration = calibration, .threads = 1};
            assert_ok(lac_prune_and_correct(&w.view, &patterns[p], &prune, &v.view, &mask));
            assert_ok(lac_calibration_error(calibration, &w.view, &v.view, &error, &total));
            assert_ok(lac_weight_compress(&v.view, mask, NULL, &weight));
            lac_plan_options predict = {.size = sizeof predict, .predict_only = 1, .threads = 1};
            assert_ok(lac_plan_create(device, weight, 4096, &predict, &plan));
            assert_ok(lac_plan_get_info(plan, &info));
            assert_ok(lac_allocation_get_option(a, l, p + 1, &c));
            assert_true(fabs(c.loss - error / total) <= 1e-6 * c.loss);
            assert_true(c.seconds == info.predicted_seconds && c.pruned && c.n == shapes[l][0] && c.k == shapes[l][1]);
            assert_true(c.dense_seconds > 0);
            lac_plan_free(plan);
            lac_weight_free(weight);
            lac_mask_free(mask);
            lac_calibration_free(calibration);
            test_matrix_free(&w), test_matrix_free(&v), test_matrix_free(&x);
        }
    lac_choice_info c = {.size = sizeof c};
    assert_status(lac_allocation_get_option(a, 0, PATTERNS + 1, &c), LAC_STATUS_NOT_FOUND);
    assert_status(lac_allocation_get_layer(a, LAYERS, &c), LAC_STATUS_NOT_FOUND);
    lac_file_close(weights);
    lac_file_close(inputs);
    lac_allocation_free(a);
    lac_device_close(device);
}

/* The checkpoint has the patterns that were chosen; what stays dense is copied. */
static void checkpoints_are_pruned_so(void **state)
{
    (void)state;
    lac_allocation *a = NULL;
    lac_file *file;
    int64_t dense = 0, pruned = 0;
    assert_ok(allocate(LAC_METHOD_OBS, NULL, LAC_BUDGET_DENSITY, 0.6, 0, &a));
    lac_checkpoint_options options = checkpoint_options(LAC_METHOD_OBS);
    options.allocation = a;
    prune.permute = LAC_PERMUTE_ROWS; /* where a pattern knows of it */
    options.resume = LAC_RESUME_YES;
    assert_ok(lac_checkpoint_prune(test_path("in.safetensors"), test_path("out.safetensors"), &options));
    assert_ok(lac_file_open(test_path("out.safetensors"), &file));
    for (int64_t l = 0; l < LAYERS; l++) {
        lac_choice_info c = {.size = sizeof c};
        assert_ok(lac_allocation_get_layer(a, l, &c));
        if (c.pruned) {
            lac_weight *weight;
            lac_weight_info info = {.size = sizeof info};
            char want[LAC_PATTERN_TEXT_SIZE], got[LAC_PATTERN_TEXT_SIZE];
            assert_ok(lac_file_load_weight(file, c.name, &weight));
            assert_ok(lac_weight_get_info(weight, &info));
            assert_ok(lac_pattern_format(&c.pattern, want, sizeof want));
            assert_ok(lac_pattern_format(&info.pattern, got, sizeof got));
            assert_string_equal(got, want);
            assert_int_equal(info.has_row_perm != 0, c.pattern.family == LAC_FAMILY_VECTOR);
            lac_weight_free(weight);
            pruned++;
        } else {
            lac_tensor_info info = {.size = sizeof info};
            assert_ok(lac_file_find_tensor(file, c.name, &info));
            dense++;
        }
    }
    print_message("%lld layers pruned, %lld dense\n", (long long)pruned, (long long)dense);
    assert_true(pruned > 0 && dense > 0);
    lac_file_close(file);
    options.pattern = &patterns[0];
    assert_fails(lac_checkpoint_prune(test_path("in.safetensors"), test_path("out.safetensors"), &options),
                 LAC_STATUS_INVALID_ARGUMENT, "both");
    lac_allocation_free(a);
}

static int stop(void *user, const lac_layer_report *report)
{
    assert_string_equal(report->reason, "measured");
    return ++*(int *)user == 2;
}

static void refusals(void **state)
{
    (void)state;
    lac_device *device;
    lac_allocation *a = NULL;
    int seen = 0;
    assert_ok(lac_device_open("h200", &device));
    lac_checkpoint_options checkpoint = checkpoint_options(LAC_METHOD_MAGNITUDE);
    lac_allocate_options good = {.size = sizeof good, .patterns = patterns, .pattern_count = PATTERNS, .device = device}, o;
    const char *in = test_path("in.safetensors");
    good.budget = LAC_BUDGET_SPEEDUP, good.amount = 1;
    assert_fails(lac_checkpoint_allocate(in, &checkpoint, NULL, &a), LAC_STATUS_INVALID_ARGUMENT, "options is NULL");
    assert_fails(lac_checkpoint_allocate(in, &checkpoint, &good, NULL), LAC_STATUS_INVALID_ARGUMENT, "out is NULL");
    assert_fails(lac_checkpoint_allocate(NULL, &checkpoint, &good, &a), LAC_STATUS_INVALID_ARGUMENT, "in is NULL");
    o = good, o.patterns = NULL;
    assert_fails(lac_checkpoint_allocate(in, &checkpoint, &o, &a), LAC_STATUS_INVALID_ARGUMENT, "patterns is");
    o = good, o.budget = 7;
    assert_fails(lac_checkpoint_allocate(in, &checkpoint, &o, &a), LAC_STATUS_INVALID_ARGUMENT, "budget is 7");
    o = good, o.amount = 0;
    assert_fails(lac_checkpoint_allocate(in, &checkpoint, &o, &a), LAC_STATUS_INVALID_ARGUMENT, "amount is 0");
    o = good, o.budget = LAC_BUDGET_DENSITY, o.amount = 1.5;
    assert_fails(lac_checkpoint_allocate(in, &checkpoint, &o, &a), LAC_STATUS_INVALID_ARGUMENT, "amount is 1.5");
    o = good, o.device = NULL;
    assert_fails(lac_checkpoint_allocate(in, &checkpoint, &o, &a), LAC_STATUS_INVALID_ARGUMENT, "device is NULL");
    lac_plan_options unset = {0};
    o = good, o.plan = &unset;
    assert_fails(lac_checkpoint_allocate(in, &checkpoint, &o, &a), LAC_STATUS_INVALID_ARGUMENT, "options->plan->size is 0");
    o = good, o.m = -1;
    assert_fails(lac_checkpoint_allocate(in, &checkpoint, &o, &a), LAC_STATUS_INVALID_ARGUMENT, "m is -1");
    lac_pattern bad = patterns[0];
    bad.n = 9;
    o = good, o.patterns = &bad, o.pattern_count = 1;
    assert_fails(lac_checkpoint_allocate(in, &checkpoint, &o, &a), LAC_STATUS_INVALID_ARGUMENT, "patterns[0]");
    o = good, o.budget = LAC_BUDGET_DENSITY, o.amount = 0.01;
    assert_fails(lac_checkpoint_allocate(in, &checkpoint, &o, &a), LAC_STATUS_INVALID_ARGUMENT, "the least is 0.125");
    const char *none[] = {"nothing"};
    checkpoint.include = none, checkpoint.include_count = 1;
    assert_fails(lac_checkpoint_allocate(in, &checkpoint, &good, &a), LAC_STATUS_NOT_FOUND, "no tensor");
    checkpoint = checkpoint_options(LAC_METHOD_MAGNITUDE);
    checkpoint.on_layer = stop, checkpoint.user = &seen;
    assert_status(lac_checkpoint_allocate(in, &checkpoint, &good, &a), LAC_STATUS_CANCELLED);
    assert_int_equal(seen, 2);
    assert_null(a);
    lac_allocation_info info = {.size = sizeof info};
    assert_fails(lac_allocation_get_info(NULL, &info), LAC_STATUS_INVALID_ARGUMENT, "allocation is NULL");
    lac_device_close(device);
}

int main(void)
{
    setenv("LAC_CPU_RATES", "5,5,120,30,12,24", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices_are_the_best),
        cmocka_unit_test(numbers_are_those_of_single_calls),
        cmocka_unit_test(checkpoints_are_pruned_so),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests_name("patterns by budget", tests, set_up, NULL);
}
