/* vector.h - the vector unit behind one set of names, so that each dataflow is written once and compiled per unit.
 *
 * Included by the bodies only (broadcast_body.h and its like), inside a file that the build compiles for one unit: the
 * compiler's own macros say which. Runs of floats need no alignment. There is no masked access: the bodies' operands are
 * padded to whole vectors when they are packed.
 *
 *     lac_vec                       LAC_LANES floats
 *     lac_vec_zero()                lac_vec_load(p)          lac_vec_store(p, v)
 *     lac_vec_repeat(p)             *p in every lane
 *     lac_vec_fma(a, b, c)          a * b + c; one rounding where the unit has FMA, two where it has not
 *     lac_vec_add(a, b)             a + b
 *     lac_vec_load_f16(p), lac_vec_load_bf16(p)              LAC_LANES 16-bit floats, widened */
#ifndef LAC_CPU_VECTOR_H
#define LAC_CPU_VECTOR_H

#include <stdint.h>

#include "core/dtype.h"

#define LAC_INLINE static inline __attribute__((always_inline, unused))

/* Before a loop of constant length over an array of vectors: written out early, so that the array stays in registers. */
#if defined(__clang__)
#define LAC_UNROLL _Pragma("clang loop unroll(full)")
#else
#define LAC_UNROLL _Pragma("GCC unroll 24")
#endif

#if defined(__AVX512F__)

#include <immintrin.h>
#define LAC_LANES     16
#define LAC_UNIT_NAME avx512
typedef __m512 lac_vec;
LAC_INLINE lac_vec lac_vec_zero(void) { return _mm512_setzero_ps(); }
LAC_INLINE lac_vec lac_vec_load(const float *p) { return _mm512_loadu_ps(p); }
LAC_INLINE void lac_vec_store(float *p, lac_vec v) { _mm512_storeu_ps(p, v); }
LAC_INLINE lac_vec lac_vec_repeat(const float *p) { return _mm512_set1_ps(*p); }
LAC_INLINE lac_vec lac_vec_fma(lac_vec a, lac_vec b, lac_vec c) { return _mm512_fmadd_ps(a, b, c); }
LAC_INLINE lac_vec lac_vec_add(lac_vec a, lac_vec b) { return _mm512_add_ps(a, b); }
LAC_INLINE lac_vec lac_vec_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
LAC_INLINE lac_vec lac_vec_load_bf16(const uint16_t *p)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include <immintrin.h>
#define LAC_LANES     8
#define LAC_UNIT_NAME avx2
typedef __m256 lac_vec;
LAC_INLINE lac_vec lac_vec_zero(void) { return _mm256_setzero_ps(); }
LAC_INLINE lac_vec lac_vec_load(const float *p) { return _mm256_loadu_ps(p); }
LAC_INLINE void lac_vec_store(float *p, lac_vec v) { _mm256_storeu_ps(p, v); }
LAC_INLINE lac_vec lac_vec_repeat(const float *p) { return _mm256_broadcast_ss(p); }
LAC_INLINE lac_vec lac_vec_fma(lac_vec a, lac_vec b, lac_vec c) { return _mm256_fmadd_ps(a, b, c); }
LAC_INLINE lac_vec lac_vec_add(lac_vec a, lac_vec b) { return _mm256_add_ps(a, b); }
LAC_INLINE lac_vec lac_vec_load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
LAC_INLINE lac_vec lac_vec_load_bf16(const uint16_t *p)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

#elif defined(__aarch64__) && defined(__ARM_NEON)

#include <arm_neon.h>
#define LAC_LANES     4
#define LAC_UNIT_NAME neon
typedef float32x4_t lac_vec;
LAC_INLINE lac_vec lac_vec_zero(void) { return vdupq_n_f32(0.0f); }
LAC_INLINE lac_vec lac_vec_load(const float *p) { return vld1q_f32(p); }
LAC_INLINE void lac_vec_store(float *p, lac_vec v) { vst1q_f32(p, v); }
LAC_INLINE lac_vec lac_vec_repeat(const float *p) { return vld1q_dup_f32(p); }
LAC_INLINE lac_vec lac_vec_fma(lac_vec a, lac_vec b, lac_vec c) { return vfmaq_f32(c, a, b); }
LAC_INLINE lac_vec lac_vec_add(lac_vec a, lac_vec b) { return vaddq_f32(a, b); }
LAC_INLINE lac_vec lac_vec_load_f16(const uint16_t *p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
LAC_INLINE lac_vec lac_vec_load_bf16(const uint16_t *p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }

#else

/* No vector unit: one lane, in plain C. What the others are compared with, and what runs anywhere. */
#define LAC_LANES     1
#define LAC_UNIT_NAME scalar
typedef float lac_vec;
LAC_INLINE lac_vec lac_vec_zero(void) { return 0.0f; }
LAC_INLINE lac_vec lac_vec_load(const float *p) { return *p; }
LAC_INLINE void lac_vec_store(float *p, lac_vec v) { *p = v; }
LAC_INLINE lac_vec lac_vec_repeat(const float *p) { return *p; }
LAC_INLINE lac_vec lac_vec_fma(lac_vec a, lac_vec b, lac_vec c) { return a * b + c; }
LAC_INLINE lac_vec lac_vec_add(lac_vec a, lac_vec b) { return a + b; }
LAC_INLINE lac_vec lac_vec_load_f16(const uint16_t *p) { return lac_f16_to_f32(*p); }
LAC_INLINE lac_vec lac_vec_load_bf16(const uint16_t *p) { return lac_bf16_to_f32(*p); }

#endif

/* `n` weights of `dtype` from element `at` on, one vector of them. */
LAC_INLINE lac_vec lac_vec_load_as(lac_dtype dtype, const void *data, int64_t at)
{
    if (dtype == LAC_DTYPE_F16) return lac_vec_load_f16((const uint16_t *)data + at);
    if (dtype == LAC_DTYPE_BF16) return lac_vec_load_bf16((const uint16_t *)data + at);
    return lac_vec_load((const float *)data + at);
}

#endif
