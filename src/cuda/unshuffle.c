/* unshuffle.c - cuda_unshuffle: token-major Y whose outputs stand in another order than W's rows. Kernels that know where an output
 * belongs write it there element by element, since the neighbours of a row of W are elsewhere in Y. Here whichever kernel is the
 * cheapest multiplies as if the rows of W were in order, at its full speed, into the workspace, and kernels/reorder.cu puts each
 * token's outputs in their places. What the epilogue reads for an output, C and bias, is brought into W's order before.
 *
 * The other kernel sees a weight without row_perm, and needs not know of this one. */
#include "cuda/unshuffle.h"

#include "core/arithmetic.h"
#include "core/dtype.h"
#include "core/memory.h"
#include "core/status.h"
#include "cuda/backend.h"
#include "cuda/kernels/reorder_arguments.h"
#include "cuda/plan.h"
#include "format/weight.h"

enum { PITCH = 64, LEAST_THREADS = 256, MOST_THREADS = 1024, PADDING = 8 };
enum { TO_W, TO_Y, DIRECTIONS }; /* from the order of Y to that of W's rows, and back */
enum { HALVES, WORDS, WIDTHS };  /* elements of two bytes, of four: a program each */

/* How kernels/reorder.cu cuts a matrix with elements of a width. */
typedef struct pass_shape {
    int tokens;    /* of a line: words of shared memory hold an element of each */
    int lane_bits; /* threads of a line, as a power of two */
    unsigned threads, shared_bytes;
} pass_shape;

/* The weight without row_perm, whose parts are the other one's, and the kernel that is the cheapest for it. */
typedef struct inner_product {
    lac_weight weight;
    const lac_kernel *kernel; /* NULL: none applies */
    lac_cost cost;
} inner_product;

typedef struct unshuffle_state {
    lac_cuda_plan plan; /* a program for each width, an order for each direction */
    inner_product inner;
    void *inner_state;
    size_t workspace_bytes;
    pass_shape shape[WIDTHS];
} unshuffle_state;

/* ---- the problem within */

static void put_in_order(const lac_weight *from, lac_weight *to)
{
    *to = (lac_weight){.pattern = from->pattern,
                       .geometry = from->geometry,
                       .dtype = from->dtype,
                       .encoding = from->encoding,
                       .n_out = from->n_out,
                       .k_in = from->k_in,
                       .kept = from->kept,
                       .first_slot = from->first_slot};
    for (int i = 0; i < LAC_PART_COUNT; ++i)
        if (i != LAC_PART_ROW_PERM) to->part[i] = from->part[i];
}

/* What is counted over a weight does not depend on the order of Y: nobody needs to count it twice. */
static void share_facts(const lac_weight *from, const lac_weight *to)
{
    for (lac_weight_fact fact = 0; fact < LAC_FACT_COUNT; ++fact) {
        int known = lac_weight_known(from, fact);
        if (known >= 0) lac_weight_note(to, fact, known);
    }
}

static lac_problem problem_within(const lac_problem *problem, const inner_product *inner, const lac_kernel *kernel)
{
    lac_problem within = *problem;
    within.weight = &inner->weight;
    within.kernel = kernel;
    return within;
}

/* Any that multiplies by what W keeps and asks for nothing that may be missing. */
static bool is_eligible(const lac_kernel *kernel)
{
    return !kernel->inner && !kernel->oracle && !kernel->info.is_dense && !kernel->available;
}

static void find_inner(const lac_problem *problem, inner_product *out)
{
    out->kernel = NULL;
    out->cost = (lac_cost){0};
    put_in_order(problem->weight, &out->weight);
    share_facts(problem->weight, &out->weight);
    for (size_t i = 0; i < lac_cuda_kernel_count; ++i) {
        const lac_kernel *kernel = &lac_cuda_kernels[i];
        lac_problem within = problem_within(problem, out, kernel);
        if (!is_eligible(kernel) || !kernel->applies(&within)) continue;
        lac_cost cost = kernel->cost(&within);
        if (out->kernel && cost.seconds >= out->cost.seconds) continue;
        out->kernel = kernel;
        out->cost = cost;
    }
    share_facts(&out->weight, problem->weight);
}

