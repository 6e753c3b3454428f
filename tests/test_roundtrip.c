/* test_roundtrip.c - 20,000 random cases over families, N, M, vector lengths, dtypes, layouts and ragged shapes:
 *
 *     dense -> prune -> mask -> compress -> save -> load -> decompress
 *
 * gives back the masked dense matrix bit for bit, the oracle equals a dense product in double made here, the pattern's
 * check agrees, the mask can be found again in the pruned matrix, and a shard is a slice. Nothing here uses the library's
 * own arithmetic to judge it. */
#include "support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CASES = 20000, MOST_ELEMENTS = 2500 };

static lac_device *cpu;

/* One case's things. Freed at its end; a failed case may leak them. */
typedef struct trip {
    test_random *random;
    lac_pattern pattern;
    int64_t n, k;
    test_fill fill;
    lac_dtype stored;
    test_matrix dense;  /* n x k as the caller has it             */
    test_matrix masked; /* n x k: what must come out, in `stored` */
    lac_mask *mask;
    lac_weight *weight;
} trip;

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Does any element of the unit stay? Counted in the order that the mask's permutation of rows gives. */
static bool unit_stays(const trip *t, const lac_mask_info *info, int64_t row, int64_t rows, int64_t col, int64_t cols)
{
    for (int64_t i = row; i < row + rows; i++) {
        for (int64_t j = col; j < col + cols; j++) {
            if (lac_mask_get(t->mask, info->row_perm ? info->row_perm[i] : i, info->col_perm ? info->col_perm[j] : j))
                return true;
        }
    }
    return false;
}

/* The rule of the pattern, counted unit by unit for one row group. V:N:M: four inputs a group, N of them in each row. */
static void check_row_group(const trip *t, const lac_mask_info *info, int64_t row, int64_t rows)
{
    int64_t width = smaller(t->pattern.unit_k, t->k), units = (t->k + width - 1) / width;
    bool vnm = t->pattern.family == LAC_FAMILY_VNM;
    int64_t group = t->pattern.m ? t->pattern.m : units;
    int64_t most = vnm ? 4 : t->pattern.n;
    if (!t->pattern.m) {
        most = (int64_t)floor(t->pattern.density * (double)units + 0.5);
        if (most < 1) most = 1;
    }
    for (int64_t first = 0; first < units; first += group) {
        int64_t end = smaller(first + group, units), kept = 0;
        for (int64_t unit = first; unit < end; unit++) {
            kept += unit_stays(t, info, row, rows, unit * width, smaller(width, t->k - unit * width));
        }
        assert_true(kept <= most);
        if (t->pattern.m && !vnm) assert_int_equal(kept, smaller(most, end - first));
        for (int64_t i = row; vnm && i < row + rows; i++) {
            int64_t in_row = 0;
            for (int64_t unit = first; unit < end; unit++) in_row += unit_stays(t, info, i, 1, unit, 1);
            assert_int_equal(in_row, smaller(t->pattern.n, end - first));
        }
    }
}

static void check_mask(const trip *t)
{
    lac_mask_info info = {.size = sizeof info};
    assert_ok(lac_mask_get_info(t->mask, &info));
    assert_true(info.n == t->n && info.k == t->k && info.has_pattern);
    assert_true(info.pattern.family == t->pattern.family && info.pattern.m == t->pattern.m);
    assert_true(t->pattern.family == LAC_FAMILY_SHUFFLED || !info.row_perm);
    int64_t kept = 0;
    for (int64_t row = 0; row < t->n; row++) {
        for (int64_t col = 0; col < t->k; col++) kept += lac_mask_get(t->mask, row, col);
    }
    assert_int_equal(kept, info.kept);
    int64_t height = smaller(t->pattern.unit_n, t->n);
    for (int64_t row = 0; row < t->n && t->k; row += height) check_row_group(t, &info, row, smaller(height, t->n - row));
}

