/* expand_few.c - cuda_f16_expand_few: up to 128 tokens in 16 bits on sm_90a, element-wise patterns that keep at most 8 of 32 inputs. Its shape,
 * cost, programs and launches; expand_few_tile.c cuts the weight. */
#include "cuda/expand_few.h"

#include <math.h>

#include "core/arithmetic.h"
#include "core/dtype.h"
#include "core/memory.h"
#include "cuda/kernels/expand_few_arguments.h"
#include "cuda/plan.h"
#include "format/weight.h"

enum { TABLE_BYTES = 65536, BARRIER_BYTES = 1024, MOST_STAGES = 8, LEAST_STAGES = 3, MOST_SPLIT = 8, MOST_WORDS = 4 };
enum { SUM_STRIDE = 132, GROUP_THREADS = 128, TURN_THREADS = 128 };
enum { PRODUCT, TURN, PROGRAMS }; /* the order of the requests */
enum { WEIGHT, ROW_PERM, PARTS };

typedef struct few_state {
    lac_cuda_plan plan;
    lac_cuda_launch turn, product;
    lac_few_weight weight; /* the parts, as the kernel takes them */
} few_state;

/* ---- shape and cost */

/* As fitted on an H200 with four words: both launches; a wave's table, first stages and sums; a chunk's spreading and, for each token, its products,
 * which do not hide behind it; both longer by up to a half when all multiprocessors are busy. */
static const double CALL_SECONDS = 3.0e-6, WAVE_SECONDS = 3.0e-6, SPREAD_SECONDS = 0.328e-6, TOKEN_SECONDS = 2.7e-9,
                    CROWD = 0.5;
static const double SPREAD_INSTRUCTIONS = 280.0; /* of a warp in a chunk, the rest of the loop among them */

/* The blocks of more than two of a cluster find room on nine tenths of the multiprocessors: see docs/kernels/spmv.md. */
static double blocks_at_once(const lac_gpu_rates *rates, const lac_few_shape *s)
{
    double all = rates->multiprocessors;
    return s->split > 2 ? fmax(1.0, floor(0.9 * all / s->split)) * s->split : all;
}

static double fitted_seconds(const lac_gpu_rates *rates, const lac_few_shape *s)
{
    double blocks = (double)s->tiles * s->split, at_once = blocks_at_once(rates, s), waves = ceil(blocks / at_once);
    double busy = fmin(blocks, at_once) / rates->multiprocessors, chunks = ceil((double)s->chunks / s->split);
    double chunk = (SPREAD_SECONDS + TOKEN_SECONDS * s->width) * (1.0 + CROWD * busy);
    return CALL_SECONDS + waves * (WAVE_SECONDS + chunks * chunk);
}

static lac_cost cost_of(const lac_problem *problem, const lac_few_shape *s)
{
    const lac_gpu_rates *rates = lac_cuda_rates_of(problem->device);
    const lac_plan_options *o = &problem->options;
    double m = (double)problem->m, k = (double)problem->weight->k_in, n = (double)problem->weight->n_out;
    double chunks = (double)s->tiles * (double)s->chunks, w_bytes = chunks * lac_few_chunk_bytes(s);
    double x_chunk = s->width * LAC_FEW_INPUTS * 2.0, sums = (double)s->tiles * LAC_FEW_ROWS * m * 4.0 * s->split;
    double y_bytes = m * n * (double)lac_dtype_size(o->y_dtype) * (o->has_residual ? 2 : 1);
    lac_gpu_work work = {.memory_bytes = w_bytes + m * k * 2.0 + y_bytes,
                         .l2_bytes = w_bytes + chunks * x_chunk,
                         .shared_bytes = 2.0 * w_bytes + chunks * (3.0 * x_chunk + LAC_FEW_ROWS * 4 * 64.0) + 2.0 * sums,
                         .instructions = chunks * LAC_FEW_WARPS * SPREAD_INSTRUCTIONS,
                         .mma_flops = chunks * 2.0 * LAC_FEW_ROWS * LAC_FEW_INPUTS * s->width,
                         .blocks = (double)s->tiles * s->split,
                         .blocks_at_once = blocks_at_once(rates, s),
                         .launches = 2,
                         .early = 2};
    /* What the levels do not explain is latency. */
    work.fill_seconds = fmax(0.0, fitted_seconds(rates, s) - lac_model_gpu_cost(rates, &work).seconds);
    return lac_model_gpu_cost(rates, &work);
}

