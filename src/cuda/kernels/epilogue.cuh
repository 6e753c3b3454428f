/* epilogue.cuh - from a sum to an element of Y:  act(alpha * sum + bias) + beta * C.  Constants: LAC_HAS_BIAS,
 * LAC_ACTIVATION, LAC_HAS_RESIDUAL, LAC_Y_DTYPE, LAC_C_DTYPE, LAC_BIAS_DTYPE, LAC_Y_TOKEN_MAJOR. */
#ifndef LAC_CUDA_KERNELS_EPILOGUE_CUH
#define LAC_CUDA_KERNELS_EPILOGUE_CUH

#include "arguments.h"
#include "numbers.cuh"

__device__ __forceinline__ float lac_activate(float v)
{
#if LAC_ACTIVATION == 1
    return v > 0.0f || v != v ? v : 0.0f; /* NaN stays NaN */
#elif LAC_ACTIVATION == 2
    return 0.5f * v * (1.0f + erff(v * 0.70710678118654752f));
#elif LAC_ACTIVATION == 3
    return 0.5f * v * (1.0f + tanhf(0.79788456080286536f * (v + 0.044715f * v * v * v)));
#elif LAC_ACTIVATION == 4
    return v / (1.0f + expf(-v));
#else
    return v;
#endif
}

/* Where Y[token][output] and C[token][output] lie. */
__device__ __forceinline__ i64 lac_at(i64 ld, int token, int output)
{
#if LAC_Y_TOKEN_MAJOR
    return (i64)token * ld + output;
#else
    return (i64)output * ld + token;
#endif
}

__device__ __forceinline__ float lac_bias(const lac_gpu_call &call, int output)
{
#if LAC_HAS_BIAS
    return lac_widen<LAC_BIAS_DTYPE>(((const typename lac_element<LAC_BIAS_DTYPE>::type *)call.bias)[output]);
#else
    return 0.0f;
#endif
}

/* The value that goes to Y[token][output], in fp32. */
__device__ __forceinline__ float lac_finish(const lac_gpu_call &call, int token, int output, float sum, float bias)
{
    float v = lac_activate(call.alpha * sum + bias);
#if LAC_HAS_RESIDUAL
    if (call.c)
        v += call.beta *
             lac_widen<LAC_C_DTYPE>(((const typename lac_element<LAC_C_DTYPE>::type *)call.c)[lac_at(call.ldc, token, output)]);
#endif
    return v;
}

__device__ __forceinline__ void lac_store(const lac_gpu_call &call, int token, int output, float value)
{
    ((typename lac_element<LAC_Y_DTYPE>::type *)call.y)[lac_at(call.ldy, token, output)] = lac_narrow<LAC_Y_DTYPE>(value);
}

#endif
