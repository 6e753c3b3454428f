/* dense_product.h - a problem as a dense product for the vendor's library: which operand is left, how W lies, what of the
 * epilogue the library does by itself, and which algorithms it names. dense.c prepares and runs it, dense_cost.c predicts it. */
#ifndef LAC_CUDA_DENSE_PRODUCT_H
#define LAC_CUDA_DENSE_PRODUCT_H

#include "cuda/cublaslt.h"
#include "cuda/driver.h"

/* Who does the epilogue. */
typedef enum lac_dense_finish {
    LAC_DENSE_FINISH_LIBRARY,  /* the library: alpha, and a bias or a residual                                      */
    LAC_DENSE_FINISH_IN_PLACE, /* the library as above, then kernels/finish.cu adds a bias to Y and activates it       */
    LAC_DENSE_FINISH_APART     /* the library writes sums in fp32 to the workspace, kernels/finish.cu does the rest */
} lac_dense_finish;

typedef struct lac_dense_product {
    int64_t m, n, k;
    lac_dtype operand, result; /* of W and X; of what the library writes */
    int compute;
    bool x_by_tokens, y_by_tokens; /* X[m][k], Y[m][n]; else X[k][m], Y[n][m] */
    bool w_by_inputs;              /* W[k][ldw]; else W[n][ldw]               */
    int64_t ldw;
    lac_dense_finish finish;
    bool has_bias, has_residual; /* that the library adds */
} lac_dense_product;

/* False when it is none: operands of two kinds, or an empty one. */
bool lac_dense_product_make(const lac_problem *problem, lac_dense_product *out);

/* The product for operands that lie anywhere: where the library would add a bias, which it then refuses or rounds twice (seen on an H200), it
 * gives sums instead, for so many tokens at a time as fit a small workspace: its m. Any other is the product itself. */
lac_dense_product lac_dense_product_anywhere(const lac_dense_product *product);

/* Lays W the other way or back; the library may be faster then. */
void lac_dense_product_lay(lac_dense_product *product, bool w_by_inputs);

/* Where the library finds the operands of a call: bytes that each pointer and each leading dimension is a multiple of. */
typedef struct lac_dense_alignment {
    uint32_t x, y, c;
} lac_dense_alignment;

enum { LAC_DENSE_WIDEST = 16 }; /* the widest load of the library's kernels */

/* Elements from one line of X, or of what the library writes, to the next, without padding. */
int64_t lac_dense_usual_ldx(const lac_dense_product *product);
int64_t lac_dense_usual_ldd(const lac_dense_product *product);
/* Of operands without padding, in memory as it is allocated. */
lac_dense_alignment lac_dense_alignment_usual(const lac_dense_product *product);
/* Of operands of which only the elements are aligned. */
lac_dense_alignment lac_dense_alignment_least(const lac_dense_product *product);
/* The largest power of two, LAC_DENSE_WIDEST at most, that divides it. */
uint32_t lac_dense_aligned_to(uint64_t bytes);

/* A call's operands for the library. */
typedef struct lac_dense_operands {
    const void *w, *x, *c, *bias; /* c, bias: NULL when the library adds none */
    void *d;
    int64_t ldx, ldc, ldd;
    float alpha, beta;
} lac_dense_operands;

/* The most algorithms that are asked for; asked for 16, cuBLASLt 13.1 gave no more than this either. */
enum { LAC_DENSE_MOST_ANSWERS = 8 };
/* Of the workspace, the most that an algorithm may want. */
enum { LAC_DENSE_MOST_WORKSPACE = 32 << 20 };

/* The library's algorithms for operands of this alignment, the best by its own heuristics first. UNSUPPORTED when there is
 * none. */
lac_status lac_dense_ask(const lac_device *device, const lac_dense_product *product, const lac_dense_alignment *alignment,
                         lac_lt_answer answers[LAC_DENSE_MOST_ANSWERS], int *count);

/* The number of the answer to take without timing them, of those for operands as they usually lie. */
int lac_dense_pick(const lac_dense_product *product, const lac_lt_answer *answers, int count);

/* Whether it is worth asking for W laid the other way too, and whether those answers promise to be faster: their last wave
 * leaves fewer multiprocessors idle. */
bool lac_dense_has_choice(const lac_dense_product *product);
bool lac_dense_prefers(const lac_lt_answer *as_it_lies, const lac_lt_answer *other);

/* Puts the product on the stream. The workspace is aligned to 256 bytes and as large as the algorithm wants it. UNSUPPORTED, with
 * nothing done, when the algorithm does not take these operands. */
lac_status lac_dense_run(const lac_device *device, const lac_dense_product *product, const lac_dense_operands *operands,
                         const lac_lt_answer *answer, void *workspace, void *stream);

/* One way to do a product, for operands as they usually lie. */
typedef struct lac_dense_candidate {
    const lac_dense_product *product; /* all that are timed together differ in how W lies alone */
    const lac_lt_answer *answer;
} lac_dense_candidate;

typedef struct lac_dense_timing {
    int fastest; /* its number among the candidates; -1: none was timed, for want of memory, or since none takes the operands */
    double seconds;
    bool steady; /* repeated timings agreed */
} lac_dense_timing;

/* dense_measure.c: which candidate is the fastest, on operands out of memory, without padding. `expected` are the seconds of a
 * call by the model. */
lac_status lac_dense_time(const lac_device *device, const lac_dense_candidate *candidates, int count, double expected,
                          lac_dense_timing *out);

/* How a product is done: by an algorithm that is chosen for operands as they usually lie; for others by those that the library names for
 * operands that lie anywhere, the best first, since such a one may refuse a call all the same. */
typedef struct lac_dense_way {
    lac_dense_product product, anywhere; /* anywhere: see lac_dense_product_anywhere */
    lac_lt_answer usual;
    lac_lt_answer answers[LAC_DENSE_MOST_ANSWERS]; /* for `anywhere` */
    int answer_count;
} lac_dense_way;

/* dense_choice.c: how to do the problem's product. What was timed before is remembered; `may_time` lets what was not be timed.
 * UNSUPPORTED when the library does not do it, or is not there. */
lac_status lac_dense_choose(const lac_problem *problem, bool may_time, lac_dense_way *out);

/* dense_cost.c: by the performance model. */
lac_cost lac_dense_product_cost(const lac_problem *problem, const lac_dense_product *product);

#endif
