/* choose.c - fp16 and bf16 on sm_90a for token-major X and long row groups: cuts the weight for kernels/choose.cu, and at each call
 * multiplies, after X has been copied to aligned rows (kernels/turn.cu) where its own are not. */
#include "cuda/choose.h"

#include "core/memory.h"
#include "core/status.h"
#include "cuda/choose_tile.h"
#include "cuda/kernels/choose_arguments.h"
#include "cuda/turn.h"
#include "format/weight.h"

enum { THREADS = 384, ALIGNMENT = 256 };
enum { PRODUCT, TURN, PROGRAMS }; /* the order of the requests */
_Static_assert((int)PROGRAMS <= (int)LAC_CUDA_MOST_REQUESTS, "a plan may ask for all of them");

/* What L2 should keep of W while all tokens go by. */
static const double BAND_BYTES = 20e6;

typedef struct choose_state {
    const lac_device *device; /* the plan holds it */
    lac_choose_shape shape;
    lac_cu_function program[PROGRAMS];
    lac_cu_pointer images, boxes, range, output, piece;
} choose_state;

static bool shape_of(const lac_problem *problem, lac_choose_shape *shape, lac_cost *cost)
{
    lac_cost unused;
    return lac_choose_shape_make(problem, shape, cost ? cost : &unused);
}

bool lac_cuda_choose_applies(const lac_problem *problem)
{
    lac_choose_shape shape;
    lac_dtype dtype = problem->options.x_dtype;
    return (dtype == LAC_DTYPE_F16 || dtype == LAC_DTYPE_BF16) && problem->weight->dtype == dtype &&
           lac_cuda_target_of(problem->device)->has_wgmma && shape_of(problem, &shape, NULL);
}

lac_cost lac_cuda_choose_cost(const lac_problem *problem)
{
    lac_choose_shape shape;
    lac_cost cost = {0};
    shape_of(problem, &shape, &cost);
    return cost;
}

/* ---- programs */

static lac_status no_shape(void) { return lac_fail(LAC_STATUS_INTERNAL, "no shape of the choosing kernel fits the problem"); }

static lac_status requests(const lac_problem *problem, lac_cuda_request requests[LAC_CUDA_MOST_REQUESTS], int *count)
{
    lac_choose_shape s;
    if (!shape_of(problem, &s, NULL)) return no_shape();
    lac_cuda_request_begin(&requests[PRODUCT], "choose.cu", "lac_choose");
    lac_cuda_request_define_problem(&requests[PRODUCT], problem);
    lac_cuda_request_define(&requests[PRODUCT], "LAC_BOXES", s.boxes);
    lac_cuda_request_define(&requests[PRODUCT], "LAC_STAGES", s.stages);
    lac_turn_request_rows(&requests[TURN]);
    *count = PROGRAMS;
    return LAC_STATUS_OK;
}

const lac_cuda_flow lac_cuda_choose_flow = {requests};

/* The workspace is a copy of X. */
size_t lac_cuda_choose_workspace(const lac_problem *problem) { return (size_t)lac_turn_rows_bytes(problem) + ALIGNMENT; }

/* ---- preparing */

static lac_status load_programs(const lac_problem *problem, choose_state *state)
{
    lac_cuda_request request[LAC_CUDA_MOST_REQUESTS];
    int count = 0;
    lac_status status = requests(problem, request, &count);
    for (int i = 0; i < count && !status; ++i)
        status = lac_cuda_program_get(problem->device, &request[i], i == PRODUCT ? lac_choose_shared(&state->shape) : 0,
                                      &state->program[i]);
    return status;
}

static lac_status upload(const lac_device *device, const lac_choose_tiled *t, choose_state *state)
{
    const lac_choose_shape *s = &state->shape;
    uint64_t stages = (uint64_t)t->stage_count, vectors = (uint64_t)s->quads * LAC_CHOOSE_VECTORS;
    const struct {
        const char *what;
        const void *data;
        uint64_t bytes;
        lac_cu_pointer *to;
    } part[] = {{"stages of the weight", t->images, stages * LAC_CHOOSE_BLOCKS * LAC_CHOOSE_IMAGE_BYTES, &state->images},
                {"boxes of X", t->boxes, stages * (uint64_t)s->boxes * sizeof *t->boxes, &state->boxes},
                {"stages of each tile", t->range, ((uint64_t)s->quads + 1) * sizeof *t->range, &state->range},
                {"places of the outputs", t->output, vectors * LAC_CHOOSE_OUTPUTS * sizeof *t->output, &state->output},
                {"pieces of Y", t->piece, vectors * 2 * sizeof *t->piece, &state->piece}};
    lac_status status = LAC_STATUS_OK;
    for (size_t i = 0; i < sizeof part / sizeof *part && !status; ++i)
        status = lac_cuda_upload(device, part[i].what, part[i].data, part[i].bytes, part[i].to);
    return status;
}

