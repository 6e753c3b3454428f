/* slide.c - fp16 and bf16 on sm_90a for short vectors: cuts the weight for kernels/slide.cu, and at each call brings X into the
 * shape that it wants where it is not (kernels/turn.cu), multiplies, and adds up the parts where k is split. */
#include "cuda/slide.h"

#include "core/memory.h"
#include "core/status.h"
#include "cuda/kernels/slide_arguments.h"
#include "cuda/slide_tile.h"
#include "cuda/turn.h"
#include "format/weight.h"

enum { PRODUCT_THREADS = 384, REDUCE_THREADS = 256, ALIGNMENT = 256 };
enum { PRODUCT, TURN, REDUCE, PROGRAMS }; /* the order of the requests */
_Static_assert((int)PROGRAMS <= (int)LAC_CUDA_MOST_REQUESTS, "a plan may ask for all of them");

/* What L2 should keep of W while all tokens go by. */
static const double BAND_BYTES = 20e6;

typedef struct slide_state {
    const lac_device *device; /* the plan holds it */
    lac_slide_shape shape;
    lac_cu_function program[PROGRAMS];
    lac_cu_pointer weight, index, first, output;
} slide_state;

static bool shape_of(const lac_problem *problem, lac_slide_shape *shape, lac_cost *cost)
{
    lac_cost unused;
    return lac_slide_shape_make(problem, shape, cost ? cost : &unused);
}

bool lac_cuda_slide_applies(const lac_problem *problem)
{
    lac_slide_shape shape;
    lac_dtype dtype = problem->options.x_dtype;
    return (dtype == LAC_DTYPE_F16 || dtype == LAC_DTYPE_BF16) && problem->weight->dtype == dtype &&
           lac_cuda_target_of(problem->device)->has_wgmma && shape_of(problem, &shape, NULL);
}

lac_cost lac_cuda_slide_cost(const lac_problem *problem)
{
    lac_slide_shape shape;
    lac_cost cost = {0};
    shape_of(problem, &shape, &cost);
    return cost;
}

/* ---- programs */

static void request_product(lac_cuda_request *request, const lac_problem *problem, const lac_slide_shape *s, const char *entry)
{
    lac_cuda_request_begin(request, "slide.cu", entry);
    lac_cuda_request_define_problem(request, problem);
    lac_cuda_request_define(request, "LAC_WIDTH", s->width);
    lac_cuda_request_define(request, "LAC_TOKENS", s->tokens);
    lac_cuda_request_define(request, "LAC_RING", s->ring);
    lac_cuda_request_define(request, "LAC_DEPTH", LAC_SLIDE_DEPTH);
    lac_cuda_request_define(request, "LAC_BATCH", s->batch);
    lac_cuda_request_define(request, "LAC_PARTS", s->parts);
}

static lac_status no_shape(void) { return lac_fail(LAC_STATUS_INTERNAL, "no shape of the sliding kernel fits the problem"); }

static lac_status requests(const lac_problem *problem, lac_cuda_request requests[LAC_CUDA_MOST_REQUESTS], int *count)
{
    lac_slide_shape s;
    if (!shape_of(problem, &s, NULL)) return no_shape();
    request_product(&requests[PRODUCT], problem, &s, "lac_slide");
    lac_turn_request(problem, &requests[TURN]);
    *count = REDUCE;
    if (s.parts > 1) request_product(&requests[(*count)++], problem, &s, "lac_slide_reduce");
    return LAC_STATUS_OK;
}

const lac_cuda_flow lac_cuda_slide_flow = {requests};

/* ---- workspace: X turned round, then the sums of the parts */

