/* test_contract_checkpoint.c - what lacuna.h says of pruning checkpoints and of patterns by budget, and no other test has tried: every form that a
 * calibration file may have, what a report tells of layers that are pruned and of those that are copied, and which options are not used. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/support.h"

enum { N = 12, K = 16, SAMPLES = 40, GRADIENTS = 3, MOST = 8 };

static float w[N * K], x[SAMPLES * K], gradients[GRADIENTS * N * K];
static double moments[K * K];
static lac_pattern pattern; /* 2:4 */

/* ---- files */

typedef struct tensor {
    const char *name;
    lac_dtype dtype;
    int rank;
    int64_t shape[3];
    const void *data;
} tensor;

static void write_tensors(const char *path, const tensor *list, int count)
{
    lac_writer *writer = NULL;
    assert_ok(lac_writer_open(test_path(path), &writer));
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < count; i++) {
            lac_tensor_info info = {.size = sizeof info, .name = list[i].name, .dtype = list[i].dtype, .rank = list[i].rank};
            uint64_t bytes = lac_dtype_size(list[i].dtype);
            for (int d = 0; d < info.rank; d++) bytes *= (uint64_t)(info.shape[d] = list[i].shape[d]);
            if (pass == 0)
                assert_ok(lac_writer_declare_tensor(writer, &info));
            else
                assert_ok(lac_writer_write_tensor(writer, info.name, list[i].data, bytes));
        }
    assert_ok(lac_writer_commit(writer));
    lac_writer_free(writer);
}

#define WRITE(path, ...)                                                                                                       \
    write_tensors(path, (const tensor[]){__VA_ARGS__}, (int)(sizeof((const tensor[]){__VA_ARGS__}) / sizeof(tensor)))

/* ---- reports */

typedef struct reports {
    lac_layer_report list[MOST];
    char name[MOST][64];
    int count, stop_after;
} reports;

static int see(void *user, const lac_layer_report *report)
{
    reports *r = user;
    assert_true(r->count < MOST && report->size == sizeof *report);
    r->list[r->count] = *report;
    snprintf(r->name[r->count], sizeof r->name[0], "%s", report->name);
    return ++r->count == r->stop_after;
}

static const lac_layer_report *report_of(const reports *r, const char *name)
{
    for (int i = 0; i < r->count; i++)
        if (!strcmp(r->name[i], name)) return &r->list[i];
    fail_msg("no report of %s", name);
    return NULL;
}

static lac_status run_to(const char *out, const char *in, lac_method method, const char *calibration, lac_resume resume,
                         reports *r)
{
    lac_prune_options prune = {.size = sizeof prune, .method = method, .threads = 1};
    lac_checkpoint_options options = {.size = sizeof options, .pattern = &pattern, .prune = &prune, .resume = resume};
    options.on_layer = see, options.user = r;
    if (calibration) options.calibration = test_path(calibration);
    return lac_checkpoint_prune(test_path(in), test_path(out), &options);
}

/* The only weight of a file, dense. */
static void load(const char *path, float out[N * K])
{
    lac_weight *weight = NULL;
    lac_matrix dense = {.data = out, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K};
    assert_ok(lac_weight_load(test_path(path), NULL, &weight));
    assert_ok(lac_weight_decompress(weight, &dense));
    lac_weight_free(weight);
}

/* ---- calibration files */

/* What lac_prune_and_correct makes of the same samples, and what that loses. */
static double by_hand(lac_method method, float out[N * K])
{
    lac_calibration *calibration = NULL;
    lac_gradients given = {.size = sizeof given, .data = gradients, .dtype = LAC_DTYPE_F32, .samples = GRADIENTS};
    lac_matrix samples = {.data = x, .dtype = LAC_DTYPE_F32, .rows = SAMPLES, .cols = K};
    lac_matrix dense = {.data = w, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K}, corrected = dense;
    lac_mask *mask = NULL;
    double error, total;
    corrected.data = out;
    assert_ok(lac_calibration_create(K, &calibration));
    assert_ok(lac_calibration_add(calibration, &samples, 1));
    lac_prune_options options = {.size = sizeof options, .method = method, .threads = 1, .calibration = calibration};
    options.gradients = &given;
    assert_ok(lac_prune_and_correct(&dense, &pattern, &options, &corrected, &mask));
    assert_ok(lac_calibration_error(calibration, &dense, &corrected, &error, &total));
    lac_mask_free(mask);
    lac_calibration_free(calibration);
    return error / total;
}

