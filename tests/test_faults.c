/* test_faults.c - every allocation of every public call failed in turn, for every family: the call says OUT_OF_MEMORY,
 * touches no output, leaks nothing, leaves no file, and the same call with the same objects works right afterwards. The
 * JSON reader's memory goes through the same counter. The table is complete: it is compared with the header. */
#include "support/scene.h"
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct scenario {
    const char *function;
    lac_status (*attempt)(test_scene *s);
    void (*prepare)(test_scene *s); /* before each attempt, with memory to spare; NULL: nothing */
    void (*check)(test_scene *s);   /* after a success; NULL: nothing */
    bool allocates;                 /* false: the test shows that it allocates nothing */
} scenario;

static char kernel_cache[512]; /* outside the folder whose files are counted */

/* ---- attempts. Those that return no status of their own are OK when they did what they should. */

static lac_status ok_when(bool condition) { return condition ? LAC_STATUS_OK : LAC_STATUS_INTERNAL; }

static lac_status try_plain_calls(test_scene *s)
{
    lac_dtype dtype;
    lac_pattern pattern;
    char text[LAC_PATTERN_TEXT_SIZE];
    lac_set_log(NULL, NULL, LAC_LOG_LEVEL_WARNING);
    return ok_when(lac_status_name(LAC_STATUS_OK) && lac_last_error() && lac_version() && lac_part_name(LAC_PART_INDEX) &&
                   !lac_dtype_parse("bf16", &dtype) && lac_dtype_name(dtype) && lac_dtype_size(dtype) == 2 &&
                   !lac_pattern_parse(s->text, &pattern) && !lac_pattern_format(&pattern, text, sizeof text) &&
                   lac_pattern_density(&pattern) > 0);
}

static lac_status try_pattern_check(test_scene *s) { return lac_pattern_check(&s->pruned.view, &s->pattern, NULL); }
static lac_status try_prune(test_scene *s) { return lac_prune(&s->dense.view, &s->pattern, NULL, &s->new_mask); }

static lac_status try_prune_transposable(test_scene *s)
{
    float w[8 * 12];
    lac_matrix dense = {.data = w, .dtype = LAC_DTYPE_F32, .rows = 8, .cols = 12};
    lac_pattern pattern = {.family = LAC_FAMILY_ELEMENT, .unit_n = 1, .unit_k = 1, .n = 2, .m = 4};
    lac_prune_options options = {.size = sizeof options, .transposable = 1};
    for (int i = 0; i < 8 * 12; i++) w[i] = (float)(i * 37 % 11);
    return lac_prune(&dense, &pattern, &options, &s->new_mask);
}

static lac_status try_calibration_create(test_scene *s)
{
    lac_calibration *made = NULL;
    (void)s;
    lac_status status = lac_calibration_create(TEST_COLS, &made);
    lac_calibration_free(made);
    return status;
}

/* The rows of the weight serve as samples. */
static lac_status calibrated(test_scene *s, lac_method method)
{
    lac_calibration *calibration = NULL;
    lac_calibration_info info = {.size = sizeof info};
    double error = 0, total = 0;
    lac_status status = lac_calibration_create(TEST_COLS, &calibration);
    if (!status) status = lac_calibration_add(calibration, &s->dense.view, 1);
    static float none[TEST_COLS * TEST_COLS];
    lac_matrix moments = {.data = none, .dtype = LAC_DTYPE_F32, .rows = TEST_COLS, .cols = TEST_COLS};
    if (!status) status = lac_calibration_add_moments(calibration, &moments, 1);
    lac_prune_options options = {.size = sizeof options, .method = method, .calibration = calibration, .threads = 2};
    if (s->pattern.family == LAC_FAMILY_VECTOR || s->pattern.family == LAC_FAMILY_VNM) options.permute = LAC_PERMUTE_ROWS;
    if (s->pattern.m && s->pattern.unit_k == 1) options.permute |= LAC_PERMUTE_COLUMNS, options.permute_rounds = 2;
    if (!status && method == LAC_METHOD_WANDA) status = lac_prune(&s->dense.view, &s->pattern, &options, &s->new_mask);
    if (!status) status = lac_calibration_get_info(calibration, &info);
    if (!status) status = lac_calibration_error(calibration, &s->dense.view, &s->pruned.view, &error, &total);
    if (!status && method == LAC_METHOD_OBS)
        status = lac_prune_and_correct(&s->dense.view, &s->pattern, &options, &s->out.view, &s->new_mask);
    lac_calibration_free(calibration);
    if (status) {
        lac_mask_free(s->new_mask);
        s->new_mask = NULL;
        return status;
    }
    return ok_when(info.samples == TEST_ROWS + 1 && total > 0 && error <= total * 4);
}

