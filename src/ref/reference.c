/* reference.c - the oracle: Y = act(alpha * X * W^T + bias) + beta * C by obvious loops in double, for every family,
 * dtype, layout and epilogue, with an error bound beside each element. Tests, `lacuna verify` and the kernel ref_f64 call
 * it; every other kernel is judged by it.
 *
 * The bound. A plan computes in fp32; u = 2^-24 is fp32's unit roundoff, q the number of kept products of the output.
 *
 *   1. The sum. alpha * sum(x*w) + bias takes at most q products, q additions, and one multiplication by alpha. Whatever
 *      the order of the additions, with FMA or without, each product passes at most q + 2 roundings, so the error is at
 *      most gamma * (|alpha| * sum|x||w| + |bias|), gamma = (q+2)u / (1 - (q+2)u). Each product may also underflow, which
 *      costs half the smallest fp32 number. Tensor cores (fp32 "fast", tf32 and 16-bit operands on a GPU) truncate where
 *      IEEE rounds: twice gamma, and at least 2^-21; their subnormals may be flushed. tf32 also rounds each operand to
 *      11 bits: 2^-10 + 2^-22 of each product.
 *   2. The activation stretches an error by its largest slope and adds an evaluation error of a few u of its argument.
 *   3. The residual is a product and a sum: two roundings.
 *   4. The result is rounded to y's dtype once more, when that is a 16-bit one.
 *
 * What is not finite:
 *   - y NaN: the plan's result is NaN. y infinite: it is the same infinity. The bound is 0 then.
 *   - The bound is infinite where the result cannot be foretold, and any result is right: where the token's row of X holds
 *     a NaN or an infinity (it may spread within the row), where an fp32 intermediate may overflow, and where the result
 *     may exceed the largest number of y's dtype, so that infinity is a right answer too. */
#include "ref/reference.h"

#include <math.h>

#include "core/dtype.h"
#include "format/weight.h"

/* ---- W, row by row */

/* Never 0, so that no array of a row lies nowhere. */
static uint64_t rounded_up(uint64_t bytes) { return (bytes / 64 + 1) * 64; }

static int64_t row_capacity(const lac_weight *weight) { return weight->geometry.selected * weight->geometry.unit_k; }

uint64_t lac_reference_scratch_bytes(const lac_weight *weight)
{
    uint64_t capacity = (uint64_t)row_capacity(weight);
    return rounded_up(capacity * sizeof(int64_t)) + rounded_up(capacity * sizeof(double)) +
           rounded_up((uint64_t)weight->geometry.selected * sizeof(uint32_t));
}

void lac_reference_bind(const lac_weight *weight, void *scratch, lac_reference_row *row)
{
    unsigned char *block = scratch;
    row->output = 0;
    row->count = 0;
    row->capacity = row_capacity(weight);
    row->inputs = (int64_t *)(void *)block;
    block += rounded_up((uint64_t)row->capacity * sizeof(int64_t));
    row->weights = (double *)(void *)block;
    block += rounded_up((uint64_t)row->capacity * sizeof(double));
    row->units = (uint32_t *)(void *)block;
}

void lac_reference_expand(const lac_weight *weight, int64_t stored, lac_reference_row *row)
{
    const lac_geometry *g = &weight->geometry;
    const uint32_t *row_perm = weight->part[LAC_PART_ROW_PERM].data; /* [n] or NULL */
    const uint32_t *col_perm = weight->part[LAC_PART_COL_PERM].data; /* [k] or NULL */
    int64_t group = stored / g->unit_n;
    int64_t row_in_group = stored - group * g->unit_n;
    int64_t rows = lac_geometry_rows(g, group);
    int64_t first = lac_weight_first_value(weight, group);
    int64_t slots = lac_weight_slots(weight, group);
    lac_weight_units(weight, group, row->units);

    row->output = row_perm ? (int64_t)row_perm[stored] : stored;
    row->count = 0;
    for (int64_t slot = 0; slot < slots; ++slot) {
        int64_t unit;
        if (weight->pattern.family == LAC_FAMILY_VNM) {
            int64_t selected = slot / g->slot_n * LAC_VNM_SELECTED;
            unit = row->units[selected + lac_weight_position(weight, group, slot, row_in_group)];
        } else {
            unit = row->units[slot];
        }
        int64_t inputs = lac_geometry_inputs(g, unit); /* fewer than unit_k only in a partial last unit */
        for (int64_t column = 0; column < inputs; ++column) {
            int64_t stored_column = unit * g->unit_k + column;
            int64_t value = first + (slot * g->unit_k + column) * rows + row_in_group;
            row->inputs[row->count] = col_perm ? (int64_t)col_perm[stored_column] : stored_column;
            row->weights[row->count] = lac_load_f64(weight->part[LAC_PART_VALUES].data, weight->dtype, value);
            row->count++;
        }
    }
}

/* ---- the epilogue */

double lac_reference_activation(lac_activation activation, double z)
{
    const double sqrt_half = 0.70710678118654752440, sqrt_2_over_pi = 0.79788456080286535588;
    switch (activation) {
    case LAC_ACTIVATION_NONE:
        return z;
    case LAC_ACTIVATION_RELU:
        return z < 0.0 ? 0.0 : z; /* NaN stays NaN */
    case LAC_ACTIVATION_GELU_ERF: /* z/2 * (1 + erf(z / sqrt 2)), without the cancellation; NaN at -infinity, as written */
        return 0.5 * z * erfc(-z * sqrt_half);
    case LAC_ACTIVATION_GELU_TANH: /* z/2 * (1 + tanh(t)) likewise: 1 + tanh(t) is 2 / (1 + exp(-2t)) */
        return z / (1.0 + exp(-2.0 * sqrt_2_over_pi * (z + 0.044715 * z * z * z)));
    case LAC_ACTIVATION_SILU:
        return z / (1.0 + exp(-z));
    }
    return NAN;
}

