/* wgmma.cuh - the warpgroup matrix product of sm_90a, by name: D[64][N] (+)= A[64][16] * B[16][N], A in registers, B in shared
 * memory as K-major core matrices of 8 outputs x 16 bytes without swizzle, D in fp32. Used by window.cu, pick.cu, choose.cu,
 * expand_few.cu and, its fences, tile.cuh. */
#ifndef LAC_CUDA_KERNELS_WGMMA_CUH
#define LAC_CUDA_KERNELS_WGMMA_CUH

#include "numbers.cuh"

#if LAC_OPERAND == LAC_BF16
#define LAC_WGMMA_TYPES "f32.bf16.bf16"
#else
#define LAC_WGMMA_TYPES "f32.f16.f16"
#endif

__device__ __forceinline__ void lac_wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void lac_wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/* Waits until at most `pending` committed groups are unfinished. */
template <int pending> __device__ __forceinline__ void lac_wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

/* Sums may be read from here on: keeps the compiler from moving their readers above a wait. */
template <int count> __device__ __forceinline__ void lac_wgmma_results(float (&d)[count])
{
#pragma unroll
    for (int i = 0; i < count; i++) asm volatile("" : "+f"(d[i])::"memory");
}

/* B at a shared address: core matrices 128 bytes apart along k, 256 along n. */
__device__ __forceinline__ u64 lac_wgmma_descriptor(u32 address)
{
    return (u64)((address & 0x3ffffu) >> 4) | (u64)(128 >> 4) << 16 | (u64)(256 >> 4) << 32;
}

/* D = A * B where `begin`, else D += A * B. */
template <int width> struct lac_wgmma;

#define LAC_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])

template <> struct lac_wgmma<8> {
    static __device__ __forceinline__ void run(float (&d)[4], const u32 (&a)[4], u64 b, int begin)
    {
        asm volatile("{\n.reg .pred p;\nsetp.eq.s32 p, %9, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n8k16." LAC_WGMMA_TYPES " {%0,%1,%2,%3}, {%4,%5,%6,%7}, %8, p, 1, 1, 0;\n}\n"
                     : LAC_D4(0)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(begin));
    }
};

template <> struct lac_wgmma<16> {
    static __device__ __forceinline__ void run(float (&d)[8], const u32 (&a)[4], u64 b, int begin)
    {
        asm volatile("{\n.reg .pred p;\nsetp.eq.s32 p, %13, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n16k16." LAC_WGMMA_TYPES
                     " {%0,%1,%2,%3,%4,%5,%6,%7}, {%8,%9,%10,%11}, %12, p, 1, 1, 0;\n}\n"
                     : LAC_D4(0), LAC_D4(4)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(begin));
    }
};

template <> struct lac_wgmma<24> {
    static __device__ __forceinline__ void run(float (&d)[12], const u32 (&a)[4], u64 b, int begin)
    {
        asm volatile("{\n.reg .pred p;\nsetp.eq.s32 p, %17, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n24k16." LAC_WGMMA_TYPES
                     " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11}, {%12,%13,%14,%15}, %16, p, 1, 1, 0;\n}\n"
                     : LAC_D4(0), LAC_D4(4), LAC_D4(8)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(begin));
    }
};

template <> struct lac_wgmma<32> {
    static __device__ __forceinline__ void run(float (&d)[16], const u32 (&a)[4], u64 b, int begin)
    {
        asm volatile("{\n.reg .pred p;\nsetp.eq.s32 p, %21, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n32k16." LAC_WGMMA_TYPES
                     " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, {%16,%17,%18,%19}, %20, p, 1, 1, 0;\n}\n"
                     : LAC_D4(0), LAC_D4(4), LAC_D4(8), LAC_D4(12)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(begin));
    }
};

#define LAC_D16(i) LAC_D4(i), LAC_D4(i + 4), LAC_D4(i + 8), LAC_D4(i + 12)

template <> struct lac_wgmma<48> {
    static __device__ __forceinline__ void run(float (&d)[24], const u32 (&a)[4], u64 b, int begin)
    {
        asm volatile("{\n.reg .pred p;\nsetp.eq.s32 p, %29, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n48k16." LAC_WGMMA_TYPES " {"
                     "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                     "%16,%17,%18,%19,%20,%21,%22,%23"
                     "}, {%24,%25,%26,%27}, %28, p, 1, 1, 0;\n}\n"
                     : LAC_D16(0), LAC_D4(16), LAC_D4(20)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(begin));
    }
};

template <> struct lac_wgmma<64> {
    static __device__ __forceinline__ void run(float (&d)[32], const u32 (&a)[4], u64 b, int begin)
    {
        asm volatile("{\n.reg .pred p;\nsetp.eq.s32 p, %37, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n64k16." LAC_WGMMA_TYPES " {"
                     "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                     "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
                     "}, {%32,%33,%34,%35}, %36, p, 1, 1, 0;\n}\n"
                     : LAC_D16(0), LAC_D16(16)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(begin));
    }
};

template <> struct lac_wgmma<96> {
    static __device__ __forceinline__ void run(float (&d)[48], const u32 (&a)[4], u64 b, int begin)
    {
        asm volatile("{\n.reg .pred p;\nsetp.eq.s32 p, %53, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n96k16." LAC_WGMMA_TYPES " {"
                     "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                     "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
                     "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
                     "}, {%48,%49,%50,%51}, %52, p, 1, 1, 0;\n}\n"
                     : LAC_D16(0), LAC_D16(16), LAC_D16(32)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(begin));
    }
};

template <> struct lac_wgmma<128> {
    static __device__ __forceinline__ void run(float (&d)[64], const u32 (&a)[4], u64 b, int begin)
    {
        asm volatile("{\n.reg .pred p;\nsetp.eq.s32 p, %69, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n128k16." LAC_WGMMA_TYPES " {"
                     "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                     "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
                     "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
                     "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
                     "}, {%64,%65,%66,%67}, %68, p, 1, 1, 0;\n}\n"
                     : LAC_D16(0), LAC_D16(16), LAC_D16(32), LAC_D16(48)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(begin));
    }
};

#undef LAC_D16
#undef LAC_D4

#endif
