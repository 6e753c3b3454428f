/* numbers.cuh - fp16 and bf16 by hand, and the types that the constants LAC_X_DTYPE, ... name: NVRTC alone must do, without
 * a CUDA header. Numbers are those of lac_dtype in lacuna.h. */
#ifndef LAC_CUDA_KERNELS_NUMBERS_CUH
#define LAC_CUDA_KERNELS_NUMBERS_CUH

#define LAC_F32 1
#define LAC_F16 2
#define LAC_BF16 3

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

template <int dtype> struct lac_element { typedef u16 type; };
template <> struct lac_element<LAC_F32> { typedef float type; };

__device__ __forceinline__ float lac_from_f16(u16 bits)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

__device__ __forceinline__ u16 lac_to_f16(float value)
{
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

__device__ __forceinline__ float lac_from_bf16(u16 bits) { return __uint_as_float((u32)bits << 16); }

/* Round to nearest even by integers: sm_75 has no instruction for it. NaN stays NaN. */
__device__ __forceinline__ u16 lac_to_bf16(float value)
{
    u32 bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (u16)(bits >> 16 | 0x40u);
    return (u16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

template <int dtype> __device__ __forceinline__ float lac_widen(typename lac_element<dtype>::type element);
template <> __device__ __forceinline__ float lac_widen<LAC_F32>(float element) { return element; }
template <> __device__ __forceinline__ float lac_widen<LAC_F16>(u16 element) { return lac_from_f16(element); }
template <> __device__ __forceinline__ float lac_widen<LAC_BF16>(u16 element) { return lac_from_bf16(element); }

template <int dtype> __device__ __forceinline__ typename lac_element<dtype>::type lac_narrow(float value);
template <> __device__ __forceinline__ float lac_narrow<LAC_F32>(float value) { return value; }
template <> __device__ __forceinline__ u16 lac_narrow<LAC_F16>(float value) { return lac_to_f16(value); }
template <> __device__ __forceinline__ u16 lac_narrow<LAC_BF16>(float value) { return lac_to_bf16(value); }

#endif