static lac_status try_prune_fisher(test_scene *s)
{
    lac_gradients gradients = {.size = sizeof gradients, .dtype = LAC_DTYPE_F32, .samples = 1};
    lac_prune_options options = {.size = sizeof options, .method = LAC_METHOD_FISHER, .threads = 2, .gradients = &gradients};
    float samples[TEST_ROWS * TEST_COLS];
    for (int i = 0; i < TEST_ROWS * TEST_COLS; i++) samples[i] = (float)(i % 7) - 3;
    gradients.data = samples;
    return lac_prune_and_correct(&s->dense.view, &s->pattern, &options, &s->out.view, &s->new_mask);
}

static lac_status try_prune_schedule(test_scene *s)
{
    lac_calibration *calibration = NULL;
    lac_prune_options options = {.size = sizeof options, .threads = 2, .schedule = &s->pattern, .schedule_count = 1};
    lac_status status = lac_calibration_create(TEST_COLS, &calibration);
    if (!status) status = lac_calibration_add(calibration, &s->dense.view, 1);
    if (!status) status = lac_prune(&s->dense.view, &s->pattern, &options, &s->new_mask);
    options.method = LAC_METHOD_OBS, options.calibration = calibration;
    lac_mask_free(s->new_mask);
    s->new_mask = NULL;
    if (!status) status = lac_prune_and_correct(&s->dense.view, &s->pattern, &options, &s->out.view, &s->new_mask);
    lac_calibration_free(calibration);
    return status;
}

static lac_status try_prune_wanda(test_scene *s) { return calibrated(s, LAC_METHOD_WANDA); }
static lac_status try_prune_obs(test_scene *s) { return calibrated(s, LAC_METHOD_OBS); }

static lac_status try_mask_from_matrix(test_scene *s)
{
    return lac_mask_from_matrix(&s->pruned.view, &s->pattern, &s->new_mask);
}
static lac_status try_mask_from_nonzeros(test_scene *s) { return lac_mask_from_nonzeros(&s->pruned.view, &s->new_mask); }
static lac_status try_mask_with_pattern(test_scene *s) { return lac_mask_with_pattern(s->mask, &s->pattern, &s->new_mask); }
/* Of a mask with an order in both directions. */
static lac_status try_mask_reorder(test_scene *s)
{
    uint32_t rows[TEST_ROWS], cols[TEST_COLS];
    lac_mask *ordered = NULL;
    lac_prune_options options = {.size = sizeof options, .permute = LAC_PERMUTE_COLUMNS};
    for (uint32_t i = 0; i < TEST_ROWS; i++) rows[i] = TEST_ROWS - 1 - i;
    for (uint32_t i = 0; i < TEST_COLS; i++) cols[i] = TEST_COLS - 1 - i;
    lac_pattern pattern;
    lac_status status = lac_pattern_parse("2:4", &pattern);
    if (!status) status = lac_prune(&s->dense.view, &pattern, &options, &ordered);
    if (!status) status = lac_mask_reorder(ordered, rows, cols, &s->new_mask);
    lac_mask_free(ordered);
    return status;
}

static lac_status try_mask_apply(test_scene *s) { return lac_mask_apply(s->mask, &s->pruned.view); }

static lac_status try_mask_reads(test_scene *s)
{
    lac_mask_info info = {.size = sizeof info};
    double kept = 0, total = 0;
    lac_status status = lac_mask_get_info(s->mask, &info);
    if (!status) status = lac_mask_energy(s->mask, &s->dense.view, &kept, &total);
    if (status) return status;
    lac_mask_get(s->mask, 0, 0);
    return ok_when(info.kept > 0 && kept > 0 && kept <= total);
}

static lac_status try_compress(test_scene *s) { return lac_weight_compress(&s->dense.view, s->mask, NULL, &s->new_weight); }

static lac_status try_compress_f16(test_scene *s)
{
    lac_compress_options options = {.size = sizeof options, .dtype = LAC_DTYPE_F16, .threads = 3};
    return lac_weight_compress(&s->dense.view, s->mask, &options, &s->new_weight);
}

static lac_status try_decompress(test_scene *s) { return lac_weight_decompress(s->weight, &s->out.view); }

