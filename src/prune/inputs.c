/* inputs.c - from the tensors of a calibration file to a layer's calibration, or its gradients. The tensor is read where it is mapped, a batch at a
 * time. Called by checkpoint.c. */
#include "prune/inputs.h"

#include <stdio.h>
#include <string.h>

#include "core/dtype.h"
#include "core/memory.h"
#include "core/status.h"

/* Rows that are copied at a time where the file does not align them. */
enum { COPIED_ROWS = 1024 };

/* "a.b.input" for "a.b.weight"; "c.input" for any other "c"; with another `ending` likewise. */
static lac_status name_inputs(const char *name, const char *ending, char **out)
{
    static const char suffix[] = ".weight";
    size_t length = strlen(name), cut = sizeof suffix - 1, more = strlen(ending) + 1;
    if (length > cut && strcmp(name + length - cut, suffix) == 0) length -= cut;
    *out = lac_allocate(length + more);
    if (!*out) return lac_fail_memory("a tensor's name", length + more);
    memcpy(*out, name, length);
    memcpy(*out + length, ending, more);
    return LAC_STATUS_OK;
}

static lac_status find_inputs(const lac_file *file, const char *name, const char *ending, lac_tensor_info *tensor)
{
    lac_file_info info = {.size = sizeof info};
    lac_status status = lac_file_get_info(file, &info);
    if (status != LAC_STATUS_OK) return status;
    if (info.format == LAC_FILE_FORMAT_NPY) return lac_file_get_tensor(file, 0, tensor);
    char *wanted = NULL;
    status = name_inputs(name, ending, &wanted);
    if (status != LAC_STATUS_OK) return status;
    status = lac_file_find_tensor(file, wanted, tensor);
    if (status == LAC_STATUS_NOT_FOUND)
        status = lac_fail(LAC_STATUS_NOT_FOUND, "the calibration has no tensor %s, which this layer needs", wanted);
    lac_release(wanted);
    return status;
}

lac_status lac_inputs_find(const lac_file *file, const char *name, lac_method method, lac_tensor_info *tensor)
{
    if (method == LAC_METHOD_FISHER) return find_inputs(file, name, ".gradient", tensor);
    if (find_inputs(file, name, ".moments", tensor) == LAC_STATUS_OK) return LAC_STATUS_OK;
    return find_inputs(file, name, ".input", tensor);
}

/* "a.b.samples": how many samples are in "a.b.moments". */
static lac_status read_count(const lac_file *file, const char *name, int64_t *out)
{
    lac_tensor_info tensor = {.size = sizeof tensor};
    double count = 0;
    lac_status status = find_inputs(file, name, ".samples", &tensor);
    if (status != LAC_STATUS_OK) return status;
    if (tensor.dtype == LAC_DTYPE_F64 && tensor.bytes == sizeof count) memcpy(&count, tensor.data, sizeof count);
    if (!(count >= 1) || count > 9e15)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                        "calibration tensor %s is no count of samples: one F64 of 1 or more is needed", tensor.name);
    *out = (int64_t)count;
    return LAC_STATUS_OK;
}

static lac_status add_moments(const lac_file *file, const char *name, const lac_tensor_info *tensor,
                              lac_calibration *calibration)
{
    int64_t samples = 0;
    lac_status status = read_count(file, name, &samples);
    if (status != LAC_STATUS_OK) return status;
    lac_matrix m = {.dtype = tensor->dtype, .rows = tensor->shape[0], .cols = tensor->shape[1]};
    void *copy = NULL;
    memcpy(&m.data, &tensor->data, sizeof m.data); /* the file is read-only; nothing writes through `m` */
    if ((uintptr_t)tensor->data % lac_dtype_size(tensor->dtype) != 0) {
        copy = lac_allocate(tensor->bytes);
        if (!copy) return lac_fail_memory("an aligned copy of the moments", tensor->bytes);
        m.data = memcpy(copy, tensor->data, tensor->bytes);
    }
    status = lac_calibration_add_moments(calibration, &m, samples);
    lac_release(copy);
    return status;
}

