/* inputs.h - the samples of a layer's inputs in a file. */
#ifndef LAC_PRUNE_INPUTS_H
#define LAC_PRUNE_INPUTS_H

#include "lacuna.h"

/* Adds up the samples that `file` holds for the weight `name`, whose inputs are k. NOT_FOUND says how they should be
 * called. */
lac_status lac_inputs_read(const lac_file *file, const char *name, int64_t k, int32_t threads, lac_calibration **out);

/* The gradients that `file` holds for the weight `name` of n x k; `copy` is NULL, or a block to release after use. */
lac_status lac_inputs_gradients(const lac_file *file, const char *name, int64_t n, int64_t k, lac_gradients *out, void **copy);

/* The tensor that either of them reads. */
lac_status lac_inputs_find(const lac_file *file, const char *name, lac_method method, lac_tensor_info *tensor);

#endif
