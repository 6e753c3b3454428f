/* window.c - fp32 on tensor cores by scaled half pairs, and tf32: cuts the weight for kernels/window.cu (wgmma) or
 * kernels/window_mma.cu (mma.sync), and at each call splits X (kernels/split.cu) and multiplies. The kernels of kernels.c differ in what lac_window_variant says. */
#include "cuda/window.h"

#include "core/status.h"
#include "cuda/kernels/window_arguments.h"
#include "cuda/plan.h"
#include "cuda/window_tile.h"
#include "format/weight.h"

enum { SPLIT_THREADS = 256, WGMMA_THREADS = 384, MMA_THREADS = 256, REDUCE_THREADS = 256 };
enum { SPLIT, WINDOW, REDUCE, PROGRAMS }; /* the order of the requests */
enum { TILES, FACTOR, OUTPUT, SOURCE, PARTS };

typedef struct window_state {
    lac_cuda_plan plan;
    lac_window_shape shape;
    int32_t exponent;
    bool odd;
} window_state;

static const lac_window_variant *variant_of(const lac_problem *problem)
{
    return &((const lac_window_flow *)problem->kernel->config)->variant;
}

static bool shape_of(const lac_problem *problem, lac_window_shape *shape, lac_cost *cost)
{
    lac_cost unused;
    return lac_window_shape_make(problem, variant_of(problem), shape, cost ? cost : &unused);
}

/* fp32 alone: 16-bit operands need no split. */
bool lac_cuda_window_applies(const lac_problem *problem)
{
    const lac_window_variant *variant = variant_of(problem);
    lac_precision wanted = variant->planes == 2 ? LAC_PRECISION_FAST : LAC_PRECISION_TF32;
    lac_window_shape shape;
    bool is_f32 = problem->options.x_dtype == LAC_DTYPE_F32 || problem->weight->dtype == LAC_DTYPE_F32;
    const lac_cuda_target *target = lac_cuda_target_of(problem->device);
    bool able = variant->mma ? target->arch >= 75 : target->has_wgmma;
    return is_f32 && able && problem->options.precision == wanted && shape_of(problem, &shape, NULL);
}

lac_cost lac_cuda_window_cost(const lac_problem *problem)
{
    lac_window_shape shape;
    lac_cost cost = {0};
    shape_of(problem, &shape, &cost);
    return cost;
}

/* ---- programs */

/* Of kernels/split.cu: it turns token-major X. */
static unsigned split_shared(const lac_problem *problem, const lac_window_shape *s)
{
    return problem->options.x_layout == LAC_LAYOUT_TOKEN_MAJOR ? (unsigned)(s->variant.planes * s->window * 33) * 4 : 0;
}

static void define_shape(lac_cuda_request *request, const lac_window_shape *s)
{
    lac_cuda_request_define(request, "LAC_WINDOW", s->window);
    lac_cuda_request_define(request, "LAC_TOKENS", s->tokens);
    lac_cuda_request_define(request, "LAC_UNIT", s->unit);
    lac_cuda_request_define(request, "LAC_LOW_SHIFT", s->low_shift);
    lac_cuda_request_define(request, "LAC_EARLY", !s->variant.mma);
    lac_cuda_request_define(request, "LAC_PLANES", s->variant.planes);
    lac_cuda_request_define(request, "LAC_ZERO_ROWS", s->zero_rows);
}

static void request_product(lac_cuda_request *request, const lac_problem *problem, const lac_window_shape *s, const char *entry)
{
    lac_cuda_request_begin(request, s->variant.mma ? "window_mma.cu" : "window.cu", entry);
    lac_cuda_request_define_problem(request, problem);
    define_shape(request, s);
    lac_cuda_request_define(request, "LAC_STEPS", s->steps);
    lac_cuda_request_define(request, "LAC_WIDTH", s->width);
    lac_cuda_request_define(request, "LAC_VECTORS", s->vectors);
    lac_cuda_request_define(request, "LAC_CHUNK", s->chunk);
    lac_cuda_request_define(request, "LAC_PLACES", lac_window_places(s));
    lac_cuda_request_define(request, "LAC_STAGES", s->stages);
    lac_cuda_request_define(request, "LAC_RING", s->ring);
    lac_cuda_request_define(request, "LAC_PARTS", s->parts);
}

