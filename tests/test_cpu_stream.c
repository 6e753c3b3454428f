/* test_cpu_stream.c - the order of use that dataflow "stream" prepares, read back: in every block of columns each row has one
 * place, the slots of all blocks make up the weight and nothing else, a pair shares what its rows have in common, pairs share more
 * than neighbours would, and none of it depends on the number of threads. */
#include "plan_case.h"

#include "core/kernel.h"
#include "cpu/stream_state.h"
#include "format/weight.h"

static lac_plan *stream_plan(const lac_weight *weight, int64_t m, int32_t threads)
{
    lac_device *device = NULL;
    lac_plan *plan = NULL;
    assert_ok(lac_device_open("cpu", &device));
    lac_plan_options options = {.size = sizeof options, .threads = threads, .kernel = "cpu_scalar_f32_stream"};
    assert_ok(lac_plan_create(device, weight, m, &options, &plan));
    lac_device_close(device);
    return plan;
}

/* One weight of a slot goes to its output and its input. */
static void add(double *dense, int64_t n, int64_t k, int64_t row, int64_t column, float value)
{
    if (value == 0.0f) return; /* slots that not all rows fill */
    assert_true(row < n && column < k);
    assert_true(dense[row * k + column] == 0.0);
    dense[row * k + column] = (double)value;
}

/* Whether a strip's slot is shared: in turns with own ones, or before them. */
static bool is_shared(lac_cpu_stream_strip strip, int64_t slot)
{
    return slot < 2 * strip.turns ? slot % 2 == 0 : slot < 2 * strip.turns + strip.shared;
}

/* The slots of all pairs, and how many of them are shared. */
static int64_t read_pairs(const lac_cpu_stream_state *s, int64_t n, int64_t k, double *dense)
{
    int64_t shared = 0;
    for (int64_t b = 0; b < s->blocks; ++b) {
        lac_cpu_stream_place at = {0, 0};
        uint8_t seen[LAC_CPU_STREAM_ITEM_ROWS];
        for (int64_t i = 0; i < s->strips; ++i) {
            int64_t first_row = i / s->item_strips * s->item_strips * 2;
            if (i % s->item_strips == 0) {
                at = s->first[b * s->items + i / s->item_strips];
                memset(seen, 0, sizeof seen);
            }
            lac_cpu_stream_strip strip = s->strip[b * s->strips + i];
            assert_true(strip.turns % 4 == 0 && strip.shared % 4 == 0);
            for (int r = 0; r < 2; ++r) assert_true(strip.sums_of[r] < 2 * s->item_strips && !seen[strip.sums_of[r]]++);
            lac_cpu_stream_place end = at;
            lac_cpu_stream_move_on(strip, &end);
            for (int64_t slot = 0; at.slot < end.slot; ++slot, ++at.slot) {
                bool both = is_shared(strip, slot);
                for (int r = 0; r < 2; ++r) {
                    float value = s->values[at.slot * 2 + r];
                    int64_t column = s->columns[at.column + (both ? 0 : r)];
                    assert_true(column < s->block_columns && (value != 0.0f || !both));
                    add(dense, n, k, first_row + strip.sums_of[r], b * s->block_columns + column, value);
                }
                at.column += both ? 1 : 2;
                shared += both;
            }
            assert_int_equal(at.column, end.column);
        }
    }
    return shared;
}

/* What rows 2i and 2i + 1 would share, by whole fours, block by block. */
static int64_t shared_by_neighbours(const lac_cpu_stream_state *s, int64_t n, int64_t k, const double *dense)
{
    int64_t shared = 0;
    for (int64_t row = 0; row + 1 < n; row += 2) {
        for (int64_t b = 0; b < s->blocks; ++b) {
            int64_t common = 0;
            for (int64_t j = b * s->block_columns; j < k && j < (b + 1) * s->block_columns; ++j)
                common += dense[row * k + j] != 0.0 && dense[(row + 1) * k + j] != 0.0;
            shared += common / 4 * 4;
        }
    }
    return shared;
}