static lac_status try_from_parts(test_scene *s)
{
    lac_weight_info info = {.size = sizeof info};
    lac_span parts[LAC_PART_COUNT];
    lac_status status = lac_weight_get_info(s->weight, &info);
    for (int i = 0; !status && i < LAC_PART_COUNT; i++) status = lac_weight_get_part(s->weight, (lac_part)i, &parts[i]);
    return status ? status : lac_weight_from_parts(&info, parts, &s->new_weight);
}

static lac_status try_weight_reads(test_scene *s)
{
    lac_weight_info info = {.size = sizeof info};
    lac_span span;
    lac_status status = lac_weight_get_info(s->weight, &info);
    if (!status) status = lac_weight_get_part(s->weight, LAC_PART_VALUES, &span);
    if (!status) status = lac_weight_measure(&info, NULL);
    lac_weight *again = lac_weight_retain(s->weight);
    lac_weight_free(again);
    return status ? status : ok_when(again == s->weight);
}

static lac_status try_shard_n(test_scene *s)
{
    int64_t end = s->pattern.unit_n < TEST_ROWS ? s->pattern.unit_n : TEST_ROWS;
    return lac_weight_shard(s->weight, LAC_AXIS_N, 0, end, &s->new_weight);
}

static lac_status try_shard_k(test_scene *s)
{
    int64_t begin = (int64_t)s->pattern.unit_k * (s->pattern.m ? s->pattern.m : 1);
    return lac_weight_shard(s->weight, LAC_AXIS_K, begin < TEST_COLS ? begin : 0, TEST_COLS, &s->new_weight);
}

static lac_status try_weight_load(test_scene *s) { return lac_weight_load(s->container, "w", &s->new_weight); }
static lac_status try_weight_load_only(test_scene *s) { return lac_weight_load(s->container, NULL, &s->new_weight); }
static lac_status try_weight_save(test_scene *s) { return lac_weight_save(s->weight, s->target, "w"); }
static lac_status try_open_container(test_scene *s) { return lac_file_open(s->container, &s->new_file); }
static lac_status try_open_npy(test_scene *s) { return lac_file_open(s->npy, &s->new_file); }
static lac_status try_open_smtx(test_scene *s) { return lac_file_open(s->smtx, &s->new_file); }
static lac_status try_open_folder(test_scene *s) { return lac_file_open(s->folder, &s->new_file); }

static lac_status try_file_reads(test_scene *s)
{
    lac_file_info info = {.size = sizeof info};
    lac_tensor_info tensor = {.size = sizeof tensor};
    lac_weight_info weight = {.size = sizeof weight};
    const char *name, *key, *value;
    lac_status status = lac_file_get_info(s->file, &info);
    if (!status) status = lac_file_get_tensor(s->file, 0, &tensor);
    if (!status) status = lac_file_find_tensor(s->file, "bias", &tensor);
    if (!status) status = lac_file_get_metadata(s->file, 0, &key, &value);
    if (!status) status = lac_file_get_weight(s->file, 0, &name, &weight);
    return status ? status : ok_when(!strcmp(name, "w") && tensor.bytes == TEST_COLS * sizeof(float));
}

static lac_status try_read_matrix(test_scene *s)
{
    double row[TEST_COLS];
    lac_matrix out = {.data = row, .dtype = LAC_DTYPE_F64, .rows = 1, .cols = TEST_COLS};
    return lac_file_read_matrix(s->file, "bias", &out);
}

static lac_status try_file_load_weight(test_scene *s) { return lac_file_load_weight(s->file, "w", &s->new_weight); }
static lac_status try_file_load_mask(test_scene *s) { return lac_file_load_mask(s->mask_file, &s->new_mask); }
static lac_status try_save_npy(test_scene *s) { return lac_matrix_save_npy(&s->dense.view, s->target); }
static lac_status try_save_smtx(test_scene *s) { return lac_mask_save_smtx(s->mask, s->target); }

static lac_status try_checkpoint_prune(test_scene *s)
{
    static const char *const include[] = {"*weight*"}, *const exclude[] = {"*skip*"};
    lac_checkpoint_options options = {.size = sizeof options,
                                      .pattern = &s->pattern,
                                      .include = include,
                                      .include_count = 1,
                                      .exclude = exclude,
                                      .exclude_count = 1};
    return lac_checkpoint_prune(s->checkpoint, s->target, &options);
}

