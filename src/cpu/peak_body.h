/* peak_body.h - the loop that shows what a vector unit does at most, included once by each unit_<name>.c. model/rates.c
 * times it. Twelve independent sums hide the latency of two FMA pipes. */
#ifndef LAC_CPU_PEAK_BODY_H
#define LAC_CPU_PEAK_BODY_H

#include "cpu/unit.h"
#include "cpu/vector.h"

/* The compiler must believe that the value is used and changed, or it would fold the loop. */
#if defined(__x86_64__)
#define LAC_PEAK_KEEP(value) __asm__ volatile("" : "+x"(value))
#elif defined(__aarch64__)
#define LAC_PEAK_KEEP(value) __asm__ volatile("" : "+w"(value))
#else
#define LAC_PEAK_KEEP(value) __asm__ volatile("" : "+m"(value))
#endif

LAC_INLINE void lac_peak_rounds(const int reads, int64_t rounds, const float *from, int64_t step)
{
    static const float one = 1.0f;
    lac_vec sum[LAC_CPU_PEAK_FMAS], factor = lac_vec_repeat(&one);
    LAC_UNROLL
    for (int i = 0; i < LAC_CPU_PEAK_FMAS; ++i) sum[i] = lac_vec_zero();
    for (int64_t round = 0; round < rounds; ++round, from += reads ? step : 0) {
        LAC_UNROLL
        for (int i = 0; i < LAC_CPU_PEAK_FMAS; ++i) {
            LAC_PEAK_KEEP(factor);
            sum[i] = lac_vec_fma(factor, reads ? lac_vec_load(from + i * LAC_LANES) : factor, sum[i]);
            LAC_PEAK_KEEP(sum[i]);
        }
        __asm__ volatile("" : "+r"(from) : : "memory"); /* what was read may have changed: it is read again */
    }
}

static void lac_peak(int64_t rounds, const float *from, int64_t step)
{
    static const float none[1];
    if (from)
        lac_peak_rounds(1, rounds, from, step);
    else
        lac_peak_rounds(0, rounds, none, 0);
}

#endif
