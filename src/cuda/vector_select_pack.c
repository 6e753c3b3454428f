/* vector_select_pack.c - cuts a weight whose rows keep inputs of their own, at most 8 of 32, for kernels/vector_select.cu; vector_pack.cuh
 * says how it is read. vector_select_tile.c calls it once a plan.
 *
 * mma.sp takes two of every four inputs. Which inputs make a four is free as long as the 32 rows of a unit agree, so for each 32 inputs
 * fours are looked for of which no row keeps three: among 8 of 32 drawn at random nearly always there are some. What does not fit even so goes to
 * another batch behind the others. */
#include "cuda/vector_select_pack.h"

#include <string.h>

#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"
#include "format/weight.h"

enum {
    INPUTS = LAC_PACK_INPUTS,
    ROWS = LAC_PACK_ROWS,
    FOURS = LAC_PACK_FOURS,
    UNITS = LAC_PACK_UNITS,
    MOST_TRIES = 1024,
    MOST_ROUNDS = 256
};

/* ---- fours */

/* Rows that keep three or four of these inputs. */
static uint32_t crowded(uint32_t a, uint32_t b, uint32_t c, uint32_t d) { return (a & b & (c | d)) | (c & d & (a | b)); }

static int crowd(const uint32_t *keeps, const uint8_t four[4])
{
    return __builtin_popcount(crowded(keeps[four[0]], keeps[four[1]], keeps[four[2]], keeps[four[3]]));
}

/* Fours of 16 inputs in four banks, one of each bank in every four. */
typedef struct search {
    const uint32_t *keeps;
    const uint8_t *bank[4]; /* [4] inputs of each bank */
    uint8_t (*four)[4];     /* [4] what is found       */
    int tries;
} search;

/* Four number q and those behind it, of the inputs that `taken` (a bit for each, by bank) leaves; false: not found. */
static bool try_four(search *s, int q, const unsigned taken[4])
{
    s->four[q][0] = s->bank[0][q];
    for (int i = 0; i < 64 && s->tries < MOST_TRIES; ++i) {
        int pick[4] = {q, i & 3, i >> 2 & 3, i >> 4};
        if ((taken[1] >> pick[1] | taken[2] >> pick[2] | taken[3] >> pick[3]) & 1) continue;
        for (int b = 1; b < 4; ++b) s->four[q][b] = s->bank[b][pick[b]];
        ++s->tries;
        if (crowd(s->keeps, s->four[q])) continue;
        unsigned next[4] = {0, taken[1] | 1u << pick[1], taken[2] | 1u << pick[2], taken[3] | 1u << pick[3]};
        if (q == 3 || try_four(s, q + 1, next)) return true;
    }
    return false;
}

static void swap(uint8_t *a, uint8_t *b)
{
    uint8_t t = *a;
    *a = *b;
    *b = t;
}

/* The best swap of an input of four q with one of another, of equal ones by chance. */
static void best_swap(const uint32_t *keeps, uint8_t four[FOURS][4], int q, uint32_t *chance, uint8_t *pair[2])
{
    int best = INT32_MIN, equal = 0, here = crowd(keeps, four[q]);
    for (int other = 0; other < FOURS; ++other) {
        if (other == q) continue;
        int there = crowd(keeps, four[other]);
        for (int i = 0; i < 16; ++i) {
            uint8_t *a = &four[q][i / 4], *b = &four[other][i % 4];
            swap(a, b);
            int gain = here + there - crowd(keeps, four[q]) - crowd(keeps, four[other]);
            swap(a, b);
            if (gain > best) equal = 0;
            if (gain < best || (*chance = *chance * 1664525u + 1013904223u) >> 16 >= 65536u / (unsigned)++equal) continue;
            best = gain;
            pair[0] = a, pair[1] = b;
        }
    }
}

/* Swaps inputs, whatever their banks, until no row is crowded, or for long enough; leaves the best that was seen. */
static void settle(const uint32_t *keeps, uint8_t four[FOURS][4])
{
    uint8_t best[FOURS][4];
    int least = INT32_MAX;
    uint32_t chance = 1;
    for (int round = 0; round < MOST_ROUNDS && least > 0; ++round) {
        int sum = 0, q = 0;
        for (int i = 0; i < FOURS; ++i) sum += crowd(keeps, four[i]);
        if (sum < least) least = sum, memcpy(best, four, sizeof best);
        if (!sum) break;
        for (q = round % FOURS; !crowd(keeps, four[q]);) q = (q + 1) % FOURS;
        uint8_t *pair[2] = {four[q], four[(q + 1) % FOURS]};
        best_swap(keeps, four, q, &chance, pair);
        swap(pair[0], pair[1]);
    }
    memcpy(four, best, sizeof best);
}

