/* vector_select_tile.c - cuts a weight for kernels/vector_select.cu: which inputs a unit of rows reads in which step, and its
 * weights as fragments. vector_select_tile.h describes the result.
 *
 * The order of the inputs within a chunk is free. Eight rows of X are read together, and do not collide when they lie in
 * different banks, that is when their places differ in the last three bits; so inputs are dealt out that way. */
#include "cuda/vector_select_tile.h"

#include <string.h>

#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"
#include "cuda/vector_select_pack.h"
#include "format/index.h"
#include "format/weight.h"

enum { STEP = LAC_SELECT_STEP, BANKS = 8, QUAD = 4 };

int64_t lac_select_word_at(int words, int lane, int word)
{
    int whole = words / 4 * 4;
    if (word < whole) return word / 4 * 512 + lane * 16 + word % 4 * 4;
    if (words % 4 >= 2 && word < whole + 2) return whole * 128 + lane * 8 + (word - whole) * 4;
    return word * 128 + lane * 4;
}

/* What a thread works with. */
typedef struct scratch {
    uint32_t *units;  /* [selected] of a row group                                                    */
    uint32_t *inputs; /* [inputs of a row group, in fours] that it reads, ascending; NOBODY: padding  */
    int32_t *order;   /* [the same] the inputs of a chunk as they are dealt out                       */
    int32_t *place;   /* [the same] the slot of an input within its chunk                             */
} scratch;
#define NOBODY UINT32_MAX

typedef struct cutting {
    const lac_weight *weight;
    const lac_select_shape *shape;
    lac_select_tiled *tiled;
    scratch *scratch; /* [threads] */
} cutting;

/* ---- inputs */

/* The most inputs that a row group reads, in whole fours. */
static int64_t most_inputs(const lac_weight *w)
{
    const lac_geometry *g = &w->geometry;
    int64_t inputs = g->selected * g->unit_k;
    if (w->pattern.family == LAC_FAMILY_VNM) inputs = g->groups * LAC_VNM_SELECTED;
    return (inputs + QUAD) / QUAD * QUAD;
}

/* The inputs of row group `group`, ascending; of V:N:M four for every group, of which the last may be missing. */
static int64_t list_inputs(const cutting *c, scratch *s, int64_t group)
{
    const lac_geometry *g = &c->weight->geometry;
    int64_t units = lac_weight_units(c->weight, group, s->units), count = 0;
    for (int64_t i = 0; i < units; ++i)
        for (int64_t j = 0; j < lac_geometry_inputs(g, s->units[i]); ++j)
            s->inputs[count++] = (uint32_t)(s->units[i] * g->unit_k + j);
    while (c->shape->sparse && count % QUAD) s->inputs[count++] = NOBODY;
    return count;
}

static int bank_of(const cutting *c, uint32_t input)
{
    return (int)(lac_select_place_of(input % (uint32_t)c->shape->chunk_inputs) % BANKS);
}

/* Inputs [first, end) eight at a time, from as many banks as have some left, the fullest first. */
static void deal_inputs(const cutting *c, scratch *s, int64_t first, int64_t end)
{
    int64_t head[BANKS], left[BANKS] = {0}, out = first;
    for (int b = 0; b < BANKS; ++b) head[b] = first;
    for (int64_t i = first; i < end; ++i) ++left[bank_of(c, s->inputs[i])];
    while (out < end) {
        bool taken[BANKS] = {false};
        for (int i = 0; i < BANKS && out < end; ++i) {
            int best = -1, any = 0;
            for (int b = 0; b < BANKS; ++b) {
                if (left[b] > left[any]) any = b;
                if (!taken[b] && left[b] > 0 && (best < 0 || left[b] > left[best])) best = b;
            }
            if (best < 0) best = any;
            while (bank_of(c, s->inputs[head[best]]) != best) ++head[best];
            s->order[out++] = (int32_t)head[best]++;
            --left[best];
            taken[best] = true;
        }
    }
}

static unsigned banks_of_quad(const cutting *c, const uint32_t *inputs)
{
    unsigned banks = 0;
    for (int i = 0; i < QUAD; ++i)
        if (inputs[i] != NOBODY) banks |= 1u << bank_of(c, inputs[i]);
    return banks;
}

