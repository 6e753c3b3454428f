/* check.c - is a compressed weight right? Its pattern, its values against the original, its product against the oracle.
 *
 * verify.c, multiply.c and demo.c call it. Nothing here stops at "close enough": values must be equal, products within the
 * bound that the oracle derives element by element. */
#include "cli.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { TIMED_RUNS = 3 }; /* the first wakes the threads; the shortest is reported */

static void find_problem(cli_verdict *verdict, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Keeps the first problem only: the later ones are mostly its consequences. */
static void find_problem(cli_verdict *verdict, const char *format, ...)
{
    if (!verdict->ok) return;
    verdict->ok = 0;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(verdict->problem, sizeof verdict->problem, format, arguments);
    va_end(arguments);
}

/* Fills `product` from y and the oracle's answer, both [m][n]. */
static void compare_products(const lac_matrix *y, const double *reference, const double *bound, cli_product *product)
{
    int64_t m = y->rows, n = y->cols;
    product->ok = 1;
    product->max_error = product->share = 0;
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            int64_t at = i * n + j;
            double got = cli_matrix_get(y, y->layout == LAC_LAYOUT_FEATURE_MAJOR ? j * m + i : at);
            double want = reference[at];
            if (got == want || (isnan(got) && isnan(want))) continue;
            double error = fabs(got - want);
            int within = error <= bound[at];          /* false for NaN */
            if (within && isinf(bound[at])) continue; /* so large that it may overflow: there is no error to speak of */
            double part = bound[at] > 0 ? error / bound[at] : INFINITY;
            if (error > product->max_error || isnan(error)) product->max_error = error;
            if (part > product->share || isnan(part)) product->share = part;
            if (within || !product->ok) continue;
            product->ok = 0;
            product->row = i, product->col = j;
            product->got = got, product->want = want, product->bound = bound[at];
        }
    }
}

lac_status cli_product_compare(const lac_plan *plan, const lac_execute_args *args, const lac_matrix *y, cli_product *product)
{
    lac_matrix reference, bound;
    if (cli_matrix_create(&reference, LAC_DTYPE_F64, y->rows, y->cols) != 0) return LAC_STATUS_OUT_OF_MEMORY;
    if (cli_matrix_create(&bound, LAC_DTYPE_F64, y->rows, y->cols) != 0) {
        cli_matrix_free(&reference);
        return LAC_STATUS_OUT_OF_MEMORY;
    }
    lac_status status = lac_plan_reference(plan, args, reference.data, bound.data, y->cols);
    if (status == LAC_STATUS_OK) compare_products(y, reference.data, bound.data, product);
    cli_matrix_free(&reference);
    cli_matrix_free(&bound);
    return status;
}

/* Runs the plan on x and compares; y and workspace are made here. */
static lac_status execute_and_compare(const lac_plan *plan, const lac_matrix *x, lac_dtype dtype, cli_product *product)
{
    lac_plan_info info = {.size = sizeof info};
    lac_status status = lac_plan_get_info(plan, &info);
    if (status != LAC_STATUS_OK) return status;
    lac_matrix y;
    if (cli_matrix_create(&y, dtype, info.m, info.n) != 0) return LAC_STATUS_OUT_OF_MEMORY;
    void *workspace = info.workspace_bytes ? aligned_alloc(64, (info.workspace_bytes + 63) / 64 * 64) : NULL;
    lac_execute_args args = {.size = sizeof args, .x = x->data, .y = y.data, .workspace = workspace};
    args.workspace_bytes = info.workspace_bytes;
    status = info.workspace_bytes && !workspace ? LAC_STATUS_OUT_OF_MEMORY : LAC_STATUS_OK;
    product->seconds = INFINITY;
    for (int run = 0; run < TIMED_RUNS && status == LAC_STATUS_OK; run++) {
        double started = cli_seconds();
        status = lac_plan_execute(plan, &args);
        double seconds = cli_seconds() - started;
        if (seconds < product->seconds) product->seconds = seconds;
    }
    product->m = info.m;
    snprintf(product->kernel, sizeof product->kernel, "%s", info.kernel);
    if (status == LAC_STATUS_OK) status = cli_product_compare(plan, &args, &y, product);
    free(workspace);
    cli_matrix_free(&y);
    return status;
}

