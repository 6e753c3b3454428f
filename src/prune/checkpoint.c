/* checkpoint.c - lac_checkpoint_prune: a whole checkpoint from dense to compressed, one tensor in memory at a time.
 * The first pass decides what happens to each tensor and declares it to the writer, the second does it in the same
 * order. Called by users and by `lacuna prune`. */
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/dtype.h"
#include "core/memory.h"
#include "core/pattern.h"
#include "core/status.h"
#include "lacuna.h"
#include "prune/inputs.h"

typedef struct checkpoint {
    lac_checkpoint_options options;
    lac_pattern pattern;
    lac_file *file, *inputs; /* inputs: NULL without a calibration */
    lac_writer *writer;
    int64_t tensors, weights; /* of the input */
    uint64_t bytes_done, bytes_total;
} checkpoint;

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static lac_status check_globs(const char *name, const char *const *globs, size_t count)
{
    if (count > 0 && !globs)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: %s is NULL but %s_count is %zu", name, name, count);
    for (size_t i = 0; i < count; i++)
        if (!globs[i]) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: %s[%zu] is NULL", name, i);
    return LAC_STATUS_OK;
}

static lac_status read_options(const lac_checkpoint_options *options, checkpoint *c)
{
    if (!options) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options is NULL; a pattern must be said");
    lac_status status = lac_read_struct("options", options, &c->options, sizeof c->options);
    if (status != LAC_STATUS_OK) return status;
    if (!c->options.pattern) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: pattern is NULL");
    c->pattern = *c->options.pattern;
    status = lac_pattern_validate(&c->pattern);
    if (status == LAC_STATUS_OK) status = check_globs("include", c->options.include, c->options.include_count);
    if (status == LAC_STATUS_OK) status = check_globs("exclude", c->options.exclude, c->options.exclude_count);
    if (status != LAC_STATUS_OK) return status;
    if (c->options.keep_dense != 0 && c->options.keep_dense != 1)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: keep_dense is %d; it must be 0 or 1",
                        (int)c->options.keep_dense);
    if (c->options.prune.size > sizeof c->options.prune || c->options.compress.size > sizeof c->options.compress)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: prune.size is %zu and compress.size is %zu; at most %zu and %zu",
                        c->options.prune.size, c->options.compress.size, sizeof c->options.prune, sizeof c->options.compress);
    if (c->options.prune.size == 0) c->options.prune.size = sizeof c->options.prune;
    if (c->options.compress.size == 0) c->options.compress.size = sizeof c->options.compress;
    bool calibrated = c->options.prune.method >= LAC_METHOD_WANDA;
    if (calibrated != (c->options.calibration != NULL))
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: calibration is %s, but the method %s",
                        calibrated ? "NULL" : "given",
                        calibrated ? "judges weights by what it holds" : "looks at the weights alone");
    if (c->options.prune.calibration)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                        "options: prune.calibration is given; a checkpoint's layers have one each, from a file");
    return LAC_STATUS_OK;
}

static bool matches(const char *name, const char *const *globs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (fnmatch(globs[i], name, 0) == 0) return true;
    return false;
}

/* Why a tensor is copied as it is; "" when it is to be pruned. */
static const char *reason_to_copy(const checkpoint *c, const lac_tensor_info *tensor)
{
    const lac_checkpoint_options *o = &c->options;
    if (tensor->rank != 2) return "not a matrix";
    if (!lac_dtype_is_input(tensor->dtype)) return "not of a floating type";
    if (tensor->shape[0] > LAC_MAX_DIMENSION || tensor->shape[1] > LAC_MAX_DIMENSION) return "too large";
    if (o->include_count > 0 && !matches(tensor->name, o->include, o->include_count)) return "not included";
    if (matches(tensor->name, o->exclude, o->exclude_count)) return "excluded";
    return "";
}

static lac_status get_tensor(const checkpoint *c, int64_t index, lac_tensor_info *tensor)
{
    *tensor = (lac_tensor_info){.size = sizeof *tensor};
    return lac_file_get_tensor(c->file, index, tensor);
}