void lac_pack_deal(const uint32_t keeps[LAC_PACK_INPUTS], int bank, bool upper_first, uint8_t four[LAC_PACK_FOURS][4])
{
    uint8_t of_bank[8][4];
    int count[8] = {0};
    bool found = true;
    for (int input = 0; input < INPUTS; ++input) {
        int b = (bank + (int)lac_select_place_of(input)) % 8;
        of_bank[b][count[b]++] = (uint8_t)input;
    }
    for (int half = 0; half < 2; ++half) {
        int first = (half ^ (int)upper_first) * 4;
        search s = {.keeps = keeps, .four = four + half * 4};
        for (int b = 0; b < 4; ++b) s.bank[b] = of_bank[first + b];
        if (try_four(&s, 0, (unsigned[4]){0})) continue;
        found = false;
        for (int i = 0; i < 16; ++i) s.four[i / 4][i % 4] = s.bank[i % 4][i / 4];
    }
    if (!found) settle(keeps, four);
}

/* ---- rows */

typedef struct packing {
    const lac_weight *weight;
    const lac_select_shape *shape;
    lac_select_tiled *tiled;
    uint8_t *crowded; /* [batch_count] whether something is left over           */
    uint32_t *inputs; /* [threads][ROWS][selected] columns that the rows keep   */
    int64_t capacity; /* selected, of a row                                     */
} packing;

/* What one row keeps of 32 inputs. */
typedef struct kept {
    const uint8_t *value[INPUTS]; /* NULL: dropped */
} kept;

/* Where a row's packed weights, its codes and a step's places stand in a batch. `row` is of the unit, `unit` the t-th 32 inputs of four. */
typedef struct target {
    const lac_select_shape *shape;
    uint8_t *batch;
    int first_step; /* of the four steps */
} target;

static void put_value(const target *t, int row, int unit, int slot, const uint8_t *value)
{
    const lac_select_shape *s = t->shape;
    int lane = row % 8 * 4 + unit, word = (t->first_step + row / 8) * (s->packed / 2) + slot / 2;
    memcpy(t->batch + lac_select_word_at(lac_select_value_words(s), lane, word) + slot % 2 * 2, value, 2);
}

static void or_word(uint8_t *at, uint32_t bits, uint32_t clear)
{
    uint32_t word;
    memcpy(&word, at, sizeof word);
    word = (word & ~clear) | bits;
    memcpy(at, &word, sizeof word);
}

static void put_code(const target *t, int row, int unit, int q, unsigned code)
{
    const lac_select_shape *s = t->shape;
    int lane = row % 8 * 4 + unit, word = t->first_step / 2 + row / 16;
    uint8_t *at = t->batch + lac_select_value_words(s) * 128 + lac_select_word_at(lac_select_code_words(s), lane, word);
    or_word(at, code << (row / 8 % 2 * 16 + lac_pack_code_at(q)), 0);
}

/* Which two inputs of four q the row's places are. */
static void put_places(const target *t, int row, int unit, int q, unsigned first, unsigned second)
{
    const lac_select_shape *s = t->shape;
    int lane = row % 8 * 4 + row / 16 * 2 + q % 2, shift = row / 8 % 2 * 16 + unit * 4;
    uint8_t *at = t->batch + (lac_select_value_words(s) + lac_select_code_words(s)) * 128 +
                  lac_select_word_at(lac_select_place_words(s), lane, t->first_step + q / 2);
    or_word(at, (first | second << 2) << shift, UINT32_C(15) << shift);
}

static void put_input(const target *t, int unit, int q, int i, int input)
{
    const lac_select_shape *s = t->shape;
    int lane = (q % 2 * 4 + unit) * 4 + i,
        before = lac_select_value_words(s) + lac_select_code_words(s) + lac_select_place_words(s);
    t->batch[before * 128 + lac_select_word_at(lac_select_input_words(s), lane, t->first_step / 4) + q / 2] =
        (uint8_t)lac_select_place_of(input);
}

