/* slide_tile.c - cuts a weight into streams of steps for kernels/slide.cu: in which order a vector reads its inputs, so that
 * the rows of X which are read together lie in different banks, and the weights as fragments of mma.sync.
 *
 * Eight rows are read together; those that differ in their last three bits do not collide. All inputs in the ring may be
 * chosen from, so a residue of which there are many here is put off until there are fewer. */
#include "cuda/slide_tile.h"

#include <string.h>

#include "core/arithmetic.h"
#include "core/dtype.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"
#include "cuda/vector_rows.h"
#include "format/row.h"

enum { RESIDUES = LAC_SLIDE_RESIDUES, SLOTS = LAC_SLIDE_SLOTS, CHUNK = LAC_SLIDE_CHUNK };

/* ---- which inputs, in which slots */

/* The inputs that are left: for each residue the first one, as a place in the list, ascending. */
typedef struct dealer {
    const lac_slide_shape *shape;
    const uint32_t *inputs;
    int64_t count, left;
    int64_t head[RESIDUES]; /* `count`: none left */
} dealer;

static int64_t next_of(const dealer *d, int64_t from, uint32_t residue)
{
    while (from < d->count && d->inputs[from] % RESIDUES != residue) ++from;
    return from;
}

static int64_t first_left(const dealer *d)
{
    int64_t first = d->count;
    for (int r = 0; r < RESIDUES; ++r)
        if (d->head[r] < first) first = d->head[r];
    return first;
}

/* Rows of one residue that have to be read one after the other for eight slots to be filled from inputs below `limit`. */
static int layers_of(const dealer *d, int64_t limit)
{
    int within[RESIDUES] = {0}, all = 0; /* how many of each there are, up to eight */
    for (int r = 0; r < RESIDUES; ++r) {
        int64_t at = d->head[r];
        for (; within[r] < RESIDUES && at < d->count && d->inputs[at] < limit; at = next_of(d, at + 1, (uint32_t)r))
            ++within[r];
        all += within[r];
    }
    for (int layers = 1;; ++layers) {
        int filled = 0;
        for (int r = 0; r < RESIDUES; ++r) filled += within[r] < layers ? within[r] : layers;
        if (filled >= RESIDUES || filled == all) return layers;
    }
}

/* Eight slots from inputs below `limit`, the oldest first, no residue more often than it must be. */
static void deal_eight(dealer *d, int64_t limit, int32_t slots[RESIDUES])
{
    int taken[RESIDUES] = {0}, layers = layers_of(d, limit);
    for (int i = 0; i < RESIDUES; ++i) {
        int best = -1;
        for (int r = 0; r < RESIDUES; ++r)
            if (taken[r] < layers && d->head[r] < d->count && d->inputs[d->head[r]] < limit &&
                (best < 0 || d->head[r] < d->head[best]))
                best = r;
        slots[i] = -1;
        if (best < 0) continue;
        slots[i] = (int32_t)d->head[best];
        ++taken[best];
        d->head[best] = next_of(d, d->head[best] + 1, (uint32_t)best);
        --d->left;
    }
}

/* Where row `row`, counted from the part's first chunk, lies in the ring. */
static uint32_t place_of(const lac_slide_shape *s, int64_t row)
{
    int64_t chunk = row / CHUNK % s->ring, within = row % CHUNK;
    return (uint32_t)(chunk * lac_slide_chunk_bytes(s) + within * 128 + within % RESIDUES * 16);
}

/* The entries of eight slots. Slots without an input read rows of chunk `spare`, of residues that nobody else has. */
static void place_eight(const dealer *d, const int32_t *slots, int64_t spare, uint32_t *index)
{
    bool used[RESIDUES] = {false};
    int residue = 0;
    for (int i = 0; i < RESIDUES; ++i)
        if (slots[i] >= 0) {
            index[i] = place_of(d->shape, d->inputs[slots[i]]);
            used[d->inputs[slots[i]] % RESIDUES] = true;
        }
    for (int i = 0; i < RESIDUES; ++i)
        if (slots[i] < 0) {
            while (residue < RESIDUES - 1 && used[residue]) ++residue;
            index[i] = place_of(d->shape, spare * CHUNK + residue);
            used[residue] = true;
        }
}