static void prune(trip *t)
{
    lac_prune_options options = {.size = sizeof options,
                                 .score = (lac_score)test_random_between(t->random, 0, 2),
                                 .threads = test_random_chance(t->random, 95) ? 1 : 3};
    unsigned char *before = test_matrix_snapshot(&t->dense);
    assert_ok(lac_prune(&t->dense.view, &t->pattern, &options, &t->mask));
    assert_true(test_matrix_unchanged(&t->dense, before));
    free(before);
    check_mask(t);
    for (int64_t row = 0; row < t->n; row++) {
        for (int64_t col = 0; col < t->k; col++) {
            bool stays = lac_mask_get(t->mask, row, col);
            test_matrix_set(&t->masked, row, col, stays ? test_matrix_get(&t->dense, row, col) : 0.0);
        }
    }
}

/* The mask used on the dense matrix itself: dropped elements become +0.0, and the energies are the sums of squares. */
static void check_mask_on_dense(const trip *t)
{
    double kept = 0, total = 0, want_kept = 0, want_total = 0;
    assert_ok(lac_mask_energy(t->mask, &t->dense.view, &kept, &total));
    test_matrix copy = test_matrix_random(t->random, t->n, t->k, t->dense.view.dtype);
    for (int64_t row = 0; row < t->n; row++) {
        for (int64_t col = 0; col < t->k; col++) {
            double value = test_matrix_get(&t->dense, row, col);
            test_matrix_set(&copy, row, col, value);
            if (!isfinite(value)) continue;
            want_total += value * value;
            if (lac_mask_get(t->mask, row, col)) want_kept += value * value;
        }
    }
    /* Squares of 16-bit values are summed in floats, eight at a time. */
    double error = t->dense.view.dtype == LAC_DTYPE_F16 || t->dense.view.dtype == LAC_DTYPE_BF16 ? 5e-7 : 1e-9;
    assert_true(test_within(kept, want_kept, error * want_kept) && test_within(total, want_total, error * want_total));
    assert_ok(lac_mask_apply(t->mask, &copy.view));
    assert_true(test_matrix_intact(&copy));
    for (int64_t row = 0; row < t->n; row++) {
        for (int64_t col = 0; col < t->k; col++) {
            double want = lac_mask_get(t->mask, row, col) ? test_matrix_get(&t->dense, row, col) : 0.0;
            assert_true(test_same_number(test_matrix_get(&copy, row, col), want));
        }
    }
    test_matrix_free(&copy);
}

/* The dense matrix through a .npy file (bf16, which that lacks, is stored as f32 there). */
static void check_npy(const trip *t)
{
    if (test_random_chance(t->random, 75)) return;
    const char *path = test_path("roundtrip.npy");
    lac_file *file = NULL;
    assert_ok(lac_matrix_save_npy(&t->dense.view, path));
    assert_ok(lac_file_open(path, &file));
    test_matrix back = test_matrix_random(t->random, t->n, t->k, t->dense.view.dtype);
    assert_ok(lac_file_read_matrix(file, "array", &back.view));
    assert_true(test_matrix_intact(&back));
    assert_same_matrix(&back, &t->dense);
    test_matrix_free(&back);
    lac_file_close(file);
}

static lac_index_encoding random_encoding(const trip *t)
{
    if (test_random_chance(t->random, 60)) return LAC_INDEX_ENCODING_AUTO;
    if (!t->pattern.m) return LAC_INDEX_ENCODING_COLUMNS;
    bool all_stay = t->pattern.family == LAC_FAMILY_VNM ? t->pattern.m == 4 : t->pattern.n == t->pattern.m;
    if (all_stay && test_random_chance(t->random, 40)) return LAC_INDEX_ENCODING_IMPLICIT;
    return test_random_chance(t->random, 50) ? LAC_INDEX_ENCODING_PACKED : LAC_INDEX_ENCODING_BITMASK;
}

