/* expand.c - fp16 and bf16 on sm_90a, element-wise patterns: cuts the weight for kernels/expand.cu and kernels/expand_ring.cu, and at
 * each call multiplies and adds up the parts where k is split. X that the tensor copy engine does not take, because it is not
 * aligned to 16 bytes, is carried into shared memory by hand, by expand.cu for both. */
#include "cuda/expand.h"

#include "cuda/expand_tile.h"
#include "cuda/kernels/expand_arguments.h"
#include "cuda/kernels/gather_arguments.h"
#include "cuda/plan.h"
#include "format/weight.h"

enum { PRODUCT_THREADS = 384, REDUCE_THREADS = 256, CLEAR_THREADS = 256, BY_HAND_TOKENS = 128, EARLY_WORDS = 10 };
enum { PRODUCT, BY_HAND, LAST, PROGRAMS }; /* the order of the requests; LAST adds up parts, or clears the ring's counters */
enum { PIECES, RANGE, OUTPUT, PARTS };

typedef struct expand_state {
    lac_cuda_plan plan;
    lac_expand_shape shape;
} expand_state;

static bool shape_of(const lac_problem *problem, lac_expand_shape *shape, lac_cost *cost)
{
    lac_cost unused;
    bool ring = ((const lac_expand_flow *)problem->kernel->config)->ring;
    return lac_expand_shape_make(problem, ring, shape, cost ? cost : &unused);
}