static void expect_by_hand(const char *in, lac_method method, const char *calibration, double slack)
{
    static float want[N * K], got[N * K];
    double lost = by_hand(method, want);
    reports r = {.count = 0};
    print_message("%s by %s\n", in, calibration);
    assert_ok(run_to("out.safetensors", in, method, calibration, LAC_RESUME_NO, &r));
    load("out.safetensors", got);
    for (int i = 0; i < N * K; i++) assert_true(fabs(got[i] - want[i]) <= slack && (got[i] == 0) == (want[i] == 0));
    for (int i = 0; i < r.count; i++) {
        if (!r.list[i].pruned) continue;
        if (method == LAC_METHOD_FISHER)
            assert_true(r.list[i].loss_rise > 0 && r.list[i].output_error < 0);
        else
            assert_true(fabs(r.list[i].output_error - lost) <= 1e-4 * lost && r.list[i].loss_rise < 0);
    }
}

static void calibrations_come_in_every_form(void **state)
{
    (void)state;
    const double count[1] = {SAMPLES};
    WRITE("weight", {"a.b.weight", LAC_DTYPE_F32, 2, {N, K}, w});
    WRITE("other", {"c", LAC_DTYPE_F32, 2, {N, K}, w});
    WRITE("weight.in", {"a.b.input", LAC_DTYPE_F32, 2, {SAMPLES, K}, x});
    WRITE("other.in", {"c.input", LAC_DTYPE_F32, 2, {SAMPLES, K}, x});
    WRITE("deep.in", {"a.b.input", LAC_DTYPE_F32, 3, {4, SAMPLES / 4, K}, x});
    WRITE("moments", {"a.b.moments", LAC_DTYPE_F64, 2, {K, K}, moments}, {"a.b.samples", LAC_DTYPE_F64, 1, {1}, count});
    WRITE("gradient", {"a.b.gradient", LAC_DTYPE_F32, 3, {GRADIENTS, N, K}, gradients});
    WRITE("other.gradient", {"c.gradient", LAC_DTYPE_F32, 3, {GRADIENTS, N, K}, gradients});
    lac_matrix samples = {.data = x, .dtype = LAC_DTYPE_F32, .rows = SAMPLES, .cols = K};
    assert_ok(lac_matrix_save_npy(&samples, test_path("x.npy")));
    for (lac_method method = LAC_METHOD_WANDA; method <= LAC_METHOD_OBS; method++) {
        expect_by_hand("weight", method, "weight.in", 0);
        expect_by_hand("weight", method, "deep.in", 0);
        expect_by_hand("weight", method, "x.npy", 0);
        expect_by_hand("other", method, "other.in", 0);
        expect_by_hand("weight", method, "moments", 1e-4);
        reports r = {.count = 0};
        assert_fails(run_to("none", "weight", method, "other.in", LAC_RESUME_NO, &r), LAC_STATUS_NOT_FOUND, "a.b.input");
        assert_fails(run_to("none", "weight", method, NULL, LAC_RESUME_NO, &r), LAC_STATUS_INVALID_ARGUMENT,
                     "calibration is NULL");
    }
    expect_by_hand("weight", LAC_METHOD_FISHER, "gradient", 0);
    expect_by_hand("other", LAC_METHOD_FISHER, "other.gradient", 0);
    WRITE("moments", {"a.b.moments", LAC_DTYPE_F64, 2, {K, K}, moments}); /* of how many? */
    reports r = {.count = 0};
    assert_fails(run_to("none", "weight", LAC_METHOD_OBS, "moments", LAC_RESUME_NO, &r), LAC_STATUS_NOT_FOUND, "a.b.samples");
}

/* Layers have one each: one for all is refused. */
static void one_calibration_for_all_is_refused(void **state)
{
    (void)state;
    lac_calibration *calibration = NULL;
    assert_ok(lac_calibration_create(K, &calibration));
    lac_prune_options prune = {.size = sizeof prune, .method = LAC_METHOD_WANDA, .calibration = calibration};
    lac_checkpoint_options options = {.size = sizeof options, .pattern = &pattern, .prune = &prune};
    char in[512], inputs[512];
    snprintf(in, sizeof in, "%s", test_path("weight"));
    snprintf(inputs, sizeof inputs, "%s", test_path("weight.in"));
    options.calibration = inputs;
    assert_fails(lac_checkpoint_prune(in, test_path("none"), &options), LAC_STATUS_INVALID_ARGUMENT,
                 "prune->calibration is given");
    assert_int_not_equal(access(test_path("none"), F_OK), 0);
    lac_calibration_free(calibration);
}

