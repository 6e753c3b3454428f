/* test_cuda_vector.c - the tiles of cuda_spmv_gather, cuda_spmv_mma and cuda_spmv_select, read back on the CPU the way the kernels read them:
 * every kept weight stands once, in its row and at its column, and whatever else a kernel would multiply is zero. Random
 * patterns, shapes and dtypes, on targets of which no GPU is needed. */
#include "tile_case.h"

#include "core/dtype.h"
#include "cuda/runtime.h"
#include "cuda/state.h"
#include "cuda/vector_select_tile.h"
#include "cuda/vector_tile.h"

enum { CASES = 1500, SEED = 20261115 };

typedef struct reader {
    const lac_vector_shape *shape;
    const lac_vector_tiled *tiled;
    uint32_t *dense; /* [n][k] bits of what the kernel multiplies with */
    int64_t n, k;
} reader;

static uint32_t value_at(const reader *r, int64_t tile, int lane, int slot)
{
    int size = r->shape->value_bytes, load = 16 / size;
    return case_bits(r->tiled->tiles + tile * r->shape->step_bytes + slot / load * 512 + lane * 16 + slot % load * size, 0,
                     8 * size);
}

static uint32_t index_bit(const reader *r, int64_t tile, int lane, int bit)
{
    const lac_vector_shape *s = r->shape;
    int word = bit / 32, whole = s->index_words / 4 * 4;
    assert_true(word < s->index_words);
    if (s->shared_index) return r->tiled->index[tile * case_ceil(s->index_words, 4) * 4 + word] >> bit % 32 & 1;
    const uint8_t *at = r->tiled->tiles + tile * s->step_bytes + s->value_loads * 512;
    at += word < whole ? word / 4 * 512 + lane * 16 + word % 4 * 4 : word * 128 + lane * 4;
    return case_bits(at, (uint64_t)(bit % 32), 1);
}

static int64_t index_bits(const reader *r, int64_t tile, int lane, int first, int count)
{
    int64_t value = 0;
    for (int i = 0; i < count; i++) value |= (int64_t)index_bit(r, tile, lane, first + i) << i;
    return value;
}

/* A product of the kernel: nothing but zeros outside the matrix, and no weight where another one is. */
static void add(reader *r, int64_t row, int64_t column, uint32_t bits)
{
    if (bits == 0) return;
    if (row >= r->n || column >= r->k) fail_msg("a weight at row %lld, column %lld", (long long)row, (long long)column);
    if (r->dense[row * r->k + column]) fail_msg("two weights at row %lld, column %lld", (long long)row, (long long)column);
    r->dense[row * r->k + column] = bits;
}

/* Groups of one lane: `groups` of them, of which number i belongs to row rows[i] and begins at columns[i]. */
static void read_lane(reader *r, int64_t tile, int lane, int groups, const int64_t *rows, const int64_t *columns)
{
    const lac_vector_shape *s = r->shape;
    for (int g = 0; g < groups; g++) {
        int count = s->group_steps > 1 || s->index == LAC_VECTOR_INDEX_COLUMNS ? s->slots : s->group_slots,
            bit = s->group_inputs;
        for (int i = 0; i < count; i++) {
            int slot = g * count + i;
            int64_t input = i;
            if (s->index == LAC_VECTOR_INDEX_BITMASK) {
                do bit--;
                while (bit >= 0 && !index_bit(r, tile, lane, g * s->group_inputs + bit));
                assert_true(bit >= 0);
                input = bit;
            } else if (s->index != LAC_VECTOR_INDEX_NONE) {
                input = index_bits(r, tile, lane, slot * s->entry_bits, s->entry_bits);
            }
            assert_true(s->index == LAC_VECTOR_INDEX_COLUMNS ? input < s->chunk_inputs : input < s->group_inputs);
            add(r, rows[g], columns[g] + input, value_at(r, tile, lane, slot));
        }
        /* The spreading kernel stores all slots of a group one after another: zeros must not fall on weights. */
        for (int i = 0; s->mma && i + 1 < count && s->index == LAC_VECTOR_INDEX_PACKED; i++)
            for (int j = i + 1; j < count; j++)
                if (value_at(r, tile, lane, g * count + i))
                    assert_int_not_equal(index_bits(r, tile, lane, (g * count + i) * s->entry_bits, s->entry_bits),
                                         index_bits(r, tile, lane, (g * count + j) * s->entry_bits, s->entry_bits));
    }
}