static lac_status try_checkpoint_dense(test_scene *s)
{
    lac_checkpoint_options options = {.size = sizeof options, .pattern = &s->pattern, .keep_dense = 1};
    return lac_checkpoint_prune(s->folder, s->target, &options);
}

/* What a run that ran out of memory leaves for the next one is meant to stay; here files are counted. */
static lac_status try_checkpoint_resume(test_scene *s)
{
    lac_checkpoint_options options = {.size = sizeof options, .pattern = &s->pattern, .resume = LAC_RESUME_YES};
    lac_status status = lac_checkpoint_prune(s->checkpoint, s->target, &options);
    char path[sizeof s->target + 16];
    snprintf(path, sizeof path, "%s.partial", s->target);
    if (status != LAC_STATUS_OK) unlink(path);
    snprintf(path, sizeof path, "%s.journal", s->target);
    if (status != LAC_STATUS_OK) unlink(path);
    return status;
}

/* The bias stands for what makes the matrix's inputs: it has as many rows as that has columns. */
static lac_status try_checkpoint_links(test_scene *s)
{
    static const char *const include[] = {"layer.weight"}, *const producers[] = {"layer.weight=layer.bias"};
    lac_pattern pattern;
    lac_status status = lac_pattern_parse("2:4", &pattern);
    lac_checkpoint_options options = {.size = sizeof options,
                                      .pattern = &pattern,
                                      .include = include,
                                      .include_count = 1,
                                      .producers = producers,
                                      .producer_count = 1};
    return status ? status : lac_checkpoint_prune(s->checkpoint, s->target, &options);
}

static lac_status try_allocate(test_scene *s)
{
    lac_allocation *allocation = NULL;
    lac_allocation_info info = {.size = sizeof info};
    lac_choice_info layer = {.size = sizeof layer};
    lac_checkpoint_options checkpoint = {.size = sizeof checkpoint, .pattern = &s->pattern};
    lac_allocate_options options = {.size = sizeof options, .patterns = &s->pattern, .pattern_count = 1, .device = s->device};
    options.budget = LAC_BUDGET_DENSITY, options.amount = 1;
    lac_status status = lac_checkpoint_allocate(s->checkpoint, &checkpoint, &options, &allocation);
    if (status == LAC_STATUS_OK) status = lac_allocation_get_info(allocation, &info);
    if (status == LAC_STATUS_OK) status = lac_allocation_get_layer(allocation, 0, &layer);
    if (status == LAC_STATUS_OK) status = lac_allocation_get_option(allocation, 0, 1, &layer);
    lac_allocation_free(allocation);
    if (status != LAC_STATUS_OK) return status;
    return ok_when(info.layers > 0 && info.loss == 0 && layer.seconds > 0);
}

/* ---- writers */

static void prepare_writer(test_scene *s) { assert_ok(lac_writer_open(s->target, &s->writer)); }

static void prepare_declared(test_scene *s)
{
    prepare_writer(s);
    assert_ok(lac_writer_set_metadata(s->writer, "author", "test"));
    assert_ok(lac_writer_declare_tensor(s->writer, &test_row_tensor));
    assert_ok(lac_writer_declare_weight(s->writer, "w", NULL, s->weight));
}

static void prepare_half_written(test_scene *s)
{
    prepare_declared(s);
    assert_ok(lac_writer_write_tensor(s->writer, "bias", s->x, TEST_COLS * sizeof(float)));
}

static void prepare_written(test_scene *s)
{
    prepare_half_written(s);
    assert_ok(lac_writer_write_weight(s->writer, "w", s->weight));
}

static lac_status try_writer_open(test_scene *s) { return lac_writer_open(s->target, &s->new_writer); }
static lac_status try_set_metadata(test_scene *s) { return lac_writer_set_metadata(s->writer, "author", "test"); }
static lac_status try_declare_tensor(test_scene *s) { return lac_writer_declare_tensor(s->writer, &test_row_tensor); }
static lac_status try_declare_weight(test_scene *s) { return lac_writer_declare_weight(s->writer, "w", NULL, s->weight); }
static lac_status try_write_tensor(test_scene *s)
{
    return lac_writer_write_tensor(s->writer, "bias", s->x, TEST_COLS * sizeof(float));
}
static lac_status try_write_weight(test_scene *s) { return lac_writer_write_weight(s->writer, "w", s->weight); }
static lac_status try_commit(test_scene *s) { return lac_writer_commit(s->writer); }

