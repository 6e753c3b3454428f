/* dense.c - cuda_cublaslt_dense: W with its zeros, multiplied by the vendor's library, for where sparsity does not pay. The
 * planner takes it when the model says that every kernel of our own is slower; docs/design.md says why it exists.
 *
 * Preparing chooses one of the library's algorithms (dense_choice.c), writes W out on the host and uploads it. Executing puts the library's kernel on the caller's stream and, where the
 * library does not do the whole epilogue as it is specified, kernels/finish.cu after it. The workspace is the caller's, so one
 * plan may run on many streams at a time. */
#include "cuda/dense.h"

#include <string.h>

#include "core/dtype.h"
#include "core/memory.h"
#include "core/status.h"
#include "cuda/dense_product.h"
#include "cuda/plan.h"
#include "cuda/state.h"
#include "format/weight.h"

enum { FINISH_THREADS = 256, FINISH_ELEMENTS = 1024, MOST_LINES = 65535 };
enum {
    FINISH,
    FINISH_ANYWHERE
}; /* the programs: where the library does not do it all; where it does not with operands that lie anywhere */
enum { WEIGHT, PARTS };

typedef struct dense_state {
    lac_cuda_plan plan;
    lac_dense_way way;
    lac_dense_alignment usual;
} dense_state;

/* As in finish.cu. */
typedef struct finish_args {
    const float *sums;
    int64_t ld;
} finish_args;

bool lac_cuda_dense_applies(const lac_problem *problem)
{
    lac_dense_product product;
    return lac_dense_product_make(problem, &product);
}

lac_cost lac_cuda_dense_cost(const lac_problem *problem)
{
    lac_dense_product product;
    return lac_dense_product_make(problem, &product) ? lac_dense_product_cost(problem, &product) : (lac_cost){0};
}

/* What the library leaves to do. */
static void request_finish(const lac_problem *problem, const lac_dense_product *product, lac_cuda_request *request)
{
    lac_problem left = *problem;
    left.options.has_bias = problem->options.has_bias && !product->has_bias;
    lac_cuda_request_begin(request, "finish.cu", "lac_dense_finish");
    lac_cuda_request_define_problem(request, &left);
    lac_cuda_request_define(request, "LAC_IN_PLACE", product->finish == LAC_DENSE_FINISH_IN_PLACE);
}

static lac_status requests(const lac_problem *problem, lac_cuda_request requests[LAC_CUDA_MOST_REQUESTS], int *count)
{
    lac_dense_product product;
    *count = 0;
    if (!lac_dense_product_make(problem, &product)) return LAC_STATUS_OK;
    lac_dense_product anywhere = lac_dense_product_anywhere(&product);
    if (product.finish != LAC_DENSE_FINISH_LIBRARY) request_finish(problem, &product, &requests[(*count)++]);
    if (product.has_bias) request_finish(problem, &anywhere, &requests[(*count)++]);
    return LAC_STATUS_OK;
}

const lac_cuda_flow lac_cuda_dense_flow = {requests};

/* ---- choosing */

static bool has_gpu(const lac_problem *problem) { return lac_cuda_state_of(problem->device)->driver != NULL; }

/* A GPU that is not here is taken to have the library. */
lac_status lac_cuda_dense_available(const lac_problem *problem)
{
    lac_dense_way way;
    return has_gpu(problem) ? lac_dense_choose(problem, false, &way) : LAC_STATUS_OK;
}

/* Of the workspace, what stands before the library's part: sums. */
static size_t kept_bytes(const lac_dense_way *way)
{
    const lac_dense_product *p = &way->anywhere; /* whose sums are apart wherever the other's are */
    if (p->finish != LAC_DENSE_FINISH_APART) return 0;
    return (size_t)lac_cuda_aligned((uint64_t)lac_dense_usual_ldd(p) * (uint64_t)(p->y_by_tokens ? p->m : p->n) *
                                    sizeof(float));
}

/* The sums, then what the algorithms want. */
static size_t workspace_with(const lac_dense_way *way)
{
    size_t most = way->usual.workspace_bytes;
    for (int i = 0; i < way->answer_count; ++i)
        if (way->answers[i].workspace_bytes > most) most = way->answers[i].workspace_bytes;
    size_t bytes = kept_bytes(way) + most;
    return bytes ? bytes + LAC_CUDA_ALIGNMENT : 0;
}

