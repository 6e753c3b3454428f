/* checkpoint.h - what lac_checkpoint_prune and lac_checkpoint_allocate share: the options, and which tensors they are for. */
#ifndef LAC_PRUNE_CHECKPOINT_H
#define LAC_PRUNE_CHECKPOINT_H

#include <jansson.h>
#include <stdbool.h>

#include "lacuna.h"

/* Reads and checks the options; with `patterned` a pattern or an allocation must be said. */
lac_status lac_checkpoint_read_options(const lac_checkpoint_options *options, bool patterned, lac_checkpoint_options *out,
                                       lac_prune_options *prune, lac_compress_options *compress);

/* Why a tensor is copied as it is; "" when it is one to prune. Does not look at an allocation. */
const char *lac_checkpoint_reason_to_copy(const lac_checkpoint_options *options, const lac_tensor_info *tensor);

/* What happens to a tensor: why it is copied, or "" and the pattern that it is pruned to. */
const char *lac_checkpoint_decide(const lac_checkpoint_options *options, const lac_tensor_info *tensor, lac_pattern *pattern);

/* Everything besides the tensors that decides what is written, for the journal; NULL without memory. */
json_t *lac_checkpoint_describe(const lac_checkpoint_options *options, const lac_prune_options *prune,
                                const lac_compress_options *compress);

/* Opens the calibration file, when the options have one. */
lac_status lac_checkpoint_open_inputs(const lac_checkpoint_options *options, lac_file **out);

/* allocate.c: what was chosen for the layer of this name; NULL when it knows none. */
const lac_choice_info *lac_allocation_find(const lac_allocation *allocation, const char *name);

#endif