/* Compress, save, load: what comes back has the same parts, byte for byte. */
static void compress_and_store(trip *t)
{
    lac_compress_options options = {.size = sizeof options, .dtype = t->stored, .encoding = random_encoding(t), .threads = 1};
    if (t->stored == t->dense.view.dtype && test_random_chance(t->random, 50)) options.dtype = LAC_DTYPE_NONE;
    lac_weight *made = NULL;
    assert_ok(lac_weight_compress(&t->dense.view, t->mask, &options, &made));
    const char *path = test_path("roundtrip.safetensors");
    const char *name = test_random_chance(t->random, 50) ? "w" : "layers.0.\"odd\\name\" \xc3\xa9";
    assert_ok(lac_weight_save(made, path, name));
    assert_ok(lac_weight_load(path, test_random_chance(t->random, 50) ? NULL : name, &t->weight));
    lac_weight_info a = {.size = sizeof a}, b = {.size = sizeof b};
    assert_ok(lac_weight_get_info(made, &a));
    assert_ok(lac_weight_get_info(t->weight, &b));
    assert_true(a.n == t->n && a.k == t->k && a.n_out == t->n && a.k_in == t->k && a.dtype == t->stored);
    assert_true(a.n == b.n && a.k == b.k && a.n_out == b.n_out && a.k_in == b.k_in && a.dtype == b.dtype && a.kept == b.kept);
    assert_true(a.encoding == b.encoding && a.value_bytes == b.value_bytes && a.index_bytes == b.index_bytes);
    if (options.encoding) assert_int_equal(a.encoding, options.encoding);
    for (int part = 0; part < LAC_PART_COUNT; part++) {
        lac_span x, y;
        assert_ok(lac_weight_get_part(made, (lac_part)part, &x));
        assert_ok(lac_weight_get_part(t->weight, (lac_part)part, &y));
        assert_int_equal(x.bytes, y.bytes);
        if (x.bytes) assert_memory_equal(x.data, y.data, x.bytes);
        assert_true((uintptr_t)y.data % 64 == 0);
    }
    lac_weight_free(made);
}

static void check_decompressed(const trip *t)
{
    test_matrix out = test_matrix_random(t->random, t->n, t->k, t->stored);
    assert_ok(lac_weight_decompress(t->weight, &out.view));
    assert_true(test_matrix_intact(&out));
    assert_same_matrix(&out, &t->masked);
    test_matrix_free(&out);

    test_matrix wide = test_matrix_random(t->random, t->n, t->k, LAC_DTYPE_F64);
    assert_ok(lac_weight_decompress(t->weight, &wide.view));
    assert_true(test_matrix_intact(&wide));
    for (int64_t row = 0; row < t->n; row++) {
        for (int64_t col = 0; col < t->k; col++) {
            assert_true(test_same_number(test_matrix_get(&wide, row, col), test_matrix_get(&t->masked, row, col)));
        }
    }
    test_matrix_free(&wide);
}

static bool keeps_a_zero(const trip *t)
{
    for (int64_t row = 0; row < t->n; row++) {
        for (int64_t col = 0; col < t->k; col++) {
            if (lac_mask_get(t->mask, row, col) && test_matrix_get(&t->masked, row, col) == 0) return true;
        }
    }
    return false;
}

/* The pruned matrix obeys the pattern, and its mask, found again, gives the same weight. A shuffled matrix whose kept
 * values are all nonzero has rows of equal columns, which the search must gather; with zeros among them it may fail. */
static void check_found_again(const trip *t)
{
    lac_status status = lac_pattern_check(&t->masked.view, &t->pattern, NULL);
    if (status != LAC_STATUS_OK && t->pattern.family == LAC_FAMILY_SHUFFLED && keeps_a_zero(t)) {
        assert_int_equal(status, LAC_STATUS_PATTERN_VIOLATED);
        return;
    }
    assert_ok(status);
    lac_mask *mask = NULL;
    assert_ok(lac_mask_from_matrix(&t->masked.view, &t->pattern, &mask));
    for (int64_t row = 0; row < t->n; row++) {
        for (int64_t col = 0; col < t->k; col++) {
            if (test_matrix_get(&t->masked, row, col) != 0) assert_true(lac_mask_get(mask, row, col));
        }
    }
    lac_compress_options options = {.size = sizeof options, .threads = 1};
    lac_weight *weight = NULL;
    assert_ok(lac_weight_compress(&t->masked.view, mask, &options, &weight));
    test_matrix out = test_matrix_random(t->random, t->n, t->k, t->stored);
    assert_ok(lac_weight_decompress(weight, &out.view));
    for (int64_t row = 0; row < t->n; row++) {
        for (int64_t col = 0; col < t->k; col++) { /* a -0.0 of the matrix is a zero, and may have been dropped */
            double got = test_matrix_get(&out, row, col), want = test_matrix_get(&t->masked, row, col);
            assert_true(test_same_number(got, want) || (got == 0 && want == 0));
        }
    }
    test_matrix_free(&out);
    lac_weight_free(weight);
    lac_mask_free(mask);
}

