/* test_cuda_choose.c - the stages of cuda_f16_choose, walked on the CPU the way a warpgroup of choose.cu walks them: every kept weight
 * stands once, at its output and its input, slots without an input are joined as zeros and have no weight, boxes begin where the copy
 * engine can, inputs that are read together seldom meet in a bank, and pieces of Y are nobody else's. Random patterns and shapes, on a
 * target of which no GPU is needed. */
#include "tile_case.h"

#include "core/dtype.h"
#include "cuda/choose_tile.h"
#include "cuda/runtime.h"
#include "cuda/state.h"

enum { CASES = 300, SEED = 20261117 };

typedef struct walk {
    int64_t loads, turns, stages, empty_slots;
} walk;

static uint16_t read_16(const uint8_t *at)
{
    uint16_t bits;
    memcpy(&bits, at, sizeof bits);
    return bits;
}

/* Turns that the four inputs of a load take: the most words of one class, bits 2 and 3 of where they stand. */
static int turns_of_load(const int place[4])
{
    int most = 1;
    for (int class = 0; class < 4; class ++) {
        int words = 0;
        for (int i = 0; i < 4; i++) {
            bool seen = (place[i] >> 2 & 3) != class;
            for (int j = 0; j < i; j++) seen |= place[j] >> 2 == place[i] >> 2;
            words += !seen;
        }
        most = words > most ? words : most;
    }
    return most;
}

/* Which input of X a place of a stage is; -1: no box has it. */
static int64_t input_at(const lac_choose_shape *s, const int32_t *boxes, int place)
{
    int box = place / LAC_CHOOSE_BOX_BYTES, in_box = place % LAC_CHOOSE_BOX_BYTES;
    assert_true(box < s->boxes && in_box < 128 && in_box % 2 == 0); /* the first token's row */
    return boxes[box] < 0 ? -1 : boxes[box] + in_box / 2;
}

/* One step of a vector: adds its weights to dense[n][k_in]. */
static void walk_step(const lac_choose_shape *s, const uint8_t *image, const int32_t *boxes, int step, int vector,
                      const int32_t *output, const lac_weight *w, double *dense, walk *at)
{
    int64_t inputs[16];
    for (int load = 0; load < 4; load++) {
        int place[4];
        for (int lane = 0; lane < 4; lane++) {
            const uint8_t *places = image + 16384 + (step * 2 + vector) * 64 + lane * 16;
            int join = read_16(places + 8 + load / 2 * 2) >> (load % 2 * 8) & 0xff, slot = 2 * lane + load % 2 + load / 2 * 8;
            place[lane] = read_16(places + load * 2);
            bool none = join == 0x22;
            assert_true(none || join == (load % 2 ? 0x54 : 0x10));
            inputs[slot] = none ? -1 : input_at(s, boxes, place[lane]);
            assert_true(none || (inputs[slot] >= 0 && inputs[slot] < w->k_in));
            at->empty_slots += none;
        }
        at->loads++;
        at->turns += turns_of_load(place);
    }
    for (int slot = 0; slot < 16; slot++)
        for (int r = 0; r < 128; r++) { /* core matrices of 8 outputs x 16 bytes, 128 bytes apart along k, 256 along n */
            uint16_t bits =
                read_16(image + (step * 2 + vector) * 4096 + r / 8 * 256 + slot / 8 * 128 + r % 8 * 16 + slot % 8 * 2);
            double value = w->dtype == LAC_DTYPE_BF16 ? lac_bf16_to_f32(bits) : lac_f16_to_f32(bits);
            if (value == 0.0) continue;
            assert_true(inputs[slot] >= 0 && output[r] >= 0 && output[r] < w->n_out);
            double *to = &dense[output[r] * w->k_in + inputs[slot]];
            assert_true(*to == 0.0);
            *to = value;
        }
}

static walk walk_all(const lac_choose_shape *s, const lac_choose_tiled *t, const lac_weight *w, double *dense)
{
    walk all = {.stages = t->stage_count};
    assert_int_equal(t->range[0], 0);
    assert_int_equal(t->range[s->quads], t->stage_count);
    for (int64_t quad = 0; quad < s->quads; quad++)
        for (int64_t stage = t->range[quad]; stage < t->range[quad + 1]; stage++) {
            const int32_t *boxes = t->boxes + stage * s->boxes;
            assert_true(boxes[0] >= 0);
            for (int box = 0; box < s->boxes; box++)
                assert_true(boxes[box] < 0 || (boxes[box] % 8 == 0 && boxes[box] < w->k_in));
            for (int v = 0; v < 4; v++)
                for (int step = 0; step < 2; step++)
                    walk_step(s, t->images + (stage * 2 + v / 2) * LAC_CHOOSE_IMAGE_BYTES, boxes, step, v % 2,
                              t->output + (quad * 4 + v) * 128, w, dense, &all);
        }
    return all;
}

