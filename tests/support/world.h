/* world.h - one small object of each kind, for tests that need something valid to pass beside what is wrong. */
#ifndef TEST_SUPPORT_WORLD_H
#define TEST_SUPPORT_WORLD_H

#include "lacuna.h"

typedef struct test_world {
    lac_pattern pattern; /* 2:4 */
    float values[8 * 8]; /* of `dense` */
    lac_matrix dense;    /* 8 x 8 */
    lac_mask *mask;
    lac_weight *weight;
    lac_device *device;  /* the CPU */
    lac_plan *plan;      /* for 2 tokens */
    lac_file *file;      /* `container`, opened: the weight "w", the tensor "bias" [8], the metadata "author" */
    lac_file *mask_file; /* `smtx`, opened */
    char container[512], checkpoint[512], smtx[512], npy[512], out[512]; /* paths; nothing lies at `out` */
    float x[2 * 8], y[2 * 8];
} test_world;

/* For cmocka's group set-up and tear-down: *state becomes a test_world. */
int test_world_open(void **state);
int test_world_close(void **state);

#endif