static lac_status declare_pruned(const checkpoint *c, const lac_tensor_info *tensor)
{
    const lac_compress_options *o = &c->options.compress;
    lac_weight_info info = {.size = sizeof info, .pattern = c->pattern, .n = tensor->shape[0], .k = tensor->shape[1]};
    info.dtype = o->dtype != LAC_DTYPE_NONE ? o->dtype : tensor->dtype == LAC_DTYPE_F64 ? LAC_DTYPE_F32 : tensor->dtype;
    info.encoding = o->encoding;
    info.has_row_perm = c->pattern.family == LAC_FAMILY_SHUFFLED || c->options.prune.permute & LAC_PERMUTE_ROWS;
    info.has_col_perm = (c->options.prune.permute & LAC_PERMUTE_COLUMNS) != 0;
    lac_status status = lac_weight_measure(&info, NULL);
    if (status == LAC_STATUS_OK) status = lac_writer_declare_weight(c->writer, tensor->name, &info, NULL);
    return status;
}

/* A weight that is compressed already goes over with the sizes it has, which only the weight itself tells. */
static lac_status declare_carried(checkpoint *c, int64_t index)
{
    const char *name = NULL;
    lac_weight *weight = NULL;
    lac_weight_info info = {.size = sizeof info};
    lac_status status = lac_file_get_weight(c->file, index, &name, &info);
    if (status != LAC_STATUS_OK) return status;
    status = lac_file_load_weight(c->file, name, &weight);
    if (status == LAC_STATUS_OK) status = lac_writer_declare_weight(c->writer, name, &info, weight);
    lac_weight_free(weight);
    c->bytes_total += info.value_bytes + info.index_bytes;
    return status == LAC_STATUS_OK ? status : lac_fail_in(status, "%s", name);
}

static lac_status declare_metadata(const checkpoint *c)
{
    for (int64_t i = 0;; i++) {
        const char *key = NULL, *value = NULL;
        lac_status status = lac_file_get_metadata(c->file, i, &key, &value);
        if (status == LAC_STATUS_NOT_FOUND) return LAC_STATUS_OK;
        /* The key `lacuna` lists the weights of a container: the writer makes its own. */
        if (status == LAC_STATUS_OK && strcmp(key, "lacuna") != 0) status = lac_writer_set_metadata(c->writer, key, value);
        if (status != LAC_STATUS_OK) return status;
    }
}

static lac_status declare_all(checkpoint *c)
{
    lac_status status = declare_metadata(c);
    for (int64_t i = 0; i < c->tensors && status == LAC_STATUS_OK; i++) {
        lac_tensor_info tensor;
        status = get_tensor(c, i, &tensor);
        if (status != LAC_STATUS_OK) return status;
        if (c->options.keep_dense || *reason_to_copy(c, &tensor))
            status = lac_writer_declare_tensor(c->writer, &tensor);
        else
            status = declare_pruned(c, &tensor);
        if (status != LAC_STATUS_OK) return lac_fail_in(status, "%s", tensor.name);
        c->bytes_total += tensor.bytes;
    }
    for (int64_t i = 0; i < c->weights && status == LAC_STATUS_OK; i++) status = declare_carried(c, i);
    return status;
}

/* Writes the pruned matrix: compressed, or dense with zeros. */
static lac_status write_pruned(const checkpoint *c, const lac_matrix *dense, const lac_mask *mask, const char *name,
                               lac_layer_report *report)
{
    if (!c->options.keep_dense) {
        lac_weight *weight = NULL;
        lac_weight_info info = {.size = sizeof info};
        lac_status status = lac_weight_compress(dense, mask, &c->options.compress, &weight);
        if (status == LAC_STATUS_OK) status = lac_weight_get_info(weight, &info);
        if (status == LAC_STATUS_OK) status = lac_writer_write_weight(c->writer, name, weight);
        lac_weight_free(weight);
        report->stored_bytes = info.value_bytes + info.index_bytes;
        return status;
    }
    lac_matrix masked = *dense;
    masked.data = lac_allocate(report->dense_bytes);
    if (!masked.data) return lac_fail_memory("a copy of the tensor", report->dense_bytes);
    if (report->dense_bytes > 0) memcpy(masked.data, dense->data, report->dense_bytes);
    lac_status status = lac_mask_apply(mask, &masked);
    if (status == LAC_STATUS_OK) status = lac_writer_write_tensor(c->writer, name, masked.data, report->dense_bytes);
    lac_release(masked.data);
    return status;
}