static lac_status try_declare_measured(test_scene *s)
{
    lac_weight_info info = {.size = sizeof info};
    lac_status status = lac_weight_get_info(s->weight, &info);
    return status ? status : lac_writer_declare_weight(s->writer, "w", &info, NULL);
}

/* ---- devices and plans */

static lac_status try_device_open(test_scene *s)
{
    (void)s;
    return lac_device_open("cpu", &s->new_device);
}

static lac_status try_device_reads(test_scene *s)
{
    lac_device_info info = {.size = sizeof info};
    lac_kernel_info kernel = {.size = sizeof kernel};
    lac_status status = lac_device_get_info(s->device, &info);
    return status ? status : lac_kernel_probe(0, &kernel);
}

static lac_status try_device_probe(test_scene *s)
{
    (void)s;
    lac_device_info info = {.size = sizeof info};
    return lac_device_probe(0, &info);
}

static lac_status try_device_memory(test_scene *s)
{
    void *block = NULL;
    lac_status status = lac_device_allocate(s->device, sizeof s->x, &block);
    if (!status) status = lac_device_upload(s->device, block, s->x, sizeof s->x);
    if (!status) status = lac_device_download(s->device, s->x, block, sizeof s->x);
    if (!status) status = lac_device_synchronize(s->device);
    lac_device_release(s->device, block);
    return status;
}

static lac_status try_component_probe(test_scene *s)
{
    (void)s;
    lac_component_info info = {.size = sizeof info};
    return lac_component_probe(0, &info);
}

/* With a compiler made for the tests: what it compiles is written once, and read after that. */
static lac_status try_kernels_compile(test_scene *s)
{
    static const char *const archs[] = {"sm_75", "sm_90a"};
    static const int64_t tokens[] = {1, 64};
    lac_plan_options plan = {.size = sizeof plan, .kernel = "cuda_f32_plain"};
    lac_kernels_compile_options options = {.size = sizeof options,
                                           .archs = archs,
                                           .arch_count = 2,
                                           .patterns = &s->pattern,
                                           .pattern_count = 1,
                                           .n = TEST_ROWS,
                                           .k = TEST_COLS,
                                           .m = tokens,
                                           .m_count = 2,
                                           .plan = &plan,
                                           .folder = kernel_cache};
    return lac_kernels_compile(&options);
}

static lac_status try_plan_create(test_scene *s)
{
    return lac_plan_create(s->device, s->weight, TEST_TOKENS, NULL, &s->new_plan);
}

static lac_status try_measured_plan(test_scene *s)
{
    lac_plan_options options = {.size = sizeof options, .measure = 1, .has_bias = 1, .has_residual = 1, .threads = 1};
    return lac_plan_create(s->device, s->weight, 1, &options, &s->new_plan);
}

static lac_status try_forced_plan(test_scene *s)
{
    lac_plan_options options = {.size = sizeof options, .kernel = s->kernel};
    return lac_plan_create(s->device, s->weight, TEST_TOKENS, &options, &s->new_plan);
}

static lac_execute_args arguments_of(test_scene *s)
{
    return (lac_execute_args){.size = sizeof(lac_execute_args),
                              .x = s->x,
                              .y = s->y,
                              .workspace = s->workspace,
                              .workspace_bytes = s->workspace_bytes};
}

static lac_status try_execute(test_scene *s)
{
    lac_execute_args args = arguments_of(s);
    lac_plan_info info = {.size = sizeof info};
    lac_level_info level = {.size = sizeof level};
    lac_status status = lac_plan_get_info(s->plan, &info);
    if (!status) status = lac_plan_explain(s->plan, 0, &level);
    return status ? status : lac_plan_execute(s->plan, &args);
}

static lac_status try_reference(test_scene *s)
{
    lac_execute_args args = arguments_of(s);
    return lac_plan_reference(s->plan, &args, s->reference, s->bound, TEST_ROWS);
}

/* ---- checks of what a success made */

static void check_matrix(test_scene *s) { assert_same_matrix(&s->out, &s->pruned); }

static void check_new_weight(test_scene *s)
{
    assert_non_null(s->new_weight);
    lac_weight_info info = {.size = sizeof info};
    assert_ok(lac_weight_get_info(s->new_weight, &info));
    test_matrix dense = test_matrix_make(info.n_out, info.k_in, LAC_DTYPE_F32, LAC_LAYOUT_ROW_MAJOR, 0, 0);
    assert_ok(lac_weight_decompress(s->new_weight, &dense.view));
    if (info.n == TEST_ROWS && info.k == TEST_COLS && info.dtype == LAC_DTYPE_F32) assert_same_matrix(&dense, &s->pruned);
    test_matrix_free(&dense);
}

