/* test_cuda_layout.c - stages of W for the tensor cores of sm_90a, read back on the CPU the way gather.cu and stream.cu have
 * them multiplied: every kept weight stands once, at its output and its row of X, and whatever else is there is zero. The
 * places of wgmma.sp are checked against golden vectors that came from the GPU itself. */
#include "tile_case.h"

#include "cuda/gather_join.h"
#include "cuda/gather_tile.h"
#include "cuda/runtime.h"
#include "cuda/state.h"
#include "wgmma_golden.h"

enum { CASES = 200, SEED = 20261116 };

/* What the encoder writes for the picked rows must be the words that made the GPU pick them. */
static void places_are_those_of_the_gpu(void **state)
{
    (void)state;
    for (int rows = 32; rows <= 64; rows += 32) {
        for (int selector = 0; selector < rows / 32; selector++) {
            lac_gather_shape shape = {.kind = LAC_GATHER_SPARSE, .rows = rows, .tile_outputs = 64};
            uint8_t places[64 * 8] = {0};
            for (int r = 0; r < 64; r++)
                for (int group = 0; group < 8; group++) {
                    int four = wgmma_golden[selector].picked[r] >> 4 * group & 15, nibble = 0, count = 0, shift;
                    int64_t byte;
                    for (int i = 0; i < 4; i++)
                        if (four >> i & 1) nibble |= i << 2 * count++;
                    assert_int_equal(count, 2);
                    lac_gather_place_at(&shape, r, selector * 8 + group, &byte, &shift);
                    places[byte] = (uint8_t)(places[byte] | nibble << shift);
                }
            for (int thread = 0; thread < 128; thread++) {
                if ((thread & 3) / 2 != selector) continue; /* these two of four bring the places */
                int word = rows == 64 ? thread : thread / 4 * 2 + (thread & 1);
                assert_int_equal(case_bits(places + 4 * word, 0, 32), wgmma_golden[selector].words[thread]);
            }
        }
    }
}

/* The swizzles, as the head of wgmma_tile.cuh has them. */
static void values_are_swizzled(void **state)
{
    (void)state;
    for (int rows = 32; rows <= 64; rows += 32)
        for (int kind = LAC_GATHER_DENSE; kind <= LAC_GATHER_SPARSE; kind++) {
            lac_gather_shape shape = {.kind = (lac_gather_kind)kind, .rows = rows, .tile_outputs = 128};
            int bytes = lac_gather_w_row(&shape);
            for (int r = 0; r < 128; r++)
                for (int slot = 0; slot < bytes / 2; slot++) {
                    int chunk = slot / 8, turn = bytes == 128 ? r & 7 : bytes == 64 ? r >> 1 & 3 : r >> 2 & 1;
                    assert_int_equal(lac_gather_value_at(&shape, r, slot), r * bytes + (chunk ^ turn) * 16 + slot % 8 * 2);
                }
        }
}

enum { PAIRS = 3, JOINED, EVERY, SHORT, STREAMED_VNM, FEW, FOURS, MEETING, PACKED, NARROW, REACHED }; /* beside the kinds */

