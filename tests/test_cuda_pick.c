/* test_cuda_pick.c - the chunks of cuda_f16_pick, walked on the CPU the way a warpgroup of pick.cu walks them: every kept weight
 * stands once, at its output and its input, whatever else would be multiplied is zero, and rows that are read together seldom meet
 * in a bank. Random patterns and shapes, on a target of which no GPU is needed. */
#include "tile_case.h"

#include "core/dtype.h"
#include "cuda/pick_tile.h"
#include "cuda/runtime.h"
#include "cuda/state.h"

enum { CASES = 500, SEED = 20261118 };

typedef struct walk {
    int64_t reads, wavefronts;
} walk;

/* Adds the weights of one product to dense[n][k_in]: 16 slots that read `inputs`. */
static void walk_product(const lac_pick_shape *s, const uint8_t *matrix, const int64_t inputs[16], const int32_t *output,
                         const lac_weight *w, double *dense)
{
    for (int slot = 0; slot < 16; slot++)
        for (int r = 0; r < s->width; r++) {
            uint16_t bits; /* core matrices of 8 outputs x 16 bytes, 128 bytes apart along k, 256 along n */
            memcpy(&bits, matrix + r / 8 * 256 + slot / 8 * 128 + r % 8 * 16 + slot % 8 * 2, sizeof bits);
            double value = w->dtype == LAC_DTYPE_BF16 ? lac_bf16_to_f32(bits) : lac_f16_to_f32(bits);
            if (value == 0.0) continue;
            assert_true(output[r] >= 0 && output[r] < w->n_out && inputs[slot] < w->k_in);
            double *at = &dense[output[r] * w->k_in + inputs[slot]];
            assert_true(*at == 0.0);
            *at = value;
        }
}

/* The loads of a pair in a window. output: places of its first vector's outputs. */
static void walk_chunk(const lac_pick_shape *s, const uint8_t *chunk, int set, int64_t window, const int32_t *output,
                       const lac_weight *w, double *dense, walk *at)
{
    int loads = lac_pick_loads(s), sets = lac_pick_sets(s);
    const uint8_t *places = chunk + set * ((loads + 3) / 4 * 128), *matrices = chunk + sets * ((loads + 3) / 4 * 128);
    matrices += set * 2 * s->steps * s->width * 32;
    for (int load = 0; load < 2 * s->steps - s->common; load++) {
        int64_t inputs[16];
        for (int half = 0; half < 2; half++) {
            int classes[8] = {0}, most = 0;
            for (int i = half * 8; i < half * 8 + 8; i++) {
                uint16_t place;
                memcpy(&place, places + load / 4 * 128 + i * 8 + load % 4 * 2, sizeof place);
                int row = place / 128;
                assert_true(row < LAC_PICK_WINDOW && place % 128 == row % 8 * 16);
                inputs[i] = window * LAC_PICK_WINDOW + row % 8 * 32 + row / 8;
                /* Not a row that only rounding k up has made: nobody wrote it. */
                assert_true(inputs[i] < w->k_in || inputs[i] / 32 * 32 >= w->k_in);
                if (++classes[row % 8] > most) most = classes[row % 8];
            }
            at->reads++;
            at->wavefronts += most;
        }
        bool both = load < s->common;
        int first = both ? 2 * load : load + s->common, vector = both ? 0 : (load - s->common) % 2;
        walk_product(s, matrices + first * s->width * 32, inputs, output + vector * s->width, w, dense);
        if (both) walk_product(s, matrices + (first + 1) * s->width * 32, inputs, output + s->width, w, dense);
    }
}