/* What applies has a shape, unless there is no memory to count what row groups keep. */
static lac_status no_shape(void) { return lac_fail_memory("units of a row group", 0); }

static lac_status requests(const lac_problem *problem, lac_cuda_request requests[LAC_CUDA_MOST_REQUESTS], int *count)
{
    lac_window_shape s;
    if (!shape_of(problem, &s, NULL)) return no_shape();
    lac_cuda_request_begin(&requests[SPLIT], "split.cu", "lac_split");
    lac_cuda_request_define(&requests[SPLIT], "LAC_X_DTYPE", problem->options.x_dtype);
    lac_cuda_request_define(&requests[SPLIT], "LAC_X_TOKEN_MAJOR", problem->options.x_layout == LAC_LAYOUT_TOKEN_MAJOR);
    lac_cuda_request_define(&requests[SPLIT], "LAC_HAS_COL_PERM", problem->weight->part[LAC_PART_COL_PERM].data != NULL);
    lac_cuda_request_define(&requests[SPLIT], "LAC_THREADS", SPLIT_THREADS);
    define_shape(&requests[SPLIT], &s);
    requests[SPLIT].shared_bytes = split_shared(problem, &s);
    request_product(&requests[WINDOW], problem, &s, s.variant.mma ? "lac_window_mma" : "lac_window");
    requests[WINDOW].shared_bytes = lac_window_shared(&s);
    *count = REDUCE;
    if (s.parts > 1) request_product(&requests[(*count)++], problem, &s, "lac_window_reduce");
    return LAC_STATUS_OK;
}

const lac_window_flow lac_cuda_fast_flow = {{requests}, {.planes = 2}};
const lac_window_flow lac_cuda_fast_dense_flow = {{requests}, {.planes = 2, .dense = true}};
const lac_window_flow lac_cuda_fast_mma_flow = {{requests}, {.planes = 2, .mma = true}};
const lac_window_flow lac_cuda_fast_mma_dense_flow = {{requests}, {.planes = 2, .mma = true, .dense = true}};
const lac_window_flow lac_cuda_tf32_flow = {{requests}, {.planes = 1}};
const lac_window_flow lac_cuda_tf32_dense_flow = {{requests}, {.planes = 1, .dense = true}};
const lac_window_flow lac_cuda_tf32_mma_flow = {{requests}, {.planes = 1, .mma = true}};
const lac_window_flow lac_cuda_tf32_mma_dense_flow = {{requests}, {.planes = 1, .mma = true, .dense = true}};

/* ---- workspace: X in tiles, whether they are odd, the sums of the parts */

typedef struct window_workspace {
    uint64_t odd, partial, bytes; /* the tiles come first */
} window_workspace;

static window_workspace lay_out(const lac_window_shape *s)
{
    window_workspace w;
    uint64_t tokens = (uint64_t)s->token_tiles, tiles = tokens * (uint64_t)s->output_tiles;
    w.odd = lac_cuda_aligned(tokens * (uint64_t)s->windows * (uint64_t)lac_window_x_tile(s));
    w.partial = w.odd + lac_cuda_aligned(tokens * (uint64_t)s->windows * (uint64_t)(s->tokens / 64) * sizeof(uint32_t));
    uint64_t sums = (uint64_t)s->tokens * (uint64_t)lac_window_tile_width(s) * sizeof(float);
    w.bytes = w.partial + (s->parts > 1 ? tiles * (uint64_t)s->parts * sums : 0);
    return w;
}

size_t lac_cuda_window_workspace(const lac_problem *problem)
{
    lac_window_shape s;
    return shape_of(problem, &s, NULL) ? (size_t)lay_out(&s).bytes + LAC_CUDA_ALIGNMENT : 0;
}

/* ---- preparing */