/* Samples of any alignment: aligned ones in place, others through a copy of some rows at a time. */
static lac_status add_samples(lac_calibration *calibration, const lac_tensor_info *tensor, int64_t rows, int64_t k,
                              int32_t threads)
{
    size_t element = lac_dtype_size(tensor->dtype);
    lac_matrix x = {.dtype = tensor->dtype, .rows = rows, .cols = k};
    memcpy(&x.data, &tensor->data, sizeof x.data); /* the file is read-only; nothing writes through `x` */
    if ((uintptr_t)tensor->data % element == 0) return lac_calibration_add(calibration, &x, threads);
    uint64_t row_bytes = (uint64_t)k * element, bytes = row_bytes * (uint64_t)(rows < COPIED_ROWS ? rows : COPIED_ROWS);
    void *copy = lac_allocate(bytes);
    if (!copy) return lac_fail_memory("an aligned copy of samples", bytes);
    lac_status status = LAC_STATUS_OK;
    for (int64_t first = 0; first < rows && status == LAC_STATUS_OK; first += COPIED_ROWS) {
        x.rows = rows - first < COPIED_ROWS ? rows - first : COPIED_ROWS;
        x.data = memcpy(copy, (const char *)tensor->data + (uint64_t)first * row_bytes, (uint64_t)x.rows * row_bytes);
        status = lac_calibration_add(calibration, &x, threads);
    }
    lac_release(copy);
    return status;
}

lac_status lac_inputs_read(const lac_file *file, const char *name, int64_t k, int32_t threads, lac_calibration **out)
{
    lac_tensor_info tensor = {.size = sizeof tensor};
    lac_status status = lac_inputs_find(file, name, LAC_METHOD_OBS, &tensor);
    if (status != LAC_STATUS_OK) return status;
    lac_file_info info = {.size = sizeof info};
    size_t length = strlen(tensor.name), ending = sizeof ".moments" - 1;
    bool moments = lac_file_get_info(file, &info) == LAC_STATUS_OK && info.format != LAC_FILE_FORMAT_NPY && length > ending &&
                   strcmp(tensor.name + length - ending, ".moments") == 0;
    int64_t last = tensor.rank > 0 ? tensor.shape[tensor.rank - 1] : 0, rows = 1;
    for (int i = 0; i + 1 < tensor.rank; i++) rows *= tensor.shape[i];
    if (!lac_dtype_is_input(tensor.dtype))
        return lac_fail(LAC_STATUS_UNSUPPORTED, "calibration tensor %s is of type %s; f32, f16, bf16 or f64 is needed",
                        tensor.name, tensor.type);
    if (tensor.rank < 2 || last != k)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                        "calibration tensor %s has rank %d and a last dimension of %lld; [..., %lld] is needed", tensor.name,
                        (int)tensor.rank, (long long)last, (long long)k);
    if (moments && tensor.rank != 2)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "calibration tensor %s has rank %d; [%lld, %lld] is needed", tensor.name,
                        (int)tensor.rank, (long long)k, (long long)k);
    lac_calibration *made = NULL;
    status = lac_calibration_create(k, &made);
    if (status != LAC_STATUS_OK) return status;
    status = moments ? add_moments(file, name, &tensor, made) : add_samples(made, &tensor, rows, k, threads);
    if (status != LAC_STATUS_OK) {
        lac_calibration_free(made);
        return lac_fail_in(status, "calibration tensor %s", tensor.name);
    }
    *out = made;
    return LAC_STATUS_OK;
}

lac_status lac_inputs_gradients(const lac_file *file, const char *name, int64_t n, int64_t k, lac_gradients *out, void **copy)
{
    lac_tensor_info tensor = {.size = sizeof tensor};
    lac_status status = find_inputs(file, name, ".gradient", &tensor);
    if (status != LAC_STATUS_OK) return status;
    if (tensor.rank != 3 || tensor.shape[1] != n || tensor.shape[2] != k)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                        "calibration tensor %s has rank %d and ends in [%lld, %lld]; [samples, %lld, %lld] is needed",
                        tensor.name, (int)tensor.rank, (long long)(tensor.rank > 1 ? tensor.shape[tensor.rank - 2] : 0),
                        (long long)(tensor.rank > 0 ? tensor.shape[tensor.rank - 1] : 0), (long long)n, (long long)k);
    *out = (lac_gradients){.size = sizeof *out, .data = tensor.data, .dtype = tensor.dtype, .samples = tensor.shape[0]};
    *copy = NULL;
    size_t element = lac_dtype_size(tensor.dtype);
    if (!lac_dtype_is_input(tensor.dtype) || (uintptr_t)tensor.data % element == 0) return LAC_STATUS_OK;
    *copy = lac_allocate(tensor.bytes);
    if (!*copy) return lac_fail_memory("an aligned copy of the gradients", tensor.bytes);
    out->data = memcpy(*copy, tensor.data, tensor.bytes);
    return LAC_STATUS_OK;
}
