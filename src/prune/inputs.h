/* inputs.h - the samples of a layer's inputs in a file. */
#ifndef LAC_PRUNE_INPUTS_H
#define LAC_PRUNE_INPUTS_H

#include "lacuna.h"

/* Adds up the samples that `file` holds for the weight `name`, whose inputs are k. NOT_FOUND says how they should be
 * called. */
lac_status lac_inputs_read(const lac_file *file, const char *name, int64_t k, int32_t threads, lac_calibration **out);

#endif