/* One batch. `held`: chunks before it have been given back when its first rows are loaded; `first`: its oldest chunk. */
static void deal_batch(dealer *d, int64_t held, int64_t first, int64_t *last, lac_slide_stream *stream)
{
    const lac_slide_shape *s = d->shape;
    int64_t most = held + s->ring;
    *last = first;
    for (int eight = 0; eight < s->batch * SLOTS / RESIDUES; ++eight) {
        int32_t slots[RESIDUES];
        uint32_t index[RESIDUES];
        int64_t from = d->left > 0 ? (int64_t)d->inputs[first_left(d)] / CHUNK : first, limit = from + s->horizon;
        deal_eight(d, (limit < most ? limit : most) * CHUNK, slots);
        for (int i = 0; i < RESIDUES; ++i)
            if (slots[i] >= 0 && d->inputs[slots[i]] / CHUNK > *last) *last = d->inputs[slots[i]] / CHUNK;
        place_eight(d, slots, first, index);
        int64_t at = stream->steps * SLOTS + eight * RESIDUES;
        if (stream->slots) memcpy(stream->slots + at, slots, sizeof slots);
        if (stream->index) memcpy(stream->index + at, index, sizeof index);
    }
}

void lac_slide_deal(const lac_slide_shape *shape, const uint32_t *inputs, int64_t count, lac_slide_stream *stream)
{
    dealer d = {.shape = shape, .inputs = inputs, .count = count, .left = count};
    for (int r = 0; r < RESIDUES; ++r) d.head[r] = next_of(&d, 0, (uint32_t)r);
    /* Chunks before `low` are given back after the batch before this one, which is too late for what this one waits for: its
     * first rows are loaded during that batch. Then only those before `held` have been. */
    int64_t held = 0, low = 0, ready = 0;
    stream->steps = 0;
    while (d.left > 0) {
        int64_t oldest = inputs[first_left(&d)] / CHUNK, last, most = held + shape->ring;
        int64_t first = oldest < most ? oldest : most - 1;
        deal_batch(&d, held, first, &last, stream);
        held = low;
        low = d.left > 0 ? (int64_t)inputs[first_left(&d)] / CHUNK : first;
        if (low > last) low = last; /* nothing is given back before it has come */
        uint32_t wait = last + 1 > ready ? (uint32_t)(last + 1 - ready) : 0, give = (uint32_t)(low - held);
        ready += wait;
        for (int i = 0; stream->index && i < SLOTS; ++i) stream->index[stream->steps * SLOTS + i] |= wait << 18 | give << 25;
        stream->steps += shape->batch;
    }
}

/* ---- fragments */

/* Words of four lanes' worth: lane 4g + q has of eight outputs number g, of slots 2q and 2q + 1, then those 8 further; four
 * words of a lane stand together, as many as are left in the end. */
int64_t lac_slide_value_at(const lac_slide_shape *shape, int row, int slot)
{
    int words = shape->width / 4, word = row / 8 * 2 + slot / 8, lane = row % 8 * 4 + slot % 8 / 2, four = word / 4;
    int together = words - four * 4 < 4 ? words - four * 4 : 4;
    return four * 512 + lane * together * 4 + word % 4 * 4 + slot % 2 * 2;
}

/* What a thread works with. */
typedef struct tile_scratch {
    uint32_t *units;   /* [selected]                                                        */
    uint32_t *columns; /* [row capacity]                                                    */
    float *values;     /* [row capacity]                                                    */
    uint32_t *inputs;  /* [k] columns of X that a vector reads, ascending                   */
    uint32_t *stored;  /* [k_in] the stored column that reads a column of X; NOBODY         */
    int32_t *place;    /* [k] of a stored column: its slot, counted from the vector's first */
    int32_t *slots;    /* [most steps of a stream][16], when these have been counted        */
} tile_scratch;
#define NOBODY UINT32_MAX

typedef struct tile_job {
    const lac_weight *weight;
    const lac_slide_shape *shape;
    lac_slide_tiled *out;
    char *scratch;
    uint64_t scratch_bytes; /* of a thread                                                      */
    bool fills;             /* false: counts the steps of each stream into first[stream + 1]     */
    int64_t most_steps;     /* of a stream, once they are counted                                */
} tile_job;

