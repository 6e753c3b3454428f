/* permute.c - kernels cpu_<unit>_f32_permute: the product of an N:M weight of small groups with 1 to 8 tokens. Rows lie along
 * the lanes, and a group of inputs stays in registers, from which indices pick: neither a gather nor a look at what was
 * dropped. So few tokens make reading W the whole cost: each thread reads its share of it once, front to back.
 *
 * Row by row every N:M family is element-wise: of M units of C inputs a row keeps N units, N C of M C inputs; a row of V:N:M
 * keeps N of M. What rows share is of no use here, where each has a lane: they all have indices of their own.
 *
 * Preparing writes, for strips of as many rows as the unit likes (permute_body.h),
 *
 *     values   [strip][group][slot][row of the strip]    in the weight's own dtype
 *     index    [strip][group][slot][bits an input's number in its group, as octets of rows]
 *
 * Rows past n and slots that a ragged last group lacks hold zeros; the latter point past k, where the packed x is zero.
 *
 * Workspace:  x [token][k, rounded up to whole groups and then a register's worth of groups] in fp32
 * Bottleneck: memory bandwidth. */
#include "cpu/permute.h"

#include "core/arithmetic.h"
#include "core/dtype.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"
#include "cpu/finish.h"
#include "cpu/kernels.h"
#include "cpu/panel.h"
#include "format/row.h"
#include "model/cpu.h"

/* Inputs that the registers of a group may reach beyond its first. */
enum { REACH = 64 };
/* Columns of x in a piece of packing. */
enum { PIECE_COLUMNS = 1024 };
/* When the tokens need several passes: bytes of weights that they all go over before the next ones are read. */
enum { CHUNK_BYTES = 16384 };

typedef struct permute_state {
    int64_t strips, groups;
    int64_t inputs, slots;          /* of a group: those there are and those a row keeps */
    int64_t value_step, index_step; /* bytes of a group of a strip                       */
    int bits;
    char *values;
    uint8_t *index;
} permute_state;

static int64_t group_inputs(const lac_geometry *g) { return g->group_m * g->unit_k; }

bool lac_cpu_permute_applies(const lac_problem *problem)
{
    const lac_cpu_unit *unit = problem->kernel->config;
    const lac_geometry *g = &problem->weight->geometry;
    return unit->is_supported() && !g->is_free && problem->m <= LAC_CPU_PERMUTE_TOKENS &&
           group_inputs(g) <= (int64_t)1 << unit->permute_bits;
}

static permute_state shape_of(const lac_problem *problem)
{
    const lac_cpu_unit *unit = problem->kernel->config;
    const lac_geometry *g = &problem->weight->geometry;
    const int64_t strip = unit->permute_strip, inputs = group_inputs(g), slots = g->slot_n * g->unit_k;
    int bits = 1;
    while ((int64_t)1 << bits < inputs) ++bits;
    return (permute_state){.strips = lac_ceil_divide(g->n, strip),
                           .groups = g->groups,
                           .inputs = inputs,
                           .slots = slots,
                           .value_step = slots * strip * (int64_t)lac_dtype_size(problem->weight->dtype),
                           .index_step = slots * strip * bits / 8,
                           .bits = bits};
}

/* ---- preparing */

typedef struct writer {
    const lac_weight *weight;
    const permute_state *state;
    int strip;           /* rows     */
    lac_row_room *rooms; /* [thread] */
} writer;

/* The index of row `row` of a strip in the octets of its slot, which hold zeros: its low four bits together, each further one in a plane. */
static void set_index(uint8_t *octets, int strip, int bits, int row, unsigned number)
{
    const int low = bits < 4 ? bits : 4, at = row % 8 * low;
    uint8_t *octet = octets + row / 8 * low + at / 8;
    const unsigned word = (number & ((1u << low) - 1)) << at % 8;
    octet[0] |= (uint8_t)word;
    if (word >> 8) octet[1] |= (uint8_t)(word >> 8);
    for (int i = low; i < bits; ++i) octets[i * strip / 8 + row / 8] |= (uint8_t)((number >> i & 1u) << row % 8);
}