lac_status cli_product_check(lac_device *device, const lac_weight *weight, int64_t m, int threads, cli_product *product)
{
    lac_weight_info info = {.size = sizeof info};
    lac_status status = lac_weight_get_info(weight, &info);
    if (status != LAC_STATUS_OK) return status;
    lac_matrix x;
    if (cli_matrix_create(&x, info.dtype, m, info.k_in) != 0) return LAC_STATUS_OUT_OF_MEMORY;
    cli_random random = {UINT64_C(20260101)};
    for (int64_t i = 0; i < m * info.k_in; i++) cli_matrix_put(&x, i, 2 * cli_random_uniform(&random) - 1);
    lac_plan_options options = {.size = sizeof options, .threads = threads};
    lac_plan *plan = NULL;
    status = lac_plan_create(device, weight, m, &options, &plan);
    if (status == LAC_STATUS_OK) status = execute_and_compare(plan, &x, info.dtype, product);
    lac_plan_free(plan);
    cli_matrix_free(&x);
    return status;
}

void cli_matrix_compare(const lac_matrix *now, const lac_matrix *before, cli_verdict *verdict)
{
    double kept = 0, total = 0, largest = cli_number_largest(now->dtype);
    verdict->compared = 1;
    verdict->dropped = 0;
    for (int64_t i = 0; i < now->rows * now->cols; i++) {
        double stored = cli_matrix_get(now, i), original = cli_matrix_get(before, i);
        double energy = isfinite(original) ? original * original : 0;
        total += energy;
        if (stored == original) { /* most of them, where the dtype is the original's: no rounding needed */
            kept += energy;
            continue;
        }
        double rounded = cli_number_round(original, now->dtype);
        if (stored == 0) {
            verdict->dropped += rounded != 0;
            continue;
        }
        kept += energy;
        int saturated = isfinite(original) && isinf(rounded) && stored == copysign(largest, original);
        if (stored == rounded || saturated || (isnan(stored) && isnan(rounded))) continue;
        find_problem(verdict, "element (%lld, %lld) is %.9g, but the original's %.9g gives %.9g as %s",
                     (long long)(i / now->cols), (long long)(i % now->cols), stored, original, rounded,
                     lac_dtype_name(now->dtype));
    }
    verdict->energy_kept = total > 0 ? kept / total : 1;
}

/* Rows and columns in the order in which the weight stores them: there the pattern can be checked without a search. */
static void gather_stored_order(const uint32_t *row_perm /* [n] or NULL */, const uint32_t *col_perm /* [k] or NULL */,
                                const lac_matrix *dense, lac_matrix *stored)
{
    size_t size = lac_dtype_size(dense->dtype);
    for (int64_t i = 0; i < stored->rows; i++) {
        for (int64_t j = 0; j < stored->cols; j++) {
            int64_t row = row_perm ? row_perm[i] : i, col = col_perm ? col_perm[j] : j;
            memcpy((char *)stored->data + (size_t)(i * stored->cols + j) * size,
                   (const char *)dense->data + (size_t)(row * dense->cols + col) * size, size);
        }
    }
}

static lac_status check_pattern(const lac_weight *weight, const lac_matrix *dense, cli_verdict *verdict)
{
    lac_span rows = {0}, cols = {0};
    lac_status status = lac_weight_get_part(weight, LAC_PART_ROW_PERM, &rows);
    if (status == LAC_STATUS_OK) status = lac_weight_get_part(weight, LAC_PART_COL_PERM, &cols);
    if (status != LAC_STATUS_OK) return status;
    int permuted = rows.data || cols.data;
    lac_matrix stored = *dense;
    if (permuted) {
        if (cli_matrix_create(&stored, dense->dtype, verdict->info.n, verdict->info.k) != 0) return LAC_STATUS_OUT_OF_MEMORY;
        gather_stored_order(rows.data, cols.data, dense, &stored);
    }
    lac_pattern pattern = verdict->info.pattern;
    /* In stored order shuffled rows are vectors; asking for SHUFFLED would search for the order that we know. */
    if (pattern.family == LAC_FAMILY_SHUFFLED) pattern.family = LAC_FAMILY_VECTOR;
    lac_pattern_violation violation = {.size = sizeof violation};
    status = lac_pattern_check(&stored, &pattern, &violation);
    if (status == LAC_STATUS_PATTERN_VIOLATED) find_problem(verdict, "pattern %s: %s", verdict->pattern, violation.message);
    if (permuted) cli_matrix_free(&stored);
    return status == LAC_STATUS_PATTERN_VIOLATED ? LAC_STATUS_OK : status;
}