/* Items may have other numbers of rows with other numbers of threads; where they have not, strips are the same. */
static bool same(const lac_cpu_stream_state *a, const lac_cpu_stream_state *b)
{
    if (a->blocks != b->blocks || a->strips != b->strips) return false;
    int64_t rows[2] = {2 * a->item_strips, 2 * b->item_strips};
    for (int64_t i = 0; i < a->blocks * a->strips; ++i) {
        lac_cpu_stream_strip one = a->strip[i], other = b->strip[i];
        if (one.turns != other.turns || one.shared != other.shared || one.own != other.own) return false;
        for (int side = 0; side < 2; ++side) {
            int64_t first = i % a->strips * 2;
            if (first / rows[0] * rows[0] + one.sums_of[side] != first / rows[1] * rows[1] + other.sums_of[side]) return false;
        }
    }
    return true;
}

/* Of a row's slots, the share that pairs have in common, that neighbours would have and that the model expects. */
typedef struct sharing {
    double pairs, neighbours, expected;
} sharing;

static sharing check_weight(test_random *random, const char *text, int64_t m, int64_t n, int64_t k)
{
    lac_pattern pattern = pattern_of(text);
    lac_weight *weight = weight_make(random, &pattern, n, k, LAC_DTYPE_F32, TEST_FILL_GAUSSIAN);
    lac_plan *one = stream_plan(weight, m, 1), *many = stream_plan(weight, m, 3);
    const lac_cpu_stream_state *s = one->state;
    test_matrix want = test_matrix_make(n, k, LAC_DTYPE_F64, LAC_LAYOUT_TOKEN_MAJOR, 0, 0);
    assert_ok(lac_weight_decompress(weight, &want.view));
    double *dense = calloc((size_t)(n * k) + 1, sizeof *dense);
    assert_int_equal(s->rows, 2);
    double slots = (double)one->problem.weight->kept / 2.0;
    sharing found = {.pairs = (double)read_pairs(s, n, k, dense) / slots, .expected = lac_cpu_stream_shared(&one->problem)};
    for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < k; ++j)
            if (dense[i * k + j] != test_matrix_get(&want, i, j))
                fail_msg("%s, m %lld: row %lld, column %lld: %g for %g", text, (long long)m, (long long)i, (long long)j,
                         dense[i * k + j], test_matrix_get(&want, i, j));
    found.neighbours = (double)shared_by_neighbours(s, n, k, dense) / slots;
    if (!same(s, many->state)) fail_msg("%s, m %lld: other pairs with 3 threads", text, (long long)m);
    free(dense);
    test_matrix_free(&want);
    lac_plan_free(one);
    lac_plan_free(many);
    lac_weight_free(weight);
    return found;
}

static void slots_make_up_the_weight(void **state)
{
    (void)state;
    static const char *const patterns[] = {"2:4",   "8:32", "3:7", "vw2:4:8", "16:2:8",
                                           "5:4:9", "25%",  "1:1", "1:200",   "bw1x4:1:3"};
    test_random random = test_random_make("stream pairs", 0);
    for (size_t p = 0; p < sizeof patterns / sizeof *patterns; ++p) {
        static const int64_t sizes[][2] = {{1, 1}, {2, 700}, {33, 640}, {259, 97}, {1031, 130}};
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
            check_weight(&random, patterns[p], test_random_pick(&random, 1, 16, 100, 300), sizes[i][0], sizes[i][1]);
        }
    }
}

/* Blocks of a scalar unit are wide, so that pairs differ less in them than in those of docs/kernels/cpu.md. */
static void pairs_share_more_than_neighbours(void **state)
{
    (void)state;
    static const struct {
        const char *pattern;
        double more; /* times as many shared slots */
    } expected[] = {{"16:32", 1.08}, {"8:32", 1.3}, {"4:32", 1.9}, {"64:2:8", 1.1}};
    test_random random = test_random_make("stream sharing", 0);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; ++i) {
        sharing found = check_weight(&random, expected[i].pattern, 128, 4096, 384);
        if (found.pairs < expected[i].more * found.neighbours || fabs(found.pairs - found.expected) > 0.04)
            fail_msg("%s: %.3f of the slots shared, %.3f by neighbours, %.3f expected", expected[i].pattern, found.pairs,
                     found.neighbours, found.expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_make_up_the_weight),
        cmocka_unit_test(pairs_share_more_than_neighbours),
    };
    return cmocka_run_group_tests_name("cpu stream", tests, NULL, NULL);
}