/* Of a kernel that is not prepared: by what would be picked untimed or was timed before, where the library can be asked. */
size_t lac_cuda_dense_workspace(const lac_problem *problem)
{
    lac_dense_way way;
    memset(&way, 0, sizeof way);
    if (!lac_dense_product_make(problem, &way.product)) return 0;
    way.anywhere = lac_dense_product_anywhere(&way.product);
    if (has_gpu(problem)) lac_dense_choose(problem, false, &way);
    return workspace_with(&way);
}

size_t lac_cuda_dense_workspace_of(const void *opaque)
{
    const dense_state *state = opaque;
    return workspace_with(&state->way);
}

/* ---- preparing */

static lac_status upload_weight(const lac_problem *problem, const lac_dense_product *p, lac_cuda_plan *plan)
{
    static const char what[] = "W with its zeros (options->no_dense avoids it)";
    uint64_t bytes, lines = (uint64_t)(p->w_by_inputs ? p->k : p->n);
    bool fits =
        lac_multiply_u64(lines, (uint64_t)p->ldw, &bytes) && lac_multiply_u64(bytes, lac_dtype_size(p->operand), &bytes);
    void *dense = fits ? lac_allocate_zeroed(bytes) : NULL;
    if (!dense) return lac_fail_memory(what, fits ? bytes : UINT64_MAX);
    lac_matrix matrix = {.data = dense,
                         .dtype = p->operand,
                         .layout = p->w_by_inputs ? LAC_LAYOUT_COLUMN_MAJOR : LAC_LAYOUT_ROW_MAJOR,
                         .rows = p->n,
                         .cols = p->k,
                         .ld = p->ldw};
    lac_status status = lac_weight_decompress(problem->weight, &matrix);
    if (!status) status = lac_cuda_plan_upload(plan, (const lac_cuda_part[PARTS]){[WEIGHT] = {what, dense, bytes}}, PARTS);
    lac_release(dense);
    return status;
}

lac_status lac_cuda_dense_prepare(const lac_problem *problem, void **out)
{
    dense_state *state = lac_cuda_plan_allocate(problem, sizeof *state);
    if (!state) return LAC_STATUS_OUT_OF_MEMORY;
    lac_dense_product product;
    const int first =
        lac_dense_product_make(problem, &product) && product.finish == LAC_DENSE_FINISH_LIBRARY ? FINISH_ANYWHERE : FINISH;
    lac_status status = lac_cuda_plan_load(&state->plan, problem, (const int[]){first, FINISH_ANYWHERE});
    if (!status) status = lac_dense_choose(problem, true, &state->way);
    if (!status) status = upload_weight(problem, &state->way.product, &state->plan);
    if (!status) state->usual = lac_dense_alignment_usual(&state->way.product);
    return lac_cuda_plan_finish(state, status, out);
}

/* ---- executing */

static bool is_aligned(const void *data, int64_t ld, lac_dtype dtype, uint32_t alignment)
{
    return (uintptr_t)data % LAC_DENSE_WIDEST == 0 && (uint64_t)ld * lac_dtype_size(dtype) % alignment == 0;
}

static bool lie_as_usual(const dense_state *state, const lac_dense_operands *o)
{
    const lac_dense_product *p = &state->way.product;
    return is_aligned(o->x, o->ldx, p->operand, state->usual.x) && is_aligned(o->d, o->ldd, p->result, state->usual.y) &&
           (!o->c || is_aligned(o->c, o->ldc, p->result, state->usual.c)) &&
           (!o->bias || (uintptr_t)o->bias % LAC_DENSE_WIDEST == 0);
}

static lac_status finish(const lac_problem *problem, const dense_state *state, int program, const lac_dense_product *p,
                         const lac_gpu_call *call, const float *sums, void *stream)
{
    int64_t length = p->y_by_tokens ? p->n : p->m, lines = p->y_by_tokens ? p->m : p->n;
    lac_gpu_call left = *call;
    finish_args args = {sums, lac_dense_usual_ldd(p)};
    if (p->finish == LAC_DENSE_FINISH_IN_PLACE) left.alpha = 1.0f;
    lac_cuda_launch launch = {.function = state->plan.program[program],
                              .grid = {(unsigned)((length + FINISH_ELEMENTS - 1) / FINISH_ELEMENTS),
                                       (unsigned)(lines < MOST_LINES ? lines : MOST_LINES), 1},
                              .block = FINISH_THREADS};
    return lac_cuda_launch_on(problem->device, &launch, stream, (void *[]){&left, &args});
}