/* Pairs of kept weights of a row in 32 inputs; 0: the kernel does not take the pattern. */
static int words_of(const lac_weight *w)
{
    const lac_geometry *g = &w->geometry;
    if (w->pattern.family != LAC_FAMILY_ELEMENT || g->is_free || LAC_FEW_SPAN % g->group_m) return 0;
    int64_t words = (g->group_n * (LAC_FEW_SPAN / g->group_m) + 1) / 2;
    return words <= MOST_WORDS ? (int)words : 0;
}

/* Tokens of a product: as few as hold them all, of those that wgmma.cuh has. */
static int width_of(int64_t m)
{
    static const int widths[] = {16, 32, 48, 64, 96, LAC_FEW_MOST_TOKENS};
    int i = 0;
    while (widths[i] < m) ++i;
    return widths[i];
}

bool lac_few_shape_make(const lac_problem *problem, lac_few_shape *out, lac_cost *cost)
{
    const lac_weight *w = problem->weight;
    const lac_cuda_target *target = lac_cuda_target_of(problem->device);
    lac_few_shape s = {.words = words_of(w)};
    if (!s.words || !lac_cuda_suits_wgmma(problem) || problem->m < 2 || problem->m > LAC_FEW_MOST_TOKENS ||
        w->part[LAC_PART_COL_PERM].data || w->geometry.n == 0 || problem->options.x_layout != LAC_LAYOUT_TOKEN_MAJOR)
        return false;
    s.width = width_of(problem->m);
    s.groups = s.width <= 64 ? 4 : 2; /* as many as registers allow */
    s.tiles = lac_ceil_divide(w->geometry.n, LAC_FEW_ROWS);
    s.chunks = lac_ceil_divide(w->geometry.k, LAC_FEW_INPUTS);
    unsigned stage = (unsigned)(s.width * LAC_FEW_INPUTS * 2 + lac_few_chunk_bytes(&s));
    unsigned sums = (unsigned)(s.groups / 2 * s.width * SUM_STRIDE * 4);
    unsigned least = LEAST_STAGES * stage > sums ? LEAST_STAGES * stage : sums;
    if (target->shared_per_block < TABLE_BYTES + BARRIER_BYTES + least || s.tiles > INT32_MAX / MOST_SPLIT ||
        s.chunks > INT32_MAX / LAC_FEW_MOST_TOKENS)
        return false;
    unsigned room = (target->shared_per_block - TABLE_BYTES - BARRIER_BYTES) / stage;
    s.stages = room < MOST_STAGES ? (int)room : MOST_STAGES;
    s.shared_bytes = TABLE_BYTES + ((unsigned)s.stages * stage > sums ? (unsigned)s.stages * stage : sums);
    bool found = false;
    int64_t most =
        lac_smaller(MOST_SPLIT, lac_smaller(s.chunks, target->multiprocessors)); /* a block has one of these to itself */
    for (s.split = 1; s.split == 1 || s.split <= most; ++s.split) {
        lac_cost now = cost_of(problem, &s);
        if (found && now.seconds >= cost->seconds) continue;
        *out = s;
        *cost = now;
        found = true;
    }
    return found;
}

bool lac_cuda_few_applies(const lac_problem *problem)
{
    lac_few_shape shape;
    lac_cost cost;
    return lac_few_shape_make(problem, &shape, &cost);
}

lac_cost lac_cuda_few_cost(const lac_problem *problem)
{
    lac_few_shape shape;
    lac_cost cost = {.seconds = 1e30, .bound = "memory"};
    lac_few_shape_make(problem, &shape, &cost);
    return cost;
}

static lac_status shape_for(const lac_problem *problem, lac_few_shape *shape)
{
    lac_cost cost;
    if (lac_few_shape_make(problem, shape, &cost)) return LAC_STATUS_OK;
    return lac_cuda_no_shape(problem);
}

/* ---- programs */

