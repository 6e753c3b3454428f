/* fragment.c - fp16 and bf16 by mma.sync and mma.sp, on every GPU from sm_75 on: cuts the weight for kernels/fragment.cu, and
 * at each call brings X into the shape that it wants where it is not (kernels/turn.cu), multiplies, and adds up the parts
 * where k is split. */
#include "cuda/fragment.h"

#include "cuda/fragment_tile.h"
#include "cuda/kernels/fragment_arguments.h"
#include "cuda/plan.h"
#include "cuda/turn.h"
#include "format/weight.h"

enum { PRODUCT, REDUCE, TURN, PROGRAMS };
enum { STAGES, INDEX, RANGE, OUTPUT, PARTS };

/* Of L2, what may be filled with W while all tokens go by. */
static const double BAND_SHARE = 0.4;

typedef struct fragment_state {
    lac_cuda_plan plan;
    lac_fragment_shape shape;
} fragment_state;

static bool shape_of(const lac_problem *problem, lac_fragment_shape *shape, lac_cost *cost)
{
    lac_cost unused;
    lac_fragment_kind kind = ((const lac_fragment_flow *)problem->kernel->config)->kind;
    return lac_fragment_shape_make(problem, kind, shape, cost ? cost : &unused);
}

bool lac_cuda_fragment_applies(const lac_problem *problem)
{
    lac_fragment_shape shape;
    lac_dtype dtype = problem->options.x_dtype;
    int arch = lac_cuda_target_of(problem->device)->arch;
    bool has_mma = dtype == LAC_DTYPE_F16 || (dtype == LAC_DTYPE_BF16 && arch >= 80);
    return has_mma && problem->weight->dtype == dtype && shape_of(problem, &shape, NULL);
}

lac_cost lac_cuda_fragment_cost(const lac_problem *problem)
{
    lac_fragment_shape shape;
    lac_cost cost = {0};
    shape_of(problem, &shape, &cost);
    return cost;
}

/* ---- programs */

/* Whether every tile of outputs has the same number of stages. */
static bool is_even(const lac_problem *problem, const lac_fragment_shape *s)
{
    return s->shares_index || !problem->weight->geometry.is_free;
}

static void request_product(lac_cuda_request *request, const lac_problem *problem, const lac_fragment_shape *s, int program)
{
    lac_cuda_request_begin(request, "fragment.cu", program == REDUCE ? "lac_fragment_reduce" : "lac_fragment");
    lac_cuda_request_define_problem(request, problem);
    lac_cuda_request_define(request, "LAC_KIND", s->kind);
    lac_cuda_request_define(request, "LAC_ROWS", s->rows);
    lac_cuda_request_define(request, "LAC_WARP_OUTPUTS", s->warp_outputs);
    lac_cuda_request_define(request, "LAC_WARP_TOKENS", s->warp_tokens);
    lac_cuda_request_define(request, "LAC_WARPS_OUTPUTS", s->warps_outputs);
    lac_cuda_request_define(request, "LAC_WARPS_TOKENS", s->warps_tokens);
    lac_cuda_request_define(request, "LAC_STAGES", s->stages);
    lac_cuda_request_define(request, "LAC_PARTS", s->parts);
    lac_cuda_request_define(request, "LAC_BLOCKS", s->blocks);
    lac_cuda_request_define(request, "LAC_EVEN", is_even(problem, s));
    lac_cuda_request_define(request, "LAC_SHARED_INDEX", s->shares_index);
    lac_cuda_request_define(request, "LAC_DIRECT", s->direct);
    lac_cuda_request_define(request, "LAC_KEPT", s->kept);
    request->shared_bytes = lac_fragment_shared(s);
}

/* Which program each request is. */
static int list_programs(const lac_problem *problem, const lac_fragment_shape *s, int which[LAC_CUDA_MOST_REQUESTS])
{
    int count = 0;
    which[count++] = PRODUCT;
    if (s->parts > 1) which[count++] = REDUCE;
    if (lac_fragment_turned_bytes(problem, s)) which[count++] = TURN;
    return count;
}

static lac_status requests(const lac_problem *problem, lac_cuda_request requests[LAC_CUDA_MOST_REQUESTS], int *count)
{
    lac_fragment_shape s;
    int which[LAC_CUDA_MOST_REQUESTS];
    if (!shape_of(problem, &s, NULL)) return lac_cuda_no_shape(problem);
    *count = list_programs(problem, &s, which);
    for (int i = 0; i < *count; ++i) {
        if (which[i] == TURN)
            lac_turn_request(problem, &requests[i]);
        else
            request_product(&requests[i], problem, &s, which[i]);
    }
    return LAC_STATUS_OK;
}

const lac_fragment_flow lac_cuda_fragment_flow = {{requests}, LAC_FRAGMENT_DENSE};
const lac_fragment_flow lac_cuda_fragment_sparse_flow = {{requests}, LAC_FRAGMENT_SPARSE};
const lac_fragment_flow lac_cuda_fragment_expand_flow = {{requests}, LAC_FRAGMENT_EXPAND};

/* ---- workspace: X turned round, then the sums of the parts */

static uint64_t partial_bytes(const lac_fragment_shape *s)
{
    if (s->parts == 1) return 0;
    return (uint64_t)(s->output_tiles * s->token_tiles * s->parts) *
           (uint64_t)(lac_fragment_outputs(s) * lac_fragment_tokens(s)) * sizeof(float);
}