/* ---- shards */

static int64_t random_cut(trip *t, int64_t step, int64_t length)
{
    int64_t cuts = length / step + (length % step != 0);
    return smaller(test_random_between(t->random, 0, cuts) * step, length);
}

/* A legal range of rows or columns gives the rows or columns of the masked matrix; with shuffled rows they stand where the
 * whole matrix has them, and all others are zero. */
static void check_shard(trip *t)
{
    lac_axis axis = test_random_chance(t->random, 50) ? LAC_AXIS_N : LAC_AXIS_K;
    int64_t length = axis == LAC_AXIS_N ? t->n : t->k;
    int64_t width = smaller(t->pattern.unit_k, t->k ? t->k : 1);
    int64_t step = axis == LAC_AXIS_N ? t->pattern.unit_n : width * (t->pattern.m ? t->pattern.m : 1);
    int64_t begin = random_cut(t, step, length), end = random_cut(t, step, length);
    if (begin > end) {
        int64_t swap = begin;
        begin = end;
        end = swap;
    }
    lac_weight *shard = NULL;
    assert_ok(lac_weight_shard(t->weight, axis, begin, end, &shard));
    lac_weight_info info = {.size = sizeof info};
    assert_ok(lac_weight_get_info(shard, &info));
    assert_true(info.n == (axis == LAC_AXIS_N ? end - begin : t->n) && info.k == (axis == LAC_AXIS_K ? end - begin : t->k));
    lac_span perm;
    assert_ok(lac_weight_get_part(shard, LAC_PART_ROW_PERM, &perm));
    const uint32_t *rows = perm.data; /* [info.n]: the output of each row, or NULL */
    test_matrix out = test_matrix_random(t->random, rows ? info.n_out : info.n, info.k, t->stored);
    test_matrix want = test_matrix_make(out.view.rows, info.k, t->stored, LAC_LAYOUT_ROW_MAJOR, 0, 0);
    for (int64_t i = 0; i < out.view.rows; i++) {
        for (int64_t j = 0; j < info.k; j++) test_matrix_set(&want, i, j, 0.0);
    }
    for (int64_t i = 0; i < info.n; i++) {
        int64_t from = rows ? rows[i] : i + (axis == LAC_AXIS_N ? begin : 0);
        for (int64_t j = 0; j < info.k; j++) {
            int64_t col = j + (axis == LAC_AXIS_K ? begin : 0);
            test_matrix_set(&want, rows ? rows[i] : i, j, test_matrix_get(&t->masked, from, col));
        }
    }
    if (rows) assert_int_equal(info.n_out, t->n);
    assert_ok(lac_weight_decompress(shard, &out.view));
    assert_true(test_matrix_intact(&out));
    assert_same_matrix(&out, &want);
    test_matrix_free(&out);
    test_matrix_free(&want);
    lac_weight_free(shard);
}

/* ---- the product */

typedef struct product {
    int64_t m;
    test_matrix x, c, y; /* tokens are rows */
    test_matrix bias;    /* 1 x n */
    lac_plan_options options;
    float alpha, beta;
} product;

static double activated(lac_activation activation, double z)
{
    switch (activation) {
    case LAC_ACTIVATION_NONE:
        return z;
    case LAC_ACTIVATION_RELU:
        return z < 0 ? 0 : z;
    case LAC_ACTIVATION_GELU_ERF:
        return z / 2 * (1 + erf(z / sqrt(2)));
    case LAC_ACTIVATION_GELU_TANH:
        return z / 2 * (1 + tanh(sqrt(2 / acos(-1)) * (z + 0.044715 * z * z * z)));
    case LAC_ACTIVATION_SILU:
        return z / (1 + exp(-z));
    }
    return NAN;
}

