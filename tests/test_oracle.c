/* test_oracle.c - the oracle against products written here, the activations against numbers from elsewhere, and its error
 * bound from both sides: what fp32 gives in any order lies within it, a lost product does not. */
#include "plan_case.h"

static double activation(lac_activation kind, double z)
{
    switch (kind) {
    case LAC_ACTIVATION_RELU:
        return z > 0.0 ? z : 0.0;
    case LAC_ACTIVATION_GELU_ERF:
        return z * 0.5 * (1.0 + erf(z / sqrt(2.0)));
    case LAC_ACTIVATION_GELU_TANH:
        return z * 0.5 * (1.0 + tanh(sqrt(2.0 / acos(-1.0)) * (z + 0.044715 * pow(z, 3.0))));
    case LAC_ACTIVATION_SILU:
        return z * (1.0 / (1.0 + exp(-z)));
    default:
        return z;
    }
}

/* ---- the oracle is the dense product in double of the decompressed weight */

static void check_against_dense(const plan_case *c, bool exact)
{
    lac_plan *plan = plan_make(c, "ref_f64", 1);
    double *dense = dense_weight(c->weight), *got, *bound;
    bool *owned = owned_outputs(c->weight);
    case_reference(c, plan, &got, &bound);
    double alpha = c->pass_alpha ? c->alpha : 1.0, beta = c->pass_beta ? c->beta : 1.0;
    for (int64_t i = 0; i < c->m; ++i) {
        for (int64_t j = 0; j < c->info.n_out; ++j) {
            double sum = 0.0, size = 0.0;
            for (int64_t l = 0; l < c->info.k_in; ++l) {
                double product = test_matrix_get(&c->x, i, l) * dense[j * c->info.k_in + l];
                sum += product;
                size += fabs(product);
            }
            double bias = c->options.has_bias ? test_matrix_get(&c->bias, 0, j) : 0.0;
            double residual = c->options.has_residual ? beta * test_matrix_get(&c->c, i, j) : 0.0;
            double want = activation(c->options.activation, alpha * sum + bias) + residual;
            double at = got[i * c->info.n_out + j];
            double slack =
                exact ? 0.0 : 0x1p-50 * (double)(c->info.k_in + 8) * (fabs(alpha) * size + fabs(bias) + fabs(residual));
            if (owned[j] ? fabs(at - want) > slack : at != untouched)
                fail_msg("[%lld][%lld]: the oracle says %.17g, the dense product %.17g, slack %.3g", (long long)i, (long long)j,
                         at, want, slack);
        }
    }
    free(dense);
    free(got);
    free(bound);
    free(owned);
    lac_plan_free(plan);
}

static void dense_case(test_random *random, int64_t index, void *user)
{
    (void)user;
    bool exact = index % 3 == 0;
    test_fill fill = exact ? TEST_FILL_INTEGER : TEST_FILL_GAUSSIAN;
    lac_weight *weight = random_weight(random, 3000, fill);
    lac_plan_options options = random_options(random, exact);
    plan_case c = case_make(random, weight, test_random_pick(random, 0, 1, 2, 3, 5, 8), &options, fill);
    c.pass_alpha = test_random_chance(random, 50);
    c.pass_beta = test_random_chance(random, 50);
    c.alpha = exact ? -2.0f : (float)test_random_gaussian(random);
    c.beta = exact ? 0.5f : (float)test_random_gaussian(random);
    check_against_dense(&c, exact);
    case_free(&c);
}

static void oracle_is_the_dense_product(void **state)
{
    (void)state;
    test_run_cases("oracle_dense", 6000, dense_case, NULL);
}

/* ---- a weight of one element: the result is act(x) */

static plan_case scalar_case(test_random *random, lac_activation activation_kind, double w)
{
    lac_pattern pattern = pattern_of("1:1");
    test_matrix dense = test_matrix_make(1, 1, LAC_DTYPE_F32, LAC_LAYOUT_ROW_MAJOR, 0, 0);
    test_matrix_set(&dense, 0, 0, w);
    lac_mask *mask = NULL;
    lac_weight *weight = NULL;
    assert_ok(lac_prune(&dense.view, &pattern, NULL, &mask));
    assert_ok(lac_weight_compress(&dense.view, mask, NULL, &weight));
    lac_mask_free(mask);
    test_matrix_free(&dense);
    lac_plan_options options = {.activation = activation_kind};
    return case_make(random, weight, 1, &options, TEST_FILL_INTEGER);
}