/* Outputs stand once, and what a box of 64 would write is its piece's, from 16 bytes on. */
static void check_outputs(const lac_choose_shape *s, const lac_choose_tiled *t, const lac_weight *w)
{
    int32_t *owner = malloc((size_t)w->n_out * sizeof *owner);
    assert_non_null(owner);
    for (int64_t i = 0; i < w->n_out; i++) owner[i] = -1;
    for (int64_t i = 0; i < s->quads * 4 * 128; i++)
        if (t->output[i] >= 0) {
            assert_int_equal(owner[t->output[i]], -1);
            owner[t->output[i]] = (int32_t)(i / 64);
        }
    for (int64_t i = 0; i < w->n_out; i++) assert_true(owner[i] >= 0);
    for (int64_t piece = 0; piece < s->quads * 8; piece++) {
        int32_t first = t->piece[piece];
        assert_true(first < 0 || first % 8 == 0);
        for (int r = 0; r < 64 && first >= 0; r++) {
            int64_t place = first + r;
            assert_true(place >= w->n_out || owner[place] == piece);
            assert_int_equal(t->output[piece * 64 + r], place < w->n_out ? place : -1);
        }
    }
    free(owner);
}

static void check_case(lac_device *target, const lac_weight *w, const float *wanted, int64_t m, int *reached)
{
    lac_problem problem = tile_problem(target, w, m);
    lac_choose_shape shape;
    lac_cost cost;
    if (!lac_choose_shape_make(&problem, &shape, &cost)) return;
    assert_true(cost.seconds > 0.0 && shape.stages >= 2);
    assert_true(lac_choose_shared(&shape) <= lac_cuda_target_of(target)->shared_per_block);
    for (shape.boxes = 1; shape.boxes <= LAC_CHOOSE_MOST_BOXES; shape.boxes++) {
        lac_choose_tiled tiled;
        ASSERT_OK(lac_choose_tile(w, &shape, &tiled));
        double *dense = calloc((size_t)(w->n_out * w->k_in + 1), sizeof *dense);
        assert_non_null(dense);
        walk all = walk_all(&shape, &tiled, w, dense);
        check_outputs(&shape, &tiled, w);
        tile_expect(dense, wanted, w->n_out, w->k_in, "stages");
        reached[0] += shape.pieces > 1;
        reached[1] += w->geometry.is_free;
        reached[2] += shape.quads > 1;
        reached[3] += shape.vectors % 4 != 0;
        reached[4] += all.empty_slots > 0;
        reached[5] += w->pattern.family == LAC_FAMILY_BLOCK;
        reached[6] += shape.boxes > 1 && all.stages > 0 && tiled.boxes[1] >= 0;
        lac_choose_tiled_release(&tiled);
        free(dense);
    }
}

static void stages_hold_the_weight(void **state)
{
    (void)state;
    case_rng rng = {SEED};
    int reached[7] = {0};
    print_message("seed %d\n", (int)SEED);
    lac_device *target;
    ASSERT_OK(lac_cuda_target_open("sm_90a", &target));
    for (int i = 0; i < CASES; i++) {
        lac_pattern p = case_pattern(&rng);
        if (p.unit_n > 1) p.unit_n = (int32_t)(65 + case_below(&rng, 250));
        if (p.family == LAC_FAMILY_SHUFFLED) p.family = LAC_FAMILY_VECTOR;
        int64_t n = 1 + case_below(&rng, i % 5 ? 300 : 1200), k = 1 + case_below(&rng, i % 10 ? 300 : 1500);
        float *dense;
        lac_weight *w = tile_weight(&rng, &p, n, k, i, &dense);
        check_case(target, w, dense, 1 + case_below(&rng, 600), reached);
        lac_weight_free(w);
        free(dense);
    }
    lac_device_close(target);
    print_message("pieces %d, free %d, quads %d, ragged quads %d, empty slots %d, blocks %d, two boxes %d\n", reached[0],
                  reached[1], reached[2], reached[3], reached[4], reached[5], reached[6]);
    for (int i = 0; i < 7; i++) assert_true(reached[i] > 0);
}

/* Of a weight n x k with its units drawn at random: in how many turns a load is done. */
static double turns_of(lac_device *target, const char *text, int64_t n, int64_t k, lac_choose_shape *shape, walk *all)
{
    lac_weight *w = tile_sample(text, n, k);
    lac_choose_tiled tiled;
    lac_cost cost;
    lac_problem problem = tile_problem(target, w, 4096);
    assert_true(lac_choose_shape_make(&problem, shape, &cost));
    ASSERT_OK(lac_choose_tile(w, shape, &tiled));
    double *dense = calloc((size_t)(n * k), sizeof *dense);
    assert_non_null(dense);
    *all = walk_all(shape, &tiled, w, dense);
    lac_choose_tiled_release(&tiled);
    lac_weight_free(w);
    free(dense);
    return (double)all->turns / (double)all->loads;
}

