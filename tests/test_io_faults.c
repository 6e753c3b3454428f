/* test_io_faults.c - the operating system refuses: a folder that is not there, a folder where a file should go, a file that
 * may not grow, no file descriptors left, a file cut short. Every call says IO or BAD_FILE with the path, leaves no
 * temporary file, leaves what lay at the target as it was, and works once the cause is gone. */
#include "support/scene.h"
#include "support/support.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct saver {
    const char *name;
    lac_status (*save)(test_scene *s, const char *path);
} saver;

static lac_status save_weight(test_scene *s, const char *path) { return lac_weight_save(s->weight, path, "w"); }
static lac_status save_npy(test_scene *s, const char *path) { return lac_matrix_save_npy(&s->dense.view, path); }
static lac_status save_smtx(test_scene *s, const char *path) { return lac_mask_save_smtx(s->mask, path); }

static lac_status save_checkpoint(test_scene *s, const char *path)
{
    lac_checkpoint_options options = {.size = sizeof options, .pattern = &s->pattern};
    return lac_checkpoint_prune(s->checkpoint, path, &options);
}

static lac_status save_written(test_scene *s, const char *path)
{
    lac_writer *writer = NULL;
    lac_status status = lac_writer_open(path, &writer);
    if (!status) status = lac_writer_declare_tensor(writer, &test_row_tensor);
    if (!status) status = lac_writer_write_tensor(writer, "bias", s->x, TEST_COLS * sizeof(float));
    if (!status) status = lac_writer_commit(writer);
    lac_writer_free(writer);
    return status;
}

static const saver savers[] = {{"lac_weight_save", save_weight},
                               {"lac_matrix_save_npy", save_npy},
                               {"lac_mask_save_smtx", save_smtx},
                               {"lac_checkpoint_prune", save_checkpoint},
                               {"lac_writer", save_written}};
enum { SAVERS = sizeof savers / sizeof *savers };

static test_scene scene;

static int set_up(void **state)
{
    (void)state;
    test_scene_make(&scene, "vw4:3:8");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    test_scene_free(&scene);
    return 0;
}

/* The call fails for a reason of the system's, names the path and leaves nothing behind. */
static void expect_refusal(const saver *c, const char *path)
{
    int64_t files = test_folder_files(), live = test_allocator_live();
    print_message("%s: ", c->name);
    assert_fails(c->save(&scene, path), LAC_STATUS_IO, path);
    print_message("%s\n", lac_last_error());
    assert_int_equal(test_folder_files(), files);
    assert_int_equal(test_allocator_live(), live);
}

static void no_such_folder(void **state)
{
    (void)state;
    for (int i = 0; i < SAVERS; i++) expect_refusal(&savers[i], test_path("absent/file"));
}

static void a_folder_is_in_the_way(void **state)
{
    (void)state;
    const char *path = test_path("in-the-way");
    assert_int_equal(mkdir(path, 0777), 0);
    for (int i = 0; i < SAVERS; i++) expect_refusal(&savers[i], path);
    assert_int_equal(rmdir(path), 0);
}

/* As a full disk does it, except that the limit can be lifted again. What lay at the target stays. */
static void the_file_may_not_grow(void **state)
{
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    for (int i = 0; i < SAVERS; i++) {
        test_write_file(scene.target, "old", 3);
        int64_t files = test_folder_files();
        struct rlimit before, small;
        assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
        small = (struct rlimit){32, before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        lac_status status = savers[i].save(&scene, scene.target);
        char message[256];
        snprintf(message, sizeof message, "%s", lac_last_error());
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        print_message("%s: %s\n", savers[i].name, message);
        assert_int_equal(status, LAC_STATUS_IO);
        struct stat info;
        assert_int_equal(stat(scene.target, &info), 0);
        assert_int_equal(info.st_size, 3);
        assert_int_equal(test_folder_files(), files);
        assert_ok(savers[i].save(&scene, scene.target));
        assert_int_equal(test_folder_files(), files);
        lac_file *file = NULL;
        assert_ok(lac_file_open(scene.target, &file));
        lac_file_close(file);
        remove(scene.target);
    }
}

static void no_descriptors_left(void **state)
{
    (void)state;
    struct rlimit before, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    int next = dup(0); /* the lowest free number: with it as the limit nothing can be opened */
    assert_true(next >= 0);
    close(next);
    none = (struct rlimit){(rlim_t)next, before.rlim_max};
    lac_status saved[SAVERS], opened, listed;
    lac_file *file = NULL;
    int64_t files = test_folder_files();
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    for (int i = 0; i < SAVERS; i++) saved[i] = savers[i].save(&scene, scene.target);
    opened = lac_file_open(scene.container, &file);
    listed = lac_file_open(scene.folder, &file);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    for (int i = 0; i < SAVERS; i++) assert_int_equal(saved[i], LAC_STATUS_IO);
    assert_int_equal(opened, LAC_STATUS_IO);
    assert_int_equal(listed, LAC_STATUS_IO);
    assert_null(file);
    assert_int_equal(test_folder_files(), files);
    assert_ok(lac_file_open(scene.container, &file));
    lac_file_close(file);
}

/* Any file cut anywhere is refused, or (text that ends in blanks) is still the same. */
static void cut_short(void **state)
{
    (void)state;
    const char *paths[] = {scene.container, scene.npy, scene.smtx};
    for (int p = 0; p < 3; p++) {
        static unsigned char bytes[1 << 16];
        FILE *file = fopen(paths[p], "rb");
        assert_non_null(file);
        size_t size = fread(bytes, 1, sizeof bytes, file);
        fclose(file);
        assert_in_range(size, 100, sizeof bytes - 1);
        int64_t live = test_allocator_live();
        for (size_t length = 0; length + 2 < size; length++) {
            lac_file *opened = NULL;
            test_write_file(scene.target, bytes, length);
            assert_fails(lac_file_open(scene.target, &opened), LAC_STATUS_BAD_FILE, scene.target);
            assert_null(opened);
        }
        assert_int_equal(test_allocator_live(), live);
        remove(scene.target);
    }
}

int main(void)
{
    test_allocator_install();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_such_folder),
        cmocka_unit_test(a_folder_is_in_the_way),
        cmocka_unit_test(the_file_may_not_grow),
        cmocka_unit_test(no_descriptors_left),
        cmocka_unit_test(cut_short),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
