/* world.c - see world.h. */
#include <stdarg.h>
#include <stddef.h>

#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/check.h"
#include "support/folder.h"
#include "support/world.h"

#include <stdio.h>
#include <stdlib.h>

static void write_container(test_world *world)
{
    lac_writer *writer = NULL;
    lac_tensor_info bias = {.size = sizeof bias, .name = "bias", .dtype = LAC_DTYPE_F32, .rank = 1, .shape = {8}};
    assert_ok(lac_writer_open(world->container, &writer));
    assert_ok(lac_writer_set_metadata(writer, "author", "test"));
    assert_ok(lac_writer_declare_tensor(writer, &bias));
    assert_ok(lac_writer_declare_weight(writer, "w", NULL, world->weight));
    assert_ok(lac_writer_write_tensor(writer, "bias", world->values, 32));
    assert_ok(lac_writer_write_weight(writer, "w", world->weight));
    assert_ok(lac_writer_commit(writer));
    lac_writer_free(writer);
}

/* A dense checkpoint: a matrix and a vector. */
static void write_checkpoint(test_world *world)
{
    lac_writer *writer = NULL;
    lac_tensor_info layer = {.size = sizeof layer, .name = "layer.weight", .dtype = LAC_DTYPE_F32, .rank = 2, .shape = {8, 8}};
    lac_tensor_info bias = {.size = sizeof bias, .name = "layer.bias", .dtype = LAC_DTYPE_F32, .rank = 1, .shape = {8}};
    assert_ok(lac_writer_open(world->checkpoint, &writer));
    assert_ok(lac_writer_declare_tensor(writer, &layer));
    assert_ok(lac_writer_declare_tensor(writer, &bias));
    assert_ok(lac_writer_write_tensor(writer, "layer.weight", world->values, sizeof world->values));
    assert_ok(lac_writer_write_tensor(writer, "layer.bias", world->values, 32));
    assert_ok(lac_writer_commit(writer));
    lac_writer_free(writer);
}

int test_world_open(void **state)
{
    static test_world world;
    for (int i = 0; i < 64; i++) world.values[i] = (float)(i * 37 % 19 - 9);
    world.dense = (lac_matrix){.data = world.values, .dtype = LAC_DTYPE_F32, .rows = 8, .cols = 8};
    snprintf(world.container, sizeof world.container, "%s", test_path("world.safetensors"));
    snprintf(world.checkpoint, sizeof world.checkpoint, "%s", test_path("checkpoint.safetensors"));
    snprintf(world.smtx, sizeof world.smtx, "%s", test_path("world.smtx"));
    snprintf(world.npy, sizeof world.npy, "%s", test_path("world.npy"));
    snprintf(world.out, sizeof world.out, "%s", test_path("out"));
    assert_ok(lac_pattern_parse("2:4", &world.pattern));
    assert_ok(lac_prune(&world.dense, &world.pattern, NULL, &world.mask));
    assert_ok(lac_weight_compress(&world.dense, world.mask, NULL, &world.weight));
    assert_ok(lac_device_open("cpu", &world.device));
    assert_ok(lac_plan_create(world.device, world.weight, 2, NULL, &world.plan));
    write_container(&world);
    write_checkpoint(&world);
    assert_ok(lac_mask_save_smtx(world.mask, world.smtx));
    assert_ok(lac_matrix_save_npy(&world.dense, world.npy));
    assert_ok(lac_file_open(world.container, &world.file));
    assert_ok(lac_file_open(world.smtx, &world.mask_file));
    *state = &world;
    return 0;
}

int test_world_close(void **state)
{
    test_world *world = *state;
    lac_file_close(world->mask_file);
    lac_file_close(world->file);
    lac_plan_free(world->plan);
    lac_device_close(world->device);
    lac_weight_free(world->weight);
    lac_mask_free(world->mask);
    return 0;
}