static double oracle_of(const plan_case *c, double *bound_out)
{
    lac_plan *plan = plan_make(c, "ref_f64", 1);
    double *y, *bound;
    case_reference(c, plan, &y, &bound);
    double result = y[0];
    if (bound_out) *bound_out = bound[0];
    free(y);
    free(bound);
    lac_plan_free(plan);
    return result;
}

static void activations_have_known_values(void **state)
{
    (void)state;
    /* By arithmetic of 50 digits. */
    static const struct {
        lac_activation activation;
        double z, want;
    } golden[] = {
        {LAC_ACTIVATION_GELU_ERF, 0.0, 0.0},
        {LAC_ACTIVATION_GELU_ERF, 1.0, 0.8413447460685429},
        {LAC_ACTIVATION_GELU_ERF, -1.0, -0.15865525393145705},
        {LAC_ACTIVATION_GELU_ERF, 0.5, 0.34573123063700656},
        {LAC_ACTIVATION_GELU_ERF, -0.75, -0.16997051428265114},
        {LAC_ACTIVATION_GELU_ERF, 2.0, 1.9544997361036416},
        {LAC_ACTIVATION_GELU_ERF, -3.0, -0.0040496940948902835},
        {LAC_ACTIVATION_GELU_ERF, 5.0, 4.999998566742141},
        {LAC_ACTIVATION_GELU_TANH, 0.0, 0.0},
        {LAC_ACTIVATION_GELU_TANH, 1.0, 0.8411919906082767},
        {LAC_ACTIVATION_GELU_TANH, -1.0, -0.1588080093917233},
        {LAC_ACTIVATION_GELU_TANH, 0.5, 0.34571400982514394},
        {LAC_ACTIVATION_GELU_TANH, -0.75, -0.1700394448343797},
        {LAC_ACTIVATION_GELU_TANH, 2.0, 1.954597694087775},
        {LAC_ACTIVATION_GELU_TANH, -3.0, -0.003637392081773019},
        {LAC_ACTIVATION_GELU_TANH, 5.0, 4.999999770820381},
        {LAC_ACTIVATION_SILU, 0.0, 0.0},
        {LAC_ACTIVATION_SILU, 1.0, 0.7310585786300049},
        {LAC_ACTIVATION_SILU, -1.0, -0.2689414213699951},
        {LAC_ACTIVATION_SILU, 0.5, 0.3112296656009273},
        {LAC_ACTIVATION_SILU, -0.75, -0.24061597561845527},
        {LAC_ACTIVATION_SILU, 2.0, 1.7615941559557649},
        {LAC_ACTIVATION_SILU, -3.0, -0.14227761953270035},
        {LAC_ACTIVATION_SILU, 5.0, 4.966535745378576},
        {LAC_ACTIVATION_RELU, 3.0, 3.0},
        {LAC_ACTIVATION_RELU, -3.0, 0.0},
        {LAC_ACTIVATION_NONE, -3.0, -3.0},
    };
    test_random random = test_random_make("golden", 0);
    for (size_t i = 0; i < sizeof golden / sizeof *golden; ++i) {
        plan_case c = scalar_case(&random, golden[i].activation, 1.0);
        test_matrix_set(&c.x, 0, 0, golden[i].z);
        double got = oracle_of(&c, NULL);
        if (!(fabs(got - golden[i].want) <= 4e-15 * fabs(golden[i].want) + 1e-300))
            fail_msg("activation %d at %g is %.17g, not %.17g", (int)golden[i].activation, golden[i].z, got, golden[i].want);
        case_free(&c);
    }
}

/* ---- what is not finite */

