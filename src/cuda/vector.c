/* vector.c - cuda_spmv_gather and cuda_spmv_mma: few tokens, bound by reading the weight. Shapes come from vector_shape.c, the
 * re-tiled weight from vector_tile.c; here they are costed, compiled, uploaded and launched. */
#include "cuda/vector.h"

#include "core/arithmetic.h"
#include "core/dtype.h"
#include "cuda/kernels/vector_arguments.h"
#include "cuda/plan.h"
#include "cuda/vector_tile.h"
#include "format/weight.h"

enum { TILES, INDEX, BEGIN, ROW_PERM, COL_PERM, PARTS };

typedef struct vector_state {
    lac_cuda_plan plan;
    lac_cuda_launch launch;
    lac_vector_weight weight; /* the parts, as the kernel takes them */
} vector_state;

static bool is_mma(const lac_problem *problem) { return problem->kernel->config == &lac_cuda_vector_mma_flow; }

bool lac_cuda_vector_applies(const lac_problem *problem)
{
    lac_vector_shape shape;
    return lac_vector_shape_make(problem, is_mma(problem), &shape);
}

static void define_shape(lac_cuda_request *r, const lac_problem *problem, const lac_vector_shape *s)
{
    lac_cuda_request_define(r, "LAC_HAS_COL_PERM", problem->weight->part[LAC_PART_COL_PERM].data != NULL);
    lac_cuda_request_define(r, "LAC_TOKENS", s->tokens);
    lac_cuda_request_define(r, "LAC_ROW_WARPS", s->row_warps);
    lac_cuda_request_define(r, "LAC_K_WARPS", s->k_warps);
    lac_cuda_request_define(r, "LAC_SPLIT", s->split);
    lac_cuda_request_define(r, "LAC_BLOCKS", s->blocks);
    lac_cuda_request_define(r, "LAC_SLOTS", s->slots);
    lac_cuda_request_define(r, "LAC_GROUP_SLOTS", s->group_slots);
    lac_cuda_request_define(r, "LAC_GROUP_INPUTS", s->group_inputs);
    lac_cuda_request_define(r, "LAC_INDEX_KIND", s->index);
    lac_cuda_request_define(r, "LAC_INDEX_BITS", s->entry_bits);
    lac_cuda_request_define(r, "LAC_INDEX_SHARED", s->shared_index);
    lac_cuda_request_define(r, "LAC_CHUNK_INPUTS", s->chunk_inputs);
    lac_cuda_request_define(r, "LAC_CHUNK_STEPS", s->chunk_steps);
    if (s->mma) {
        lac_cuda_request_define(r, "LAC_UNIT_GROUPS", s->unit_groups);
        lac_cuda_request_define(r, "LAC_DIRECT", s->direct);
    } else {
        lac_cuda_request_define(r, "LAC_STEP_GROUPS", s->step_groups);
        lac_cuda_request_define(r, "LAC_GROUP_STEPS", s->group_steps);
        lac_cuda_request_define(r, "LAC_X_WIDE", s->wide);
        lac_cuda_request_define(r, "LAC_DEPTH", s->depth);
        lac_cuda_request_define(r, "LAC_ROUNDS", s->rounds);
    }
}

static lac_status requests(const lac_problem *problem, lac_cuda_request requests[LAC_CUDA_MOST_REQUESTS], int *count)
{
    lac_vector_shape shape;
    if (!lac_vector_shape_make(problem, is_mma(problem), &shape)) return lac_cuda_no_shape(problem);
    lac_cuda_request_begin(requests, shape.mma ? "vector_mma.cu" : "vector.cu", shape.mma ? "lac_vector_mma" : "lac_vector");
    lac_cuda_request_define_problem(requests, problem);
    define_shape(requests, problem, &shape);
    requests->shared_bytes = shape.shared_bytes;
    *count = 1;
    return LAC_STATUS_OK;
}

const lac_cuda_flow lac_cuda_vector_flow = {requests};
const lac_cuda_flow lac_cuda_vector_mma_flow = {requests};

/* ---- cost */

/* Tiles in all; of free columns each row block is taken to need the mean. */
static double tiles_of(const lac_weight *w, const lac_vector_shape *s)
{
    double row_blocks = (double)((w->geometry.n + LAC_VECTOR_ROWS - 1) / LAC_VECTOR_ROWS);
    if (s->index != LAC_VECTOR_INDEX_COLUMNS) return row_blocks * (double)s->steps;
    double slots = (double)w->kept / (double)w->geometry.n;
    return row_blocks * (slots / s->slots + 0.5 * s->chunks);
}

