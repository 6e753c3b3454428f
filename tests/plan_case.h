/* plan_case.h - a weight, a plan and its operands for the tests of oracle, plans and threads: made at random or by hand,
 * run on any kernel, and judged by the oracle. */
#ifndef TEST_PLAN_CASE_H
#define TEST_PLAN_CASE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/support.h"

/* What stands in Y and in the oracle's arrays before anything is written: exact in every dtype. */
static const double untouched = -96.0;

enum { MOST_KERNELS = 64 };

typedef struct plan_case {
    lac_weight *weight;
    lac_weight_info info;
    int64_t m;
    lac_plan_options options;
    test_matrix x, y, c, bias; /* x: [m][k_in], y and c: [m][n_out], bias: [1][n_out] */
    float alpha, beta;
    bool pass_alpha, pass_beta; /* false: NULL */
    bool c_is_y;
} plan_case;

static inline lac_pattern pattern_of(const char *text)
{
    lac_pattern pattern;
    assert_ok(lac_pattern_parse(text, &pattern));
    return pattern;
}

/* A random weight of the pattern. */
static inline lac_weight *weight_make(test_random *random, const lac_pattern *pattern, int64_t n, int64_t k, lac_dtype dtype,
                                      test_fill fill)
{
    test_matrix dense = test_matrix_random(random, n, k, dtype);
    test_matrix_fill(random, &dense, fill);
    lac_mask *mask = NULL;
    lac_weight *weight = NULL;
    /* One thread: the thread sanitizer cannot see how OpenMP's own threads wait for each other. */
    lac_prune_options prune = {.size = sizeof prune, .threads = 1};
    lac_compress_options compress = {.size = sizeof compress, .threads = 1};
    assert_ok(lac_prune(&dense.view, pattern, &prune, &mask));
    assert_ok(lac_weight_compress(&dense.view, mask, &compress, &weight));
    lac_mask_free(mask);
    test_matrix_free(&dense);
    return weight;
}

static inline lac_weight_info weight_info(const lac_weight *weight)
{
    lac_weight_info info = {.size = sizeof info};
    assert_ok(lac_weight_get_info(weight, &info));
    return info;
}

static inline uint32_t *random_permutation(test_random *random, int64_t count)
{
    uint32_t *perm = malloc((size_t)(count + 1) * sizeof *perm);
    for (int64_t i = 0; i < count; ++i) perm[i] = (uint32_t)i;
    for (int64_t i = count - 1; i > 0; --i) {
        int64_t j = test_random_between(random, 0, i);
        uint32_t swap = perm[i];
        perm[i] = perm[j];
        perm[j] = swap;
    }
    return perm;
}

/* The same stored rows and columns under random permutations: frees `weight`. */
static inline lac_weight *weight_permuted(test_random *random, lac_weight *weight, bool rows, bool columns)
{
    lac_weight_info info = weight_info(weight);
    lac_span parts[LAC_PART_COUNT];
    for (int part = 0; part < LAC_PART_COUNT; ++part) assert_ok(lac_weight_get_part(weight, (lac_part)part, &parts[part]));
    uint32_t *row_perm = random_permutation(random, info.n), *col_perm = random_permutation(random, info.k);
    if (rows) parts[LAC_PART_ROW_PERM] = (lac_span){row_perm, (uint64_t)info.n * sizeof *row_perm};
    if (columns) parts[LAC_PART_COL_PERM] = (lac_span){col_perm, (uint64_t)info.k * sizeof *col_perm};
    info.has_row_perm = rows || info.has_row_perm;
    info.has_col_perm = columns || info.has_col_perm;
    lac_weight *permuted = NULL;
    assert_ok(lac_weight_from_parts(&info, parts, &permuted));
    free(row_perm);
    free(col_perm);
    lac_weight_free(weight);
    return permuted;
}

