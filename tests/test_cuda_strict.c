/* test_cuda_strict.c - the records of cuda_f32_strict, read back on the CPU the way strict.cu reads them: every kept weight
 * stands once, in its row and at its input, and whatever else the kernel would multiply is zero. Random patterns, shapes and
 * values, on targets of which no GPU is needed. And that making them survives each allocation that fails. */
#include "tile_case.h"

#include "cuda/runtime.h"
#include "cuda/state.h"
#include "cuda/strict_source.h"
#include "support/allocator.h"

enum { CASES = 500, SEED = 20261116, KINDS = 8 };

/* What one slot of a step multiplies with: adds the weights of rows from `first` on to dense[n][k]. */
static void read_slot(const lac_strict_rows *rows, const float *weights, int count, int64_t first, int64_t input, double *dense)
{
    for (int i = 0; i < count; ++i) {
        if (weights[i] == 0.0f) continue;
        uint32_t output = rows->outputs[first + i];
        assert_true(output < rows->weight->geometry.n && input < rows->weight->k_in);
        double *at = &dense[output * rows->weight->k_in + input];
        assert_true(*at == 0.0);
        *at = (double)weights[i];
    }
}

/* The input of X behind an offset into the stage. */
static int64_t input_at(const lac_strict_shape *s, const uint32_t *columns, uint32_t offset)
{
    const uint32_t row_bytes = (uint32_t)lac_strict_block_m(s) * 4;
    assert_int_equal(offset % row_bytes, 0);
    assert_true(offset / row_bytes < (uint32_t)s->rows);
    return s->packed ? columns[offset / row_bytes] : columns[0] + offset / row_bytes;
}

static void read_step(const lac_strict_shape *s, const lac_strict_rows *rows, const char *record, const uint32_t *columns,
                      int64_t block, double *dense)
{
    const int block_n = lac_strict_block_n(s), list_n = lac_strict_list_n(s), share = s->slots / s->slices;
    const float *weights = (const float *)(const void *)record;
    const uint32_t *offsets = (const uint32_t *)(const void *)(record + (size_t)(s->slots * block_n) * sizeof(float));
    for (int v = 0; v < lac_strict_lists(s); ++v) {
        const int64_t vector = block * lac_strict_lists(s) + v, first = vector * list_n;
        if (vector >= rows->source.vectors) continue;
        if (s->rowwise) {
            for (int slot = 0; slot < s->slots; ++slot)
                read_slot(rows, weights + v * s->slots + slot, 1, first, input_at(s, columns, offsets[v * s->slots + slot]),
                          dense);
            continue;
        }
        for (int slice = 0; slice < s->slices; ++slice) {
            const uint32_t *own = offsets + (v * s->slices + slice) * lac_strict_slice_offsets(s);
            const int taken = s->uneven ? (int)own[share + 5] : share;
            assert_true(taken <= share && taken % 4 == 0);
            for (int i = 0; i < taken; ++i) {
                uint32_t offset = s->every ? (uint32_t)((slice * share + i) * lac_strict_block_m(s)) * 4 : own[i];
                read_slot(rows, weights + (slice * share + i) * block_n + v * list_n, list_n, first,
                          input_at(s, columns, offset), dense);
            }
        }
    }
}