/* Fours of inputs [first, end) in pairs: the next one, and of those after it the one that shares the fewest banks with it. */
static void deal_quads(const cutting *c, scratch *s, int64_t first, int64_t end)
{
    int64_t quads = (end - first) / QUAD;
    int32_t *order = s->order + first;
    for (int64_t q = 0; q < quads; ++q) order[q] = (int32_t)(first + q * QUAD);
    for (int64_t q = 0; q + 1 < quads; q += 2) {
        unsigned banks = banks_of_quad(c, s->inputs + order[q]);
        int64_t best = q + 1;
        int least = BANKS;
        for (int64_t other = q + 1; other < quads && least > 0; ++other) {
            int shared = __builtin_popcount(banks & banks_of_quad(c, s->inputs + order[other]));
            if (shared < least) least = shared, best = other;
        }
        int32_t partner = order[best];
        order[best] = order[q + 1];
        order[q + 1] = partner;
    }
    for (int64_t q = quads - 1; q >= 0; --q) {
        int32_t quad = order[q];
        for (int i = QUAD - 1; i >= 0; --i) order[q * QUAD + i] = quad + i;
    }
}

/* ---- places in a batch */

static uint8_t *batch_of(const cutting *c, int64_t first_batch, int64_t slot, int *step)
{
    int64_t at = slot / STEP;
    *step = (int)(at % c->shape->batch);
    return c->tiled->batches + (first_batch + at / c->shape->batch) * c->shape->batch_bytes;
}

static void put_input(const cutting *c, int64_t first_batch, int64_t slot, uint32_t place)
{
    const lac_select_shape *s = c->shape;
    int step, lane = (int)(slot % STEP);
    uint8_t *batch = batch_of(c, first_batch, slot, &step);
    uint8_t *at = batch + lac_select_value_words(s) * 128 + lac_select_place_words(s) * 128;
    uint16_t half = (uint16_t)place;
    memcpy(at + lac_select_word_at(lac_select_input_words(s), lane, step / 2) + step % 2 * 2, &half, sizeof half);
}

/* A weight of row `row` of the unit at slot `slot`, dense. */
static void put_dense(const cutting *c, int64_t first_batch, int64_t slot, int row, const uint8_t *value)
{
    int step, k = (int)(slot % STEP), tile = row / 16;
    uint8_t *batch = batch_of(c, first_batch, slot, &step);
    int load = (step * (c->shape->unit_rows / 16) + tile) * 2 + k / 16;
    int lane = row % 8 * 4 + k % 8 / 2, word = row / 8 % 2 + k / 8 % 2 * 2;
    memcpy(batch + load * 512 + lane * 16 + word * 4 + k % 2 * 2, value, 2);
}

/* Weight number `number` (0 or 1) of row `row` among the four inputs that begin at slot `slot`: the `which`-th of them. */
static void put_sparse(const cutting *c, int64_t first_batch, int64_t slot, int row, int number, int which,
                       const uint8_t *value)
{
    const lac_select_shape *s = c->shape;
    int step, quad = (int)(slot % STEP) / QUAD, tile = row / 16, tiles = s->unit_rows / 16;
    uint8_t *batch = batch_of(c, first_batch, slot, &step);
    int lane = row % 8 * 4 + quad % 4, word = row / 8 % 2 + quad / 4 * 2;
    if (value) memcpy(batch + (step * tiles + tile) * 512 + lane * 16 + word * 4 + number * 2, value, 2);
    int meta_lane = row % 8 * 4 + tile % 2 * 2 + quad / 4, meta_word = step * ((tiles + 1) / 2) + tile / 2;
    uint8_t *at = batch + lac_select_value_words(s) * 128 + lac_select_word_at(lac_select_place_words(s), meta_lane, meta_word);
    uint32_t bits;
    memcpy(&bits, at, sizeof bits);
    int shift = row / 8 % 2 * 16 + quad % 4 * 4 + number * 2;
    bits = (bits & ~(UINT32_C(3) << shift)) | (uint32_t)which << shift;
    memcpy(at, &bits, sizeof bits);
}

