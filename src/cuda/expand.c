/* expand.c - fp16 and bf16 on sm_90a, element-wise patterns: cuts the weight for kernels/expand.cu, and at each call multiplies
 * and adds up the parts where k is split. X that the tensor copy engine does not take, because it is not
 * aligned to 16 bytes, is carried into shared memory by hand, by a program of the same source. */
#include "cuda/expand.h"

#include "core/memory.h"
#include "core/status.h"
#include "cuda/expand_tile.h"
#include "cuda/kernels/gather_arguments.h"
#include "format/weight.h"

enum { PRODUCT_THREADS = 384, REDUCE_THREADS = 256, ALIGNMENT = 256, MOST_BOX = 256 };
enum { PRODUCT, BY_HAND, REDUCE, PROGRAMS }; /* the order of the requests */
_Static_assert((int)PROGRAMS <= (int)LAC_CUDA_MOST_REQUESTS, "a plan may ask for all of them");

/* What L2 should keep of W while all tokens go by. */
static const double BAND_BYTES = 20e6;

typedef struct expand_state {
    const lac_device *device; /* the plan holds it */
    lac_expand_shape shape;
    lac_cu_function program[PROGRAMS];
    lac_cu_pointer pieces, range, output;
} expand_state;

/* What the driver encodes for tensor_copy.cuh: 128 bytes. */
typedef struct tensor_map {
    _Alignas(64) uint64_t opaque[16];
} tensor_map;

static bool shape_of(const lac_problem *problem, lac_expand_shape *shape, lac_cost *cost)
{
    lac_cost unused;
    return lac_expand_shape_make(problem, shape, cost ? cost : &unused);
}

bool lac_cuda_expand_applies(const lac_problem *problem)
{
    lac_expand_shape shape;
    lac_dtype dtype = problem->options.x_dtype;
    return (dtype == LAC_DTYPE_F16 || dtype == LAC_DTYPE_BF16) && problem->weight->dtype == dtype &&
           lac_cuda_target_of(problem->device)->has_wgmma && shape_of(problem, &shape, NULL);
}

lac_cost lac_cuda_expand_cost(const lac_problem *problem)
{
    lac_expand_shape shape;
    lac_cost cost = {0};
    shape_of(problem, &shape, &cost);
    return cost;
}

/* ---- programs */

/* Where X is carried by hand, that takes longer than spreading W: nothing is gained by sharing it. */
static int cluster_of(const lac_expand_shape *s, int program) { return program == BY_HAND ? 1 : s->cluster; }

static lac_status requests(const lac_problem *problem, lac_cuda_request requests[LAC_CUDA_MOST_REQUESTS], int *count)
{
    lac_expand_shape s;
    if (!shape_of(problem, &s, NULL)) return lac_fail(LAC_STATUS_INTERNAL, "no shape of the expanding kernel fits the problem");
    *count = s.parts > 1 ? PROGRAMS : REDUCE;
    for (int program = 0; program < *count; ++program) {
        lac_cuda_request *request = &requests[program];
        lac_cuda_request_begin(request, "expand.cu", program == REDUCE ? "lac_tile_reduce" : "lac_expand");
        lac_cuda_request_define_problem(request, problem);
        lac_cuda_request_define(request, "LAC_RUN", s.run);
        lac_cuda_request_define(request, "LAC_PER", s.per);
        lac_cuda_request_define(request, "LAC_TILE_OUTPUTS", s.tile_outputs);
        lac_cuda_request_define(request, "LAC_TILE_TOKENS", s.tile_tokens);
        lac_cuda_request_define(request, "LAC_N", s.width);
        lac_cuda_request_define(request, "LAC_STAGES", s.stages);
        lac_cuda_request_define(request, "LAC_CLUSTER", cluster_of(&s, program));
        lac_cuda_request_define(request, "LAC_PARTS", s.parts);
        lac_cuda_request_define(request, "LAC_X_BY_HAND", program == BY_HAND);
    }
    return LAC_STATUS_OK;
}

const lac_cuda_flow lac_cuda_expand_flow = {requests};

/* Workspace: the sums of the parts. */
size_t lac_cuda_expand_workspace(const lac_problem *problem)
{
    lac_expand_shape s;
    if (!shape_of(problem, &s, NULL) || s.parts == 1) return 0;
    return (size_t)(s.output_tiles * s.token_tiles * s.parts) * (size_t)(s.tile_outputs * s.tile_tokens) * sizeof(float) +
           ALIGNMENT;
}

/* ---- preparing */

static lac_status load_programs(const lac_problem *problem, expand_state *state)
{
    lac_cuda_request request[LAC_CUDA_MOST_REQUESTS];
    int count = 0;
    lac_status status = requests(problem, request, &count);
    for (int i = 0; i < count && !status; ++i)
        status = lac_cuda_program_get(problem->device, &request[i], i == REDUCE ? 0 : lac_expand_shared(&state->shape),
                                      &state->program[i]);
    return status;
}

static lac_status upload(const lac_device *device, const lac_expand_tiled *t, expand_state *state)
{
    const lac_expand_shape *s = &state->shape;
    uint64_t tiles = (uint64_t)s->output_tiles;
    uint64_t bytes = tiles * (uint64_t)s->steps * (uint64_t)(lac_expand_pieces(s) * lac_expand_piece(s));
    lac_status status = lac_cuda_upload(device, "pieces of the weight", t->pieces, bytes, &state->pieces);
    if (!status) status = lac_cuda_upload(device, "stages of each tile", t->range, tiles * 2 * sizeof *t->range, &state->range);
    if (!status)
        status = lac_cuda_upload(device, "places of the outputs", t->output,
                                 tiles * (uint64_t)s->tile_outputs * sizeof *t->output, &state->output);
    return status;
}