size_t lac_cuda_fragment_workspace(const lac_problem *problem)
{
    lac_fragment_shape s;
    if (!shape_of(problem, &s, NULL)) return 0;
    uint64_t bytes = lac_cuda_aligned(lac_fragment_turned_bytes(problem, &s)) + partial_bytes(&s);
    return bytes ? (size_t)bytes + LAC_CUDA_ALIGNMENT : 0;
}

/* ---- preparing */

static lac_status upload(const lac_fragment_tiled *t, fragment_state *state)
{
    const lac_fragment_shape *s = &state->shape;
    uint64_t stages = (uint64_t)t->stage_count, index_stages = (uint64_t)t->index_stages, tiles = (uint64_t)s->output_tiles;
    const lac_cuda_part parts[PARTS] = {
        [STAGES] = {"stages of the weight", t->stages, stages * (uint64_t)lac_fragment_w_stage(s)},
        [INDEX] = {"rows that the weight selects", t->index, index_stages * (uint64_t)s->rows * sizeof *t->index},
        [RANGE] = {"stages of each tile", t->range, tiles * 2 * sizeof *t->range},
        [OUTPUT] = {"places of the outputs", t->output, tiles * (uint64_t)lac_fragment_outputs(s) * sizeof *t->output},
    };
    return lac_cuda_plan_upload(&state->plan, parts, PARTS);
}

lac_status lac_cuda_fragment_prepare(const lac_problem *problem, void **out)
{
    fragment_state *state = lac_cuda_plan_allocate(problem, sizeof *state);
    if (!state) return LAC_STATUS_OUT_OF_MEMORY;
    lac_fragment_tiled tiled;
    int which[LAC_CUDA_MOST_REQUESTS];
    lac_status status = shape_of(problem, &state->shape, NULL) ? LAC_STATUS_OK : lac_cuda_no_shape(problem);
    if (!status) list_programs(problem, &state->shape, which);
    if (!status) status = lac_cuda_plan_load(&state->plan, problem, which);
    if (!status && !(status = lac_fragment_tile(problem->weight, &state->shape, &tiled))) {
        status = upload(&tiled, state);
        lac_fragment_tiled_release(&tiled);
    }
    return lac_cuda_plan_finish(state, status, out);
}

/* ---- executing */

/* Tiles of outputs that are walked together: as many as L2 keeps. */
static int band_of(const lac_problem *problem, const lac_fragment_shape *s)
{
    double bytes = (double)s->most_stages * lac_fragment_w_stage(s);
    return lac_cuda_band_within(BAND_SHARE * (double)lac_cuda_rates_of(problem->device)->l2_bytes, bytes, s->output_tiles);
}

static lac_fragment_args make_args(const lac_problem *problem, const fragment_state *state, const lac_gpu_call *call)
{
    const lac_fragment_shape *s = &state->shape;
    uintptr_t workspace = lac_cuda_workspace_of(call);
    uint64_t turned = lac_fragment_turned_bytes(problem, s);
    return (lac_fragment_args){.weight = state->plan.part[STAGES],
                               .index = state->plan.part[INDEX],
                               .range = state->plan.part[RANGE],
                               .output = state->plan.part[OUTPUT],
                               .x = turned ? (const void *)workspace : call->x,
                               .ldx = turned ? lac_turn_ld(problem) : call->ldx,
                               .partial = (float *)(workspace + lac_cuda_aligned(turned)),
                               .output_tiles = (int)s->output_tiles,
                               .token_tiles = (int)s->token_tiles,
                               .band = band_of(problem, s),
                               .tile_stages = (int)s->most_stages};
}

lac_status lac_cuda_fragment_execute(const lac_problem *problem, const void *opaque, const lac_call *call)
{
    const fragment_state *state = opaque;
    const lac_fragment_shape *s = &state->shape;
    lac_gpu_call gpu_call;
    lac_status status = lac_cuda_call_make(problem, call, &gpu_call);
    if (status) return status;
    lac_fragment_args args = make_args(problem, state, &gpu_call);
    void *parameters[] = {&gpu_call, &args};
    int64_t tiles = s->token_tiles * s->output_tiles;
    lac_cuda_launch product = {.function = state->plan.program[PRODUCT],
                               .grid = {(unsigned)(tiles * s->parts), 1, 1},
                               .block = (unsigned)lac_fragment_threads(s),
                               .shared_bytes = lac_fragment_shared(s),
                               .early = lac_cuda_target_of(problem->device)->arch >= 90};
    lac_cuda_launch reduce = product;
    reduce.early = false;
    reduce.function = state->plan.program[REDUCE];
    reduce.grid[0] = (unsigned)(tiles * (s->warp_outputs / 16));
    reduce.shared_bytes = (unsigned)lac_fragment_slabs(s);
    if (lac_fragment_turned_bytes(problem, s))
        status = lac_turn_x(problem, state->plan.program[TURN], &gpu_call, (void *)(uintptr_t)args.x, call->stream);
    if (!status) status = lac_cuda_launch_on(problem->device, &product, call->stream, parameters);
    if (!status && s->parts > 1) status = lac_cuda_launch_on(problem->device, &reduce, call->stream, parameters);
    return status;
}
