/* wgmma_tile.cuh - the warpgroup matrix product of sm_90a with both operands in shared memory: D[64][N] += A[64][K] * B[K][N]
 * in fp32, A the weights (K-major), B rows of X, and the same with A 2:4 sparse. Used by tile.cuh and stream_product.cuh; the fences
 * are wgmma.cuh's. `turned`: B is MN-major, as feature-major X is.
 *
 * Shared memory, 16-byte chunk c of a row r:
 *   A dense   rows of 128 bytes (64 inputs), 128-byte swizzle: r * 128 + (c ^ (r & 7)) * 16; 16 inputs further: 32 bytes.
 *   A sparse  rows of 64 bytes (32 kept of 64 inputs), 64-byte swizzle: r * 64 + (c ^ (r >> 1 & 3)) * 16; 32 inputs further:
 *             32 bytes.
 *   B turned  64 tokens of a row are 128 bytes: block of tokens * LAC_ROWS * 128 + r * 128 + (c ^ (r & 7)) * 16, 128-byte
 *             swizzle; 16 rows further: 2,048 bytes.
 *   B straight  tokens of 128 bytes (64 inputs) as A dense. */
#ifndef LAC_CUDA_KERNELS_WGMMA_TILE_CUH
#define LAC_CUDA_KERNELS_WGMMA_TILE_CUH

#include "numbers.cuh"

#if LAC_OPERAND == LAC_BF16
#define LAC_TILE_TYPES "f32.bf16.bf16"
#else
#define LAC_TILE_TYPES "f32.f16.f16"
#endif

/* Addresses and offsets in 16-byte units; the top bits name the swizzle: 1 for 128 bytes, 2 for 64. */
__device__ __forceinline__ u64 lac_operand(u32 address, u32 leading, u32 stride, u32 swizzle)
{
    return (u64)((address & 0x3ffffu) >> 4) | (u64)(leading >> 4) << 16 | (u64)(stride >> 4) << 32 | (u64)swizzle << 62;
}

#define LAC_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define LAC_D16(i) LAC_D4(i), LAC_D4(i + 4), LAC_D4(i + 8), LAC_D4(i + 12)

/* D += A * B, 16 inputs. */
template <int n, int turned> struct lac_wgmma_tile;
/* D += A * B, 32 inputs of which A has 16: `places` says which. The lanes 4i + 2 selector and the next one of each warp bring
 * it: see metadata in gather.c. */
template <int n, int turned, int selector> struct lac_wgmma_sparse;

template <int turned> struct lac_wgmma_tile<64, turned> {
    static __device__ __forceinline__ void run(float (&d)[32], u64 a, u64 b)
    {
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n64k16." LAC_TILE_TYPES " {"
                     "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                     "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
                     "}, %32, %33, p, 1, 1, 0, %34;\n}\n"
                     : LAC_D16(0), LAC_D16(16)
                     : "l"(a), "l"(b), "n"(turned));
    }
};

template <int turned> struct lac_wgmma_tile<128, turned> {
    static __device__ __forceinline__ void run(float (&d)[64], u64 a, u64 b)
    {
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n128k16." LAC_TILE_TYPES " {"
                     "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                     "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
                     "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
                     "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
                     "}, %64, %65, p, 1, 1, 0, %66;\n}\n"
                     : LAC_D16(0), LAC_D16(16), LAC_D16(32), LAC_D16(48)
                     : "l"(a), "l"(b), "n"(turned));
    }
};

template <int turned> struct lac_wgmma_tile<192, turned> {
    static __device__ __forceinline__ void run(float (&d)[96], u64 a, u64 b)
    {
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n192k16." LAC_TILE_TYPES " {"
                     "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                     "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
                     "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
                     "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,"
                     "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"
                     "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
                     "}, %96, %97, p, 1, 1, 0, %98;\n}\n"
                     : LAC_D16(0), LAC_D16(16), LAC_D16(32), LAC_D16(48), LAC_D16(64), LAC_D16(80)
                     : "l"(a), "l"(b), "n"(turned));
    }
};

template <int turned> struct lac_wgmma_tile<256, turned> {
    /* D = A * B where `adds` is 0, so that nobody need clear D. */
    static __device__ __forceinline__ void from(float (&d)[128], u64 a, u64 b, int adds)
    {
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %131, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n256k16." LAC_TILE_TYPES " {"
                     "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                     "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
                     "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
                     "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,"
                     "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"
                     "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,"
                     "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,"
                     "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
                     "}, %128, %129, p, 1, 1, 0, %130;\n}\n"
                     : LAC_D16(0), LAC_D16(16), LAC_D16(32), LAC_D16(48), LAC_D16(64), LAC_D16(80), LAC_D16(96), LAC_D16(112)
                     : "l"(a), "l"(b), "n"(turned), "r"(adds));
    }

    static __device__ __forceinline__ void run(float (&d)[128], u64 a, u64 b) { from(d, a, b, 1); }
};

