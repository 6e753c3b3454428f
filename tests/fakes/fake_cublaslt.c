/* fake_cublaslt.c - a libcublasLt for the fake driver, whose memory is the host's: it multiplies by obvious loops, as its
 * descriptors say, refuses operands that are not aligned as was promised, counts what is alive, and fails the call that it is
 * told to fail. Tests name it in LAC_CUBLASLT_LIBRARY. Built twice: FAKE_OLD leaves out cublasLtMatmul. */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, NOT_SUPPORTED = 15 };
enum { F32 = 0, F16 = 2, BF16 = 14, EPILOGUE_BIAS = 4, WORKSPACE = 4096 };

/* What the opaque memory holds here. */
typedef struct layout {
    uint64_t rows, columns;
    int64_t ld;
    int type;
} layout;

typedef struct desc {
    int compute, left, right, epilogue;
    const void *bias;
} desc;

typedef struct preference {
    uint64_t workspace;
    uint32_t reduction, alignment[4];
} preference;

typedef struct algorithm {
    uint32_t magic, number, alignment[4]; /* left, right, C, D */
    int left, right, epilogue;
} algorithm;

typedef struct answer {
    union {
        algorithm of;
        uint64_t opaque[8];
    } algo;
    size_t workspace_bytes;
    int status;
    float waves;
    int reserved[4];
} answer;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    long handles, calls, fail_at, products, last_algorithm;
    int fail_with, answers, refuse_handles, refuse_aligned, refuse_first;
    double (*takes)(int number, int left, int right);
    void (*advance)(double milliseconds);
} fake = {.answers = 3};

/* ---- what tests ask and say */

/* Counters are asked for while other threads call the library; what is set, is set before there are any. */
static long told(const long *counter)
{
    pthread_mutex_lock(&lock);
    long value = *counter;
    pthread_mutex_unlock(&lock);
    return value;
}

long fake_lt_live(void) { return told(&fake.handles); }
long fake_lt_calls(void) { return told(&fake.calls); }
long fake_lt_products(void) { return told(&fake.products); }
/* Its number among the answers, plus 100 when it was for operands without alignment. */
long fake_lt_last_algorithm(void) { return told(&fake.last_algorithm); }
/* The number-th call from now returns `result`; 0: none. */
void fake_lt_fail_at(long number, int result)
{
    pthread_mutex_lock(&lock);
    fake.calls = 0;
    fake.fail_at = number;
    fake.fail_with = result;
    pthread_mutex_unlock(&lock);
}
void fake_lt_set_answers(int count) { fake.answers = count; }
/* Algorithms for aligned operands then take none. */
void fake_lt_refuse_aligned(int refuse) { fake.refuse_aligned = refuse; }
/* So many of the first algorithms for operands without alignment then take none, as the library does now and then. */
void fake_lt_refuse_first(int count) { fake.refuse_first = count; }
/* How long a product takes on the fake driver's clock, by the number of its algorithm and whether its operands are transposed. While
 * that is told, nothing is multiplied. */
void fake_lt_set_times(double (*takes)(int number, int left, int right), void (*advance)(double milliseconds))
{
    fake.takes = takes;
    fake.advance = advance;
}
void fake_lt_refuse_handles(int refuse) { fake.refuse_handles = refuse; }

static int enter(void)
{
    pthread_mutex_lock(&lock);
    long number = ++fake.calls;
    int result = fake.fail_at && number == fake.fail_at ? fake.fail_with : SUCCESS;
    pthread_mutex_unlock(&lock);
    return result;
}

#define CALL                                                                                                                   \
    int result_ = enter();                                                                                                     \
    if (result_) return result_

/* ---- the library */

size_t cublasLtGetVersion(void) { return 130100; }
const char *cublasLtGetStatusName(int status)
{
    return status == NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED" : "CUBLAS_STATUS_FAKE";
}