static void make_request(const lac_problem *problem, const lac_few_shape *s, int program, lac_cuda_request *r)
{
    lac_cuda_request_begin(r, "expand_few.cu", program == TURN ? "lac_few_turn" : "lac_expand_few");
    lac_cuda_request_define_problem(r, problem);
    lac_cuda_request_define(r, "LAC_TOKENS", problem->m);
    lac_cuda_request_define(r, "LAC_N", s->width);
    lac_cuda_request_define(r, "LAC_WORDS", s->words);
    lac_cuda_request_define(r, "LAC_GROUPS", s->groups);
    lac_cuda_request_define(r, "LAC_STAGES", s->stages);
    lac_cuda_request_define(r, "LAC_SPLIT", s->split);
}

static lac_status requests(const lac_problem *problem, lac_cuda_request requests[LAC_CUDA_MOST_REQUESTS], int *count)
{
    lac_few_shape shape;
    lac_status status = shape_for(problem, &shape);
    if (status) return status;
    for (int i = 0; i < PROGRAMS; ++i) make_request(problem, &shape, i, &requests[i]);
    requests[PRODUCT].shared_bytes = shape.shared_bytes;
    *count = PROGRAMS;
    return LAC_STATUS_OK;
}

const lac_cuda_flow lac_cuda_few_flow = {requests};

/* X in the order in which its inputs are multiplied. */
size_t lac_cuda_few_workspace(const lac_problem *problem)
{
    lac_few_shape s;
    lac_cost cost;
    if (!lac_few_shape_make(problem, &s, &cost)) return 0;
    return (size_t)s.chunks * (size_t)s.width * LAC_FEW_INPUTS * 2;
}

/* ---- preparing */

static lac_status prepare_state(const lac_problem *problem, const lac_few_shape *s, few_state *state)
{
    const lac_weight *w = problem->weight;
    const lac_span *rows = &w->part[LAC_PART_ROW_PERM];
    uint64_t bytes = (uint64_t)s->tiles * (uint64_t)s->chunks * (uint64_t)lac_few_chunk_bytes(s);
    uint8_t *cut = NULL;
    lac_status status = lac_cuda_plan_load(&state->plan, problem, NULL);
    if (!status) status = lac_few_tile(w, s, &cut);
    const lac_cuda_part parts[PARTS] = {
        [WEIGHT] = {"parts of the weight", bytes ? cut : NULL, bytes},
        [ROW_PERM] = {"row permutation", rows->data, rows->bytes},
    };
    if (!status) status = lac_cuda_plan_upload(&state->plan, parts, PARTS);
    lac_release(cut);
    state->weight = (lac_few_weight){.parts = state->plan.part[WEIGHT],
                                     .row_perm = state->plan.part[ROW_PERM],
                                     .rows = (int)w->geometry.n,
                                     .chunks = (int)s->chunks};
    state->product = (lac_cuda_launch){.function = state->plan.program[PRODUCT],
                                       .grid = {(unsigned)(s->tiles * s->split), 1, 1},
                                       .block = (unsigned)(s->groups * GROUP_THREADS),
                                       .shared_bytes = s->shared_bytes,
                                       .cluster = (unsigned)s->split,
                                       .early = true};
    unsigned tasks = (unsigned)(s->chunks * s->width * 4); /* of a token and eight inputs four times */
    state->turn = (lac_cuda_launch){.function = state->plan.program[TURN],
                                    .grid = {(tasks + TURN_THREADS - 1) / TURN_THREADS, 1, 1},
                                    .block = TURN_THREADS,
                                    .early = true};
    return status;
}

lac_status lac_cuda_few_prepare(const lac_problem *problem, void **out)
{
    lac_few_shape shape;
    lac_status status = shape_for(problem, &shape);
    if (status) return status;
    few_state *state = lac_cuda_plan_allocate(problem, sizeof *state);
    if (!state) return LAC_STATUS_OUT_OF_MEMORY;
    return lac_cuda_plan_finish(state, prepare_state(problem, &shape, state), out);
}

/* ---- executing */

lac_status lac_cuda_few_execute(const lac_problem *problem, const void *opaque, const lac_call *call)
{
    const few_state *state = opaque;
    lac_gpu_call gpu_call;
    lac_status status = lac_cuda_call_make(problem, call, &gpu_call);
    if (status) return status;
    lac_few_weight weight = state->weight;
    void *parameters[] = {&gpu_call, &weight};
    if (state->turn.grid[0]) status = lac_cuda_launch_on(problem->device, &state->turn, call->stream, parameters);
    if (!status) status = lac_cuda_launch_on(problem->device, &state->product, call->stream, parameters);
    return status;
}