static lac_status multiply_anywhere(const lac_problem *problem, const lac_dense_way *way, const lac_dense_operands *o,
                                    void *workspace, void *stream)
{
    lac_status status = LAC_STATUS_UNSUPPORTED;
    for (int i = 0; status == LAC_STATUS_UNSUPPORTED && i < way->answer_count; ++i)
        status = lac_dense_run(problem->device, &way->anywhere, o, &way->answers[i], workspace, stream);
    return status;
}

/* Some tokens after the other: their sums, then Y of them. The last ones may be done twice, which changes nothing: with C in Y's place the
 * library adds no bias. */
static lac_status multiply_by_tokens(const lac_problem *problem, const dense_state *state, const lac_call *call,
                                     const lac_gpu_call *gpu_call, float *sums, void *workspace)
{
    const lac_dense_product *p = &state->way.anywhere;
    const int64_t x_bytes = (int64_t)lac_dtype_size(p->operand), y_bytes = (int64_t)lac_dtype_size(problem->options.y_dtype);
    lac_status status = LAC_STATUS_OK;
    for (int64_t done = 0; !status && done < problem->m; done += p->m) {
        int64_t token = done + p->m <= problem->m ? done : problem->m - p->m;
        lac_dense_operands operands = {.w = state->plan.part[WEIGHT],
                                       .x = (const char *)call->x + token * (p->x_by_tokens ? call->ldx : 1) * x_bytes,
                                       .d = sums,
                                       .ldx = call->ldx,
                                       .ldd = lac_dense_usual_ldd(p),
                                       .alpha = 1.0f};
        lac_gpu_call part = *gpu_call;
        part.y = (char *)call->y + token * call->ldy * y_bytes;
        part.m = (int32_t)p->m;
        status = multiply_anywhere(problem, &state->way, &operands, workspace, call->stream);
        if (!status) status = finish(problem, state, FINISH_ANYWHERE, p, &part, sums, call->stream);
    }
    return status;
}

lac_status lac_cuda_dense_execute(const lac_problem *problem, const void *opaque, const lac_call *call)
{
    const dense_state *state = opaque;
    const lac_dense_way *way = &state->way;
    const lac_dense_product *p = &way->product;
    lac_gpu_call gpu_call;
    lac_status status = lac_cuda_call_make(problem, call, &gpu_call);
    if (status) return status;
    uintptr_t workspace = lac_cuda_workspace_of(&gpu_call);
    float *sums = (float *)workspace;
    void *library_part = (char *)sums + kept_bytes(way);
    bool apart = p->finish == LAC_DENSE_FINISH_APART;
    lac_dense_operands operands = {.w = state->plan.part[WEIGHT],
                                   .x = call->x,
                                   .c = p->has_residual ? call->c : NULL,
                                   .bias = p->has_bias ? call->bias : NULL,
                                   .d = apart ? sums : call->y,
                                   .ldx = call->ldx,
                                   .ldc = call->ldc,
                                   .ldd = apart ? lac_dense_usual_ldd(p) : call->ldy,
                                   .alpha = apart ? 1.0f : call->alpha,
                                   .beta = p->has_residual ? call->beta : 0.0f};
    status = LAC_STATUS_UNSUPPORTED;
    if (lie_as_usual(state, &operands))
        status = lac_dense_run(problem->device, p, &operands, &way->usual, library_part, call->stream);
    if (status == LAC_STATUS_UNSUPPORTED && p->has_bias)
        return multiply_by_tokens(problem, state, call, &gpu_call, sums, library_part);
    if (status == LAC_STATUS_UNSUPPORTED) status = multiply_anywhere(problem, way, &operands, library_part, call->stream);
    if (status || p->finish == LAC_DENSE_FINISH_LIBRARY) return status;
    return finish(problem, state, FINISH, p, &gpu_call, sums, call->stream);
}