static uint64_t rounded_up(uint64_t bytes) { return (bytes / 64 + 1) * 64; }

static uint64_t lay_out_scratch(const lac_weight *w, int64_t most_steps, char *block, tile_scratch *out)
{
    uint64_t k = (uint64_t)w->geometry.k, row = (uint64_t)lac_weight_row_capacity(w);
    uint64_t bytes[] = {(uint64_t)w->geometry.selected * 4, row * 4, row * 4, k * 4, (uint64_t)w->k_in * 4, k * 4,
                        (uint64_t)most_steps * SLOTS * 4};
    char *at[7];
    uint64_t total = 0;
    for (int i = 0; i < 7; ++i) {
        at[i] = block ? block + total : NULL;
        total += rounded_up(bytes[i]);
    }
    *out =
        (tile_scratch){(void *)at[0], (void *)at[1], (void *)at[2], (void *)at[3], (void *)at[4], (void *)at[5], (void *)at[6]};
    return total;
}

/* ---- vectors */

static lac_vector_rows rows_of(const lac_geometry *g, const lac_slide_shape *s, int64_t vector)
{
    return lac_vector_rows_of(g, (lac_vector_cut){s->vectors, s->pieces, s->rows}, vector);
}

/* The columns of X that a row group reads, ascending. */
static int64_t list_inputs(const lac_weight *w, int64_t group, tile_scratch *t)
{
    const lac_geometry *g = &w->geometry;
    const uint32_t *col_perm = w->part[LAC_PART_COL_PERM].data;
    int64_t units = lac_weight_units(w, group, t->units), count = 0;
    memset(t->stored, 0xff, (size_t)w->k_in * sizeof *t->stored);
    for (int64_t i = 0; i < units; ++i)
        for (int64_t j = 0; j < lac_geometry_inputs(g, t->units[i]); ++j) {
            uint32_t column = (uint32_t)(t->units[i] * g->unit_k + j);
            t->stored[col_perm ? col_perm[column] : column] = column;
        }
    for (int64_t i = 0; i < w->k_in; ++i)
        if (t->stored[i] != NOBODY) t->inputs[count++] = (uint32_t)i;
    return count;
}

/* Deals the inputs of a vector out, part by part: into the index, and into t->place. */
static void deal_vector(const tile_job *job, tile_scratch *t, int64_t vector, int64_t count)
{
    const lac_slide_shape *s = job->shape;
    int32_t *first = job->out->first + vector * s->parts;
    int64_t at = 0;
    for (int part = 0; part < s->parts; ++part) {
        int64_t origin = lac_slide_first_chunk(s, part) * CHUNK, end = lac_slide_first_chunk(s, part + 1) * CHUNK, begin = at;
        for (; at < count && t->inputs[at] < end; ++at) t->inputs[at] -= (uint32_t)origin;
        lac_slide_stream stream = {0};
        if (job->fills) stream = (lac_slide_stream){t->slots, job->out->index + (int64_t)first[part] * SLOTS, 0};
        lac_slide_deal(s, t->inputs + begin, at - begin, &stream);
        if (!job->fills) first[part + 1] = (int32_t)stream.steps;
        for (int64_t i = 0; job->fills && i < stream.steps * SLOTS; ++i)
            if (t->slots[i] >= 0)
                t->place[t->stored[t->inputs[begin + t->slots[i]] + origin]] = (int32_t)((first[part] - first[0]) * SLOTS + i);
    }
}

static void put_row(const tile_job *job, const tile_scratch *t, const lac_weight_row *row, int r, uint8_t *steps)
{
    int64_t bytes = lac_slide_step_bytes(job->shape);
    for (int64_t i = 0; i < row->count; ++i) {
        int32_t place = t->place[row->columns[i]];
        uint16_t bits = job->weight->dtype == LAC_DTYPE_BF16 ? lac_f32_to_bf16(row->values[i]) : lac_f32_to_f16(row->values[i]);
        memcpy(steps + place / SLOTS * bytes + lac_slide_value_at(job->shape, r, place % SLOTS), &bits, sizeof bits);
    }
}

