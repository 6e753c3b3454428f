/* finish_body.h - the epilogue over a run of adjacent results, included once by each unit_<name>.c. Plain loops over
 * short arrays: the compiler makes vectors of them, and each step is a pass of its own so that it can. */
#ifndef LAC_CPU_FINISH_BODY_H
#define LAC_CPU_FINISH_BODY_H

#include <math.h>

#include "cpu/unit.h"
#include "cpu/vector.h"

enum { LAC_FINISH_RUN = 64 };

LAC_INLINE void lac_finish_activate(lac_activation activation, float *z, int count)
{
    switch (activation) {
    case LAC_ACTIVATION_NONE:
        break;
    case LAC_ACTIVATION_RELU:
        for (int i = 0; i < count; ++i) z[i] = z[i] < 0.0f ? 0.0f : z[i];
        break;
    case LAC_ACTIVATION_GELU_ERF:
        for (int i = 0; i < count; ++i) z[i] = 0.5f * z[i] * erfcf(-z[i] * 0.70710678f);
        break;
    case LAC_ACTIVATION_GELU_TANH:
        for (int i = 0; i < count; ++i) {
            z[i] = z[i] / (1.0f + expf(-1.59576912f * (z[i] + 0.044715f * z[i] * z[i] * z[i])));
        }
        break;
    case LAC_ACTIVATION_SILU:
        for (int i = 0; i < count; ++i) z[i] = z[i] / (1.0f + expf(-z[i]));
        break;
    }
}

LAC_INLINE void lac_finish_residual(lac_dtype dtype, const void *c, int64_t first, float beta, float *z, int count)
{
    float wide[LAC_FINISH_RUN];
    lac_load_run_f32(c, dtype, first, 1, count, wide);
    for (int i = 0; i < count; ++i) z[i] += beta * wide[i];
}

LAC_INLINE void lac_finish_store(lac_dtype dtype, void *y, int64_t first, const float *z, int count)
{
    if (dtype == LAC_DTYPE_F32) {
        for (int i = 0; i < count; ++i) ((float *)y)[first + i] = z[i];
    } else if (dtype == LAC_DTYPE_BF16) {
        for (int i = 0; i < count; ++i) ((uint16_t *)y)[first + i] = lac_f32_to_bf16(z[i]);
    } else {
        for (int i = 0; i < count; ++i) ((uint16_t *)y)[first + i] = lac_f32_to_f16(z[i]);
    }
}

LAC_INLINE void lac_finish_run(const lac_cpu_finish_call *call, int64_t run)
{
    float z[LAC_FINISH_RUN];
    for (int64_t first = 0; first < call->count; first += LAC_FINISH_RUN) {
        int count = call->count - first < LAC_FINISH_RUN ? (int)(call->count - first) : LAC_FINISH_RUN;
        const float *sums = call->sums + run * call->run_stride + first * call->stride;
        if (call->stride == 1) {
            for (int i = 0; i < count; ++i) z[i] = call->alpha * sums[i];
        } else {
            for (int i = 0; i < count; ++i) z[i] = call->alpha * sums[i * call->stride];
        }
        if (call->bias) {
            for (int i = 0; i < count; ++i) z[i] += call->bias[first + i];
        } else {
            for (int i = 0; i < count; ++i) z[i] += call->one_bias;
        }
        lac_finish_activate(call->activation, z, count);
        if (call->c) lac_finish_residual(call->c_dtype, call->c, run * call->c_stride + first, call->beta, z, count);
        lac_finish_store(call->y_dtype, call->y, run * call->y_stride + first, z, count);
    }
}

/* Nothing but a factor, in the arithmetic of the general loop: whole vectors, without a stop in between. */
LAC_INLINE void lac_finish_plain(const lac_cpu_finish_call *call, int64_t run)
{
    const float *restrict sums = call->sums + run * call->run_stride;
    float *restrict y = (float *)call->y + run * call->y_stride;
    for (int64_t i = 0; i < call->count; ++i) y[i] = call->alpha * sums[i] + call->one_bias;
}

/* The same to places that are not adjacent. */
LAC_INLINE void lac_finish_spread(const lac_cpu_finish_call *call, int64_t run)
{
    const float *restrict sums = call->sums + run * call->run_stride;
    const uint32_t *restrict places = call->places;
    float *restrict y = (float *)call->y + run * call->y_stride;
    int64_t i = 0;
#if LAC_LANES == 16
    const __m512 factor = _mm512_set1_ps(call->alpha), bias = _mm512_set1_ps(call->one_bias);
    for (; i + LAC_LANES <= call->count; i += LAC_LANES)
        _mm512_i32scatter_ps(y, _mm512_loadu_si512(places + i), _mm512_fmadd_ps(factor, _mm512_loadu_ps(sums + i), bias), 4);
#endif
    for (; i < call->count; ++i) y[places[i]] = call->alpha * sums[i] + call->one_bias;
}

static void lac_finish(const lac_cpu_finish_call *call)
{
    if (call->places) {
        for (int64_t run = 0; run < call->runs; ++run) lac_finish_spread(call, run);
        return;
    }
    bool plain = call->stride == 1 && !call->bias && !call->c && call->activation == LAC_ACTIVATION_NONE &&
                 call->y_dtype == LAC_DTYPE_F32;
    for (int64_t run = 0; run < call->runs; ++run) {
        if (plain)
            lac_finish_plain(call, run);
        else
            lac_finish_run(call, run);
    }
}

#endif
