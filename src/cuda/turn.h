/* turn.h - the host side of kernels/turn.cu: X brought into the workspace with aligned rows, feature-major whatever it was, or
 * token-major as it is, for kernels that want it so. */
#ifndef LAC_CUDA_TURN_H
#define LAC_CUDA_TURN_H

#include "core/arithmetic.h"
#include "cuda/kernels/arguments.h"
#include "cuda/program.h"
#include "cuda/runtime.h"
#include "format/weight.h"

enum { LAC_TURN_SIDE = 64 }; /* tokens and inputs of a block */

/* Feature-major: elements of a row of the copy, and its bytes with `rows` rows. */
static inline int64_t lac_turn_ld(const lac_problem *problem)
{
    return lac_ceil_divide(problem->m, LAC_TURN_SIDE) * LAC_TURN_SIDE;
}
static inline uint64_t lac_turn_bytes(const lac_problem *problem, int64_t rows)
{
    return (uint64_t)lac_turn_ld(problem) * (uint64_t)rows * sizeof(uint16_t);
}
/* Token-major. */
static inline int64_t lac_turn_rows_ld(const lac_problem *problem)
{
    return lac_ceil_divide(problem->weight->k_in, LAC_TURN_SIDE) * LAC_TURN_SIDE;
}
static inline uint64_t lac_turn_rows_bytes(const lac_problem *problem)
{
    return (uint64_t)lac_turn_rows_ld(problem) * (uint64_t)problem->m * sizeof(uint16_t);
}
/* Whether a launch can have as many blocks as X needs. */
static inline bool lac_turn_fits(const lac_problem *problem)
{
    int64_t most = INT32_MAX - LAC_TURN_SIDE; /* the kernel rounds up in 32 bits */
    if (problem->m > most || problem->weight->k_in > most) return false;
    return lac_turn_rows_ld(problem) / LAC_TURN_SIDE * (lac_turn_ld(problem) / LAC_TURN_SIDE) <= INT32_MAX;
}

void lac_turn_request(const lac_problem *problem, lac_cuda_request *request);
void lac_turn_request_rows(lac_cuda_request *request);

/* Start the copy of the call's X to `to`, which is aligned to 16 bytes and of as many bytes as these say, k rows of them at least. */
lac_status lac_turn_x(const lac_problem *problem, lac_cu_function program, const lac_gpu_call *call, void *to, void *stream);
lac_status lac_turn_rows(const lac_problem *problem, lac_cu_function program, const lac_gpu_call *call, void *to, void *stream);

/* X feature-major in boxes of 64 tokens, of which `boxes` has `down` and `fold`. True: it is the caller's, which the copy engine can take
 * as it is; false: the copy at `to`, which lac_turn_x is to make. */
bool lac_turn_boxes(const lac_problem *problem, const lac_gpu_call *call, const void *to, lac_cuda_boxes *boxes);

#endif