/* Warp instructions and bytes of shared memory of one tile, as the kernels' inner loops have them. */
static void count_gather(const lac_problem *problem, const lac_vector_shape *s, double *instructions, double *shared)
{
    double words = s->wide ? s->tokens : (s->tokens + 1) / 2;
    bool narrow_w = problem->weight->dtype != LAC_DTYPE_F32;
    double find = s->index == LAC_VECTOR_INDEX_NONE ? 0 : s->index == LAC_VECTOR_INDEX_BITMASK ? 5 : 3;
    double loads = s->shared_index ? (words + 3) / 4 : words;
    /* Conversions run slower than FMAs. */
    double each = find + loads + s->tokens + 1.5 * narrow_w + (s->wide ? 0.0 : 1.5 * s->tokens);
    /* Random words of one group hit the same bank now and then when it is longer than the banks are many. */
    double conflicts = s->index == LAC_VECTOR_INDEX_COLUMNS ? 3.5
                       : s->group_inputs > 64               ? 2.5
                       : s->group_inputs > 32               ? 1.7
                                                            : 1.0;
    *instructions = s->slots * each + 4.0 * (s->value_loads + s->index_words) + 30.0;
    *shared = 128.0 * s->slots * (s->shared_index ? loads : loads * conflicts);
}

static void count_mma(const lac_vector_shape *s, double *instructions, double *shared)
{
    if (s->direct) {
        /* 8 mmas for 8 tokens, and 16 words of x for them. */
        double tiles = (s->tokens + 7) / 8;
        *instructions = tiles * 24.0 + 60.0;
        *shared = 128.0 * 16.0 * tiles;
        return;
    }
    double inputs = (s->unit_groups * s->group_inputs + 7) / 8 * 8, mmas = inputs / 4, tiles = (s->tokens + 7) / 8;
    bool clears_words = s->unit_groups * s->group_slots >= inputs / 2 || s->tokens > 8;
    double clear = clears_words ? 2.0 * inputs : s->slots;
    *instructions = 6.5 * s->slots + clear + 2.0 * inputs + 6.0 * mmas * tiles + 4.0 * (s->value_loads + s->index_words) + 40.0;
    /* A store of half a word takes twice the time of a word's. */
    *shared = 128.0 * (2.0 * s->slots + (clears_words ? clear : 2.0 * clear) + 2.0 * inputs + 2.0 * mmas * tiles);
}

static bool starts_early(const lac_problem *problem) { return lac_cuda_target_of(problem->device)->arch >= 90; }

/* What spreading for more than 8 tokens took beyond the counts on an H200: 8 us (8192 x 8192) and 12 us (4096 x 4096). */
static const double SPREAD_MORE_SECONDS = 10e-6;

/* And 2 of 4 without spreading, for which two tiles of tokens wait on x: 7 us (4096 x 4096), 6 us (11008 x 4096), 1 us (8192 x 8192). */
static const double DIRECT_MORE_SECONDS = 5e-6;

/* And for feature-major X a block turns it by itself, so many bytes of it a second: 20 and 26 us with 16 tokens of 4096 inputs. */
static const double FEATURE_X_RATE = 6e9;

/* One token, fitted on an H200: of the instructions that could be issued, those that are; what a cluster takes beside its blocks. */
static const double ONE_EFFICIENCY = 0.85, CLUSTER_SECONDS = 0.7e-6;

/* With one token the multiprocessor with the most row blocks, or shares of them, is the last. Else memory's rate is what counts, and
 * who asks for it does not; but a multiprocessor without a block multiplies nothing. */
static void count_blocks(const lac_problem *problem, const lac_vector_shape *s, lac_gpu_work *work)
{
    int multiprocessors = lac_cuda_target_of(problem->device)->multiprocessors;
    work->blocks = (double)s->grid;
    work->blocks_at_once = (double)lac_larger(s->grid, multiprocessors);
    if (s->mma || s->tokens > 1) return;
    work->blocks = (double)((problem->weight->geometry.n + LAC_VECTOR_ROWS - 1) / LAC_VECTOR_ROWS * s->split);
    work->blocks_at_once = multiprocessors;
    work->efficiency = ONE_EFFICIENCY;
    if (s->split > 1) work->fill_seconds += CLUSTER_SECONDS;
}