/* ---- reports */

static void reports_tell_what_was_done(void **state)
{
    (void)state;
    static const char *const copied[] = {"bias", "cube", "ids"};
    reports r = {.count = 0};
    lac_checkpoint_options none = {.size = sizeof none, .pattern = &pattern, .on_layer = see, .user = &r};
    WRITE("mixed", {"a", LAC_DTYPE_F32, 2, {N, K}, w}, {"bias", LAC_DTYPE_F32, 1, {K}, x},
          {"cube", LAC_DTYPE_F32, 3, {2, 2, 2}, x}, {"ids", LAC_DTYPE_I8, 2, {2, 2}, x});
    assert_ok(lac_checkpoint_prune(test_path("mixed"), test_path("out.safetensors"), &none)); /* no include: floating and 2-D */
    assert_int_equal(r.count, 4);
    const lac_layer_report *a = report_of(&r, "a");
    assert_true(a->pruned && a->n == N && a->k == K && a->energy_kept > 0.5 && a->energy_kept < 1);
    assert_true(a->output_error < 0 && a->loss_rise < 0 && a->moved == 0 && a->resumed == 0); /* nothing to tell it by */
    assert_true(a->pattern.family == LAC_FAMILY_ELEMENT && a->pattern.n == 2 && a->pattern.m == 4);
    for (int i = 0; i < 3; i++) {
        const lac_layer_report *c = report_of(&r, copied[i]);
        assert_true(!c->pruned && c->energy_kept == 1 && c->dense_bytes == c->stored_bytes && c->output_error < 0);
        if (i < 2) assert_true(c->n == 0 && c->k == 0);
    }
}

/* A layer that an earlier run has finished is told with that run's seconds. */
static void resumed_layers_have_their_own_seconds(void **state)
{
    (void)state;
    reports cut = {.stop_after = 2}, rest = {.count = 0};
    WRITE("three", {"a", LAC_DTYPE_F32, 2, {N, K}, w}, {"b", LAC_DTYPE_F32, 2, {N, K}, w}, {"c", LAC_DTYPE_F32, 2, {N, K}, w});
    assert_status(run_to("three.out", "three", LAC_METHOD_MAGNITUDE, NULL, LAC_RESUME_YES, &cut), LAC_STATUS_CANCELLED);
    assert_int_equal(access(test_path("three.out.partial"), F_OK) | access(test_path("three.out.journal"), F_OK), 0);
    assert_ok(run_to("three.out", "three", LAC_METHOD_MAGNITUDE, NULL, LAC_RESUME_YES, &rest));
    for (int i = 0; i < 3; i++) assert_int_equal(rest.list[i].resumed, i < 2);
    for (int i = 0; i < 2; i++) assert_true(rest.list[i].seconds == cut.list[i].seconds);
    assert_true(access(test_path("three.out.partial"), F_OK) && access(test_path("three.out.journal"), F_OK));
}

/* ---- patterns by budget */

static lac_status allocate(const lac_checkpoint_options *checkpoint, lac_device *device, int64_t m,
                           const lac_plan_options *plan, lac_allocation **out)
{
    lac_allocate_options options = {.size = sizeof options, .patterns = &pattern, .pattern_count = 1, .device = device, .m = m};
    options.budget = LAC_BUDGET_DENSITY, options.amount = 0.5, options.plan = plan;
    return lac_checkpoint_allocate(test_path("weight"), checkpoint, &options, out);
}

static lac_choice_info first_of(const lac_allocation *allocation)
{
    lac_choice_info info = {.size = sizeof info};
    assert_ok(lac_allocation_get_layer(allocation, 0, &info));
    return info;
}

