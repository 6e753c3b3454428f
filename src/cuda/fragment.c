/* fragment.c - fp16 and bf16 by mma.sync and mma.sp, on every GPU from sm_75 on: cuts the weight for kernels/fragment.cu, and
 * at each call brings X into the shape that it wants where it is not (kernels/turn.cu), multiplies, and adds up the parts
 * where k is split. */
#include "cuda/fragment.h"

#include "core/memory.h"
#include "core/status.h"
#include "cuda/fragment_tile.h"
#include "cuda/kernels/fragment_arguments.h"
#include "cuda/turn.h"
#include "format/weight.h"

enum { ALIGNMENT = 256 };
enum { PRODUCT, REDUCE, TURN, PROGRAMS };
_Static_assert((int)PROGRAMS <= (int)LAC_CUDA_MOST_REQUESTS, "a plan may ask for all of them");

/* Of L2, what may be filled with W while all tokens go by. */
static const double BAND_SHARE = 0.4;

typedef struct fragment_state {
    const lac_device *device; /* the plan holds it */
    lac_fragment_shape shape;
    lac_cu_function program[PROGRAMS];
    lac_cu_pointer stages, index, range, output;
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
    if (!shape_of(problem, &s, NULL)) return lac_fail(LAC_STATUS_INTERNAL, "no shape of the mma kernels fits the problem");
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

static uint64_t aligned(uint64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

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
    uint64_t bytes = aligned(lac_fragment_turned_bytes(problem, &s)) + partial_bytes(&s);
    return bytes ? (size_t)bytes + ALIGNMENT : 0;
}

/* ---- preparing */

static lac_status load_programs(const lac_problem *problem, fragment_state *state)
{
    lac_cuda_request request[LAC_CUDA_MOST_REQUESTS];
    int count = 0, which[LAC_CUDA_MOST_REQUESTS];
    lac_status status = requests(problem, request, &count);
    if (!status) count = list_programs(problem, &state->shape, which);
    for (int i = 0; i < count && !status; ++i)
        status = lac_cuda_program_get(problem->device, &request[i], which[i] == TURN ? 0 : lac_fragment_shared(&state->shape),
                                      &state->program[which[i]]);
    return status;
}

static lac_status upload(const lac_device *device, const lac_fragment_tiled *t, fragment_state *state)
{
    const lac_fragment_shape *s = &state->shape;
    uint64_t tiles = (uint64_t)s->output_tiles;
    lac_status status = lac_cuda_upload(device, "stages of the weight", t->stages,
                                        (uint64_t)t->stage_count * (uint64_t)lac_fragment_w_stage(s), &state->stages);
    if (!status)
        status = lac_cuda_upload(device, "rows that the weight selects", t->index,
                                 (uint64_t)t->index_stages * (uint64_t)s->rows * sizeof *t->index, &state->index);
    if (!status) status = lac_cuda_upload(device, "stages of each tile", t->range, tiles * 2 * sizeof *t->range, &state->range);
    if (!status)
        status = lac_cuda_upload(device, "places of the outputs", t->output,
                                 tiles * (uint64_t)lac_fragment_outputs(s) * sizeof *t->output, &state->output);
    return status;
}

lac_status lac_cuda_fragment_prepare(const lac_problem *problem, void **out)
{
    fragment_state *state = lac_allocate_zeroed(sizeof *state);
    if (!state) return lac_fail_memory("plan of a kernel by fragments", sizeof *state);
    state->device = problem->device;
    lac_fragment_tiled tiled;
    lac_status status = LAC_STATUS_OK;
    if (!shape_of(problem, &state->shape, NULL))
        status = lac_fail(LAC_STATUS_INTERNAL, "no shape of the mma kernels fits the problem");
    if (!status) status = load_programs(problem, state);
    if (!status && !(status = lac_fragment_tile(problem->weight, &state->shape, &tiled))) {
        status = upload(problem->device, &tiled, state);
        lac_fragment_tiled_release(&tiled);
    }
    if (status) {
        lac_cuda_fragment_release(state);
        return status;
    }
    *out = state;
    return LAC_STATUS_OK;
}

void lac_cuda_fragment_release(void *opaque)
{
    fragment_state *state = opaque;
    if (!state) return;
    lac_cuda_free(state->device, state->stages);
    lac_cuda_free(state->device, state->index);
    lac_cuda_free(state->device, state->range);
    lac_cuda_free(state->device, state->output);
    lac_release(state);
}

/* ---- executing */

/* Tiles of outputs that are walked together: as many as L2 keeps. */
static int band_of(const lac_problem *problem, const lac_fragment_shape *s)
{
    double bytes = (double)s->most_stages * lac_fragment_w_stage(s);
    double most = BAND_SHARE * (double)lac_cuda_rates_of(problem->device)->l2_bytes / (bytes > 0.0 ? bytes : 1.0);
    return (int)(most < 1.0 ? 1 : most < (double)s->output_tiles ? (int64_t)most : s->output_tiles);
}

static lac_fragment_args make_args(const lac_problem *problem, const fragment_state *state, const lac_gpu_call *call)
{
    const lac_fragment_shape *s = &state->shape;
    uintptr_t workspace = ((uintptr_t)call->workspace + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; /* 0 when there is none */
    uint64_t turned = lac_fragment_turned_bytes(problem, s);
    return (lac_fragment_args){.weight = (const unsigned char *)(uintptr_t)state->stages,
                               .index = (const int *)(uintptr_t)state->index,
                               .range = (const int *)(uintptr_t)state->range,
                               .output = (const int *)(uintptr_t)state->output,
                               .x = turned ? (const void *)workspace : call->x,
                               .ldx = turned ? lac_turn_ld(problem) : call->ldx,
                               .partial = (float *)(void *)(workspace + aligned(turned)),
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
    lac_cuda_launch product = {.function = state->program[PRODUCT],
                               .grid = {(unsigned)(tiles * s->parts), 1, 1},
                               .block = (unsigned)lac_fragment_threads(s),
                               .shared_bytes = lac_fragment_shared(s),
                               .early = lac_cuda_target_of(problem->device)->arch >= 90};
    lac_cuda_launch reduce = product;
    reduce.early = false;
    reduce.function = state->program[REDUCE];
    reduce.grid[0] = (unsigned)(tiles * (s->warp_outputs / 16));
    reduce.shared_bytes = (unsigned)lac_fragment_slabs(s);
    if (lac_fragment_turned_bytes(problem, s))
        status = lac_turn_x(problem, state->program[TURN], &gpu_call, (void *)(uintptr_t)args.x, call->stream);
    if (!status) status = lac_cuda_launch_on(problem->device, &product, call->stream, parameters);
    if (!status && s->parts > 1) status = lac_cuda_launch_on(problem->device, &reduce, call->stream, parameters);
    return status;
}