/* The second half of the weight along `axis`, cut where the pattern allows it: frees `weight`. */
static inline lac_weight *weight_half(lac_weight *weight, lac_axis axis)
{
    lac_weight_info info = weight_info(weight);
    int64_t extent = axis == LAC_AXIS_N ? info.n : info.k;
    int64_t step =
        axis == LAC_AXIS_N ? info.pattern.unit_n : (int64_t)info.pattern.unit_k * (info.pattern.m ? info.pattern.m : 1);
    int64_t begin = extent / 2 / step * step;
    lac_weight *half = NULL;
    assert_ok(lac_weight_shard(weight, axis, begin, extent, &half));
    lac_weight_free(weight);
    return half;
}

/* owned[j]: the weight makes output j. */
static inline bool *owned_outputs(const lac_weight *weight)
{
    lac_weight_info info = weight_info(weight);
    lac_span perm;
    assert_ok(lac_weight_get_part(weight, LAC_PART_ROW_PERM, &perm));
    bool *owned = calloc((size_t)info.n_out + 1, sizeof *owned);
    for (int64_t i = 0; i < info.n; ++i) owned[perm.data ? (int64_t)((const uint32_t *)perm.data)[i] : i] = true;
    return owned;
}

/* W as it multiplies, [n_out][k_in]. */
static inline double *dense_weight(const lac_weight *weight)
{
    lac_weight_info info = weight_info(weight);
    double *dense = calloc((size_t)(info.n_out * info.k_in) + 1, sizeof *dense);
    lac_matrix view = {.data = dense, .dtype = LAC_DTYPE_F64, .rows = info.n_out, .cols = info.k_in};
    assert_ok(lac_weight_decompress(weight, &view));
    return dense;
}

/* Operands for (weight, m, options), with padded strides and odd offsets; takes the weight. */
static inline plan_case case_make(test_random *random, lac_weight *weight, int64_t m, const lac_plan_options *options,
                                  test_fill fill)
{
    plan_case c = {.weight = weight, .info = weight_info(weight), .m = m, .options = *options, .alpha = 1.0f, .beta = 1.0f};
    c.options.size = sizeof c.options;
    lac_dtype x_dtype = options->x_dtype ? options->x_dtype : c.info.dtype;
    lac_dtype y_dtype = options->y_dtype ? options->y_dtype : x_dtype;
    int64_t padding = test_random_pick(random, 0, 1, 3, 16), offset = test_random_pick(random, 0, 0, 1, 5);
    c.x = test_matrix_make(m, c.info.k_in, x_dtype, options->x_layout, padding, offset);
    c.y = test_matrix_make(m, c.info.n_out, y_dtype, options->y_layout, test_random_pick(random, 0, 1, 7), offset);
    c.c = test_matrix_make(m, c.info.n_out, options->c_dtype ? options->c_dtype : y_dtype, options->y_layout,
                           test_random_pick(random, 0, 2, 5), offset);
    c.bias =
        test_matrix_make(1, c.info.n_out, options->bias_dtype ? options->bias_dtype : y_dtype, LAC_LAYOUT_ROW_MAJOR, 0, offset);
    test_matrix_fill(random, &c.x, fill);
    test_matrix_fill(random, &c.c, fill);
    test_matrix_fill(random, &c.bias, fill);
    return c;
}

static inline void case_free(plan_case *c)
{
    test_matrix_free(&c->x);
    test_matrix_free(&c->y);
    test_matrix_free(&c->c);
    test_matrix_free(&c->bias);
    lac_weight_free(c->weight);
}

static inline lac_execute_args case_args(const plan_case *c)
{
    lac_execute_args args = {.size = sizeof args,
                             .x = c->x.view.data,
                             .ldx = c->x.view.ld,
                             .y = c->y.view.data,
                             .ldy = c->y.view.ld,
                             .alpha = c->pass_alpha ? &c->alpha : NULL};
    if (c->options.has_bias) args.bias = c->bias.view.data;
    if (c->options.has_residual) {
        args.c = c->c_is_y ? c->y.view.data : c->c.view.data;
        args.ldc = c->c_is_y ? c->y.view.ld : c->c.view.ld;
        args.beta = c->pass_beta ? &c->beta : NULL;
    }
    return args;
}

