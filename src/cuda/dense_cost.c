/* dense_cost.c - how long the vendor's dense product takes, by the performance model. */
#include "cuda/dense_product.h"

#include <math.h>

#include "core/dtype.h"
#include "cuda/runtime.h"
#include "format/weight.h"

lac_cost lac_dense_product_cost(const lac_problem *problem, const lac_dense_product *p)
{
    const lac_gpu_rates *rates = lac_cuda_rates_of(problem->device);
    double m = (double)p->m, n = (double)p->n, k = (double)p->k, size = (double)lac_dtype_size(p->operand);
    double tile_m = m < 128 ? 64 : 128, tile_n = 128;
    double mp = ceil(m / tile_m) * tile_m, np = ceil(n / tile_n) * tile_n;
    bool tensor = p->operand != LAC_DTYPE_F32 || p->compute == LAC_LT_COMPUTE_TF32;
    lac_gpu_work work = {.memory_bytes = (m * k + n * k) * size + m * n * (double)lac_dtype_size(p->result),
                         .l2_bytes = mp * np * k * size * (1.0 / tile_m + 1.0 / tile_n),
                         .instructions = tensor ? 0.0 : mp * np * k / 32.0,
                         .mma_flops = tensor ? 2.0 * mp * np * k * (p->operand == LAC_DTYPE_F32 ? 2.0 : 1.0) : 0.0,
                         .blocks = mp / tile_m * np / tile_n,
                         .blocks_at_once = rates->multiprocessors,
                         .efficiency = 0.85,
                         .launches = p->finish == LAC_DENSE_FINISH_LIBRARY ? 1 : 2};
    return lac_model_gpu_cost(rates, &work);
}
