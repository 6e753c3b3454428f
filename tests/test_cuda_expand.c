/* test_cuda_expand.c - pieces of W for expand.cu, read back on the CPU as the 128 threads that spread them do. Every kept weight
 * stands once, at its output and input, and whatever else is there is zero. */
#include "tile_case.h"

#include "cuda/expand_tile.h"
#include "cuda/kernels/expand_arguments.h"
#include "cuda/runtime.h"
#include "cuda/state.h"

enum { CASES = 150, SEED = 20261117, THREADS = 128 };

typedef struct reader {
    const lac_expand_shape *shape;
    uint32_t *dense; /* [n][k] bits of what the kernel multiplies with */
    int64_t n, k;
} reader;

/* Words of a thread as lac_words_load of expand_spread.cuh has them. */
static void load(const uint8_t *piece, int count, int thread, uint32_t *word)
{
    int i = 0;
    for (; i + 4 <= count; i += 4)
        for (int j = 0; j < 4; j++) word[i + j] = case_bits(piece + i * 512 + thread * 16 + j * 4, 0, 32);
    if (count & 2) {
        for (int j = 0; j < 2; j++) word[i + j] = case_bits(piece + count / 4 * 2048 + thread * 8 + j * 4, 0, 32);
    }
    if (count & 1) word[count - 1] = case_bits(piece + count / 2 * 1024 + thread * 4, 0, 32);
}

static void add(reader *r, int64_t output, int64_t input, uint32_t bits)
{
    if (bits == 0) return;
    if (output < 0 || output >= r->n || input >= r->k)
        fail_msg("a weight at output %lld, input %lld", (long long)output, (long long)input);
    if (r->dense[output * r->k + input])
        fail_msg("two weights at output %lld, input %lld", (long long)output, (long long)input);
    r->dense[output * r->k + input] = bits;
}

/* ---- lac_spread_32 of expand_spread.cuh, instruction by instruction */

static uint32_t permute(uint32_t low, uint32_t high, uint32_t selector)
{
    uint64_t both = (uint64_t)high << 32 | low;
    uint32_t result = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t nibble = selector >> 4 * i & 15, byte = (uint32_t)(both >> 8 * (nibble & 7)) & 255;
        if (nibble & 8) byte = byte & 128 ? 255 : 0;
        result |= byte << 8 * i;
    }
    return result;
}

static uint32_t dot(uint32_t a, uint32_t b, uint32_t c)
{
    for (int i = 0; i < 4; i++) c += (uint32_t)((int8_t)(a >> 8 * i) * (int8_t)(b >> 8 * i));
    return c;
}

static uint32_t two_values(const uint32_t *word, int values, int place)
{
    if (place < -1) return 0;
    if (place == -1) return word[0] << 16;
    uint32_t low = place / 2 < values ? word[place / 2] : 0, high = place / 2 + 1 < values ? word[place / 2 + 1] : 0;
    return place & 1 ? permute(low, high, 0x5432) : low;
}

/* Half a run: `pairs` pairs from `pair` on, rising from the front (step 1) or falling from the back (step -1). */
static void spread_half(const lac_expand_shape *s, const uint32_t *word, int place, int pair, int step, uint32_t out[16])
{
    int pairs = s->run / 4, half = s->per < s->run / 2 ? s->per : s->run / 2, length = (half + 1) / 2;
    uint32_t queue[9] = {0}, kept = word[s->words - 1];
    for (int i = 0; i < length; i++) queue[i] = two_values(word, s->words - 1, place + 2 * i * step);
    for (int left = pairs; left > 0; left--, pair += step) {
        uint32_t mask = permute(kept << (pair >> 1), 0, pair & 1 ? 0xbbaa : 0x9988), bits = dot(mask, 0x00f000f0, 0);
        out[pair] = permute(queue[0], 0, step > 0 ? (mask & 0x2200) | 0x1010 : dot(mask, 0x00220000, 0x3232)) & mask;
        for (int i = 0; i < length && i < left - 1; i++) {
            uint64_t next = i + 1 < length ? queue[i + 1] : 0;
            queue[i] = step > 0 ? (uint32_t)((next << 32 | queue[i]) >> bits)
                                : (uint32_t)(((uint64_t)queue[i] << 32 | next) << bits >> 32);
        }
    }
}

