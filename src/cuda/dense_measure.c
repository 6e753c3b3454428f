/* dense_measure.c - times the library's algorithms for one product, for plans that measure: which of them is the fastest its own
 * heuristics do not know. dense.c calls it when such a plan is made. */
#include "core/dtype.h"
#include "core/status.h"
#include "cuda/dense_product.h"
#include "cuda/runtime.h"
#include "cuda/state.h"

enum { RUNS = 3, MOST_REPEATS = 20, ALIGNMENT = 256 };
/* A GPU's clock needs a while to be exact. */
static const double LEAST_SECONDS = 1e-4;

typedef struct trial {
    const lac_device *device;
    const lac_dense_product *product;
    const lac_lt_answer *answer;
    lac_dense_operands operands;
    void *workspace;
} trial;

static lac_status run_once(void *user, void *stream)
{
    const trial *t = user;
    return lac_dense_run(t->device, t->product, &t->operands, t->answer, t->workspace, stream);
}

/* The best of a few, after one that loads its kernel. */
static lac_status time_answer(trial *t, double *seconds)
{
    double first = 0, one = 0;
    lac_status status = lac_cuda_time(t->device, run_once, t, 1, &first);
    if (!status) status = lac_cuda_time(t->device, run_once, t, 1, &first);
    int repeats = first * MOST_REPEATS > LEAST_SECONDS ? 1 + (int)(LEAST_SECONDS / first) : MOST_REPEATS;
    for (int i = 0; i < RUNS && !status; ++i) {
        status = lac_cuda_time(t->device, run_once, t, repeats, &one);
        if (!status && (i == 0 || one < *seconds)) *seconds = one;
    }
    return status;
}

/* X, D (which is C too), bias and workspace, one after the other in one block. */
static lac_status make_operands(trial *t, lac_cu_pointer *block)
{
    const lac_dense_product *p = t->product;
    lac_dense_operands *o = &t->operands;
    o->ldx = lac_dense_usual_ldx(p);
    o->ldd = o->ldc = lac_dense_usual_ldd(p);
    uint64_t bytes[3] = {(uint64_t)o->ldx * (uint64_t)(p->x_by_tokens ? p->m : p->k) * lac_dtype_size(p->operand),
                         (uint64_t)o->ldd * (uint64_t)(p->y_by_tokens ? p->m : p->n) * lac_dtype_size(p->result),
                         (uint64_t)p->n * lac_dtype_size(p->result)};
    for (int i = 0; i < 3; ++i) bytes[i] = (bytes[i] + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    lac_status status =
        lac_cuda_allocate(t->device, "timing cuBLASLt", bytes[0] + bytes[1] + bytes[2] + LAC_DENSE_MOST_WORKSPACE, block);
    if (status) return status;
    char *at = (char *)(uintptr_t)*block;
    o->x = at;
    o->d = at + bytes[0];
    o->c = p->has_residual ? o->d : NULL;
    o->bias = p->has_bias ? at + bytes[0] + bytes[1] : NULL;
    o->alpha = 1.0f;
    o->beta = p->has_residual ? 1.0f : 0.0f;
    t->workspace = at + bytes[0] + bytes[1] + bytes[2];
    return LAC_STATUS_OK;
}

lac_status lac_dense_time(const lac_device *device, const lac_dense_product *product, lac_cu_pointer w,
                          const lac_lt_answer *answers, int count, int *fastest, double *seconds)
{
    trial t = {.device = device, .product = product, .operands = {.w = (const void *)(uintptr_t)w}};
    lac_cu_pointer block = 0;
    lac_status status = make_operands(&t, &block);
    for (int i = 0; i < count && !status; ++i) {
        double one = 0;
        t.answer = &answers[i];
        status = time_answer(&t, &one);
        if (!status && (i == 0 || one < *seconds)) {
            *seconds = one;
            *fastest = i;
        }
    }
    lac_cuda_free(device, block);
    return status;
}