/* One or two weights of a four, which[] ascending; the places of the two must differ and ascend, so a zero may have to stand first. */
static void put_pair(const cutting *c, int64_t first_batch, int64_t slot, int row, int count, const int *which,
                     const uint8_t *const *values)
{
    int places[2] = {0, 1};
    const uint8_t *two[2] = {NULL, NULL};
    if (count == 2) {
        for (int i = 0; i < 2; ++i) places[i] = which[i], two[i] = values[i];
    } else if (count == 1) {
        int at = which[0] > 0;
        places[0] = at ? 0 : which[0];
        places[1] = at ? which[0] : 1;
        two[at] = values[0];
    }
    for (int i = 0; i < 2; ++i) put_sparse(c, first_batch, slot, row, i, places[i], two[i]);
}

/* ---- units */

typedef struct unit_rows {
    int64_t first, group; /* stored row, and its row group unless each row is one */
    int count;
} unit_rows;

static unit_rows rows_of(const cutting *c, int64_t unit)
{
    const lac_geometry *g = &c->weight->geometry;
    unit_rows r = {.first = unit * c->shape->unit_rows};
    int64_t left = g->n - r.first;
    r.count = left < c->shape->unit_rows ? (int)left : c->shape->unit_rows;
    r.group = c->shape->all_inputs ? 0 : r.first / g->unit_n;
    return r;
}

static int64_t batches_for(const lac_select_shape *s, int64_t slots)
{
    return (slots + STEP * s->batch - 1) / (STEP * s->batch);
}

/* The end of the inputs from `first` on that lie in `chunk`. */
static int64_t end_of_chunk(const cutting *c, const scratch *s, int64_t first, int64_t count, int64_t chunk)
{
    int64_t limit = (chunk + 1) * c->shape->chunk_inputs;
    while (first < count && (s->inputs[first] == NOBODY || s->inputs[first] < limit)) ++first;
    return first;
}

static void count_unit(void *state, int thread, int64_t unit)
{
    const cutting *c = state;
    scratch *s = &c->scratch[thread];
    int64_t count = list_inputs(c, s, rows_of(c, unit).group), at = 0;
    for (int chunk = 0; chunk < c->shape->chunks; ++chunk) {
        int64_t end = end_of_chunk(c, s, at, count, chunk);
        c->tiled->begin[unit * c->shape->chunks + chunk + 1] = (uint32_t)batches_for(c->shape, end - at);
        at = end;
    }
}

static int64_t first_batch_of(const cutting *c, int64_t unit, int64_t chunk)
{
    int64_t number = unit * c->shape->chunks + chunk;
    return c->tiled->begin ? c->tiled->begin[number] : number * c->shape->chunk_batches;
}

/* Rows that share their inputs, every selected input a slot. */
static void put_rows_dense(const cutting *c, const scratch *s, const unit_rows *r, int64_t first, int64_t end,
                           int64_t first_batch)
{
    const lac_weight *w = c->weight;
    const lac_geometry *g = &w->geometry;
    int64_t rows = lac_geometry_rows(g, r->group), row0 = r->first - r->group * g->unit_n;
    const uint8_t *values = (const uint8_t *)w->part[LAC_PART_VALUES].data + lac_weight_first_value(w, r->group) * 2;
    const uint8_t *positions = w->pattern.family == LAC_FAMILY_VNM ? lac_weight_group_positions(w, r->group) : NULL;
    bool is_vnm = w->pattern.family == LAC_FAMILY_VNM;
    for (int row = 0; row < r->count; ++row) {
        for (int64_t i = first; !is_vnm && i < end; ++i)
            put_dense(c, first_batch, s->place[i], row, values + (i * rows + row0 + row) * 2);
        if (!is_vnm) continue;
        int64_t begin = first / QUAD * g->slot_n, stop = (end + QUAD - 1) / QUAD * g->slot_n,
                slots = lac_weight_slots(w, r->group);
        for (int64_t slot = begin; slot < stop && slot < slots; ++slot) {
            int which = positions ? lac_position_get(positions, slot * rows + row0 + row) : (int)(slot % g->slot_n);
            put_dense(c, first_batch, s->place[slot / g->slot_n * QUAD + which], row, values + (slot * rows + row0 + row) * 2);
        }
    }
}

