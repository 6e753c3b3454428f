/* dlpack.h - what DLPack passes between libraries, as https://dmlc.github.io/dlpack/latest/c_api.html lays it out (before version 1.0, which every producer
 * still gives when it is not asked for more). */
#ifndef LACPY_DLPACK_H
#define LACPY_DLPACK_H

#include <stdint.h>

#define LACPY_DL_NAME  "dltensor"      /* of a capsule that nobody has taken */
#define LACPY_DL_TAKEN "used_dltensor" /* of one whose array is somebody else's now */

enum { LACPY_DL_CPU = 1, LACPY_DL_CUDA = 2, LACPY_DL_CUDA_HOST = 3, LACPY_DL_CUDA_MANAGED = 13 };
enum { LACPY_DL_FLOAT = 2, LACPY_DL_BFLOAT = 4 };

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

#endif