static walk walk_all(const lac_pick_shape *s, const lac_pick_tiled *t, const lac_weight *w, double *dense)
{
    walk all = {0};
    const uint8_t *chunk = t->chunks;
    for (int64_t tile = 0; tile < s->output_tiles; tile++)
        for (int64_t window = 0; window < s->windows; window++)
            for (int pair = 0; pair < s->pairs; pair++, chunk += lac_pick_chunk_bytes(s))
                for (int set = 0; set < lac_pick_sets(s); set++) {
                    int64_t vector = tile * lac_pick_tile_vectors(s) + set * 2 * s->pairs + 2 * pair;
                    walk_chunk(s, chunk, set, window, t->output + vector * s->width, w, dense, &all);
                }
    assert_true(chunk == t->chunks + t->chunk_bytes);
    return all;
}

static void check_case(lac_device *target, const lac_weight *w, const float *wanted, int64_t m, int *reached)
{
    lac_problem problem = tile_problem(target, w, m);
    lac_pick_shape shape;
    lac_cost cost;
    if (!lac_pick_shape_make(&problem, &shape, &cost)) return;
    assert_true(cost.seconds > 0.0 && shape.parts >= 1 && shape.parts <= shape.windows && shape.common <= shape.steps);
    assert_true(lac_pick_shared(&shape) <= lac_cuda_target_of(target)->shared_per_block);
    lac_pick_tiled tiled;
    ASSERT_OK(lac_pick_tile(w, &shape, &tiled));
    double *dense = calloc((size_t)(w->n_out * w->k_in + 1), sizeof *dense);
    assert_non_null(dense);
    walk_all(&shape, &tiled, w, dense);
    tile_expect(dense, wanted, w->n_out, w->k_in, "chunks");
    reached[0] += shape.pieces > 1;
    reached[1] += shape.parts > 1;
    reached[2] += shape.width < 32;
    reached[3] += w->pattern.family == LAC_FAMILY_VNM;
    reached[4] += shape.common > 0 && shape.common < shape.steps;
    reached[5] += w->geometry.is_free;
    reached[6] += shape.tokens == 128;
    lac_pick_tiled_release(&tiled);
    free(dense);
}

static void chunks_hold_the_weight(void **state)
{
    (void)state;
    case_rng rng = {SEED};
    int reached[7] = {0};
    print_message("seed %d\n", (int)SEED);
    lac_device *target;
    ASSERT_OK(lac_cuda_target_open("sm_90a", &target));
    for (int i = 0; i < CASES; i++) {
        lac_pattern p = case_pattern(&rng);
        if (p.unit_n > 1) p.unit_n = (int32_t)(8 + case_below(&rng, i % 3 ? 32 : 100));
        if (p.family == LAC_FAMILY_SHUFFLED) p.family = LAC_FAMILY_VECTOR;
        int64_t n = 1 + case_below(&rng, 200), k = 1 + case_below(&rng, i % 10 ? 300 : 2000);
        float *dense;
        lac_weight *w = tile_weight(&rng, &p, n, k, i, &dense);
        check_case(target, w, dense, 1 + case_below(&rng, 600), reached);
        lac_weight_free(w);
        free(dense);
    }
    lac_device_close(target);
    print_message("pieces %d, parts %d, narrow %d, V:N:M %d, some shared %d, free %d, 128 tokens %d\n", reached[0], reached[1],
                  reached[2], reached[3], reached[4], reached[5], reached[6]);
    for (int i = 0; i < 7; i++) assert_true(reached[i] > 0);
}

/* Of a weight n x k with its units drawn at random: in how many turns eight rows are read. */
static double turns_of(lac_device *target, const char *text, int64_t n, int64_t k, lac_pick_shape *shape)
{
    lac_weight *w = tile_sample(text, n, k);
    lac_pick_tiled tiled;
    lac_cost cost;
    lac_problem problem = tile_problem(target, w, 4096);
    assert_true(lac_pick_shape_make(&problem, shape, &cost));
    ASSERT_OK(lac_pick_tile(w, shape, &tiled));
    double *dense = calloc((size_t)(n * k), sizeof *dense);
    assert_non_null(dense);
    walk all = walk_all(shape, &tiled, w, dense);
    lac_pick_tiled_release(&tiled);
    lac_weight_free(w);
    free(dense);
    return (double)all.wavefronts / (double)all.reads;
}