lac_status lac_cuda_choose_prepare(const lac_problem *problem, void **out)
{
    choose_state *state = lac_allocate_zeroed(sizeof *state);
    if (!state) return lac_fail_memory("plan of a kernel that chooses its inputs", sizeof *state);
    state->device = problem->device;
    lac_choose_tiled tiled;
    lac_status status = LAC_STATUS_OK;
    if (!shape_of(problem, &state->shape, NULL)) status = no_shape();
    if (!status) status = load_programs(problem, state);
    if (!status && !(status = lac_choose_tile(problem->weight, &state->shape, &tiled))) {
        status = upload(problem->device, &tiled, state);
        lac_choose_tiled_release(&tiled);
    }
    if (status) {
        lac_cuda_choose_release(state);
        return status;
    }
    *out = state;
    return LAC_STATUS_OK;
}

void lac_cuda_choose_release(void *opaque)
{
    choose_state *state = opaque;
    if (!state) return;
    lac_cuda_free(state->device, state->images);
    lac_cuda_free(state->device, state->boxes);
    lac_cuda_free(state->device, state->range);
    lac_cuda_free(state->device, state->output);
    lac_cuda_free(state->device, state->piece);
    lac_release(state);
}

/* ---- executing */

/* Quads that are walked together: as many as L2 keeps. */
static int band_of(const lac_choose_shape *s)
{
    double bytes = s->usual_stages * LAC_CHOOSE_BLOCKS * LAC_CHOOSE_IMAGE_BYTES,
           most = BAND_BYTES / (bytes > 0.0 ? bytes : 1.0);
    return (int)(most < 1.0 ? 1 : most < (double)s->quads ? (int64_t)most : s->quads);
}

lac_status lac_cuda_choose_execute(const lac_problem *problem, const void *opaque, const lac_call *call)
{
    const choose_state *state = opaque;
    const lac_choose_shape *s = &state->shape;
    lac_gpu_call gpu_call;
    lac_cuda_tensor_map x_map, y_map;
    lac_status status = lac_cuda_call_make(problem, call, &gpu_call);
    if (status) return status;
    void *copy = (void *)(((uintptr_t)gpu_call.workspace + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
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
    lac_choose_args args = {.images = (const unsigned char *)(uintptr_t)state->images,
                            .boxes = (const int *)(uintptr_t)state->boxes,
                            .range = (const int *)(uintptr_t)state->range,
                            .output = (const int *)(uintptr_t)state->output,
                            .piece = (const int *)(uintptr_t)state->piece,
                            .quads = (int)s->quads,
                            .token_tiles = (int)s->token_tiles,
                            .band = band_of(s),
                            .stores_y = problem->options.y_dtype != LAC_DTYPE_F32 && lac_cuda_boxes_suit_stores(&of_y)};
    status = lac_cuda_tensor_map_make(problem->device, &of_x, &x_map);
    if (!status && args.stores_y) status = lac_cuda_tensor_map_make(problem->device, &of_y, &y_map);
    if (status) return status;
    void *parameters[] = {&gpu_call, &args, &x_map, args.stores_y ? &y_map : &x_map};
    int64_t items = s->quads * s->token_tiles, most = lac_cuda_target_of(problem->device)->multiprocessors / LAC_CHOOSE_BLOCKS;
    lac_cuda_launch product = {.function = state->program[PRODUCT],
                               .grid = {(unsigned)((items < most ? items : most) * LAC_CHOOSE_BLOCKS), 1, 1},
                               .block = THREADS,
                               .shared_bytes = lac_choose_shared(s),
                               .cluster = LAC_CHOOSE_BLOCKS,
                               .early = true};
    if (!as_is) status = lac_turn_rows(problem, state->program[TURN], &gpu_call, copy, call->stream);
    if (!status) status = lac_cuda_launch_on(problem->device, &product, call->stream, parameters);
    return status;
}