static void inputs_seldom_meet_in_a_bank(void **state)
{
    (void)state;
    lac_device *target;
    lac_choose_shape shape;
    walk all;
    ASSERT_OK(lac_cuda_target_open("sm_90a", &target));
    double half = turns_of(target, "vw128:16:32", 1024, 4096, &shape, &all);
    assert_int_equal(shape.boxes, 1);
    assert_int_equal(all.stages, 2 * 64);
    assert_int_equal(all.empty_slots, 0);
    double quarter = turns_of(target, "vw128:8:32", 1024, 4096, &shape, &all);
    assert_int_equal(shape.boxes, 2);
    assert_int_equal(all.stages, 2 * 32);
    assert_int_equal(all.empty_slots, 0);
    double eighth = turns_of(target, "vw128:4:32", 1024, 4096, &shape, &all);
    double permuted = turns_of(target, "vw128:25%", 1024, 4096, &shape, &all);
    double spent = (double)all.stages * 4 * 32 / (8.0 * 1024); /* slots of the quads' vectors for each kept input */
    print_message("turns: %.3f %.3f %.3f, permuted %.3f in %.3f of the slots\n", half, quarter, eighth, permuted, spent);
    assert_true(half < 1.02 && quarter < 1.2 && eighth < 1.1 && permuted < 1.2 && spent < 1.25);
    lac_device_close(target);
}

/* X feature-major, Y feature-major, short row groups and patterns without any are others' work. */
static void other_problems_are_left(void **state)
{
    (void)state;
    lac_device *target;
    lac_choose_shape shape;
    lac_cost cost;
    static const struct {
        const char *pattern;
        lac_layout x, y;
        bool takes;
    } cases[] = {{"vw128:8:32", LAC_LAYOUT_TOKEN_MAJOR, LAC_LAYOUT_TOKEN_MAJOR, true},
                 {"vw128:8:32", LAC_LAYOUT_FEATURE_MAJOR, LAC_LAYOUT_TOKEN_MAJOR, false},
                 {"vw128:8:32", LAC_LAYOUT_TOKEN_MAJOR, LAC_LAYOUT_FEATURE_MAJOR, false},
                 {"vw64:8:32", LAC_LAYOUT_TOKEN_MAJOR, LAC_LAYOUT_TOKEN_MAJOR, false},
                 {"vw65:8:32", LAC_LAYOUT_TOKEN_MAJOR, LAC_LAYOUT_TOKEN_MAJOR, true},
                 {"2:4", LAC_LAYOUT_TOKEN_MAJOR, LAC_LAYOUT_TOKEN_MAJOR, false},
                 {"128:2:8", LAC_LAYOUT_TOKEN_MAJOR, LAC_LAYOUT_TOKEN_MAJOR, false}};
    ASSERT_OK(lac_cuda_target_open("sm_90a", &target));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lac_weight *w = tile_sample(cases[i].pattern, 256, 256);
        lac_problem problem = tile_problem(target, w, 256);
        problem.options.x_layout = cases[i].x;
        problem.options.y_layout = cases[i].y;
        assert_int_equal(lac_choose_shape_make(&problem, &shape, &cost), cases[i].takes);
        lac_weight_free(w);
    }
    lac_device_close(target);
}

/* What was counted stays with the weight, and is what was counted. */
static void counts_stay_with_the_weight(void **state)
{
    (void)state;
    lac_device *target;
    lac_weight *w = tile_sample("vw128:25%", 1024, 1000);
    lac_choose_shape first, again;
    lac_cost cost;
    ASSERT_OK(lac_cuda_target_open("sm_90a", &target));
    lac_problem problem = tile_problem(target, w, 512);
    assert_int_equal(lac_weight_known(w, LAC_FACT_CHOOSE_ONE), -1);
    assert_true(lac_choose_shape_make(&problem, &first, &cost));
    double counted = lac_choose_count_stages(w, &first);
    assert_true(counted > first.usual_stages - 0.1 && counted < first.usual_stages + 0.1);
    assert_true(lac_weight_known(w, LAC_FACT_CHOOSE_ONE) > lac_weight_known(w, LAC_FACT_CHOOSE_TWO));
    assert_true(lac_choose_shape_make(&problem, &again, &cost));
    assert_true(again.usual_stages == first.usual_stages && again.boxes == first.boxes);
    lac_weight_free(w);
    lac_device_close(target);
}

/* A cluster's blocks run at once, each on a multiprocessor of its own: where there is one, there is no grid to launch. */
static void one_multiprocessor_is_too_few(void **state)
{
    (void)state;
    lac_device *target;
    lac_weight *w = tile_sample("vw128:25%", 256, 128);
    lac_choose_shape shape;
    lac_cost cost;
    ASSERT_OK(lac_cuda_target_open("sm_90a", &target));
    lac_problem problem = tile_problem(target, w, 512);
    lac_cuda_state *gpu = target->state;
    gpu->target.multiprocessors = LAC_CHOOSE_BLOCKS;
    assert_true(lac_choose_shape_make(&problem, &shape, &cost));
    gpu->target.multiprocessors = 1;
    assert_false(lac_choose_shape_make(&problem, &shape, &cost));
    lac_weight_free(w);
    lac_device_close(target);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(stages_hold_the_weight), cmocka_unit_test(inputs_seldom_meet_in_a_bank),
                                       cmocka_unit_test(other_problems_are_left), cmocka_unit_test(counts_stay_with_the_weight),
                                       cmocka_unit_test(one_multiprocessor_is_too_few)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
