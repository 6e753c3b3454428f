/* dense_product.c - see dense_product.h. The library's matrices are column-major: Y[m][n] is its n x m, so that W is the left
 * operand there, and X is the left one where Y lies by features. */
#include "cuda/dense_product.h"

#include <math.h>
#include <string.h>

#include "core/dtype.h"
#include "core/status.h"
#include "cuda/state.h"
#include "format/weight.h"

static int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

/* ---- what is asked for */

/* Whether the library adds the bias as it should: in Y's dtype, and along its columns, which for Y by features are tokens. */
static bool adds_bias(const lac_plan_options *o)
{
    return o->has_bias && !o->has_residual && o->bias_dtype == o->y_dtype && o->y_layout == LAC_LAYOUT_TOKEN_MAJOR;
}

/* With both, the residual would be rounded once more than the bound allows. */
static bool adds_residual(const lac_plan_options *o)
{
    return o->has_residual && !o->has_bias && o->c_dtype == o->y_dtype && o->activation == LAC_ACTIVATION_NONE;
}

/* The library's own activations are not ours: they lose NaN or are less exact. */
static lac_dense_finish finish_of(const lac_plan_options *o)
{
    bool writes_y = o->y_dtype == o->x_dtype || o->y_dtype == LAC_DTYPE_F32;
    bool all_added = (!o->has_bias || adds_bias(o)) && (!o->has_residual || adds_residual(o));
    if (!writes_y || (o->has_residual && !all_added)) return LAC_DENSE_FINISH_APART;
    if (all_added && o->activation == LAC_ACTIVATION_NONE) return LAC_DENSE_FINISH_LIBRARY;
    /* Rounding keeps order and sign, so that ReLU after it is ReLU before it. */
    bool exact = o->y_dtype == LAC_DTYPE_F32 || (all_added && o->activation == LAC_ACTIVATION_RELU);
    return exact ? LAC_DENSE_FINISH_IN_PLACE : LAC_DENSE_FINISH_APART;
}

/* As the library's first algorithm is faster, over the shapes of docs/kernels/dense.md. */
static bool w_lies_by_inputs(const lac_dense_product *p)
{
    bool by_outputs = p->compute == LAC_LT_COMPUTE_TF32 || (p->m >= 2 && p->m <= 4);
    return !(p->operand == LAC_DTYPE_F32 && p->y_by_tokens && by_outputs);
}

bool lac_dense_product_make(const lac_problem *problem, lac_dense_product *out)
{
    const lac_weight *w = problem->weight;
    const lac_plan_options *o = &problem->options;
    /* A weight of 16 bits becomes fp32 for X in fp32; X is taken as it is. */
    if (o->x_dtype != LAC_DTYPE_F32 && o->x_dtype != w->dtype) return false;
    /* A shard of a permuted weight writes only its own outputs, which a dense product would not know. */
    if (w->n_out != w->geometry.n || !problem->m || !w->n_out || !w->k_in) return false;
    lac_dense_finish finish = finish_of(o);
    enum { MOST_GRID = 65535 }; /* finish.cu counts lines by ints, so many at a time */
    int64_t lines = o->y_layout == LAC_LAYOUT_TOKEN_MAJOR ? problem->m : w->n_out;
    if (finish != LAC_DENSE_FINISH_LIBRARY && lines > INT32_MAX - MOST_GRID) return false;
    bool by_library = finish != LAC_DENSE_FINISH_APART;
    *out = (lac_dense_product){.m = problem->m,
                               .n = w->n_out,
                               .k = w->k_in,
                               .operand = o->x_dtype,
                               .result = by_library ? o->y_dtype : LAC_DTYPE_F32,
                               .compute = LAC_LT_COMPUTE_F32,
                               .x_by_tokens = o->x_layout == LAC_LAYOUT_TOKEN_MAJOR,
                               .y_by_tokens = o->y_layout == LAC_LAYOUT_TOKEN_MAJOR,
                               .finish = finish,
                               .has_bias = by_library && adds_bias(o),
                               .has_residual = by_library && adds_residual(o)};
    if (out->operand == LAC_DTYPE_F32 && o->precision == LAC_PRECISION_TF32) out->compute = LAC_LT_COMPUTE_TF32;
    lac_dense_product_lay(out, w_lies_by_inputs(out));
    return true;
}