static void tile_vector(void *state, int thread, int64_t vector)
{
    const tile_job *job = state;
    const lac_weight *w = job->weight;
    const lac_slide_shape *s = job->shape;
    const uint32_t *row_perm = w->part[LAC_PART_ROW_PERM].data;
    tile_scratch t;
    lay_out_scratch(w, job->most_steps, job->scratch + (uint64_t)thread * job->scratch_bytes, &t);
    lac_vector_rows rows = rows_of(&w->geometry, s, vector);
    deal_vector(job, &t, vector, rows.count ? list_inputs(w, rows.group, &t) : 0);
    if (!job->fills) return;
    uint8_t *steps = job->out->weight + job->out->first[vector * s->parts] * lac_slide_step_bytes(s);
    for (int r = 0; r < s->width; ++r) {
        int32_t *output = &job->out->output[vector * s->width + r];
        *output = -1;
        if (r >= rows.count) continue;
        *output = (int32_t)(row_perm ? row_perm[rows.first + r] : rows.first + r);
        lac_weight_row row = {t.values, t.columns, 0};
        lac_weight_decode_row(w, rows.first + r, NULL, t.units, &row);
        put_row(job, &t, &row, r, steps);
    }
}

/* ---- the whole weight */

static lac_status allocate_steps(const lac_slide_shape *s, lac_slide_tiled *out, int64_t *most_steps)
{
    for (int64_t i = 0; i < out->streams; ++i) {
        *most_steps = lac_larger(*most_steps, out->first[i + 1]);
        out->step_count += out->first[i + 1];
        if (out->step_count > INT32_MAX) return lac_fail(LAC_STATUS_UNSUPPORTED, "the weight has more than 2^31 - 1 steps");
        out->first[i + 1] = (int32_t)out->step_count;
    }
    uint64_t steps = (uint64_t)out->step_count + LAC_SLIDE_DEPTH, bytes = steps * (uint64_t)lac_slide_step_bytes(s);
    out->weight = lac_allocate_zeroed(bytes);
    out->index = lac_allocate_zeroed(steps * SLOTS * sizeof *out->index);
    return out->weight && out->index ? LAC_STATUS_OK : lac_fail_memory("steps of the weight", bytes);
}

/* All vectors, counted or filled. */
static lac_status run(tile_job *job)
{
    int64_t vectors = job->shape->output_tiles * LAC_SLIDE_WARPS;
    int threads = lac_parallel_threads_for(0, vectors, job->weight->geometry.n * job->weight->geometry.k);
    tile_scratch unused;
    job->scratch_bytes = lay_out_scratch(job->weight, job->most_steps, NULL, &unused);
    job->scratch = lac_allocate((uint64_t)threads * job->scratch_bytes);
    if (!job->scratch) return lac_fail_memory("streams of the weight", (uint64_t)threads * job->scratch_bytes);
    lac_parallel_for_each(vectors, threads, tile_vector, job);
    lac_release(job->scratch);
    return LAC_STATUS_OK;
}

lac_status lac_slide_tile(const lac_weight *weight, const lac_slide_shape *shape, lac_slide_tiled *out)
{
    int64_t vectors = shape->output_tiles * LAC_SLIDE_WARPS;
    *out = (lac_slide_tiled){.streams = vectors * shape->parts, .outputs = vectors * shape->width};
    tile_job job = {.weight = weight, .shape = shape, .out = out};
    out->first = lac_allocate_zeroed((uint64_t)(out->streams + 1) * sizeof *out->first);
    out->output = lac_allocate((uint64_t)out->outputs * sizeof *out->output);
    lac_status status = LAC_STATUS_OK;
    if (!out->first || !out->output)
        status = lac_fail_memory("streams of the weight", (uint64_t)out->outputs * sizeof *out->output);
    if (!status) status = run(&job);
    if (!status) status = allocate_steps(shape, out, &job.most_steps);
    job.fills = true;
    if (!status) status = run(&job);
    if (status) {
        lac_slide_tiled_release(out);
        *out = (lac_slide_tiled){0};
    }
    return status;
}

void lac_slide_tiled_release(lac_slide_tiled *tiled)
{
    lac_release(tiled->weight);
    lac_release(tiled->index);
    lac_release(tiled->first);
    lac_release(tiled->output);
}
