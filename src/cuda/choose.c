/* choose.c - fp16 and bf16 on sm_90a for token-major X and long row groups: cuts the weight for kernels/choose.cu, and at each call
 * multiplies, after X has been copied to aligned rows (kernels/turn.cu) where its own are not. */
#include "cuda/choose.h"

#include "cuda/choose_tile.h"
#include "cuda/kernels/choose_arguments.h"
#include "cuda/plan.h"
#include "cuda/turn.h"
#include "format/weight.h"

enum { THREADS = 384 };
enum { PRODUCT, TURN, PROGRAMS }; /* the order of the requests */
enum { IMAGES, BOXES, RANGE, OUTPUT, PIECE, PARTS };

typedef struct choose_state {
    lac_cuda_plan plan;
    lac_choose_shape shape;
} choose_state;

static bool shape_of(const lac_problem *problem, lac_choose_shape *shape, lac_cost *cost)
{
    lac_cost unused;
    return lac_choose_shape_make(problem, shape, cost ? cost : &unused);
}

bool lac_cuda_choose_applies(const lac_problem *problem)
{
    lac_choose_shape shape;
    return lac_cuda_suits_wgmma(problem) && shape_of(problem, &shape, NULL);
}

lac_cost lac_cuda_choose_cost(const lac_problem *problem)
{
    lac_choose_shape shape;
    lac_cost cost = {0};
    shape_of(problem, &shape, &cost);
    return cost;
}

/* ---- programs */

static lac_status requests(const lac_problem *problem, lac_cuda_request requests[LAC_CUDA_MOST_REQUESTS], int *count)
{
    lac_choose_shape s;
    if (!shape_of(problem, &s, NULL)) return lac_cuda_no_shape(problem);
    lac_cuda_request_begin(&requests[PRODUCT], "choose.cu", "lac_choose");
    lac_cuda_request_define_problem(&requests[PRODUCT], problem);
    lac_cuda_request_define(&requests[PRODUCT], "LAC_BOXES", s.boxes);
    lac_cuda_request_define(&requests[PRODUCT], "LAC_STAGES", s.stages);
    requests[PRODUCT].shared_bytes = lac_choose_shared(&s);
    lac_turn_request_rows(&requests[TURN]);
    *count = PROGRAMS;
    return LAC_STATUS_OK;
}

const lac_cuda_flow lac_cuda_choose_flow = {requests};

/* The workspace is a copy of X. */
size_t lac_cuda_choose_workspace(const lac_problem *problem)
{
    return (size_t)lac_turn_rows_bytes(problem) + LAC_CUDA_ALIGNMENT;
}

/* ---- preparing */

static lac_status upload(const lac_choose_tiled *t, choose_state *state)
{
    const lac_choose_shape *s = &state->shape;
    uint64_t stages = (uint64_t)t->stage_count, vectors = (uint64_t)s->quads * LAC_CHOOSE_VECTORS;
    const lac_cuda_part parts[PARTS] = {
        [IMAGES] = {"stages of the weight", t->images, stages * LAC_CHOOSE_BLOCKS * LAC_CHOOSE_IMAGE_BYTES},
        [BOXES] = {"boxes of X", t->boxes, stages * (uint64_t)s->boxes * sizeof *t->boxes},
        [RANGE] = {"stages of each tile", t->range, ((uint64_t)s->quads + 1) * sizeof *t->range},
        [OUTPUT] = {"places of the outputs", t->output, vectors * LAC_CHOOSE_OUTPUTS * sizeof *t->output},
        [PIECE] = {"pieces of Y", t->piece, vectors * 2 * sizeof *t->piece},
    };
    return lac_cuda_plan_upload(&state->plan, parts, PARTS);
}

lac_status lac_cuda_choose_prepare(const lac_problem *problem, void **out)
{
    choose_state *state = lac_cuda_plan_allocate(problem, sizeof *state);
    if (!state) return LAC_STATUS_OUT_OF_MEMORY;
    lac_choose_tiled tiled;
    lac_status status = shape_of(problem, &state->shape, NULL) ? LAC_STATUS_OK : lac_cuda_no_shape(problem);
    if (!status) status = lac_cuda_plan_load(&state->plan, problem, NULL);
    if (!status && !(status = lac_choose_tile(problem->weight, &state->shape, &tiled))) {
        status = upload(&tiled, state);
        lac_choose_tiled_release(&tiled);
    }
    return lac_cuda_plan_finish(state, status, out);
}

/* ---- executing */

lac_status lac_cuda_choose_execute(const lac_problem *problem, const void *opaque, const lac_call *call)
{
    const choose_state *state = opaque;
    const lac_choose_shape *s = &state->shape;
    lac_gpu_call gpu_call;
    lac_cuda_tensor_map x_map, y_map;
    lac_status status = lac_cuda_call_make(problem, call, &gpu_call);
    if (status) return status;
    void *copy = (void *)lac_cuda_workspace_of(&gpu_call);
    lac_cuda_boxes of_x = {.data = gpu_call.x,
                           .dtype = problem->options.x_dtype,
                           .columns = problem->weight->k_in,
                           .rows = problem->m,
                           .ld = gpu_call.ldx,
                           .across = LAC_CHOOSE_BOX,
                           .down = LAC_CHOOSE_TOKENS / LAC_CHOOSE_BLOCKS},
                   of_y = lac_cuda_boxes_of_y(problem, &gpu_call);
    bool as_is = lac_cuda_boxes_suit(&of_x);
    if (!as_is) of_x.data = copy, of_x.ld = lac_turn_rows_ld(problem);
    double quad_bytes = s->usual_stages * LAC_CHOOSE_BLOCKS * LAC_CHOOSE_IMAGE_BYTES;
    lac_choose_args args = {.images = state->plan.part[IMAGES],
                            .boxes = state->plan.part[BOXES],
                            .range = state->plan.part[RANGE],
                            .output = state->plan.part[OUTPUT],
                            .piece = state->plan.part[PIECE],
                            .quads = (int)s->quads,
                            .token_tiles = (int)s->token_tiles,
                            .band = lac_cuda_band(quad_bytes, s->quads),
                            .stores_y = problem->options.y_dtype != LAC_DTYPE_F32 && lac_cuda_boxes_suit_stores(&of_y)};
    status = lac_cuda_tensor_map_make(problem->device, &of_x, &x_map);
    if (!status && args.stores_y) status = lac_cuda_tensor_map_make(problem->device, &of_y, &y_map);
    if (status) return status;
    void *parameters[] = {&gpu_call, &args, &x_map, args.stores_y ? &y_map : &x_map};
    int64_t items = s->quads * s->token_tiles, most = lac_cuda_target_of(problem->device)->multiprocessors / LAC_CHOOSE_BLOCKS;
    lac_cuda_launch product = {.function = state->plan.program[PRODUCT],
                               .grid = {(unsigned)((items < most ? items : most) * LAC_CHOOSE_BLOCKS), 1, 1},
                               .block = THREADS,
                               .shared_bytes = lac_choose_shared(s),
                               .cluster = LAC_CHOOSE_BLOCKS,
                               .early = true};
    if (!as_is) status = lac_turn_rows(problem, state->plan.program[TURN], &gpu_call, copy, call->stream);
    if (!status) status = lac_cuda_launch_on(problem->device, &product, call->stream, parameters);
    return status;
}