/* One tile of the sparse mma's fragments, as mma.cuh describes them. */
static void read_direct(reader *r, int64_t tile, int64_t first_row, int64_t step)
{
    for (int lane = 0; lane < 32; lane++)
        for (int slot = 0; slot < 64; slot += 2) {
            int k = slot / 16, half = slot / 8 % 2, reg = slot / 2 % 4, g = lane / 4, t = lane % 4, part = reg / 2,
                upper = reg % 2;
            int meta = g * 4 + half * 2 + part, bit = k * 32 + upper * 16 + t * 4;
            int64_t one = index_bits(r, tile, meta, bit, 2), two = index_bits(r, tile, meta, bit + 2, 2);
            assert_true(one < two);
            int64_t row = first_row + half * 16 + upper * 8 + g, column = step * 128 + k * 32 + part * 16 + t * 4;
            add(r, row, column + one, value_at(r, tile, lane, slot));
            add(r, row, column + two, value_at(r, tile, lane, slot + 1));
        }
}

static void read_step(reader *r, int64_t tile, int64_t row_block, int64_t step, int chunk)
{
    const lac_vector_shape *s = r->shape;
    int64_t rows[256], columns[256];
    if (s->direct) {
        read_direct(r, tile, row_block * 32, step);
        return;
    }
    for (int lane = 0; lane < 32; lane++) {
        int groups = s->mma ? 4 * s->unit_groups : s->step_groups;
        for (int g = 0; g < groups; g++) {
            rows[g] = row_block * 32 + (s->mma ? lane / 4 + g / s->unit_groups * 8 : lane);
            columns[g] = (step / s->group_steps * s->step_groups + g) * s->group_inputs;
            if (s->mma) columns[g] = ((step * 4 + lane % 4) * s->unit_groups + g % s->unit_groups) * s->group_inputs;
            if (s->index == LAC_VECTOR_INDEX_COLUMNS) columns[g] = (int64_t)chunk * s->chunk_inputs;
        }
        read_lane(r, tile, lane, groups, rows, columns);
    }
}

static void read_tiles(reader *r)
{
    const lac_vector_shape *s = r->shape;
    for (int64_t block = 0; block < case_ceil(r->n, 32); block++) {
        if (s->index != LAC_VECTOR_INDEX_COLUMNS) {
            assert_true((int64_t)s->chunks * s->chunk_steps >= s->steps);
            for (int64_t step = 0; step < s->steps; step++) read_step(r, block * s->steps + step, block, step, 0);
            continue;
        }
        for (int chunk = 0; chunk < s->chunks; chunk++) {
            const uint32_t *begin = r->tiled->begin + block * (s->chunks + 1) + chunk;
            for (int64_t tile = begin[0]; tile < begin[1]; tile++) read_step(r, tile, block, 0, chunk);
        }
    }
}

static void check_case(lac_device *target, const lac_weight *w, int64_t m, bool mma, int *reached)
{
    lac_problem problem = {.device = target, .weight = w, .m = m};
    problem.options.x_dtype = w->dtype;
    lac_vector_shape shape;
    if (!lac_vector_shape_make(&problem, mma, &shape)) return;
    assert_true(shape.shared_bytes <= lac_cuda_target_of(target)->shared_per_block);
    lac_vector_tiled tiled;
    ASSERT_OK(lac_vector_tile(w, &shape, &tiled));
    int64_t n = w->geometry.n, k = w->geometry.k;
    reader r = {&shape, &tiled, calloc((size_t)(n * k), 4), n, k};
    uint32_t *wanted = case_read(w);
    read_tiles(&r);
    tile_expect_bits(r.dense, wanted, n, k, "tiles");
    reached[shape.mma ? 4 + shape.direct : (int)shape.index]++;
    reached[6] += shape.shared_index;
    reached[7] += shape.group_steps > 1;
    lac_vector_tiled_release(&tiled);
    free(r.dense);
    free(wanted);
}

