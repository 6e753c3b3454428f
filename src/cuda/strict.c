/* strict.c - cuda_f32_strict and cuda_f32_strict_dense: every product and sum in IEEE fp32 on CUDA cores. It takes the shape that
 * strict_shape.c chose, has strict_source.c and strict_tile.c re-tile the weight for it, and launches kernels/strict.cu, after
 * kernels/transpose.cu where X is not fp32 and feature-major. */
#include "cuda/strict.h"

#include "core/arithmetic.h"
#include "core/status.h"
#include "cuda/kernels/strict_arguments.h"
#include "cuda/plan.h"
#include "cuda/strict_shape.h"
#include "cuda/strict_source.h"
#include "format/weight.h"

enum { GROUP_M = 16, TRANSPOSE_TILE = 64, TRANSPOSE_THREADS = 256 };
/* The programs: strict.cu's is for rows of X at 16 bytes, as the transpose leaves them, or for rows anywhere. */
enum { TRANSPOSE, ALIGNED, ANY };
enum { RECORDS, COLUMNS, FIRST_STEP, ROW_MAP, PARTS };

typedef struct strict_state {
    lac_cuda_plan plan;
    lac_strict_shape shape;
    int steps;          /* of every block, or 0 when they differ */
    int blocks, stored; /* of outputs; outputs that the blocks hold, padding included */
} strict_state;

static bool is_dense(const lac_problem *problem) { return problem->kernel->config == &lac_cuda_strict_dense_flow; }

/* Whether the outputs of a block's rows must be looked up. */
static bool has_row_map(const lac_problem *problem, const lac_strict_facts *facts, const lac_strict_shape *shape)
{
    return problem->weight->part[LAC_PART_ROW_PERM].data || facts->vector % lac_strict_list_n(shape) != 0;
}

bool lac_cuda_strict_applies(const lac_problem *problem)
{
    lac_strict_facts facts = lac_strict_facts_of(problem, is_dense(problem));
    return problem->m > 0 && facts.rows > 0 && facts.k > 0 && lac_strict_choose(problem, &facts, NULL, NULL);
}

lac_cost lac_cuda_strict_cost(const lac_problem *problem)
{
    lac_strict_facts facts = lac_strict_facts_of(problem, is_dense(problem));
    lac_cost cost = {0};
    lac_strict_choose(problem, &facts, NULL, &cost);
    return cost;
}

size_t lac_cuda_strict_workspace(const lac_problem *problem)
{
    if (!lac_strict_transposes(problem)) return 0;
    return (size_t)problem->weight->k_in * (size_t)lac_strict_pitch(problem) * sizeof(float);
}

/* ---- programs */

static unsigned shared_of(const lac_strict_shape *s) { return lac_strict_stage_bytes(s) * (unsigned)s->stages; }

static void request_strict(const lac_problem *problem, const lac_strict_facts *facts, const lac_strict_shape *s, bool aligned,
                           lac_cuda_request *r)
{
    lac_cuda_request_begin(r, "strict.cu", "lac_strict");
    lac_cuda_request_define_problem(r, problem);
    lac_cuda_request_define(r, "LAC_ROW_MAP", has_row_map(problem, facts, s));
    lac_cuda_request_define(r, "LAC_LANES_N", s->lanes_n);
    lac_cuda_request_define(r, "LAC_THREAD_N", s->thread_n);
    lac_cuda_request_define(r, "LAC_THREAD_M", s->thread_m);
    lac_cuda_request_define(r, "LAC_WARPS_N", s->warps_n);
    lac_cuda_request_define(r, "LAC_WARPS_M", s->warps_m);
    lac_cuda_request_define(r, "LAC_BLOCKS_AT_ONCE", s->blocks_at_once);
    lac_cuda_request_define(r, "LAC_ROWWISE", s->rowwise);
    lac_cuda_request_define(r, "LAC_PACKED", s->packed);
    lac_cuda_request_define(r, "LAC_EVERY", s->every);
    lac_cuda_request_define(r, "LAC_UNEVEN", s->uneven);
    lac_cuda_request_define(r, "LAC_ROWS", s->rows);
    lac_cuda_request_define(r, "LAC_SLOTS", s->slots);
    lac_cuda_request_define(r, "LAC_STAGES", s->stages);
    lac_cuda_request_define(r, "LAC_SLICES", s->slices);
    lac_cuda_request_define(r, "LAC_SPLIT", s->split);
    lac_cuda_request_define(r, "LAC_UNROLL", lac_strict_unroll(s));
    lac_cuda_request_define(r, "LAC_X_ALIGNED", aligned);
    r->shared_bytes = shared_of(s);
}