static void check_new_mask(test_scene *s)
{
    for (int64_t row = 0; row < TEST_ROWS; row++) {
        for (int64_t col = 0; col < TEST_COLS; col++) {
            if (test_matrix_get(&s->pruned, row, col) != 0) assert_true(lac_mask_get(s->new_mask, row, col));
        }
    }
}

/* 2 of every 4 of the matrix that was pruned, and all of the last 2. */
static void check_reordered(test_scene *s)
{
    lac_mask_info info = {.size = sizeof info};
    assert_ok(lac_mask_get_info(s->new_mask, &info));
    assert_int_equal(info.kept, TEST_ROWS * (TEST_COLS / 4 * 2 + 2));
    assert_true(info.col_perm != NULL);
}

/* Something whole lies at the target. */
static void check_target(test_scene *s)
{
    lac_file *file = NULL;
    assert_ok(lac_file_open(s->target, &file));
    lac_file_close(file);
}

/* The writer goes on as if nothing had happened: what is still to do is done, and a sound file appears. */
static void finish_writer(test_scene *s)
{
    assert_ok(try_declare_tensor(s));
    assert_ok(try_write_tensor(s));
    assert_ok(lac_writer_commit(s->writer));
    check_target(s);
}

static void finish_declared_tensor(test_scene *s)
{
    assert_ok(try_write_tensor(s));
    assert_ok(lac_writer_commit(s->writer));
    check_target(s);
}

static void finish_declared_weight(test_scene *s)
{
    assert_ok(try_write_weight(s));
    assert_ok(lac_writer_commit(s->writer));
    check_target(s);
}

static void finish_tensor(test_scene *s)
{
    assert_ok(try_write_weight(s));
    assert_ok(lac_writer_commit(s->writer));
    check_target(s);
}

static void finish_weight(test_scene *s)
{
    assert_ok(lac_writer_commit(s->writer));
    check_target(s);
}

/* ---- the table */

