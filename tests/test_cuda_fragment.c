/* test_cuda_fragment.c - stages of W for mma.sync and mma.sp, read back on the CPU lane by lane the way fragment.cu multiplies
 * them: every kept weight stands once, at its output and its row of X, and whatever else is there is zero. The places of
 * mma.sp are those of wgmma.sp, for which test_cuda_layout.c has golden vectors from the GPU. */
#include "tile_case.h"

#include "cuda/fragment_tile.h"
#include "cuda/gather_tile.h"
#include "cuda/runtime.h"
#include "cuda/state.h"

enum { CASES = 200, SEED = 20261117 };

static void places_are_those_of_wgmma(void **state)
{
    (void)state;
    lac_gather_shape gather = {.kind = LAC_GATHER_SPARSE, .rows = 64, .tile_outputs = 128};
    lac_fragment_shape shape = {.kind = LAC_FRAGMENT_SPARSE, .rows = 64, .warps_outputs = 2, .warp_outputs = 64};
    for (int row = 0; row < 128; row++)
        for (int group = 0; group < 16; group++) {
            int64_t byte, wanted;
            int shift, wanted_shift;
            lac_fragment_place_at(&shape, row, group, &byte, &shift);
            lac_gather_place_at(&gather, row, group, &wanted, &wanted_shift);
            assert_int_equal(byte, 128 * 64 + wanted);
            assert_int_equal(shift, wanted_shift);
        }
}

typedef struct reader {
    const lac_fragment_shape *shape;
    const lac_fragment_tiled *tiled;
    uint32_t *dense; /* [n][k] bits of what the kernel multiplies with */
    int64_t n, k;
} reader;

static void add(reader *r, int64_t output, int64_t input, uint32_t bits)
{
    if (bits == 0) return;
    if (output < 0 || output >= r->n || input < 0 || input >= r->k)
        fail_msg("a weight at output %lld, input %lld", (long long)output, (long long)input);
    if (r->dense[output * r->k + input])
        fail_msg("two weights at output %lld, input %lld", (long long)output, (long long)input);
    r->dense[output * r->k + input] = bits;
}

/* Fragments [step][16 outputs][lane][word][half] as the head of mma.cuh has them; the third word of a sparse lane holds the
 * kept ones of the groups of four 16 rows on. */
static void read_fragments(reader *r, int64_t tile, const int32_t *index, const uint8_t *fragments, const uint8_t *stage)
{
    const lac_fragment_shape *s = r->shape;
    int outputs = lac_fragment_outputs(s), sparse = s->kind == LAC_FRAGMENT_SPARSE, steps = s->rows / (sparse ? 32 : 16);
    for (int at = 0; at < steps * outputs / 16 * 32 * 8; at++) {
        int half = at % 2, word = at / 2 % 4, lane = at / 8 % 32, band = at / 256 % (outputs / 16), step = at / 16 / outputs;
        int row = band * 16 + lane / 4 + word % 2 * 8, slot = step * 16 + word / 2 * 8 + lane % 4 * 2 + half;
        if (sparse) {
            int group = step * 8 + word / 2 * 4 + lane % 4, shift;
            int64_t byte;
            lac_fragment_place_at(s, row, group, &byte, &shift);
            int nibble = stage[byte] >> shift & 15;
            assert_true((nibble & 3) < nibble >> 2);
            slot = group * 4 + (nibble >> 2 * half & 3);
        }
        add(r, r->tiled->output[tile * outputs + row], index[slot], case_bits(fragments, at * 16, 16));
    }
}

/* What lac_expand of fragment.cu does, in the order of a lane's 16 bytes. */
static void expand(const lac_fragment_shape *s, const uint8_t *stage, uint8_t *fragments)
{
    int outputs = lac_fragment_outputs(s), unit = s->rows / 4, eight_bytes = (s->kept + 1) / 2 * 128 + s->rows;
    memset(fragments, 0, (size_t)(outputs * s->rows) * 2);
    for (int eight = 0; eight < outputs / 8; eight++)
        for (int lane = 0; lane < 32; lane++) {
            const uint8_t *from = stage + eight * eight_bytes;
            uint32_t mask = (uint32_t)case_bits(from + (s->kept + 1) / 2 * 128, lane * unit, unit);
            assert_int_equal(__builtin_popcount(mask), s->kept);
            for (int i = 0; i < s->kept; i++) {
                int input = 31 - __builtin_clz(mask), word = input / 2 % 2 * 2 + eight % 2;
                mask ^= UINT32_C(1) << input;
                int64_t to = (((int64_t)(input / 4) * (outputs / 16) + eight / 2) * 32 + lane) * 16 + word * 4 + input % 2 * 2;
                memcpy(fragments + to, from + i / 2 * 128 + lane * 4 + i % 2 * 2, 2);
            }
        }
}

