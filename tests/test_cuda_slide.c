/* test_cuda_slide.c - the streams of cuda_f16_window, walked on the CPU the way a warp of slide.cu walks them: every kept weight
 * stands once, at its output and its input, whatever else would be multiplied is zero, no row is read before its chunk was
 * waited for or after it was given back, and nothing is waited for that the ring has no room for. Random patterns and shapes,
 * on a target of which no GPU is needed. */
#include "tile_case.h"

#include "core/dtype.h"
#include "cuda/runtime.h"
#include "cuda/slide_tile.h"
#include "cuda/state.h"

enum { CASES = 500, SEED = 20261117 };

/* The 16 bits that lane `lane` has in word `word` of a step, low or high half, as lac_step_load places them. */
static uint16_t half_of(const lac_slide_shape *s, const uint8_t *step, int lane, int word, int high)
{
    int words = s->width / 4, at;
    if (word / 4 * 4 + 4 <= words)
        at = lane * 16 + word / 4 * 512 + word % 4 * 4;
    else
        at = (words - 2) * 128 + lane * 8 + word % 4 * 4;
    uint16_t bits;
    memcpy(&bits, step + at + high * 2, sizeof bits);
    return bits;
}

typedef struct walk {
    int64_t ready, freed, held; /* chunks; the last one: freed when a batch's first rows are loaded */
    uint32_t control;           /* of the batch                                                     */
    int64_t reads, wavefronts;
} walk;

/* Reads step `step`, number `number` of its stream: adds its weights to dense[n][k_in]. */
static void walk_step(const lac_slide_shape *s, const lac_slide_tiled *t, int64_t step, int64_t number, int64_t vector,
                      int64_t origin, walk *at, const lac_weight *w, double *dense)
{
    const uint32_t *entry = t->index + step * LAC_SLIDE_SLOTS;
    bool begins = number % s->batch == 0, ends = number % s->batch == s->batch - 1;
    if (begins) {
        at->control = entry[0] >> 18;
        at->ready += at->control & 127;
        assert_true(at->ready <= at->held + s->ring);
    }
    for (int half = 0; half < 2; half++) {
        int residues[8] = {0}, most = 0;
        for (int i = 0; i < 8; i++) {
            uint32_t place = entry[half * 8 + i];
            if (begins) assert_int_equal(place >> 18, at->control);
            int64_t bytes = place & 0x3ffff, slot = bytes / lac_slide_chunk_bytes(s);
            int64_t row = bytes % lac_slide_chunk_bytes(s) / 128, chunk = at->freed / s->ring * s->ring + slot;
            if (chunk < at->freed) chunk += s->ring;
            assert_int_equal(bytes % 128, row % 8 * 16);
            assert_true(row < LAC_SLIDE_CHUNK && chunk >= at->freed && chunk < at->ready);
            if (++residues[row % 8] > most) most = residues[row % 8];
            int64_t input = (origin + chunk) * LAC_SLIDE_CHUNK + row;
            for (int r = 0; r < s->width; r++) {
                uint16_t bits =
                    half_of(s, t->weight + step * lac_slide_step_bytes(s), r % 8 * 4 + i / 2, r / 8 * 2 + half, i & 1);
                double value = w->dtype == LAC_DTYPE_BF16 ? lac_bf16_to_f32(bits) : lac_f16_to_f32(bits);
                if (value == 0.0) continue;
                int64_t output = t->output[vector * s->width + r];
                assert_true(output >= 0 && output < w->n_out && input < w->k_in);
                assert_true(dense[output * w->k_in + input] == 0.0);
                dense[output * w->k_in + input] = value;
            }
        }
        at->reads++;
        at->wavefronts += most;
    }
    if (!ends) return;
    at->held = at->freed;
    at->freed += at->control >> 7;
    assert_true(at->freed <= at->ready);
}

/* Walks all streams. */
static walk walk_all(const lac_slide_shape *shape, const lac_slide_tiled *tiled, const lac_weight *w, double *dense)
{
    walk all = {0};
    for (int64_t stream = 0; stream < tiled->streams; stream++) {
        int64_t origin = lac_slide_first_chunk(shape, (int)(stream % shape->parts));
        walk at = {0};
        assert_true((tiled->first[stream + 1] - tiled->first[stream]) % shape->batch == 0);
        for (int64_t step = tiled->first[stream]; step < tiled->first[stream + 1]; step++)
            walk_step(shape, tiled, step, step - tiled->first[stream], stream / shape->parts, origin, &at, w, dense);
        assert_true(at.ready <= lac_slide_first_chunk(shape, (int)(stream % shape->parts) + 1) - origin);
        all.reads += at.reads;
        all.wavefronts += at.wavefronts;
    }
    return all;
}

