/* test_plan_arguments.c - every argument that plans, execution and devices must refuse: the message names it and its value,
 * and nothing is touched. */
#include "plan_case.h"

typedef struct fixture {
    plan_case c;
    lac_device *device;
    lac_plan *plan; /* the planner's pick for c.options */
    lac_execute_args args;
    lac_plan_info info;
} fixture;

static fixture fixture_make(const lac_plan_options *options)
{
    test_random random = test_random_make("arguments", 0);
    lac_pattern pattern = pattern_of("2:4");
    fixture f = {.info = {.size = sizeof f.info}};
    f.c = case_make(&random, weight_make(&random, &pattern, 12, 16, LAC_DTYPE_F32, TEST_FILL_INTEGER), 3, options,
                    TEST_FILL_INTEGER);
    f.plan = plan_make(&f.c, NULL, 1);
    assert_ok(lac_device_open("cpu", &f.device));
    assert_ok(lac_plan_get_info(f.plan, &f.info));
    f.args = case_args(&f.c);
    f.args.workspace = aligned_alloc(64, f.info.workspace_bytes / 64 * 64 + 128);
    f.args.workspace_bytes = f.info.workspace_bytes;
    case_reset_y(&f.c);
    return f;
}

static void fixture_free(fixture *f)
{
    free(f->args.workspace);
    lac_plan_free(f->plan);
    lac_device_close(f->device);
    case_free(&f->c);
}

/* Execute refuses `changed` with a message that contains `text`, and leaves Y alone. */
static void refuse(const fixture *f, const lac_execute_args *changed, const char *text)
{
    unsigned char *before = test_matrix_snapshot(&f->c.y);
    assert_fails(lac_plan_execute(f->plan, changed), LAC_STATUS_INVALID_ARGUMENT, text);
    assert_true(test_matrix_unchanged(&f->c.y, before));
    free(before);
}

#define REFUSE(field, value, text)                                                                                             \
    do {                                                                                                                       \
        lac_execute_args changed = f.args;                                                                                     \
        changed.field = (value);                                                                                               \
        refuse(&f, &changed, text);                                                                                            \
    } while (0)

static void execute_refuses_wrong_arguments(void **state)
{
    (void)state;
    lac_plan_options options = {.has_bias = 1, .has_residual = 1};
    fixture f = fixture_make(&options);
    assert_ok(lac_plan_execute(f.plan, &f.args));
    assert_fails(lac_plan_execute(NULL, &f.args), LAC_STATUS_INVALID_ARGUMENT, "plan is NULL");
    assert_fails(lac_plan_execute(f.plan, NULL), LAC_STATUS_INVALID_ARGUMENT, "args is NULL");
    REFUSE(size, 0, "args->size is 0");
    REFUSE(x, NULL, "args->x is NULL");
    REFUSE(y, NULL, "args->y is NULL");
    REFUSE(c, NULL, "args->c is NULL");
    REFUSE(bias, NULL, "args->bias is NULL");
    REFUSE(x, (const char *)f.args.x + 1, "args->x is");
    REFUSE(y, (char *)f.args.y + 2, "args->y is");
    REFUSE(c, (const char *)f.args.c + 3, "args->c is");
    REFUSE(bias, (const char *)f.args.bias + 1, "args->bias is");
    REFUSE(ldx, 15, "args->ldx is 15");
    REFUSE(ldx, -1, "args->ldx is -1");
    REFUSE(ldx, INT64_MAX, "args->ldx is 9223372036854775807");
    REFUSE(ldy, 11, "args->ldy is 11");
    REFUSE(ldc, 11, "args->ldc is 11");
    REFUSE(stream, &f, "args->stream is");
    if (f.info.workspace_bytes) {
        REFUSE(workspace, NULL, "args->workspace is NULL");
        REFUSE(workspace, (char *)f.args.workspace + 4, "args->workspace is");
        REFUSE(workspace_bytes, f.info.workspace_bytes - 1, "args->workspace_bytes is");
    }
    lac_execute_args alias = f.args;
    alias.c = alias.y;
    alias.ldc = alias.ldy + 1;
    refuse(&f, &alias, "args->c is args->y");
    fixture_free(&f);

    lac_plan_options bare = {0};
    f = fixture_make(&bare);
    float one = 1.0f;
    REFUSE(bias, &one, "the plan has no bias");
    REFUSE(c, &one, "the plan has no residual");
    REFUSE(beta, &one, "args->beta is 1");
    assert_ok(lac_plan_execute(f.plan, &f.args));
    fixture_free(&f);
}

/* Plan creation refuses `changed`, and writes no plan. */
static void refuse_options(const fixture *f, const lac_plan_options *changed, lac_status status, const char *text)
{
    lac_plan *plan = f->plan; /* stands for whatever was there */
    assert_fails(lac_plan_create(f->device, f->c.weight, 3, changed, &plan), status, text);
    assert_ptr_equal(plan, f->plan);
}

#define REFUSE_OPTION(field, value, status, text)                                                                              \
    do {                                                                                                                       \
        lac_plan_options changed = f.c.options;                                                                                \
        changed.field = (value);                                                                                               \
        refuse_options(&f, &changed, status, text);                                                                            \
    } while (0)