const lac_kernel *lac_cuda_unshuffle_inner(const lac_problem *problem)
{
    inner_product inner;
    find_inner(problem, &inner);
    return inner.kernel;
}

/* ---- what is reordered */

static int width_of(lac_dtype dtype) { return lac_dtype_size(dtype) == 4 ? WORDS : HALVES; }
static int64_t pitch_of(const lac_problem *problem) { return lac_ceil_divide(problem->weight->n_out, PITCH) * PITCH; }

/* A thread has 16 bytes of a token at a time. Where a line has fewer of these than a block has threads, the block has several lines. */
static pass_shape shape_of(const lac_problem *problem, int width)
{
    int element_bytes = width == WORDS ? 4 : 2;
    int64_t chunk = 16 / element_bytes, chunks = lac_ceil_divide(problem->weight->n_out, chunk);
    pass_shape s = {.tokens = 4 / element_bytes, .threads = LEAST_THREADS};
    while (s.threads < MOST_THREADS && s.threads < chunks) s.threads *= 2;
    while (1u << s.lane_bits < s.threads && 1 << s.lane_bits < chunks) ++s.lane_bits;
    s.shared_bytes = (s.threads >> s.lane_bits) * (unsigned)(chunks * chunk) * 4;
    return s;
}

/* Whether the matrices that have another order are of elements of this width. */
static bool reorders(const lac_problem *problem, int width)
{
    const lac_plan_options *o = &problem->options;
    return width_of(o->y_dtype) == width || (o->has_residual && width_of(o->c_dtype) == width) ||
           (o->has_bias && width_of(o->bias_dtype) == width);
}

/* Every output must be one of W's rows: a shard that has only some of them leaves the others alone. And a line must fit shared memory,
 * and its columns sixteen bits. A kernel for the products there always is: cuda_f32_plain takes everything. */
bool lac_cuda_unshuffle_applies(const lac_problem *problem)
{
    const lac_weight *w = problem->weight;
    if (!w->part[LAC_PART_ROW_PERM].data || problem->options.y_layout != LAC_LAYOUT_TOKEN_MAJOR) return false;
    if (w->geometry.n != w->n_out || w->n_out == 0 || w->n_out > UINT16_MAX) return false;
    if (shape_of(problem, HALVES).shared_bytes > lac_cuda_target_of(problem->device)->shared_per_block) return false;
    return problem->m > 0 && problem->m <= INT32_MAX - 2 * MOST_THREADS;
}

lac_cost lac_cuda_unshuffle_cost(const lac_problem *problem)
{
    const lac_plan_options *o = &problem->options;
    const lac_gpu_rates *rates = lac_cuda_rates_of(problem->device);
    inner_product inner;
    find_inner(problem, &inner);
    lac_cost cost = inner.cost;
    double elements = (double)problem->m * (double)problem->weight->n_out, bytes = 2.0 * elements;
    if (o->has_bias) lac_model_gpu_pass(rates, 0.0, &cost);
    if (o->has_residual) lac_model_gpu_pass(rates, bytes * (double)lac_dtype_size(o->c_dtype), &cost);
    lac_model_gpu_pass(rates, bytes * (double)lac_dtype_size(o->y_dtype), &cost);
    return cost;
}

static void request_reorder(int width, lac_cuda_request *request)
{
    lac_cuda_request_begin(request, "reorder.cu", "lac_reorder");
    lac_cuda_request_define(request, "LAC_ELEMENT_BYTES", width == WORDS ? 4 : 2);
}

static lac_status fail_without(void)
{
    return lac_fail(LAC_STATUS_INTERNAL, "no kernel applies to the weight in the order of its rows");
}

