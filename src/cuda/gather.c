/* gather.c - fp16 and bf16 on sm_90a: cuts the weight for kernels/gather.cu and kernels/stream.cu, and at each call brings X
 * into the shape that they want where it is not (kernels/turn.cu), multiplies, and adds up the parts where k is split. */
#include "cuda/gather.h"

#include "cuda/gather_tile.h"
#include "cuda/kernels/gather_arguments.h"
#include "cuda/plan.h"
#include "cuda/turn.h"
#include "format/weight.h"

enum { PRODUCT_THREADS = 384, REDUCE_THREADS = 256 };
enum { GATHER, STREAM, REDUCE, TURN, PROGRAMS };
enum { STAGES, INDEX, RANGE, OUTPUT, PARTS };

typedef struct gather_state {
    lac_cuda_plan plan;
    lac_gather_shape shape;
    int stages_a_tile; /* 0: they differ */
} gather_state;

static bool shape_of(const lac_problem *problem, lac_gather_shape *shape, lac_cost *cost)
{
    lac_cost unused;
    lac_gather_kind kind = ((const lac_gather_flow *)problem->kernel->config)->kind;
    return lac_gather_shape_make(problem, kind, shape, cost ? cost : &unused);
}

bool lac_cuda_gather_applies(const lac_problem *problem)
{
    lac_gather_shape shape;
    return lac_cuda_suits_wgmma(problem) && shape_of(problem, &shape, NULL);
}

lac_cost lac_cuda_gather_cost(const lac_problem *problem)
{
    lac_gather_shape shape;
    lac_cost cost = {0};
    shape_of(problem, &shape, &cost);
    return cost;
}

/* ---- programs */

static bool turns(const lac_problem *problem, const lac_gather_shape *s) { return lac_gather_turned_bytes(problem, s) > 0; }

/* Whether a program is stream.cu's: the one for X as it is, and what stands beside it where that reads a copy of X. */
static bool is_stream(const lac_gather_shape *s, int program)
{
    return program == STREAM || (program == GATHER && lac_gather_copies_x(s));
}

/* Beside a stream stands a gather for X that the copy engine cannot take: without cluster, which would want other tiles. */
static int cluster_of(const lac_gather_shape *s, int program)
{
    return s->kind == LAC_GATHER_STREAM && !is_stream(s, program) ? 1 : s->cluster;
}

/* Of a stream's programs, parts meet in the stream alone; a gather beside it does without. */
static bool meets_in(const lac_gather_shape *s, int program)
{
    return s->meets && (is_stream(s, program) || s->kind != LAC_GATHER_STREAM);
}

static int parts_of(const lac_gather_shape *s, int program) { return s->meets && !meets_in(s, program) ? 1 : s->parts; }

/* Parts are added up by another kernel, which writes Y itself. */
static bool stores_y(const lac_gather_shape *s)
{
    return (s->staging > 0 || s->by_last) && s->parts == 1 && !lac_gather_in_turns(s);
}

static bool adds_up(const lac_gather_shape *s) { return s->parts > 1 && !s->meets; }

/* A gather that stands beside a stream has row numbers in shared memory too, and may have room for a stage less. */
static int stages_of(const lac_problem *problem, const lac_gather_shape *s, int program)
{
    unsigned room = lac_cuda_target_of(problem->device)->shared_per_block;
    return !is_stream(s, program) && lac_gather_shared(s) + LAC_GATHER_NUMBERS_BYTES > room ? s->stages - 1 : s->stages;
}

static unsigned shared_of(const lac_problem *problem, const lac_gather_shape *s, int program)
{
    lac_gather_shape own = *s;
    own.stages = stages_of(problem, s, program);
    return lac_gather_shared(&own);
}

/* Stages of the next tile that are multiplied while a tile is stored. It was quicker for dense tiles of 128 x 256 alone
 * (docs/kernels/hopper.md, step 37). */
static int early_of(const lac_problem *problem, const lac_gather_shape *s, int program)
{
    int stages = lac_cuda_early_stages(problem);
    bool tile =
        s->kind == LAC_GATHER_DENSE && s->tile_outputs == 128 && s->tile_tokens == 256 && !s->paired && s->stages > stages;
    return program == GATHER && tile && stores_y(s) ? stages : 0;
}

