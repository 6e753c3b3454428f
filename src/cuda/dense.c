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
enum { FINISH }; /* the program, where the library does not do it all */
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

static lac_status requests(const lac_problem *problem, lac_cuda_request requests[LAC_CUDA_MOST_REQUESTS], int *count)
{
    lac_dense_product product;
    *count = 0;
    if (!lac_dense_product_make(problem, &product) || product.finish == LAC_DENSE_FINISH_LIBRARY) return LAC_STATUS_OK;
    lac_problem left = *problem; /* what the library leaves to do */
    left.options.has_bias = problem->options.has_bias && !product.has_bias;
    lac_cuda_request_begin(&requests[FINISH], "finish.cu", "lac_dense_finish");
    lac_cuda_request_define_problem(&requests[0], &left);
    lac_cuda_request_define(&requests[0], "LAC_IN_PLACE", product.finish == LAC_DENSE_FINISH_IN_PLACE);
    *count = 1;
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

static size_t sums_bytes(const lac_dense_product *p)
{
    if (p->finish != LAC_DENSE_FINISH_APART) return 0;
    return (size_t)lac_dense_usual_ldd(p) * (size_t)(p->y_by_tokens ? p->m : p->n) * sizeof(float);
}

/* Of a bias that the library adds: it cannot be told how that lies, and refuses some that are not aligned as it would like. */
static size_t bias_bytes(const lac_dense_product *p) { return p->has_bias ? (size_t)p->n * lac_dtype_size(p->result) : 0; }

/* Of the workspace, what stands before the library's part: the sums, then a bias that is aligned. */
static size_t kept_bytes(const lac_dense_product *p)
{
    return (size_t)(lac_cuda_aligned(sums_bytes(p)) + lac_cuda_aligned(bias_bytes(p)));
}

/* What is kept, then what the algorithms want. */
static size_t workspace_with(const lac_dense_way *way)
{
    size_t most = way->usual.workspace_bytes;
    for (int i = 0; i < way->anywhere_count; ++i)
        if (way->anywhere[i].workspace_bytes > most) most = way->anywhere[i].workspace_bytes;
    size_t bytes = kept_bytes(&way->product) + most;
    return bytes ? bytes + LAC_CUDA_ALIGNMENT : 0;
}

/* Of a kernel that is not prepared: by what would be picked untimed or was timed before, where the library can be asked. */
size_t lac_cuda_dense_workspace(const lac_problem *problem)
{
    lac_dense_way way;
    memset(&way, 0, sizeof way);
    if (!lac_dense_product_make(problem, &way.product)) return 0;
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
    lac_status status = lac_cuda_plan_load(&state->plan, problem, NULL);
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
           (!o->c || is_aligned(o->c, o->ldc, p->result, state->usual.c));
}

/* A bias that does not lie as the library likes it is copied to `aligned`. */
static lac_status align_bias(const lac_problem *problem, const dense_state *state, void *aligned, void *stream,
                             lac_dense_operands *o)
{
    static const char what[] = "copying the bias";
    bool entered;
    if (!o->bias || (uintptr_t)o->bias % LAC_DENSE_WIDEST == 0) return LAC_STATUS_OK;
    lac_status status = lac_cuda_enter(problem->device, what, &entered);
    if (status) return status;
    int result = lac_cuda_state_of(problem->device)
                     ->driver->cuMemcpyDtoDAsync((lac_cu_pointer)(uintptr_t)aligned, (lac_cu_pointer)(uintptr_t)o->bias,
                                                 bias_bytes(&state->way.product), stream);
    lac_cuda_leave(problem->device, entered);
    o->bias = aligned;
    return lac_cuda_check(result, what);
}

static lac_status multiply(const lac_problem *problem, const dense_state *state, const lac_dense_operands *o, void *workspace,
                           void *stream)
{
    const lac_dense_way *way = &state->way;
    lac_status status = LAC_STATUS_UNSUPPORTED;
    if (lie_as_usual(state, o)) status = lac_dense_run(problem->device, &way->product, o, &way->usual, workspace, stream);
    for (int i = 0; status == LAC_STATUS_UNSUPPORTED && i < way->anywhere_count; ++i)
        status = lac_dense_run(problem->device, &way->product, o, &way->anywhere[i], workspace, stream);
    return status;
}

static lac_status finish(const lac_problem *problem, const dense_state *state, const lac_call *call,
                         const lac_gpu_call *gpu_call, const float *sums)
{
    const lac_dense_product *p = &state->way.product;
    int64_t length = p->y_by_tokens ? p->n : p->m, lines = p->y_by_tokens ? p->m : p->n;
    lac_gpu_call left = *gpu_call;
    finish_args args = {sums, lac_dense_usual_ldd(p)};
    if (p->finish == LAC_DENSE_FINISH_IN_PLACE) left.alpha = 1.0f;
    lac_cuda_launch launch = {.function = state->plan.program[FINISH],
                              .grid = {(unsigned)((length + FINISH_ELEMENTS - 1) / FINISH_ELEMENTS),
                                       (unsigned)(lines < MOST_LINES ? lines : MOST_LINES), 1},
                              .block = FINISH_THREADS};
    return lac_cuda_launch_on(problem->device, &launch, call->stream, (void *[]){&left, &args});
}

lac_status lac_cuda_dense_execute(const lac_problem *problem, const void *opaque, const lac_call *call)
{
    const dense_state *state = opaque;
    const lac_dense_product *p = &state->way.product;
    lac_gpu_call gpu_call;
    lac_status status = lac_cuda_call_make(problem, call, &gpu_call);
    if (status) return status;
    uintptr_t workspace = lac_cuda_workspace_of(&gpu_call);
    float *sums = (float *)workspace;
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
    char *own_part = (char *)workspace, *library_part = own_part + kept_bytes(p);
    status = align_bias(problem, state, own_part + lac_cuda_aligned(sums_bytes(p)), call->stream, &operands);
    if (!status) status = multiply(problem, state, &operands, library_part, call->stream);
    return status || !state->plan.program[FINISH] ? status : finish(problem, state, call, &gpu_call, sums);
}
