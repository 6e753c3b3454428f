/* vector_select.c - cuda_spmv_select: up to 32 tokens in 16 bits, where rows share their inputs, keep two of four, or at most 8 of 32. Shapes come
 * from vector_select_shape.c, the cut weight from vector_select_tile.c; here they are costed, compiled, uploaded and launched. */
#include "cuda/vector_select.h"

#include <math.h>

#include "core/dtype.h"
#include "cuda/kernels/vector_select_arguments.h"
#include "cuda/plan.h"
#include "cuda/vector_select_tile.h"
#include "format/weight.h"

enum { BATCHES, BEGIN, MORE_BEGIN, MORE, ROW_PERM, COL_PERM, PARTS };

typedef struct select_state {
    lac_cuda_plan plan;
    lac_cuda_launch launch;
    lac_select_weight weight; /* the parts, as the kernel takes them */
} select_state;

bool lac_cuda_select_applies(const lac_problem *problem)
{
    lac_select_shape shape;
    return lac_select_shape_make(problem, &shape);
}

static lac_status shape_for(const lac_problem *problem, lac_select_shape *shape)
{
    if (lac_select_shape_make(problem, shape)) return LAC_STATUS_OK;
    return lac_cuda_no_shape(problem);
}

static void make_request(const lac_problem *problem, const lac_select_shape *s, lac_cuda_request *r)
{
    lac_cuda_request_begin(r, "vector_select.cu", "lac_vector_select");
    lac_cuda_request_define_problem(r, problem);
    lac_cuda_request_define(r, "LAC_HAS_COL_PERM", problem->weight->part[LAC_PART_COL_PERM].data != NULL);
    lac_cuda_request_define(r, "LAC_TOKENS", s->tokens);
    lac_cuda_request_define(r, "LAC_UNIT_ROWS", s->unit_rows);
    lac_cuda_request_define(r, "LAC_SPARSE", s->sparse);
    lac_cuda_request_define(r, "LAC_PACKED", s->packed);
    lac_cuda_request_define(r, "LAC_ALL_INPUTS", s->all_inputs);
    lac_cuda_request_define(r, "LAC_BATCH", s->batch);
    lac_cuda_request_define(r, "LAC_ROW_WARPS", s->row_warps);
    lac_cuda_request_define(r, "LAC_K_WARPS", s->k_warps);
    lac_cuda_request_define(r, "LAC_SPLIT", s->split);
    lac_cuda_request_define(r, "LAC_RING", s->ring);
    lac_cuda_request_define(r, "LAC_RING_FIRST", s->ring_first);
    lac_cuda_request_define(r, "LAC_X_WARPS", s->x_warps);
    lac_cuda_request_define(r, "LAC_X_RING", s->x_ring);
    lac_cuda_request_define(r, "LAC_X_STRIPS", s->x_strips);
    lac_cuda_request_define(r, "LAC_EARLY", s->early);
    lac_cuda_request_define(r, "LAC_CHUNK_INPUTS", s->chunk_inputs);
    lac_cuda_request_define(r, "LAC_CHUNK_BATCHES", s->chunk_batches);
}

static lac_status select_requests(const lac_problem *problem, lac_cuda_request requests[LAC_CUDA_MOST_REQUESTS], int *count)
{
    lac_select_shape shape;
    lac_status status = shape_for(problem, &shape);
    if (status) return status;
    make_request(problem, &shape, &requests[0]);
    requests[0].shared_bytes = shape.shared_bytes;
    *count = 1;
    return LAC_STATUS_OK;
}

const lac_cuda_flow lac_cuda_select_flow = {select_requests};

/* ---- cost */

static const double SPREAD_INSTRUCTIONS = 54.0; /* of a step, packed: 43 for each of four rows in four steps */

static double tiles_of(const lac_select_shape *s) { return (double)((s->units + s->row_warps - 1) / s->row_warps); }

