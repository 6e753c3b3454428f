/* choose_tile.c - cuts a weight into stages for kernels/choose.cu: which inputs of X a stage brings, in which slot of which load a vector
 * finds its own of them, and their weights in core matrices.
 *
 * The four lanes of a load read an input each, for eight tokens. Inputs collide in shared memory's banks when their places in a box agree
 * in bits 1 and 2 (their class) and differ above (their word): a neighbour in the same word costs nothing. So the slots of a load are
 * dealt to words of different classes as long as there are. */
#include "cuda/choose_tile.h"

#include <string.h>

#include "core/arithmetic.h"
#include "core/dtype.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"
#include "cuda/vector_rows.h"
#include "format/row.h"

enum {
    VECTORS = LAC_CHOOSE_VECTORS,
    BOX = LAC_CHOOSE_BOX,
    EIGHT = 8, /* elements of 16 bytes, where the copy engine can begin */
    SLOTS = LAC_CHOOSE_STAGE_SLOTS,
    LANES = 4,
    LOADS = SLOTS / LANES, /* of a stage */
    STEP_LOADS = LOADS / LAC_CHOOSE_STEPS,
    CLASSES = 4,
    SAMPLED_QUADS = 4
};

/* What a thread works with. */
typedef struct tile_scratch {
    uint32_t *units;        /* [selected]                                          */
    uint32_t *columns;      /* [row capacity]                                      */
    float *values;          /* [row capacity]                                      */
    uint8_t *reads;         /* [k_in] bit v: vector v of the quad reads this input */
    uint32_t *stored;       /* [k_in] the stored column of an input                */
    int32_t *slot[VECTORS]; /* [k] of a stored column: stage of the quad * 32 + slot */
} tile_scratch;

typedef struct tile_job {
    const lac_weight *weight;
    const lac_choose_shape *shape;
    lac_choose_tiled *out;
    char *scratch;
    uint64_t scratch_bytes; /* of a thread */
    int64_t quad_step;      /* every so many quads are looked at */
} tile_job;

static uint64_t rounded_up(uint64_t bytes) { return (bytes / 64 + 1) * 64; }

static uint64_t lay_out_scratch(const lac_weight *w, char *block, tile_scratch *out)
{
    uint64_t k = (uint64_t)w->geometry.k, row = (uint64_t)lac_weight_row_capacity(w), inputs = (uint64_t)w->k_in;
    uint64_t bytes[] = {(uint64_t)w->geometry.selected * 4, row * 4, row * 4, inputs, inputs * 4, k * 4, k * 4, k * 4, k * 4};
    enum { PARTS = sizeof bytes / sizeof *bytes };
    char *at[PARTS];
    uint64_t total = 0;
    for (int i = 0; i < PARTS; ++i) {
        at[i] = block ? block + total : NULL;
        total += rounded_up(bytes[i]);
    }
    *out = (tile_scratch){(void *)at[0], (void *)at[1], (void *)at[2],
                          (void *)at[3], (void *)at[4], {(void *)at[5], (void *)at[6], (void *)at[7], (void *)at[8]}};
    return total;
}

/* ---- vectors */

static lac_vector_rows rows_of(const lac_geometry *g, const lac_choose_shape *s, int64_t vector)
{
    return lac_vector_rows_of(g, (lac_vector_cut){s->vectors, s->pieces, LAC_CHOOSE_OUTPUTS}, vector);
}

/* Marks what the vectors of a quad read. */
static void mark_quad(const tile_job *job, const tile_scratch *t, int64_t quad)
{
    const lac_weight *w = job->weight;
    const lac_geometry *g = &w->geometry;
    const uint32_t *col_perm = w->part[LAC_PART_COL_PERM].data;
    memset(t->reads, 0, (size_t)w->k_in);
    for (int v = 0; v < VECTORS; ++v) {
        lac_vector_rows rows = rows_of(g, job->shape, quad * VECTORS + v);
        int64_t units = rows.count ? lac_weight_units(w, rows.group, t->units) : 0;
        for (int64_t i = 0; i < units; ++i)
            for (int64_t j = 0; j < lac_geometry_inputs(g, t->units[i]); ++j) {
                uint32_t column = (uint32_t)(t->units[i] * g->unit_k + j), input = col_perm ? col_perm[column] : column;
                t->reads[input] |= (uint8_t)(1 << v);
                t->stored[input] = column;
            }
    }
}