/* One element by the dense matrix, zeros and all; *size gets the sum of the magnitudes that it is made of. */
static double dense_product(const trip *t, const product *p, int64_t token, int64_t output, double *size)
{
    double sum = 0, magnitude = 0;
    for (int64_t col = 0; col < t->k; col++) {
        double term = test_matrix_get(&p->x, token, col) * test_matrix_get(&t->masked, output, col);
        sum += term;
        magnitude += fabs(term);
    }
    double bias = p->options.has_bias ? test_matrix_get(&p->bias, 0, output) : 0;
    double residual = p->options.has_residual && p->beta != 0 ? p->beta * test_matrix_get(&p->c, token, output) : 0;
    *size = fabs(p->alpha) * magnitude + fabs(bias) + fabs(residual);
    return activated(p->options.activation, p->alpha * sum + bias) + residual;
}

/* -infinity times zero in the activations is NaN in one way of writing them and 0 in another. */
static bool is_open(const trip *t, const product *p) { return t->fill == TEST_FILL_NONFINITE && p->options.activation > 1; }

static void check_results(const trip *t, const product *p, const double *y, const double *bound)
{
    bool exact = t->fill == TEST_FILL_INTEGER && p->options.activation <= LAC_ACTIVATION_RELU;
    for (int64_t token = 0; token < p->m; token++) {
        for (int64_t output = 0; output < t->n; output++) {
            if (is_open(t, p)) continue;
            int64_t at = token * t->n + output;
            double size, want = dense_product(t, p, token, output, &size);
            double slack = exact ? 0 : size * 1e-12;
            if (!test_within(y[at], want, slack))
                fail_msg("oracle[%d][%d] is %a, not %a", (int)token, (int)output, y[at], want);
            double got = test_matrix_get(&p->y, token, output);
            if (isinf(bound[at])) continue; /* out of fp32's or y's range: any result is right */
            if (!test_within(got, y[at], bound[at])) {
                fail_msg("y[%d][%d] is %a, not %a within %g", (int)token, (int)output, got, y[at], bound[at]);
            }
        }
    }
}

static void run_plan(const trip *t, product *p)
{
    lac_plan *plan = NULL;
    assert_ok(lac_plan_create(cpu, t->weight, p->m, &p->options, &plan));
    lac_plan_info info = {.size = sizeof info};
    assert_ok(lac_plan_get_info(plan, &info));
    assert_true(info.m == p->m && info.n == t->n && info.k == t->k && info.kernel && info.kernel[0]);
    lac_execute_args args = {.size = sizeof args,
                             .x = p->x.view.data,
                             .ldx = p->x.view.ld,
                             .y = p->y.view.data,
                             .ldy = p->y.view.ld,
                             .alpha = &p->alpha,
                             .workspace_bytes = info.workspace_bytes};
    if (p->options.has_bias) args.bias = p->bias.view.data;
    if (p->options.has_residual) {
        args.c = p->c.view.data;
        args.ldc = p->c.view.ld;
        args.beta = &p->beta;
    }
    args.workspace = aligned_alloc(64, (info.workspace_bytes + 127) / 64 * 64);
    size_t count = (size_t)(p->m * t->n) + 1;
    double *y = calloc(count, sizeof *y), *bound = calloc(count, sizeof *bound);
    assert_true(args.workspace && y && bound);
    assert_ok(lac_plan_execute(plan, &args));
    assert_true(test_matrix_intact(&p->y));
    assert_ok(lac_plan_reference(plan, &args, y, bound, t->n));
    check_results(t, p, y, bound);
    free(args.workspace);
    free(y);
    free(bound);
    lac_plan_free(plan);
}

static test_matrix random_operand(const trip *t, int64_t rows, int64_t cols, lac_dtype dtype, lac_layout layout)
{
    int64_t padding = test_random_chance(t->random, 30) ? test_random_between(t->random, 1, 5) : 0;
    test_matrix matrix = test_matrix_make(rows, cols, dtype, layout, padding, test_random_between(t->random, 0, 3));
    test_matrix_fill(t->random, &matrix, t->fill == TEST_FILL_INTEGER ? TEST_FILL_INTEGER : TEST_FILL_GAUSSIAN);
    return matrix;
}

