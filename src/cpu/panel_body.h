/* panel_body.h - turns rows into columns, included once by each unit_<name>.c. panel.c packs token-major activations with
 * it, finish.c brings sums of adjacent tokens into rows of outputs.
 *
 * A block of LAC_LANES x LAC_LANES is turned in registers: as many loads and stores as lanes, and shuffles between. */
#ifndef LAC_CPU_PANEL_BODY_H
#define LAC_CPU_PANEL_BODY_H

#include <string.h>

#include "cpu/unit.h"
#include "cpu/vector.h"

/* v[i] lane j becomes v[j] lane i. */
#if LAC_LANES == 16

LAC_INLINE void lac_turn(lac_vec *v)
{
    __m512 t[16];
    LAC_UNROLL
    for (int i = 0; i < 16; i += 4) { /* 4 x 4 within each quarter of four rows */
        __m512 a = _mm512_unpacklo_ps(v[i], v[i + 1]), b = _mm512_unpackhi_ps(v[i], v[i + 1]);
        __m512 c = _mm512_unpacklo_ps(v[i + 2], v[i + 3]), d = _mm512_unpackhi_ps(v[i + 2], v[i + 3]);
        t[i] = _mm512_shuffle_ps(a, c, 0x44);
        t[i + 1] = _mm512_shuffle_ps(a, c, 0xee);
        t[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
        t[i + 3] = _mm512_shuffle_ps(b, d, 0xee);
    }
    LAC_UNROLL
    for (int i = 0; i < 4; ++i) { /* then the quarters */
        __m512 a = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x88), b = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xdd);
        __m512 c = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x88), d = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xdd);
        v[i] = _mm512_shuffle_f32x4(a, c, 0x88);
        v[i + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
        v[i + 8] = _mm512_shuffle_f32x4(a, c, 0xdd);
        v[i + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
}

#elif LAC_LANES == 8

LAC_INLINE void lac_turn(lac_vec *v)
{
    __m256 t[8];
    LAC_UNROLL
    for (int i = 0; i < 8; i += 4) { /* 4 x 4 within each half of four rows */
        __m256 a = _mm256_unpacklo_ps(v[i], v[i + 1]), b = _mm256_unpackhi_ps(v[i], v[i + 1]);
        __m256 c = _mm256_unpacklo_ps(v[i + 2], v[i + 3]), d = _mm256_unpackhi_ps(v[i + 2], v[i + 3]);
        t[i] = _mm256_shuffle_ps(a, c, 0x44);
        t[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
        t[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
        t[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
    }
    LAC_UNROLL
    for (int i = 0; i < 4; ++i) { /* then the halves */
        v[i] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x20);
        v[i + 4] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x31);
    }
}

#elif LAC_LANES == 4

LAC_INLINE void lac_turn(lac_vec *v)
{
    float32x4x2_t low = vtrnq_f32(v[0], v[1]), high = vtrnq_f32(v[2], v[3]);
    v[0] = vcombine_f32(vget_low_f32(low.val[0]), vget_low_f32(high.val[0]));
    v[1] = vcombine_f32(vget_low_f32(low.val[1]), vget_low_f32(high.val[1]));
    v[2] = vcombine_f32(vget_high_f32(low.val[0]), vget_high_f32(high.val[0]));
    v[3] = vcombine_f32(vget_high_f32(low.val[1]), vget_high_f32(high.val[1]));
}

#else

LAC_INLINE void lac_turn(lac_vec *v) { (void)v; }

#endif

/* Up to LAC_LANES rows of LAC_LANES columns. `whole`: all lanes may be stored, for what lies behind a column's end is
 * padding, or is written next. */
LAC_INLINE void lac_turn_block(const lac_cpu_turn_call *call, int first, int64_t column, bool whole)
{
    lac_vec v[LAC_LANES];
    LAC_UNROLL
    for (int i = 0; i < LAC_LANES; ++i)
        v[i] = first + i < call->rows ? lac_vec_load(call->from + (first + i) * call->from_stride + column) : lac_vec_zero();
    lac_turn(v);
    float *to = call->to + column * call->to_stride + first;
    if (whole) {
        LAC_UNROLL
        for (int i = 0; i < LAC_LANES; ++i) lac_vec_store(to + i * call->to_stride, v[i]);
        return;
    }
    float lanes[LAC_LANES];
    LAC_UNROLL
    for (int i = 0; i < LAC_LANES; ++i) {
        lac_vec_store(lanes, v[i]);
        memcpy(to + i * call->to_stride, lanes, (size_t)(call->width - first) * sizeof *to);
    }
}

static void lac_turn_any(const lac_cpu_turn_call *call)
{
    const int64_t whole = call->columns / LAC_LANES * LAC_LANES;
    for (int first = 0; first < call->width; first += LAC_LANES) {
        /* A column that is narrower than a vector and followed by the next one may be stored too wide, front to back; not
         * so the last ones, which others may have written behind. */
        bool fits = first + LAC_LANES <= call->width;
        bool runs_on = first == 0 && call->to_stride == call->width;
        for (int64_t column = 0; column < whole; column += LAC_LANES)
            lac_turn_block(call, first, column, fits || (runs_on && column + 2 * LAC_LANES <= whole));
    }
    for (int64_t column = whole; column < call->columns; ++column)
        for (int r = 0; r < call->width; ++r)
            call->to[column * call->to_stride + r] = r < call->rows ? call->from[r * call->from_stride + column] : 0.0f;
}

#endif