static void request_product(lac_cuda_request *request, const lac_problem *problem, const lac_gather_shape *s, int program)
{
    static const char *const entries[] = {[GATHER] = "lac_gather", [REDUCE] = "lac_tile_reduce"};
    if (program == STREAM && s->boxes)
        lac_cuda_request_begin(request, "gather_block.cu", "lac_gather_block");
    else if (is_stream(s, program) && lac_gather_streams_few(s))
        lac_cuda_request_begin(request, "stream_few.cu", "lac_stream_few");
    else if (is_stream(s, program))
        lac_cuda_request_begin(request, "stream.cu", "lac_stream");
    else
        lac_cuda_request_begin(request, "gather.cu", entries[program]);
    lac_cuda_request_define_problem(request, problem);
    lac_cuda_request_define(request, "LAC_ROWS", s->rows);
    lac_cuda_request_define(request, "LAC_TILE_OUTPUTS", s->tile_outputs);
    lac_cuda_request_define(request, "LAC_TILE_TOKENS", s->tile_tokens);
    lac_cuda_request_define(request, "LAC_N", s->width);
    lac_cuda_request_define(request, "LAC_STAGES", stages_of(problem, s, program));
    lac_cuda_request_define(request, "LAC_CLUSTER", cluster_of(s, program));
    lac_cuda_request_define(request, "LAC_RESIDENT", s->resident);
    if (program == GATHER && s->few) lac_cuda_request_define(request, "LAC_FEW", 1);
    if (is_stream(s, program) && !s->boxes) {
        lac_cuda_request_define(request, "LAC_PACKED", s->packed);
        lac_cuda_request_define(request, "LAC_X_COPIED", program == GATHER);
        if (lac_gather_streams_few(s)) lac_cuda_request_define(request, "LAC_RUN", lac_gather_run(s));
        if (s->sums != LAC_GATHER_SUMS_READ) lac_cuda_request_define(request, "LAC_PUSHES", s->sums);
    }
    lac_cuda_request_define(request, "LAC_SPARSE", lac_gather_is_sparse(s));
    lac_cuda_request_define(request, "LAC_PARTS", parts_of(s, program));
    if (program <= STREAM && !s->boxes) lac_cuda_request_define(request, "LAC_MEETS", meets_in(s, program));
    lac_cuda_request_define(request, "LAC_PAIRED", s->paired);
    if (program == GATHER && lac_gather_has_holes(s)) lac_cuda_request_define(request, "LAC_HOLES", 1);
    lac_cuda_request_define(request, "LAC_STORES_Y", stores_y(s));
    lac_cuda_request_define(request, "LAC_STAGING_PIECES", s->staging);
    int early = early_of(problem, s, program);
    if (early) lac_cuda_request_define(request, "LAC_EARLY", early);
    if (program <= STREAM) request->shared_bytes = shared_of(problem, s, program);
}

/* Which program each request is. */
static int list_programs(const lac_problem *problem, const lac_gather_shape *s, int which[LAC_CUDA_MOST_REQUESTS])
{
    int count = 0;
    which[count++] = GATHER;
    if (lac_gather_by_engine(problem, s)) which[count++] = STREAM;
    if (adds_up(s)) which[count++] = REDUCE;
    if (turns(problem, s)) which[count++] = TURN;
    return count;
}