/* The transpose first, then strict.cu for aligned X, then for any X: those of them that the problem needs. */
static lac_status requests(const lac_problem *problem, lac_cuda_request requests[LAC_CUDA_MOST_REQUESTS], int *count)
{
    lac_strict_facts facts = lac_strict_facts_of(problem, is_dense(problem));
    lac_strict_shape shape;
    if (!lac_strict_choose(problem, &facts, &shape, NULL))
        return lac_fail(LAC_STATUS_UNSUPPORTED, "kernel: no tile of strict.cu fits this device");
    facts = lac_strict_facts_for(&facts, &shape);
    *count = 0;
    if (lac_strict_transposes(problem)) {
        lac_cuda_request_begin(&requests[*count], "transpose.cu", "lac_transpose");
        lac_cuda_request_define(&requests[*count], "LAC_X_DTYPE", problem->options.x_dtype);
        lac_cuda_request_define(&requests[(*count)++], "LAC_X_TOKEN_MAJOR",
                                problem->options.x_layout == LAC_LAYOUT_TOKEN_MAJOR);
    }
    request_strict(problem, &facts, &shape, true, &requests[(*count)++]);
    if (!lac_strict_transposes(problem)) request_strict(problem, &facts, &shape, false, &requests[(*count)++]);
    return LAC_STATUS_OK;
}

const lac_cuda_flow lac_cuda_strict_flow = {requests}, lac_cuda_strict_dense_flow = {requests};

/* ---- preparing */

static lac_status upload(const lac_strict_tiled *t, const uint32_t *row_map, strict_state *state)
{
    const lac_strict_shape *s = &state->shape;
    uint64_t steps = (uint64_t)t->steps, entries = s->packed ? (uint64_t)s->rows : 1;
    const lac_cuda_part parts[PARTS] = {
        [RECORDS] = {"re-tiled weight", t->records, steps * lac_strict_record_bytes(s)},
        [COLUMNS] = {"columns of the weight", t->columns, (steps + LAC_STRICT_READ_AHEAD) * entries * sizeof *t->columns},
        [FIRST_STEP] = {"steps of the weight", t->first_step, ((uint64_t)t->blocks + 1) * sizeof *t->first_step},
        [ROW_MAP] = {"rows of the weight", row_map, (uint64_t)state->stored * sizeof *row_map},
    };
    state->blocks = (int)t->blocks;
    state->steps = (int)t->first_step[t->blocks > 0];
    for (int64_t b = 0; b < t->blocks; ++b)
        if (t->first_step[b + 1] - t->first_step[b] != (uint32_t)state->steps) state->steps = 0;
    return lac_cuda_plan_upload(&state->plan, parts, PARTS);
}

static lac_status prepare_weight(const lac_problem *problem, const lac_strict_facts *facts, strict_state *state)
{
    const int list_n = lac_strict_list_n(&state->shape);
    lac_strict_rows rows;
    lac_status status = lac_strict_rows_make(problem->weight, facts, list_n, is_dense(problem), &rows);
    if (status) return status;
    bool mapped = has_row_map(problem, facts, &state->shape);
    state->stored = mapped ? (int)(rows.source.vectors * list_n) : (int)facts->rows;
    lac_strict_tiled tiled;
    status = lac_strict_tile(&rows.source, &state->shape, &tiled);
    if (!status) {
        status = upload(&tiled, mapped ? rows.outputs : NULL, state);
        lac_strict_tiled_release(&tiled);
    }
    lac_strict_rows_release(&rows);
    return status;
}