static void write_strip(void *opaque, int thread, int64_t number)
{
    const writer *job = opaque;
    const lac_weight *w = job->weight;
    const lac_geometry *g = &w->geometry;
    const permute_state *s = job->state;
    const int64_t first = number * job->strip, index_step = job->strip * s->bits / 8; /* bytes of a slot */
    const int rows = (int)lac_smaller(job->strip, g->n - first);
    lac_row_room *room = &job->rooms[thread];
    lac_weight_row *row = &room->row;
    char *values = s->values + number * s->groups * s->value_step;
    for (int r = 0; r < rows; ++r) {
        const bool begins = r == 0 || (first + r) % g->unit_n == 0; /* a row group: its rows share what they read */
        lac_weight_decode_row(w, first + r, begins ? NULL : row, room->units, row);
        lac_store_run_f32(values, w->dtype, r, job->strip, row->count, row->values);
        uint8_t *index = s->index + number * s->groups * s->index_step;
        int64_t i = 0, begin = 0; /* of the group */
        for (int64_t group = 0; group < s->groups; ++group, begin += s->inputs)
            for (int64_t slot = 0; slot < s->slots; ++slot, ++i, index += index_step) {
                const int64_t column = i < row->count ? (int64_t)row->columns[i] : g->k;
                set_index(index, job->strip, s->bits, r, (unsigned)(column - begin));
            }
    }
}

lac_status lac_cpu_permute_prepare(const lac_problem *problem, void **out)
{
    const lac_weight *w = problem->weight;
    const lac_cpu_unit *unit = problem->kernel->config;
    const permute_state shape = shape_of(problem);
    const uint64_t steps = (uint64_t)(shape.strips * shape.groups);
    uint64_t value_bytes = steps * (uint64_t)shape.value_step;
    uint64_t index_bytes = steps * (uint64_t)shape.index_step + sizeof(uint64_t); /* octets are read by words */
    const int threads = lac_parallel_threads_for(problem->options.threads, shape.strips, w->kept);
    permute_state *s = lac_allocate(sizeof *s);
    lac_row_room *rooms = lac_row_rooms_make(w, threads);
    if (s) {
        *s = shape;
        s->values = lac_allocate_zeroed(value_bytes);
        s->index = lac_allocate_zeroed(index_bytes);
    }
    if (!s || !rooms || !s->values || !s->index) {
        lac_release(rooms);
        lac_cpu_permute_release(s);
        return lac_fail_memory("re-tiled weight", value_bytes + index_bytes);
    }
    writer job = {w, s, unit->permute_strip, rooms};
    lac_parallel_for_each(shape.strips, threads, write_strip, &job);
    lac_release(rooms);
    *out = s;
    return LAC_STATUS_OK;
}

void lac_cpu_permute_release(void *state)
{
    permute_state *s = state;
    if (!s) return;
    lac_release(s->values);
    lac_release(s->index);
    lac_release(s);
}

/* ---- executing */

/* Tokens of the next pass when so many are left, and over all passes: three are taken as four, one of them zeros. */
static int pass_tokens(int64_t left) { return left >= 3 ? 4 : (int)left; }
static int64_t padded_tokens(int64_t m) { return m % 4 == 3 ? m + 1 : m; }

static int64_t x_stride(const lac_problem *problem)
{
    const lac_geometry *g = &problem->weight->geometry;
    return (g->groups * group_inputs(g) + REACH + 15) / 16 * 16;
}

size_t lac_cpu_permute_workspace(const lac_problem *problem)
{
    return (size_t)(padded_tokens(problem->m) * x_stride(problem)) * sizeof(float);
}

/* Columns [begin, begin + PIECE_COLUMNS) of one token, zeros past k and for tokens past m. */
static void pack_piece(const lac_problem *problem, const lac_call *call, int64_t token, int64_t begin)
{
    const int64_t stride = x_stride(problem), k = token < problem->m ? problem->weight->geometry.k : 0;
    const int64_t end = lac_smaller(begin + PIECE_COLUMNS, stride), filled = lac_smaller(end, k);
    float *x = (float *)call->workspace + token * stride;
    if (begin < filled) lac_cpu_load_token(problem, call, token, begin, filled, x + begin);
    for (int64_t j = begin < filled ? filled : begin; j < end; ++j) x[j] = 0.0f;
}