typedef struct reader {
    const lac_gather_shape *shape;
    const lac_gather_tiled *tiled;
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

static void read_stage(reader *r, int64_t tile, int64_t stage)
{
    const lac_gather_shape *s = r->shape;
    const uint8_t *at = r->tiled->stages + stage * lac_gather_w_stage(s);
    const int32_t *index = r->tiled->index + stage * s->rows;
    for (int row = 0; row < s->tile_outputs; row++) {
        int32_t output = r->tiled->output[tile * s->tile_outputs + row];
        const int32_t *own = r->tiled->range + 2 * (s->output_tiles + tile); /* a pair's warpgroups skip the others */
        bool skipped = s->paired && (row < 64 ? stage >= own[0] : stage < own[1]);
        int slots = lac_gather_w_row(s) / 2;
        for (int slot = 0; slot < slots; slot++) {
            int at_row = slot;
            if (lac_gather_is_sparse(s)) {
                int64_t byte;
                int shift;
                lac_gather_place_at(s, row, slot / 2, &byte, &shift);
                int nibble = at[s->tile_outputs * lac_gather_w_row(s) + byte] >> shift & 15;
                assert_true((nibble & 3) < nibble >> 2);
                at_row = slot / 2 * 4 + (nibble >> 2 * (slot % 2) & 3);
            }
            if (skipped) continue;
            add(r, output, index[at_row], case_bits(at + lac_gather_value_at(s, row, slot), 0, 16));
        }
    }
}

/* The same where W is packed: each four of inputs takes out of the word of its eight what its code says (stream.cu). */
static void read_packed_stage(reader *r, int64_t tile, int64_t stage)
{
    const lac_gather_shape *s = r->shape;
    const uint8_t *at = r->tiled->stages + stage * lac_gather_w_stage(s), *places = at + s->tile_outputs * lac_gather_w_row(s),
                  *codes = places + s->tile_outputs * s->rows / 8;
    const int32_t *index = r->tiled->index + stage * s->rows;
    for (int row = 0; row < s->tile_outputs; row++)
        for (int four = 0; four < s->rows / 4; four++) {
            int64_t byte;
            int shift;
            uint32_t word = case_bits(at + lac_gather_word_at(row, four / 2), 0, 32), taken[4];
            taken[0] = 0;
            taken[1] = word;
            taken[2] = four % 2 ? word & 0xffff0000u : word & 0xffff;
            taken[3] = four % 2 ? word >> 16 : word << 16;
            lac_gather_code_at(row, four, &byte, &shift);
            uint32_t values = taken[codes[byte] >> shift & 3];
            lac_gather_place_at(s, row, four, &byte, &shift);
            int nibble = places[byte] >> shift & 15;
            assert_true((nibble & 3) < nibble >> 2);
            for (int i = 0; i < 2; i++)
                add(r, r->tiled->output[tile * s->tile_outputs + row], index[four * 4 + (nibble >> 2 * i & 3)],
                    values >> 16 * i & 0xffff);
        }
}

static void check_shape(const lac_device *target, const lac_weight *w, lac_gather_shape shape)
{
    /* A block's barriers and row numbers, and what the GPU keeps of each block for itself, come to it. */
    unsigned resident = (unsigned)shape.resident, room = lac_cuda_target_of(target)->shared_per_block + 1024;
    unsigned own = shape.kind == LAC_GATHER_STREAM ? 1024 : LAC_GATHER_NUMBERS_BYTES;
    assert_true(resident * (lac_gather_shared(&shape) + own + 1024) <= room);
    lac_gather_tiled tiled;
    ASSERT_OK(lac_gather_tile(w, &shape, &tiled));
    int64_t n = w->n_out, k = w->k_in;
    reader r = {&shape, &tiled, calloc((size_t)(n * k), 4), n, k};
    uint32_t *wanted = case_read(w);
    int64_t real = shape.paired ? (shape.groups + 1) / 2 : shape.groups * shape.tiles_a_group;
    for (int64_t tile = 0; tile < real; tile++)
        for (int64_t stage = tiled.range[2 * tile]; stage < tiled.range[2 * tile + 1]; stage++)
            (shape.packed ? read_packed_stage : read_stage)(&r, tile, stage);
    for (int64_t i = real * shape.tile_outputs; i < shape.output_tiles * shape.tile_outputs; i++)
        assert_int_equal(tiled.output[i], -1);
    tile_expect_bits(r.dense, wanted, n, k, "stages");
    lac_gather_tiled_release(&tiled);
    free(r.dense);
    free(wanted);
}

/* Tiles for few tokens, where 64 of them leave the stages to the warpgroups in turns. */
static void check_few(lac_problem problem, lac_gather_kind kind, int *reached)
{
    const lac_weight *w = problem.weight;
    lac_gather_shape shape = {.kind = kind, .rows = 64, .cluster = 1, .parts = 1, .resident = 1, .few = true};
    shape.height = w->geometry.unit_n;
    shape.groups = w->geometry.row_groups;
    shape.tile_outputs = shape.width = 64;
    problem.m = 1 + problem.m % 128;
    shape.tile_tokens = problem.m <= 64 ? 64 : 128;
    if (w->pattern.family == LAC_FAMILY_ELEMENT || w->geometry.unit_n < 16) return;
    if (!lac_gather_shape_complete(&problem, &shape)) return;
    check_shape(problem.device, w, shape);
    assert_int_equal(lac_gather_in_turns(&shape), problem.m <= 64);
    if (lac_gather_in_turns(&shape)) assert_int_equal(shape.stages % 2, 0); /* a slot is always the same warpgroup's */
    reached[FEW]++;
}

/* What stream.cu alone has: parts that meet, packed weights, 32 tokens of a warpgroup, with 128 outputs or with 64. */
static void check_streams(lac_problem problem, int *reached)
{
    const lac_weight *w = problem.weight;
    for (int i = 0; i < 3; i++) {
        const int what[] = {MEETING, PACKED, NARROW};
        lac_gather_shape shape = {
            .kind = LAC_GATHER_STREAM, .rows = 64, .cluster = 1, .parts = 2, .meets = true, .resident = 1};
        shape.height = w->geometry.n;
        shape.groups = 1;
        shape.packed = what[i] == PACKED;
        shape.tile_outputs = 128;
        shape.tile_tokens = shape.width = problem.m <= 32 ? 32 : problem.m <= 64 ? 64 : 128;
        if (what[i] == NARROW) {
            problem.m = 1 + problem.m % 64;
            shape.tile_outputs = shape.tile_tokens = 64;
            shape.width = 32;
        }
        if (!lac_gather_shape_complete(&problem, &shape)) {
            assert_int_equal(what[i], PACKED);
            continue;
        }
        check_shape(problem.device, w, shape);
        reached[what[i]]++;
    }
}

/* The shape that the model chooses, the same with stages of 32 rows, in pairs, and row groups joined, which every weight may be. */
static void check_case(lac_device *target, const lac_weight *w, int64_t m, lac_gather_kind kind, int *reached)
{
    lac_problem problem = tile_problem(target, w, m);
    lac_gather_shape shape;
    lac_cost cost;
    if (!lac_gather_shape_make(&problem, kind, &shape, &cost)) return;
    check_shape(target, w, shape);
    reached[kind]++;
    reached[STREAMED_VNM] += kind == LAC_GATHER_STREAM && w->pattern.family == LAC_FAMILY_VNM;
    if (kind == (w->pattern.family == LAC_FAMILY_VNM && w->pattern.n <= 2)) check_few(problem, kind, reached);
    if (kind == LAC_GATHER_STREAM) check_streams(problem, reached);
    shape.few = shape.packed = shape.meets = false;
    if (shape.tile_tokens == 32) shape.tile_tokens = shape.width = 64;
    shape.cluster = shape.parts = shape.resident = 1;
    shape.rows = 96 - shape.rows; /* the other length of a stage */
    if (lac_gather_shape_complete(&problem, &shape)) {
        check_shape(target, w, shape);
        reached[SHORT]++;
    }
    shape.rows = 64;
    shape.tile_outputs = 128;
    shape.tile_tokens = shape.width = 256;
    if (shape.joined) { /* each row group by itself, where it can be */
        shape.joined = shape.every = false;
        shape.height = w->geometry.unit_n;
        shape.groups = w->geometry.row_groups;
    }
    shape.paired = w->pattern.family != LAC_FAMILY_ELEMENT && !(w->pattern.family == LAC_FAMILY_VNM && w->pattern.n <= 2);
    if (shape.paired && lac_gather_shape_complete(&problem, &shape)) {
        check_shape(target, w, shape);
        reached[PAIRS]++;
    }
    shape.paired = false;
    shape.joined = true;
    shape.height = w->geometry.n;
    shape.groups = 1;
    if (kind == LAC_GATHER_SPARSE && shape.tile_outputs / w->geometry.unit_n < LAC_GATHER_MOST_JOINED &&
        w->pattern.family != LAC_FAMILY_VNM) {
        for (int holes = 0; holes < 2; holes++) { /* slots without a row read one all the same, or none */
            shape.tile_outputs = holes ? 64 : 128;
            shape.tile_tokens = holes ? 512 : 256;
            assert_int_equal(lac_gather_has_holes(&shape), holes);
            if (!lac_gather_shape_complete(&problem, &shape)) continue;
            check_shape(target, w, shape);
            reached[FOURS]++;
        }
    }
    for (int every = 0; every < 2 && kind == LAC_GATHER_DENSE; every++) {
        shape.every = every;
        if (!lac_gather_shape_complete(&problem, &shape)) continue;
        check_shape(target, w, shape);
        reached[every ? EVERY : JOINED]++;
    }
}

static void stages_hold_the_weight(void **state)
{
    (void)state;
    case_rng rng = {SEED};
    int reached[REACHED] = {0};
    lac_device *target;
    print_message("seed %d\n", (int)SEED);
    ASSERT_OK(lac_cuda_target_open("sm_90a", &target));
    for (int i = 0; i < CASES; i++) {
        lac_pattern p = case_pattern(&rng);
        if (p.unit_n > 1 && i % 3) p.unit_n = (int32_t)(16 + case_below(&rng, 300));
        if (i % 5 == 0) p = (lac_pattern){.family = LAC_FAMILY_ELEMENT, .unit_n = 1, .unit_k = 1, .n = 1 + i % 2, .m = 4};
        if (i % 10 == 1)
            p = (lac_pattern){.family = LAC_FAMILY_VNM, .unit_n = 16 << i % 4, .unit_k = 1, .n = 1 + i % 4, .m = 5};
        if (i % 10 == 6)
            p = (lac_pattern){.family = LAC_FAMILY_VNM, .unit_n = 8 << i % 4, .unit_k = 1, .n = 1 + i % 4 / 2, .m = 4};
        if (i % 10 == 3) p = (lac_pattern){.family = LAC_FAMILY_VNM, .unit_n = 64, .unit_k = 1, .n = 1 + i / 10 % 2, .m = 8};
        if (i % 10 == 7) p = (lac_pattern){.family = LAC_FAMILY_ELEMENT, .unit_n = 1, .unit_k = 1, .n = 1 + i / 10 % 2, .m = 8};
        int64_t n = 1 + case_below(&rng, 400), k = 1 + case_below(&rng, 300);
        lac_weight *w = tile_weight(&rng, &p, n, k, i, NULL);
        for (int kind = LAC_GATHER_DENSE; kind <= LAC_GATHER_STREAM; kind++)
            check_case(target, w, 1 + case_below(&rng, 600), (lac_gather_kind)kind, reached);
        lac_weight_free(w);
    }
    lac_device_close(target);
    print_message("gathered dense %d (%d in pairs), gathered sparse %d, streamed %d (%d V:N:M), joined %d and %d of all rows, "
                  "stages of the other length %d, few tokens %d, in fours %d, meeting %d, packed %d, narrow %d\n",
                  reached[0], reached[PAIRS], reached[1], reached[2], reached[STREAMED_VNM], reached[JOINED], reached[EVERY],
                  reached[SHORT], reached[FEW], reached[FOURS], reached[MEETING], reached[PACKED], reached[NARROW]);
    for (int i = 0; i < REACHED; i++) assert_true(reached[i] >= 20);
}

/* The copy engine takes rows of X as they lie: a stream must not use it for columns in another order. */
static void another_order_is_gathered(void **state)
{
    enum { SIZE = 64 };
    float dense[SIZE * SIZE];
    lac_device *target;
    lac_pattern pattern;
    (void)state;
    /* The first half of the columns is large: in order, a group of four has four or none of them. */
    for (int i = 0; i < SIZE * SIZE; i++) dense[i] = i % SIZE < SIZE / 2 ? 100.0f + (float)(i % 7) : 1.0f;
    lac_matrix matrix = {.data = dense, .dtype = LAC_DTYPE_F32, .rows = SIZE, .cols = SIZE};
    ASSERT_OK(lac_pattern_parse("2:4", &pattern));
    ASSERT_OK(lac_cuda_target_open("sm_90a", &target));
    for (int permuted = 0; permuted < 2; permuted++) {
        lac_prune_options prune = {.size = sizeof prune, .permute = permuted ? LAC_PERMUTE_COLUMNS : 0};
        lac_compress_options compress = {.size = sizeof compress, .dtype = LAC_DTYPE_F16};
        lac_mask *mask = NULL;
        lac_weight *w = NULL;
        ASSERT_OK(lac_prune(&matrix, &pattern, &prune, &mask));
        ASSERT_OK(lac_weight_compress(&matrix, mask, &compress, &w));
        assert_int_equal(w->part[LAC_PART_COL_PERM].data != NULL, permuted);
        lac_problem problem = {.device = target, .weight = w, .m = 256};
        problem.options.x_dtype = problem.options.y_dtype = LAC_DTYPE_F16;
        lac_gather_shape shape;
        lac_cost cost;
        assert_true(lac_gather_shape_make(&problem, LAC_GATHER_STREAM, &shape, &cost));
        assert_int_equal(lac_gather_by_engine(&problem, &shape), !permuted);
        if (permuted) assert_int_equal(shape.cluster, 1);
        lac_weight_free(w);
        lac_mask_free(mask);
    }
    lac_device_close(target);
}

/* Slots without a row read one of their tile's all the same: different ones, lest all tiles wait for one. */
static void padding_is_spread(void **state)
{
    enum { N = 128, K = 280, SELECTED = 70 };
    static float dense[N * K];
    lac_device *target;
    lac_pattern pattern;
    lac_mask *mask = NULL;
    lac_weight *w = NULL;
    (void)state;
    case_rng rng = {SEED};
    for (int i = 0; i < N * K; i++) dense[i] = 1.0f + (float)case_below(&rng, 200);
    lac_matrix matrix = {.data = dense, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K};
    ASSERT_OK(lac_pattern_parse("vw64:25%", &pattern));
    ASSERT_OK(lac_cuda_target_open("sm_90a", &target));
    ASSERT_OK(lac_prune(&matrix, &pattern, &(lac_prune_options){.size = sizeof(lac_prune_options)}, &mask));
    ASSERT_OK(lac_weight_compress(&matrix, mask,
                                  &(lac_compress_options){.size = sizeof(lac_compress_options), .dtype = LAC_DTYPE_F16}, &w));
    lac_problem problem = {.device = target, .weight = w, .m = 256};
    problem.options.x_dtype = problem.options.y_dtype = LAC_DTYPE_F16;
    lac_gather_shape shape = {.kind = LAC_GATHER_DENSE,
                              .rows = 64,
                              .tile_outputs = 64,
                              .tile_tokens = 256,
                              .width = 128,
                              .cluster = 1,
                              .parts = 1,
                              .resident = 1,
                              .height = 64,
                              .groups = N / 64};
    lac_gather_tiled tiled;
    assert_true(lac_gather_shape_complete(&problem, &shape));
    ASSERT_OK(lac_gather_tile(w, &shape, &tiled));
    for (int64_t tile = 0; tile < shape.output_tiles; tile++) {
        int times[K] = {0}, rows = 0;
        int64_t begin = tiled.range[2 * tile] * (int64_t)shape.rows, end = tiled.range[2 * tile + 1] * (int64_t)shape.rows;
        assert_int_equal(end - begin, 128);
        for (int64_t i = begin; i < end; i++) {
            assert_in_range(tiled.index[i], 0, K - 1);
            rows += times[tiled.index[i]]++ == 0;
            assert_true(times[tiled.index[i]] <= 2);
        }
        assert_int_equal(rows, SELECTED);
    }
    lac_gather_tiled_release(&tiled);
    lac_weight_free(w);
    lac_mask_free(mask);
    lac_device_close(target);
}

/* Row groups that choose n of every m columns, each by itself. No row group has three columns of a four, every column that is read stands
 * once, and the fours are about as few as there can be. */
static void columns_come_in_fours(void **state)
{
    enum { K = 1024 };
    static const struct {
        int groups, n, m;
        double most; /* of the least number of places */
    } cases[] = {{2, 16, 32, 1.0},  {2, 8, 32, 1.0},   {2, 3, 7, 1.02},    {4, 16, 32, 1.05},
                 {4, 8, 32, 1.05},  {16, 1, 16, 1.05}, {64, 1, 32, 1.05},  {16, 16, 32, 1.55},
                 {32, 16, 32, 1.9}, {32, 12, 32, 1.4}, {64, 16, 32, 2.01}, {64, 8, 32, 1.05}};
    static uint64_t readers[K];
    static int32_t columns[4 * K];
    case_rng rng = {SEED};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int groups = cases[i].groups, n = cases[i].n, m = cases[i].m, kept = 0, read = 0, reads[64] = {0};
        memset(readers, 0, sizeof readers);
        for (int g = 0; g < groups; g++)
            for (int begin = 0; begin + m <= K; begin += m)
                for (int left = n, c = 0; c < m; c++)
                    if ((int)case_below(&rng, m - c) < left) readers[begin + c] |= UINT64_C(1) << g, left--, reads[g]++;
        for (int c = 0; c < K; c++) read += readers[c] != 0;
        for (int g = 0; g < groups; g++) kept = reads[g] > kept ? reads[g] : kept;
        int64_t count = lac_gather_join(readers, K, columns);
        assert_int_equal(count % 4, 0);
        int times[K] = {0}, placed = 0;
        for (int64_t at = 0; at < count; at += 4)
            for (int g = 0; g < groups; g++) {
                int own = 0;
                for (int j = 0; j < 4; j++) own += columns[at + j] >= 0 && readers[columns[at + j]] >> g & 1;
                assert_true(own <= 2);
            }
        for (int64_t at = 0; at < count; at++) {
            if (columns[at] < 0) continue;
            assert_in_range(columns[at], 0, K - 1);
            assert_int_equal(times[columns[at]]++, 0);
            assert_true(readers[columns[at]] != 0);
            placed++;
        }
        assert_int_equal(placed, read);
        double least = 2.0 * kept > read ? 2.0 * kept : read;
        print_message("%d row groups of %d:%d: %d places where %.0f are the least\n", groups, n, m, (int)count, least);
        assert_true((double)count <= cases[i].most * least + 8.0);
        /* What the model expects, which knows the numbers alone: too little, and a plan would be slower than dense. */
        double expected = lac_gather_joined_places(groups, (double)n / m * K, K, false);
        if ((double)count > 1.1 * expected + 8.0 || (double)count < 0.85 * expected - 8.0)
            fail_msg("%.0f places were expected, there are %d", expected, (int)count);
    }
}