static const scenario scenarios[] = {
    {"lac_status_name lac_last_error lac_version lac_set_log lac_set_allocator lac_part_name", try_plain_calls, 0, 0, false},
    {"lac_dtype_name lac_dtype_parse lac_dtype_size lac_pattern_parse lac_pattern_format lac_pattern_density", try_plain_calls,
     0, 0, false},
    {"lac_pattern_check", try_pattern_check, 0, 0, true},
    {"lac_prune", try_prune, 0, check_new_mask, true},
    {"lac_prune", try_prune_transposable, 0, 0, true},
    {"lac_calibration_create lac_calibration_free", try_calibration_create, 0, 0, true},
    {"lac_calibration_add lac_calibration_add_moments lac_calibration_get_info lac_calibration_error", try_prune_wanda, 0, 0,
     true},
    {"lac_prune_and_correct", try_prune_obs, 0, 0, true},
    {"lac_prune_and_correct", try_prune_fisher, 0, 0, true},
    {"lac_prune_and_correct", try_prune_schedule, 0, 0, true},
    {"lac_mask_from_matrix", try_mask_from_matrix, 0, check_new_mask, true},
    {"lac_mask_from_nonzeros", try_mask_from_nonzeros, 0, check_new_mask, true},
    {"lac_mask_with_pattern", try_mask_with_pattern, 0, check_new_mask, true},
    {"lac_mask_reorder", try_mask_reorder, 0, check_reordered, true},
    {"lac_mask_apply", try_mask_apply, 0, 0, false},
    {"lac_mask_get_info lac_mask_energy lac_mask_get lac_mask_free", try_mask_reads, 0, 0, false},
    {"lac_weight_compress", try_compress, 0, check_new_weight, true},
    {"lac_weight_compress", try_compress_f16, 0, check_new_weight, true},
    {"lac_weight_decompress", try_decompress, 0, check_matrix, true},
    {"lac_weight_from_parts", try_from_parts, 0, check_new_weight, true},
    {"lac_weight_get_info lac_weight_get_part lac_weight_measure lac_weight_retain lac_weight_free", try_weight_reads, 0, 0,
     false},
    {"lac_weight_shard", try_shard_n, 0, check_new_weight, true},
    {"lac_weight_shard", try_shard_k, 0, check_new_weight, true},
    {"lac_weight_load", try_weight_load, 0, check_new_weight, true},
    {"lac_weight_load", try_weight_load_only, 0, check_new_weight, true},
    {"lac_weight_save", try_weight_save, 0, check_target, true},
    {"lac_file_open", try_open_container, 0, 0, true},
    {"lac_file_open", try_open_npy, 0, 0, true},
    {"lac_file_open", try_open_smtx, 0, 0, true},
    {"lac_file_open", try_open_folder, 0, 0, true},
    {"lac_file_get_info lac_file_get_tensor lac_file_find_tensor lac_file_get_weight lac_file_get_metadata lac_file_close",
     try_file_reads, 0, 0, false},
    {"lac_file_read_matrix", try_read_matrix, 0, 0, true},
    {"lac_file_load_weight", try_file_load_weight, 0, check_new_weight, true},
    {"lac_file_load_mask", try_file_load_mask, 0, check_new_mask, true},
    {"lac_matrix_save_npy", try_save_npy, 0, check_target, true},
    {"lac_mask_save_smtx", try_save_smtx, 0, check_target, true},
    {"lac_checkpoint_prune", try_checkpoint_prune, 0, check_target, true},
    {"lac_checkpoint_prune", try_checkpoint_dense, 0, check_target, true},
    {"lac_checkpoint_prune", try_checkpoint_resume, 0, check_target, true},
    {"lac_checkpoint_prune", try_checkpoint_links, 0, check_target, true},
    {"lac_checkpoint_allocate lac_allocation_get_info lac_allocation_get_layer lac_allocation_get_option lac_allocation_free",
     try_allocate, 0, 0, true},
    {"lac_writer_open lac_writer_free", try_writer_open, 0, 0, true},
    {"lac_writer_set_metadata", try_set_metadata, prepare_writer, finish_writer, true},
    {"lac_writer_declare_tensor", try_declare_tensor, prepare_writer, finish_declared_tensor, true},
    {"lac_writer_declare_weight", try_declare_weight, prepare_writer, finish_declared_weight, true},
    {"lac_writer_declare_weight", try_declare_measured, prepare_writer, finish_declared_weight, true},
    {"lac_writer_write_tensor", try_write_tensor, prepare_declared, finish_tensor, true},
    {"lac_writer_write_weight", try_write_weight, prepare_half_written, finish_weight, true},
    {"lac_writer_commit", try_commit, prepare_written, check_target, true},
    {"lac_device_open lac_device_close", try_device_open, 0, 0, true},
    {"lac_device_get_info lac_kernel_probe", try_device_reads, 0, 0, false},
    {"lac_device_probe", try_device_probe, 0, 0, true},
    {"lac_device_allocate lac_device_upload lac_device_download lac_device_synchronize lac_device_release", try_device_memory,
     0, 0, true},
    {"lac_component_probe", try_component_probe, 0, 0, false},
    {"lac_kernels_compile", try_kernels_compile, 0, 0, true},
    {"lac_plan_create lac_plan_free", try_plan_create, 0, 0, true},
    {"lac_plan_create", try_measured_plan, 0, 0, true},
    {"lac_plan_execute lac_plan_get_info lac_plan_explain", try_execute, 0, 0, false},
    {"lac_plan_reference", try_reference, 0, 0, true},
};

static void mark_functions(const char *names)
{
    for (const char *at = names; at; at = strchr(at, ' ')) test_mark_called(at += *at == ' ');
}

/* ---- running one */

static void expect_untouched(const test_scene *s, const unsigned char *out)
{
    assert_true(!s->new_mask && !s->new_weight && !s->new_file && !s->new_writer && !s->new_device && !s->new_plan);
    assert_true(test_matrix_unchanged(&s->out, out));
    for (int i = 0; i < TEST_TOKENS * TEST_ROWS; i++) assert_true(s->reference[i] == -1 && s->bound[i] == -1);
}

static void reset_results(test_scene *s)
{
    for (int i = 0; i < TEST_TOKENS * TEST_ROWS; i++) s->reference[i] = s->bound[i] = -1;
}

static int64_t failures; /* how many allocations have been failed */