/* Finds the mask by `dense` and writes `values` under it, which are the same weights or corrected ones. */
static lac_status finish_pruned(const checkpoint *c, const lac_matrix *dense, const lac_matrix *values, const lac_mask *mask,
                                const char *name, lac_layer_report *report)
{
    double kept = 0, total = 0;
    lac_status status = lac_mask_energy(mask, dense, &kept, &total);
    if (status == LAC_STATUS_OK) status = write_pruned(c, values, mask, name, report);
    report->energy_kept = total > 0 ? kept / total : 1.0;
    return status;
}

static lac_status prune_alone(const checkpoint *c, const lac_matrix *dense, const lac_tensor_info *tensor,
                              lac_layer_report *report)
{
    lac_mask *mask = NULL;
    lac_status status = lac_prune(dense, &c->pattern, &c->options.prune, &mask);
    if (status == LAC_STATUS_OK) status = finish_pruned(c, dense, dense, mask, tensor->name, report);
    lac_mask_free(mask);
    return status;
}

static lac_status prune_calibrated(const checkpoint *c, const lac_matrix *dense, const lac_tensor_info *tensor,
                                   lac_layer_report *report)
{
    lac_prune_options options = c->options.prune;
    lac_calibration *calibration = NULL;
    lac_mask *mask = NULL;
    double error = 0, total = 0;
    lac_matrix corrected = *dense;
    corrected.data = lac_allocate(tensor->bytes);
    if (!corrected.data) return lac_fail_memory("the corrected weights", tensor->bytes);
    lac_gradients gradients;
    void *copy = NULL;
    lac_status status;
    if (options.method == LAC_METHOD_FISHER)
        status = lac_inputs_gradients(c->inputs, tensor->name, dense->rows, dense->cols, &gradients, &copy);
    else
        status = lac_inputs_read(c->inputs, tensor->name, dense->cols, options.threads, &calibration);
    options.calibration = calibration, options.gradients = &gradients;
    if (status == LAC_STATUS_OK) status = lac_prune_and_correct(dense, &c->pattern, &options, &corrected, &mask);
    if (status == LAC_STATUS_OK && calibration) status = lac_calibration_error(calibration, dense, &corrected, &error, &total);
    report->output_error = !calibration ? -1 : total > 0 ? error / total : 0;
    lac_calibration_free(calibration);
    if (status == LAC_STATUS_OK) status = finish_pruned(c, dense, &corrected, mask, tensor->name, report);
    lac_mask_free(mask);
    lac_release(copy);
    lac_release(corrected.data);
    return status;
}

static lac_status prune_tensor(const checkpoint *c, const lac_tensor_info *tensor, lac_layer_report *report)
{
    lac_matrix dense = {.dtype = tensor->dtype, .rows = tensor->shape[0], .cols = tensor->shape[1]};
    void *copy = NULL;
    memcpy(&dense.data, &tensor->data, sizeof dense.data); /* the file is read-only; nothing writes through `dense` */
    if ((uintptr_t)tensor->data % lac_dtype_size(tensor->dtype) != 0) {
        copy = lac_allocate(tensor->bytes);
        if (!copy) return lac_fail_memory("an aligned copy of the tensor", tensor->bytes);
        dense.data = memcpy(copy, tensor->data, tensor->bytes);
    }
    lac_status status = c->inputs ? prune_calibrated(c, &dense, tensor, report) : prune_alone(c, &dense, tensor, report);
    lac_release(copy);
    return status;
}