static lac_status requests(const lac_problem *problem, lac_cuda_request requests[LAC_CUDA_MOST_REQUESTS], int *count)
{
    inner_product inner;
    find_inner(problem, &inner);
    lac_problem within = problem_within(problem, &inner, inner.kernel);
    *count = 0;
    if (!inner.kernel) return fail_without();
    lac_status status = ((const lac_cuda_flow *)inner.kernel->config)->requests(&within, requests, count);
    for (int width = HALVES; width < WIDTHS && !status; ++width)
        if (reorders(problem, width)) {
            if (*count == LAC_CUDA_MOST_REQUESTS)
                return lac_fail(LAC_STATUS_INTERNAL, "%s asks for too many programs", inner.kernel->info.name);
            request_reorder(width, &requests[(*count)++]);
        }
    return status;
}

const lac_cuda_flow lac_cuda_unshuffle_flow = {requests};

/* ---- workspace: Y, C and bias in W's order, then the other kernel's */

typedef struct room {
    uint64_t c, bias, inner, bytes; /* Y is at 0 */
} room;

static room room_of(const lac_problem *problem, size_t inner_bytes)
{
    const lac_plan_options *o = &problem->options;
    uint64_t pitch = (uint64_t)pitch_of(problem), elements = (uint64_t)problem->m * pitch;
    room made;
    made.c = lac_cuda_aligned(elements * lac_dtype_size(o->y_dtype));
    made.bias = made.c + (o->has_residual ? lac_cuda_aligned(elements * lac_dtype_size(o->c_dtype)) : 0);
    made.inner = made.bias + (o->has_bias ? lac_cuda_aligned(pitch * lac_dtype_size(o->bias_dtype)) : 0);
    made.bytes = made.inner + inner_bytes + LAC_CUDA_ALIGNMENT;
    return made;
}

size_t lac_cuda_unshuffle_workspace(const lac_problem *problem)
{
    inner_product inner;
    find_inner(problem, &inner);
    lac_problem within = problem_within(problem, &inner, inner.kernel);
    return inner.kernel ? (size_t)room_of(problem, lac_kernel_workspace(inner.kernel, &within, NULL)).bytes : 0;
}

size_t lac_cuda_unshuffle_workspace_of(const void *opaque) { return ((const unshuffle_state *)opaque)->workspace_bytes; }

/* ---- preparing */

static lac_status load_programs(const lac_problem *problem, unshuffle_state *state)
{
    lac_status status = LAC_STATUS_OK;
    for (int width = HALVES; width < WIDTHS && !status; ++width) {
        lac_cuda_request request;
        if (!reorders(problem, width)) continue;
        request_reorder(width, &request);
        state->shape[width] = shape_of(problem, width);
        request.shared_bytes = state->shape[width].shared_bytes;
        status = lac_cuda_program_get(problem->device, &request, &state->plan.program[width]);
    }
    return status;
}

/* Row r of W is output row_perm[r]. */
static lac_status upload_orders(const lac_problem *problem, unshuffle_state *state)
{
    const uint32_t *row_perm = problem->weight->part[LAC_PART_ROW_PERM].data;
    int64_t n = problem->weight->n_out, padded = lac_ceil_divide(n, PADDING) * PADDING;
    uint64_t bytes = (uint64_t)padded * sizeof(uint16_t);
    uint16_t *order[DIRECTIONS] = {lac_allocate_zeroed(bytes), lac_allocate_zeroed(bytes)};
    lac_status status = order[TO_W] && order[TO_Y] ? LAC_STATUS_OK : lac_fail_memory("order of the outputs", bytes);
    for (int64_t row = 0; row < n && !status; ++row) {
        order[TO_W][row] = (uint16_t)row_perm[row];
        order[TO_Y][row_perm[row]] = (uint16_t)row;
    }
    bool both = problem->options.has_bias || problem->options.has_residual;
    const lac_cuda_part parts[DIRECTIONS] = {
        [TO_W] = {"order of the outputs", both ? order[TO_W] : NULL, bytes},
        [TO_Y] = {"order of the outputs", order[TO_Y], bytes},
    };
    if (!status) status = lac_cuda_plan_upload(&state->plan, parts, DIRECTIONS);
    for (int i = 0; i < DIRECTIONS; ++i) lac_release(order[i]);
    return status;
}