/* ---- which inputs a stage has */

typedef struct stage_inputs {
    int32_t first[LAC_CHOOSE_MOST_BOXES]; /* of each box; -1: there is none                                              */
    int count[VECTORS];
    uint8_t box[VECTORS][SLOTS], at[VECTORS][SLOTS]; /* of the inputs of each vector: the box, and the place in it */
} stage_inputs;

/* How far a quad's stages have come: inputs before `input` are done with, and boxes before `free` have been brought. */
typedef struct cursor {
    int64_t input, free;
} cursor;

/* The next stage of a quad. A box begins at a multiple of 64 where it can, so that stages of windows that are full alike stay alike; the
 * copy engine wants a multiple of 8. The stage ends before an input for which a vector has no slot left. False when nobody reads any
 * more. */
static bool next_stage(const lac_weight *w, const lac_choose_shape *s, const uint8_t *reads, cursor *at, stage_inputs *stage)
{
    int64_t k = w->k_in;
    bool full = false;
    memset(stage->count, 0, sizeof stage->count);
    for (int box = 0; box < LAC_CHOOSE_MOST_BOXES; ++box) stage->first[box] = -1;
    for (int box = 0; box < s->boxes && !full; ++box) {
        while (at->input < k && !reads[at->input]) ++at->input;
        if (at->input == k) break;
        int64_t begin = at->input, even = begin / BOX * BOX, first = even > at->free ? even : at->free;
        for (; at->input < k && at->input < first + BOX; ++at->input) {
            for (int v = 0; v < VECTORS; ++v)
                if (reads[at->input] >> v & 1 && stage->count[v] == SLOTS) full = true;
            if (full) break;
            for (int v = 0; v < VECTORS; ++v)
                if (reads[at->input] >> v & 1) {
                    stage->box[v][stage->count[v]] = (uint8_t)box;
                    stage->at[v][stage->count[v]++] = (uint8_t)(at->input - first);
                }
        }
        at->free = full ? at->input / EIGHT * EIGHT : first + BOX;
        if (at->input > begin) stage->first[box] = (int32_t)first;
    }
    return stage->first[0] >= 0;
}

static int64_t count_quad(const tile_job *job, const tile_scratch *t, int64_t quad)
{
    stage_inputs stage;
    cursor at = {0, 0};
    int64_t count = 0;
    mark_quad(job, t, quad);
    while (next_stage(job->weight, job->shape, t->reads, &at, &stage)) ++count;
    return count;
}

/* ---- which slots they have */

/* The inputs of a vector that are left, by class: words of which one input is left, and of which both are; as numbers of inputs. */
typedef struct hand {
    uint8_t one[CLASSES][SLOTS], two[CLASSES][SLOTS]; /* the second of two is the next number */
    int ones[CLASSES], twos[CLASSES], total;
} hand;

static void hand_make(const stage_inputs *stage, int v, hand *h)
{
    memset(h, 0, sizeof *h);
    h->total = stage->count[v];
    for (int i = 0; i < h->total; ++i) {
        int class = stage->at[v][i] >> 1 & 3;
        bool both =
            i + 1 < h->total && stage->box[v][i] == stage->box[v][i + 1] && (stage->at[v][i] ^ 1) == stage->at[v][i + 1];
        if (both)
            h->two[class][h->twos[class]++] = (uint8_t)i++;
        else
            h->one[class][h->ones[class]++] = (uint8_t)i;
    }
}

enum { TAKE_NONE, TAKE_ONE, TAKE_WORD, TAKE_TWO_WORDS, TAKES }; /* of a class, for a load */