/* ---- cuda_spmv_select */

typedef struct select_reader {
    const lac_select_shape *shape;
    const uint8_t *batch;
    int64_t first_row, first_column; /* of the unit, of the chunk */
    int first_step;                  /* of the batch in its chunk */
} select_reader;

/* The column that slot `slot` of a step reads. */
static int64_t selected_column(const select_reader *r, int step, int slot)
{
    const lac_select_shape *s = r->shape;
    if (s->all_inputs) return r->first_column + (r->first_step + step) * 32 + slot;
    int words = lac_select_input_words(s);
    const uint8_t *at = r->batch + lac_select_value_words(s) * 128 + lac_select_place_words(s) * 128;
    at += words - step / 2 / 4 * 4 >= 4 ? step / 8 * 512 + slot * 16 + step / 2 % 4 * 4
          : words % 4 >= 2              ? words / 4 * 512 + slot * 8 + step / 2 % 4 * 4
                                        : words / 4 * 512 + slot * 4;
    int64_t place = case_bits(at + step % 2 * 2, 0, 16);
    assert_true(place % 9 < 8);
    assert_true(place / 9 * 8 + place % 9 < s->chunk_inputs);
    return r->first_column + place / 9 * 8 + place % 9;
}

/* Registers of all lanes as mma.cuh describes them, in the order of the loads. */
static void read_selected(reader *out, const select_reader *r)
{
    const lac_select_shape *s = r->shape;
    int tiles = s->unit_rows / 16, halves = s->sparse ? 1 : 2;
    for (int i = 0; i < lac_select_value_words(s) / 4 * 32 * 8; i++) {
        int load = i / 256, lane = i / 8 % 32, reg = i / 2 % 4, number = i % 2, g = lane / 4, t = lane % 4;
        int step = load / (tiles * halves), tile = load / halves % tiles, half = load % halves;
        int64_t row = r->first_row + tile * 16 + reg % 2 * 8 + g;
        uint32_t value = case_bits(r->batch + load * 512 + lane * 16 + reg * 4 + number * 2, 0, 16);
        if (!s->sparse) {
            int64_t column = selected_column(r, step, half * 16 + reg / 2 * 8 + t * 2 + number);
            add(out, row, column, value);
            continue;
        }
        int words = lac_select_place_words(s), word = step * ((tiles + 1) / 2) + tile / 2,
            at_lane = g * 4 + tile % 2 * 2 + reg / 2;
        const uint8_t *at = r->batch + lac_select_value_words(s) * 128 + lac_select_word_at(words, at_lane, word);
        uint32_t four = case_bits(at, (uint64_t)(reg % 2 * 16 + t * 4), 4);
        assert_true((four & 3) < four >> 2);
        add(out, row, selected_column(r, step, (reg / 2 * 4 + t) * 4 + (int)(number ? four >> 2 : four & 3)), value);
    }
}

/* ---- cuda_spmv_select, packed: as vector_pack.cuh and vector_select.cu read it, instruction by instruction */

