/* unit_neon.c - the inner loops for NEON, which every 64-bit Arm has. */
#include <stdbool.h>

#include "cpu/unit.h"

#if defined(__aarch64__)
static bool is_supported(void) { return true; }

#include "cpu/unit_body.h"
#endif