/* A row's weights in 32 inputs: the first two of each four, or (`rest`) those behind them. Whether some are left over. */
static bool put_row(const target *t, int row, int unit, uint8_t four[FOURS][4], const kept *k, bool rest)
{
    bool left = false;
    int front = 0, back = t->shape->packed;
    for (int i = 0; i < FOURS; ++i) {
        int q = i < 4 ? i : 11 - i, place[4], count = 0; /* 0 to 3, then 7 down to 4 */
        for (int p = 0; p < 4; ++p)
            if (k->value[four[q][p]]) place[count++] = p;
        const int *mine = place;
        if (rest) mine += 2, count -= 2;
        if (count > 2) left = true, count = 2;
        if (count <= 0) continue;
        if (q >= 4) back -= count;
        int slot = q < 4 ? front : back;
        for (int p = 0; p < count; ++p) put_value(t, row, unit, slot + p, k->value[four[q][mine[p]]]);
        if (q < 4) front += count;
        bool last = count == 1 && mine[0] == 3; /* the places ascend */
        put_code(t, row, unit, q, count == 2 ? 3 : last ? 2 : 1);
        put_places(t, row, unit, q, last ? 0 : (unsigned)mine[0], count == 2 ? (unsigned)mine[1] : 3);
    }
    return left;
}

/* ---- batches */

typedef struct rows {
    const uint32_t *inputs[ROWS]; /* ascending                       */
    const uint8_t *values[ROWS];  /* as many                         */
    int64_t count[ROWS], next[ROWS];
} rows;

static void list_rows(const packing *p, int thread, int64_t unit, rows *r)
{
    uint32_t *room = p->inputs + (int64_t)thread * ROWS * p->capacity;
    *r = (rows){0};
    for (int i = 0; i < ROWS; ++i) {
        int64_t row = unit * ROWS + i;
        if (row >= p->weight->geometry.n) break;
        r->count[i] = lac_weight_units(p->weight, row, room + i * p->capacity);
        r->inputs[i] = room + i * p->capacity;
        r->values[i] = (const uint8_t *)p->weight->part[LAC_PART_VALUES].data + lac_weight_first_value(p->weight, row) * 2;
    }
}

/* The next 32 inputs of all rows, which begin at `first`. */
static void take_inputs(rows *r, int64_t first, kept k[ROWS], uint32_t keeps[INPUTS])
{
    memset(k, 0, ROWS * sizeof *k);
    memset(keeps, 0, INPUTS * sizeof *keeps);
    for (int i = 0; i < ROWS; ++i)
        for (; r->next[i] < r->count[i] && r->inputs[i][r->next[i]] < first + INPUTS; ++r->next[i]) {
            int64_t input = r->inputs[i][r->next[i]] - first;
            k[i].value[input] = r->values[i] + r->next[i] * 2;
            keeps[input] |= UINT32_C(1) << i;
        }
}

/* Batch `to`: what batch number `number` of a chunk of the rows has, whose first input is `first`; or the rest of it. */
static bool fill_batch(const packing *p, rows *r, int64_t first, int number, int64_t to, bool rest)
{
    const lac_select_shape *s = p->shape;
    bool left = false;
    target t = {s, p->tiled->batches + to * s->batch_bytes, 0};
    memset(t.batch + (lac_select_value_words(s) + lac_select_code_words(s)) * 128, 0x44,
           (size_t)lac_select_place_words(s) * 128);
    for (int group = 0; group < s->batch; ++group) {
        kept k[ROWS];
        uint32_t keeps[INPUTS];
        uint8_t four[FOURS][4];
        take_inputs(r, first + (int64_t)group * INPUTS, k, keeps);
        int unit = group % UNITS, in_chunk = number * s->batch + group;
        t.first_step = group / UNITS * UNITS;
        lac_pack_deal(keeps, (int)(lac_select_place_of((int64_t)in_chunk * INPUTS) % 8), unit % 2, four);
        for (int q = 0; q < FOURS; ++q)
            for (int i = 0; i < 4; ++i) put_input(&t, unit, q, i, four[q][i]);
        for (int row = 0; row < ROWS; ++row) left |= put_row(&t, row, unit, four, &k[row], rest);
    }
    return left;
}

static void pack_unit(void *state, int thread, int64_t unit)
{
    const packing *p = state;
    const lac_select_shape *s = p->shape;
    rows r;
    list_rows(p, thread, unit, &r);
    for (int chunk = 0; chunk < s->chunks; ++chunk)
        for (int number = 0; number < s->chunk_batches; ++number) {
            int64_t to = (unit * s->chunks + chunk) * s->chunk_batches + number;
            int64_t first = (int64_t)chunk * s->chunk_inputs + (int64_t)number * s->batch * INPUTS;
            p->crowded[to] = fill_batch(p, &r, first, number, to, false);
        }
}

