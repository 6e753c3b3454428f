/* container.c - the part of `lacuna convert` that writes safetensors: every weight and tensor of IN, each kept, made dense,
 * compressed, re-encoded or given another dtype.
 *
 * The writer wants everything declared before anything is written, so there are two passes, and one tensor in memory at
 * a time in each. */
#include "convert.h"

#include <stdlib.h>
#include <string.h>

typedef enum action { KEEP, MAKE_DENSE, RECODE, CHANGE_DTYPE, COMPRESS, SKIP } action;

static action weight_action(const convert_settings *s, const char *name, const lac_weight_info *info)
{
    if (s->name && strcmp(s->name, name) != 0) return SKIP;
    if (s->dense) return MAKE_DENSE;
    if (s->encoding) return RECODE;
    return s->dtype && s->dtype != info->dtype ? CHANGE_DTYPE : KEEP;
}

static action tensor_action(const convert_settings *s, const lac_tensor_info *tensor)
{
    if (s->name && strcmp(s->name, tensor->name) != 0) return SKIP;
    if (s->pattern.text && cli_tensor_is_matrix(tensor) && cli_name_selected(tensor->name, &s->include, &s->exclude))
        return COMPRESS;
    return s->dtype && cli_tensor_is_floating(tensor) && s->dtype != tensor->dtype ? CHANGE_DTYPE : KEEP;
}

static lac_compress_options compress_options(const convert_settings *s)
{
    return (lac_compress_options){.size = sizeof(lac_compress_options),
                                  .dtype = s->dtype,
                                  .encoding = (lac_index_encoding)s->encoding,
                                  .overflow = s->saturate ? LAC_OVERFLOW_SATURATE : LAC_OVERFLOW_ERROR,
                                  .threads = (int32_t)s->threads};
}

/* A dense matrix that obeys the pattern into a weight. */
static lac_status compress(const convert_settings *s, const lac_matrix *dense, const lac_pattern *pattern, lac_weight **out)
{
    lac_mask *mask = NULL;
    lac_compress_options options = compress_options(s);
    lac_status status = lac_mask_from_matrix(dense, pattern, &mask);
    if (status == LAC_STATUS_OK) status = lac_weight_compress(dense, mask, &options, out);
    lac_mask_free(mask);
    return status;
}

/* The same weight with its values in another dtype: the index stays as it is. */
static int change_weight_dtype(const conversion *c, const char *name, const lac_weight *from, lac_weight **out)
{
    lac_weight_info info = {.size = sizeof info};
    lac_span parts[LAC_PART_COUNT];
    lac_status status = lac_weight_get_info(from, &info);
    for (int part = 0; part < LAC_PART_COUNT && status == LAC_STATUS_OK; part++)
        status = lac_weight_get_part(from, (lac_part)part, &parts[part]);
    if (status != LAC_STATUS_OK) return cli_fail(c->settings->in, name, status);
    lac_matrix values;
    int64_t count = (int64_t)(parts[LAC_PART_VALUES].bytes / lac_dtype_size(info.dtype));
    if (cli_matrix_create(&values, info.dtype, 1, count) != 0) return cli_fail(c->settings->in, name, LAC_STATUS_OUT_OF_MEMORY);
    if (count) memcpy(values.data, parts[LAC_PART_VALUES].data, parts[LAC_PART_VALUES].bytes);
    int failed = cli_convert_change_dtype(c, name, &values, c->settings->dtype);
    if (!failed) {
        info.dtype = c->settings->dtype;
        parts[LAC_PART_VALUES] = (lac_span){values.data, (uint64_t)count * lac_dtype_size(info.dtype)};
        status = lac_weight_from_parts(&info, parts, out);
        if (status != LAC_STATUS_OK) failed = cli_fail(c->settings->in, name, status);
    }
    cli_matrix_free(&values);
    return failed;
}

