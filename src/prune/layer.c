/* layer.c - one matrix of a checkpoint: its bytes aligned, its samples added up once, then pruned as often as is asked. Called by checkpoint.c and
 * allocate.c. */
#include "prune/layer.h"

#include <string.h>

#include "core/dtype.h"
#include "core/memory.h"
#include "core/status.h"
#include "format/reorder.h"
#include "prune/calibration.h"
#include "prune/inputs.h"

static lac_status read_samples(const lac_file *inputs, lac_layer *layer)
{
    const lac_matrix *dense = &layer->dense;
    if (layer->options.method == LAC_METHOD_FISHER) {
        layer->options.gradients = &layer->gradients;
        return lac_inputs_gradients(inputs, layer->name, dense->rows, dense->cols, &layer->gradients, &layer->gradients_copy);
    }
    lac_status status = lac_inputs_read(inputs, layer->name, dense->cols, layer->options.threads, &layer->calibration);
    layer->options.calibration = layer->calibration;
    return status;
}

lac_status lac_layer_open(const lac_tensor_info *tensor, const lac_file *inputs, const lac_prune_options *options,
                          lac_layer *out)
{
    *out = (lac_layer){.name = tensor->name, .bytes = tensor->bytes, .options = *options};
    out->dense = (lac_matrix){.dtype = tensor->dtype, .rows = tensor->shape[0], .cols = tensor->shape[1]};
    memcpy(&out->dense.data, &tensor->data, sizeof out->dense.data); /* the file is read-only; nothing writes through it */
    if ((uintptr_t)tensor->data % lac_dtype_size(tensor->dtype) != 0) {
        out->copy = lac_allocate(tensor->bytes);
        if (!out->copy) return lac_fail_memory("an aligned copy of the tensor", tensor->bytes);
        out->dense.data = memcpy(out->copy, tensor->data, tensor->bytes);
    }
    bool empty = out->dense.rows == 0 || out->dense.cols == 0; /* nothing to judge: no samples are looked at */
    if (empty) out->options.method = LAC_METHOD_MAGNITUDE, out->options.device = NULL;
    lac_status status = inputs && !empty ? read_samples(inputs, out) : LAC_STATUS_OK;
    if (status != LAC_STATUS_OK) lac_layer_close(out);
    return status;
}

static lac_status correct(lac_layer *layer, const lac_pattern *pattern, lac_layer_result *result)
{
    double error = 0, total = 0;
    lac_prune_extras extras = {.factor = &layer->factor, .settled_rows = layer->rows, .settled_cols = layer->cols};
    result->block = result->values.data = lac_allocate(layer->bytes);
    if (!result->block) return lac_fail_memory("the corrected weights", layer->bytes);
    lac_status status =
        lac_prune_and_correct_with(&layer->dense, pattern, &layer->options, &result->values, &extras, &result->mask);
    if (status != LAC_STATUS_OK) return status;
    if (!layer->calibration)
        return lac_fisher_rise(&layer->dense, &result->values, &layer->gradients, layer->options.damping,
                               layer->options.threads, &result->loss_rise);
    status =
        lac_calibration_error_by(layer->calibration, &layer->dense, &result->values, layer->options.threads, &error, &total);
    result->output_error = total > 0 ? error / total : 0;
    return status;
}

lac_status lac_layer_prune(lac_layer *layer, const lac_pattern *pattern, lac_layer_result *out)
{
    lac_layer_result result = {.values = layer->dense, .output_error = -1, .loss_rise = -1, .energy_kept = 1};
    double kept = 0, total = 0;
    bool corrects = layer->calibration || layer->options.gradients;
    lac_prune_extras extras = {.settled_rows = layer->rows, .settled_cols = layer->cols};
    lac_status status = corrects ? correct(layer, pattern, &result)
                                 : lac_prune_with(&layer->dense, pattern, &layer->options, &extras, &result.mask);
    if (status == LAC_STATUS_OK) status = lac_mask_energy_by(result.mask, &layer->dense, layer->options.threads, &kept, &total);
    if (status != LAC_STATUS_OK) {
        lac_layer_release(&result);
        return status;
    }
    if (total > 0) result.energy_kept = kept / total;
    result.loss = layer->calibration ? result.output_error : corrects ? result.loss_rise : 1 - result.energy_kept;
    *out = result;
    return LAC_STATUS_OK;
}

lac_status lac_layer_move(lac_layer_result *result, const uint32_t *rows, const uint32_t *cols, bool keep_rows)
{
    const lac_matrix *values = &result->values;
    uint64_t element = lac_dtype_size(values->dtype), bytes = (uint64_t)values->rows * (uint64_t)values->cols * element;
    lac_mask *mask = NULL;
    void *block = lac_allocate(bytes);
    if (!block) return lac_fail_memory("the weights in another order", bytes);
    lac_status status = lac_mask_reorder_with(result->mask, rows, cols, keep_rows, &mask);
    if (status != LAC_STATUS_OK) {
        lac_release(block);
        return status;
    }
    lac_reorder_elements(values->data, values->rows, values->cols, element, rows, cols, block);
    lac_layer_release(result);
    result->mask = mask;
    result->block = result->values.data = block;
    return LAC_STATUS_OK;
}

void lac_layer_release(lac_layer_result *result)
{
    lac_mask_free(result->mask);
    lac_release(result->block);
}

void lac_layer_close(lac_layer *layer)
{
    lac_calibration_free(layer->calibration);
    lac_release(layer->factor.u);
    lac_release(layer->gradients_copy);
    lac_release(layer->copy);
}