static lac_status check_against(const lac_matrix *dense, const char *name, const cli_verify_options *options,
                                cli_verdict *verdict)
{
    lac_tensor_info tensor = {.size = sizeof tensor};
    lac_status status = lac_file_find_tensor(options->against, name, &tensor);
    if (status == LAC_STATUS_NOT_FOUND) {
        find_problem(verdict, "%s has no such tensor", options->against_path);
        return LAC_STATUS_OK;
    }
    if (status != LAC_STATUS_OK) return status;
    if (!cli_tensor_is_matrix(&tensor) || tensor.shape[0] != dense->rows || tensor.shape[1] != dense->cols) {
        find_problem(verdict, "%s has it with type %s and shape %s, not %lldx%lld", options->against_path, tensor.type,
                     cli_format_shape(tensor.shape, tensor.rank).text, (long long)dense->rows, (long long)dense->cols);
        return LAC_STATUS_OK;
    }
    lac_matrix before;
    if (cli_matrix_create(&before, LAC_DTYPE_F64, dense->rows, dense->cols) != 0) return LAC_STATUS_OUT_OF_MEMORY;
    status = lac_file_read_matrix(options->against, name, &before);
    if (status == LAC_STATUS_OK) cli_matrix_compare(dense, &before, verdict);
    cli_matrix_free(&before);
    return status;
}

static lac_status check_dense(const lac_weight *weight, const char *name, const cli_verify_options *options,
                              cli_verdict *verdict)
{
    lac_matrix dense;
    if (cli_matrix_create(&dense, verdict->info.dtype, verdict->info.n_out, verdict->info.k_in) != 0)
        return LAC_STATUS_OUT_OF_MEMORY;
    lac_status status = lac_weight_decompress(weight, &dense);
    if (status == LAC_STATUS_OK) status = check_pattern(weight, &dense, verdict);
    if (status == LAC_STATUS_OK && options->against) status = check_against(&dense, name, options, verdict);
    cli_matrix_free(&dense);
    return status;
}

static lac_status check_product(const lac_weight *weight, const cli_verify_options *options, cli_verdict *verdict)
{
    cli_product *product = &verdict->product;
    lac_status status = cli_product_check(options->device, weight, options->m, options->threads, product);
    if (status != LAC_STATUS_OK) return status;
    verdict->multiplied = 1;
    if (!product->ok)
        find_problem(verdict, "kernel %s: y(%lld, %lld) is %.9g, the oracle says %.9g within %.3g", product->kernel,
                     (long long)product->row, (long long)product->col, product->got, product->want, product->bound);
    return LAC_STATUS_OK;
}

lac_status cli_weight_verify(const lac_file *file, const char *name, const cli_verify_options *options, cli_verdict *verdict)
{
    *verdict = (cli_verdict){.ok = 1, .info = {.size = sizeof verdict->info}};
    lac_weight *weight = NULL;
    lac_status status = lac_file_load_weight(file, name, &weight);
    if (status == LAC_STATUS_BAD_FILE || status == LAC_STATUS_PATTERN_VIOLATED) {
        find_problem(verdict, "%s", lac_last_error());
        return LAC_STATUS_OK;
    }
    if (status == LAC_STATUS_OK) status = lac_weight_get_info(weight, &verdict->info);
    if (status == LAC_STATUS_OK) status = lac_pattern_format(&verdict->info.pattern, verdict->pattern, sizeof verdict->pattern);
    if (status == LAC_STATUS_OK) status = check_dense(weight, name, options, verdict);
    if (status == LAC_STATUS_OK && options->device) status = check_product(weight, options, verdict);
    lac_weight_free(weight);
    return status;
}