/* V:N:M with at most two of four. */
static void put_rows_sparse(const cutting *c, const scratch *s, const unit_rows *r, int64_t first, int64_t end,
                            int64_t first_batch)
{
    const lac_weight *w = c->weight;
    const lac_geometry *g = &w->geometry;
    int64_t rows = lac_geometry_rows(g, r->group), row0 = r->first - r->group * g->unit_n,
            slots = lac_weight_slots(w, r->group);
    const uint8_t *values = (const uint8_t *)w->part[LAC_PART_VALUES].data + lac_weight_first_value(w, r->group) * 2;
    const uint8_t *positions = lac_weight_group_positions(w, r->group);
    for (int row = 0; row < r->count; ++row)
        for (int64_t quad = first / QUAD; quad < end / QUAD; ++quad) {
            int which[2], count = 0;
            const uint8_t *at[2];
            for (int64_t slot = quad * g->slot_n; slot < (quad + 1) * g->slot_n && slot < slots; ++slot) {
                which[count] = lac_position_get(positions, slot * rows + row0 + row);
                at[count++] = values + (slot * rows + row0 + row) * 2;
            }
            put_pair(c, first_batch, s->place[quad * QUAD], row, count, which, at);
        }
}

static void put_list(const cutting *c, const scratch *s, int64_t first, int64_t end, int64_t first_batch)
{
    for (int64_t i = first; i < end; ++i) {
        uint32_t input = s->inputs[i] == NOBODY ? s->inputs[i / QUAD * QUAD] : s->inputs[i];
        put_input(c, first_batch, s->place[i], lac_select_place_of(input % (uint32_t)c->shape->chunk_inputs));
    }
}

static void cut_unit(const cutting *c, scratch *s, int64_t unit)
{
    const lac_select_shape *shape = c->shape;
    unit_rows r = rows_of(c, unit);
    int64_t count = list_inputs(c, s, r.group), at = 0;
    for (int chunk = 0; chunk < shape->chunks; ++chunk) {
        int64_t end = end_of_chunk(c, s, at, count, chunk), first_batch = first_batch_of(c, unit, chunk);
        if (shape->sparse)
            deal_quads(c, s, at, end);
        else
            deal_inputs(c, s, at, end);
        for (int64_t i = at; i < end; ++i) s->place[s->order[i]] = (int32_t)(i - at);
        put_list(c, s, at, end, first_batch);
        if (shape->sparse)
            put_rows_sparse(c, s, &r, at, end, first_batch);
        else
            put_rows_dense(c, s, &r, at, end, first_batch);
        at = end;
    }
}

/* Two of four consecutive inputs, each row its own. */
static void cut_all_inputs(const cutting *c, scratch *s, int64_t unit)
{
    const lac_select_shape *shape = c->shape;
    const lac_weight *w = c->weight;
    unit_rows r = rows_of(c, unit);
    for (int row = 0; row < r.count; ++row) {
        int64_t units = lac_weight_units(w, r.first + row, s->units), next = 0;
        const uint8_t *values = (const uint8_t *)w->part[LAC_PART_VALUES].data + lac_weight_first_value(w, r.first + row) * 2;
        for (int64_t quad = 0; quad * QUAD < w->geometry.k; ++quad) {
            int which[QUAD], count = 0;
            const uint8_t *at[QUAD];
            for (; next < units && s->units[next] < (quad + 1) * QUAD; ++next) {
                which[count] = (int)(s->units[next] - quad * QUAD);
                at[count++] = values + next * 2;
            }
            int64_t chunk = quad * QUAD / shape->chunk_inputs;
            put_pair(c, first_batch_of(c, unit, chunk), quad * QUAD - chunk * shape->chunk_inputs, row, count, which, at);
        }
    }
}

/* What no weight fills is zero, and the places of mma.sp ascend there too. */
static void clear_places(const cutting *c, int64_t unit)
{
    const lac_select_shape *s = c->shape;
    int64_t end = first_batch_of(c, unit + 1, 0);
    for (int64_t batch = first_batch_of(c, unit, 0); batch < end; ++batch)
        memset(c->tiled->batches + batch * s->batch_bytes + lac_select_value_words(s) * 128, 0x44,
               (size_t)lac_select_place_words(s) * 128);
}