/* The largest |act'|, rounded up. */
static double activation_slope(lac_activation activation)
{
    switch (activation) {
    case LAC_ACTIVATION_GELU_ERF:
    case LAC_ACTIVATION_GELU_TANH:
        return 1.13;
    case LAC_ACTIVATION_SILU:
        return 1.1;
    default:
        return 1.0;
    }
}

/* ---- the bound */

/* fp32: the unit roundoff, the smallest number, the smallest normal number, the largest number. */
static const double U = 0x1p-24, TINY = 0x1p-149, NORMAL = 0x1p-126, LARGEST = 0x1.fffffep127;
/* The evaluation of an activation in fp32: at most this many u of its argument. */
static const double ACTIVATION_ROUNDINGS = 16.0;

/* What point 1 above says of `count` products: the share of the magnitudes, and the underflow a product. */
static void sum_constants(const lac_problem *problem, int64_t count, double *share, double *underflow)
{
    double roundings = (double)(count + 2) * U;
    double gamma = roundings < 1.0 ? roundings / (1.0 - roundings) : INFINITY;
    bool is_f32 = problem->options.x_dtype == LAC_DTYPE_F32 || problem->weight->dtype == LAC_DTYPE_F32;
    bool is_ieee =
        problem->device->info.kind == LAC_DEVICE_KIND_CPU || (is_f32 && problem->options.precision == LAC_PRECISION_STRICT);
    *share = is_ieee ? gamma : fmax(2.0 * gamma, 0x1p-21);
    *underflow = is_ieee ? TINY / 2 : NORMAL;
    if (is_f32 && problem->options.precision == LAC_PRECISION_TF32) {
        *share = fmax(2.0 * gamma, 0x1p-21) * (1.0 + 0x1p-9) + 0x1p-10 + 0x1p-22;
        *underflow = NORMAL;
    }
}

/* The magnitudes behind one element: all that the bound depends on besides the problem. */
typedef struct magnitudes {
    int64_t count;   /* products                                         */
    double sum;      /* sum |x||w| over the finite products              */
    double alpha;    /* |alpha|                                          */
    double bias;     /* |bias|, 0 when not finite                        */
    double z;        /* |alpha * sum + bias|                             */
    double act;      /* |act(z)|                                         */
    double residual; /* |beta * c|, 0 when not finite                    */
} magnitudes;

static double error_bound(const lac_problem *problem, const magnitudes *size, double y)
{
    const lac_plan_options *options = &problem->options;
    double share, underflow;
    sum_constants(problem, size->count, &share, &underflow);

    double before = size->alpha * size->sum + size->bias; /* what the activation's argument is made of */
    double error = share * before + (double)size->count * underflow * fmax(size->alpha, 1.0) + TINY;
    if (!(fmax(size->sum, before) * (1.0 + share) + size->residual < LARGEST)) return INFINITY;
    if (!isfinite(y)) return 0.0;

    if (options->activation != LAC_ACTIVATION_NONE) {
        error *= activation_slope(options->activation);
        if (options->activation != LAC_ACTIVATION_RELU) error += ACTIVATION_ROUNDINGS * (U * (size->z + error) + TINY);
    }
    if (options->has_residual) error += 2.0 * U * (size->act + error + size->residual) + TINY;
    if (options->y_dtype != LAC_DTYPE_F32) {
        error += lac_dtype_roundoff(options->y_dtype) * (fabs(y) + error) + lac_dtype_tiny(options->y_dtype) / 2;
    }
    if (fabs(y) + error > lac_dtype_max(options->y_dtype)) return INFINITY;
    /* The oracle's own roundings, in double, and those of the lines above. */
    return error * (1.0 + 0x1p-20);
}

/* ---- one element of Y */

static int64_t element_at(lac_layout layout, int64_t ld, int64_t token, int64_t feature)
{
    return layout == LAC_LAYOUT_TOKEN_MAJOR ? token * ld + feature : feature * ld + token;
}

double lac_reference_element(const lac_problem *problem, const lac_call *call, const lac_reference_row *row, int64_t token,
                             double *bound)
{
    const lac_plan_options *options = &problem->options;
    double sum = 0.0, finite_products = 0.0;
    for (int64_t i = 0; i < row->count; ++i) {
        int64_t at = element_at(options->x_layout, call->ldx, token, row->inputs[i]);
        double product = lac_load_f64(call->x, options->x_dtype, at) * row->weights[i]; /* exact: 24 + 24 bits */
        sum += product;
        if (isfinite(product)) finite_products += fabs(product);
    }

    double bias = options->has_bias ? lac_load_f64(call->bias, options->bias_dtype, row->output) : 0.0;
    double z = call->alpha * sum + bias;
    double act = lac_reference_activation(options->activation, z);
    double residual = 0.0;
    if (call->c) {
        int64_t at = element_at(options->y_layout, call->ldc, token, row->output);
        residual = call->beta * lac_load_f64(call->c, options->c_dtype, at);
    }
    double y = act + residual;

    if (bound) {
        magnitudes size = {.count = row->count,
                           .sum = finite_products,
                           .alpha = fabs((double)call->alpha),
                           .bias = isfinite(bias) ? fabs(bias) : 0.0,
                           .z = fabs(z),
                           .act = fabs(act),
                           .residual = isfinite(residual) ? fabs(residual) : 0.0};
        *bound = error_bound(problem, &size, y);
    }
    return y;
}