static void multiply_strip(const lac_problem *problem, const permute_state *s, const lac_call *call, int64_t number)
{
    const lac_cpu_unit *unit = problem->kernel->config;
    const lac_geometry *g = &problem->weight->geometry;
    const int strip = unit->permute_strip;
    float sums[LAC_CPU_PERMUTE_TOKENS * LAC_CPU_PERMUTE_STRIP]; /* [token][row] */
    int64_t chunk = problem->m <= 4 ? s->groups : CHUNK_BYTES / s->value_step;
    if (chunk < 1) chunk = 1;
    int64_t first = 0;
    do { /* also when there are no groups: the sums are zeros then */
        lac_cpu_permute_call part = {.bits = s->bits,
                                     .slots = (int)s->slots,
                                     .inputs = (int)s->inputs,
                                     .dtype = problem->weight->dtype,
                                     .fresh = first == 0,
                                     .groups = lac_smaller(chunk, s->groups - first),
                                     .values = s->values + (number * s->groups + first) * s->value_step,
                                     .index = s->index + (number * s->groups + first) * s->index_step,
                                     .x_stride = x_stride(problem)};
        for (int64_t token = 0; token < problem->m; token += part.tokens) {
            part.tokens = pass_tokens(problem->m - token);
            part.x = (const float *)call->workspace + token * part.x_stride + first * s->inputs;
            part.sums = sums + token * strip;
            unit->permute(&part);
        }
        first += chunk;
    } while (first < s->groups);
    lac_cpu_panel all = {.first = 0, .tokens = problem->m, .tiles = 1, .tile = (int)problem->m};
    lac_cpu_tile result = {.first_row = number * strip,
                           .rows = (int)lac_smaller(strip, g->n - number * strip),
                           .first_token = 0,
                           .sums = sums,
                           .row_stride = 1,
                           .token_stride = strip};
    lac_cpu_finish_tile(unit, problem, call, &all, &result);
}

lac_status lac_cpu_permute_execute(const lac_problem *problem, const void *opaque, const lac_call *call)
{
    const permute_state *s = opaque;
    const int64_t columns = lac_ceil_divide(x_stride(problem), PIECE_COLUMNS), pieces = padded_tokens(problem->m) * columns;
    const int threads = problem->options.threads;
    (void)threads; /* unused without OpenMP */
    LAC_OMP(omp parallel num_threads(threads) if (threads > 1))
    {
        LAC_OMP(omp for schedule(static))
        for (int64_t piece = 0; piece < pieces; ++piece)
            pack_piece(problem, call, piece / columns, piece % columns * PIECE_COLUMNS);
        LAC_OMP(omp for schedule(static))
        for (int64_t strip = 0; strip < s->strips; ++strip) multiply_strip(problem, s, call, strip);
    }
    return LAC_STATUS_OK;
}

/* ---- what it would cost */

/* In loads' worth of time, fitted: a vector of weights with its indices, and picking for a token from 1, 2 and 4 registers;
 * an element of X packed and of Y finished. */
static const double DECODE = 2.0, PICK[] = {2.7, 4.0, 8.6}, PACK_X = 1.0, FINISH_Y = 4.0;

lac_cost lac_cpu_permute_cost(const lac_problem *problem)
{
    const lac_cpu_unit *unit = problem->kernel->config;
    const lac_weight *w = problem->weight;
    const lac_geometry *g = &w->geometry;
    const lac_plan_options *o = &problem->options;
    const permute_state shape = shape_of(problem);
    const double m = (double)problem->m, tokens = (double)padded_tokens(problem->m), strips = (double)shape.strips;
    const double steps = strips * (double)shape.groups,
                 vectors = steps * (double)shape.slots * unit->permute_strip / unit->lanes;
    const double passes = (double)lac_ceil_divide(problem->m, 4), x_bytes = tokens * (double)x_stride(problem) * sizeof(float);
    const int registers = shape.bits > 3 ? (1 << shape.bits) / unit->lanes : 1;
    const double pick = PICK[unit->lanes == 1 || registers <= 1 ? 0 : registers == 2 ? 1 : 2];
    const uint64_t l1 = problem->device->info.l1_bytes ? problem->device->info.l1_bytes : 32768;
    lac_cpu_work work = {.threads = o->threads, .lanes = unit->lanes, .reach = 0.9, .runs_ahead = true};
    work.bytes = steps * (double)(shape.value_step + shape.index_step) + m * (double)g->k * (double)lac_dtype_size(o->x_dtype) +
                 m * (double)g->n *
                     (2.0 * (double)lac_dtype_size(o->y_dtype) + (o->has_residual ? (double)lac_dtype_size(o->c_dtype) : 0.0));
    work.packing = m * (double)g->k * PACK_X + m * (double)g->n * FINISH_Y;
    work.fmas = vectors * tokens;
    work.loads = vectors * (passes * DECODE + tokens * pick);
    if (x_bytes > (double)l1) work.l2_bytes = strips * x_bytes;
    return lac_model_cpu_cost(&problem->device->info, &work);
}