int cublasLtCreate(void **handle)
{
    CALL;
    if (fake.refuse_handles) return NOT_INITIALIZED;
    *handle = malloc(1);
    pthread_mutex_lock(&lock);
    fake.handles++;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

int cublasLtDestroy(void *handle)
{
    free(handle);
    pthread_mutex_lock(&lock);
    fake.handles--;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

int cublasLtMatrixLayoutInit_internal(layout *out, size_t size, int type, uint64_t rows, uint64_t columns, int64_t ld)
{
    CALL;
    if (size < sizeof *out || !rows || !columns || ld < (int64_t)rows) return INVALID_VALUE;
    *out = (layout){rows, columns, ld, type};
    return SUCCESS;
}

int cublasLtMatmulDescInit_internal(desc *out, size_t size, int compute, int scale_type)
{
    CALL;
    if (size < sizeof *out || scale_type != F32) return INVALID_VALUE;
    *out = (desc){.compute = compute, .epilogue = 1};
    return SUCCESS;
}

int cublasLtMatmulDescSetAttribute(desc *d, int attribute, const void *value, size_t size)
{
    CALL;
    void *const fields[] = {[3] = &d->left, [4] = &d->right, [7] = &d->epilogue, [8] = &d->bias};
    if (attribute < 3 || attribute > 8 || !fields[attribute] || size != (attribute == 8 ? sizeof d->bias : sizeof(int)))
        return INVALID_VALUE;
    memcpy(fields[attribute], value, size);
    return SUCCESS;
}

int cublasLtMatmulPreferenceInit_internal(preference *out, size_t size)
{
    CALL;
    if (size < sizeof *out) return INVALID_VALUE;
    *out = (preference){0};
    return SUCCESS;
}

int cublasLtMatmulPreferenceSetAttribute(preference *p, int attribute, const void *value, size_t size)
{
    CALL;
    if (attribute == 1 && size == sizeof p->workspace)
        memcpy(&p->workspace, value, size);
    else if (attribute == 3 && size == sizeof p->reduction)
        memcpy(&p->reduction, value, size);
    else if (attribute >= 5 && attribute <= 8 && size == sizeof(uint32_t))
        memcpy(&p->alignment[attribute - 5], value, size);
    else
        return INVALID_VALUE;
    return SUCCESS;
}

static size_t size_of(int type) { return type == F32 ? 4 : 2; }

/* Rows and columns of an operand as it goes into the product. */
static void shape_of(const layout *l, int transposed, uint64_t *rows, uint64_t *columns)
{
    *rows = transposed ? l->columns : l->rows;
    *columns = transposed ? l->rows : l->columns;
}

static int check(const desc *d, const layout *a, const layout *b, const layout *c, const layout *out)
{
    uint64_t m, k, k2, n;
    shape_of(a, d->left, &m, &k);
    shape_of(b, d->right, &k2, &n);
    if (k != k2 || out->rows != m || out->columns != n || c->rows != m || c->columns != n || c->type != out->type)
        return INVALID_VALUE;
    if (a->type != b->type || (out->type != a->type && out->type != F32)) return NOT_SUPPORTED;
    return d->compute == 68 || (d->compute == 77 && a->type == F32) ? SUCCESS : NOT_SUPPORTED;
}

int cublasLtMatmulAlgoGetHeuristic(void *handle, const desc *d, const layout *a, const layout *b, const layout *c,
                                   const layout *out, const preference *p, int most, answer *answers, int *count)
{
    CALL;
    int result = handle ? check(d, a, b, c, out) : NOT_INITIALIZED;
    if (result) return result;
    const layout *all[] = {a, b, c, out};
    for (int i = 0; i < 4; i++) /* what it is asked for must be as it says */
        if (!p->alignment[i] || (uint64_t)all[i]->ld * size_of(all[i]->type) % p->alignment[i]) return INVALID_VALUE;
    if (p->reduction != 2 || p->workspace < WORKSPACE) return INVALID_VALUE;
    *count = 0;
    for (int i = 0; i < fake.answers && i < most; i++) {
        answer one = {.workspace_bytes = (size_t)WORKSPACE >> i,
                      .status = i == 1 ? NOT_SUPPORTED : SUCCESS,
                      .waves = d->left ? 1.0f : 0.5f};
        one.algo.of =
            (algorithm){.magic = 0xfa4e, .number = (uint32_t)i, .left = d->left, .right = d->right, .epilogue = d->epilogue};
        memcpy(one.algo.of.alignment, p->alignment, sizeof p->alignment);
        answers[(*count)++] = one;
    }
    return *count ? SUCCESS : NOT_SUPPORTED;
}

#ifndef FAKE_OLD
static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float load(const void *data, int type, int64_t at)
{
    if (type == F32) return ((const float *)data)[at];
    uint16_t bits = ((const uint16_t *)data)[at];
    if (type == BF16) return from_bits((uint32_t)bits << 16);
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
    if (magnitude < 0x400u)
        return (sign ? -0x1p-24f : 0x1p-24f) * (float)magnitude; /* subnormals are multiples of the smallest */
    return from_bits(sign | ((magnitude << 13) + (magnitude < 0x7c00u ? 112u : 224u) * (1u << 23))); /* or infinity, or NaN */
}

/* To nearest even. */
static uint16_t narrow(uint32_t magnitude, int bits)
{
    return (uint16_t)((magnitude + (1u << (bits - 1)) - 1 + (magnitude >> bits & 1u)) >> bits);
}

static void store(void *data, int type, int64_t at, float value)
{
    uint32_t sign = bits_of(value) >> 16 & 0x8000u, magnitude = bits_of(value) & 0x7fffffffu;
    uint16_t half;
    if (type == F32) {
        ((float *)data)[at] = value;
        return;
    }
    if (value != value)
        half = 0x7fff;
    else if (type == BF16)
        half = narrow(magnitude, 16);
    else if (magnitude >= 0x477ff000u) /* 65520: what would round to 2^16 */
        half = 0x7c00;
    else if (magnitude < 0x38800000u) /* below 2^-14: 2^-1 + v has the steps of a subnormal half */
        half = (uint16_t)(bits_of(from_bits(magnitude) + 0.5f) - bits_of(0.5f));
    else
        half = narrow(magnitude - (112u << 23), 13);
    ((uint16_t *)data)[at] = (uint16_t)(sign | half);
}

static int64_t place(const layout *l, int transposed, int64_t row, int64_t column)
{
    return transposed ? row * l->ld + column : column * l->ld + row;
}

static int misaligned(const void *data, const layout *l, uint32_t alignment)
{
    return (uintptr_t)data % alignment || (uint64_t)l->ld * size_of(l->type) % alignment;
}

int cublasLtMatmul(void *handle, const desc *d, const float *alpha, const void *a, const layout *la, const void *b,
                   const layout *lb, const float *beta, const void *c, const layout *lc, void *out, const layout *lo,
                   const algorithm *algo, void *workspace, size_t workspace_bytes, void *stream)
{
    (void)stream;
    CALL;
    int result = handle ? check(d, la, lb, lc, lo) : NOT_INITIALIZED;
    if (result) return result;
    if (algo->magic != 0xfa4e || algo->left != d->left || algo->right != d->right || algo->epilogue != d->epilogue)
        return INVALID_VALUE;
    if (misaligned(a, la, algo->alignment[0]) || misaligned(b, lb, algo->alignment[1]) ||
        (*beta != 0 && misaligned(c, lc, algo->alignment[2])) || misaligned(out, lo, algo->alignment[3]))
        return NOT_SUPPORTED;
    if (fake.refuse_aligned && algo->alignment[0] == 16 && algo->alignment[1] == 16 && algo->alignment[3] == 16)
        return NOT_SUPPORTED;
    int anywhere = algo->alignment[0] < 16 || algo->alignment[1] < 16 || algo->alignment[3] < 16;
    if (anywhere && (int)algo->number < fake.refuse_first) return NOT_SUPPORTED;
    if (d->epilogue == EPILOGUE_BIAS && (uintptr_t)d->bias % 16) return NOT_SUPPORTED;
    size_t wanted = (size_t)WORKSPACE >> algo->number;
    if (workspace_bytes < wanted || (uintptr_t)workspace % 256) return INVALID_VALUE;
    memset(workspace, 0xa5, wanted); /* it is the library's */
    uint64_t m, k;
    shape_of(la, d->left, &m, &k);
    for (int64_t i = 0; i < (fake.takes ? 0 : (int64_t)lo->rows); i++)
        for (int64_t j = 0; j < (int64_t)lo->columns; j++) {
            float sum = 0;
            for (int64_t l = 0; l < (int64_t)k; l++)
                sum += load(a, la->type, place(la, d->left, i, l)) * load(b, lb->type, place(lb, d->right, l, j));
            sum *= *alpha;
            if (*beta != 0) sum += *beta * load(c, lc->type, place(lc, 0, i, j));
            if (d->epilogue == EPILOGUE_BIAS) sum += load(d->bias, lo->type, i);
            store(out, lo->type, place(lo, 0, i, j), sum);
        }
    if (fake.takes) fake.advance(fake.takes((int)algo->number, d->left, d->right));
    pthread_mutex_lock(&lock);
    fake.products++;
    fake.last_algorithm = (long)algo->number + (anywhere ? 100 : 0);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}
#endif