lac_status lac_cuda_unshuffle_prepare(const lac_problem *problem, void **out)
{
    unshuffle_state *state = lac_cuda_plan_allocate(problem, sizeof *state);
    if (!state) return LAC_STATUS_OUT_OF_MEMORY;
    find_inner(problem, &state->inner);
    const lac_kernel *kernel = state->inner.kernel;
    lac_problem within = problem_within(problem, &state->inner, kernel);
    lac_status status = kernel ? LAC_STATUS_OK : fail_without();
    if (!status) status = load_programs(problem, state);
    if (!status) status = upload_orders(problem, state);
    if (!status && kernel->prepare) status = kernel->prepare(&within, &state->inner_state);
    if (status) {
        lac_cuda_unshuffle_release(state);
        return status;
    }
    state->workspace_bytes = (size_t)room_of(problem, lac_kernel_workspace(kernel, &within, state->inner_state)).bytes;
    *out = state;
    return LAC_STATUS_OK;
}

void lac_cuda_unshuffle_release(void *opaque)
{
    unshuffle_state *state = opaque;
    if (!state) return;
    if (state->inner_state) lac_kernel_release(state->inner.kernel, state->inner_state);
    lac_cuda_plan_release(state);
}

/* ---- executing */

/* A matrix of some tokens and all outputs. */
typedef struct outputs {
    const void *data;
    int64_t ld;
} outputs;

static lac_status reorder(const lac_problem *problem, const unshuffle_state *state, int direction, lac_dtype dtype, int64_t m,
                          outputs from, outputs to, void *stream)
{
    int width = width_of(dtype);
    const pass_shape *s = &state->shape[width];
    lac_reorder_args args = {.from = from.data,
                             .to = (void *)(uintptr_t)to.data,
                             .index = state->plan.part[direction],
                             .ld_from = from.ld,
                             .ld_to = to.ld,
                             .m = (int)m,
                             .columns = (int)problem->weight->n_out,
                             .lane_bits = s->lane_bits};
    int64_t tokens_a_block = (int64_t)(s->threads >> s->lane_bits) * s->tokens;
    lac_cuda_launch launch = {.function = state->plan.program[width],
                              .grid = {(unsigned)lac_ceil_divide(m, tokens_a_block), 1, 1},
                              .block = s->threads,
                              .shared_bytes = s->shared_bytes,
                              .early = lac_cuda_target_of(problem->device)->arch >= 90};
    return lac_cuda_launch_on(problem->device, &launch, stream, (void *[]){&args});
}

lac_status lac_cuda_unshuffle_execute(const lac_problem *problem, const void *opaque, const lac_call *call)
{
    const unshuffle_state *state = opaque;
    const lac_plan_options *o = &problem->options;
    const lac_kernel *kernel = state->inner.kernel;
    lac_problem within = problem_within(problem, &state->inner, kernel);
    lac_gpu_call checked; /* the other kernel will not see where Y is to go */
    lac_status status = lac_cuda_call_make(problem, call, &checked);
    if (status) return status;
    room at = room_of(problem, 0);
    int64_t pitch = pitch_of(problem);
    char *workspace = (char *)lac_cuda_workspace_of(&checked);
    lac_call own = *call;
    own.y = workspace;
    own.ldy = pitch;
    own.workspace = workspace + at.inner;
    outputs y = {call->y, call->ldy}, y_in_order = {own.y, own.ldy};
    if (o->has_bias) {
        own.bias = workspace + at.bias;
        status = reorder(problem, state, TO_W, o->bias_dtype, 1, (outputs){call->bias, pitch}, (outputs){own.bias, pitch},
                         call->stream);
    }
    if (call->c && !status) {
        own.c = workspace + at.c;
        own.ldc = pitch;
        status = reorder(problem, state, TO_W, o->c_dtype, problem->m, (outputs){call->c, call->ldc}, (outputs){own.c, own.ldc},
                         call->stream);
    }
    if (!status) status = kernel->execute(&within, state->inner_state, &own);
    if (!status) status = reorder(problem, state, TO_Y, o->y_dtype, problem->m, y_in_order, y, call->stream);
    return status;
}