static void check_case(lac_device *target, const lac_weight *w, const float *wanted, int64_t m, bool dense_kernel, int *reached)
{
    lac_problem problem = {.device = target, .weight = w, .m = m};
    problem.options.x_dtype = problem.options.y_dtype = LAC_DTYPE_F32;
    problem.options.x_layout = LAC_LAYOUT_FEATURE_MAJOR;
    lac_strict_facts facts = lac_strict_facts_of(&problem, dense_kernel);
    lac_strict_shape shape;
    lac_cost cost;
    if (!lac_strict_choose(&problem, &facts, &shape,
                           &cost)) { /* V:N:M of single rows with wide groups: no tile suits, the kernel refuses */
        assert_true(w->pattern.family == LAC_FAMILY_VNM && w->pattern.unit_n == 1 && w->pattern.m > 128);
        return;
    }
    facts = lac_strict_facts_for(&facts, &shape);
    lac_strict_rows rows;
    lac_strict_tiled tiled;
    ASSERT_OK(lac_strict_rows_make(w, &facts, lac_strict_list_n(&shape), dense_kernel, &rows));
    ASSERT_OK(lac_strict_tile(&rows.source, &shape, &tiled));
    const int64_t n = w->geometry.n, k = w->k_in, entries = shape.packed ? shape.rows : 1;
    double *dense = calloc((size_t)(n * k + 1), sizeof *dense);
    assert_non_null(dense);
    for (int64_t b = 0; b < tiled.blocks; ++b)
        for (uint32_t step = tiled.first_step[b]; step < tiled.first_step[b + 1]; ++step)
            read_step(&shape, &rows, (const char *)tiled.records + (size_t)step * lac_strict_record_bytes(&shape),
                      tiled.columns + step * entries, b, dense);
    tile_expect(dense, wanted, n, k, "records");
    const bool kinds[KINDS] = {shape.packed,      shape.every,      shape.uneven,    shape.rowwise,
                               facts.joined != 0, shape.slices > 1, shape.split > 1, tiled.blocks > 1};
    for (int i = 0; i < KINDS; ++i) reached[i] += kinds[i];
    free(dense);
    lac_strict_tiled_release(&tiled);
    lac_strict_rows_release(&rows);
}

static void records_hold_the_weight(void **state)
{
    (void)state;
    static const char *const archs[] = {"sm_75", "sm_86", "sm_90a"};
    static const char *const names[KINDS] = {"packed", "every", "uneven", "rowwise", "joined", "slices", "split", "blocks"};
    case_rng rng = {SEED};
    int reached[KINDS] = {0};
    print_message("seed %d\n", (int)SEED);
    lac_device *targets[3];
    for (int i = 0; i < 3; ++i) ASSERT_OK(lac_cuda_target_open(archs[i], &targets[i]));
    for (int i = 0; i < CASES; ++i) {
        lac_pattern p = case_pattern(&rng);
        if (p.unit_n > 1 && i % 2) p.unit_n = (int32_t)(2 + case_below(&rng, 64));
        if (p.family == LAC_FAMILY_SHUFFLED) p.family = LAC_FAMILY_VECTOR;
        int64_t n = 1 + case_below(&rng, 300), k = 1 + case_below(&rng, 400);
        uint8_t *keep = malloc((size_t)(n * k));
        float *dense = malloc((size_t)(n * k) * sizeof *dense);
        assert_true(keep && dense);
        case_keep(&rng, &p, n, k, i % 4 > 0, keep);
        for (int64_t j = 0; j < n * k; ++j) dense[j] = keep[j] ? (float)(1 + case_below(&rng, 100000)) / -1000.0f : 0.0f;
        lac_matrix matrix = {.data = dense, .dtype = LAC_DTYPE_F32, .rows = n, .cols = k};
        lac_mask *mask = NULL;
        lac_weight *w = NULL;
        ASSERT_OK(lac_mask_from_matrix(&matrix, &p, &mask));
        ASSERT_OK(lac_weight_compress(&matrix, mask, NULL, &w));
        check_case(targets[case_below(&rng, 3)], w, dense, 1 + case_below(&rng, i % 2 ? 4096 : 300), i % 8 == 0, reached);
        lac_weight_free(w);
        lac_mask_free(mask);
        free(keep);
        free(dense);
    }
    for (int i = 0; i < 3; ++i) lac_device_close(targets[i]);
    for (int i = 0; i < KINDS; ++i) {
        print_message("%s %d\n", names[i], reached[i]);
        assert_true(reached[i] > 0);
    }
}

/* What prepare does with the weight; the outputs are only there when both calls succeed. */
static lac_status tile_and_release(const lac_weight *w, const lac_strict_facts *facts, const lac_strict_shape *shape,
                                   bool dense)
{
    lac_strict_rows rows;
    lac_strict_tiled tiled;
    lac_status status = lac_strict_rows_make(w, facts, lac_strict_list_n(shape), dense, &rows);
    if (status) return status;
    status = lac_strict_tile(&rows.source, shape, &tiled);
    if (!status) lac_strict_tiled_release(&tiled);
    lac_strict_rows_release(&rows);
    return status;
}

