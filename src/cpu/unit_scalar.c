/* unit_scalar.c - the inner loops in plain C: no vector unit is assumed. Runs everywhere. */
#include <stdbool.h>

static bool is_supported(void) { return true; }

#undef __AVX512F__
#undef __AVX2__
#undef __ARM_NEON
#include "cpu/unit_body.h"
