/* unit_avx2.c - the inner loops for AVX2 with FMA and F16C (Haswell, Zen and later). Compiled with those flags. */
#include <stdbool.h>

#include "cpu/unit.h"

#if defined(__x86_64__)
/* Every CPU with AVX2 and FMA has F16C too, which not every compiler can ask for. */
static bool is_supported(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

#include "cpu/unit_body.h"
#endif