/* What taking leaves: false where the class has not as much. */
static bool take_fits(const hand *h, int class, int take, int *inputs, int *words)
{
    int ones = h->ones[class], twos = h->twos[class];
    *words = ones + twos;
    *inputs = take == TAKE_NONE ? 0 : take == TAKE_ONE ? 1 : 2;
    if (take == TAKE_ONE) {
        if (ones) --*words;
        return ones || twos;
    }
    if (take == TAKE_WORD) {
        --*words;
        return twos > 0;
    }
    if (take == TAKE_TWO_WORDS) {
        *words -= ones < 2 ? ones : 2;
        return ones + twos >= 2;
    }
    return true;
}

static int take_one(hand *h, int class)
{
    --h->total;
    if (h->ones[class]) return h->one[class][--h->ones[class]];
    int first = h->two[class][--h->twos[class]];
    h->one[class][h->ones[class]++] = (uint8_t)(first + 1);
    return first;
}

/* The inputs of the next load, of which `left` follow: as many words in as few turns as there can be, from the classes with the most
 * words left. Returns how many. */
static int deal_load(hand *h, int left, uint8_t input[LANES])
{
    int need = h->total - LANES * left, best = 0, best_score = INT32_MAX, count = 0;
    for (int choice = 0; choice < 1 << 2 * CLASSES; ++choice) {
        int total = 0, score = 0;
        bool fits = true;
        for (int c = 0; c < CLASSES && fits; ++c) {
            int inputs, words;
            fits = take_fits(h, c, choice >> 2 * c & 3, &inputs, &words);
            total += inputs;
            score += words * words + ((choice >> 2 * c & 3) == TAKE_TWO_WORDS ? 4096 : 0);
        }
        if (!fits || total > LANES || total < need || score >= best_score) continue;
        best = choice;
        best_score = score;
    }
    for (int c = 0; c < CLASSES; ++c) switch (best >> 2 * c & 3) {
        case TAKE_ONE:
            input[count++] = (uint8_t)take_one(h, c);
            break;
        case TAKE_WORD: {
            int first = h->two[c][--h->twos[c]];
            h->total -= 2;
            input[count++] = (uint8_t)first;
            input[count++] = (uint8_t)(first + 1);
            break;
        }
        case TAKE_TWO_WORDS:
            input[count++] = (uint8_t)take_one(h, c);
            input[count++] = (uint8_t)take_one(h, c);
            break;
        default:
            break;
        }
    /* Three words of one class and nothing else, or four: whatever is left. */
    while (count < need)
        for (int c = 0; c < CLASSES && count < need; ++c)
            if (h->ones[c] + h->twos[c]) input[count++] = (uint8_t)take_one(h, c);
    return count;
}

static void put_16(uint8_t *at, int value)
{
    uint16_t bits = (uint16_t)value;
    memcpy(at, &bits, sizeof bits);
}

/* Places and joins of a vector in a stage, and where the weights of its inputs go. `number`: the quad's stage. */
static void deal_vector(const tile_scratch *t, const stage_inputs *stage, int v, int64_t number, uint8_t *image)
{
    hand h;
    hand_make(stage, v, &h);
    for (int load = 0; load < LOADS; ++load) {
        int step = load / STEP_LOADS, of_step = load % STEP_LOADS, place = 0;
        uint8_t input[LANES];
        int count = deal_load(&h, LOADS - 1 - load, input);
        for (int lane = 0; lane < LANES; ++lane) {
            bool none = lane >= count; /* reads what the last one reads, and is not joined */
            if (!none) {
                int i = input[lane], at = stage->at[v][i];
                place = stage->box[v][i] * LAC_CHOOSE_BOX_BYTES + at * 2;
                t->slot[v][t->stored[stage->first[stage->box[v][i]] + at]] =
                    (int32_t)(number * SLOTS + step * LAC_CHOOSE_SLOTS + lac_choose_slot(lane, of_step));
            }
            put_16(image + lac_choose_place_at(step, v % 2, lane, of_step), place);
            uint8_t *join = image + lac_choose_join_at(step, v % 2, lane, of_step / 2);
            uint16_t before;
            memcpy(&before, join, sizeof before);
            int part = of_step % 2 ? (none ? LAC_CHOOSE_NO_HIGH : LAC_CHOOSE_JOIN_HIGH)
                       : none      ? LAC_CHOOSE_NO_LOW
                                   : LAC_CHOOSE_JOIN_LOW;
            put_16(join, (of_step % 2 ? before : 0) | part);
        }
    }
}

