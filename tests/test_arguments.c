/* test_arguments.c - NULL or a wrong value in any argument of any public function is refused with INVALID_ARGUMENT and a
 * message that names the argument and its value, or is harmless where the header says so; no output is touched. The list
 * is complete: it is compared with the header. */
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define refuses(call, text)                                                                                                    \
    do {                                                                                                                       \
        test_mark_called(#call);                                                                                               \
        assert_fails(call, LAC_STATUS_INVALID_ARGUMENT, text);                                                                 \
    } while (0)
/* For functions without a status: `expression` calls `function` and must be true. */
#define harmless(function, expression)                                                                                         \
    do {                                                                                                                       \
        test_mark_called(#function);                                                                                           \
        assert_true(expression);                                                                                               \
    } while (0)

/* Outputs hold this address, and must go on doing so. */
static unsigned char untouched_byte;
#define UNTOUCHED ((void *)&untouched_byte)

static void *allocate_nothing(size_t bytes, void *user)
{
    (void)bytes, (void)user;
    return NULL;
}

static void release_nothing(void *block, void *user) { (void)block, (void)user; }

static void core(void **state)
{
    test_world *the = *state;
    lac_dtype dtype = LAC_DTYPE_F32;
    lac_pattern none = {0}, untouched = none;
    char text[LAC_PATTERN_TEXT_SIZE] = "";
    harmless(lac_status_name, !strcmp(lac_status_name(LAC_STATUS_OK), "ok"));
    harmless(lac_status_name, lac_status_name((lac_status)-1) && lac_status_name((lac_status)99));
    harmless(lac_last_error, lac_last_error() != NULL);
    harmless(lac_version, lac_version() != NULL);
    harmless(lac_set_log, (lac_set_log(NULL, NULL, LAC_LOG_LEVEL_DEBUG), true));
    refuses(lac_set_allocator(NULL, release_nothing, NULL), "allocate is NULL");
    refuses(lac_set_allocator(allocate_nothing, NULL, NULL), "release is NULL");
    harmless(lac_dtype_name, !strcmp(lac_dtype_name((lac_dtype)77), "none"));
    harmless(lac_dtype_size, lac_dtype_size((lac_dtype)77) == 0);
    refuses(lac_dtype_parse(NULL, &dtype), "text is NULL");
    refuses(lac_dtype_parse("f32", NULL), "out is NULL");
    refuses(lac_pattern_parse(NULL, &none), "text is NULL");
    refuses(lac_pattern_parse("2:4", NULL), "out is NULL");
    refuses(lac_pattern_format(NULL, text, sizeof text), "pattern is NULL");
    refuses(lac_pattern_format(&the->pattern, NULL, sizeof text), "buffer is NULL");
    refuses(lac_pattern_format(&the->pattern, text, 0), "buffer_size is 0");
    refuses(lac_pattern_format(&none, text, sizeof text), "family is 0");
    harmless(lac_pattern_density, lac_pattern_density(NULL) == 0);
    harmless(lac_pattern_density, lac_pattern_density(&none) == 0);
    refuses(lac_pattern_check(NULL, &the->pattern, NULL), "dense is NULL");
    refuses(lac_pattern_check(&the->dense, NULL, NULL), "pattern is NULL");
    refuses(lac_pattern_check(&the->dense, &none, NULL), "family is 0");
    lac_pattern_violation violation = {0};
    refuses(lac_pattern_check(&the->dense, &the->pattern, &violation), "violation->size is 0");
    harmless(lac_part_name, !strcmp(lac_part_name(LAC_PART_VALUES), "values"));
    harmless(lac_part_name, !lac_part_name((lac_part)LAC_PART_COUNT) && !lac_part_name((lac_part)-1));
    assert_true(!text[0] && dtype == LAC_DTYPE_F32 && !memcmp(&none, &untouched, sizeof none));
}

static void calibrations(void **state)
{
    test_world *the = *state;
    lac_calibration *made = NULL, *none = UNTOUCHED;
    lac_mask *out = UNTOUCHED;
    lac_matrix narrow = the->dense;
    narrow.cols = 7;
    double error = -1, total = -1;
    lac_calibration_info info = {.size = sizeof info}, sizeless = {0};
    refuses(lac_calibration_create(0, &none), "k is 0");
    refuses(lac_calibration_create(-5, &none), "k is -5");
    refuses(lac_calibration_create(8, NULL), "out is NULL");
    assert_ptr_equal(none, UNTOUCHED);
    assert_ok(lac_calibration_create(the->dense.cols, &made));
    refuses(lac_calibration_add(NULL, &the->dense, 0), "calibration is NULL");
    refuses(lac_calibration_add(made, NULL, 0), "x is NULL");
    refuses(lac_calibration_add(made, &narrow, 0), "x has 7 columns");
    refuses(lac_calibration_add(made, &the->dense, -2), "threads is -2");
    refuses(lac_calibration_add_moments(NULL, &the->dense, 1), "calibration is NULL");
    refuses(lac_calibration_add_moments(made, NULL, 1), "moments is NULL");
    refuses(lac_calibration_add_moments(made, &narrow, 1), "moments is");
    refuses(lac_calibration_get_info(NULL, &info), "calibration is NULL");
    refuses(lac_calibration_get_info(made, NULL), "info is NULL");
    refuses(lac_calibration_get_info(made, &sizeless), "info->size is 0");
    refuses(lac_calibration_error(NULL, &the->dense, &the->dense, &error, &total), "calibration is NULL");
    refuses(lac_calibration_error(made, NULL, &the->dense, &error, &total), "original is NULL");
    refuses(lac_calibration_error(made, &the->dense, NULL, &error, &total), "pruned is NULL");
    refuses(lac_calibration_error(made, &the->dense, &narrow, &error, &total), "x 7");
    refuses(lac_calibration_error(made, &the->dense, &the->dense, NULL, &total), "error is NULL");
    refuses(lac_calibration_error(made, &the->dense, &the->dense, &error, NULL), "total is NULL");
    assert_true(error == -1 && total == -1);

    lac_prune_options options = {.size = sizeof options, .method = (lac_method)9};
    refuses(lac_prune_and_correct(NULL, &the->pattern, NULL, &the->dense, &out), "dense is NULL");
    refuses(lac_prune_and_correct(&the->dense, NULL, NULL, &the->dense, &out), "pattern is NULL");
    refuses(lac_prune_and_correct(&the->dense, &the->pattern, NULL, NULL, &out), "corrected is NULL");
    refuses(lac_prune_and_correct(&the->dense, &the->pattern, NULL, &narrow, &out), "x 7");
    refuses(lac_prune_and_correct(&the->dense, &the->pattern, NULL, &the->dense, NULL), "out is NULL");
    refuses(lac_prune_and_correct(&the->dense, &the->pattern, &options, &the->dense, &out), "method is 9");
    options = (lac_prune_options){.size = sizeof options, .damping = -1};
    refuses(lac_prune_and_correct(&the->dense, &the->pattern, &options, &the->dense, &out), "damping is -1");
    options = (lac_prune_options){.size = sizeof options, .method = LAC_METHOD_WANDA};
    refuses(lac_prune(&the->dense, &the->pattern, &options, &out), "calibration is NULL");
    options.calibration = made;
    refuses(lac_prune(&the->dense, &the->pattern, &options, &out), "no samples");
    assert_ptr_equal(out, UNTOUCHED);
    lac_calibration_free(made);
    harmless(lac_calibration_free, (lac_calibration_free(NULL), true));
}

static void masks(void **state)
{
    test_world *the = *state;
    lac_mask *out = UNTOUCHED;
    lac_mask_info info = {.size = sizeof info}, sizeless = {0};
    lac_pattern bad = the->pattern;
    bad.n = 5;
    lac_prune_options options = {.size = sizeof options, .score = (lac_score)9};
    refuses(lac_prune(NULL, &the->pattern, NULL, &out), "dense is NULL");
    refuses(lac_prune(&the->dense, NULL, NULL, &out), "pattern is NULL");
    refuses(lac_prune(&the->dense, &bad, NULL, &out), "N is 5");
    refuses(lac_prune(&the->dense, &the->pattern, NULL, NULL), "out is NULL");
    refuses(lac_prune(&the->dense, &the->pattern, &options, &out), "score is 9");
    options = (lac_prune_options){.size = sizeof options, .threads = -3};
    refuses(lac_prune(&the->dense, &the->pattern, &options, &out), "threads is -3");
    refuses(lac_mask_from_matrix(NULL, &the->pattern, &out), "dense is NULL");
    refuses(lac_mask_from_matrix(&the->dense, NULL, &out), "pattern is NULL");
    refuses(lac_mask_from_matrix(&the->dense, &the->pattern, NULL), "out is NULL");
    refuses(lac_mask_from_nonzeros(NULL, &out), "dense is NULL");
    refuses(lac_mask_from_nonzeros(&the->dense, NULL), "out is NULL");
    refuses(lac_mask_with_pattern(NULL, &the->pattern, &out), "mask is NULL");
    refuses(lac_mask_with_pattern(the->mask, NULL, &out), "pattern is NULL");
    refuses(lac_mask_with_pattern(the->mask, &the->pattern, NULL), "out is NULL");
    const uint32_t twice[8] = {0, 1, 2, 3, 3, 5, 6, 7}, beyond[8] = {0, 1, 2, 3, 4, 5, 6, 8};
    refuses(lac_mask_reorder(NULL, NULL, NULL, &out), "mask is NULL");
    refuses(lac_mask_reorder(the->mask, NULL, NULL, NULL), "out is NULL");
    refuses(lac_mask_reorder(the->mask, twice, NULL, &out), "rows[4] is 3");
    refuses(lac_mask_reorder(the->mask, NULL, beyond, &out), "cols[7] is 8");
    refuses(lac_mask_get_info(NULL, &info), "mask is NULL");
    refuses(lac_mask_get_info(the->mask, NULL), "info is NULL");
    refuses(lac_mask_get_info(the->mask, &sizeless), "info->size is 0");
    harmless(lac_mask_get, lac_mask_get(NULL, 0, 0) == 0);
    harmless(lac_mask_get, lac_mask_get(the->mask, -1, 0) == 0 && lac_mask_get(the->mask, 0, -1) == 0);
    harmless(lac_mask_get, lac_mask_get(the->mask, 8, 0) == 0 && lac_mask_get(the->mask, 0, 8) == 0);
    harmless(lac_mask_get, lac_mask_get(the->mask, INT64_MAX, INT64_MIN) == 0);
    lac_matrix narrow = the->dense;
    narrow.cols = 7;
    double kept = -1, total = -1;
    refuses(lac_mask_apply(NULL, &the->dense), "mask is NULL");
    refuses(lac_mask_apply(the->mask, NULL), "dense is NULL");
    refuses(lac_mask_apply(the->mask, &narrow), "7");
    refuses(lac_mask_energy(NULL, &the->dense, &kept, &total), "mask is NULL");
    refuses(lac_mask_energy(the->mask, NULL, &kept, &total), "dense is NULL");
    refuses(lac_mask_energy(the->mask, &narrow, &kept, &total), "7");
    refuses(lac_mask_energy(the->mask, &the->dense, NULL, &total), "kept is NULL");
    refuses(lac_mask_energy(the->mask, &the->dense, &kept, NULL), "total is NULL");
    harmless(lac_mask_free, (lac_mask_free(NULL), true));
    refuses(lac_mask_save_smtx(NULL, the->out), "mask is NULL");
    refuses(lac_mask_save_smtx(the->mask, NULL), "path is NULL");
    assert_true(out == UNTOUCHED && kept == -1 && total == -1);
}

static void weights(void **state)
{
    test_world *the = *state;
    lac_weight *out = UNTOUCHED;
    lac_weight_info info = {.size = sizeof info}, sizeless = {0};
    lac_span span = {UNTOUCHED, 7}, parts[LAC_PART_COUNT] = {{0}};
    refuses(lac_weight_compress(NULL, the->mask, NULL, &out), "dense is NULL");
    refuses(lac_weight_compress(&the->dense, NULL, NULL, &out), "mask is NULL");
    refuses(lac_weight_compress(&the->dense, the->mask, NULL, NULL), "out is NULL");
    lac_compress_options options = {.size = sizeof options, .dtype = LAC_DTYPE_F64};
    refuses(lac_weight_compress(&the->dense, the->mask, &options, &out), "dtype is f64");
    options = (lac_compress_options){.size = sizeof options, .encoding = (lac_index_encoding)8};
    refuses(lac_weight_compress(&the->dense, the->mask, &options, &out), "encoding is 8");
    options = (lac_compress_options){.size = sizeof options, .encoding = LAC_INDEX_ENCODING_IMPLICIT};
    refuses(lac_weight_compress(&the->dense, the->mask, &options, &out), "encoding");
    options = (lac_compress_options){.size = sizeof options, .encoding = LAC_INDEX_ENCODING_COLUMNS};
    refuses(lac_weight_compress(&the->dense, the->mask, &options, &out), "encoding");
    options = (lac_compress_options){.size = sizeof options, .overflow = (lac_overflow)2};
    refuses(lac_weight_compress(&the->dense, the->mask, &options, &out), "overflow is 2");
    options = (lac_compress_options){.size = sizeof options, .threads = -1};
    refuses(lac_weight_compress(&the->dense, the->mask, &options, &out), "threads is -1");
    lac_matrix narrow = the->dense;
    narrow.cols = 7;
    refuses(lac_weight_compress(&narrow, the->mask, NULL, &out), "7");
    lac_mask *bare = NULL;
    assert_ok(lac_mask_from_nonzeros(&the->dense, &bare));
    refuses(lac_weight_compress(&the->dense, bare, NULL, &out), "pattern");
    lac_mask_free(bare);
    refuses(lac_weight_decompress(NULL, &the->dense), "weight is NULL");
    refuses(lac_weight_decompress(the->weight, NULL), "dense is NULL");
    refuses(lac_weight_decompress(the->weight, &narrow), "7");
    refuses(lac_weight_get_info(NULL, &info), "weight is NULL");
    refuses(lac_weight_get_info(the->weight, NULL), "info is NULL");
    refuses(lac_weight_get_info(the->weight, &sizeless), "info->size is 0");
    refuses(lac_weight_get_part(NULL, LAC_PART_VALUES, &span), "weight is NULL");
    refuses(lac_weight_get_part(the->weight, (lac_part)8, &span), "part is 8");
    refuses(lac_weight_get_part(the->weight, (lac_part)-1, &span), "part is -1");
    refuses(lac_weight_get_part(the->weight, LAC_PART_VALUES, NULL), "out is NULL");
    info = (lac_weight_info){.size = sizeof info, .pattern = the->pattern, .n = 8, .k = 8, .dtype = LAC_DTYPE_F32};
    refuses(lac_weight_from_parts(NULL, parts, &out), "info is NULL");
    refuses(lac_weight_from_parts(&info, NULL, &out), "parts is NULL");
    refuses(lac_weight_from_parts(&info, parts, NULL), "out is NULL");
    refuses(lac_weight_measure(NULL, NULL), "info is NULL");
    refuses(lac_weight_measure(&sizeless, NULL), "info->size is 0");
    info.n = -1;
    refuses(lac_weight_measure(&info, NULL), "n is -1");
    refuses(lac_weight_shard(NULL, LAC_AXIS_N, 0, 1, &out), "weight is NULL");
    refuses(lac_weight_shard(the->weight, (lac_axis)2, 0, 1, &out), "axis is 2");
    refuses(lac_weight_shard(the->weight, LAC_AXIS_N, -1, 1, &out), "begin is -1");
    refuses(lac_weight_shard(the->weight, LAC_AXIS_N, 2, 1, &out), "end is 1");
    refuses(lac_weight_shard(the->weight, LAC_AXIS_N, 0, 9, &out), "end is 9");
    refuses(lac_weight_shard(the->weight, LAC_AXIS_K, 3, 8, &out), "begin is 3");
    refuses(lac_weight_shard(the->weight, LAC_AXIS_K, 4, 6, &out), "end is 6");
    refuses(lac_weight_shard(the->weight, LAC_AXIS_N, 0, 1, NULL), "out is NULL");
    harmless(lac_weight_retain, lac_weight_retain(NULL) == NULL);
    harmless(lac_weight_free, (lac_weight_free(NULL), true));
    refuses(lac_weight_load(NULL, "w", &out), "path is NULL");
    refuses(lac_weight_load(the->container, "w", NULL), "out is NULL");
    refuses(lac_weight_save(NULL, the->out, "w"), "weight is NULL");
    refuses(lac_weight_save(the->weight, NULL, "w"), "path is NULL");
    refuses(lac_weight_save(the->weight, the->out, NULL), "name is NULL");
    assert_true(out == UNTOUCHED && span.data == UNTOUCHED && span.bytes == 7);
}

static void files(void **state)
{
    test_world *the = *state;
    lac_file *file = UNTOUCHED;
    lac_file_info file_info = {.size = sizeof file_info};
    lac_tensor_info tensor = {.size = sizeof tensor}, sizeless = {0};
    lac_weight_info info = {.size = sizeof info};
    lac_weight *weight = UNTOUCHED;
    lac_mask *mask = UNTOUCHED;
    const char *name = UNTOUCHED, *value = UNTOUCHED;
    refuses(lac_file_open(NULL, &file), "path is NULL");
    refuses(lac_file_open(the->container, NULL), "out is NULL");
    refuses(lac_file_get_info(NULL, &file_info), "file is NULL");
    refuses(lac_file_get_info(the->file, NULL), "info is NULL");
    refuses(lac_file_get_tensor(NULL, 0, &tensor), "file is NULL");
    refuses(lac_file_get_tensor(the->file, 0, NULL), "info is NULL");
    refuses(lac_file_get_tensor(the->file, 0, &sizeless), "info->size is 0");
    refuses(lac_file_find_tensor(NULL, "bias", &tensor), "file is NULL");
    refuses(lac_file_find_tensor(the->file, NULL, &tensor), "name is NULL");
    refuses(lac_file_find_tensor(the->file, "bias", NULL), "info is NULL");
    refuses(lac_file_read_matrix(NULL, "bias", &the->dense), "file is NULL");
    refuses(lac_file_read_matrix(the->file, NULL, &the->dense), "name is NULL");
    refuses(lac_file_read_matrix(the->file, "bias", NULL), "out is NULL");
    refuses(lac_file_get_weight(NULL, 0, &name, &info), "file is NULL");
    refuses(lac_file_load_weight(NULL, "w", &weight), "file is NULL");
    refuses(lac_file_load_weight(the->file, "w", NULL), "out is NULL");
    refuses(lac_file_load_mask(NULL, &mask), "file is NULL");
    refuses(lac_file_load_mask(the->mask_file, NULL), "out is NULL");
    refuses(lac_file_get_metadata(NULL, 0, &name, &value), "file is NULL");
    harmless(lac_file_close, (lac_file_close(NULL), true));
    refuses(lac_matrix_save_npy(NULL, the->out), "matrix is NULL");
    refuses(lac_matrix_save_npy(&the->dense, NULL), "path is NULL");
    assert_true(file == UNTOUCHED && weight == UNTOUCHED && mask == UNTOUCHED && name == UNTOUCHED && value == UNTOUCHED);

    assert_fails(lac_file_get_tensor(the->file, 1, &tensor), LAC_STATUS_NOT_FOUND, "1");
    assert_fails(lac_file_get_tensor(the->file, -1, &tensor), LAC_STATUS_NOT_FOUND, "-1");
    assert_fails(lac_file_find_tensor(the->file, "nobody", &tensor), LAC_STATUS_NOT_FOUND, "nobody");
    assert_fails(lac_file_get_weight(the->file, 5, &name, &info), LAC_STATUS_NOT_FOUND, "5");
    assert_fails(lac_file_load_weight(the->file, "nobody", &weight), LAC_STATUS_NOT_FOUND, "nobody");
    assert_fails(lac_file_get_metadata(the->file, 99, &name, &value), LAC_STATUS_NOT_FOUND, "99");
    assert_fails(lac_weight_load(the->container, "nobody", &weight), LAC_STATUS_NOT_FOUND, "nobody");
    assert_fails(lac_file_open("/nonexistent/file", &file), LAC_STATUS_IO, "/nonexistent/file");
    assert_true(file == UNTOUCHED && weight == UNTOUCHED);
}

static void writers(void **state)
{
    test_world *the = *state;
    lac_writer *out = UNTOUCHED, *writer = NULL;
    lac_tensor_info tensor = {.size = sizeof tensor, .name = "t", .dtype = LAC_DTYPE_F32, .rank = 1, .shape = {4}};
    lac_tensor_info bad = tensor;
    int64_t files_before = test_folder_files();
    refuses(lac_writer_open(NULL, &out), "path is NULL");
    refuses(lac_writer_open(the->out, NULL), "out is NULL");
    assert_ok(lac_writer_open(the->out, &writer));
    refuses(lac_writer_set_metadata(NULL, "k", "v"), "writer is NULL");
    refuses(lac_writer_set_metadata(writer, NULL, "v"), "key is NULL");
    refuses(lac_writer_set_metadata(writer, "k", NULL), "value is NULL");
    refuses(lac_writer_declare_tensor(NULL, &tensor), "writer is NULL");
    refuses(lac_writer_declare_tensor(writer, NULL), "info is NULL");
    bad.name = NULL;
    refuses(lac_writer_declare_tensor(writer, &bad), "name is NULL");
    bad = tensor;
    bad.rank = 9;
    refuses(lac_writer_declare_tensor(writer, &bad), "rank is 9");
    bad = tensor;
    bad.shape[0] = -4;
    refuses(lac_writer_declare_tensor(writer, &bad), "-4");
    bad = tensor;
    bad.type = "F31";
    refuses(lac_writer_declare_tensor(writer, &bad), "F31");
    refuses(lac_writer_declare_weight(NULL, "w", NULL, the->weight), "writer is NULL");
    refuses(lac_writer_declare_weight(writer, NULL, NULL, the->weight), "name is NULL");
    refuses(lac_writer_declare_weight(writer, "w", NULL, NULL), "info");
    assert_ok(lac_writer_declare_tensor(writer, &tensor));
    refuses(lac_writer_declare_tensor(writer, &tensor), "'t'");
    refuses(lac_writer_write_tensor(NULL, "t", the->values, 16), "writer is NULL");
    refuses(lac_writer_write_tensor(writer, NULL, the->values, 16), "name is NULL");
    refuses(lac_writer_write_tensor(writer, "t", NULL, 16), "data is NULL");
    refuses(lac_writer_write_tensor(writer, "t", the->values, 12), "12");
    refuses(lac_writer_write_weight(NULL, "w", the->weight), "writer is NULL");
    refuses(lac_writer_write_weight(writer, NULL, the->weight), "name is NULL");
    refuses(lac_writer_write_weight(writer, "w", NULL), "weight is NULL");
    refuses(lac_writer_commit(NULL), "writer is NULL");
    harmless(lac_writer_free, (lac_writer_free(NULL), true));
    assert_ok(lac_writer_write_tensor(writer, "t", the->values, 16));
    assert_ok(lac_writer_commit(writer));
    lac_writer_free(writer);
    assert_true(out == UNTOUCHED);
    assert_int_equal(test_folder_files(), files_before + 1);
    assert_int_equal(remove(the->out), 0);
}

static void checkpoints(void **state)
{
    test_world *the = *state;
    lac_checkpoint_options options = {.size = sizeof options};
    int64_t files_before = test_folder_files();
    refuses(lac_checkpoint_prune(the->checkpoint, the->out, NULL), "options is NULL");
    refuses(lac_checkpoint_prune(the->checkpoint, the->out, &options), "pattern is NULL");
    options.pattern = &the->pattern;
    refuses(lac_checkpoint_prune(NULL, the->out, &options), "in is NULL");
    refuses(lac_checkpoint_prune(the->checkpoint, NULL, &options), "out is NULL");
    options.include_count = 1;
    refuses(lac_checkpoint_prune(the->checkpoint, the->out, &options), "include");
    const char *const nothing[] = {NULL};
    options.include = nothing;
    refuses(lac_checkpoint_prune(the->checkpoint, the->out, &options), "include");
    options.include_count = 0;
    options.exclude_count = 2;
    refuses(lac_checkpoint_prune(the->checkpoint, the->out, &options), "exclude");
    options.exclude_count = 0;
    lac_allocation *allocation = UNTOUCHED;
    lac_allocation_info info = {.size = sizeof info};
    lac_choice_info choice = {.size = sizeof choice};
    lac_allocate_options wanted = {.size = sizeof wanted, .patterns = &the->pattern, .pattern_count = 1};
    refuses(lac_checkpoint_allocate(the->checkpoint, &options, &wanted, &allocation), "budget is 0");
    wanted.budget = LAC_BUDGET_DENSITY, wanted.amount = 1;
    refuses(lac_checkpoint_allocate(the->checkpoint, NULL, &wanted, &allocation), "options is NULL");
    refuses(lac_allocation_get_info(NULL, &info), "allocation is NULL");
    refuses(lac_allocation_get_layer(NULL, 0, &choice), "allocation is NULL");
    refuses(lac_allocation_get_option(NULL, 0, 0, &choice), "allocation is NULL");
    harmless(lac_allocation_free, (lac_allocation_free(NULL), true));
    assert_true(allocation == UNTOUCHED);
    assert_int_equal(test_folder_files(), files_before);
}

static void devices_and_plans(void **state)
{
    test_world *the = *state;
    lac_device *device = UNTOUCHED;
    lac_device_info device_info = {.size = sizeof device_info}, sizeless = {0};
    refuses(lac_device_probe(0, NULL), "info is NULL");
    refuses(lac_device_probe(0, &sizeless), "info->size is 0");
    refuses(lac_device_open(NULL, &device), "name is NULL");
    refuses(lac_device_open("cpu", NULL), "out is NULL");
    refuses(lac_device_get_info(NULL, &device_info), "device is NULL");
    refuses(lac_device_get_info(the->device, NULL), "info is NULL");
    harmless(lac_device_close, (lac_device_close(NULL), true));
    assert_fails(lac_device_probe(1000, &device_info), LAC_STATUS_NOT_FOUND, "1000");
    assert_fails(lac_device_open("toaster", &device), LAC_STATUS_NOT_FOUND, "toaster");
    assert_fails(lac_device_open("", &device), LAC_STATUS_NOT_FOUND, "''");
    void *block = UNTOUCHED;
    char byte = 0;
    refuses(lac_device_allocate(NULL, 1, &block), "device is NULL");
    refuses(lac_device_allocate(the->device, 1, NULL), "out is NULL");
    harmless(lac_device_release, (lac_device_release(NULL, NULL), lac_device_release(the->device, NULL), true));
    refuses(lac_device_upload(NULL, &byte, &byte, 1), "device is NULL");
    refuses(lac_device_upload(the->device, NULL, &byte, 1), "to is NULL");
    refuses(lac_device_upload(the->device, &byte, NULL, 1), "from is NULL");
    refuses(lac_device_download(NULL, &byte, &byte, 1), "device is NULL");
    refuses(lac_device_download(the->device, NULL, &byte, 1), "to is NULL");
    refuses(lac_device_download(the->device, &byte, NULL, 1), "from is NULL");
    refuses(lac_device_synchronize(NULL), "device is NULL");
    lac_component_info component = {.size = sizeof component}, sizeless_component = {0};
    refuses(lac_component_probe(0, NULL), "info is NULL");
    refuses(lac_component_probe(0, &sizeless_component), "info->size is 0");
    assert_fails(lac_component_probe(1000, &component), LAC_STATUS_NOT_FOUND, "1000");
    assert_ptr_equal(block, UNTOUCHED);

    lac_plan *out = UNTOUCHED;
    lac_plan_info info = {.size = sizeof info};
    lac_kernel_info kernel = {.size = sizeof kernel};
    refuses(lac_plan_create(NULL, the->weight, 1, NULL, &out), "device is NULL");
    refuses(lac_plan_create(the->device, NULL, 1, NULL, &out), "weight is NULL");
    refuses(lac_plan_create(the->device, the->weight, -1, NULL, &out), "m is -1");
    refuses(lac_plan_create(the->device, the->weight, INT64_C(1) << 31, NULL, &out), "m is 2147483648");
    refuses(lac_plan_create(the->device, the->weight, 1, NULL, NULL), "out is NULL");
#define REFUSES_OPTION(field, number, text)                                                                                    \
    do {                                                                                                                       \
        lac_plan_options options = {.size = sizeof options};                                                                   \
        options.field = number;                                                                                                \
        refuses(lac_plan_create(the->device, the->weight, 1, &options, &out), text);                                           \
    } while (0)
    REFUSES_OPTION(x_layout, (lac_layout)2, "x_layout is 2");
    REFUSES_OPTION(y_layout, (lac_layout)3, "y_layout is 3");
    REFUSES_OPTION(x_dtype, LAC_DTYPE_F64, "x_dtype is 4");
    REFUSES_OPTION(y_dtype, LAC_DTYPE_I8, "y_dtype is 5");
    REFUSES_OPTION(bias_dtype, LAC_DTYPE_F64, "bias_dtype is 4");
    REFUSES_OPTION(c_dtype, LAC_DTYPE_F64, "c_dtype is 4");
    REFUSES_OPTION(precision, (lac_precision)4, "precision is 4");
    REFUSES_OPTION(activation, (lac_activation)5, "activation is 5");
    REFUSES_OPTION(has_bias, 2, "has_bias is 2");
    REFUSES_OPTION(has_residual, -1, "has_residual is -1");
    REFUSES_OPTION(threads, -1, "threads is -1");
    REFUSES_OPTION(measure, 2, "measure is 2");
    lac_plan_options named = {.size = sizeof named, .kernel = "no_such"};
    assert_fails(lac_plan_create(the->device, the->weight, 1, &named, &out), LAC_STATUS_NOT_FOUND, "no_such");
    refuses(lac_plan_get_info(NULL, &info), "plan is NULL");
    refuses(lac_plan_get_info(the->plan, NULL), "info is NULL");
    lac_level_info level = {.size = sizeof level}, sizeless_level = {0};
    refuses(lac_plan_explain(NULL, 0, &level), "plan is NULL");
    refuses(lac_plan_explain(the->plan, 0, NULL), "info is NULL");
    refuses(lac_plan_explain(the->plan, 0, &sizeless_level), "info->size is 0");
    assert_fails(lac_plan_explain(the->plan, 100, &level), LAC_STATUS_NOT_FOUND, "100");
    assert_true(!level.name && !sizeless_level.name);
    harmless(lac_plan_free, (lac_plan_free(NULL), true));
    refuses(lac_kernel_probe(0, NULL), "info is NULL");
    assert_fails(lac_kernel_probe(100000, &kernel), LAC_STATUS_NOT_FOUND, "100000");
    assert_true(device == UNTOUCHED && out == UNTOUCHED);
}

static void compiling(void **state)
{
    test_world *the = *state;
    static const char *const archs[] = {"sm_90a", "sm_12", NULL};
    static const int64_t tokens[] = {1, 0};
    const lac_kernels_compile_options good = {.size = sizeof good,
                                              .archs = archs,
                                              .arch_count = 1,
                                              .patterns = &the->pattern,
                                              .pattern_count = 1,
                                              .folder = the->out};
    refuses(lac_kernels_compile(NULL), "options is NULL");
#define REFUSES_COMPILE(text, ...)                                                                                             \
    do {                                                                                                                       \
        lac_kernels_compile_options options = good;                                                                            \
        __VA_ARGS__;                                                                                                           \
        refuses(lac_kernels_compile(&options), text);                                                                          \
    } while (0)
    REFUSES_COMPILE("options->size is 0", options.size = 0);
    REFUSES_COMPILE("archs is empty", options.archs = NULL);
    REFUSES_COMPILE("archs is empty", options.arch_count = 0);
    REFUSES_COMPILE("arch is 'sm_12'", options.arch_count = 2);
    REFUSES_COMPILE("archs[2] is NULL", options.arch_count = 3);
    REFUSES_COMPILE("patterns is empty", options.patterns = NULL);
    REFUSES_COMPILE("patterns is empty", options.pattern_count = 0);
    REFUSES_COMPILE("n is -1", options.n = -1);
    REFUSES_COMPILE("k 2147483648", options.k = INT64_C(1) << 31);
    REFUSES_COMPILE("m is NULL", options.m_count = 1);
    REFUSES_COMPILE("m[1] is 0", options.m = tokens, options.m_count = 2);
    REFUSES_COMPILE("dtype", options.dtype = LAC_DTYPE_F64);
    lac_plan_options plan = {0};
    REFUSES_COMPILE("options->plan->size is 0", options.plan = &plan);
    plan.size = sizeof plan, plan.x_layout = (lac_layout)2;
    REFUSES_COMPILE("x_layout is 2", options.plan = &plan);
    lac_pattern none = {0};
    REFUSES_COMPILE("family is 0", options.patterns = &none);
    lac_kernels_compile_options named = good;
    plan = (lac_plan_options){.size = sizeof plan, .kernel = "no_such"};
    named.plan = &plan;
    assert_fails(lac_kernels_compile(&named), LAC_STATUS_NOT_FOUND, "no_such");
}

static void execution(void **state)
{
    test_world *the = *state;
    float y[16], alpha = 2;
    double reference[16], bound[16];
    for (int i = 0; i < 16; i++) reference[i] = bound[i] = y[i] = -77;
    enum { PLENTY = 64 << 20 }; /* for whichever kernel the planner picks, on however many cores */
    void *workspace = aligned_alloc(64, PLENTY);
    assert_non_null(workspace);
    lac_execute_args good = {.size = sizeof good, .x = the->x, .y = y, .workspace = workspace, .workspace_bytes = PLENTY};
    lac_plan_info info = {.size = sizeof info};
    assert_ok(lac_plan_get_info(the->plan, &info));
    assert_true(info.workspace_bytes <= good.workspace_bytes);
    refuses(lac_plan_execute(NULL, &good), "plan is NULL");
    refuses(lac_plan_execute(the->plan, NULL), "args is NULL");
    refuses(lac_plan_reference(NULL, &good, reference, bound, 8), "plan is NULL");
    refuses(lac_plan_reference(the->plan, NULL, reference, bound, 8), "args is NULL");
    refuses(lac_plan_reference(the->plan, &good, NULL, bound, 8), "y is NULL");
    refuses(lac_plan_reference(the->plan, &good, reference, bound, 7), "ld is 7");
    refuses(lac_plan_reference(the->plan, &good, reference, bound, -8), "ld is -8");
#define REFUSES_ARGUMENT(field, value, text)                                                                                   \
    do {                                                                                                                       \
        lac_execute_args args = good;                                                                                          \
        args.field = value;                                                                                                    \
        refuses(lac_plan_execute(the->plan, &args), text);                                                                     \
    } while (0)
    REFUSES_ARGUMENT(x, NULL, "args->x is NULL");
    REFUSES_ARGUMENT(y, NULL, "args->y is NULL");
    REFUSES_ARGUMENT(x, (const char *)the->x + 1, "not aligned");
    REFUSES_ARGUMENT(y, (char *)y + 2, "not aligned");
    REFUSES_ARGUMENT(ldx, 7, "args->ldx is 7");
    REFUSES_ARGUMENT(ldy, -8, "args->ldy is -8");
    REFUSES_ARGUMENT(ldx, INT64_MAX, "args->ldx is 9223372036854775807");
    REFUSES_ARGUMENT(bias, y, "no bias");
    REFUSES_ARGUMENT(c, y, "no residual");
    REFUSES_ARGUMENT(beta, &alpha, "args->beta is 2");
    REFUSES_ARGUMENT(stream, y, "args->stream");
    REFUSES_ARGUMENT(size, 0, "args->size is 0");
    for (int i = 0; i < 16; i++) assert_true(reference[i] == -77 && bound[i] == -77 && y[i] == -77);

    lac_plan_options options = {.size = sizeof options, .has_bias = 1, .has_residual = 1};
    lac_plan *plan = NULL;
    assert_ok(lac_plan_create(the->device, the->weight, 2, &options, &plan));
    lac_execute_args args = good;
    args.c = y;
    refuses(lac_plan_execute(plan, &args), "args->bias is NULL");
    args.bias = the->x;
    args.c = NULL;
    refuses(lac_plan_execute(plan, &args), "args->c is NULL");
    float zero = 0;
    args.beta = &zero; /* then C is not read and need not be there */
    assert_ok(lac_plan_execute(plan, &args));
    lac_plan_free(plan);
    free(workspace);
}

static void every_function_was_tried(void **state)
{
    (void)state;
    assert_true(test_all_functions_marked());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(core),
        cmocka_unit_test(calibrations),
        cmocka_unit_test(masks),
        cmocka_unit_test(weights),
        cmocka_unit_test(files),
        cmocka_unit_test(writers),
        cmocka_unit_test(checkpoints),
        cmocka_unit_test(devices_and_plans),
        cmocka_unit_test(compiling),
        cmocka_unit_test(execution),
        cmocka_unit_test(every_function_was_tried),
    };
    return cmocka_run_group_tests(tests, test_world_open, test_world_close);
}