static uint32_t permute(uint32_t low, uint32_t high, uint32_t selector)
{
    uint64_t bytes = (uint64_t)high << 32 | low;
    uint32_t result = 0;
    for (int i = 0; i < 4; i++) result |= (uint32_t)(bytes >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
    return result;
}

static uint32_t funnel_right(uint32_t low, uint32_t high, uint32_t shift)
{
    return (uint32_t)(((uint64_t)high << 32 | low) >> shift);
}
static uint32_t funnel_left(uint32_t low, uint32_t high, uint32_t shift)
{
    return (uint32_t)(((uint64_t)high << 32 | low) << shift >> 32);
}

static void spread(uint32_t four[8], const uint32_t *packed, int words, uint32_t codes)
{
    uint32_t front[4] = {0}, back[4] = {0}; /* what is left, the next in front[0] and in back[3] */
    for (int i = 0; i < words; i++) front[i] = packed[i], back[4 - words + i] = packed[i];
    for (int i = 0; i < 4; i++) {
        uint32_t ahead = codes >> 4 * i & 3, behind = codes >> (4 * (3 - i) + 2) & 3;
        uint32_t first = permute(0x10441044, 0, ahead) & 255, second = permute(0x32104444, 0, ahead) & 255;
        four[i] = permute(front[0], 0, first | second << 8);
        first = permute(0x10443244, 0, behind) & 255, second = permute(0x32324444, 0, behind) & 255;
        four[7 - i] = permute(back[3], 0, first | second << 8);
        uint32_t on = permute(0x20101000, 0, ahead) & 255, off = permute(0x20101000, 0, behind) & 255;
        for (int j = 0; j < 3 - i; j++) front[j] = funnel_right(front[j], front[j + 1], on);
        for (int j = 3; j > i; j--) back[j] = funnel_left(back[j - 1], back[j], off);
    }
}

static uint32_t select_word(const uint8_t *section, int words, int lane, int word)
{
    return case_bits(section + lac_select_word_at(words, lane, word), 0, 32);
}

static void read_packed(reader *out, const select_reader *r)
{
    const lac_select_shape *s = r->shape;
    int values = lac_select_value_words(s), codes = lac_select_code_words(s), places = lac_select_place_words(s);
    const uint8_t *of_codes = r->batch + values * 128, *of_places = of_codes + codes * 128,
                  *of_inputs = of_places + places * 128;
    for (int i = 0; i < s->batch * 32; i++) {
        int step = i / 32 / 4 * 4, part = i / 32 % 4, lane = i % 32, g = lane / 4, t = lane % 4;
        uint32_t packed[4], four[8];
        for (int j = 0; j < s->packed / 2; j++)
            packed[j] = select_word(r->batch, values, lane, (step + part) * (s->packed / 2) + j);
        spread(four, packed, s->packed / 2, select_word(of_codes, codes, lane, step / 2 + part / 2) >> part % 2 * 16 & 0xffff);
        for (int q = 0; q < 8; q++) {
            uint32_t nibble =
                select_word(of_places, places, g * 4 + part / 2 * 2 + q % 2, step + q / 2) >> (part % 2 * 16 + t * 4) & 15;
            assert_true((nibble & 3) < nibble >> 2);
            for (int number = 0; number < 2; number++) {
                uint32_t value = four[q] >> 16 * number & 0xffff;
                if (!value) continue;
                int from = (q % 2 * 4 + t) * 4 + (int)(number ? nibble >> 2 : nibble & 3);
                uint32_t place = select_word(of_inputs, lac_select_input_words(s), from, step / 4) >> 8 * (q / 2) & 255;
                assert_true(place < 36 && place % 9 < 8);
                add(out, r->first_row + part * 8 + g,
                    r->first_column + (r->first_step + step + t) * 32 + place / 9 * 8 + place % 9, value);
            }
        }
    }
}

/* How many eights of rows of X that ldmatrix reads together there are, and how many do not all lie in different banks. */
typedef struct bank_count {
    int64_t eights, conflicts;
} bank_count;

static void count_banks(const select_reader *r, bank_count *count)
{
    const lac_select_shape *s = r->shape;
    const uint8_t *of_inputs =
        r->batch + (lac_select_value_words(s) + lac_select_code_words(s) + lac_select_place_words(s)) * 128;
    for (int eight = 0; eight < s->batch * 4; eight++) {
        unsigned banks = 0, step = (unsigned)eight / 4;
        for (unsigned lane = eight % 4 * 8; lane < (unsigned)eight % 4 * 8 + 8; lane++) {
            uint32_t places = select_word(of_inputs, lac_select_input_words(s), (int)lane, (int)step / 4);
            banks |=
                1u << (((unsigned)r->first_step + step / 4 * 4 + lane / 4 % 4) * 36 + (places >> 8 * (step % 4) & 255)) % 8;
        }
        count->eights++;
        count->conflicts += banks != 255;
    }
}

static void check_select(lac_device *target, const lac_weight *w, int64_t m, int *reached, bank_count *banks, int *streamed)
{
    lac_problem problem = {.device = target, .weight = w, .m = m};
    problem.options.x_dtype = w->dtype;
    lac_select_shape s;
    if (!lac_select_shape_make(&problem, &s)) return;
    assert_true(s.shared_bytes <= lac_cuda_target_of(target)->shared_per_block);
    assert_true((int64_t)s.chunks * s.chunk_inputs >= w->geometry.k);
    assert_true(s.x_ring >= 1 && s.chunk_inputs % 8 == 0 && s.chunk_inputs + s.chunk_inputs / 8 <= UINT16_MAX);
    assert_true(s.x_warps ? s.x_strips >= 1 || problem.options.x_layout != LAC_LAYOUT_TOKEN_MAJOR : s.x_ring == 1);
    lac_select_tiled tiled;
    ASSERT_OK(lac_select_tile(w, &s, &tiled));
    int64_t n = w->geometry.n, k = w->geometry.k;
    reader out = {.dense = calloc((size_t)(n * k), 4), .n = n, .k = k};
    uint32_t *wanted = case_read(w);
    for (int64_t part = 0; part < s.units * s.chunks; part++) {
        int64_t first = tiled.begin ? tiled.begin[part] : part * s.chunk_batches;
        int64_t end = tiled.begin ? tiled.begin[part + 1] : first + s.chunk_batches;
        assert_true(end <= tiled.batch_count);
        for (int64_t batch = first; batch < end; batch++) {
            select_reader r = {&s, tiled.batches + batch * s.batch_bytes, part / s.chunks * s.unit_rows,
                               part % s.chunks * s.chunk_inputs, (int)(batch - first) * s.batch};
            if (s.packed) count_banks(&r, banks);
            (s.packed ? read_packed : read_selected)(&out, &r);
        }
        for (int64_t i = tiled.more ? tiled.more_begin[part] : 0; tiled.more && i < tiled.more_begin[part + 1]; i++) {
            assert_true(tiled.more[i] < (uint32_t)s.chunk_batches);
            select_reader r = {&s, tiled.batches + (tiled.batch_count + i) * s.batch_bytes, part / s.chunks * s.unit_rows,
                               part % s.chunks * s.chunk_inputs, (int)tiled.more[i] * s.batch};
            read_packed(&out, &r);
        }
    }
    tile_expect_bits(out.dense, wanted, n, k, "batches");
    reached[s.all_inputs ? 0 : s.packed ? (tiled.more ? 7 : 6) : s.sparse ? 1 : s.chunk_batches ? 2 : 3]++;
    reached[4] += s.chunks > 1;
    reached[5] += s.unit_rows == 16;
    if (streamed) *streamed += s.x_warps > 0;
    lac_select_tiled_release(&tiled);
    free(out.dense);
    free(wanted);
}

static void tiles_hold_the_weight(void **state)
{
    (void)state;
    static const char *const archs[] = {"sm_75", "sm_80", "sm_90a"};
    static const lac_dtype dtypes[] = {LAC_DTYPE_F32, LAC_DTYPE_F16, LAC_DTYPE_BF16};
    case_rng rng = {SEED};
    int reached[8] = {0}, selects[8] = {0};
    bank_count banks = {0};
    print_message("seed %d\n", (int)SEED);
    lac_device *targets[3];
    for (int i = 0; i < 3; i++) ASSERT_OK(lac_cuda_target_open(archs[i], &targets[i]));
    for (int i = 0; i < CASES; i++) {
        lac_pattern p = case_pattern(&rng);
        if (i % 3 == 0 && p.unit_n > 1) p.unit_n = (int32_t)(32 * (1 + case_below(&rng, 2)));
        if (i % 3 == 1 && p.family == LAC_FAMILY_VNM) p.unit_n = (int32_t)(16 << case_below(&rng, 3));
        if (i % 5 == 0)
            p = (lac_pattern){.family = LAC_FAMILY_ELEMENT, .unit_n = 1, .unit_k = 1, .n = 1 + i % 2, .m = 2 + 2 * (i % 2)};
        if (i % 5 == 1) /* one row or a few inputs leave no fours to look for */
            p = (lac_pattern){.family = LAC_FAMILY_ELEMENT, .unit_n = 1, .unit_k = 1, .n = 1 + i % 8, .m = 8 << (i % 3)};
        if (i % 5 == 1 && p.n * 32 > p.m * 8) p.n = p.m / 4;
        if (p.family == LAC_FAMILY_SHUFFLED) p.family = LAC_FAMILY_VECTOR;
        int64_t n = 1 + case_below(&rng, 150), k = 1 + case_below(&rng, i % 7 ? 200 : 2000);
        uint8_t *keep = malloc((size_t)(n * k));
        float *dense = malloc((size_t)(n * k) * sizeof *dense);
        case_keep(&rng, &p, n, k, i % 4 > 0, keep);
        for (int64_t j = 0; j < n * k; j++) dense[j] = keep[j] ? (float)(1 + case_below(&rng, 200)) : 0.0f;
        lac_matrix matrix = {.data = dense, .dtype = LAC_DTYPE_F32, .rows = n, .cols = k};
        lac_compress_options options = {.size = sizeof options, .dtype = dtypes[case_below(&rng, 3)]};
        lac_mask *mask = NULL;
        lac_weight *w = NULL;
        ASSERT_OK(lac_mask_from_matrix(&matrix, &p, &mask));
        ASSERT_OK(lac_weight_compress(&matrix, mask, &options, &w));
        int64_t m = 1 + case_below(&rng, 16);
        for (int mma = 0; mma < 2; mma++) check_case(targets[case_below(&rng, 3)], w, m, mma, reached);
        check_select(targets[1 + case_below(&rng, 2)], w, 1 + case_below(&rng, 32), selects, &banks, NULL);
        lac_weight_free(w);
        lac_mask_free(mask);
        free(keep);
        free(dense);
    }
    for (int i = 0; i < 3; i++) lac_device_close(targets[i]);
    print_message("none %d, packed %d, bitmask %d, columns %d, spread %d, direct %d, shared %d, cut %d\n", reached[0],
                  reached[1], reached[2], reached[3], reached[4], reached[5], reached[6], reached[7]);
    for (int i = 0; i < 8; i++) assert_true(reached[i] > 0);
    print_message("select: 2:4 %d, sparse %d, dense %d, free %d, chunks %d, rows of 16 %d, packed %d\n", selects[0], selects[1],
                  selects[2], selects[3], selects[4], selects[5], selects[6]);
    for (int i = 0; i < 7; i++) assert_true(selects[i] > 0);
    print_message("banks: %lld of %lld eights collide\n", (long long)banks.conflicts, (long long)banks.eights);
    assert_true(banks.eights > 1000 && banks.conflicts * 3 < banks.eights);
}

/* As vector.cu walks: block b of `grid` has the rows of tile (b + round * grid) / split in each round, and every split-th chunk of x. */
static void count_turns(const lac_vector_shape *s, int64_t n)
{
    int64_t tiles = case_ceil(case_ceil(n, 32), s->row_warps);
    uint8_t *turns = calloc((size_t)(tiles * s->chunks), 1);
    assert_int_equal(s->grid % s->split, 0);
    for (int64_t block = 0; block < s->grid; block++)
        for (int round = 0; round < s->rounds; round++) {
            int64_t tile = (block + round * s->grid) / s->split;
            for (int64_t chunk = block % s->split; tile < tiles && chunk < s->chunks; chunk += s->split)
                turns[tile * s->chunks + chunk]++;
        }
    for (int64_t i = 0; i < tiles * s->chunks; i++)
        if (turns[i] != 1)
            fail_msg("n %lld: tile %lld, chunk %lld has %d turns", (long long)n, (long long)(i / s->chunks),
                     (long long)(i % s->chunks), turns[i]);
    free(turns);
}

static void every_row_block_has_its_turn(void **state)
{
    (void)state;
    static const char *const archs[] = {"sm_75", "sm_90a"}, *const patterns[] = {"2:4", "8:32", "vw64:3:32", "25%"};
    static const int64_t inputs[] = {33, 640, 4096, 30000}, outputs[] = {1, 40, 1024, 4129, 11008, 20481};
    int many = 0, split = 0;
    for (int a = 0; a < 2; a++) {
        lac_device *target;
        ASSERT_OK(lac_cuda_target_open(archs[a], &target));
        for (int i = 0; i < 4 * 4 * 6; i++) {
            lac_pattern p;
            lac_weight *w = NULL;
            int64_t n = outputs[i % 6], k = inputs[i / 6 % 4];
            if (n * k > 50000000) continue;
            ASSERT_OK(lac_pattern_parse(patterns[i / 24], &p));
            ASSERT_OK(lac_weight_sample(&p, n, k, LAC_DTYPE_F16, &w));
            for (int64_t m = 1; m <= 3; m++) {
                lac_problem problem = {.device = target, .weight = w, .m = m, .options.x_dtype = LAC_DTYPE_F16};
                lac_vector_shape s;
                assert_true(lac_vector_shape_make(&problem, false, &s));
                assert_true(s.shared_bytes <= lac_cuda_target_of(target)->shared_per_block);
                count_turns(&s, n);
                many += s.rounds > 1;
                split += s.split > 1;
            }
            lac_weight_free(w);
        }
        lac_device_close(target);
    }
    print_message("%d in rounds, %d split\n", many, split);
    assert_true(many > 0 && split > 0);
}

/* Rows of 7:32 that leave no way to deal the inputs out: all keep input 31, and row i the six of the others that line i of the
 * projective plane of order 5 has (a difference set mod 31). Any two of its 31 points lie on a line, so whichever three inputs stand with
 * number 31 in a four, some row keeps two of them and it. */
static void a_rest_is_packed_behind(void **state)
{
    (void)state;
    enum { N = 70, K = 300 };
    static const int line[] = {1, 5, 11, 24, 25, 27};
    static float dense[N * K];
    for (int row = 0; row < N; row++)
        for (int group = 0; group * 32 < K; group++)
            for (int i = 0; i < 7; i++) {
                int column = group * 32 + (i < 6 ? (line[i] + row + group) % 31 : 31);
                if (column < K) dense[row * K + column] = (float)(1 + row % 16 + column);
            }
    lac_pattern p = {.family = LAC_FAMILY_ELEMENT, .unit_n = 1, .unit_k = 1, .n = 7, .m = 32};
    lac_matrix matrix = {.data = dense, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K};
    lac_compress_options options = {.size = sizeof options, .dtype = LAC_DTYPE_F16};
    lac_mask *mask = NULL;
    lac_weight *w = NULL;
    lac_device *target;
    ASSERT_OK(lac_cuda_target_open("sm_90a", &target));
    ASSERT_OK(lac_mask_from_matrix(&matrix, &p, &mask));
    ASSERT_OK(lac_weight_compress(&matrix, mask, &options, &w));
    int selects[8] = {0};
    bank_count banks = {0};
    for (int m = 2; m <= 32; m += 15) check_select(target, w, m, selects, &banks, NULL);
    assert_int_equal(selects[7], 3);
    lac_weight_free(w);
    lac_mask_free(mask);
    lac_device_close(target);
}

/* X comes before the products or beside them, whichever the model takes for faster; a large weight has problems of both kinds. */
static void x_comes_in_two_ways(void **state)
{
    (void)state;
    int streamed = 0, all = 0, selects[8] = {0};
    bank_count banks = {0};
    lac_pattern p;
    lac_weight *w = NULL;
    lac_device *target;
    ASSERT_OK(lac_cuda_target_open("sm_90a", &target));
    ASSERT_OK(lac_pattern_parse("2:4", &p));
    ASSERT_OK(lac_weight_sample(&p, 4096, 4096, LAC_DTYPE_F16, &w));
    for (int m = 2; m <= 32; m += 30, all++) check_select(target, w, m, selects, &banks, &streamed);
    lac_weight_free(w);
    print_message("%d of %d streamed\n", streamed, all);
    assert_true(streamed > 0 && streamed < all);
    lac_device_close(target);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tiles_hold_the_weight), cmocka_unit_test(every_row_block_has_its_turn),
                                       cmocka_unit_test(a_rest_is_packed_behind), cmocka_unit_test(x_comes_in_two_ways)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