static void weights_that_are_not_finite(void **state)
{
    (void)state;
    test_random random = test_random_make("nonfinite", 0);
    static const struct {
        lac_activation activation;
        double w, x, want;
    } rows[] = {
        {LAC_ACTIVATION_NONE, INFINITY, 2.0, INFINITY},
        {LAC_ACTIVATION_NONE, INFINITY, -2.0, -INFINITY},
        {LAC_ACTIVATION_NONE, INFINITY, 0.0, NAN},
        {LAC_ACTIVATION_NONE, NAN, 1.0, NAN},
        {LAC_ACTIVATION_RELU, NAN, 1.0, NAN},
        {LAC_ACTIVATION_RELU, -INFINITY, 1.0, 0.0},
        {LAC_ACTIVATION_RELU, INFINITY, 1.0, INFINITY},
        {LAC_ACTIVATION_GELU_ERF, INFINITY, 1.0, INFINITY},
        {LAC_ACTIVATION_GELU_TANH, INFINITY, 1.0, INFINITY},
        {LAC_ACTIVATION_SILU, INFINITY, 1.0, INFINITY},
        {LAC_ACTIVATION_GELU_ERF, -INFINITY, 1.0, NAN},
        {LAC_ACTIVATION_GELU_TANH, -INFINITY, 1.0, NAN},
        {LAC_ACTIVATION_SILU, -INFINITY, 1.0, NAN},
        {LAC_ACTIVATION_SILU, NAN, 1.0, NAN},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
        plan_case c = scalar_case(&random, rows[i].activation, rows[i].w);
        test_matrix_set(&c.x, 0, 0, rows[i].x);
        double bound, got = oracle_of(&c, &bound);
        if (!agrees(got, rows[i].want, 0.0) || !isfinite(bound))
            fail_msg("activation %d of %g * %g is %g with bound %g, not %g", (int)rows[i].activation, rows[i].w, rows[i].x, got,
                     bound, rows[i].want);
        case_free(&c);
    }
}

static void bound_is_infinite_where_nothing_can_be_said(void **state)
{
    (void)state;
    test_random random = test_random_make("unbounded", 0);
    double bound;

    plan_case c = scalar_case(&random, LAC_ACTIVATION_NONE, 1.0);
    test_matrix_set(&c.x, 0, 0, NAN); /* in X: it may spread */
    assert_true(isnan(oracle_of(&c, &bound)));
    assert_true(isinf(bound));
    case_free(&c);

    c = scalar_case(&random, LAC_ACTIVATION_NONE, 0x1p100);
    test_matrix_set(&c.x, 0, 0, 0x1p60); /* the product overflows fp32 */
    assert_true(oracle_of(&c, &bound) == 0x1p160);
    assert_true(isinf(bound));
    c.alpha = 0x1p-100f; /* and it does so before alpha makes it small again */
    c.pass_alpha = true;
    assert_true(oracle_of(&c, &bound) == 0x1p60);
    assert_true(isinf(bound));
    case_free(&c);

    c = scalar_case(&random, LAC_ACTIVATION_NONE, 1.0);
    c.options.y_dtype = LAC_DTYPE_F16;
    test_matrix_set(&c.x, 0, 0, 70000.0); /* more than fp16 holds */
    assert_true(oracle_of(&c, &bound) == 70000.0);
    assert_true(isinf(bound));
    test_matrix_set(&c.x, 0, 0, 60000.0);
    assert_true(oracle_of(&c, &bound) == 60000.0);
    assert_true(bound >= 60000.0 * 0x1p-11 && bound < 31.0); /* half a step of fp16 there is 16 */
    case_free(&c);
}

/* ---- the bound holds for fp32 in any order ... */

/* Four ways to add up the same products. */
static float sum_in_order(int way, const float *x, const float *w, int64_t count)
{
    float sum = 0.0f;
    if (way == 3) { /* pairwise halves */
        if (count == 0) return 0.0f;
        if (count == 1) return x[0] * w[0];
        return sum_in_order(3, x, w, count / 2) + sum_in_order(3, x + count / 2, w + count / 2, count - count / 2);
    }
    for (int64_t i = 0; i < count; ++i) {
        if (way == 0) sum += x[i] * w[i];
        if (way == 1) sum = fmaf(x[i], w[i], sum);
        if (way == 2) sum += x[count - 1 - i] * w[count - 1 - i];
    }
    return sum;
}

