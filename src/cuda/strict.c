/* strict.c - cuda_f32_strict and cuda_f32_strict_dense: every product and sum in IEEE fp32 on CUDA cores. It takes the shape that
 * strict_shape.c chose, has strict_source.c and strict_tile.c re-tile the weight for it, and launches kernels/strict.cu, after
 * kernels/transpose.cu where X is not fp32 and feature-major. */
#include "cuda/strict.h"

#include "core/arithmetic.h"
#include "core/memory.h"
#include "core/status.h"
#include "cuda/kernels/strict_arguments.h"
#include "cuda/runtime.h"
#include "cuda/strict_shape.h"
#include "cuda/strict_source.h"
#include "format/weight.h"

enum { GROUP_M = 16, TRANSPOSE_TILE = 64, TRANSPOSE_THREADS = 256 };

typedef struct strict_state {
    const lac_device *device; /* the plan holds it */
    lac_strict_shape shape;
    lac_cu_function transpose; /* where X goes through it                        */
    lac_cu_function aligned;   /* rows of X at 16 bytes                          */
    lac_cu_function any;       /* rows of X anywhere; not after transpose        */
    lac_cu_pointer records, columns, first_step, row_map;
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
}

/* The transpose first, then strict.cu for aligned X, then for any X: those of them that the problem needs. */
static lac_status make_requests(const lac_problem *problem, bool dense, lac_cuda_request requests[LAC_CUDA_MOST_REQUESTS],
                                int *count)
{
    lac_strict_facts facts = lac_strict_facts_of(problem, dense);
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

static lac_status requests_sparse(const lac_problem *problem, lac_cuda_request requests[LAC_CUDA_MOST_REQUESTS], int *count)
{
    return make_requests(problem, false, requests, count);
}

static lac_status requests_dense(const lac_problem *problem, lac_cuda_request requests[LAC_CUDA_MOST_REQUESTS], int *count)
{
    return make_requests(problem, true, requests, count);
}

const lac_cuda_flow lac_cuda_strict_flow = {requests_sparse}, lac_cuda_strict_dense_flow = {requests_dense};

static lac_status load_programs(const lac_problem *problem, strict_state *state)
{
    lac_cuda_request requests[LAC_CUDA_MOST_REQUESTS];
    int count = 0, next = 0;
    lac_status status = make_requests(problem, is_dense(problem), requests, &count);
    unsigned shared = lac_strict_stage_bytes(&state->shape) * (unsigned)state->shape.stages;
    if (!status && lac_strict_transposes(problem))
        status = lac_cuda_program_get(problem->device, &requests[next++], 0, &state->transpose);
    if (!status) status = lac_cuda_program_get(problem->device, &requests[next++], shared, &state->aligned);
    if (!status && next < count) status = lac_cuda_program_get(problem->device, &requests[next], shared, &state->any);
    return status;
}

/* ---- preparing */

static lac_status upload(const lac_device *device, const lac_strict_tiled *t, const lac_strict_shape *shape,
                         strict_state *state)
{
    uint64_t entries = shape->packed ? (uint64_t)shape->rows : 1;
    lac_status status = lac_cuda_upload(device, "re-tiled weight", t->records,
                                        (uint64_t)t->steps * lac_strict_record_bytes(shape), &state->records);
    if (!status)
        status = lac_cuda_upload(device, "columns of the weight", t->columns,
                                 ((uint64_t)t->steps + LAC_STRICT_READ_AHEAD) * entries * sizeof *t->columns, &state->columns);
    if (!status)
        status = lac_cuda_upload(device, "steps of the weight", t->first_step,
                                 ((uint64_t)t->blocks + 1) * sizeof *t->first_step, &state->first_step);
    state->blocks = (int)t->blocks;
    state->steps = (int)t->first_step[t->blocks > 0];
    for (int64_t b = 0; b < t->blocks; ++b)
        if (t->first_step[b + 1] - t->first_step[b] != (uint32_t)state->steps) state->steps = 0;
    return status;
}

static lac_status prepare_weight(const lac_problem *problem, const lac_strict_facts *facts, strict_state *state)
{
    const int list_n = lac_strict_list_n(&state->shape);
    lac_strict_rows rows;
    lac_status status = lac_strict_rows_make(problem->weight, facts, list_n, is_dense(problem), &rows);
    if (status) return status;
    lac_strict_tiled tiled;
    status = lac_strict_tile(&rows.source, &state->shape, &tiled);
    if (!status) {
        status = upload(problem->device, &tiled, &state->shape, state);
        lac_strict_tiled_release(&tiled);
    }
    bool mapped = has_row_map(problem, facts, &state->shape);
    state->stored = mapped ? (int)(rows.source.vectors * list_n) : (int)facts->rows;
    if (!status && mapped)
        status = lac_cuda_upload(problem->device, "rows of the weight", rows.outputs,
                                 (uint64_t)state->stored * sizeof *rows.outputs, &state->row_map);
    lac_strict_rows_release(&rows);
    return status;
}

lac_status lac_cuda_strict_prepare(const lac_problem *problem, void **out)
{
    strict_state *state = lac_allocate_zeroed(sizeof *state);
    if (!state) return lac_fail_memory("plan of cuda_f32_strict", sizeof *state);
    state->device = problem->device;
    lac_strict_facts facts = lac_strict_facts_of(problem, is_dense(problem));
    lac_status status = LAC_STATUS_OK;
    if (!lac_strict_choose(problem, &facts, &state->shape, NULL))
        status = lac_fail(LAC_STATUS_UNSUPPORTED, "kernel: no tile of strict.cu fits this device");
    if (!status) facts = lac_strict_facts_for(&facts, &state->shape);
    if (!status) status = load_programs(problem, state);
    if (!status) status = prepare_weight(problem, &facts, state);
    if (status) {
        lac_cuda_strict_release(state);
        return status;
    }
    *out = state;
    return LAC_STATUS_OK;
}

void lac_cuda_strict_release(void *opaque)
{
    strict_state *state = opaque;
    if (!state) return;
    lac_cuda_free(state->device, state->records);
    lac_cuda_free(state->device, state->columns);
    lac_cuda_free(state->device, state->first_step);
    lac_cuda_free(state->device, state->row_map);
    lac_release(state);
}

/* ---- executing */

static lac_status launch_transpose(const lac_problem *problem, const strict_state *state, lac_gpu_call *call, void *stream)
{
    int64_t tiles = lac_ceil_divide(call->m, TRANSPOSE_TILE) * lac_ceil_divide(call->k, TRANSPOSE_TILE);
    lac_cuda_launch launch = {.function = state->transpose, .grid = {(unsigned)tiles, 1, 1}, .block = TRANSPOSE_THREADS};
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
    if (!status && state->transpose) status = launch_transpose(problem, state, &gpu_call, call->stream);
    if (status) return status;
    int tiles_m = (int)lac_ceil_divide(problem->m, lac_strict_block_m(s));
    lac_strict_weight weight = {.records = (const void *)(uintptr_t)state->records,
                                .columns = (const unsigned *)(uintptr_t)state->columns,
                                .first_step = (const unsigned *)(uintptr_t)state->first_step,
                                .row_map = (const unsigned *)(uintptr_t)state->row_map,
                                .steps = state->steps,
                                .rows = state->stored,
                                .tiles_m = tiles_m,
                                .group_m = tiles_m < GROUP_M ? tiles_m : GROUP_M,
                                .blocks = state->blocks};
    bool aligned = state->transpose || is_aligned(&gpu_call);
    lac_cuda_launch launch = {.function = aligned ? state->aligned : state->any,
                              .grid = {(unsigned)tiles_m * (unsigned)state->blocks * (unsigned)s->split, 1, 1},
                              .block = (unsigned)lac_strict_threads(s),
                              .shared_bytes = lac_strict_stage_bytes(s) * (unsigned)s->stages,
                              .cluster = (unsigned)s->split};
    return lac_cuda_launch_on(problem->device, &launch, call->stream, (void *[]){&gpu_call, &weight});
}