static void rows_seldom_meet_in_a_bank(void **state)
{
    (void)state;
    lac_device *target;
    lac_pick_shape shape;
    ASSERT_OK(lac_cuda_target_open("sm_90a", &target));
    double half = turns_of(target, "vw32:16:32", 512, 4096, &shape);
    assert_true(shape.steps == 8 && shape.common >= 2);
    double quarter = turns_of(target, "vw32:8:32", 512, 4096, &shape);
    double eighth = turns_of(target, "vw32:4:32", 512, 4096, &shape);
    double permuted = turns_of(target, "vw32:25%", 512, 4096, &shape);
    print_message("turns: %.3f %.3f %.3f %.3f\n", half, quarter, eighth, permuted);
    assert_true(half < 1.1 && quarter == 1.0 && eighth == 1.0 && permuted < 1.25);
    turns_of(target, "vw64:8:32", 4096, 256, &shape);
    assert_true(shape.width == 32 && shape.common == shape.steps); /* both halves of a row group read the same inputs */
    turns_of(target, "vw48:8:32", 4096, 256, &shape);
    assert_int_equal(shape.width, 24);
    lac_device_close(target);
}

/* Steps with room for what both vectors keep, and what one does. */
static void shared_steps_fit(void **state)
{
    (void)state;
    assert_true(lac_pick_fits(8, 0, 128, 128, 0));
    assert_true(lac_pick_fits(8, 3, 128, 128, 48));
    assert_false(lac_pick_fits(8, 3, 128, 128, 47));
    assert_true(lac_pick_fits(8, 3, 100, 20, 0)); /* 20 of one stand in shared slots */
    assert_true(lac_pick_fits(8, 8, 128, 128, 128));
    assert_false(lac_pick_fits(8, 8, 128, 1, 0));
    assert_true(lac_pick_fits(8, 8, 128, 0, 0));
}

/* What was counted stays with the weight, and is what a weight that nobody has asked before says. */
static void counts_stay_with_the_weight(void **state)
{
    (void)state;
    lac_device *target;
    ASSERT_OK(lac_cuda_target_open("sm_90a", &target));
    static const char *patterns[] = {"vw32:16:32", "vw32:50%"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        lac_weight *w = tile_sample(patterns[i], 256, 512), *fresh = tile_sample(patterns[i], 256, 512);
        lac_pick_shape first, again, anew;
        lac_cost cost;
        lac_problem problem = tile_problem(target, w, 32);
        assert_int_equal(lac_weight_known(w, LAC_FACT_PICK_COMMON), -1);
        assert_true(lac_pick_shape_make(&problem, &first, &cost)); /* few tokens: sharing is not counted */
        assert_int_equal(lac_weight_known(w, LAC_FACT_PICK_COMMON), -1);
        assert_int_equal(lac_weight_known(w, LAC_FACT_PICK_MOST) > 0, w->geometry.is_free);
        problem.m = 512;
        assert_true(lac_pick_shape_make(&problem, &first, &cost));
        assert_int_equal(lac_weight_known(w, LAC_FACT_PICK_COMMON), first.common);
        assert_true(lac_pick_shape_make(&problem, &again, &cost));
        problem.weight = fresh;
        assert_true(lac_pick_shape_make(&problem, &anew, &cost));
        assert_true(again.steps == first.steps && again.common == first.common);
        assert_true(anew.steps == first.steps && anew.common == first.common);
        lac_weight_free(w);
        lac_weight_free(fresh);
    }
    lac_device_close(target);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(chunks_hold_the_weight), cmocka_unit_test(rows_seldom_meet_in_a_bank),
                                       cmocka_unit_test(shared_steps_fit), cmocka_unit_test(counts_stay_with_the_weight)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