bool lac_cuda_expand_applies(const lac_problem *problem)
{
    lac_expand_shape shape;
    return lac_cuda_suits_wgmma(problem) && shape_of(problem, &shape, NULL);
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

/* Beside a ring X is carried by hand into tiles of fewer tokens: its loop takes registers that their sums leave. */
static int tokens_of(const lac_expand_shape *s, int program)
{
    return program == BY_HAND && s->team && s->tile_tokens > BY_HAND_TOKENS ? BY_HAND_TOKENS : s->tile_tokens;
}

/* Whether a third program is needed: see LAST. */
static bool has_last(const lac_expand_shape *s) { return s->parts > 1 || s->team > 0; }

/* Stages of the next tile that the ring's blocks multiply while a tile is stored. Token-major Y leaves too few registers for it, and so do
 * more words of W in the threads that spread, which have fewer then. */
static int early_of(const lac_problem *problem, const lac_expand_shape *s)
{
    int stages = lac_cuda_early_stages(problem);
    bool feature_major =
        problem->options.x_layout == LAC_LAYOUT_FEATURE_MAJOR && problem->options.y_layout == LAC_LAYOUT_FEATURE_MAJOR;
    bool tile = s->tile_tokens == 256 && s->staging > 0 && s->stages > stages;
    return feature_major && tile && s->words <= EARLY_WORDS ? stages : 0;
}

static void request_product(lac_cuda_request *request, const lac_problem *problem, const lac_expand_shape *s, int program)
{
    bool ring = s->team > 0 && program == PRODUCT;
    lac_cuda_request_begin(request, ring ? "expand_ring.cu" : "expand.cu",
                           ring              ? "lac_expand_ring"
                           : program == LAST ? "lac_tile_reduce"
                                             : "lac_expand");
    lac_cuda_request_define_problem(request, problem);
    lac_cuda_request_define(request, "LAC_RUN", s->run);
    lac_cuda_request_define(request, "LAC_PER", s->per);
    lac_cuda_request_define(request, "LAC_BOTH_ENDS", s->team > 0);
    lac_cuda_request_define(request, "LAC_TILE_OUTPUTS", s->tile_outputs);
    lac_cuda_request_define(request, "LAC_TILE_TOKENS", tokens_of(s, program));
    lac_cuda_request_define(request, "LAC_N", s->team ? tokens_of(s, program) : s->width);
    lac_cuda_request_define(request, "LAC_STAGES", s->stages);
    lac_cuda_request_define(request, "LAC_CLUSTER", cluster_of(s, program));
    if (ring) {
        lac_cuda_request_define(request, "LAC_SPREADERS", s->spreaders);
        lac_cuda_request_define(request, "LAC_STORES_Y", s->staging > 0);
        lac_cuda_request_define(request, "LAC_STAGING_PIECES", s->staging);
        int early = early_of(problem, s);
        if (early) lac_cuda_request_define(request, "LAC_EARLY", early);
    } else {
        lac_cuda_request_define(request, "LAC_PARTS", s->parts);
        lac_cuda_request_define(request, "LAC_X_BY_HAND", program == BY_HAND);
    }
}

static lac_status requests(const lac_problem *problem, lac_cuda_request requests[LAC_CUDA_MOST_REQUESTS], int *count)
{
    lac_expand_shape s;
    if (!shape_of(problem, &s, NULL)) return lac_cuda_no_shape(problem);
    *count = has_last(&s) ? PROGRAMS : LAST;
    for (int program = 0; program < *count; ++program) {
        if (program == LAST && s.team)
            lac_cuda_request_begin(&requests[program], "expand_clear.cu", "lac_expand_clear");
        else
            request_product(&requests[program], problem, &s, program);
        if (program != LAST) requests[program].shared_bytes = lac_expand_shared(&s);
    }
    return LAC_STATUS_OK;
}

const lac_expand_flow lac_cuda_expand_flow = {{requests}, false};
const lac_expand_flow lac_cuda_expand_ring_flow = {{requests}, true};

/* ---- workspace: the sums of the parts; or the ring's counters, then the rings */

static uint64_t counters_of(const lac_expand_shape *s) { return (uint64_t)s->teams * 2 * LAC_RING_SLOTS * LAC_RING_COUNTER; }

size_t lac_cuda_expand_workspace(const lac_problem *problem)
{
    lac_expand_shape s;
    if (!shape_of(problem, &s, NULL) || !has_last(&s)) return 0;
    if (s.team)
        return (size_t)(counters_of(&s) * sizeof(unsigned)) +
               (size_t)s.teams * LAC_RING_SLOTS * LAC_RING_STEPS * 2 * LAC_RING_TILE + LAC_CUDA_ALIGNMENT;
    return (size_t)(s.output_tiles * s.token_tiles * s.parts) * (size_t)(s.tile_outputs * s.tile_tokens) * sizeof(float) +
           LAC_CUDA_ALIGNMENT;
}

/* ---- preparing */

static lac_status upload(const lac_expand_tiled *t, expand_state *state)
{
    const lac_expand_shape *s = &state->shape;
    uint64_t tiles = (uint64_t)s->output_tiles, piece_bytes = (uint64_t)(lac_expand_pieces(s) * lac_expand_piece(s));
    const lac_cuda_part parts[PARTS] = {
        [PIECES] = {"pieces of the weight", t->pieces, tiles * (uint64_t)s->steps * piece_bytes},
        [RANGE] = {"stages of each tile", t->range, tiles * 2 * sizeof *t->range},
        [OUTPUT] = {"places of the outputs", t->output, tiles * (uint64_t)s->tile_outputs * sizeof *t->output},
    };
    return lac_cuda_plan_upload(&state->plan, parts, PARTS);
}

lac_status lac_cuda_expand_prepare(const lac_problem *problem, void **out)
{
    expand_state *state = lac_cuda_plan_allocate(problem, sizeof *state);
    if (!state) return LAC_STATUS_OUT_OF_MEMORY;
    lac_expand_tiled tiled;
    lac_status status = shape_of(problem, &state->shape, NULL) ? LAC_STATUS_OK : lac_cuda_no_shape(problem);
    if (!status) status = lac_cuda_plan_load(&state->plan, problem, NULL);
    if (!status && !(status = lac_expand_tile(problem->weight, &state->shape, &tiled))) {
        status = upload(&tiled, state);
        lac_expand_tiled_release(&tiled);
    }
    return lac_cuda_plan_finish(state, status, out);
}

/* ---- executing */

static lac_gather_args make_args(const expand_state *state, const lac_gpu_call *call, int program)
{
    const lac_expand_shape *s = &state->shape;
    double tile_bytes = (double)s->steps * lac_expand_pieces(s) * lac_expand_piece(s);
    return (lac_gather_args){.weight = state->plan.part[PIECES],
                             .range = state->plan.part[RANGE],
                             .output = state->plan.part[OUTPUT],
                             .partial = (float *)lac_cuda_workspace_of(call),
                             .output_tiles = (int)s->output_tiles,
                             .token_tiles = (int)(s->token_tiles * (s->tile_tokens / tokens_of(s, program))),
                             .band = s->team && program == PRODUCT ? s->team : lac_cuda_band(tile_bytes, s->output_tiles),
                             .stages_a_tile = s->team ? (int)s->steps : 0};
}

/* X for the copy engine: boxes of a stage's rows x 64 tokens, or of a stage's inputs x as many tokens as a box may have, through
 * the ring a block's share of them. */
static lac_cuda_boxes boxes_of_x(const lac_problem *problem, const lac_expand_shape *s, const lac_gpu_call *call)
{
    bool token_major = problem->options.x_layout == LAC_LAYOUT_TOKEN_MAJOR;
    int64_t m = problem->m, k = problem->weight->k_in;
    unsigned tokens = (unsigned)(s->team ? s->tile_tokens / s->cluster : s->tile_tokens);
    return (lac_cuda_boxes){.data = call->x,
                            .dtype = problem->options.x_dtype,
                            .columns = token_major ? k : m,
                            .rows = token_major ? m : k,
                            .ld = call->ldx,
                            .across = 64,
                            .down = !token_major                  ? LAC_EXPAND_INPUTS
                                    : tokens < LAC_CUDA_MOST_DOWN ? tokens
                                                                  : LAC_CUDA_MOST_DOWN};
}

static lac_status execute_ring(const lac_problem *problem, const expand_state *state, void *stream, lac_gpu_call *gpu_call,
                               lac_gather_args *args, lac_cuda_tensor_map *x_map)
{
    const lac_expand_shape *s = &state->shape;
    lac_cuda_tensor_map y_map = {{0}};
    lac_cuda_boxes of_y = lac_cuda_boxes_of_y(problem, gpu_call);
    lac_status status = LAC_STATUS_OK;
    unsigned *counters = (unsigned *)lac_cuda_workspace_of(gpu_call);
    int count = (int)counters_of(s);
    lac_ring_args ring = {
        .ring = (unsigned char *)(counters + count), .counters = counters, .team = s->team, .steps = (int)s->steps};
    args->stores_y = s->staging > 0 && lac_cuda_boxes_suit_stores(&of_y);
    if (args->stores_y) status = lac_cuda_tensor_map_make(problem->device, &of_y, &y_map);
    unsigned clear_blocks = (unsigned)((count + CLEAR_THREADS - 1) / CLEAR_THREADS);
    lac_cuda_launch clear = {
        .function = state->plan.program[LAST], .grid = {clear_blocks, 1, 1}, .block = CLEAR_THREADS, .early = true};
    lac_cuda_launch product = {.function = state->plan.program[PRODUCT],
                               .grid = {(unsigned)(s->team * s->teams * s->cluster), 1, 1},
                               .block = (unsigned)(256 + 32 * (s->spreaders + 1)),
                               .shared_bytes = lac_expand_shared(s),
                               .cluster = (unsigned)s->cluster,
                               .together = true,
                               .early = true};
    if (!status) status = lac_cuda_launch_on(problem->device, &clear, stream, (void *[]){&counters, &count});
    if (!status)
        status = lac_cuda_launch_on(problem->device, &product, stream, (void *[]){gpu_call, args, &ring, x_map, &y_map});
    return status;
}

lac_status lac_cuda_expand_execute(const lac_problem *problem, const void *opaque, const lac_call *call)
{
    const expand_state *state = opaque;
    const lac_expand_shape *s = &state->shape;
    lac_gpu_call gpu_call;
    lac_cuda_tensor_map map = {{0}};
    lac_status status = lac_cuda_call_make(problem, call, &gpu_call);
    if (status) return status;
    lac_cuda_boxes of_x = boxes_of_x(problem, s, &gpu_call);
    int program = lac_cuda_boxes_suit(&of_x) ? PRODUCT : BY_HAND, cluster = cluster_of(s, program);
    if (program == PRODUCT && (status = lac_cuda_tensor_map_make(problem->device, &of_x, &map))) return status;
    lac_gather_args args = make_args(state, &gpu_call, program);
    if (s->team && program == PRODUCT) return execute_ring(problem, state, call->stream, &gpu_call, &args, &map);
    void *parameters[] = {&gpu_call, &args, &map};
    int64_t tiles = (int64_t)args.token_tiles * s->output_tiles, items = tiles / cluster * s->parts;
    int64_t most = lac_cuda_target_of(problem->device)->multiprocessors / cluster;
    lac_cuda_launch product = {.function = state->plan.program[program],
                               .grid = {(unsigned)((items < most ? items : most) * cluster), 1, 1},
                               .block = PRODUCT_THREADS,
                               .shared_bytes = lac_expand_shared(s),
                               .cluster = (unsigned)cluster};
    lac_cuda_launch reduce = {.function = state->plan.program[LAST], .grid = {(unsigned)tiles, 1, 1}, .block = REDUCE_THREADS};
    status = lac_cuda_launch_on(problem->device, &product, call->stream, parameters);
    if (!status && s->parts > 1) status = lac_cuda_launch_on(problem->device, &reduce, call->stream, parameters);
    return status;
}
