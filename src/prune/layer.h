/* layer.h - one matrix of a checkpoint with what is known of its inputs, pruned to one pattern or to several. Used by checkpoint.c and
 * allocate.c. */
#ifndef LAC_PRUNE_LAYER_H
#define LAC_PRUNE_LAYER_H

#include "prune/prune.h"

typedef struct lac_layer {
    const char *name;
    lac_matrix dense; /* as the file has it; nothing writes through it */
    uint64_t bytes;
    void *copy;                   /* of dense, where the file does not align it; or NULL */
    lac_calibration *calibration; /* WANDA, OBS; or NULL */
    lac_gradients gradients;      /* FISHER */
    void *gradients_copy;
    lac_prune_options options;   /* with the two of them */
    lac_obs_factor factor;       /* OBS: for all patterns */
    const uint32_t *rows, *cols; /* the caller's: the order that W is pruned in, which the mask then carries; or NULL */
} lac_layer;

/* What pruning made of a layer. */
typedef struct lac_layer_result {
    lac_mask *mask;
    lac_matrix values;   /* what stays of W, by its own rows; the layer's dense itself where nothing was changed */
    void *block;         /* of the values where they are not */
    double energy_kept;  /* share of the sum of squares            */
    double output_error; /* share; negative without a calibration  */
    double loss_rise;    /* negative without gradients             */
    double loss;         /* of these the one that the method goes by */
} lac_layer_result;

/* `inputs` is the calibration file, or NULL. The tensor's data must outlive the layer. */
lac_status lac_layer_open(const lac_tensor_info *tensor, const lac_file *inputs, const lac_prune_options *options,
                          lac_layer *out);
lac_status lac_layer_prune(lac_layer *layer, const lac_pattern *pattern, lac_layer_result *out);
/* Moves the rows and columns of what was pruned, mask and values (NULL: none). An order of the mask's goes that this undoes; with keep_rows that of rows stays. */
lac_status lac_layer_move(lac_layer_result *result, const uint32_t *rows, const uint32_t *cols, bool keep_rows);
void lac_layer_release(lac_layer_result *result);
void lac_layer_close(lac_layer *layer);

#endif