static uint64_t aligned(uint64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static uint64_t partial_bytes(const lac_slide_shape *s)
{
    if (s->parts == 1) return 0;
    uint64_t outputs = (uint64_t)s->output_tiles * (uint64_t)(LAC_SLIDE_WARPS * s->width);
    return outputs * (uint64_t)(s->token_tiles * s->tokens) * (uint64_t)s->parts * sizeof(float);
}

size_t lac_cuda_slide_workspace(const lac_problem *problem)
{
    lac_slide_shape s;
    if (!shape_of(problem, &s, NULL)) return 0;
    return (size_t)(aligned(lac_turn_bytes(problem, problem->weight->k_in)) + partial_bytes(&s)) + ALIGNMENT;
}

/* ---- preparing */

static lac_status load_programs(const lac_problem *problem, slide_state *state)
{
    lac_cuda_request request[LAC_CUDA_MOST_REQUESTS];
    int count = 0;
    lac_status status = requests(problem, request, &count);
    for (int i = 0; i < count && !status; ++i)
        status = lac_cuda_program_get(problem->device, &request[i], i == PRODUCT ? lac_slide_shared(&state->shape) : 0,
                                      &state->program[i]);
    return status;
}

static lac_status upload(const lac_device *device, const lac_slide_tiled *t, slide_state *state)
{
    uint64_t steps = (uint64_t)t->step_count + LAC_SLIDE_DEPTH;
    lac_status status = lac_cuda_upload(device, "steps of the weight", t->weight,
                                        steps * (uint64_t)lac_slide_step_bytes(&state->shape), &state->weight);
    if (!status)
        status = lac_cuda_upload(device, "rows that the weight selects", t->index, steps * LAC_SLIDE_SLOTS * sizeof *t->index,
                                 &state->index);
    if (!status)
        status = lac_cuda_upload(device, "steps of each stream", t->first, (uint64_t)(t->streams + 1) * sizeof *t->first,
                                 &state->first);
    if (!status)
        status = lac_cuda_upload(device, "places of the outputs", t->output, (uint64_t)t->outputs * sizeof *t->output,
                                 &state->output);
    return status;
}

lac_status lac_cuda_slide_prepare(const lac_problem *problem, void **out)
{
    slide_state *state = lac_allocate_zeroed(sizeof *state);
    if (!state) return lac_fail_memory("plan of a kernel by a sliding window", sizeof *state);
    state->device = problem->device;
    lac_slide_tiled tiled;
    lac_status status = LAC_STATUS_OK;
    if (!shape_of(problem, &state->shape, NULL)) status = no_shape();
    if (!status) status = load_programs(problem, state);
    if (!status && !(status = lac_slide_tile(problem->weight, &state->shape, &tiled))) {
        status = upload(problem->device, &tiled, state);
        lac_slide_tiled_release(&tiled);
    }
    if (status) {
        lac_cuda_slide_release(state);
        return status;
    }
    *out = state;
    return LAC_STATUS_OK;
}

void lac_cuda_slide_release(void *opaque)
{
    slide_state *state = opaque;
    if (!state) return;
    lac_cuda_free(state->device, state->weight);
    lac_cuda_free(state->device, state->index);
    lac_cuda_free(state->device, state->first);
    lac_cuda_free(state->device, state->output);
    lac_release(state);
}

/* ---- executing */

/* Tiles of outputs that are walked together: as many as L2 keeps. */
static int band_of(const lac_slide_shape *s)
{
    int64_t tiles = s->output_tiles;
    double bytes = (double)s->most_steps * (double)lac_slide_step_bytes(s) / (double)tiles, most = BAND_BYTES / bytes;
    return (int)(most < 1.0 ? 1 : most < (double)tiles ? (int64_t)most : tiles);
}

lac_status lac_cuda_slide_execute(const lac_problem *problem, const void *opaque, const lac_call *call)
{
    const slide_state *state = opaque;
    const lac_slide_shape *s = &state->shape;
    lac_gpu_call gpu_call;
    lac_cuda_tensor_map map;
    lac_status status = lac_cuda_call_make(problem, call, &gpu_call);
    if (status) return status;
    uintptr_t workspace = ((uintptr_t)gpu_call.workspace + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; /* 0 when there is none */
    lac_cuda_boxes boxes = {.down = LAC_SLIDE_CHUNK};
    bool as_is = lac_turn_boxes(problem, &gpu_call, (const void *)workspace, &boxes);
    lac_slide_args args = {.weight = (const unsigned char *)(uintptr_t)state->weight,
                           .index = (const unsigned *)(uintptr_t)state->index,
                           .first = (const int *)(uintptr_t)state->first,
                           .output = (const int *)(uintptr_t)state->output,
                           .partial = (float *)(void *)(workspace + aligned(lac_turn_bytes(problem, problem->weight->k_in))),
                           .output_tiles = (int)s->output_tiles,
                           .token_tiles = (int)s->token_tiles,
                           .band = band_of(s),
                           .chunks = (int)s->chunks};
    void *parameters[] = {&gpu_call, &args, &map};
    int64_t tiles = s->token_tiles * s->output_tiles, items = tiles * s->parts;
    int64_t most = lac_cuda_target_of(problem->device)->multiprocessors;
    lac_cuda_launch product = {.function = state->program[PRODUCT],
                               .grid = {(unsigned)(items < most ? items : most), 1, 1},
                               .block = PRODUCT_THREADS,
                               .shared_bytes = lac_slide_shared(s)};
    lac_cuda_launch reduce = {.function = state->program[REDUCE], .grid = {(unsigned)tiles, 1, 1}, .block = REDUCE_THREADS};
    status = lac_cuda_tensor_map_make(problem->device, &boxes, &map);
    if (!status && !as_is) status = lac_turn_x(problem, state->program[TURN], &gpu_call, (void *)workspace, call->stream);
    if (!status) status = lac_cuda_launch_on(problem->device, &product, call->stream, parameters);
    if (!status && s->parts > 1) status = lac_cuda_launch_on(problem->device, &reduce, call->stream, parameters);
    return status;
}