lac_status lac_cuda_strict_prepare(const lac_problem *problem, void **out)
{
    strict_state *state = lac_cuda_plan_allocate(problem, sizeof *state);
    if (!state) return LAC_STATUS_OUT_OF_MEMORY;
    lac_strict_facts facts = lac_strict_facts_of(problem, is_dense(problem));
    const int *which = lac_strict_transposes(problem) ? (const int[]){TRANSPOSE, ALIGNED} : (const int[]){ALIGNED, ANY};
    lac_status status = LAC_STATUS_OK;
    if (!lac_strict_choose(problem, &facts, &state->shape, NULL))
        status = lac_fail(LAC_STATUS_UNSUPPORTED, "kernel: no tile of strict.cu fits this device");
    if (!status) facts = lac_strict_facts_for(&facts, &state->shape);
    if (!status) status = lac_cuda_plan_load(&state->plan, problem, which);
    if (!status) status = prepare_weight(problem, &facts, state);
    return lac_cuda_plan_finish(state, status, out);
}

/* ---- executing */

static lac_status launch_transpose(const lac_problem *problem, const strict_state *state, lac_gpu_call *call, void *stream)
{
    int64_t tiles = lac_ceil_divide(call->m, TRANSPOSE_TILE) * lac_ceil_divide(call->k, TRANSPOSE_TILE);
    lac_cuda_launch launch = {
        .function = state->plan.program[TRANSPOSE], .grid = {(unsigned)tiles, 1, 1}, .block = TRANSPOSE_THREADS};
    long long pitch = lac_strict_pitch(problem);
    lac_status status = lac_cuda_launch_on(problem->device, &launch, stream, (void *[]){call, &pitch});
    call->x = call->workspace;
    call->ldx = pitch;
    return status;
}

static bool is_aligned(const lac_gpu_call *call)
{
    return (uintptr_t)call->x % 16 == 0 && call->ldx % 4 == 0 && call->ldx < INT32_MAX / 4;
}

lac_status lac_cuda_strict_execute(const lac_problem *problem, const void *opaque, const lac_call *call)
{
    const strict_state *state = opaque;
    const lac_strict_shape *s = &state->shape;
    lac_gpu_call gpu_call;
    lac_status status = lac_cuda_call_make(problem, call, &gpu_call);
    if (!status && lac_strict_transposes(problem)) status = launch_transpose(problem, state, &gpu_call, call->stream);
    if (status) return status;
    int tiles_m = (int)lac_ceil_divide(problem->m, lac_strict_block_m(s));
    lac_strict_weight weight = {.records = state->plan.part[RECORDS],
                                .columns = state->plan.part[COLUMNS],
                                .first_step = state->plan.part[FIRST_STEP],
                                .row_map = state->plan.part[ROW_MAP],
                                .steps = state->steps,
                                .rows = state->stored,
                                .tiles_m = tiles_m,
                                .group_m = tiles_m < GROUP_M ? tiles_m : GROUP_M,
                                .blocks = state->blocks};
    bool aligned = lac_strict_transposes(problem) || is_aligned(&gpu_call);
    lac_cuda_launch launch = {.function = state->plan.program[aligned ? ALIGNED : ANY],
                              .grid = {(unsigned)tiles_m * (unsigned)state->blocks * (unsigned)s->split, 1, 1},
                              .block = (unsigned)lac_strict_threads(s),
                              .shared_bytes = shared_of(s),
                              .cluster = (unsigned)s->split};
    return lac_cuda_launch_on(problem->device, &launch, call->stream, (void *[]){&gpu_call, &weight});
}