/* One attempt whose `number`-th allocation fails; false when it has fewer. */
static bool run_once(const scenario *c, test_scene *s, int64_t number, bool from_there_on)
{
    int64_t live = test_allocator_live(), files = test_folder_files();
    unsigned char *out = test_matrix_snapshot(&s->out);
    reset_results(s);
    if (c->prepare) c->prepare(s);
    from_there_on ? test_allocator_fail_from(number) : test_allocator_fail_at(number);
    lac_status status = c->attempt(s);
    bool reached = test_allocator_failed();
    int64_t count = test_allocator_count();
    test_allocator_fail_at(0);
    failures += reached;
    if (reached) {
        assert_fails(status, LAC_STATUS_OUT_OF_MEMORY, "memory");
        expect_untouched(s, out);
        if (!c->prepare) {
            assert_int_equal(test_allocator_live(), live);
            assert_int_equal(test_folder_files(), files);
        }
        status = c->attempt(s); /* the same objects, with memory again */
    }
    assert_ok(status);
    if (!c->allocates) assert_int_equal(count, 0);
    if (c->check) c->check(s);
    test_scene_discard(s);
    assert_int_equal(test_allocator_live(), live);
    assert_int_equal(test_folder_files(), files);
    free(out);
    return reached;
}

static void run_scenario(const scenario *c, test_scene *s)
{
    for (int from_there_on = 0; from_there_on < 2; from_there_on++) {
        int64_t number = 0;
        do {
            number++;
            test_describe("%s, pattern %s, kernel %s, allocation %lld%s", c->function, s->text, s->kernel ? s->kernel : "any",
                          (long long)number, from_there_on ? " and all after it" : "");
            assert_true(number < 5000);
        } while (run_once(c, s, number, from_there_on));
    }
}

/* ---- the tests. A case is one scenario under one pattern. */

static const char *const patterns[] = {"2:4",       "4:4",       "5:13",  "25%",    "vw4:3:8", "vw4:40%",
                                       "bw2x3:1:3", "bw2x3:50%", "4:2:8", "2:1:20", "3:4:4",   "shfl4:50%"};
enum { PATTERNS = sizeof patterns / sizeof *patterns, SCENARIOS = sizeof scenarios / sizeof *scenarios };

static void one_case(test_random *random, int64_t index, void *user)
{
    (void)random, (void)user;
    /* Where time is short (a sanitizer's scale) each scenario has 2 of the 12 patterns, other ones than the next has. */
    int64_t stride = test_scale() >= 10 ? 6 : 1;
    if ((index / PATTERNS + index) % stride && !getenv("LAC_TEST_CASE")) return;
    test_scene s;
    test_describe("setting up for pattern %s", patterns[index % PATTERNS]);
    int64_t live = test_allocator_live();
    test_scene_make(&s, patterns[index % PATTERNS]);
    run_scenario(&scenarios[index / PATTERNS], &s);
    test_scene_free(&s);
    assert_int_equal(test_allocator_live(), live);
}

static void every_call_runs_out_of_memory(void **state)
{
    (void)state;
    test_run_all("faults", (int64_t)SCENARIOS * PATTERNS, one_case, NULL);
    print_message("%lld calls ran out of memory\n", (long long)failures);
    assert_true(failures > 0 || getenv("LAC_TEST_CASE"));
}

static void one_kernel(test_random *random, int64_t index, void *user)
{
    (void)random, (void)user;
    lac_kernel_info kernel = {.size = sizeof kernel};
    test_scene s;
    test_scene_make(&s, patterns[index]);
    for (size_t i = 0; lac_kernel_probe(i, &kernel) == LAC_STATUS_OK; i++) {
        s.kernel = kernel.name;
        lac_status status = try_forced_plan(&s);
        test_scene_discard(&s);
        if (status == LAC_STATUS_UNSUPPORTED) continue;
        static const scenario forced = {"lac_plan_create", try_forced_plan, 0, 0, true};
        run_scenario(&forced, &s);
    }
    test_scene_free(&s);
}

static void every_kernel_runs_out_of_memory(void **state)
{
    (void)state;
    test_run_all("faults-kernel", PATTERNS, one_kernel, NULL);
}

static void every_function_is_in_the_table(void **state)
{
    (void)state;
    for (int i = 0; i < SCENARIOS; i++) mark_functions(scenarios[i].function);
    assert_true(test_all_functions_marked());
}

static int remove_kernel_cache(void **state)
{
    (void)state;
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", kernel_cache);
    return system(command);
}

int main(void)
{
    setenv("LAC_NVRTC_LIBRARY", FAKE_NVRTC, 1);
    snprintf(kernel_cache, sizeof kernel_cache, "/tmp/lacuna-faults-%ld", (long)getpid());
    test_allocator_install();
    test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_function_is_in_the_table),
        test_of_cases(every_call_runs_out_of_memory),
        test_of_cases(every_kernel_runs_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, remove_kernel_cache);
}
