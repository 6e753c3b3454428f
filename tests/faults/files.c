/* files.c - files, checkpoints and writers whose memory runs out; see faults.h. */
#include "faults/faults.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

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
    return status ? status : fault_ok_when(!strcmp(name, "w") && tensor.bytes == TEST_COLS * sizeof(float));
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
    return fault_ok_when(info.layers > 0 && info.loss == 0 && layer.seconds > 0);
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

/* ---- checks of what a success made */

/* The writer goes on as if nothing had happened: what is still to do is done, and a sound file appears. */
static void finish_writer(test_scene *s)
{
    assert_ok(try_declare_tensor(s));
    assert_ok(try_write_tensor(s));
    assert_ok(lac_writer_commit(s->writer));
    fault_check_target(s);
}

static void finish_declared_tensor(test_scene *s)
{
    assert_ok(try_write_tensor(s));
    assert_ok(lac_writer_commit(s->writer));
    fault_check_target(s);
}

static void finish_declared_weight(test_scene *s)
{
    assert_ok(try_write_weight(s));
    assert_ok(lac_writer_commit(s->writer));
    fault_check_target(s);
}

static void finish_tensor(test_scene *s)
{
    assert_ok(try_write_weight(s));
    assert_ok(lac_writer_commit(s->writer));
    fault_check_target(s);
}

static void finish_weight(test_scene *s)
{
    assert_ok(lac_writer_commit(s->writer));
    fault_check_target(s);
}

/* ---- the table */

const fault_scenario fault_files_scenarios[] = {
    {"lac_weight_load", try_weight_load, 0, fault_check_new_weight, true},
    {"lac_weight_load", try_weight_load_only, 0, fault_check_new_weight, true},
    {"lac_weight_save", try_weight_save, 0, fault_check_target, true},
    {"lac_file_open", try_open_container, 0, 0, true},
    {"lac_file_open", try_open_npy, 0, 0, true},
    {"lac_file_open", try_open_smtx, 0, 0, true},
    {"lac_file_open", try_open_folder, 0, 0, true},
    {"lac_file_get_info lac_file_get_tensor lac_file_find_tensor lac_file_get_weight lac_file_get_metadata lac_file_close",
     try_file_reads, 0, 0, false},
    {"lac_file_read_matrix", try_read_matrix, 0, 0, true},
    {"lac_file_load_weight", try_file_load_weight, 0, fault_check_new_weight, true},
    {"lac_file_load_mask", try_file_load_mask, 0, fault_check_new_mask, true},
    {"lac_matrix_save_npy", try_save_npy, 0, fault_check_target, true},
    {"lac_mask_save_smtx", try_save_smtx, 0, fault_check_target, true},
    {"lac_checkpoint_prune", try_checkpoint_prune, 0, fault_check_target, true},
    {"lac_checkpoint_prune", try_checkpoint_dense, 0, fault_check_target, true},
    {"lac_checkpoint_prune", try_checkpoint_resume, 0, fault_check_target, true},
    {"lac_checkpoint_prune", try_checkpoint_links, 0, fault_check_target, true},
    {"lac_checkpoint_allocate lac_allocation_get_info lac_allocation_get_layer lac_allocation_get_option lac_allocation_free",
     try_allocate, 0, 0, true},
    {"lac_writer_open lac_writer_free", try_writer_open, 0, 0, true},
    {"lac_writer_set_metadata", try_set_metadata, prepare_writer, finish_writer, true},
    {"lac_writer_declare_tensor", try_declare_tensor, prepare_writer, finish_declared_tensor, true},
    {"lac_writer_declare_weight", try_declare_weight, prepare_writer, finish_declared_weight, true},
    {"lac_writer_declare_weight", try_declare_measured, prepare_writer, finish_declared_weight, true},
    {"lac_writer_write_tensor", try_write_tensor, prepare_declared, finish_tensor, true},
    {"lac_writer_write_weight", try_write_weight, prepare_half_written, finish_weight, true},
    {"lac_writer_commit", try_commit, prepare_written, fault_check_target, true},
    {0},
};
