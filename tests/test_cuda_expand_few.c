/* test_cuda_expand_few.c - W as expand_few.cu reads it, spread on the CPU as its lanes do, instruction by instruction. Every kept weight stands
 * once, at its output and input, and whatever else is there is zero. */
#include "tile_case.h"

#include "core/memory.h"
#include "cuda/expand_few.h"
#include "cuda/state.h"

enum { CASES = 120, SEED = 20261115, LANES = 32 };

/* ---- expand_few_spread.cuh */

static uint32_t permute(uint32_t low, uint32_t high, uint32_t selector)
{
    uint64_t both = (uint64_t)high << 32 | low;
    uint32_t result = 0;
    for (int i = 0; i < 4; i++) result |= (uint32_t)(both >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
    return result;
}

static uint32_t table_word(uint32_t byte, int pair, bool back)
{
    uint32_t code = byte >> 2 * pair & 3, count = (code & 1) + (code >> 1), first = back ? 0x32 : 0x10;
    uint32_t selector = code == 0 ? 0x4444 : code == 1 ? 0x4400 | first : code == 2 ? first << 8 | 0x44 : 0x3210;
    return selector | (back ? 0x7654 - 0x2222 * count : 0x3210 + 0x2222 * count) << 16;
}

/* The four pairs of a byte out of a queue of words, in the order in which it takes them. */
static void spread_byte(uint32_t out[4], const uint32_t queue[4], uint32_t byte, bool back)
{
    uint32_t q[4] = {queue[0], queue[1], queue[2], queue[3]};
    for (int p = 0; p < 4; p++) {
        uint32_t word = table_word(byte, back ? 3 - p : p, back), move = permute(word, 0, 0x4432);
        out[back ? 3 - p : p] = permute(q[0], 0, word);
        for (int i = 0; i < 3 - p; i++) q[i] = back ? permute(q[i + 1], q[i], move) : permute(q[i], q[i + 1], move);
    }
}

static void move_round(uint32_t to[4], const uint32_t v[4], int words, int count)
{
    bool far = words == 4 && count >= 4;
    uint32_t w[4];
    int left = count - (far ? 4 : 0);
    for (int i = 0; i < 4; i++) to[i] = w[i] = far ? v[i ^ 2] : v[i];
    for (int stage = 1; stage <= (words == 4 ? 2 : words); stage++) {
        uint32_t move = 0x3210 + 0x2222 * (uint32_t)(left < 2 ? left : 2);
        for (int i = 0; i < words; i++) to[i] = permute(to[i], w[(i + stage) % words], move);
        left = left > 2 ? left - 2 : 0;
    }
}

static void spread(uint32_t out[16], const uint32_t v[4], int words, uint32_t mask)
{
    uint32_t round[4], down[4] = {0}, down_round[4] = {0};
    move_round(round, v, words, __builtin_popcount(mask & 0xffff));
    for (int i = 0; i < words; i++) down[i] = v[words - 1 - i], down_round[i] = round[words - 1 - i];
    spread_byte(out, v, mask & 255, false);
    spread_byte(out + 4, down_round, mask >> 8 & 255, true);
    spread_byte(out + 8, round, mask >> 16 & 255, false);
    spread_byte(out + 12, down, mask >> 24, true);
}

/* ---- what a chunk holds */

typedef struct reader {
    const lac_few_shape *shape;
    uint32_t *dense; /* [n][k] bits of what the kernel multiplies with */
    int64_t n, k;
} reader;

static void add(reader *r, int64_t output, int64_t input, uint32_t bits)
{
    if (bits == 0) return;
    if (output >= r->n || input >= r->k) fail_msg("a weight at output %lld, input %lld", (long long)output, (long long)input);
    if (r->dense[output * r->k + input])
        fail_msg("two weights at output %lld, input %lld", (long long)output, (long long)input);
    r->dense[output * r->k + input] = bits;
}

/* Lane 4g + t of a warp has inputs 32 t to 32 t + 31 of rows g and g + 8. */
static void read_chunk(reader *r, const uint8_t *chunk, int64_t first_row, int64_t first_input)
{
    const lac_few_shape *s = r->shape;
    for (int warp = 0; warp < LAC_FEW_WARPS; warp++)
        for (int lane = 0; lane < LANES; lane++) {
            uint32_t word[10];
            for (int i = 0; i < lac_few_lane_words(s); i++)
                word[i] = case_bits(chunk + lac_few_word_at(s, warp, lane, i), 0, 32);
            for (int second = 0; second < 2; second++) {
                uint32_t v[4] = {0}, out[16], mask = word[2 * s->words + second];
                for (int i = 0; i < s->words; i++) v[i] = word[second * s->words + i];
                assert_int_equal(__builtin_popcount(mask), 2 * s->words);
                spread(out, v, s->words, mask);
                for (int i = 0; i < LAC_FEW_SPAN; i++)
                    add(r, first_row + warp * 16 + second * 8 + lane / 4, first_input + lane % 4 * LAC_FEW_SPAN + i,
                        out[i / 2] >> 16 * (i % 2) & 0xffff);
            }
        }
}

static void check_case(lac_device *target, const lac_weight *w, int64_t m, int *reached)
{
    lac_problem problem = tile_problem(target, w, m);
    lac_few_shape s;
    lac_cost cost;
    if (!lac_few_shape_make(&problem, &s, &cost)) return;
    assert_true(s.width >= m && s.stages >= 2 && s.split >= 1 && s.split <= 8);
    assert_true(s.shared_bytes + 1024 <= lac_cuda_target_of(target)->shared_per_block);
    uint8_t *parts = NULL;
    ASSERT_OK(lac_few_tile(w, &s, &parts));
    reader r = {&s, calloc((size_t)(w->n_out * w->k_in), 4), w->n_out, w->k_in};
    uint32_t *wanted = case_read(w);
    for (int64_t tile = 0; tile < s.tiles; tile++)
        for (int64_t chunk = 0; chunk < s.chunks; chunk++)
            read_chunk(&r, parts + (tile * s.chunks + chunk) * lac_few_chunk_bytes(&s), tile * LAC_FEW_ROWS,
                       chunk * LAC_FEW_INPUTS);
    tile_expect_bits(r.dense, wanted, r.n, r.k, "parts");
    ++*reached;
    lac_release(parts);
    free(r.dense);
    free(wanted);
}

static void parts_hold_the_weight(void **state)
{
    (void)state;
    case_rng rng = {SEED};
    int reached = 0;
    lac_device *target;
    print_message("seed %d\n", (int)SEED);
    ASSERT_OK(lac_cuda_target_open("sm_90a", &target));
    for (int i = 0; i < CASES; i++) {
        static const int32_t ms[] = {4, 8, 16, 32};
        lac_pattern p = {.family = LAC_FAMILY_ELEMENT, .unit_n = 1, .unit_k = 1, .m = ms[case_below(&rng, 4)]};
        p.n = (int32_t)(1 + case_below(&rng, p.m / 4));
        int64_t n = 1 + case_below(&rng, 300), k = 1 + case_below(&rng, 400);
        lac_weight *w = tile_weight(&rng, &p, n, k, i, NULL);
        check_case(target, w, 2 + case_below(&rng, 127), &reached);
        lac_weight_free(w);
    }
    lac_device_close(target);
    print_message("%d of %d taken\n", reached, (int)CASES);
    assert_int_equal(reached, CASES);
}

/* Every choice of kept inputs that a byte can have, before and behind any number of others. */
static void any_mask_is_spread(void **state)
{
    (void)state;
    case_rng rng = {SEED};
    for (int words = 1; words <= 4; words++)
        for (int i = 0; i < 40000; i++) {
            uint32_t mask = 0, v[4] = {0}, out[16], wanted[16] = {0};
            int byte = i % 4, place = 0;
            uint32_t whole = (uint32_t)(i / 4 % 256);
            if (__builtin_popcount(whole) <= 2 * words) mask = whole << 8 * byte;
            while (__builtin_popcount(mask) < 2 * words) mask |= 1u << case_below(&rng, 32);
            for (int bit = 0; bit < 32; bit++) {
                if (!(mask >> bit & 1)) continue;
                uint32_t value = (uint32_t)(1 + case_below(&rng, 65535));
                v[place / 2] |= value << 16 * (place % 2);
                wanted[bit / 2] |= value << 16 * (bit % 2);
                place++;
            }
            spread(out, v, words, mask);
            if (memcmp(out, wanted, sizeof out)) fail_msg("mask %08x of %d words is spread wrongly", mask, words);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_hold_the_weight),
        cmocka_unit_test(any_mask_is_spread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