/* Y before execute: C where they are one, else the sentinel. */
static inline void case_reset_y(const plan_case *c)
{
    for (int64_t i = 0; i < c->m; ++i) {
        for (int64_t j = 0; j < c->info.n_out; ++j) {
            test_matrix_set(&c->y, i, j, c->c_is_y ? test_matrix_get(&c->c, i, j) : untouched);
        }
    }
}

/* Whether the kernel takes this case at all: UNSUPPORTED is its right, any other failure is not. */
static inline bool kernel_applies(const plan_case *c, const char *kernel)
{
    lac_device *device = NULL;
    lac_plan *plan = NULL;
    lac_plan_options options = c->options;
    options.kernel = kernel;
    assert_ok(lac_device_open("cpu", &device));
    lac_status status = lac_plan_create(device, c->weight, c->m, &options, &plan);
    if (status != LAC_STATUS_UNSUPPORTED) assert_ok(status);
    lac_plan_free(plan);
    lac_device_close(device);
    return status == LAC_STATUS_OK;
}

/* A kernel named after a vector unit runs only where that unit is. */
static inline bool kernel_is_for_this_machine(const char *kernel)
{
#if defined(__x86_64__)
    if (strstr(kernel, "_avx512_")) return __builtin_cpu_supports("avx512bw");
    if (strstr(kernel, "_avx2_")) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    (void)kernel;
    return true;
}

static inline lac_plan *plan_make(const plan_case *c, const char *kernel, int32_t threads)
{
    lac_device *device = NULL;
    lac_plan *plan = NULL;
    lac_plan_options options = c->options;
    options.kernel = kernel;
    options.threads = threads;
    assert_ok(lac_device_open("cpu", &device));
    assert_ok(lac_plan_create(device, c->weight, c->m, &options, &plan));
    lac_device_close(device);
    return plan;
}

/* Executes with a workspace of exactly the plan's size, full of NaNs, with a guard behind it. */
static inline void case_execute(const plan_case *c, const lac_plan *plan)
{
    lac_plan_info info = {.size = sizeof info};
    assert_ok(lac_plan_get_info(plan, &info));
    size_t padded = (info.workspace_bytes + 127) / 64 * 64;
    unsigned char *workspace = aligned_alloc(64, padded);
    memset(workspace, 0xff, padded);
    lac_execute_args args = case_args(c);
    args.workspace = info.workspace_bytes ? workspace : NULL;
    args.workspace_bytes = info.workspace_bytes;
    assert_ok(lac_plan_execute(plan, &args));
    for (size_t i = info.workspace_bytes; i < padded; ++i) assert_int_equal(workspace[i], 0xff);
    free(workspace);
}

/* The rule of src/ref/reference.c: an infinite bound says nothing; a NaN is met by a NaN, an infinity by itself. */
static inline bool agrees(double got, double want, double bound)
{
    if (isinf(bound)) return true;
    if (isnan(want)) return isnan(got);
    if (isinf(want)) return got == want;
    return fabs(got - want) <= bound;
}

/* The oracle's word on the case: y and bound, [m][n_out] each, to be freed. */
static inline void case_reference(const plan_case *c, const lac_plan *plan, double **y, double **bound)
{
    size_t count = (size_t)(c->m * c->info.n_out);
    *y = malloc((count + 1) * sizeof **y);
    *bound = malloc((count + 1) * sizeof **bound);
    for (size_t i = 0; i < count; ++i) (*y)[i] = (*bound)[i] = untouched;
    lac_execute_args args = case_args(c);
    assert_ok(lac_plan_reference(plan, &args, *y, *bound, c->info.n_out));
}

typedef enum judge { JUDGE_BOUND, JUDGE_EXACT } judge;

/* Runs the case on one kernel (NULL: the planner's pick) and compares every element with the oracle: within the bound, or
 * equal to the oracle's number rounded once. Everything outside Y's own elements must stay as it was. */