/* ---- weights and outputs */

static void put_vector(const tile_job *job, const tile_scratch *t, int64_t quad, int v)
{
    const lac_weight *w = job->weight;
    const uint32_t *row_perm = w->part[LAC_PART_ROW_PERM].data;
    lac_vector_rows rows = rows_of(&w->geometry, job->shape, quad * VECTORS + v);
    int32_t *output = job->out->output + (quad * VECTORS + v) * LAC_CHOOSE_OUTPUTS;
    uint8_t *images = job->out->images + ((int64_t)job->out->range[quad] * 2 + v / 2) * LAC_CHOOSE_IMAGE_BYTES;
    for (int r = 0; r < LAC_CHOOSE_OUTPUTS; ++r) {
        output[r] = -1;
        if (r >= rows.count) continue;
        output[r] = (int32_t)(row_perm ? row_perm[rows.first + r] : rows.first + r);
        lac_weight_row row = {t->values, t->columns, 0};
        lac_weight_decode_row(w, rows.first + r, NULL, t->units, &row);
        for (int64_t i = 0; i < row.count; ++i) {
            int32_t slot = t->slot[v][row.columns[i]], in_stage = slot % SLOTS;
            uint16_t bits = w->dtype == LAC_DTYPE_BF16 ? lac_f32_to_bf16(row.values[i]) : lac_f32_to_f16(row.values[i]);
            memcpy(images + (int64_t)(slot / SLOTS) * (2 * LAC_CHOOSE_IMAGE_BYTES) +
                       lac_choose_value_at(in_stage / LAC_CHOOSE_SLOTS, v % 2, r, in_stage % LAC_CHOOSE_SLOTS),
                   &bits, sizeof bits);
        }
    }
}

/* 64 outputs that are neighbours in Y may leave as a box; fewer only where the box ends with Y, which is not written beyond. A box begins
 * at 16 bytes: vectors of 100 outputs have every second one elsewhere. */
static void put_pieces(const tile_job *job, int64_t quad)
{
    for (int64_t i = quad * VECTORS * 2; i < (quad + 1) * VECTORS * 2; ++i) {
        const int32_t *output = job->out->output + i * 64;
        int count = 0;
        while (count < 64 && output[count] >= 0 && output[count] == output[0] + count) ++count;
        bool rest = false;
        for (int r = count; r < 64; ++r) rest |= output[r] >= 0;
        bool alone = count && !rest && (count == 64 || output[0] + count == job->weight->n_out);
        job->out->piece[i] = alone && output[0] % EIGHT == 0 ? output[0] : -1;
    }
}

/* ---- all of it */

static void count_job(void *state, int thread, int64_t number)
{
    const tile_job *job = state;
    tile_scratch t;
    lay_out_scratch(job->weight, job->scratch + (uint64_t)thread * job->scratch_bytes, &t);
    job->out->range[number + 1] = (int32_t)count_quad(job, &t, number * job->quad_step);
}

