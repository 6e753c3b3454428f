/* dlpack.h - what DLPack passes between libraries, as https://dmlc.github.io/dlpack/latest/c_api.html lays it out: the form before version 1.0, which every
 * producer gives that is not asked for more, and that of version 1, which tells of read-only arrays. */
#ifndef LACPY_DLPACK_H
#define LACPY_DLPACK_H

#include <stdint.h>

#define LACPY_DL_NAME      "dltensor" /* of a capsule that nobody has taken */
#define LACPY_DL_VERSIONED "dltensor_versioned"

enum { LACPY_DL_CPU = 1, LACPY_DL_CUDA = 2, LACPY_DL_CUDA_HOST = 3, LACPY_DL_CUDA_MANAGED = 13 };
enum { LACPY_DL_FLOAT = 2, LACPY_DL_BFLOAT = 4 };
enum { LACPY_DL_MAJOR = 1, LACPY_DL_MINOR = 0 };
enum { LACPY_DL_READ_ONLY = 1, LACPY_DL_COPIED = 2 }; /* of flags */

typedef struct lacpy_dl_tensor {
    void *data;
    int32_t device_type, device_number;
    int32_t dimensions;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides; /* in elements; no strides: no gaps, the last dimension fastest */
    uint64_t byte_offset;
} lacpy_dl_tensor;

typedef struct lacpy_dl_managed {
    lacpy_dl_tensor tensor;
    void *owner;
    void (*deleter)(struct lacpy_dl_managed *self);
} lacpy_dl_managed;

typedef struct lacpy_dl_versioned {
    uint32_t major, minor; /* of another major version, nothing but these and the deleter may be read */
    void *owner;
    void (*deleter)(struct lacpy_dl_versioned *self);
    uint64_t flags;
    lacpy_dl_tensor tensor;
} lacpy_dl_versioned;

#endif