static lac_status requests(const lac_problem *problem, lac_cuda_request requests[LAC_CUDA_MOST_REQUESTS], int *count)
{
    lac_gather_shape s;
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

const lac_gather_flow lac_cuda_gather_flow = {{requests}, LAC_GATHER_DENSE};
const lac_gather_flow lac_cuda_gather_sparse_flow = {{requests}, LAC_GATHER_SPARSE};
const lac_gather_flow lac_cuda_stream_flow = {{requests}, LAC_GATHER_STREAM};

/* ---- workspace: X turned round, then the sums of the parts */

static uint64_t partial_bytes(const lac_gather_shape *s)
{
    if (!adds_up(s)) return 0;
    return (uint64_t)(s->output_tiles * s->token_tiles * s->parts) * (uint64_t)(s->tile_outputs * s->tile_tokens) *
           sizeof(float);
}

size_t lac_cuda_gather_workspace(const lac_problem *problem)
{
    lac_gather_shape s;
    if (!shape_of(problem, &s, NULL)) return 0;
    uint64_t bytes = lac_cuda_aligned(lac_gather_turned_bytes(problem, &s)) + partial_bytes(&s);
    return bytes ? (size_t)bytes + LAC_CUDA_ALIGNMENT : 0;
}

/* ---- preparing */

/* How many stages every tile has, in order; 0 where they differ. */
static int even_stages(const lac_gather_tiled *t, int64_t tiles)
{
    int32_t count = tiles > 0 ? t->range[1] - t->range[0] : 0;
    for (int64_t i = 0; i < tiles; ++i)
        if (t->range[2 * i] != i * count || t->range[2 * i + 1] != (i + 1) * count) return 0;
    return count;
}

static lac_status upload(const lac_gather_tiled *t, gather_state *state)
{
    const lac_gather_shape *s = &state->shape;
    uint64_t stages = (uint64_t)t->stage_count, tiles = (uint64_t)s->output_tiles;
    const lac_cuda_part parts[PARTS] = {
        [STAGES] = {"stages of the weight", t->stages, stages * (uint64_t)lac_gather_w_stage(s)},
        [INDEX] = {"rows that the weight selects", t->index, stages * (uint64_t)s->rows * sizeof *t->index},
        [RANGE] = {"stages of each tile", t->range, tiles * 4 * sizeof *t->range},
        [OUTPUT] = {"places of the outputs", t->output, tiles * (uint64_t)s->tile_outputs * sizeof *t->output},
    };
    state->stages_a_tile = even_stages(t, s->output_tiles);
    return lac_cuda_plan_upload(&state->plan, parts, PARTS);
}

lac_status lac_cuda_gather_prepare(const lac_problem *problem, void **out)
{
    gather_state *state = lac_cuda_plan_allocate(problem, sizeof *state);
    if (!state) return LAC_STATUS_OUT_OF_MEMORY;
    lac_gather_tiled tiled;
    int which[LAC_CUDA_MOST_REQUESTS];
    lac_status status = shape_of(problem, &state->shape, NULL) ? LAC_STATUS_OK : lac_cuda_no_shape(problem);
    if (!status) list_programs(problem, &state->shape, which);
    if (!status) status = lac_cuda_plan_load(&state->plan, problem, which);
    if (!status && !(status = lac_gather_tile(problem->weight, &state->shape, &tiled))) {
        status = upload(&tiled, state);
        lac_gather_tiled_release(&tiled);
    }
    return lac_cuda_plan_finish(state, status, out);
}

/* ---- executing */

/* Tiles of outputs that are walked together, a cluster's as one: as many as L2 keeps. */
static int band_of(const lac_gather_shape *s, bool streams)
{
    int64_t wide = streams && s->kind == LAC_GATHER_STREAM ? s->cluster : 1;
    double stages = lac_gather_in_fours(s) ? s->usual_stages : (double)s->most_stages;
    return lac_cuda_band(stages * lac_gather_w_stage(s) * (double)wide, s->output_tiles / wide);
}

static lac_gather_args make_args(const lac_problem *problem, const gather_state *state, const lac_gpu_call *call, bool streams)
{
    const lac_gather_shape *s = &state->shape;
    uintptr_t workspace = lac_cuda_workspace_of(call);
    bool turned = turns(problem, s) && !streams;
    return (lac_gather_args){.weight = state->plan.part[STAGES],
                             .index = state->plan.part[INDEX],
                             .range = state->plan.part[RANGE],
                             .output = state->plan.part[OUTPUT],
                             .x = turned ? (const void *)workspace : call->x,
                             .ldx = turned ? lac_turn_ld(problem) : call->ldx,
                             .partial = (float *)(workspace + lac_cuda_aligned(lac_gather_turned_bytes(problem, s))),
                             .output_tiles = (int)s->output_tiles,
                             .token_tiles = (int)s->token_tiles,
                             .band = band_of(s, streams),
                             .stages_a_tile = state->stages_a_tile};
}

/* X for the copy engine: boxes of a stage's rows x 64 tokens, or of a stage's inputs x a block's share of the tokens, of which a stream
 * brings those that exist where they are all there are (stream_x.cuh, which waits for as many bytes). */
static lac_cuda_boxes boxes_of_x(const lac_problem *problem, const lac_gather_shape *s, const void *x, int64_t ldx,
                                 bool token_major)
{
    int64_t m = problem->m, k = problem->weight->k_in;
    unsigned rows = (unsigned)s->rows, share = (unsigned)(s->tile_tokens / s->cluster);
    if (share > LAC_CUDA_MOST_DOWN) share = LAC_CUDA_MOST_DOWN;
    if (s->kind == LAC_GATHER_STREAM && s->cluster == 1 && m < share) share = (unsigned)m;
    return (lac_cuda_boxes){.data = x,
                            .dtype = problem->options.x_dtype,
                            .columns = token_major ? k : m,
                            .rows = token_major ? m : k,
                            .ld = ldx,
                            .across = token_major ? rows : 64,
                            .down = token_major ? share : rows * (unsigned)lac_gather_run(s)};
}

lac_status lac_cuda_gather_execute(const lac_problem *problem, const void *opaque, const lac_call *call)
{
    const gather_state *state = opaque;
    const lac_gather_shape *s = &state->shape;
    lac_gpu_call gpu_call;
    lac_cuda_tensor_map x_map = {0}, y_map = {0};
    lac_status status = lac_cuda_call_make(problem, call, &gpu_call);
    if (status) return status;
    bool token_major = problem->options.x_layout == LAC_LAYOUT_TOKEN_MAJOR;
    lac_cuda_boxes of_x = boxes_of_x(problem, s, gpu_call.x, gpu_call.ldx, token_major),
                   of_y = lac_cuda_boxes_of_y(problem, &gpu_call);
    bool streams = lac_gather_by_engine(problem, s) && lac_cuda_boxes_suit(&of_x), copies = !streams && lac_gather_copies_x(s);
    lac_gather_args args = make_args(problem, state, &gpu_call, streams);
    args.stores_y = stores_y(s) && lac_cuda_boxes_suit_stores(&of_y);
    if (copies) {
        of_x = boxes_of_x(problem, s, args.x, args.ldx, false);
        of_x.columns = args.ldx; /* zeroes behind the last token: boxes that end outside of X take longer */
    }
    if (streams || copies) status = lac_cuda_tensor_map_make(problem->device, &of_x, &x_map);
    if (!status && args.stores_y) status = lac_cuda_tensor_map_make(problem->device, &of_y, &y_map);
    if (status) return status;
    void *parameters[] = {&gpu_call, &args, streams || copies ? &x_map : &y_map, &y_map};
    int program = streams ? STREAM : GATHER, cluster = cluster_of(s, program), parts = parts_of(s, program);
    int64_t tiles = s->token_tiles * s->output_tiles, items = tiles / cluster * parts;
    int64_t most = lac_cuda_target_of(problem->device)->multiprocessors * s->resident / cluster;
    bool meets = meets_in(s, program); /* a tile is a cluster's, and every block has one */
    if (meets) most = items;
    lac_cuda_launch product = {.function = state->plan.program[program],
                               .grid = {(unsigned)((items < most ? items : most) * cluster), 1, 1},
                               .block = PRODUCT_THREADS,
                               .shared_bytes = shared_of(problem, s, program),
                               .cluster = (unsigned)(meets ? cluster * parts : cluster),
                               .early = true};
    lac_cuda_launch reduce = {
        .function = state->plan.program[REDUCE], .grid = {(unsigned)tiles, 1, 1}, .block = REDUCE_THREADS};
    if (turns(problem, s) && !streams)
        status = lac_turn_x(problem, state->plan.program[TURN], &gpu_call, (void *)(uintptr_t)args.x, call->stream);
    if (!status) status = lac_cuda_launch_on(problem->device, &product, call->stream, parameters);
    if (!status && adds_up(s)) status = lac_cuda_launch_on(problem->device, &reduce, call->stream, parameters);
    return status;
}