/* What is left over of the unit's batches, behind all of them. */
static void pack_rest(void *state, int thread, int64_t unit)
{
    const packing *p = state;
    const lac_select_shape *s = p->shape;
    rows r;
    list_rows(p, thread, unit, &r);
    int64_t first_batch = unit * s->chunks * s->chunk_batches;
    uint32_t next = p->tiled->more_begin[unit * s->chunks];
    for (int64_t i = 0; i < (int64_t)s->chunks * s->chunk_batches; ++i) {
        if (!p->crowded[first_batch + i]) continue;
        int chunk = (int)(i / s->chunk_batches), number = (int)(i % s->chunk_batches);
        int64_t first = (int64_t)chunk * s->chunk_inputs + (int64_t)number * s->batch * INPUTS;
        for (int row = 0; row < ROWS; ++row) /* what lies before was not looked at */
            while (r.next[row] < r.count[row] && r.inputs[row][r.next[row]] < first) ++r.next[row];
        p->tiled->more[next] = (uint32_t)number;
        fill_batch(p, &r, first, number, p->tiled->batch_count + next, true);
        ++next;
    }
}

/* Room for the batches that are left over, `count` of them, and their numbers. */
static lac_status make_room(packing *p, uint64_t count)
{
    const lac_select_shape *s = p->shape;
    lac_select_tiled *t = p->tiled;
    uint64_t had = (uint64_t)t->batch_count * (uint64_t)s->batch_bytes, bytes = had + count * (uint64_t)s->batch_bytes;
    uint64_t chunks = (uint64_t)s->units * (uint64_t)s->chunks;
    uint8_t *batches = lac_allocate_zeroed(bytes);
    t->more = lac_allocate(count * sizeof *t->more);
    t->more_begin = lac_allocate((chunks + 1) * sizeof *t->more_begin);
    if (!batches || !t->more || !t->more_begin) {
        lac_release(batches);
        return lac_fail_memory("re-tiled weight", bytes);
    }
    memcpy(batches, t->batches, had);
    lac_release(t->batches);
    t->batches = batches;
    t->more_count = (int64_t)count;
    uint32_t sum = 0;
    for (uint64_t chunk = 0; chunk < chunks; ++chunk) {
        t->more_begin[chunk] = sum;
        for (int i = 0; i < s->chunk_batches; ++i) sum += p->crowded[chunk * (uint64_t)s->chunk_batches + (uint64_t)i];
    }
    t->more_begin[chunks] = sum;
    return LAC_STATUS_OK;
}

static lac_status pack_all(packing *p, int threads)
{
    uint64_t count = 0;
    lac_parallel_for_each(p->shape->units, threads, pack_unit, p);
    for (int64_t i = 0; i < p->tiled->batch_count; ++i) count += p->crowded[i];
    if (!count) return LAC_STATUS_OK;
    if (count > UINT32_MAX) return lac_fail(LAC_STATUS_UNSUPPORTED, "the weight has more than 2^32 batches of steps");
    lac_status status = make_room(p, count);
    if (!status) lac_parallel_for_each(p->shape->units, threads, pack_rest, p);
    return status;
}

lac_status lac_select_pack(const lac_weight *weight, const lac_select_shape *shape, lac_select_tiled *out)
{
    int threads = lac_parallel_threads_for(0, shape->units, weight->kept);
    packing p = {.weight = weight, .shape = shape, .tiled = out, .capacity = weight->geometry.selected};
    out->batch_count = shape->units * shape->chunks * shape->chunk_batches;
    uint64_t bytes = (uint64_t)out->batch_count * (uint64_t)shape->batch_bytes;
    out->batches = lac_allocate_zeroed(bytes);
    p.crowded = lac_allocate_zeroed((uint64_t)out->batch_count);
    p.inputs = lac_allocate((uint64_t)threads * ROWS * (uint64_t)p.capacity * sizeof *p.inputs);
    lac_status status =
        out->batches && p.crowded && p.inputs ? pack_all(&p, threads) : lac_fail_memory("re-tiled weight", bytes);
    lac_release(p.crowded);
    lac_release(p.inputs);
    return status;
}