lac_cost lac_cuda_select_cost(const lac_problem *problem)
{
    const lac_weight *w = problem->weight;
    const lac_plan_options *o = &problem->options;
    const lac_gpu_rates *rates = lac_cuda_rates_of(problem->device);
    lac_select_shape s;
    if (!lac_select_shape_make(problem, &s)) return (lac_cost){.seconds = 1e30, .bound = "memory"};
    double batches = lac_select_batches(w, &s), steps = batches * s.batch, tiles = tiles_of(&s), blocks = tiles * s.split;
    double token_tiles = (s.tokens + 7) / 8, mmas = s.unit_rows / 16 * (s.sparse ? 1 : 2) * token_tiles, m = (double)problem->m;
    double weight_bytes = batches * s.batch_bytes, x_bytes = m * (double)w->geometry.k * 2.0;
    double y_bytes = m * (double)w->geometry.n * (double)lac_dtype_size(o->y_dtype) * (o->has_residual ? 2 : 1);
    double x_copies = tiles * (double)w->geometry.k * token_tiles * 16.0;
    double sums = (double)s.units * s.unit_rows * m * 4.0 * s.split * s.k_warps;
    double conflicts = s.all_inputs || s.packed ? 1.0 : 1.3;
    lac_gpu_work work = {.memory_bytes = weight_bytes + x_bytes + y_bytes,
                         .l2_bytes = weight_bytes + x_copies,
                         .shared_bytes = steps * 512.0 * token_tiles * conflicts + x_copies + 2.0 * sums,
                         .instructions = steps * (mmas + token_tiles + (s.packed ? SPREAD_INSTRUCTIONS : 8.0)) +
                                         (x_copies + 4.0 * sums) / 256.0,
                         .mma_flops = steps * mmas * 2.0 * 16 * 8 * (s.sparse ? 32 : 16) / (s.sparse ? 0.86 : 0.6),
                         .blocks = blocks,
                         .blocks_at_once = blocks,
                         .launches = 1};
    /* The counts say what bounds it; how long it takes, with what overlaps, was fitted where the work is shared out. */
    lac_cost cost = lac_model_gpu_cost(rates, &work);
    cost.seconds = fmax(s.seconds, cost.ceiling);
    return cost;
}

/* ---- preparing */

static lac_status upload_weight(select_state *state, const lac_weight *w, const lac_select_shape *s,
                                const lac_select_tiled *tiled)
{
    const lac_span *rows = &w->part[LAC_PART_ROW_PERM], *cols = &w->part[LAC_PART_COL_PERM];
    uint64_t chunks = (uint64_t)s->units * (uint64_t)s->chunks;
    uint64_t bytes = (uint64_t)(tiled->batch_count + tiled->more_count) * (uint64_t)s->batch_bytes;
    const lac_cuda_part parts[PARTS] = {
        [BATCHES] = {"re-tiled weight", bytes ? tiled->batches : NULL, bytes},
        [BEGIN] = {"chunks of the weight", tiled->begin, (chunks + 1) * 4},
        [MORE_BEGIN] = {"chunks of the weight", tiled->more_begin, (chunks + 1) * 4},
        [MORE] = {"chunks of the weight", tiled->more_count ? tiled->more : NULL, (uint64_t)tiled->more_count * 4},
        [ROW_PERM] = {"row permutation", rows->data, rows->bytes},
        [COL_PERM] = {"column permutation", cols->data, cols->bytes},
    };
    lac_status status = lac_cuda_plan_upload(&state->plan, parts, PARTS);
    state->weight = (lac_select_weight){.batches = state->plan.part[BATCHES],
                                        .begin = state->plan.part[BEGIN],
                                        .more = state->plan.part[MORE],
                                        .more_begin = state->plan.part[MORE_BEGIN],
                                        .batch_count = tiled->batch_count,
                                        .row_perm = state->plan.part[ROW_PERM],
                                        .col_perm = state->plan.part[COL_PERM],
                                        .chunks = s->chunks,
                                        .rows = (int)w->geometry.n,
                                        .cols = (int)w->geometry.k};
    return status;
}

static lac_status prepare_state(const lac_problem *problem, const lac_select_shape *s, select_state *state)
{
    lac_status status = lac_cuda_plan_load(&state->plan, problem, NULL);
    lac_select_tiled tiled = {0};
    if (!status) status = lac_select_tile(problem->weight, s, &tiled);
    if (!status) status = upload_weight(state, problem->weight, s, &tiled);
    lac_select_tiled_release(&tiled);
    state->launch = (lac_cuda_launch){.function = state->plan.program[0],
                                      .grid = {(unsigned)(tiles_of(s) * s->split), 1, 1},
                                      .block = (unsigned)(32 * (s->row_warps * s->k_warps + s->x_warps)),
                                      .shared_bytes = s->shared_bytes,
                                      .cluster = (unsigned)s->split,
                                      .early = s->early};
    return status;
}

lac_status lac_cuda_select_prepare(const lac_problem *problem, void **out)
{
    lac_select_shape shape;
    lac_status status = shape_for(problem, &shape);
    if (status) return status;
    select_state *state = lac_cuda_plan_allocate(problem, sizeof *state);
    if (!state) return LAC_STATUS_OUT_OF_MEMORY;
    return lac_cuda_plan_finish(state, prepare_state(problem, &shape, state), out);
}

/* ---- executing */

lac_status lac_cuda_select_execute(const lac_problem *problem, const void *opaque, const lac_call *call)
{
    const select_state *state = opaque;
    lac_gpu_call gpu_call;
    lac_status status = lac_cuda_call_make(problem, call, &gpu_call);
    if (status) return status;
    lac_select_weight weight = state->weight;
    return lac_cuda_launch_on(problem->device, &state->launch, call->stream, (void *[]){&gpu_call, &weight});
}