/* The same without LAC_BOTH_ENDS, as its result is defined. */
static void spread_in_order(const lac_expand_shape *s, const uint32_t *word, uint32_t out[16])
{
    uint32_t kept = word[s->words - 1];
    int next = 0;
    for (int i = 0; i < 32; i++) {
        int pair = i / 2, bit = 8 * (2 * (pair & 1) + i % 2) + 7 - pair / 2;
        if (i % s->run == 0) next = i / s->run * s->per;
        if (i % 2 == 0) out[pair] = 0;
        if (!(kept >> bit & 1)) continue;
        assert_true(next < (i / s->run + 1) * s->per);
        out[pair] |= (word[next / 2] >> 16 * (next & 1) & 0xffff) << 16 * (i % 2);
        next++;
    }
}

static void spread(const lac_expand_shape *s, const uint32_t *word, uint32_t out[16])
{
    if (!s->team) {
        spread_in_order(s, word, out);
        return;
    }
    for (int run = 0; run < 32 / s->run; run++) {
        spread_half(s, word, run * s->per, run * s->run / 2, 1, out);
        spread_half(s, word, (run + 1) * s->per - 2, (run + 1) * s->run / 2 - 1, -1, out);
    }
}

/* Thread t of 128 stores 32 inputs of row t % 64. */
static void read_piece(reader *r, const uint8_t *piece, const int32_t *output, int64_t input)
{
    uint32_t word[16], out[16];
    for (int thread = 0; thread < THREADS; thread++) {
        load(piece, r->shape->words, thread, word);
        spread(r->shape, word, out);
        for (int i = 0; i < 32; i++)
            add(r, output[thread % 64], input + thread / 64 * 32 + i, out[i / 2] >> 16 * (i % 2) & 0xffff);
    }
}

static void check_case(lac_device *target, const lac_weight *w, int64_t m, bool ring, int *reached)
{
    lac_problem problem = tile_problem(target, w, m);
    lac_expand_shape s;
    lac_cost cost;
    if (!lac_expand_shape_make(&problem, ring, &s, &cost)) return;
    if (ring) { /* a team's clusters run at once, and no token is left out or multiplied by two teams */
        assert_true(s.team > 0 && s.teams > 0 && s.team * s.teams * s.cluster <= lac_cuda_target_of(target)->multiprocessors);
        assert_true(s.token_tiles % s.team == 0 && s.token_tiles * s.tile_tokens >= m && s.output_tiles % s.cluster == 0);
    }
    assert_true(lac_expand_shared(&s) + 1024 <= lac_cuda_target_of(target)->shared_per_block);
    lac_expand_tiled tiled;
    ASSERT_OK(lac_expand_tile(w, &s, &tiled));
    int64_t n = w->n_out, k = w->k_in, pieces = lac_expand_pieces(&s);
    reader r = {&s, calloc((size_t)(n * k), 4), n, k};
    uint32_t *wanted = case_read(w);
    for (int64_t tile = 0; tile < s.output_tiles; tile++) {
        assert_int_equal(tiled.range[2 * tile + 1] - tiled.range[2 * tile], s.steps);
        for (int64_t step = 0; step < s.steps; step++)
            for (int64_t i = 0; i < pieces; i++) {
                const uint8_t *piece = tiled.pieces + ((tiled.range[2 * tile] + step) * pieces + i) * lac_expand_piece(&s);
                const int32_t *output = tiled.output + tile * s.tile_outputs + i * 64;
                read_piece(&r, piece, output, step * 64);
            }
    }
    tile_expect_bits(r.dense, wanted, n, k, "pieces");
    ++*reached;
    lac_expand_tiled_release(&tiled);
    free(r.dense);
    free(wanted);
}

static void pieces_hold_the_weight(void **state)
{
    (void)state;
    case_rng rng = {SEED};
    int reached = 0;
    lac_device *target;
    print_message("seed %d\n", (int)SEED);
    ASSERT_OK(lac_cuda_target_open("sm_90a", &target));
    for (int i = 0; i < CASES; i++) {
        static const int32_t ms[] = {2, 3, 4, 5, 7, 8, 12, 13, 16, 20, 32, 64};
        lac_pattern p = {.family = LAC_FAMILY_ELEMENT, .unit_n = 1, .unit_k = 1, .m = ms[case_below(&rng, 12)]};
        p.n = (int32_t)(1 + case_below(&rng, i % 3 ? (p.m + 1) / 2 : p.m));
        if (i % 5 == 4) p.n = p.m = 0, p.density = (double)(1 + case_below(&rng, 60)) / 100.0;
        int64_t n = 1 + case_below(&rng, 300), k = 1 + case_below(&rng, 400);
        lac_weight *w = tile_weight(&rng, &p, n, k, i, NULL);
        check_case(target, w, 1 + case_below(&rng, 600), false, &reached);
        check_case(target, w, 1 + case_below(&rng, 6000), true, &reached);
        lac_weight_free(w);
    }
    lac_device_close(target);
    print_message("%d of %d taken\n", reached, 2 * (int)CASES);
    assert_true(reached > CASES);
}