/* Another encoding of the index: through the dense matrix, whose mask is made anew. */
static int recode_weight(const conversion *c, const char *name, const lac_weight *from, lac_weight **out)
{
    lac_weight_info info = {.size = sizeof info};
    lac_status status = lac_weight_get_info(from, &info);
    if (status != LAC_STATUS_OK) return cli_fail(c->settings->in, name, status);
    if (info.has_row_perm || info.has_col_perm) {
        cli_error(c->settings->in, name, "--encoding: a weight with permuted rows or columns keeps the encoding it has");
        return CLI_EXIT_FAILURE;
    }
    lac_matrix dense;
    if (cli_matrix_create(&dense, info.dtype, info.n, info.k) != 0)
        return cli_fail(c->settings->in, name, LAC_STATUS_OUT_OF_MEMORY);
    status = lac_weight_decompress(from, &dense);
    if (status == LAC_STATUS_OK) status = compress(c->settings, &dense, &info.pattern, out);
    cli_matrix_free(&dense);
    return status == LAC_STATUS_OK ? CLI_EXIT_OK : cli_fail(c->settings->in, name, status);
}

/* The weight as it is to be written. */
static int make_weight(const conversion *c, const char *name, action what, lac_weight **out)
{
    lac_weight *loaded = NULL;
    lac_status status = lac_file_load_weight(c->file, name, &loaded);
    if (status != LAC_STATUS_OK) return cli_fail(c->settings->in, name, status);
    if (what == KEEP) {
        *out = loaded;
        return CLI_EXIT_OK;
    }
    int failed = what == RECODE ? recode_weight(c, name, loaded, out) : change_weight_dtype(c, name, loaded, out);
    lac_weight_free(loaded);
    return failed;
}

static int declare_dense(const conversion *c, lac_writer *writer, const char *name, lac_dtype dtype, int64_t rows, int64_t cols)
{
    lac_tensor_info tensor = {.size = sizeof tensor, .name = name, .dtype = dtype, .rank = 2, .shape = {rows, cols}};
    lac_status status = lac_writer_declare_tensor(writer, &tensor);
    return status == LAC_STATUS_OK ? CLI_EXIT_OK : cli_fail(c->settings->out, name, status);
}

/* The sizes of a weight that is yet to be made from a dense matrix. */
static int declare_compressed(const conversion *c, lac_writer *writer, const char *name, lac_dtype dtype, int64_t n, int64_t k)
{
    const convert_settings *s = c->settings;
    lac_weight_info info = {.size = sizeof info, .pattern = s->pattern.value, .n = n, .k = k};
    info.dtype = s->dtype ? s->dtype : dtype == LAC_DTYPE_F64 ? LAC_DTYPE_F32 : dtype;
    info.encoding = (lac_index_encoding)s->encoding;
    info.has_row_perm = s->pattern.value.family == LAC_FAMILY_SHUFFLED;
    lac_status status = lac_weight_measure(&info, NULL);
    if (status == LAC_STATUS_OK) status = lac_writer_declare_weight(writer, name, &info, NULL);
    return status == LAC_STATUS_OK ? CLI_EXIT_OK : cli_fail(s->in, name, status);
}

static int write_compressed(conversion *c, lac_writer *writer, const char *name, const lac_matrix *dense)
{
    lac_weight *weight = NULL;
    lac_status status = compress(c->settings, dense, &c->settings->pattern.value, &weight);
    if (status == LAC_STATUS_OK) status = lac_writer_write_weight(writer, name, weight);
    lac_weight_free(weight);
    c->compressed++;
    return status == LAC_STATUS_OK ? CLI_EXIT_OK : cli_fail(c->settings->in, name, status);
}

static int write_dense(conversion *c, lac_writer *writer, const char *name, const lac_matrix *matrix)
{
    uint64_t bytes = (uint64_t)matrix->rows * (uint64_t)matrix->cols * lac_dtype_size(matrix->dtype);
    lac_status status = lac_writer_write_tensor(writer, name, matrix->data, bytes);
    c->dense++;
    return status == LAC_STATUS_OK ? CLI_EXIT_OK : cli_fail(c->settings->out, name, status);
}