/* Pattern, keep_dense, resume and an allocation are not used; nothing is written; on_layer is called; one token unless said. */
static void allocating_uses_no_more_than_it_says(void **state)
{
    (void)state;
    lac_device *cpu = NULL;
    lac_allocation *plain = NULL, *other = NULL, *one = NULL;
    reports r = {.count = 0};
    lac_pattern wrong = pattern;
    wrong.n = 99;
    lac_checkpoint_options bare = {.size = sizeof bare}, full = {.size = sizeof full, .pattern = &wrong, .keep_dense = 1};
    lac_plan_options zero = {.size = sizeof zero};
    assert_ok(lac_device_open("cpu", &cpu));
    int64_t files = test_folder_files();
    assert_ok(allocate(&bare, cpu, 0, NULL, &plain));
    full.resume = LAC_RESUME_YES, full.allocation = plain, full.on_layer = see, full.user = &r;
    assert_ok(allocate(&full, cpu, 0, &zero, &other));
    assert_ok(allocate(&bare, cpu, 1, NULL, &one));
    assert_int_equal(test_folder_files(), files);
    assert_int_equal(r.count, 1);
    lac_choice_info a = first_of(plain), b = first_of(other), c = first_of(one);
    assert_true(a.pruned && a.loss == b.loss && a.seconds == b.seconds && a.dense_seconds == b.dense_seconds);
    assert_true(a.seconds == c.seconds && a.seconds > 0);
    assert_true(a.n == N && a.k == K && a.density == 0.5 && !strcmp(a.name, "a.b.weight"));
    lac_choice_info info = {.size = sizeof info};
    assert_status(lac_allocation_get_layer(plain, 1, &info), LAC_STATUS_NOT_FOUND);
    assert_status(lac_allocation_get_layer(plain, -1, &info), LAC_STATUS_NOT_FOUND);
    assert_status(lac_allocation_get_option(plain, 1, 0, &info), LAC_STATUS_NOT_FOUND);
    assert_status(lac_allocation_get_option(plain, 0, 2, &info), LAC_STATUS_NOT_FOUND);
    assert_ok(lac_allocation_get_option(plain, 0, 0, &info));
    assert_true(!info.pruned && info.loss == 0 && info.density == 1 && info.seconds == info.dense_seconds);
    lac_allocation_free(one);
    lac_allocation_free(other);
    lac_allocation_free(plain);
    lac_device_close(cpu);
}

/* What is lost, as each method sees it: of the weights, of the outputs, or of the loss. */
static void losses_are_the_method_s_own(void **state)
{
    (void)state;
    static const char *const inputs[] = {NULL, NULL, "weight.in", "weight.in", "gradient"};
    for (int method = LAC_METHOD_MAGNITUDE; method <= LAC_METHOD_FISHER; method++) {
        lac_prune_options prune = {.size = sizeof prune, .method = (lac_method)method, .threads = 1};
        lac_checkpoint_options options = {.size = sizeof options, .prune = &prune};
        char path[512];
        if (inputs[method]) {
            snprintf(path, sizeof path, "%s", test_path(inputs[method]));
            options.calibration = path;
        }
        lac_allocation *allocation = NULL;
        lac_allocation_info all = {.size = sizeof all};
        reports r = {.count = 0};
        assert_ok(allocate(&options, NULL, 0, NULL, &allocation));
        assert_ok(lac_allocation_get_info(allocation, &all));
        lac_choice_info choice = first_of(allocation);
        assert_true(choice.seconds < 0 && choice.dense_seconds < 0 && all.seconds < 0 && all.dense_seconds < 0);
        assert_true(all.layers == 1 && all.pruned == 1 && all.loss == choice.loss && all.loss_bound == all.loss &&
                    all.density == 0.5);
        assert_ok(run_to("out.safetensors", "weight", (lac_method)method, inputs[method], LAC_RESUME_NO, &r));
        double want = method == LAC_METHOD_MAGNITUDE ? 1 - r.list[0].energy_kept
                      : method == LAC_METHOD_FISHER  ? r.list[0].loss_rise
                                                     : r.list[0].output_error;
        assert_true(choice.loss > 0 && fabs(choice.loss - want) <= 1e-9 * want);
        lac_allocation_free(allocation);
    }
}

static int set_up(void **state)
{
    (void)state;
    setenv("LAC_CPU_RATES", "5,5,120,30,12,24", 1);
    test_random random = test_random_make("contract_checkpoint", 0);
    for (int i = 0; i < N * K; i++) w[i] = (float)test_random_gaussian(&random);
    for (int i = 0; i < SAMPLES * K; i++) x[i] = (float)(test_random_gaussian(&random) * (1 + i % K % 3));
    for (int i = 0; i < GRADIENTS * N * K; i++) gradients[i] = (float)test_random_gaussian(&random);
    for (int s = 0; s < SAMPLES; s++)
        for (int i = 0; i < K * K; i++) moments[i] += (double)x[s * K + i / K] * x[s * K + i % K];
    test_folder_clear();
    assert_ok(lac_pattern_parse("2:4", &pattern));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calibrations_come_in_every_form),      cmocka_unit_test(one_calibration_for_all_is_refused),
        cmocka_unit_test(reports_tell_what_was_done),           cmocka_unit_test(resumed_layers_have_their_own_seconds),
        cmocka_unit_test(allocating_uses_no_more_than_it_says), cmocka_unit_test(losses_are_the_method_s_own),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