static void check_case(lac_device *target, const lac_weight *w, const float *wanted, int64_t m, int *reached)
{
    lac_problem problem = tile_problem(target, w, m);
    lac_slide_shape shape;
    lac_cost cost;
    if (!lac_slide_shape_make(&problem, &shape, &cost)) return;
    assert_true(cost.seconds > 0.0 && shape.parts >= 1 && shape.horizon < shape.ring);
    assert_true(lac_slide_shared(&shape) <= lac_cuda_target_of(target)->shared_per_block);
    lac_slide_tiled tiled;
    ASSERT_OK(lac_slide_tile(w, &shape, &tiled));
    assert_true(tiled.step_count <= shape.most_steps);
    double *dense = calloc((size_t)(w->n_out * w->k_in + 1), sizeof *dense);
    assert_non_null(dense);
    walk_all(&shape, &tiled, w, dense);
    tile_expect(dense, wanted, w->n_out, w->k_in, "steps");
    reached[0] += shape.pieces > 1;
    reached[1] += shape.parts > 1;
    reached[2] += shape.width < 32;
    reached[3] += w->pattern.family == LAC_FAMILY_VNM;
    reached[4] += shape.chunks > shape.ring;
    reached[5] += w->geometry.is_free;
    lac_slide_tiled_release(&tiled);
    free(dense);
}

static void streams_hold_the_weight(void **state)
{
    (void)state;
    case_rng rng = {SEED};
    int reached[6] = {0};
    print_message("seed %d\n", (int)SEED);
    lac_device *target;
    ASSERT_OK(lac_cuda_target_open("sm_90a", &target));
    for (int i = 0; i < CASES; i++) {
        lac_pattern p = case_pattern(&rng);
        if (p.unit_n > 1) p.unit_n = (int32_t)(8 + case_below(&rng, i % 3 ? 32 : 100));
        if (p.family == LAC_FAMILY_SHUFFLED) p.family = LAC_FAMILY_VECTOR;
        bool is_long = i % 20 == 0; /* a ring does not hold it */
        int64_t n = 1 + case_below(&rng, is_long ? 20 : 200), k = 1 + case_below(&rng, is_long ? 6000 : 300);
        uint8_t *keep = malloc((size_t)(n * k));
        float *dense;
        assert_non_null(keep);
        case_keep(&rng, &p, n, k, i % 4 > 0, keep);
        for (int64_t j = 0; j < n * k && is_long; j++)
            if (j % k > k / 8 && j % k < k - k / 8) keep[j] = 0; /* and a gap that is longer than the ring */
        lac_weight *w = case_weight(&rng, &p, n, k, i, keep, &dense);
        check_case(target, w, dense, 1 + case_below(&rng, 600), reached);
        lac_weight_free(w);
        free(keep);
        free(dense);
    }
    lac_device_close(target);
    print_message("pieces %d, parts %d, narrow %d, V:N:M %d, longer than the ring %d, free %d\n", reached[0], reached[1],
                  reached[2], reached[3], reached[4], reached[5]);
    for (int i = 0; i < 6; i++) assert_true(reached[i] > 0);
}

/* Of a weight n x k with its units drawn at random: in how many turns eight rows are read. */
static double turns_of(lac_device *target, const char *text, int64_t n, int64_t k, lac_slide_shape *shape)
{
    lac_weight *w = tile_sample(text, n, k);
    lac_slide_tiled tiled;
    lac_cost cost;
    lac_problem problem = tile_problem(target, w, 4096);
    assert_true(lac_slide_shape_make(&problem, shape, &cost));
    ASSERT_OK(lac_slide_tile(w, shape, &tiled));
    double *dense = calloc((size_t)(n * k), sizeof *dense);
    assert_non_null(dense);
    walk all = walk_all(shape, &tiled, w, dense);
    lac_slide_tiled_release(&tiled);
    lac_weight_free(w);
    free(dense);
    return (double)all.wavefronts / (double)all.reads;
}

static void rows_seldom_meet_in_a_bank(void **state)
{
    (void)state;
    lac_device *target;
    lac_slide_shape shape;
    ASSERT_OK(lac_cuda_target_open("sm_90a", &target));
    double half = turns_of(target, "vw32:16:32", 512, 4096, &shape);
    double quarter = turns_of(target, "vw32:8:32", 512, 4096, &shape);
    double eighth = turns_of(target, "vw32:4:32", 512, 4096, &shape);
    print_message("turns: %.3f %.3f %.3f\n", half, quarter, eighth);
    assert_true(half < 1.12 && quarter < 1.25 && eighth < 1.5);
    turns_of(target, "vw64:8:32", 4096, 256, &shape);
    assert_int_equal(shape.width, 32);
    turns_of(target, "vw48:8:32", 4096, 256, &shape);
    assert_true(shape.width <= 24);
    lac_device_close(target);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(streams_hold_the_weight), cmocka_unit_test(rows_seldom_meet_in_a_bank)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