static int write_weight_dense(conversion *c, lac_writer *writer, const char *name, const lac_weight_info *info)
{
    lac_weight *weight = NULL;
    lac_matrix dense;
    if (cli_matrix_create(&dense, info->dtype, info->n_out, info->k_in) != 0)
        return cli_fail(c->settings->in, name, LAC_STATUS_OUT_OF_MEMORY);
    lac_status status = lac_file_load_weight(c->file, name, &weight);
    if (status == LAC_STATUS_OK) status = lac_weight_decompress(weight, &dense);
    lac_weight_free(weight);
    int failed = status == LAC_STATUS_OK ? CLI_EXIT_OK : cli_fail(c->settings->in, name, status);
    if (!failed) failed = cli_convert_change_dtype(c, name, &dense, c->settings->dtype);
    if (!failed) failed = write_dense(c, writer, name, &dense);
    cli_matrix_free(&dense);
    return failed;
}

/* Declares (or, in the second pass, writes) one weight of IN. */
static int pass_weight(conversion *c, lac_writer *writer, int64_t index, int writing)
{
    const convert_settings *s = c->settings;
    const char *name = NULL;
    lac_weight_info info = {.size = sizeof info};
    lac_status status = lac_file_get_weight(c->file, index, &name, &info);
    if (status != LAC_STATUS_OK) return cli_fail(s->in, NULL, status);
    action what = weight_action(s, name, &info);
    if (what == SKIP) return CLI_EXIT_OK;
    if (what == MAKE_DENSE)
        return writing ? write_weight_dense(c, writer, name, &info)
                       : declare_dense(c, writer, name, s->dtype ? s->dtype : info.dtype, info.n_out, info.k_in);
    if (s->dtype == LAC_DTYPE_F64) {
        cli_error(s->in, name, "--dtype f64: compressed values are f32, f16 or bf16; --dense writes f64");
        return CLI_EXIT_USAGE;
    }
    lac_weight *weight = NULL;
    int failed = make_weight(c, name, what, &weight);
    if (failed) return failed;
    lac_weight_info made = {.size = sizeof made};
    status = lac_weight_get_info(weight, &made);
    if (status == LAC_STATUS_OK && writing) {
        status = lac_writer_write_weight(writer, name, weight);
        c->compressed++;
    } else if (status == LAC_STATUS_OK) {
        status = lac_writer_declare_weight(writer, name, &made, weight);
    }
    lac_weight_free(weight);
    return status == LAC_STATUS_OK ? CLI_EXIT_OK : cli_fail(s->out, name, status);
}

/* A tensor of any rank as one row, in another dtype. */
static int write_changed(conversion *c, lac_writer *writer, const lac_tensor_info *tensor)
{
    lac_matrix row;
    int64_t count = (int64_t)(tensor->bytes / lac_dtype_size(tensor->dtype));
    if (cli_matrix_create(&row, tensor->dtype, 1, count) != 0)
        return cli_fail(c->settings->in, tensor->name, LAC_STATUS_OUT_OF_MEMORY);
    if (count) memcpy(row.data, tensor->data, tensor->bytes);
    int failed = cli_convert_change_dtype(c, tensor->name, &row, c->settings->dtype);
    if (!failed) failed = write_dense(c, writer, tensor->name, &row);
    cli_matrix_free(&row);
    return failed;
}

static int write_tensor(conversion *c, lac_writer *writer, const lac_tensor_info *tensor, action what)
{
    if (what == CHANGE_DTYPE) return write_changed(c, writer, tensor);
    if (what == COMPRESS) {
        lac_matrix dense;
        int failed = cli_matrix_read(c->file, c->settings->in, tensor->name, LAC_DTYPE_NONE, &dense, NULL);
        if (failed) return failed;
        failed = write_compressed(c, writer, tensor->name, &dense);
        cli_matrix_free(&dense);
        return failed;
    }
    lac_status status = lac_writer_write_tensor(writer, tensor->name, tensor->data, tensor->bytes);
    c->copied++;
    return status == LAC_STATUS_OK ? CLI_EXIT_OK : cli_fail(c->settings->out, tensor->name, status);
}