/* The engine reads lines that end anywhere, and writes whole 16 bytes: Y whose lines end within them leaves otherwise. */
static void lines_that_end_within_16_bytes_are_not_stored(void **state)
{
    (void)state;
    static _Alignas(16) uint16_t data[8];
    for (int64_t columns = 1; columns <= 64; ++columns) {
        lac_cuda_boxes boxes = {.data = data, .columns = columns, .rows = 3, .ld = 64};
        assert_true(lac_cuda_boxes_suit(&boxes));
        assert_int_equal(lac_cuda_boxes_suit_stores(&boxes), columns % 8 == 0);
        boxes.ld = 65;
        assert_false(lac_cuda_boxes_suit_stores(&boxes));
    }
    lac_cuda_boxes odd = {.data = data + 1, .columns = 64, .rows = 3, .ld = 64};
    assert_false(lac_cuda_boxes_suit_stores(&odd));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(places_are_those_of_the_gpu),
                                       cmocka_unit_test(values_are_swizzled),
                                       cmocka_unit_test(stages_hold_the_weight),
                                       cmocka_unit_test(another_order_is_gathered),
                                       cmocka_unit_test(padding_is_spread),
                                       cmocka_unit_test(columns_come_in_fours),
                                       cmocka_unit_test(lines_that_end_within_16_bytes_are_not_stored)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
