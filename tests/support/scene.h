/* scene.h - for one pattern one object of each kind, files of each kind, and places for what calls make of them. */
#ifndef TEST_SUPPORT_SCENE_H
#define TEST_SUPPORT_SCENE_H

#include "lacuna.h"
#include "support/matrix.h"

enum { TEST_TOKENS = 3, TEST_ROWS = 9, TEST_COLS = 26 };

/* What the calls are given, and what they make. */
typedef struct test_scene {
    const char *text;
    lac_pattern pattern;
    test_matrix dense, pruned, out; /* n x k */
    lac_mask *mask;
    lac_weight *weight;
    lac_device *device;
    lac_plan *plan;
    const char *kernel; /* a kernel to force */
    lac_file *file, *mask_file;
    char container[512], checkpoint[512], npy[512], smtx[512], folder[512], target[512];
    float x[TEST_TOKENS * TEST_COLS], y[TEST_TOKENS * TEST_ROWS];
    double reference[TEST_TOKENS * TEST_ROWS], bound[TEST_TOKENS * TEST_ROWS];
    void *workspace;
    size_t workspace_bytes;
    lac_writer *writer; /* made anew for each attempt of a scenario that uses it */
    lac_mask *new_mask;
    lac_weight *new_weight;
    lac_file *new_file;
    lac_writer *new_writer;
    lac_device *new_device;
    lac_plan *new_plan;
} test_scene;

/* "bias", TEST_COLS floats. */
extern const lac_tensor_info test_row_tensor;

void test_scene_make(test_scene *s, const char *pattern_text);
void test_scene_free(test_scene *s);
/* Frees what calls have made (the new_ fields, the writer, the file at `target`). */
void test_scene_discard(test_scene *s);

#endif