static lac_status upload(const lac_problem *problem, const lac_window_tiled *t, window_state *state)
{
    const lac_span *source = &problem->weight->part[LAC_PART_COL_PERM];
    const lac_cuda_part parts[PARTS] = {
        [TILES] = {"tiles of the weight", t->tiles, t->tile_bytes},
        [FACTOR] = {"factors of the outputs", t->factor, t->outputs * sizeof *t->factor},
        [OUTPUT] = {"places of the outputs", t->output, t->outputs * sizeof *t->output},
        [SOURCE] = {"permutation of the inputs", source->data, source->bytes},
    };
    state->exponent = t->exponent;
    state->odd = t->odd;
    return lac_cuda_plan_upload(&state->plan, parts, PARTS);
}

lac_status lac_cuda_window_prepare(const lac_problem *problem, void **out)
{
    window_state *state = lac_cuda_plan_allocate(problem, sizeof *state);
    if (!state) return LAC_STATUS_OUT_OF_MEMORY;
    lac_window_tiled tiled;
    lac_status status = shape_of(problem, &state->shape, NULL) ? LAC_STATUS_OK : no_shape();
    if (!status) status = lac_cuda_plan_load(&state->plan, problem, NULL);
    if (!status && !(status = lac_window_tile(problem->weight, &state->shape, &tiled))) {
        status = upload(problem, &tiled, state);
        lac_window_tiled_release(&tiled);
    }
    return lac_cuda_plan_finish(state, status, out);
}

/* ---- executing */

static lac_window_args make_args(const lac_problem *problem, const window_state *state, const lac_gpu_call *call)
{
    const lac_window_shape *s = &state->shape;
    window_workspace w = lay_out(s);
    uintptr_t workspace = lac_cuda_workspace_of(call);
    return (lac_window_args){.weight = state->plan.part[TILES],
                             .factor = state->plan.part[FACTOR],
                             .output = state->plan.part[OUTPUT],
                             .source = state->plan.part[SOURCE],
                             .tiles = (void *)workspace,
                             .odd = (unsigned *)(workspace + w.odd),
                             .partial = (float *)(workspace + w.partial),
                             .windows = (int)s->windows,
                             .token_tiles = (int)s->token_tiles,
                             .output_tiles = (int)s->output_tiles,
                             .k = (int)problem->weight->geometry.k,
                             .exponent = state->exponent,
                             .vectors = (int)s->vector_count,
                             .weight_odd = state->odd};
}

lac_status lac_cuda_window_execute(const lac_problem *problem, const void *opaque, const lac_call *call)
{
    const window_state *state = opaque;
    const lac_window_shape *s = &state->shape;
    lac_gpu_call gpu_call;
    lac_status status = lac_cuda_call_make(problem, call, &gpu_call);
    if (status) return status;
    lac_window_args args = make_args(problem, state, &gpu_call);
    void *parameters[] = {&gpu_call, &args};
    int64_t tiles = s->token_tiles * s->output_tiles;
    int64_t blocks = tiles * s->parts, at_once = lac_cuda_target_of(problem->device)->multiprocessors;
    if (!s->variant.mma && blocks > at_once && at_once > 0) blocks = at_once; /* wgmma's blocks run over the tiles */
    lac_cuda_launch split = {.function = state->plan.program[SPLIT],
                             .grid = {(unsigned)(s->windows * (s->tokens / 64) * s->token_tiles), 1, 1},
                             .block = SPLIT_THREADS,
                             .shared_bytes = split_shared(problem, s)};
    lac_cuda_launch window = {.function = state->plan.program[WINDOW],
                              .grid = {(unsigned)blocks, 1, 1},
                              .block = s->variant.mma ? MMA_THREADS : WGMMA_THREADS,
                              .shared_bytes = lac_window_shared(s),
                              .early = !s->variant.mma};
    lac_cuda_launch reduce = {
        .function = state->plan.program[REDUCE], .grid = {(unsigned)tiles, 1, 1}, .block = REDUCE_THREADS};
    status = lac_cuda_launch_on(problem->device, &split, call->stream, parameters);
    if (!status) status = lac_cuda_launch_on(problem->device, &window, call->stream, parameters);
    if (!status && s->parts > 1) status = lac_cuda_launch_on(problem->device, &reduce, call->stream, parameters);
    return status;
}