void lac_dense_product_lay(lac_dense_product *p, bool w_by_inputs)
{
    p->w_by_inputs = w_by_inputs;
    p->ldw = round_up(w_by_inputs ? p->n : p->k, LAC_DENSE_WIDEST / (int64_t)lac_dtype_size(p->operand));
}

lac_dense_product lac_dense_product_anywhere(const lac_dense_product *p)
{
    enum {
        SUMS = 8 << 20,
        FEWEST = 64
    }; /* bytes, unless tokens are long; tokens at a time, so that their lines stay aligned as the first */
    lac_dense_product sums = *p;
    if (!p->has_bias) return sums;
    sums.has_bias = false;
    sums.finish = LAC_DENSE_FINISH_APART;
    sums.result = LAC_DTYPE_F32;
    int64_t tokens = SUMS / (lac_dense_usual_ldd(&sums) * (int64_t)sizeof(float)) / FEWEST * FEWEST;
    if (tokens < FEWEST) tokens = FEWEST;
    if (sums.m > tokens) sums.m = tokens;
    return sums;
}

/* ---- alignment */

uint32_t lac_dense_aligned_to(uint64_t bytes)
{
    uint32_t step = LAC_DENSE_WIDEST;
    while (bytes % step) step /= 2;
    return step;
}

int64_t lac_dense_usual_ldx(const lac_dense_product *p) { return p->x_by_tokens ? p->k : p->m; }

/* The workspace's lines are padded. */
int64_t lac_dense_usual_ldd(const lac_dense_product *p)
{
    int64_t length = p->y_by_tokens ? p->n : p->m;
    return p->finish == LAC_DENSE_FINISH_APART ? round_up(length, LAC_DENSE_WIDEST / (int64_t)sizeof(float)) : length;
}

lac_dense_alignment lac_dense_alignment_usual(const lac_dense_product *p)
{
    uint32_t x = lac_dense_aligned_to((uint64_t)lac_dense_usual_ldx(p) * lac_dtype_size(p->operand));
    uint32_t y = lac_dense_aligned_to((uint64_t)lac_dense_usual_ldd(p) * lac_dtype_size(p->result));
    return (lac_dense_alignment){x, y, y};
}

lac_dense_alignment lac_dense_alignment_least(const lac_dense_product *p)
{
    uint32_t y = p->finish == LAC_DENSE_FINISH_APART ? LAC_DENSE_WIDEST : (uint32_t)lac_dtype_size(p->result);
    return (lac_dense_alignment){(uint32_t)lac_dtype_size(p->operand), y, y};
}

/* ---- descriptors */

static int type_of(lac_dtype dtype)
{
    return dtype == LAC_DTYPE_F16 ? LAC_LT_F16 : dtype == LAC_DTYPE_BF16 ? LAC_LT_BF16 : LAC_LT_F32;
}

/* Of one call. */
typedef struct descriptors {
    lac_lt_desc desc;
    lac_lt_layout w, x, c, d;
} descriptors;