lac_cost lac_cuda_vector_cost(const lac_problem *problem)
{
    const lac_weight *w = problem->weight;
    const lac_plan_options *o = &problem->options;
    const lac_gpu_rates *rates = lac_cuda_rates_of(problem->device);
    lac_vector_shape s;
    if (!lac_vector_shape_make(problem, is_mma(problem), &s)) return (lac_cost){.seconds = 1e30, .bound = "memory"};
    double instructions, shared, tiles = tiles_of(w, &s), blocks = (double)s.grid, m = (double)problem->m;
    if (s.mma)
        count_mma(&s, &instructions, &shared);
    else
        count_gather(problem, &s, &instructions, &shared);
    double weight_bytes = tiles * (s.step_bytes + (s.shared_index ? 16.0 * ((s.index_words + 3) / 4) : 0.0));
    double x_bytes = m * (double)w->geometry.k * (double)lac_dtype_size(o->x_dtype);
    double y_bytes = m * (double)w->geometry.n * (double)lac_dtype_size(o->y_dtype) * (o->has_residual ? 2 : 1);
    double x_copies = x_bytes * blocks / s.split, staged = blocks * (s.mma ? (double)s.shared_bytes : (double)s.x_bytes);
    bool turns = s.mma && s.tokens > 8 && o->x_layout == LAC_LAYOUT_FEATURE_MAJOR;
    lac_gpu_work work = {.memory_bytes = weight_bytes + x_bytes + y_bytes,
                         .l2_bytes = weight_bytes + x_copies,
                         .shared_bytes = tiles * shared + staged,
                         .instructions = tiles * instructions + staged / 256.0,
                         .mma_flops =
                             s.mma ? tiles * 2.0 * 32 * 16 * s.unit_groups * s.group_inputs / 4 * ((s.tokens + 7) / 8) * 8 : 0,
                         .fill_seconds = x_copies / rates->l2 + /* products wait for x */
                                         (!s.mma || s.tokens <= 8 ? 0.0
                                          : s.direct              ? DIRECT_MORE_SECONDS
                                                                  : SPREAD_MORE_SECONDS) +
                                         (turns ? x_bytes / FEATURE_X_RATE : 0.0),
                         .launches = 1,
                         .early = starts_early(problem)};
    count_blocks(problem, &s, &work);
    return lac_model_gpu_cost(rates, &work);
}

/* ---- preparing */

static lac_status upload_weight(vector_state *state, const lac_weight *w, const lac_vector_shape *s,
                                const lac_vector_tiled *tiled)
{
    uint64_t tiles = (uint64_t)tiled->tile_count;
    uint64_t row_blocks = (uint64_t)((w->geometry.n + LAC_VECTOR_ROWS - 1) / LAC_VECTOR_ROWS);
    const lac_span *rows = &w->part[LAC_PART_ROW_PERM], *cols = &w->part[LAC_PART_COL_PERM];
    uint64_t index_words = (uint64_t)((s->index_words + 3) / 4 * 4);
    const lac_cuda_part parts[PARTS] = {
        [TILES] = {"re-tiled weight", tiled->tiles, tiles * (uint64_t)s->step_bytes},
        [INDEX] = {"index of the weight", tiled->index, tiles * index_words * 4},
        [BEGIN] = {"chunks of the weight", tiled->begin, row_blocks * (uint64_t)(s->chunks + 1) * 4},
        [ROW_PERM] = {"row permutation", rows->data, rows->bytes},
        [COL_PERM] = {"column permutation", cols->data, cols->bytes},
    };
    lac_status status = lac_cuda_plan_upload(&state->plan, parts, PARTS);
    state->weight = (lac_vector_weight){.tiles = state->plan.part[TILES],
                                        .index = state->plan.part[INDEX],
                                        .begin = state->plan.part[BEGIN],
                                        .row_perm = state->plan.part[ROW_PERM],
                                        .col_perm = state->plan.part[COL_PERM],
                                        .steps = (int)s->steps,
                                        .chunks = s->chunks,
                                        .rows = (int)w->geometry.n,
                                        .cols = (int)w->geometry.k};
    return status;
}

static lac_status prepare_state(const lac_problem *problem, const lac_vector_shape *s, vector_state *state)
{
    lac_status status = lac_cuda_plan_load(&state->plan, problem, NULL);
    lac_vector_tiled tiled = {0};
    if (!status) status = lac_vector_tile(problem->weight, s, &tiled);
    if (!status) status = upload_weight(state, problem->weight, s, &tiled);
    lac_vector_tiled_release(&tiled);
    state->launch = (lac_cuda_launch){.function = state->plan.program[0],
                                      .grid = {(unsigned)s->grid, 1, 1},
                                      .block = (unsigned)(32 * s->row_warps * s->k_warps),
                                      .shared_bytes = s->shared_bytes,
                                      .cluster = (unsigned)s->split,
                                      .early = starts_early(problem)};
    return status;
}

lac_status lac_cuda_vector_prepare(const lac_problem *problem, void **out)
{
    lac_vector_shape shape;
    if (!lac_vector_shape_make(problem, is_mma(problem), &shape)) return lac_cuda_no_shape(problem);
    vector_state *state = lac_cuda_plan_allocate(problem, sizeof *state);
    if (!state) return LAC_STATUS_OUT_OF_MEMORY;
    return lac_cuda_plan_finish(state, prepare_state(problem, &shape, state), out);
}

/* ---- executing */

lac_status lac_cuda_vector_execute(const lac_problem *problem, const void *opaque, const lac_call *call)
{
    const vector_state *state = opaque;
    lac_gpu_call gpu_call;
    lac_status status = lac_cuda_call_make(problem, call, &gpu_call);
    if (status) return status;
    lac_vector_weight weight = state->weight;
    return lac_cuda_launch_on(problem->device, &state->launch, call->stream, (void *[]){&gpu_call, &weight});
}