static void create_refuses_wrong_options(void **state)
{
    (void)state;
    lac_plan_options options = {0};
    fixture f = fixture_make(&options);
    lac_plan *plan = NULL;
    const lac_status invalid = LAC_STATUS_INVALID_ARGUMENT;
    assert_fails(lac_plan_create(NULL, f.c.weight, 3, NULL, &plan), invalid, "device is NULL");
    assert_fails(lac_plan_create(f.device, NULL, 3, NULL, &plan), invalid, "weight is NULL");
    assert_fails(lac_plan_create(f.device, f.c.weight, 3, NULL, NULL), invalid, "out is NULL");
    assert_fails(lac_plan_create(f.device, f.c.weight, -1, NULL, &plan), invalid, "m is -1");
    assert_fails(lac_plan_create(f.device, f.c.weight, INT64_C(1) << 31, NULL, &plan), invalid, "m is 2147483648");
    assert_null(plan);
    REFUSE_OPTION(size, 0, invalid, "options->size is 0");
    REFUSE_OPTION(x_layout, (lac_layout)2, invalid, "options->x_layout is 2");
    REFUSE_OPTION(y_layout, (lac_layout)77, invalid, "options->y_layout is 77");
    REFUSE_OPTION(x_dtype, LAC_DTYPE_F64, invalid, "options->x_dtype is 4 (f64)");
    REFUSE_OPTION(y_dtype, LAC_DTYPE_I8, invalid, "options->y_dtype is 5 (i8)");
    REFUSE_OPTION(bias_dtype, (lac_dtype)99, invalid, "options->bias_dtype is 99");
    REFUSE_OPTION(c_dtype, (lac_dtype)8, invalid, "options->c_dtype is 8");
    REFUSE_OPTION(precision, (lac_precision)4, invalid, "options->precision is 4");
    REFUSE_OPTION(activation, (lac_activation)5, invalid, "options->activation is 5");
    REFUSE_OPTION(has_bias, 2, invalid, "options->has_bias is 2");
    REFUSE_OPTION(has_residual, -1, invalid, "options->has_residual is -1");
    REFUSE_OPTION(threads, -3, invalid, "options->threads is -3");
    REFUSE_OPTION(threads, 4097, invalid, "options->threads is 4097; it lies in 0 to 4096");
    REFUSE_OPTION(measure, 2, invalid, "options->measure is 2");
    REFUSE_OPTION(kernel, "cpu_warp_drive", LAC_STATUS_NOT_FOUND, "options->kernel is 'cpu_warp_drive'");
    assert_fails(lac_plan_get_info(NULL, &f.info), invalid, "plan is NULL");
    assert_fails(lac_plan_get_info(f.plan, NULL), invalid, "info is NULL");
    lac_plan_info zero = {0};
    assert_fails(lac_plan_get_info(f.plan, &zero), invalid, "info->size is 0");

    assert_ok(lac_plan_create(f.device, f.c.weight, 3, NULL, &plan)); /* no options at all: every default */
    lac_plan_free(plan);
    fixture_free(&f);
}

/* A caller built with a later header, and one built with an earlier one. */
static void structs_may_grow(void **state)
{
    (void)state;
    lac_plan_options options = {0};
    fixture f = fixture_make(&options);
    struct {
        lac_plan_options known;
        uint64_t later;
    } grown = {.known = {.size = sizeof grown}};
    lac_plan *plan = NULL;
    assert_ok(lac_plan_create(f.device, f.c.weight, 3, &grown.known, &plan));
    lac_plan_free(plan);
    plan = NULL;
    grown.later = 1;
    assert_fails(lac_plan_create(f.device, f.c.weight, 3, &grown.known, &plan), LAC_STATUS_INVALID_ARGUMENT,
                 "options->size is");
    assert_null(plan);

    lac_plan_options old = {.size = offsetof(lac_plan_options, precision), .has_bias = 77}; /* past its end: unread */
    assert_ok(lac_plan_create(f.device, f.c.weight, 3, &old, &plan));
    lac_plan_free(plan);
    fixture_free(&f);
}

/* ---- devices and kernels */

static void devices_say_what_they_are(void **state)
{
    (void)state;
    lac_device_info info = {.size = sizeof info};
    assert_ok(lac_device_probe(0, &info));
    assert_string_equal(info.name, "cpu");
    assert_int_equal(info.kind, LAC_DEVICE_KIND_CPU);
    assert_int_equal(info.available, 1);
    assert_true(info.cores >= 1);
    assert_true(strlen(info.model) > 0 && strlen(info.vector_unit) > 0);
    assert_true(info.memory_bytes > 0);
    assert_status(lac_device_probe(1000, &info), LAC_STATUS_NOT_FOUND);
    lac_device *device = NULL;
    assert_fails(lac_device_open("gpu", &device), LAC_STATUS_NOT_FOUND, "'gpu'");
    assert_fails(lac_device_open(NULL, &device), LAC_STATUS_INVALID_ARGUMENT, "name is NULL");
    assert_fails(lac_device_open("cpu", NULL), LAC_STATUS_INVALID_ARGUMENT, "out is NULL");
    assert_null(device);
    assert_ok(lac_device_open("auto", &device));
    assert_ok(lac_device_get_info(device, &info));
    lac_device_close(device);
    lac_device_close(NULL);
    lac_kernel_info kernel = {.size = sizeof kernel};
    assert_status(lac_kernel_probe(1000, &kernel), LAC_STATUS_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(execute_refuses_wrong_arguments),
        cmocka_unit_test(create_refuses_wrong_options),
        cmocka_unit_test(structs_may_grow),
        cmocka_unit_test(devices_say_what_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