/* A run has room for as much as any 32, 16 or 8 inputs from a multiple of that on can hold, and short ones are taken where they
 * cost nothing. */
static void runs_are_as_short_as_they_may_be(void **state)
{
    (void)state;
    static const struct {
        int n, m, run, per, words;
    } wanted[] = {{4, 8, 8, 4, 9},   {8, 16, 16, 8, 9},  {16, 32, 32, 16, 9}, {8, 32, 32, 8, 5},
                  {4, 16, 16, 4, 5}, {5, 13, 32, 16, 9}, {3, 7, 32, 16, 9},   {1, 4, 8, 2, 5},
                  {6, 8, 8, 6, 13},  {4, 32, 32, 4, 3},  {1, 32, 32, 1, 2},   {20, 64, 32, 20, 11}};
    lac_device *target;
    ASSERT_OK(lac_cuda_target_open("sm_90a", &target));
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        lac_pattern p = {.family = LAC_FAMILY_ELEMENT, .unit_n = 1, .unit_k = 1, .n = wanted[i].n, .m = wanted[i].m};
        float dense[64 * 64] = {0};
        lac_matrix matrix = {.data = dense, .dtype = LAC_DTYPE_F32, .rows = 64, .cols = 64};
        lac_compress_options options = {.size = sizeof options, .dtype = LAC_DTYPE_F16};
        lac_mask *mask = NULL;
        lac_weight *w = NULL;
        ASSERT_OK(lac_mask_from_matrix(&matrix, &p, &mask));
        ASSERT_OK(lac_weight_compress(&matrix, mask, &options, &w));
        lac_problem problem = {.device = target, .weight = w, .m = 64};
        problem.options.x_dtype = problem.options.y_dtype = w->dtype;
        lac_expand_shape s;
        lac_cost cost;
        assert_true(lac_expand_shape_make(&problem, false, &s, &cost));
        if (s.run != wanted[i].run || s.per != wanted[i].per || s.words != wanted[i].words)
            fail_msg("%d:%d: runs of %d with %d places, %d words", p.n, p.m, s.run, s.per, s.words);
        lac_weight_free(w);
        lac_mask_free(mask);
    }
    lac_device_close(target);
}

/* One piece, byte by byte, by the rules of expand_tile.h, under which an H200 multiplies right: 8:32 has five words a thread, a
 * section of 16 bytes and one of 4. */
static void a_piece_is_laid_out_as_the_gpu_reads_it(void **state)
{
    (void)state;
    int bit;
    static const struct {
        int row, input, thread, bit;
    } bits[] = {{0, 0, 0, 7},     {0, 1, 0, 15},  {0, 2, 0, 23},    {0, 3, 0, 31},     {0, 4, 0, 6},     {5, 9, 5, 13},
                {63, 31, 63, 24}, {0, 32, 64, 7}, {17, 47, 81, 28}, {63, 63, 127, 24}, {40, 62, 104, 16}};
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) {
        assert_int_equal(lac_expand_bit_at(bits[i].row, bits[i].input, &bit), bits[i].thread);
        assert_int_equal(bit, bits[i].bit);
    }
    static const struct {
        int words, thread, word, at;
    } words[] = {{5, 0, 0, 0},    {5, 1, 0, 16}, {5, 127, 3, 2044}, {5, 0, 4, 2048}, {5, 127, 4, 2556}, {9, 3, 5, 2100},
                 {9, 9, 8, 4132}, {3, 2, 1, 20}, {3, 2, 2, 1032},   {2, 7, 1, 60},   {15, 1, 12, 6152}, {15, 1, 14, 7172}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        assert_int_equal(lac_expand_word_at(words[i].words, words[i].thread, words[i].word), words[i].at);
}

/* ---- the ring of expand_ring.cu: a team's warps, as the kernel has them, in any order that waiting allows */

enum { MOST_BLOCKS = 132, MOST_SPREADERS = 7, STEPS = LAC_RING_STEPS, SLOTS = LAC_RING_SLOTS, UNITS = STEPS * 16 };

typedef struct fetcher { /* warp 8 of a block and those that multiply */
    int item, step, place, use, issued, consumed;
    int slot, part, end; /* lac_parts_read */
} fetcher;

typedef struct spreader { /* one of the warps behind warp 8 */
    int number;           /* of its next unit                             */
    bool second;          /* it is the second of two                      */
    int untold[2];        /* slots of units that the team is yet to be told of */
} spreader;