static void every_allocation_fails_in_turn(void **state)
{
    (void)state;
    static const char *const patterns[] = {"2:4", "vw4:2:4", "64:2:8", "8:16"};
    int joined = 0, packed = 0, direct = 0;
    lac_device *target;
    ASSERT_OK(lac_cuda_target_open("sm_90a", &target));
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; ++i) {
        case_rng rng = {SEED};
        test_case c = make_case_of(&rng, SEED, 0, parse(patterns[i]), 512, 512);
        lac_weight *w = NULL;
        ASSERT_OK(lac_weight_compress(&c.dense.view, c.mask, NULL, &w));
        lac_problem problem = {.device = target, .weight = w, .m = 4096};
        problem.options.x_dtype = problem.options.y_dtype = LAC_DTYPE_F32;
        problem.options.x_layout = LAC_LAYOUT_FEATURE_MAJOR;
        const bool dense = i == 3;
        lac_strict_facts facts = lac_strict_facts_of(&problem, dense);
        lac_strict_shape shape;
        assert_true(lac_strict_choose(&problem, &facts, &shape, NULL));
        facts = lac_strict_facts_for(&facts, &shape);
        joined += facts.joined != 0;
        packed += shape.packed;
        direct += !shape.packed;
        const int64_t live = test_allocator_live();
        for (int64_t number = 1;; ++number) {
            test_allocator_fail_at(number);
            lac_status status = tile_and_release(w, &facts, &shape, dense);
            const bool reached = test_allocator_failed();
            test_allocator_fail_at(0);
            assert_int_equal(test_allocator_live(), live);
            assert_int_equal(status, reached ? LAC_STATUS_OUT_OF_MEMORY : LAC_STATUS_OK);
            if (reached) continue;
            assert_true(number > 4); /* several failed */
            break;
        }
        lac_weight_free(w);
        free_case(&c);
    }
    assert_true(joined && packed && direct);
    lac_device_close(target);
}

/* strict.cu brings its sums to Y through the stages, a quarter of a thread's at a time, and does not compile where they are too short for
 * that: with few inputs, of whatever pattern. */
static void short_inputs_have_room_for_sums(void **state)
{
    (void)state;
    static const char *const archs[] = {"sm_75", "sm_80", "sm_86", "sm_90a", "sm_100a", "sm_120"};
    static const char *const patterns[] = {"2:4", "vw4:2:4", "vw8:1:4", "vw16:2:4", "vw32:8:32", "64:2:8", "bw64x64:1:2"};
    static const int64_t inputs[] = {1, 2, 3, 4, 5, 8, 65}, tokens[] = {64, 256, 4096, 16384};
    enum { N = 200, PATTERNS = sizeof patterns / sizeof *patterns, INPUTS = sizeof inputs / sizeof *inputs };
    for (size_t a = 0; a < sizeof archs / sizeof *archs; ++a) {
        lac_device *target;
        ASSERT_OK(lac_cuda_target_open(archs[a], &target));
        for (int i = 0; i < PATTERNS * INPUTS; ++i) {
            lac_pattern pattern;
            lac_weight *w;
            ASSERT_OK(lac_pattern_parse(patterns[i / INPUTS], &pattern));
            ASSERT_OK(lac_weight_sample(&pattern, N, inputs[i % INPUTS], LAC_DTYPE_F32, &w));
            for (size_t j = 0; j < 2 * sizeof tokens / sizeof *tokens; ++j) {
                lac_problem problem = {.device = target, .weight = w, .m = tokens[j / 2]};
                problem.options.x_dtype = problem.options.y_dtype = LAC_DTYPE_F32;
                lac_strict_facts facts = lac_strict_facts_of(&problem, j % 2);
                lac_strict_shape s;
                assert_true(lac_strict_choose(&problem, &facts, &s, NULL));
                int64_t stages = (int64_t)s.stages * lac_strict_stage_bytes(&s), threads = lac_strict_threads(&s);
                assert_true(stages >= s.thread_n * s.thread_m / 16 * threads * 16);
            }
            lac_weight_free(w);
        }
        lac_device_close(target);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(records_hold_the_weight),
                                       cmocka_unit_test(short_inputs_have_room_for_sums),
                                       cmocka_unit_test(every_allocation_fails_in_turn)};
    test_allocator_install();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