static void cut_one(void *state, int thread, int64_t unit)
{
    const cutting *c = state;
    scratch *s = &c->scratch[thread];
    clear_places(c, unit);
    if (c->shape->all_inputs)
        cut_all_inputs(c, s, unit);
    else
        cut_unit(c, s, unit);
}

/* ---- the whole weight */

static void free_scratch(scratch *s, int threads)
{
    for (int i = 0; s && i < threads; ++i) {
        lac_release(s[i].units);
        lac_release(s[i].inputs);
        lac_release(s[i].order);
        lac_release(s[i].place);
    }
    lac_release(s);
}

static scratch *make_scratch(const lac_weight *w, int threads)
{
    scratch *s = lac_allocate_zeroed((uint64_t)threads * sizeof *s);
    uint64_t inputs = (uint64_t)most_inputs(w);
    for (int i = 0; s && i < threads; ++i) {
        s[i] = (scratch){.units = lac_allocate((uint64_t)w->geometry.selected * sizeof *s->units),
                         .inputs = lac_allocate(inputs * sizeof *s->inputs),
                         .order = lac_allocate(inputs * sizeof *s->order),
                         .place = lac_allocate(inputs * sizeof *s->place)};
        if (s[i].units && s[i].inputs && s[i].order && s[i].place) continue;
        free_scratch(s, threads);
        return NULL;
    }
    return s;
}

static lac_status number_batches(cutting *c, int threads)
{
    const lac_select_shape *s = c->shape;
    uint64_t chunks = (uint64_t)s->units * (uint64_t)s->chunks, bytes = (chunks + 1) * sizeof *c->tiled->begin;
    c->tiled->begin = lac_allocate_zeroed(bytes);
    if (!c->tiled->begin) return lac_fail_memory("chunks of the weight", bytes);
    lac_parallel_for_each(s->units, threads, count_unit, c);
    for (uint64_t i = 0; i < chunks; ++i) {
        uint64_t next = (uint64_t)c->tiled->begin[i] + c->tiled->begin[i + 1];
        if (next > UINT32_MAX) return lac_fail(LAC_STATUS_UNSUPPORTED, "the weight has more than 2^32 batches of steps");
        c->tiled->begin[i + 1] = (uint32_t)next;
    }
    c->tiled->batch_count = c->tiled->begin[chunks];
    return LAC_STATUS_OK;
}

static lac_status cut_weight(cutting *c, int threads)
{
    const lac_select_shape *s = c->shape;
    c->tiled->batch_count = s->units * s->chunks * s->chunk_batches;
    lac_status status = s->chunk_batches ? LAC_STATUS_OK : number_batches(c, threads);
    if (status) return status;
    uint64_t bytes = (uint64_t)c->tiled->batch_count * (uint64_t)s->batch_bytes;
    c->tiled->batches = lac_allocate_zeroed(bytes + !bytes);
    if (!c->tiled->batches) return lac_fail_memory("re-tiled weight", bytes);
    lac_parallel_for_each(s->units, threads, cut_one, c);
    return LAC_STATUS_OK;
}

lac_status lac_select_tile(const lac_weight *weight, const lac_select_shape *shape, lac_select_tiled *out)
{
    int threads = lac_parallel_threads_for(0, shape->units, weight->kept);
    lac_select_tiled tiled = {0};
    if (shape->packed) {
        lac_status packed = lac_select_pack(weight, shape, &tiled);
        if (packed)
            lac_select_tiled_release(&tiled);
        else
            *out = tiled;
        return packed;
    }
    cutting c = {weight, shape, &tiled, make_scratch(weight, threads)};
    if (!c.scratch) return lac_fail_memory("inputs of the weight", (uint64_t)most_inputs(weight) * 12);
    lac_status status = cut_weight(&c, threads);
    free_scratch(c.scratch, threads);
    if (status)
        lac_select_tiled_release(&tiled);
    else
        *out = tiled;
    return status;
}

void lac_select_tiled_release(lac_select_tiled *tiled)
{
    lac_release(tiled->batches);
    lac_release(tiled->begin);
    lac_release(tiled->more);
    lac_release(tiled->more_begin);
    *tiled = (lac_select_tiled){0};
}