typedef struct team {
    int blocks, spreaders, steps, items, parts, stages;
    int spread[SLOTS], done[SLOTS];
    int ring[SLOTS][UNITS]; /* what each unit holds: item * steps + step */
    spreader spreader[MOST_BLOCKS * MOST_SPREADERS];
    fetcher fetcher[MOST_BLOCKS];
} team;

static void tell(team *t, spreader *w)
{
    for (int i = 0; i < 2; i++) {
        if (w->untold[i] < SLOTS) t->spread[w->untold[i]]++;
        w->untold[i] = SLOTS;
    }
}

/* lac_spread: one unit of a warp, the first or the second of two, or what it tells before. `seen`: it already knows that the unit's slot
 * is free, if it is. False: it has to wait, or is through. */
static bool spread_one(team *t, spreader *w, bool seen)
{
    int part = w->number / UNITS, unit = w->number % UNITS, slot = part % SLOTS, turn = part / t->parts, use = part / SLOTS;
    bool untold = w->untold[0] < SLOTS || w->untold[1] < SLOTS, free = t->done[slot] >= use * t->blocks;
    bool through = turn >= t->items;
    if (untold && (!w->second || through || !seen || !free)) {
        tell(t, w);
        return true;
    }
    if (through || !free) return false;
    int at = part % t->parts * STEPS + unit / 16;
    if (at < t->steps) t->ring[slot][unit] = turn * t->steps + at;
    w->untold[w->second] = slot;
    if (use == 0) tell(t, w);
    w->second = !w->second;
    w->number += t->blocks * t->spreaders;
    return true;
}

static void check_tile(const team *t, int slot, int within, int tile, int wanted)
{
    for (int unit = 0; unit < 8; unit++) assert_int_equal(t->ring[slot][within * 16 + tile * 8 + unit], wanted);
}

/* lac_produce: one stage of block b. */
static bool fetch_one(team *t, int b)
{
    fetcher *f = &t->fetcher[b], *other = &t->fetcher[b ^ 1];
    int within = f->step % STEPS;
    if (f->item == t->items || (within == 0 && t->spread[f->place] < f->use * UNITS)) return false;
    int least = f->issued - t->stages;
    if (f->consumed <= least || other->consumed <= least) return false; /* both read what comes into this stage */
    while (f->end + t->stages <= f->issued + 1) {
        t->done[f->slot]++;
        f->slot = (f->slot + 1) % SLOTS;
        f->part = (f->part + 1) % t->parts;
        f->end += f->part + 1 == t->parts ? t->steps - f->part * STEPS : STEPS;
    }
    f->issued++;
    bool last = f->step == t->steps - 1;
    if (within == STEPS - 1 || last) {
        if (++f->place == SLOTS) f->place = 0, f->use++;
    }
    f->step = last ? 0 : f->step + 1;
    f->item += last;
    return true;
}

/* A stage of block b that both blocks of its cluster have fetched is multiplied; until then its part of the ring must stand. */
static bool multiply_one(team *t, int b)
{
    fetcher *f = &t->fetcher[b];
    if (f->consumed >= f->issued || f->consumed >= t->fetcher[b ^ 1].issued) return false;
    int item = f->consumed / t->steps, step = f->consumed % t->steps, part = item * t->parts + step / STEPS;
    check_tile(t, part % SLOTS, step % STEPS, b & 1, f->consumed);
    f->consumed++;
    return true;
}

static void a_ring_serves_its_team(void **state)
{
    (void)state;
    case_rng rng = {SEED};
    for (int round = 0; round < 200; round++) {
        team *t = calloc(1, sizeof *t);
        t->blocks = 2 * (int)(1 + case_below(&rng, round % 10 ? 6 : MOST_BLOCKS / 2));
        t->spreaders = round % 2 ? 3 : 7;
        t->steps = (int)(1 + case_below(&rng, round % 3 ? 30 : 5));
        t->items = (int)(1 + case_below(&rng, 12));
        t->stages = (int)(2 + case_below(&rng, SLOTS - 2)); /* fewer than SLOTS */
        t->parts = (t->steps + STEPS - 1) / STEPS;
        for (int i = 0; i < t->blocks * t->spreaders; i++) t->spreader[i] = (spreader){.number = i, .untold = {SLOTS, SLOTS}};
        for (int i = 0; i < t->blocks; i++) t->fetcher[i].use = 1, t->fetcher[i].end = t->steps < STEPS ? t->steps : STEPS;
        int idle = 0, actors = t->blocks * (t->spreaders + 2), offset = 0;
        while (idle < actors) { /* nobody can go on: all are through, or it has stopped for ever */
            int who = (offset + idle) % actors;
            bool went = who < t->blocks       ? fetch_one(t, who)
                        : who < 2 * t->blocks ? multiply_one(t, who - t->blocks)
                                              : spread_one(t, &t->spreader[who - 2 * t->blocks], case_below(&rng, 2));
            idle = went ? 0 : idle + 1;
            if (went) offset = (int)case_below(&rng, actors);
        }
        for (int i = 0; i < t->blocks; i++) assert_int_equal(t->fetcher[i].consumed, t->items * t->steps);
        free(t);
    }
}

