/* gpu_case.c - one case on a GPU: operands to device memory, the plan executed, results back and judged. See gpu_case.h. */
#include "gpu/gpu_case.h"

/* Exactly the elements, from the first to the last, with the alignment that the host's copy has. */
static void *place(lac_device *device, const test_matrix *matrix, void **block)
{
    const lac_matrix *v = &matrix->view;
    int64_t lines = v->layout == LAC_LAYOUT_ROW_MAJOR ? v->rows : v->cols;
    int64_t length = v->layout == LAC_LAYOUT_ROW_MAJOR ? v->cols : v->rows;
    size_t lead = (uintptr_t)v->data % 64;
    size_t bytes = lines && length ? (size_t)((lines - 1) * v->ld + length) * lac_dtype_size(v->dtype) : 0;
    assert_ok(lac_device_allocate(device, lead + bytes + !bytes, block));
    assert_ok(lac_device_upload(device, (char *)*block + lead, v->data, bytes));
    return (char *)*block + lead;
}

enum { WORKSPACE_GUARD = 256 };

/* Device memory of a case. */
typedef struct operands {
    void *x, *y, *c, *bias, *workspace; /* blocks */
    lac_execute_args args;              /* what lies in them */
    size_t workspace_bytes;
} operands;

static operands operands_make(lac_device *device, const plan_case *c, const lac_plan *plan)
{
    operands o = {.args = case_args(c)};
    lac_plan_info info = {.size = sizeof info};
    assert_ok(lac_plan_get_info(plan, &info));
    o.workspace_bytes = info.workspace_bytes;
    o.args.x = place(device, &c->x, &o.x);
    assert_ok(lac_device_allocate(device, c->y.bytes, &o.y));
    o.args.y = (char *)o.y + ((unsigned char *)c->y.view.data - c->y.block);
    if (o.args.bias) o.args.bias = place(device, &c->bias, &o.bias);
    if (o.args.c) o.args.c = c->c_is_y ? o.args.y : place(device, &c->c, &o.c);
    if (o.workspace_bytes) {
        assert_ok(lac_device_allocate(device, o.workspace_bytes + WORKSPACE_GUARD, &o.workspace));
        o.args.workspace = o.workspace;
        o.args.workspace_bytes = o.workspace_bytes;
    }
    return o;
}

static void operands_free(lac_device *device, operands *o)
{
    lac_device_release(device, o->x);
    lac_device_release(device, o->y);
    lac_device_release(device, o->c);
    lac_device_release(device, o->bias);
    lac_device_release(device, o->workspace);
}

/* Y and its surroundings as before the call; the workspace full of NaNs, and a guard behind it. */
static void reset(lac_device *device, const plan_case *c, const operands *o)
{
    case_reset_y(c);
    assert_ok(lac_device_upload(device, o->y, c->y.block, c->y.bytes));
    if (!o->workspace_bytes) return;
    /* A sanitizer that looks for reads of memory nobody wrote wants it raw. */
    size_t skipped = getenv("LAC_TEST_GPU_RAW") ? o->workspace_bytes : 0,
           bytes = o->workspace_bytes + WORKSPACE_GUARD - skipped;
    unsigned char *fill = malloc(bytes);
    memset(fill, 0xff, bytes);
    assert_ok(lac_device_upload(device, (char *)o->workspace + skipped, fill, bytes));
    free(fill);
}

static void execute(lac_device *device, const plan_case *c, const lac_plan *plan, const operands *o)
{
    reset(device, c, o);
    assert_ok(lac_plan_execute(plan, &o->args));
    if (c->m % 2) assert_ok(lac_device_synchronize(device)); /* else the download waits for the default stream by itself */
    assert_ok(lac_device_download(device, c->y.block, o->y, c->y.bytes));
    if (!o->workspace_bytes) return;
    unsigned char guard[WORKSPACE_GUARD];
    assert_ok(lac_device_download(device, guard, (char *)o->workspace + o->workspace_bytes, sizeof guard));
    for (size_t i = 0; i < sizeof guard; ++i)
        if (guard[i] != 0xff) fail_msg("byte %zu behind the workspace was written", i);
}

static void compare(const plan_case *c, const char *kernel, const double *want, const double *bound, judge how)
{
    bool *owned = owned_outputs(c->weight);
    for (int64_t i = 0; i < c->m; ++i) {
        for (int64_t j = 0; j < c->info.n_out; ++j) {
            int64_t at = i * c->info.n_out + j;
            double got = test_matrix_get(&c->y, i, j);
            double before = c->c_is_y ? test_matrix_get(&c->c, i, j) : untouched;
            bool good = !owned[j]            ? test_same_number(got, before)
                        : how == JUDGE_EXACT ? got == test_rounded(c->y.view.dtype, want[at])
                                             : bound[at] >= 0.0 && agrees(got, want[at], bound[at]);
            if (!good)
                fail_msg("%s: Y[%lld][%lld] of %lld x %lld, k %lld, is %.9g, the oracle says %.9g +- %.3g%s", kernel,
                         (long long)i, (long long)j, (long long)c->m, (long long)c->info.n_out, (long long)c->info.k_in, got,
                         want[at], how == JUDGE_EXACT ? 0.0 : bound[at], owned[j] ? "" : " (not this shard's)");
        }
    }
    assert_true(test_matrix_intact(&c->y));
    free(owned);
}

void gpu_case_check(lac_device *device, const plan_case *c, const char *kernel, judge how)
{
    lac_plan *plan = NULL;
    lac_plan_options options = c->options;
    lac_plan_info info = {.size = sizeof info};
    double *want, *bound;
    options.kernel = kernel;
    assert_ok(lac_plan_create(device, c->weight, c->m, &options, &plan));
    assert_ok(lac_plan_get_info(plan, &info));
    case_reset_y(c); /* the oracle reads C, which may be Y */
    case_reference(c, plan, &want, &bound);
    operands o = operands_make(device, c, plan);
    execute(device, c, plan, &o);
    unsigned char *first = test_matrix_snapshot(&c->y);
    execute(device, c, plan, &o);
    if (!test_matrix_unchanged(&c->y, first)) fail_msg("%s: the second run gave other bits than the first", info.kernel);
    compare(c, info.kernel, want, bound, how);
    free(first);
    free(want);
    free(bound);
    operands_free(device, &o);
    lac_plan_free(plan);
}

void gpu_case_launch(lac_device *device, const plan_case *c, const char *kernel, judge how)
{
    lac_plan *plan = NULL;
    lac_plan_options options = c->options;
    (void)how;
    options.kernel = kernel;
    assert_ok(lac_plan_create(device, c->weight, c->m, &options, &plan));
    operands o = operands_make(device, c, plan);
    execute(device, c, plan, &o);
    assert_true(test_matrix_intact(&c->y));
    operands_free(device, &o);
    lac_plan_free(plan);
}
