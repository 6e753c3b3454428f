/* convert.h - runs of values from one dtype to another, watching for finite values that become infinite. */
#ifndef LAC_FORMAT_CONVERT_H
#define LAC_FORMAT_CONVERT_H

#include <stdbool.h>

#include "lacuna.h"

/* Whether a finite value of `from` may be too large for `to`. */
bool lac_convert_may_overflow(lac_dtype from, lac_dtype to);

/* `count` adjacent elements, rounded to nearest even; equal dtypes are copied bit by bit. A finite value too large for
 * `to` becomes its largest finite value when `saturate`, else infinity. Returns whether there was such a value. */
bool lac_convert_run(const void *from, lac_dtype from_dtype, void *to, lac_dtype to_dtype, int64_t count, bool saturate);

#endif
