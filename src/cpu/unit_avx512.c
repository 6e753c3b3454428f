/* unit_avx512.c - the inner loops for AVX-512 F, BW, DQ and VL (Skylake-X, Zen 4 and later). Compiled with those flags. */
#include <stdbool.h>

#include "cpu/unit.h"

#if defined(__x86_64__)
static bool is_supported(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}

#include "cpu/unit_body.h"
#endif
