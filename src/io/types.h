/* types.h - the element types of safetensors files, Lacuna's own among them, and how their bits become numbers. */
#ifndef LAC_IO_TYPES_H
#define LAC_IO_TYPES_H

#include <stdbool.h>

#include "lacuna.h"

typedef enum lac_number {
    LAC_NUMBER_OTHER = 0, /* no number that we convert: complex, packed 4- and 6-bit, ... */
    LAC_NUMBER_FLOAT,     /* by its lac_dtype                                            */
    LAC_NUMBER_SIGNED,
    LAC_NUMBER_UNSIGNED,
    LAC_NUMBER_BOOL
} lac_number;

typedef struct lac_type {
    const char *name; /* as safetensors calls it                     */
    int bits;         /* an element; below 8 they are packed         */
    lac_dtype dtype;  /* NONE when it is none of Lacuna's            */
    lac_number number;
} lac_type;

const lac_type *lac_type_find(const char *name);    /* NULL when there is none */
const lac_type *lac_type_of_dtype(lac_dtype dtype); /* NULL when there is none */

/* The bytes of a tensor, or false when they overflow 64 bits or do not fill a byte. */
bool lac_type_bytes(const lac_type *type, const int64_t *shape, int rank, uint64_t *out);

/* `count` elements from anywhere (no alignment needed) as doubles. The type must not be OTHER. */
void lac_type_load(const lac_type *type, const void *data, int64_t count, double *out);

#endif