static inline void case_check(const plan_case *c, const char *kernel, int32_t threads, judge how)
{
    lac_plan *plan = plan_make(c, kernel, threads);
    double *want, *bound;
    bool *owned = owned_outputs(c->weight);
    case_reset_y(c);
    case_reference(c, plan, &want, &bound);
    case_execute(c, plan);
    for (int64_t i = 0; i < c->m; ++i) {
        for (int64_t j = 0; j < c->info.n_out; ++j) {
            int64_t at = i * c->info.n_out + j;
            double got = test_matrix_get(&c->y, i, j);
            double before = c->c_is_y ? test_matrix_get(&c->c, i, j) : untouched;
            bool good = !owned[j]            ? test_same_number(got, before) && want[at] == untouched && bound[at] == untouched
                        : how == JUDGE_EXACT ? got == test_rounded(c->y.view.dtype, want[at])
                                             : bound[at] >= 0.0 && agrees(got, want[at], bound[at]);
            if (!good) {
                fail_msg("%s, %d threads: Y[%lld][%lld] of %lld x %lld is %.9g, the oracle says %.9g +- %.3g%s",
                         kernel ? kernel : "planner's pick", (int)threads, (long long)i, (long long)j, (long long)c->m,
                         (long long)c->info.n_out, got, want[at], bound[at], owned[j] ? "" : " (not this shard's)");
            }
        }
    }
    assert_true(test_matrix_intact(&c->y));
    assert_true(test_matrix_intact(&c->x));
    free(want);
    free(bound);
    free(owned);
    lac_plan_free(plan);
}

/* The names of the kernels that run on a CPU. Returns how many. */
static inline int kernel_names(const char *names[MOST_KERNELS])
{
    int count = 0;
    lac_kernel_info info = {.size = sizeof info};
    for (size_t i = 0; lac_kernel_probe(i, &info) == LAC_STATUS_OK; ++i) {
        if (info.device == LAC_DEVICE_KIND_CPU && count < MOST_KERNELS) names[count++] = info.name;
    }
    assert_true(count >= 3);
    return count;
}

/* Any weight: every family, some of them permuted or sharded. */
static inline lac_weight *random_weight(test_random *random, int64_t most, test_fill fill)
{
    lac_pattern pattern = test_random_pattern(random);
    int64_t n, k;
    test_random_shape(random, &pattern, most, &n, &k);
    lac_dtype dtype = test_random_dtype(random, 0);
    char text[LAC_PATTERN_TEXT_SIZE];
    assert_ok(lac_pattern_format(&pattern, text, sizeof text));
    test_describe("%s, n %lld, k %lld, %s", text, (long long)n, (long long)k, lac_dtype_name(dtype));
    lac_weight *weight = weight_make(random, &pattern, n, k, dtype, fill);
    if (test_random_chance(random, 30)) {
        weight = weight_permuted(random, weight, test_random_chance(random, 60), test_random_chance(random, 60));
    }
    if (test_random_chance(random, 20)) weight = weight_half(weight, test_random_chance(random, 50) ? LAC_AXIS_N : LAC_AXIS_K);
    return weight;
}

/* Options of a plan, every field drawn. With `exact`, only what keeps small integers exact. */
static inline lac_plan_options random_options(test_random *random, bool exact)
{
    lac_plan_options options = {.size = sizeof options,
                                .x_layout = (lac_layout)test_random_between(random, 0, 1),
                                .y_layout = (lac_layout)test_random_between(random, 0, 1),
                                .has_bias = test_random_chance(random, 50),
                                .has_residual = test_random_chance(random, 50)};
    if (test_random_chance(random, 60)) options.x_dtype = test_random_dtype(random, 0);
    if (test_random_chance(random, 60)) options.y_dtype = test_random_dtype(random, 0);
    if (test_random_chance(random, 40)) options.bias_dtype = test_random_dtype(random, 0);
    if (test_random_chance(random, 40)) options.c_dtype = test_random_dtype(random, 0);
    options.activation = (lac_activation)(exact ? test_random_between(random, 0, 1) : test_random_between(random, 0, 4));
    options.precision = (lac_precision)test_random_between(random, 0, 3);
    return options;
}

#endif
