/* scene.c - see scene.h. */
#include <stdarg.h>
#include <stddef.h>

#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/check.h"
#include "support/folder.h"
#include "support/scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

const lac_tensor_info test_row_tensor = {
    .size = sizeof(lac_tensor_info), .name = "bias", .dtype = LAC_DTYPE_F32, .rank = 1, .shape = {TEST_COLS}};

void test_scene_discard(test_scene *s)
{
    lac_mask_free(s->new_mask);
    lac_weight_free(s->new_weight);
    lac_file_close(s->new_file);
    lac_writer_free(s->new_writer);
    lac_writer_free(s->writer);
    lac_device_close(s->new_device);
    lac_plan_free(s->new_plan);
    s->new_mask = NULL;
    s->new_weight = NULL;
    s->new_file = NULL;
    s->new_writer = NULL;
    s->writer = NULL;
    s->new_device = NULL;
    s->new_plan = NULL;
    remove(s->target);
}

static void write_checkpoint(const test_scene *s, const char *path, const char *prefix)
{
    char weight[64], skipped[64], bias[64];
    snprintf(weight, sizeof weight, "%s.weight", prefix);
    snprintf(skipped, sizeof skipped, "%s.skip.weight", prefix);
    snprintf(bias, sizeof bias, "%s.bias", prefix);
    lac_tensor_info matrix = {
        .size = sizeof matrix, .name = weight, .dtype = LAC_DTYPE_F32, .rank = 2, .shape = {TEST_ROWS, TEST_COLS}};
    lac_tensor_info other = matrix, row = test_row_tensor;
    other.name = skipped;
    row.name = bias;
    lac_writer *writer = NULL;
    assert_ok(lac_writer_open(path, &writer));
    assert_ok(lac_writer_declare_tensor(writer, &matrix));
    assert_ok(lac_writer_declare_tensor(writer, &other));
    assert_ok(lac_writer_declare_tensor(writer, &row));
    assert_ok(lac_writer_write_tensor(writer, weight, s->dense.view.data, TEST_ROWS * TEST_COLS * sizeof(float)));
    assert_ok(lac_writer_write_tensor(writer, skipped, s->dense.view.data, TEST_ROWS * TEST_COLS * sizeof(float)));
    assert_ok(lac_writer_write_tensor(writer, bias, s->x, TEST_COLS * sizeof(float)));
    assert_ok(lac_writer_commit(writer));
    lac_writer_free(writer);
}

static void write_container(const test_scene *s)
{
    lac_writer *writer = NULL;
    assert_ok(lac_writer_open(s->container, &writer));
    assert_ok(lac_writer_set_metadata(writer, "author", "test"));
    assert_ok(lac_writer_declare_tensor(writer, &test_row_tensor));
    assert_ok(lac_writer_declare_weight(writer, "w", NULL, s->weight));
    assert_ok(lac_writer_write_tensor(writer, "bias", s->x, TEST_COLS * sizeof(float)));
    assert_ok(lac_writer_write_weight(writer, "w", s->weight));
    assert_ok(lac_writer_commit(writer));
    lac_writer_free(writer);
}

static void write_files(test_scene *s)
{
    snprintf(s->container, sizeof s->container, "%s", test_path("container.safetensors"));
    snprintf(s->checkpoint, sizeof s->checkpoint, "%s", test_path("checkpoint.safetensors"));
    snprintf(s->npy, sizeof s->npy, "%s", test_path("matrix.npy"));
    snprintf(s->smtx, sizeof s->smtx, "%s", test_path("mask.smtx"));
    snprintf(s->folder, sizeof s->folder, "%s", test_path("model"));
    snprintf(s->target, sizeof s->target, "%s", test_path("target"));
    write_container(s);
    write_checkpoint(s, s->checkpoint, "layer");
    assert_ok(lac_matrix_save_npy(&s->dense.view, s->npy));
    assert_ok(lac_mask_save_smtx(s->mask, s->smtx));
    mkdir(s->folder, 0777);
    write_checkpoint(s, test_path("model/model-00001-of-00002.safetensors"), "a");
    write_checkpoint(s, test_path("model/model-00002-of-00002.safetensors"), "b");
    static const char index[] =
        "{\"weight_map\": {\"a.weight\": \"model-00001-of-00002.safetensors\", \"a.skip.weight\": "
        "\"model-00001-of-00002.safetensors\", \"a.bias\": \"model-00001-of-00002.safetensors\", \"b.weight\": "
        "\"model-00002-of-00002.safetensors\", \"b.skip.weight\": \"model-00002-of-00002.safetensors\", \"b.bias\": "
        "\"model-00002-of-00002.safetensors\"}}";
    test_write_file(test_path("model/model.safetensors.index.json"), index, sizeof index - 1);
}

void test_scene_make(test_scene *s, const char *text)
{
    memset(s, 0, sizeof *s);
    s->text = text;
    assert_ok(lac_pattern_parse(text, &s->pattern));
    test_random random = test_random_make(text, 0);
    s->dense = test_matrix_make(TEST_ROWS, TEST_COLS, LAC_DTYPE_F32, LAC_LAYOUT_ROW_MAJOR, 0, 0);
    s->pruned = test_matrix_make(TEST_ROWS, TEST_COLS, LAC_DTYPE_F32, LAC_LAYOUT_ROW_MAJOR, 0, 0);
    s->out = test_matrix_make(TEST_ROWS, TEST_COLS, LAC_DTYPE_F32, LAC_LAYOUT_ROW_MAJOR, 2, 1);
    test_matrix_fill(&random, &s->dense, TEST_FILL_GAUSSIAN);
    memcpy(s->pruned.view.data, s->dense.view.data, TEST_ROWS * TEST_COLS * sizeof(float));
    for (int i = 0; i < TEST_TOKENS * TEST_COLS; i++) s->x[i] = (float)test_random_gaussian(&random);
    assert_ok(lac_prune(&s->dense.view, &s->pattern, NULL, &s->mask));
    assert_ok(lac_mask_apply(s->mask, &s->pruned.view));
    assert_ok(lac_weight_compress(&s->dense.view, s->mask, NULL, &s->weight));
    assert_ok(lac_device_open("cpu", &s->device));
    lac_plan_options options = {.size = sizeof options, .threads = 1};
    assert_ok(lac_plan_create(s->device, s->weight, TEST_TOKENS, &options, &s->plan));
    lac_plan_info info = {.size = sizeof info};
    assert_ok(lac_plan_get_info(s->plan, &info));
    s->workspace_bytes = info.workspace_bytes;
    s->workspace = aligned_alloc(64, (info.workspace_bytes + 127) / 64 * 64);
    assert_non_null(s->workspace);
    write_files(s);
    assert_ok(lac_file_open(s->container, &s->file));
    assert_ok(lac_file_open(s->smtx, &s->mask_file));
}

void test_scene_free(test_scene *s)
{
    test_scene_discard(s);
    lac_file_close(s->file);
    lac_file_close(s->mask_file);
    lac_plan_free(s->plan);
    lac_device_close(s->device);
    lac_weight_free(s->weight);
    lac_mask_free(s->mask);
    test_matrix_free(&s->dense);
    test_matrix_free(&s->pruned);
    test_matrix_free(&s->out);
    free(s->workspace);
    test_folder_clear();
}