static int pass_tensor(conversion *c, lac_writer *writer, int64_t index, int writing)
{
    lac_tensor_info tensor = {.size = sizeof tensor};
    lac_status status = lac_file_get_tensor(c->file, index, &tensor);
    if (status != LAC_STATUS_OK) return cli_fail(c->settings->in, NULL, status);
    action what = tensor_action(c->settings, &tensor);
    if (what == SKIP) return CLI_EXIT_OK;
    if (writing) return write_tensor(c, writer, &tensor, what);
    if (what == COMPRESS) return declare_compressed(c, writer, tensor.name, tensor.dtype, tensor.shape[0], tensor.shape[1]);
    if (what == CHANGE_DTYPE) {
        tensor.type = NULL;
        tensor.dtype = c->settings->dtype;
    }
    status = lac_writer_declare_tensor(writer, &tensor);
    return status == LAC_STATUS_OK ? CLI_EXIT_OK : cli_fail(c->settings->out, tensor.name, status);
}

static int declare_metadata(const conversion *c, lac_writer *writer)
{
    const char *key, *value;
    for (int64_t i = 0; lac_file_get_metadata(c->file, i, &key, &value) == LAC_STATUS_OK; i++) {
        if (!strcmp(key, "lacuna")) continue; /* it lists the weights of IN; the writer makes its own */
        lac_status status = lac_writer_set_metadata(writer, key, value);
        if (status != LAC_STATUS_OK) return cli_fail(c->settings->out, NULL, status);
    }
    return CLI_EXIT_OK;
}

/* IN is safetensors: both passes over all it holds. */
static int convert_all(conversion *c, lac_writer *writer)
{
    cli_progress progress;
    cli_progress_start(&progress, c->settings->progress);
    int failed = declare_metadata(c, writer);
    int64_t total = c->info.weights + c->info.tensors;
    for (int writing = 0; writing < 2; writing++)
        for (int64_t i = 0; i < total && !failed; i++) {
            failed =
                i < c->info.weights ? pass_weight(c, writer, i, writing) : pass_tensor(c, writer, i - c->info.weights, writing);
            if (!failed && cli_interrupted()) failed = CLI_EXIT_FAILURE;
            if (writing) cli_progress_show(&progress, (uint64_t)i + 1, (uint64_t)total, "");
        }
    cli_progress_finish(&progress);
    if (!failed && c->compressed + c->dense + c->copied == 0 && total > 0) {
        cli_error(c->settings->in, c->settings->name, "there is no such weight or tensor");
        return CLI_EXIT_FAILURE;
    }
    return failed;
}

/* IN is one nameless matrix or mask. */
static int convert_one(conversion *c, lac_writer *writer)
{
    const convert_settings *s = c->settings;
    lac_matrix matrix;
    const char *name = NULL;
    int failed = cli_convert_take_matrix(c, &matrix, &name);
    if (failed) return failed;
    if (s->pattern.text) {
        failed = declare_compressed(c, writer, name, matrix.dtype, matrix.rows, matrix.cols);
        if (!failed) failed = write_compressed(c, writer, name, &matrix);
    } else {
        failed = cli_convert_change_dtype(c, name, &matrix, s->dtype);
        if (!failed) failed = declare_dense(c, writer, name, matrix.dtype, matrix.rows, matrix.cols);
        if (!failed) failed = write_dense(c, writer, name, &matrix);
    }
    cli_matrix_free(&matrix);
    return failed;
}

int cli_convert_to_container(conversion *c)
{
    lac_writer *writer = NULL;
    lac_status status = lac_writer_open(c->settings->out, &writer);
    if (status != LAC_STATUS_OK) return cli_fail(c->settings->out, NULL, status);
    int failed = c->info.format == LAC_FILE_FORMAT_SAFETENSORS ? convert_all(c, writer) : convert_one(c, writer);
    if (!failed) {
        status = lac_writer_commit(writer);
        if (status != LAC_STATUS_OK) failed = cli_fail(c->settings->out, NULL, status);
    }
    lac_writer_free(writer);
    if (failed && cli_interrupted()) {
        cli_error(c->settings->out, NULL, "stopped; nothing was written");
        cli_interrupt_raise();
    }
    return failed;
}
