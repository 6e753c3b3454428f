/* test_cuda_window.c - the tiles of cuda_f32_fast and its kin, read back on the CPU the way the kernels read them: every kept
 * weight stands once, in its row and at its column, to 22 bits (one plane: 11), and whatever else a kernel would multiply is
 * zero. Random patterns, shapes and values, on targets of which no GPU is needed. */
#include "format_case.h"

#include "core/dtype.h"
#include "cuda/runtime.h"
#include "cuda/state.h"
#include "cuda/window_tile.h"
#include "format/weight.h"

enum { CASES = 600, SEED = 20261115 };

static double half_at(const uint8_t *at)
{
    uint16_t bits;
    memcpy(&bits, at, sizeof bits);
    return lac_f16_to_f32(bits);
}

/* Slot `slot` of a step of a warpgroup: the row of X within the stage. Checks the swizzle on the way. */
static int row_at(const lac_window_shape *s, const uint8_t *chunk, int group, int step, int slot)
{
    uint16_t place;
    int at_once = !s->variant.mma && s->variant.planes == 1 ? 4 : 2, sets = (s->chunk + at_once - 1) / at_once;
    memcpy(&place, chunk + ((group * sets + step / at_once) * 16 + slot) * at_once * 2 + step % at_once * 2, sizeof place);
    int unit = (int)(lac_window_row_bytes(s) / 16), row = place / unit;
    assert_int_equal(place % unit, row % 8);
    assert_true(row < s->window + s->zero_rows);
    return row;
}

/* The input of a window that split.cu puts into each row; -1 for the rows of zeros. */
static void invert_rows(const lac_window_shape *s, int *input_of)
{
    for (int row = 0; row < s->window + 8; row++) input_of[row] = -1;
    for (int input = 0; input < s->window; input++) {
        int row = lac_window_row(s, input);
        assert_true(row >= 0 && row < s->window && input_of[row] < 0);
        input_of[row] = input;
    }
}

/* Adds what the kernel multiplies with to dense[n][k]. */
static void read_tiles(const lac_window_shape *s, const lac_window_tiled *tiled, int64_t n, int64_t k, double *dense)
{
    int input_of[LAC_WINDOW_MOST + 8];
    invert_rows(s, input_of);
    for (int64_t t = 0; t < s->output_tiles * s->windows; t++)
        for (int i = 0; i < 2 * lac_window_turn(s) * LAC_WINDOW_SLOTS; i++) {
            int slot = i % LAC_WINDOW_SLOTS, turn = i / LAC_WINDOW_SLOTS % lac_window_turn(s), step = turn % s->chunk;
            int group = i / LAC_WINDOW_SLOTS / lac_window_turn(s);
            const uint8_t *chunk = tiled->tiles + t * lac_window_w_tile(s) + turn / s->chunk * lac_window_w_chunk(s);
            const uint8_t *matrix =
                chunk + lac_window_index_bytes(s) + (group * s->chunk + step) * s->variant.planes * lac_window_matrix_bytes(s);
            int in = input_of[row_at(s, chunk, group, step, slot)];
            int64_t input = t % s->windows * s->window + in;
            for (int j = 0; j < s->width; j++) {
                int64_t place = ((t / s->windows * 2 + group) * s->vectors + turn / s->steps) * s->width + j;
                const uint8_t *at = matrix + j / 8 * 256 + slot / 8 * 128 + j % 8 * 16 + slot % 8 * 2;
                double value = half_at(at);
                if (s->variant.planes == 2) value += ldexp(half_at(at + lac_window_matrix_bytes(s)), -s->low_shift);
                if (value == 0.0) continue;
                int64_t output = tiled->output[place];
                assert_true(in >= 0 && input < k && output >= 0 && output < n);
                assert_true(dense[output * k + input] == 0.0);
                dense[output * k + input] = ldexp(value * tiled->factor[place], tiled->exponent);
            }
        }
}