static int describe_product(const lac_cublaslt *lt, const lac_dense_product *p, const void *bias, lac_lt_desc *desc)
{
    /* The library wants W as n x k on the left, and as k x n on the right; X the other way round. */
    int w = p->w_by_inputs == p->y_by_tokens ? LAC_LT_AS_IT_IS : LAC_LT_TRANSPOSED;
    int x = p->x_by_tokens == p->y_by_tokens ? LAC_LT_AS_IT_IS : LAC_LT_TRANSPOSED;
    int left = p->y_by_tokens ? w : x, right = p->y_by_tokens ? x : w, epilogue = LAC_LT_EPILOGUE_BIAS;
    int result = lt->cublasLtMatmulDescInit_internal(desc, sizeof *desc, p->compute, LAC_LT_F32);
    if (!result) result = lt->cublasLtMatmulDescSetAttribute(desc, LAC_LT_DESC_LEFT, &left, sizeof left);
    if (!result) result = lt->cublasLtMatmulDescSetAttribute(desc, LAC_LT_DESC_RIGHT, &right, sizeof right);
    if (!result && bias) result = lt->cublasLtMatmulDescSetAttribute(desc, LAC_LT_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (!result && bias) result = lt->cublasLtMatmulDescSetAttribute(desc, LAC_LT_DESC_BIAS, &bias, sizeof bias);
    return result;
}

/* `lines` of `length` elements each, which the library calls columns. */
static int describe_matrix(const lac_cublaslt *lt, lac_dtype dtype, int64_t length, int64_t lines, int64_t ld,
                           lac_lt_layout *layout)
{
    return lt->cublasLtMatrixLayoutInit_internal(layout, sizeof *layout, type_of(dtype), (uint64_t)length, (uint64_t)lines, ld);
}

static int describe(const lac_cublaslt *lt, const lac_dense_product *p, const lac_dense_operands *o, descriptors *out)
{
    bool xt = p->x_by_tokens, yt = p->y_by_tokens, wi = p->w_by_inputs;
    int64_t y_length = yt ? p->n : p->m, y_lines = yt ? p->m : p->n;
    int result = describe_product(lt, p, o->bias, &out->desc);
    if (!result) result = describe_matrix(lt, p->operand, wi ? p->n : p->k, wi ? p->k : p->n, p->ldw, &out->w);
    if (!result) result = describe_matrix(lt, p->operand, xt ? p->k : p->m, xt ? p->m : p->k, o->ldx, &out->x);
    if (!result) result = describe_matrix(lt, p->result, y_length, y_lines, o->ldd, &out->d);
    out->c = out->d; /* the library wants one even where it reads none */
    if (!result && o->c) result = describe_matrix(lt, p->result, y_length, y_lines, o->ldc, &out->c);
    return result;
}

/* ---- asking */

static int prefer(const lac_cublaslt *lt, const lac_dense_product *p, const lac_dense_alignment *a, lac_lt_preference *out)
{
    uint64_t most = LAC_DENSE_MOST_WORKSPACE;
    uint32_t reduction = LAC_LT_REDUCE_IN_F32, w = LAC_DENSE_WIDEST;
    const uint32_t *alignment[4] = {p->y_by_tokens ? &w : &a->x, p->y_by_tokens ? &a->x : &w, &a->c, &a->y};
    int result = lt->cublasLtMatmulPreferenceInit_internal(out, sizeof *out);
    if (!result) result = lt->cublasLtMatmulPreferenceSetAttribute(out, LAC_LT_PREFER_WORKSPACE, &most, sizeof most);
    if (!result) result = lt->cublasLtMatmulPreferenceSetAttribute(out, LAC_LT_PREFER_REDUCTION, &reduction, sizeof reduction);
    for (int i = 0; i < 4 && !result; ++i)
        result = lt->cublasLtMatmulPreferenceSetAttribute(out, LAC_LT_PREFER_ALIGNMENT + i, alignment[i], sizeof(uint32_t));
    return result;
}

/* A leading dimension of this alignment and, unless the widest, of no better one. */
static int64_t example_ld(int64_t length, uint32_t alignment, lac_dtype dtype)
{
    int64_t step = alignment / (int64_t)lac_dtype_size(dtype), ld = round_up(length, step);
    return alignment < LAC_DENSE_WIDEST && ld / step % 2 == 0 ? ld + step : ld;
}

lac_status lac_dense_ask(const lac_device *device, const lac_dense_product *p, const lac_dense_alignment *a,
                         lac_lt_answer answers[LAC_DENSE_MOST_ANSWERS], int *count)
{
    static const char what[] = "the heuristics of cuBLASLt";
    const lac_cublaslt *lt = lac_cublaslt_get(NULL);
    void *handle;
    lac_status status = lac_cublaslt_handle(device, &handle);
    if (status) return status;
    /* Pointers are not looked at, but whether there are any. */
    lac_dense_operands example = {.bias = p->has_bias ? handle : NULL,
                                  .c = p->has_residual ? handle : NULL,
                                  .ldx = example_ld(lac_dense_usual_ldx(p), a->x, p->operand),
                                  .ldc = example_ld(lac_dense_usual_ldd(p), a->c, p->result),
                                  .ldd = example_ld(lac_dense_usual_ldd(p), a->y, p->result)};
    bool entered;
    if ((status = lac_cuda_enter(device, what, &entered))) return status;
    descriptors d;
    lac_lt_preference preference;
    lac_lt_answer found[LAC_DENSE_MOST_ANSWERS];
    memset(found, 0, sizeof found);
    *count = 0;
    int made = 0, result = describe(lt, p, &example, &d);
    if (!result) result = prefer(lt, p, a, &preference);
    if (!result)
        result = lt->cublasLtMatmulAlgoGetHeuristic(handle, &d.desc, p->y_by_tokens ? &d.w : &d.x, p->y_by_tokens ? &d.x : &d.w,
                                                    &d.c, &d.d, &preference, LAC_DENSE_MOST_ANSWERS, found, &made);
    lac_cuda_leave(device, entered);
    for (int i = 0; i < made && !result; ++i)
        if (!found[i].status && found[i].workspace_bytes <= LAC_DENSE_MOST_WORKSPACE) answers[(*count)++] = found[i];
    if (*count) return LAC_STATUS_OK;
    if (result) lac_cublaslt_check(result, what);
    return lac_fail(LAC_STATUS_UNSUPPORTED, "cuBLASLt has no algorithm for this product%s%.160s", result ? ": " : "",
                    result ? lac_last_error() : "");
}

/* The library's first, except that with few tokens in 16 bits it likes large tiles that leave most multiprocessors idle, though
 * only all of them together read W at the rate of the memory. `waves` tells how many of them an answer keeps busy. Later answers
 * are pickier: with a bias one was seen to refuse a call that the first one takes. */
int lac_dense_pick(const lac_dense_product *p, const lac_lt_answer *answers, int count)
{
    enum { LOOK_AT = 3 };
    static const float enough = 1.3f;
    int best = 0;
    lac_dense_alignment usual = lac_dense_alignment_usual(p);
    bool aligned = usual.x == LAC_DENSE_WIDEST && usual.y == LAC_DENSE_WIDEST;
    if (p->operand == LAC_DTYPE_F32 || !aligned || p->has_bias || answers[0].waves > 1.0f) return 0;
    for (int i = 1; i < count && i < LOOK_AT; ++i)
        if (answers[i].waves <= 1.0f && answers[i].waves > enough * answers[best].waves) best = i;
    return best;
}

/* Of the multiprocessors over all waves, the busy ones. */
static double busy_share(const lac_lt_answer *answer)
{
    double waves = (double)answer->waves;
    return waves > 0.0 ? waves / ceil(waves) : 0.0;
}

/* Only with many tokens in 16 bits do waves tell enough. */
bool lac_dense_has_choice(const lac_dense_product *p)
{
    enum { MANY_TOKENS = 256 };
    return p->operand != LAC_DTYPE_F32 && p->m >= MANY_TOKENS;
}

bool lac_dense_prefers(const lac_lt_answer *as_it_lies, const lac_lt_answer *other)
{
    static const double enough = 1.1;
    return busy_share(other) > enough * busy_share(as_it_lies);
}

/* ---- running */

lac_status lac_dense_run(const lac_device *device, const lac_dense_product *p, const lac_dense_operands *o,
                         const lac_lt_answer *answer, void *workspace, void *stream)
{
    const lac_cublaslt *lt = lac_cublaslt_get(NULL);
    void *handle = lac_cuda_state_of(device)->cublaslt;
    bool entered;
    lac_status status = lac_cuda_enter(device, "cublasLtMatmul", &entered);
    if (status) return status;
    descriptors d;
    int result = describe(lt, p, o, &d);
    const void *left = p->y_by_tokens ? o->w : o->x, *right = p->y_by_tokens ? o->x : o->w;
    if (!result)
        result = lt->cublasLtMatmul(handle, &d.desc, &o->alpha, left, p->y_by_tokens ? &d.w : &d.x, right,
                                    p->y_by_tokens ? &d.x : &d.w, &o->beta, o->c ? o->c : o->d, &d.c, o->d, &d.d,
                                    &answer->algorithm, workspace, answer->workspace_bytes, stream);
    lac_cuda_leave(device, entered);
    if (result == LAC_LT_NOT_SUPPORTED)
        return lac_fail(LAC_STATUS_UNSUPPORTED, "cublasLtMatmul: the algorithm does not take operands that lie like these");
    return lac_cublaslt_check(result, "cublasLtMatmul");
}