/* ---- plans */

/* Who prunes for memory asks for no_dense, and gets W compressed: no kernel that is dense by name, nor one whose tiles are. */
static void a_plan_without_dense_keeps_w_compressed(void **state)
{
    (void)state;
    static const char *const patterns[] = {"4:8", "8:16", "16:32", "4:16", "8:32", "3:7"};
    lac_device *target;
    ASSERT_OK(lac_device_open("h200", &target));
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        lac_pattern pattern;
        lac_weight *w = NULL;
        ASSERT_OK(lac_pattern_parse(patterns[i], &pattern));
        ASSERT_OK(lac_weight_sample(&pattern, 4096, 4096, LAC_DTYPE_F16, &w));
        for (int64_t m = 512; m <= 8192; m *= 2) {
            lac_plan_options options = {.size = sizeof options, .no_dense = 1, .predict_only = 1};
            options.x_dtype = options.y_dtype = LAC_DTYPE_F16;
            lac_plan *plan = NULL;
            lac_plan_info info = {.size = sizeof info};
            ASSERT_OK(lac_plan_create(target, w, m, &options, &plan));
            ASSERT_OK(lac_plan_get_info(plan, &info));
            if (m >= 2048) assert_string_equal(info.kernel, "cuda_f16_expand_ring");
            assert_non_null(strstr(info.kernel, "_expand"));
            lac_plan_free(plan);
        }
        lac_weight_free(w);
    }
    lac_device_close(target);
}

/* ---- a warp's way through its units: lac_units of expand_ring.cu, which divides only once */

typedef struct units {
    int part, within, more_parts, more_within, turn, in_item, pair, more_pairs, pairs, parts;
} units;

static void settle(units *u)
{
    for (; u->in_item >= u->parts; u->in_item -= u->parts) {
        u->turn++;
        u->pair += u->more_pairs;
        if (u->pair >= u->pairs) u->pair -= u->pairs;
    }
}

static void next_unit(units *u)
{
    u->within += u->more_within;
    int carry = u->within >= UNITS;
    u->within -= carry * UNITS;
    u->part += u->more_parts + carry;
    u->in_item += u->more_parts + carry;
    settle(u);
}

/* Team `team` of `teams` has the items team, team + teams, ...; item i has the outputs of pair i % pairs, as lac_item_of of
 * tile_product.cuh deals them out to the clusters of a team. */
static void a_warp_finds_its_units(void **state)
{
    (void)state;
    case_rng rng = {SEED};
    for (int round = 0; round < 300; round++) {
        int teams = (int)(1 + case_below(&rng, 66)), team = (int)case_below(&rng, teams);
        int more = (int)(2 + case_below(&rng, 400)), number = (int)case_below(&rng, more);
        units u = {.parts = (int)(1 + case_below(&rng, 40)), .pairs = (int)(1 + case_below(&rng, 70))};
        u.part = u.in_item = number / UNITS, u.within = number % UNITS;
        u.more_parts = more / UNITS, u.more_within = more % UNITS;
        u.pair = team % u.pairs, u.more_pairs = teams % u.pairs;
        settle(&u);
        for (int i = 0; i < 500; i++, number += more, next_unit(&u)) {
            int part = number / UNITS, turn = part / u.parts;
            assert_int_equal(u.part, part);
            assert_int_equal(u.within, number % UNITS);
            assert_int_equal(u.turn, turn);
            assert_int_equal(u.in_item, part % u.parts);
            assert_int_equal(u.pair, (team + turn * teams) % u.pairs);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_hold_the_weight),           cmocka_unit_test(a_piece_is_laid_out_as_the_gpu_reads_it),
        cmocka_unit_test(runs_are_as_short_as_they_may_be), cmocka_unit_test(a_ring_serves_its_team),
        cmocka_unit_test(a_warp_finds_its_units),           cmocka_unit_test(a_plan_without_dense_keeps_w_compressed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