/* Finishes a report and shows it; CANCELLED when the caller wants no more. */
static lac_status tell(checkpoint *c, lac_layer_report *report, double start, uint64_t bytes)
{
    report->size = sizeof *report;
    report->total = c->tensors + c->weights;
    report->seconds = seconds_now() - start;
    c->bytes_done += bytes;
    report->bytes_done = c->bytes_done;
    report->bytes_total = c->bytes_total;
    if (c->options.on_layer && c->options.on_layer(c->options.user, report) != 0)
        return lac_fail(LAC_STATUS_CANCELLED, "cancelled by the caller after %s, tensor %lld of %lld", report->name,
                        (long long)report->index + 1, (long long)report->total);
    return LAC_STATUS_OK;
}

static lac_status write_tensor(checkpoint *c, int64_t index)
{
    double start = seconds_now();
    lac_tensor_info tensor;
    lac_status status = get_tensor(c, index, &tensor);
    if (status != LAC_STATUS_OK) return status;
    lac_layer_report report = {
        .name = tensor.name, .reason = reason_to_copy(c, &tensor), .index = index, .energy_kept = 1.0, .output_error = -1};
    report.pruned = *report.reason == '\0';
    report.dense_bytes = report.stored_bytes = tensor.bytes;
    if (tensor.rank == 2) report.n = tensor.shape[0], report.k = tensor.shape[1];
    if (report.pruned)
        status = prune_tensor(c, &tensor, &report);
    else
        status = lac_writer_write_tensor(c->writer, tensor.name, tensor.data, tensor.bytes);
    if (status != LAC_STATUS_OK) return lac_fail_in(status, "%s", tensor.name);
    return tell(c, &report, start, tensor.bytes);
}

static lac_status write_carried(checkpoint *c, int64_t index)
{
    double start = seconds_now();
    lac_layer_report report = {
        .reason = "compressed already", .index = c->tensors + index, .energy_kept = 1.0, .output_error = -1};
    lac_weight *weight = NULL;
    lac_weight_info info = {.size = sizeof info};
    lac_status status = lac_file_get_weight(c->file, index, &report.name, &info);
    if (status != LAC_STATUS_OK) return status;
    status = lac_file_load_weight(c->file, report.name, &weight);
    if (status == LAC_STATUS_OK) status = lac_writer_write_weight(c->writer, report.name, weight);
    lac_weight_free(weight);
    if (status != LAC_STATUS_OK) return lac_fail_in(status, "%s", report.name);
    report.n = info.n;
    report.k = info.k;
    report.dense_bytes = info.dense_bytes;
    report.stored_bytes = info.value_bytes + info.index_bytes;
    return tell(c, &report, start, report.stored_bytes);
}

static lac_status open_both(checkpoint *c, const char *in, const char *out)
{
    lac_file_info info = {.size = sizeof info};
    lac_status status = lac_file_open(in, &c->file);
    if (status == LAC_STATUS_OK) status = lac_file_get_info(c->file, &info);
    if (status != LAC_STATUS_OK) return status;
    if (info.masks > 0) return lac_fail(LAC_STATUS_UNSUPPORTED, "in: %s holds a mask, which has no weights to prune", in);
    c->tensors = info.tensors;
    c->weights = info.weights;
    if (c->options.calibration) status = lac_file_open(c->options.calibration, &c->inputs);
    if (status != LAC_STATUS_OK) return lac_fail_in(status, "calibration");
    return lac_writer_open(out, &c->writer);
}

lac_status lac_checkpoint_prune(const char *in, const char *out, const lac_checkpoint_options *options)
{
    checkpoint c = {0};
    if (!in) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "in is NULL");
    if (!out) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "out is NULL");
    lac_status status = read_options(options, &c);
    if (status != LAC_STATUS_OK) return status;
    status = open_both(&c, in, out);
    if (status == LAC_STATUS_OK) status = declare_all(&c);
    for (int64_t i = 0; i < c.tensors && status == LAC_STATUS_OK; i++) status = write_tensor(&c, i);
    for (int64_t i = 0; i < c.weights && status == LAC_STATUS_OK; i++) status = write_carried(&c, i);
    if (status == LAC_STATUS_OK) status = lac_writer_commit(c.writer);
    lac_writer_free(c.writer);
    lac_file_close(c.inputs);
    lac_file_close(c.file);
    return status;
}