static void read_stage(reader *r, int64_t tile, int64_t stage)
{
    const lac_fragment_shape *s = r->shape;
    const uint8_t *at = r->tiled->stages + stage * lac_fragment_w_stage(s);
    const int32_t *index = r->tiled->index + (s->shares_index ? stage - r->tiled->range[2 * tile] : stage) * s->rows;
    if (s->kind == LAC_FRAGMENT_EXPAND) {
        uint8_t *fragments = malloc((size_t)(lac_fragment_outputs(s) * s->rows) * 2);
        expand(s, at, fragments);
        read_fragments(r, tile, index, fragments, at);
        free(fragments);
    } else {
        read_fragments(r, tile, index, at, at);
    }
}

static void check_case(lac_device *target, const lac_weight *w, int64_t m, lac_fragment_kind kind, int *reached)
{
    lac_problem problem = tile_problem(target, w, m);
    lac_fragment_shape shape;
    lac_cost cost;
    if (!lac_fragment_shape_make(&problem, kind, &shape, &cost)) return;
    assert_true(lac_fragment_shared(&shape) * (unsigned)shape.blocks <= lac_cuda_target_of(target)->shared_per_block);
    assert_true(lac_fragment_threads_fit(&shape));
    lac_fragment_tiled tiled;
    ASSERT_OK(lac_fragment_tile(w, &shape, &tiled));
    int64_t n = w->n_out, k = w->k_in;
    reader r = {&shape, &tiled, calloc((size_t)(n * k), 4), n, k};
    uint32_t *wanted = case_read(w);
    for (int64_t tile = 0; tile < shape.output_tiles; tile++)
        for (int64_t stage = tiled.range[2 * tile]; stage < tiled.range[2 * tile + 1]; stage++) read_stage(&r, tile, stage);
    tile_expect_bits(r.dense, wanted, n, k, (const char *[]){"dense stages", "sparse stages", "expanded stages"}[kind]);
    reached[kind]++;
    lac_fragment_tiled_release(&tiled);
    free(r.dense);
    free(wanted);
}

static lac_pattern pattern_of(case_rng *rng, int i)
{
    lac_pattern p = case_pattern(rng);
    if (p.unit_n > 1 && i % 2) p.unit_n = (int32_t)(16 + case_below(rng, 300));
    if (i % 5 == 0) p = (lac_pattern){.family = LAC_FAMILY_ELEMENT, .unit_n = 1, .unit_k = 1, .n = 1 + i % 2, .m = 4};
    if (i % 5 == 1)
        p = (lac_pattern){.family = LAC_FAMILY_VNM, .unit_n = 8 << i % 4, .unit_k = 1, .n = 1 + i % 4, .m = 4 + i % 2};
    return p;
}

static void stages_hold_the_weight(void **state)
{
    (void)state;
    static const char *const archs[] = {"sm_90a", "sm_75", "sm_86"};
    case_rng rng = {SEED};
    int reached[3] = {0};
    print_message("seed %d\n", (int)SEED);
    for (int i = 0; i < CASES; i++) {
        lac_device *target;
        ASSERT_OK(lac_cuda_target_open(archs[i % 3], &target));
        lac_pattern p = pattern_of(&rng, i);
        int64_t n = 1 + case_below(&rng, 400), k = 1 + case_below(&rng, 300);
        lac_weight *w = tile_weight(&rng, &p, n, k, i, NULL);
        for (int kind = LAC_FRAGMENT_DENSE; kind <= LAC_FRAGMENT_EXPAND; kind++)
            check_case(target, w, 1 + case_below(&rng, 600), (lac_fragment_kind)kind, reached);
        lac_weight_free(w);
        lac_device_close(target);
    }
    print_message("dense %d, sparse %d, expanded %d\n", reached[0], reached[1], reached[2]);
    for (int i = 0; i < 3; i++) assert_true(reached[i] > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(places_are_those_of_wgmma), cmocka_unit_test(stages_hold_the_weight)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