static void bound_case(test_random *random, int64_t index, void *user)
{
    int64_t *counts = user; /* lost products that the bound notices, and all */
    static const test_fill fills[] = {TEST_FILL_GAUSSIAN, TEST_FILL_HEAVY_TAIL, TEST_FILL_DENORMAL};
    test_fill fill = fills[index % 3];
    lac_weight *weight = random_weight(random, 3000, fill);
    lac_plan_options options = {.x_dtype = LAC_DTYPE_F32, .y_dtype = LAC_DTYPE_F32};
    plan_case c = case_make(random, weight, 2, &options, fill);
    lac_plan *plan = plan_make(&c, "ref_f64", 1);
    double *dense = dense_weight(weight), *want, *bound;
    int64_t k = c.info.k_in;
    float *x = malloc((size_t)(k + 1) * sizeof *x), *w = malloc((size_t)(k + 1) * sizeof *w);
    case_reference(&c, plan, &want, &bound);
    for (int64_t i = 0; i < c.m; ++i) {
        for (int64_t j = 0; j < c.info.n_out; ++j) {
            if (want[i * c.info.n_out + j] == untouched) continue;
            int64_t count = 0;
            for (int64_t l = 0; l < k; ++l) {
                if (dense[j * k + l] == 0.0) continue;
                x[count] = (float)test_matrix_get(&c.x, i, l);
                w[count++] = (float)dense[j * k + l];
            }
            double y = want[i * c.info.n_out + j], b = bound[i * c.info.n_out + j];
            for (int way = 0; way < 4; ++way) {
                double got = sum_in_order(way, x, w, count);
                if (!agrees(got, y, b))
                    fail_msg("order %d: %.9g, oracle %.9g +- %.3g, %d products", way, got, y, b, (int)count);
            }
            if (count == 0 || fill != TEST_FILL_GAUSSIAN) continue;
            int64_t lost = test_random_between(random, 0, count - 1);
            counts[0] += fabs((double)x[lost] * (double)w[lost]) > b;
            counts[1] += 1;
        }
    }
    free(x);
    free(w);
    free(dense);
    free(want);
    free(bound);
    lac_plan_free(plan);
    case_free(&c);
}

/* ... and is small enough to notice that one product is missing. */
static void bound_holds_and_says_something(void **state)
{
    (void)state;
    int64_t counts[2] = {0, 0};
    test_run_cases("oracle_bound", 1500, bound_case, counts);
    print_message("one lost product noticed in %lld of %lld elements\n", (long long)counts[0], (long long)counts[1]);
    if (getenv("LAC_TEST_CASE")) return;
    assert_true(counts[1] > 0);
    assert_true((double)counts[0] >= 0.99 * (double)counts[1]);
}

/* ---- arguments */

static void reference_checks_its_arguments(void **state)
{
    (void)state;
    test_random random = test_random_make("reference_arguments", 0);
    lac_pattern pattern = pattern_of("2:4");
    lac_plan_options options = {0};
    plan_case c = case_make(&random, weight_make(&random, &pattern, 6, 8, LAC_DTYPE_F32, TEST_FILL_INTEGER), 2, &options,
                            TEST_FILL_INTEGER);
    lac_plan *plan = plan_make(&c, NULL, 1);
    double y[2 * 9];
    for (int i = 0; i < 18; ++i) y[i] = untouched;
    lac_execute_args args = case_args(&c);
    assert_fails(lac_plan_reference(NULL, &args, y, NULL, 6), LAC_STATUS_INVALID_ARGUMENT, "plan is NULL");
    assert_fails(lac_plan_reference(plan, NULL, y, NULL, 6), LAC_STATUS_INVALID_ARGUMENT, "args is NULL");
    assert_fails(lac_plan_reference(plan, &args, NULL, NULL, 6), LAC_STATUS_INVALID_ARGUMENT, "y is NULL");
    assert_fails(lac_plan_reference(plan, &args, y, NULL, 5), LAC_STATUS_INVALID_ARGUMENT, "ld is 5");
    args.x = NULL;
    assert_fails(lac_plan_reference(plan, &args, y, NULL, 6), LAC_STATUS_INVALID_ARGUMENT, "args->x is NULL");
    for (int i = 0; i < 18; ++i) assert_true(y[i] == untouched);
    args = case_args(&c);
    args.y = NULL; /* it writes to y of its own, and needs no workspace */
    assert_ok(lac_plan_reference(plan, &args, y, NULL, 9));
    for (int i = 0; i < 18; ++i) assert_true((y[i] == untouched) == (i % 9 >= 6));
    lac_plan_free(plan);
    case_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_of_cases(oracle_is_the_dense_product),    cmocka_unit_test(activations_have_known_values),
        cmocka_unit_test(weights_that_are_not_finite), cmocka_unit_test(bound_is_infinite_where_nothing_can_be_said),
        test_of_cases(bound_holds_and_says_something), cmocka_unit_test(reference_checks_its_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