static void check_product(const trip *t)
{
    test_random *random = t->random;
    product p = {.m = test_random_pick(random, 0, 1, 1, 2, 3, 5), .alpha = 1, .beta = 1};
    p.options = (lac_plan_options){.size = sizeof p.options, .threads = 1};
    lac_plan_options *o = &p.options;
    o->x_layout = (lac_layout)test_random_between(random, 0, 1);
    o->y_layout = (lac_layout)test_random_between(random, 0, 1);
    lac_dtype x = t->stored, y = t->stored;
    if (test_random_chance(random, 30)) o->x_dtype = x = y = test_random_dtype(random, 0);
    if (test_random_chance(random, 30)) o->y_dtype = y = test_random_dtype(random, 0);
    o->has_bias = test_random_chance(random, 40);
    o->has_residual = test_random_chance(random, 40);
    if (test_random_chance(random, 50)) o->activation = (lac_activation)test_random_between(random, 1, 4);
    if (test_random_chance(random, 30)) p.alpha = (float)test_random_pick(random, -2, 0, 3);
    if (test_random_chance(random, 30)) p.beta = (float)test_random_pick(random, -1, 0, 2);
    p.x = random_operand(t, p.m, t->k, x, o->x_layout);
    p.y = random_operand(t, p.m, t->n, y, o->y_layout);
    p.c = random_operand(t, p.m, t->n, y, o->y_layout);
    p.bias = random_operand(t, 1, t->n, y, LAC_LAYOUT_ROW_MAJOR);
    if (p.beta == 0) { /* C is not read then */
        for (int64_t i = 0; i < p.m * t->n; i++) test_matrix_set(&p.c, i / t->n, i % t->n, NAN);
    }
    run_plan(t, &p);
    test_matrix_free(&p.x);
    test_matrix_free(&p.y);
    test_matrix_free(&p.c);
    test_matrix_free(&p.bias);
}

static void one_trip(test_random *random, int64_t index, void *user)
{
    (void)index, (void)user;
    trip t = {.random = random, .pattern = test_random_pattern(random)};
    test_random_shape(random, &t.pattern, MOST_ELEMENTS, &t.n, &t.k);
    lac_dtype given = test_random_dtype(random, 1);
    t.stored = given == LAC_DTYPE_F64 || test_random_chance(random, 30) ? test_random_dtype(random, 0) : given;
    t.fill = (test_fill)test_random_between(random, 0, TEST_FILL_FINITE_COUNT - 1);
    if (test_random_chance(random, 5)) t.fill = TEST_FILL_NONFINITE;
    char text[LAC_PATTERN_TEXT_SIZE];
    assert_ok(lac_pattern_format(&t.pattern, text, sizeof text));
    test_describe("%s on %lld x %lld, %s stored as %s, fill %d", text, (long long)t.n, (long long)t.k, lac_dtype_name(given),
                  lac_dtype_name(t.stored), (int)t.fill);
    t.dense = test_matrix_random(random, t.n, t.k, given);
    test_matrix_fill(random, &t.dense, t.fill);
    t.masked = test_matrix_make(t.n, t.k, t.stored, LAC_LAYOUT_ROW_MAJOR, 0, 0);
    prune(&t);
    check_mask_on_dense(&t);
    check_npy(&t);
    compress_and_store(&t);
    check_decompressed(&t);
    check_found_again(&t);
    check_shard(&t);
    check_product(&t);
    lac_weight_free(t.weight);
    lac_mask_free(t.mask);
    test_matrix_free(&t.dense);
    test_matrix_free(&t.masked);
}

static void round_trips(void **state)
{
    (void)state;
    int64_t live = test_allocator_live();
    test_run_cases("roundtrip", CASES, one_trip, NULL);
    assert_int_equal(test_allocator_live(), live);
    assert_true(test_folder_files() <= 2);
}

int main(void)
{
    test_allocator_install();
    test_seed();
    if (lac_device_open("cpu", &cpu) != LAC_STATUS_OK) {
        fprintf(stderr, "cannot open the CPU: %s\n", lac_last_error());
        return 1;
    }
    const struct CMUnitTest tests[] = {test_of_cases(round_trips)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    lac_device_close(cpu);
    return failed;
}