lac_status lac_cuda_expand_prepare(const lac_problem *problem, void **out)
{
    expand_state *state = lac_allocate_zeroed(sizeof *state);
    if (!state) return lac_fail_memory("plan of an expanding kernel", sizeof *state);
    state->device = problem->device;
    lac_expand_tiled tiled;
    lac_status status = LAC_STATUS_OK;
    if (!shape_of(problem, &state->shape, NULL))
        status = lac_fail(LAC_STATUS_INTERNAL, "no shape of the expanding kernel fits the problem");
    if (!status) status = load_programs(problem, state);
    if (!status && !(status = lac_expand_tile(problem->weight, &state->shape, &tiled))) {
        status = upload(problem->device, &tiled, state);
        lac_expand_tiled_release(&tiled);
    }
    if (status) {
        lac_cuda_expand_release(state);
        return status;
    }
    *out = state;
    return LAC_STATUS_OK;
}

void lac_cuda_expand_release(void *opaque)
{
    expand_state *state = opaque;
    if (!state) return;
    lac_cuda_free(state->device, state->pieces);
    lac_cuda_free(state->device, state->range);
    lac_cuda_free(state->device, state->output);
    lac_release(state);
}

/* ---- executing */

/* Tiles of outputs that are walked together: as many as L2 keeps. */
static int band_of(const lac_expand_shape *s)
{
    int64_t tiles = s->output_tiles;
    double bytes = (double)s->steps * lac_expand_pieces(s) * lac_expand_piece(s);
    double most = BAND_BYTES / (bytes > 0.0 ? bytes : 1.0);
    return (int)(most < 1.0 ? 1 : most < (double)tiles ? (int64_t)most : tiles);
}

static lac_gather_args make_args(const expand_state *state, const lac_gpu_call *call)
{
    const lac_expand_shape *s = &state->shape;
    uintptr_t workspace = ((uintptr_t)call->workspace + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return (lac_gather_args){.weight = (const unsigned char *)(uintptr_t)state->pieces,
                             .range = (const int *)(uintptr_t)state->range,
                             .output = (const int *)(uintptr_t)state->output,
                             .partial = (float *)workspace,
                             .output_tiles = (int)s->output_tiles,
                             .token_tiles = (int)s->token_tiles,
                             .band = band_of(s)};
}

/* X for the copy engine: boxes of a stage's rows x 64 tokens, or of a stage's inputs x as many tokens as a box may have. False
 * when X is not aligned as it wants it. */
static bool map_x(const lac_problem *problem, const lac_expand_shape *s, const lac_gpu_call *call, tensor_map *map)
{
    enum { FLOAT16 = 6, BFLOAT16 = 9, NO_INTERLEAVE = 0, SWIZZLE_128 = 3, PROMOTE_256 = 3, FILL_ZEROS = 0 };
    const lac_cuda_driver *driver = lac_cuda_driver_get(NULL);
    bool token_major = problem->options.x_layout == LAC_LAYOUT_TOKEN_MAJOR;
    if (!driver || !driver->cuTensorMapEncodeTiled || (uintptr_t)call->x % 16 || call->ldx % 8) return false;
    uint64_t m = (uint64_t)problem->m, k = (uint64_t)problem->weight->k_in;
    uint64_t sizes[2] = {token_major ? k : m, token_major ? m : k}, strides[1] = {(uint64_t)call->ldx * 2};
    unsigned tokens = s->tile_tokens < MOST_BOX ? (unsigned)s->tile_tokens : MOST_BOX, steps[2] = {1, 1};
    unsigned box[2] = {64, token_major ? tokens : LAC_EXPAND_INPUTS};
    int type = problem->options.x_dtype == LAC_DTYPE_BF16 ? BFLOAT16 : FLOAT16;
    return k > 0 && !driver->cuTensorMapEncodeTiled(map, type, 2, (void *)(uintptr_t)call->x, sizes, strides, box, steps,
                                                    NO_INTERLEAVE, SWIZZLE_128, PROMOTE_256, FILL_ZEROS);
}

lac_status lac_cuda_expand_execute(const lac_problem *problem, const void *opaque, const lac_call *call)
{
    const expand_state *state = opaque;
    const lac_expand_shape *s = &state->shape;
    lac_gpu_call gpu_call;
    tensor_map map = {{0}};
    lac_status status = lac_cuda_call_make(problem, call, &gpu_call);
    if (status) return status;
    int program = map_x(problem, s, &gpu_call, &map) ? PRODUCT : BY_HAND, cluster = cluster_of(s, program);
    lac_gather_args args = make_args(state, &gpu_call);
    void *parameters[] = {&gpu_call, &args, &map};
    int64_t tiles = s->token_tiles * s->output_tiles, items = tiles / cluster * s->parts;
    int64_t most = lac_cuda_target_of(problem->device)->multiprocessors / cluster;
    lac_cuda_launch product = {.function = state->program[program],
                               .grid = {(unsigned)((items < most ? items : most) * cluster), 1, 1},
                               .block = PRODUCT_THREADS,
                               .shared_bytes = lac_expand_shared(s),
                               .cluster = (unsigned)cluster};
    lac_cuda_launch reduce = {.function = state->program[REDUCE], .grid = {(unsigned)tiles, 1, 1}, .block = REDUCE_THREADS};
    status = lac_cuda_launch_on(problem->device, &product, call->stream, parameters);
    if (!status && s->parts > 1) status = lac_cuda_launch_on(problem->device, &reduce, call->stream, parameters);
    return status;
}