static void tile_quad(void *state, int thread, int64_t quad)
{
    const tile_job *job = state;
    const lac_choose_shape *s = job->shape;
    stage_inputs stage;
    tile_scratch t;
    lay_out_scratch(job->weight, job->scratch + (uint64_t)thread * job->scratch_bytes, &t);
    mark_quad(job, &t, quad);
    cursor at = {0, 0};
    for (int64_t number = job->out->range[quad]; next_stage(job->weight, s, t.reads, &at, &stage); ++number) {
        memcpy(job->out->boxes + number * s->boxes, stage.first, (size_t)s->boxes * sizeof *stage.first);
        for (int v = 0; v < VECTORS; ++v)
            deal_vector(&t, &stage, v, number - job->out->range[quad],
                        job->out->images + (number * 2 + v / 2) * LAC_CHOOSE_IMAGE_BYTES);
    }
    for (int v = 0; v < VECTORS; ++v) put_vector(job, &t, quad, v);
    put_pieces(job, quad);
}

static lac_status run(tile_job *job, int64_t count, void (*work)(void *, int, int64_t))
{
    tile_scratch unused;
    int threads = lac_parallel_threads_for(0, count, job->weight->geometry.n * job->weight->geometry.k);
    job->scratch_bytes = lay_out_scratch(job->weight, NULL, &unused);
    job->scratch = lac_allocate((uint64_t)threads * job->scratch_bytes);
    if (!job->scratch) return lac_fail_memory("stages of the weight", (uint64_t)threads * job->scratch_bytes);
    lac_parallel_for_each(count, threads, work, job);
    lac_release(job->scratch);
    return LAC_STATUS_OK;
}

double lac_choose_count_stages(const lac_weight *weight, const lac_choose_shape *shape)
{
    int32_t counts[SAMPLED_QUADS + 1] = {0};
    int64_t looked_at = shape->quads < SAMPLED_QUADS ? shape->quads : SAMPLED_QUADS;
    lac_choose_tiled counted = {.range = counts};
    tile_job job = {.weight = weight, .shape = shape, .out = &counted, .quad_step = shape->quads / looked_at};
    tile_scratch t;
    job.scratch = lac_allocate(lay_out_scratch(weight, NULL, &t));
    if (!job.scratch) return -1.0;
    double total = 0.0;
    for (int64_t i = 0; i < looked_at; ++i) {
        count_job(&job, 0, i);
        total += counts[i + 1];
    }
    lac_release(job.scratch);
    return total / (double)looked_at;
}

lac_status lac_choose_tile(const lac_weight *weight, const lac_choose_shape *shape, lac_choose_tiled *out)
{
    tile_job job = {.weight = weight, .shape = shape, .out = out, .quad_step = 1};
    uint64_t quads = (uint64_t)shape->quads, outputs = quads * VECTORS * LAC_CHOOSE_OUTPUTS,
             bytes = (quads + 1) * sizeof *out->range;
    *out = (lac_choose_tiled){.range = lac_allocate_zeroed(bytes)};
    if (!out->range) return lac_fail_memory("stages of the weight", bytes);
    lac_status status = run(&job, shape->quads, count_job);
    for (int64_t q = 0; q < shape->quads; ++q) out->range[q + 1] += out->range[q];
    out->stage_count = out->range[shape->quads];
    uint64_t stages = (uint64_t)out->stage_count, image_bytes = stages * 2 * LAC_CHOOSE_IMAGE_BYTES;
    if (!status) {
        out->images = lac_allocate_zeroed(image_bytes);
        out->boxes = lac_allocate(stages * (uint64_t)shape->boxes * sizeof *out->boxes);
        out->output = lac_allocate(outputs * sizeof *out->output);
        out->piece = lac_allocate(quads * VECTORS * 2 * sizeof *out->piece);
        if (!out->images || !out->boxes || !out->output || !out->piece)
            status = lac_fail_memory("stages of the weight", image_bytes);
    }
    if (!status) status = run(&job, shape->quads, tile_quad);
    if (status) {
        lac_choose_tiled_release(out);
        *out = (lac_choose_tiled){0};
    }
    return status;
}

void lac_choose_tiled_release(lac_choose_tiled *tiled)
{
    lac_release(tiled->images);
    lac_release(tiled->boxes);
    lac_release(tiled->range);
    lac_release(tiled->output);
    lac_release(tiled->piece);
}