template <int turned, int selector> struct lac_wgmma_sparse<32, turned, selector> {
    static __device__ __forceinline__ void run(float (&d)[16], u64 a, u64 b, u32 places)
    {
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
                     "wgmma.mma_async.sp.sync.aligned.m64n32k32." LAC_TILE_TYPES " {"
                     "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
                     "}, %16, %17, %18, %19, p, 1, 1, 0, %20;\n}\n"
                     : LAC_D16(0)
                     : "l"(a), "l"(b), "r"(places), "n"(selector), "n"(turned));
    }
};

template <int turned, int selector> struct lac_wgmma_sparse<64, turned, selector> {
    static __device__ __forceinline__ void run(float (&d)[32], u64 a, u64 b, u32 places)
    {
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
                     "wgmma.mma_async.sp.sync.aligned.m64n64k32." LAC_TILE_TYPES " {"
                     "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                     "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
                     "}, %32, %33, %34, %35, p, 1, 1, 0, %36;\n}\n"
                     : LAC_D16(0), LAC_D16(16)
                     : "l"(a), "l"(b), "r"(places), "n"(selector), "n"(turned));
    }
};

template <int turned, int selector> struct lac_wgmma_sparse<128, turned, selector> {
    static __device__ __forceinline__ void run(float (&d)[64], u64 a, u64 b, u32 places)
    {
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
                     "wgmma.mma_async.sp.sync.aligned.m64n128k32." LAC_TILE_TYPES " {"
                     "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                     "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
                     "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
                     "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
                     "}, %64, %65, %66, %67, p, 1, 1, 0, %68;\n}\n"
                     : LAC_D16(0), LAC_D16(16), LAC_D16(32), LAC_D16(48)
                     : "l"(a), "l"(b), "r"(places), "n"(selector), "n"(turned));
    }
};

template <int turned, int selector> struct lac_wgmma_sparse<192, turned, selector> {
    static __device__ __forceinline__ void run(float (&d)[96], u64 a, u64 b, u32 places)
    {
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
                     "wgmma.mma_async.sp.sync.aligned.m64n192k32." LAC_TILE_TYPES " {"
                     "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                     "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
                     "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
                     "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,"
                     "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"
                     "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
                     "}, %96, %97, %98, %99, p, 1, 1, 0, %100;\n}\n"
                     : LAC_D16(0), LAC_D16(16), LAC_D16(32), LAC_D16(48), LAC_D16(64), LAC_D16(80)
                     : "l"(a), "l"(b), "r"(places), "n"(selector), "n"(turned));
    }
};

template <int turned, int selector> struct lac_wgmma_sparse<256, turned, selector> {
    static __device__ __forceinline__ void run(float (&d)[128], u64 a, u64 b, u32 places)
    {
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
                     "wgmma.mma_async.sp.sync.aligned.m64n256k32." LAC_TILE_TYPES " {"
                     "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                     "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
                     "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
                     "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,"
                     "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"
                     "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,"
                     "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,"
                     "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
                     "}, %128, %129, %130, %131, p, 1, 1, 0, %132;\n}\n"
                     : LAC_D16(0), LAC_D16(16), LAC_D16(32), LAC_D16(48), LAC_D16(64), LAC_D16(80), LAC_D16(96), LAC_D16(112)
                     : "l"(a), "l"(b), "r"(places), "n"(selector), "n"(turned));
    }
};

/* The same with A in registers: lane 4g + q of a warp has in a[2t + h] what row g + 8h keeps of the inputs 16t + 4q to 16t + 4q + 3. */
template <int n, int turned, int selector> struct lac_wgmma_held;

template <int turned, int selector> struct lac_wgmma_held<32, turned, selector> {
    static __device__ __forceinline__ void run(float (&d)[16], const u32 *a, u64 b, u32 places)
    {
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
                     "wgmma.mma_async.sp.sync.aligned.m64n32k32." LAC_TILE_TYPES " {"
                     "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
                     "}, {%16,%17,%18,%19}, %20, %21, %22, p, 1, 1, %23;\n}\n"
                     : LAC_D16(0)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(places), "n"(selector), "n"(turned));
    }
};

template <int turned, int selector> struct lac_wgmma_held<64, turned, selector> {
    static __device__ __forceinline__ void run(float (&d)[32], const u32 *a, u64 b, u32 places)
    {
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
                     "wgmma.mma_async.sp.sync.aligned.m64n64k32." LAC_TILE_TYPES " {"
                     "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                     "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
                     "}, {%32,%33,%34,%35}, %36, %37, %38, p, 1, 1, %39;\n}\n"
                     : LAC_D16(0), LAC_D16(16)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(places), "n"(selector), "n"(turned));
    }
};

template <int turned, int selector> struct lac_wgmma_held<128, turned, selector> {
    static __device__ __forceinline__ void run(float (&d)[64], const u32 *a, u64 b, u32 places)
    {
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
                     "wgmma.mma_async.sp.sync.aligned.m64n128k32." LAC_TILE_TYPES " {"
                     "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                     "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
                     "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
                     "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
                     "}, {%64,%65,%66,%67}, %68, %69, %70, p, 1, 1, %71;\n}\n"
                     : LAC_D16(0), LAC_D16(16), LAC_D16(32), LAC_D16(48)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(places), "n"(selector), "n"(turned));
    }
};

#undef LAC_D16
#undef LAC_D4

#endif
