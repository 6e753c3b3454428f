/* pick.c - fp16 and bf16 on sm_90a for short vectors, by wgmma: cuts the weight for kernels/pick.cu, and at each call brings X into
 * the shape that it wants where it is not (kernels/turn.cu), multiplies, and adds up the parts where k is split. */
#include "cuda/pick.h"

#include "cuda/kernels/pick_arguments.h"
#include "cuda/pick_tile.h"
#include "cuda/plan.h"
#include "cuda/turn.h"
#include "format/weight.h"

enum { PRODUCT_THREADS = 384, REDUCE_THREADS = 256 };
enum { PRODUCT, TURN, REDUCE, PROGRAMS }; /* the order of the requests */
enum { CHUNKS, OUTPUT, PARTS };

typedef struct pick_state {
    lac_cuda_plan plan;
    lac_pick_shape shape;
} pick_state;

static bool shape_of(const lac_problem *problem, lac_pick_shape *shape, lac_cost *cost)
{
    lac_cost unused;
    return lac_pick_shape_make(problem, shape, cost ? cost : &unused);
}

bool lac_cuda_pick_applies(const lac_problem *problem)
{
    lac_pick_shape shape;
    return lac_cuda_suits_wgmma(problem) && shape_of(problem, &shape, NULL);
}

lac_cost lac_cuda_pick_cost(const lac_problem *problem)
{
    lac_pick_shape shape;
    lac_cost cost = {0};
    shape_of(problem, &shape, &cost);
    return cost;
}

/* ---- programs */

static void request_product(lac_cuda_request *request, const lac_problem *problem, const lac_pick_shape *s, const char *entry)
{
    lac_cuda_request_begin(request, "pick.cu", entry);
    lac_cuda_request_define_problem(request, problem);
    lac_cuda_request_define(request, "LAC_WIDTH", s->width);
    lac_cuda_request_define(request, "LAC_TOKENS", s->tokens);
    lac_cuda_request_define(request, "LAC_STEPS", s->steps);
    lac_cuda_request_define(request, "LAC_COMMON", s->common);
    lac_cuda_request_define(request, "LAC_PAIRS", s->pairs);
    lac_cuda_request_define(request, "LAC_STAGES", s->stages);
    lac_cuda_request_define(request, "LAC_RING", s->ring);
    lac_cuda_request_define(request, "LAC_PARTS", s->parts);
}

static lac_status requests(const lac_problem *problem, lac_cuda_request requests[LAC_CUDA_MOST_REQUESTS], int *count)
{
    lac_pick_shape s;
    if (!shape_of(problem, &s, NULL)) return lac_cuda_no_shape(problem);
    request_product(&requests[PRODUCT], problem, &s, "lac_pick");
    requests[PRODUCT].shared_bytes = lac_pick_shared(&s);
    lac_turn_request(problem, &requests[TURN]);
    *count = REDUCE;
    if (s.parts > 1) request_product(&requests[(*count)++], problem, &s, "lac_pick_reduce");
    return LAC_STATUS_OK;
}

const lac_cuda_flow lac_cuda_pick_flow = {requests};

/* ---- workspace: X turned round, then the sums of the parts */

static uint64_t partial_bytes(const lac_pick_shape *s)
{
    if (s->parts == 1) return 0;
    uint64_t outputs = (uint64_t)s->output_tiles * (uint64_t)(lac_pick_tile_vectors(s) * s->width);
    return outputs * (uint64_t)(s->token_tiles * s->tokens) * (uint64_t)s->parts * sizeof(float);
}

size_t lac_cuda_pick_workspace(const lac_problem *problem)
{
    lac_pick_shape s;
    if (!shape_of(problem, &s, NULL)) return 0;
    return (size_t)(lac_cuda_aligned(lac_pick_turned_bytes(problem)) + partial_bytes(&s)) + LAC_CUDA_ALIGNMENT;
}

/* ---- preparing */

static lac_status upload(const lac_pick_tiled *t, pick_state *state)
{
    const lac_cuda_part parts[PARTS] = {
        [CHUNKS] = {"chunks of the weight", t->chunks, t->chunk_bytes},
        [OUTPUT] = {"places of the outputs", t->output, t->outputs * sizeof *t->output},
    };
    return lac_cuda_plan_upload(&state->plan, parts, PARTS);
}

lac_status lac_cuda_pick_prepare(const lac_problem *problem, void **out)
{
    pick_state *state = lac_cuda_plan_allocate(problem, sizeof *state);
    if (!state) return LAC_STATUS_OUT_OF_MEMORY;
    lac_pick_tiled tiled;
    lac_status status = shape_of(problem, &state->shape, NULL) ? LAC_STATUS_OK : lac_cuda_no_shape(problem);
    if (!status) status = lac_cuda_plan_load(&state->plan, problem, NULL);
    if (!status && !(status = lac_pick_tile(problem->weight, &state->shape, &tiled))) {
        status = upload(&tiled, state);
        lac_pick_tiled_release(&tiled);
    }
    return lac_cuda_plan_finish(state, status, out);
}

/* ---- executing */

lac_status lac_cuda_pick_execute(const lac_problem *problem, const void *opaque, const lac_call *call)
{
    const pick_state *state = opaque;
    const lac_pick_shape *s = &state->shape;
    lac_gpu_call gpu_call;
    lac_cuda_tensor_map map;
    lac_status status = lac_cuda_call_make(problem, call, &gpu_call);
    if (status) return status;
    uintptr_t workspace = lac_cuda_workspace_of(&gpu_call);
    lac_cuda_boxes boxes = {.down = LAC_PICK_CLASSES, .fold = LAC_PICK_EIGHTH};
    bool as_is = lac_turn_boxes(problem, &gpu_call, (const void *)workspace, &boxes);
    double tile_bytes = (double)s->windows * s->pairs * (double)lac_pick_chunk_bytes(s);
    lac_pick_args args = {.weight = state->plan.part[CHUNKS],
                          .output = state->plan.part[OUTPUT],
                          .partial = (float *)(workspace + lac_cuda_aligned(lac_pick_turned_bytes(problem))),
                          .output_tiles = (int)s->output_tiles,
                          .token_tiles = (int)s->token_tiles,
                          .windows = (int)s->windows,
                          .band = lac_cuda_band(tile_bytes, s->output_tiles)};
    void *parameters[] = {&gpu_call, &args, &map};
    int64_t tiles = s->token_tiles * s->output_tiles, items = tiles * s->parts;
    int64_t most = lac_cuda_target_of(problem->device)->multiprocessors;
    lac_cuda_launch product = {.function = state->plan.program[PRODUCT],
                               .grid = {(unsigned)(items < most ? items : most), 1, 1},
                               .block = PRODUCT_THREADS,
                               .shared_bytes = lac_pick_shared(s)};
    lac_cuda_launch reduce = {
        .function = state->plan.program[REDUCE], .grid = {(unsigned)tiles, 1, 1}, .block = REDUCE_THREADS};
    status = lac_cuda_tensor_map_make(problem->device, &boxes, &map);
    if (!status && !as_is) status = lac_turn_x(problem, state->plan.program[TURN], &gpu_call, (void *)workspace, call->stream);
    if (!status) status = lac_cuda_launch_on(problem->device, &product, call->stream, parameters);
    if (!status && s->parts > 1) status = lac_cuda_launch_on(problem->device, &reduce, call->stream, parameters);
    return status;
}