static void check_case(lac_device *target, const lac_weight *w, const float *wanted, int64_t m, lac_window_variant variant,
                       int *reached)
{
    lac_problem problem = {.device = target, .weight = w, .m = m};
    problem.options.x_dtype = problem.options.y_dtype = LAC_DTYPE_F32;
    lac_window_shape shape;
    lac_cost cost;
    if (!lac_window_shape_make(&problem, &variant, &shape, &cost)) return;
    assert_true(cost.seconds > 0.0 && shape.parts >= 1 && shape.stages >= 2 && shape.ring >= 2);
    assert_int_equal(lac_window_turn(&shape) % shape.chunk, 0);
    assert_true(lac_window_shared(&shape) <= lac_cuda_target_of(target)->shared_per_block);
    lac_window_tiled tiled;
    ASSERT_OK(lac_window_tile(w, &shape, &tiled));
    int64_t n = w->geometry.n, k = w->geometry.k;
    double *dense = calloc((size_t)(n * k + 1), sizeof *dense);
    assert_non_null(dense);
    read_tiles(&shape, &tiled, n, k, dense);
    /* split.cu's factor of a token is 2^(exponent - s), s from -113 to 126 for X from 2^127 to 2^-112; it must be a normal number for X of 2^-80. */
    assert_true(-tiled.exponent <= 126 - 94);
    /* And no sum of shifted weights, which are below 2^15, may overflow for X below 2^127 over the number of products. */
    assert_true(-tiled.exponent >= 14);
    double share = variant.planes == 2 ? 0x1p-22 : 0x1p-11;
    for (int64_t i = 0; i < n * k; i++)
        if (!(fabs(dense[i] - (double)wanted[i]) <= share * fabs((double)wanted[i])))
            fail_msg("row %lld, column %lld: %.9g in the tiles, %.9g in the weight", (long long)(i / k), (long long)(i % k),
                     dense[i], (double)wanted[i]);
    reached[0] += variant.dense;
    reached[1] += variant.mma;
    reached[2] += shape.zero_rows == 0;
    reached[3] += shape.pieces > 1;
    reached[4] += shape.parts > 1;
    reached[5] += shape.windows > 1;
    reached[6] += shape.width < 32;
    reached[7] += !variant.dense && w->pattern.family == LAC_FAMILY_VNM;
    reached[8] += shape.chunk < lac_window_turn(&shape);
    reached[9] += shape.unit > 1;
    reached[10] += shape.low_shift > 0;
    lac_window_tiled_release(&tiled);
    free(dense);
}

static void tiles_hold_the_weight(void **state)
{
    (void)state;
    static const char *const archs[] = {"sm_75", "sm_86", "sm_90a"};
    case_rng rng = {SEED};
    int reached[11] = {0};
    print_message("seed %d\n", (int)SEED);
    lac_device *targets[3];
    for (int i = 0; i < 3; i++) ASSERT_OK(lac_cuda_target_open(archs[i], &targets[i]));
    for (int i = 0; i < CASES; i++) {
        lac_pattern p = case_pattern(&rng);
        if (p.unit_n > 1) p.unit_n = (int32_t)(8 + case_below(&rng, i % 3 ? 32 : 100));
        if (p.family == LAC_FAMILY_SHUFFLED) p.family = LAC_FAMILY_VECTOR;
        int64_t n = 1 + case_below(&rng, 200), k = i % 5 ? 1 + case_below(&rng, 300) : 64 * (1 + case_below(&rng, 4));
        uint8_t *keep = malloc((size_t)(n * k));
        float *dense = malloc((size_t)(n * k) * sizeof *dense);
        assert_true(keep && dense);
        case_keep(&rng, &p, n, k, i % 4 > 0, keep);
        for (int64_t j = 0; j < n * k; j++)
            dense[j] = keep[j] ? (float)(1 + case_below(&rng, 100000)) / (i % 2 ? 7.0f : -1000.0f) : 0.0f;
        for (int64_t j = 0; i % 6 == 0 && j < n * k; j++) /* most rows have died: tiny, or nearly nothing */
            if (j / k % 10) dense[j] = ldexpf(dense[j], i % 12 ? -100 : -120);
        for (int64_t j = 0; i % 6 == 2 && j < n * k; j++) /* most rows are huge */
            if (j / k % 10) dense[j] = ldexpf(dense[j], 110);
        lac_matrix matrix = {.data = dense, .dtype = LAC_DTYPE_F32, .rows = n, .cols = k};
        lac_mask *mask = NULL;
        lac_weight *w = NULL;
        ASSERT_OK(lac_mask_from_matrix(&matrix, &p, &mask));
        ASSERT_OK(lac_weight_compress(&matrix, mask, NULL, &w));
        for (int v = 0; v < 8; v++) {
            lac_window_variant variant = {.planes = 1 + v % 2, .dense = v / 2 % 2, .mma = v / 4 % 2};
            int64_t m = 1 + case_below(&rng, 600);
            check_case(targets[variant.mma ? case_below(&rng, 3) : 2], w, dense, m, variant, reached);
        }
        lac_weight_free(w);
        lac_mask_free(mask);
        free(keep);
        free(dense);
    }
    for (int i = 0; i < 3; i++) lac_device_close(targets[i]);
    print_message(
        "dense %d, mma %d, exact %d, pieces %d, parts %d, windows %d, narrow %d, V:N:M %d, chunks %d, units %d, few %d\n",
        reached[0], reached[1], reached[2], reached[3], reached[4], reached[5], reached[6], reached[7], reached[8], reached[9],
        reached[10]);
    for (int i = 0; i < 11; i++) assert_true(reached[i] > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tiles_hold_the_weight)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
