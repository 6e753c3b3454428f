/* test_files_writer.c - the safetensors writer: what it writes, what it refuses, and that a failure leaves nothing behind. */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file_bytes.h"

static lac_tensor_info tensor_info(const char *name, const char *type, int rank, int64_t first, int64_t second)
{
    return (lac_tensor_info){
        .size = sizeof(lac_tensor_info), .name = name, .type = type, .rank = rank, .shape = {first, second}};
}

static void declare(lac_writer *writer, const char *name, const char *type, int rank, int64_t first, int64_t second)
{
    lac_tensor_info info = tensor_info(name, type, rank, first, second);
    assert_ok(lac_writer_declare_tensor(writer, &info));
}

static lac_weight *make_weight(const char *text, int64_t n, int64_t k)
{
    static float values[32 * 32];
    for (int i = 0; i < 32 * 32; i++) values[i] = (float)(i % 11) - 5.5f;
    lac_matrix dense = {.data = values, .dtype = LAC_DTYPE_F32, .rows = n, .cols = k};
    lac_pattern pattern;
    lac_mask *mask = NULL;
    lac_weight *weight = NULL;
    assert_ok(lac_pattern_parse(text, &pattern));
    assert_ok(lac_prune(&dense, &pattern, NULL, &mask));
    assert_ok(lac_weight_compress(&dense, mask, NULL, &weight));
    lac_mask_free(mask);
    return weight;
}

static void writes_a_container(void **state)
{
    (void)state;
    test_folder_clear();
    const char *path = test_path("out.safetensors");
    lac_weight *weight = make_weight("vw4:2:8", 9, 19), *again = NULL;
    lac_writer *writer = NULL;
    assert_ok(lac_writer_open(path, &writer));
    assert_ok(lac_writer_set_metadata(writer, "author", "\xc3\xa9 \"quoted\" \\ \n"));
    declare(writer, "odd", "U8", 1, 3, 0);
    assert_ok(lac_writer_declare_weight(writer, "w \"x\"", NULL, weight));
    declare(writer, "empty", "F32", 2, 0, 5);
    lac_tensor_info by_dtype = {.size = sizeof by_dtype, .name = "last", .dtype = LAC_DTYPE_BF16, .rank = 2, .shape = {1, 2}};
    assert_ok(lac_writer_declare_tensor(writer, &by_dtype));
    assert_ok(lac_writer_write_tensor(writer, "odd", "abc", 3));
    assert_int_not_equal(access(path, F_OK), 0); /* nothing before the commit */
    assert_ok(lac_writer_write_weight(writer, "w \"x\"", weight));
    assert_ok(lac_writer_write_tensor(writer, "empty", NULL, 0));
    assert_ok(lac_writer_write_tensor(writer, "last", "wxyz", 4));
    assert_ok(lac_writer_commit(writer));
    assert_fails(lac_writer_commit(writer), LAC_STATUS_INVALID_ARGUMENT, "committed");
    assert_fails(lac_writer_write_tensor(writer, "odd", "abc", 3), LAC_STATUS_INVALID_ARGUMENT, "committed");
    lac_writer_free(writer);
    assert_int_equal(test_folder_files(), 1);

    lac_file *file = NULL;
    lac_file_info info = {.size = sizeof info};
    lac_tensor_info tensor = {.size = sizeof tensor};
    assert_ok(lac_file_open(path, &file));
    assert_ok(lac_file_get_info(file, &info));
    assert_int_equal(info.tensors, 3);
    assert_int_equal(info.weights, 1);
    /* The file is mapped at a page, so addresses show the alignment within it. */
    for (int i = 0; i < 3; i++) {
        assert_ok(lac_file_get_tensor(file, i, &tensor));
        assert_int_equal((uintptr_t)tensor.data % 64, 0);
    }
    assert_string_equal(tensor.name, "last");
    assert_memory_equal(tensor.data, "wxyz", 4);
    assert_string_equal(tensor.type, "BF16");
    assert_ok(lac_file_find_tensor(file, "odd", &tensor));
    assert_memory_equal(tensor.data, "abc", 3);
    assert_ok(lac_file_find_tensor(file, "empty", &tensor));
    assert_true(tensor.bytes == 0 && tensor.rank == 2 && tensor.shape[1] == 5);
    assert_ok(lac_file_load_weight(file, "w \"x\"", &again));
    const char *key, *value;
    assert_ok(lac_file_get_metadata(file, 0, &key, &value));
    assert_string_equal(value, "\xc3\xa9 \"quoted\" \\ \n");
    lac_weight_free(again);
    lac_weight_free(weight);
    lac_file_close(file);
}

/* A file without weights is a plain checkpoint: no strangers among its tensors, unless an element would be misaligned. */
static void writes_a_plain_checkpoint(void **state)
{
    (void)state;
    const char *path = test_path("plain.safetensors");
    lac_writer *writer = NULL;
    assert_ok(lac_writer_open(path, &writer));
    declare(writer, "a", "F32", 1, 1, 0);
    declare(writer, "b", "F16", 1, 1, 0);
    declare(writer, "c", "F64", 0, 0, 0);
    assert_ok(lac_writer_write_tensor(writer, "a", "aaaa", 4));
    assert_ok(lac_writer_write_tensor(writer, "b", "bb", 2));
    assert_ok(lac_writer_write_tensor(writer, "c", "cccccccc", 8));
    assert_ok(lac_writer_commit(writer));
    lac_writer_free(writer);
    char bytes[512] = {0};
    FILE *raw = fopen(path, "rb");
    assert_non_null(raw);
    size_t length = fread(bytes, 1, sizeof bytes - 1, raw);
    fclose(raw);
    assert_int_equal((8 + (unsigned char)bytes[0] + 256 * (unsigned char)bytes[1]) % 64, 0); /* where the data begins */
    assert_memory_equal(bytes + length - 16, "aaaabb\0\0cccccccc", 16);
    assert_non_null(strstr(bytes + 8, "lacuna:pad:0"));
    assert_null(strstr(bytes + 8, "lacuna:pad:1"));
    assert_null(strstr(bytes + 8, "__metadata__"));
}

static void writes_an_empty_file(void **state)
{
    (void)state;
    lac_writer *writer = NULL;
    lac_file *file = NULL;
    assert_ok(lac_writer_open(test_path("void.safetensors"), &writer));
    assert_ok(lac_writer_commit(writer));
    lac_writer_free(writer);
    assert_ok(lac_file_open(test_path("void.safetensors"), &file));
    lac_file_close(file);
}

/* Declared from its sizes before the weight exists, as a streaming pruner does. */
static void declares_by_size(void **state)
{
    (void)state;
    static const char *const patterns[] = {"2:4", "vw4:2:8", "4:2:8", "25%"};
    for (int i = 0; i < 4; i++) {
        lac_weight *weight = make_weight(patterns[i], 9, 19), *other = make_weight(patterns[i], 8, 19), *again = NULL;
        lac_weight_info info = {.size = sizeof info, .n = 9, .k = 19, .dtype = LAC_DTYPE_F32};
        assert_ok(lac_pattern_parse(patterns[i], &info.pattern));
        lac_writer *writer = NULL;
        assert_ok(lac_writer_open(test_path("sizes.safetensors"), &writer));
        assert_ok(lac_writer_declare_weight(writer, "w", &info, NULL));
        assert_fails(lac_writer_write_weight(writer, "w", other), LAC_STATUS_INVALID_ARGUMENT,
                     "shape is not what was declared");
        assert_ok(lac_writer_write_weight(writer, "w", weight));
        assert_ok(lac_writer_commit(writer));
        lac_writer_free(writer);
        assert_ok(lac_weight_load(test_path("sizes.safetensors"), NULL, &again));
        lac_weight_free(again);
        lac_weight_free(other);
        lac_weight_free(weight);
    }
}

/* A wrong argument is refused, and the writer goes on as if nothing had been said. */
static void refuses_wrong_arguments(void **state)
{
    (void)state;
    test_folder_clear();
    const char *path = test_path("wrong.safetensors");
    lac_weight *weight = make_weight("2:4", 4, 8);
    lac_writer *writer = NULL;
    const lac_status invalid = LAC_STATUS_INVALID_ARGUMENT;
    assert_ok(lac_writer_open(path, &writer));
    declare(writer, "a", "U8", 1, 2, 0);
    assert_ok(lac_writer_declare_weight(writer, "w", NULL, weight));
    declare(writer, "b", "U8", 1, 1, 0);

    static const struct {
        lac_tensor_info info;
        const char *words;
    } tensors[] = {
        {{.name = "a", .type = "U8"}, "'a' is declared twice"},
        {{.name = "w", .type = "U8"}, "'w' is declared twice"},
        {{.name = "w:values", .type = "U8"}, "'w:values' is declared twice"},
        {{.name = "w:counts", .type = "U8"}, "'w:counts' is declared twice"},
        {{.name = "lacuna:pad:7", .type = "U8"}, "'lacuna:pad:7' is reserved"},
        {{.name = "__metadata__", .type = "U8"}, "reserved"},
        {{.name = "x\xff", .type = "U8"}, "not UTF-8"},
        {{.name = "x\xed\xa0\x80", .type = "U8"}, "not UTF-8"},
        {{.name = "", .type = "U8"}, "name is empty"},
        {{.name = NULL, .type = "U8"}, "name is NULL"},
        {{.name = "x", .type = "F33"}, "type 'F33' is unknown"},
        {{.name = "x"}, "type 'none' is unknown"},
        {{.name = "x", .type = "U8", .rank = 9}, "rank is 9"},
        {{.name = "x", .type = "U8", .rank = -1}, "rank is -1"},
        {{.name = "x", .type = "U8", .rank = 2, .shape = {1, -4}}, "shape[1] is -4"},
        {{.name = "x", .type = "F64", .rank = 2, .shape = {INT64_MAX, 2}}, "overflows"},
        {{.name = "x", .type = "F4", .rank = 1, .shape = {3}}, "whole number of bytes"},
    };
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        lac_tensor_info info = tensors[i].info;
        info.size = sizeof info;
        assert_fails(lac_writer_declare_tensor(writer, &info), invalid, tensors[i].words);
    }
    assert_fails(lac_writer_declare_tensor(writer, NULL), invalid, "info is NULL");
    assert_fails(lac_writer_declare_weight(writer, "a", NULL, weight), invalid, "'a' is declared twice");
    assert_fails(lac_writer_declare_weight(writer, "v", NULL, NULL), invalid, "both NULL");
    assert_ok(lac_writer_set_metadata(writer, "k", "v"));
    assert_fails(lac_writer_set_metadata(writer, "k", "v"), invalid, "'k' is set twice");
    assert_fails(lac_writer_set_metadata(writer, "lacuna", "v"), invalid, "record");
    assert_fails(lac_writer_set_metadata(writer, "x", NULL), invalid, "value is NULL");
    assert_fails(lac_writer_set_metadata(writer, "x", "\xff"), invalid, "not UTF-8");

    assert_fails(lac_writer_write_tensor(writer, "nobody", "", 0), invalid, "'nobody' was not declared");
    assert_fails(lac_writer_write_tensor(writer, "b", "b", 1), invalid, "out of order; expected is tensor 'a'");
    assert_fails(lac_writer_write_weight(writer, "w", weight), invalid, "out of order; expected is tensor 'a'");
    assert_fails(lac_writer_write_tensor(writer, "a", "aaa", 3), invalid, "3 bytes given, 2 declared");
    assert_fails(lac_writer_write_tensor(writer, "a", NULL, 2), invalid, "data is NULL");
    assert_fails(lac_writer_commit(writer), invalid, "tensor 'a'");
    assert_ok(lac_writer_write_tensor(writer, "a", "aa", 2));
    lac_tensor_info late = tensor_info("late", "U8", 0, 0, 0);
    assert_fails(lac_writer_declare_tensor(writer, &late), invalid, "after the first write");
    assert_fails(lac_writer_set_metadata(writer, "late", "v"), invalid, "after the first write");
    assert_fails(lac_writer_write_tensor(writer, "a", "aa", 2), invalid, "already written");
    assert_fails(lac_writer_write_tensor(writer, "w", "", 0), invalid, "belongs to a weight");
    assert_fails(lac_writer_write_tensor(writer, "w:values", "", 0), invalid, "belongs to a weight");
    assert_fails(lac_writer_write_weight(writer, "a", weight), invalid, "not declared as a weight");
    assert_fails(lac_writer_write_weight(writer, "w", NULL), invalid, "weight is NULL");
    assert_fails(lac_writer_commit(writer), invalid, "weight 'w'");
    assert_ok(lac_writer_write_weight(writer, "w", weight));
    assert_fails(lac_writer_commit(writer), invalid, "tensor 'b' and 0 more");
    assert_ok(lac_writer_write_tensor(writer, "b", "b", 1));
    assert_fails(lac_writer_write_tensor(writer, "b", "b", 1), invalid, "nothing more");
    assert_ok(lac_writer_commit(writer));
    lac_writer_free(writer);
    assert_int_equal(test_folder_files(), 1);
    lac_file *file = NULL;
    assert_ok(lac_file_open(path, &file));
    lac_file_close(file);
    lac_weight_free(weight);
}

static void refuses_bad_places(void **state)
{
    (void)state;
    test_folder_clear();
    lac_writer *writer = NULL;
    assert_fails(lac_writer_open(test_path("no/such/folder"), &writer), LAC_STATUS_IO, "No such file");
    assert_fails(lac_writer_open(test_folder(), &writer), LAC_STATUS_IO, "it is a folder");
    assert_fails(lac_writer_open(test_path(""), &writer), LAC_STATUS_INVALID_ARGUMENT, "without a file name");
    assert_fails(lac_writer_open("/dev/null", &writer), LAC_STATUS_IO, "not a regular file");
    assert_fails(lac_writer_open(NULL, &writer), LAC_STATUS_INVALID_ARGUMENT, "path is NULL");
    assert_null(writer);
    lac_writer_free(NULL);
    assert_int_equal(test_folder_files(), 0);
}

/* Between open and commit a folder takes the name: the rename fails, and the work goes. */
static void survives_a_refused_rename(void **state)
{
    (void)state;
    test_folder_clear();
    const char *path = test_path("taken.safetensors");
    lac_writer *writer = NULL;
    assert_ok(lac_writer_open(path, &writer));
    assert_int_equal(mkdir(path, 0700), 0);
    assert_fails(lac_writer_commit(writer), LAC_STATUS_IO, "cannot rename");
    assert_fails(lac_writer_commit(writer), LAC_STATUS_INVALID_ARGUMENT, "only be freed");
    lac_writer_free(writer);
    assert_int_equal(test_folder_files(), 0);
}

/* Sizes that only together are too large. */
static void refuses_too_much_for_one_file(void **state)
{
    (void)state;
    lac_writer *writer = NULL;
    assert_ok(lac_writer_open(test_path("much.safetensors"), &writer));
    declare(writer, "none", "U8", 1, 0, 0);
    declare(writer, "a", "U8", 1, INT64_MAX / 8, 0);
    for (char name[2] = "b"; name[0] < 'h'; name[0]++) declare(writer, name, "U8", 1, INT64_MAX / 8, 0);
    assert_fails(lac_writer_write_tensor(writer, "none", NULL, 0), LAC_STATUS_INVALID_ARGUMENT, "too large for one file");
    lac_writer_free(writer);
}

/* A free distribution is declared full by its sizes alone; a weight that keeps less does not fit that. */
static void refuses_a_free_weight_that_is_not_full(void **state)
{
    (void)state;
    const uint32_t counts[2] = {4, 1}, columns[5] = {0, 1, 2, 3, 0};
    const float values[5] = {1, 2, 3, 4, 5};
    lac_weight_info info = {.size = sizeof info, .n = 2, .k = 8, .dtype = LAC_DTYPE_F32};
    lac_span parts[LAC_PART_COUNT] = {[LAC_PART_VALUES] = {values, sizeof values},
                                      [LAC_PART_COUNTS] = {counts, sizeof counts},
                                      [LAC_PART_COLUMNS] = {columns, sizeof columns}};
    lac_weight *weight = NULL, *again = NULL;
    lac_writer *writer = NULL;
    assert_ok(lac_pattern_parse("50%", &info.pattern));
    assert_ok(lac_weight_from_parts(&info, parts, &weight));
    assert_ok(lac_writer_open(test_path("free.safetensors"), &writer));
    assert_ok(lac_writer_declare_weight(writer, "w", &info, NULL));
    assert_fails(lac_writer_write_weight(writer, "w", weight), LAC_STATUS_INVALID_ARGUMENT, "values has 20 bytes, 32 declared");
    lac_writer_free(writer);
    /* Declared by itself it is written and read back, whatever it keeps. */
    assert_ok(lac_weight_save(weight, test_path("free.safetensors"), "w"));
    assert_ok(lac_weight_load(test_path("free.safetensors"), "w", &again));
    lac_weight_free(again);
    lac_weight_free(weight);
}

static void leaves_nothing_when_freed(void **state)
{
    (void)state;
    test_folder_clear();
    lac_writer *writer = NULL;
    const char *path = test_path("kept.safetensors");
    test_write_file(path, "old", 3);
    assert_ok(lac_writer_open(path, &writer));
    declare(writer, "a", "U8", 1, 1, 0);
    assert_ok(lac_writer_write_tensor(writer, "a", "a", 1));
    assert_int_equal(test_folder_files(), 2);
    lac_writer_free(writer);
    assert_int_equal(test_folder_files(), 1);
    char old[4] = {0};
    FILE *file = fopen(path, "rb");
    assert_int_equal(fread(old, 1, 3, file), 3);
    fclose(file);
    assert_string_equal(old, "old");
}

static void honours_the_umask(void **state)
{
    (void)state;
    mode_t before = umask(027);
    lac_writer *writer = NULL;
    struct stat found;
    assert_ok(lac_writer_open(test_path("mode.safetensors"), &writer));
    assert_ok(lac_writer_commit(writer));
    lac_writer_free(writer);
    umask(before);
    assert_int_equal(stat(test_path("mode.safetensors"), &found), 0);
    assert_int_equal(found.st_mode & 0777, 0640);
}

static mode_t mode_of(const char *path)
{
    struct stat found;
    assert_int_equal(lstat(path, &found), 0);
    return found.st_mode & (S_IFMT | 0777);
}

static mode_t mode_of_the_temporary_file(void)
{
    mode_t mode = 0;
    DIR *folder = opendir(test_path(""));
    assert_non_null(folder);
    for (const struct dirent *entry; (entry = readdir(folder));)
        if (!strncmp(entry->d_name, ".lacuna-", 8)) mode = mode_of(test_path(entry->d_name));
    closedir(folder);
    return mode;
}

/* While it is written, too, nobody may read the new file who could not read the old one. */
static void keeps_the_permissions_of_what_it_replaces(void **state)
{
    (void)state;
    static const mode_t modes[] = {0600, 0640, 0444, 0666};
    test_folder_clear();
    lac_writer *writer = NULL;
    char path[256];
    snprintf(path, sizeof path, "%s", test_path("mode.safetensors"));
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        test_write_file(path, "old", 3);
        assert_int_equal(chmod(path, modes[i]), 0);
        assert_ok(lac_writer_open(path, &writer));
        assert_int_equal(mode_of_the_temporary_file(), S_IFREG | 0600);
        assert_ok(lac_writer_commit(writer));
        lac_writer_free(writer);
        assert_int_equal(mode_of(path), S_IFREG | modes[i]);
        assert_int_equal(unlink(path), 0);
    }
    float value = 1.0f;
    lac_matrix matrix = {.data = &value, .dtype = LAC_DTYPE_F32, .rows = 1, .cols = 1};
    test_write_file(path, "old", 3);
    assert_int_equal(chmod(path, 0600), 0);
    assert_ok(lac_matrix_save_npy(&matrix, path));
    assert_int_equal(mode_of(path), S_IFREG | 0600);
}

static void follows_a_link_to_a_file(void **state)
{
    (void)state;
    test_folder_clear();
    lac_writer *writer = NULL;
    lac_file *file = NULL;
    char real[256], link[256], folder[256];
    snprintf(real, sizeof real, "%s", test_path("sub/real.safetensors"));
    snprintf(link, sizeof link, "%s", test_path("link.safetensors"));
    snprintf(folder, sizeof folder, "%s", test_path("sub"));
    assert_int_equal(mkdir(folder, 0700), 0);
    test_write_file(real, "old", 3);
    assert_int_equal(chmod(real, 0600), 0);
    assert_int_equal(symlink("sub/real.safetensors", link), 0);
    assert_ok(lac_writer_open(link, &writer));
    assert_ok(lac_writer_commit(writer));
    lac_writer_free(writer);
    assert_int_equal(mode_of(link) & S_IFMT, S_IFLNK);
    assert_int_equal(mode_of(real), S_IFREG | 0600);
    assert_ok(lac_file_open(real, &file));
    lac_file_close(file);
    assert_int_equal(unlink(real), 0); /* the link now leads nowhere: a file takes its place */
    assert_ok(lac_writer_open(link, &writer));
    assert_ok(lac_writer_commit(writer));
    lac_writer_free(writer);
    assert_int_equal(mode_of(link) & S_IFMT, S_IFREG);
    assert_int_equal(rmdir(folder), 0); /* nothing was left there */
}

/* A limit on the size of files stands for a full disk: write fails after a part is out. */
static struct rlimit old_limit;

static void limit_file_size(rlim_t bytes)
{
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old_limit), 0);
    struct rlimit limit = {.rlim_cur = bytes, .rlim_max = old_limit.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void unlimit_file_size(void) { setrlimit(RLIMIT_FSIZE, &old_limit); }

static void survives_a_full_disk(void **state)
{
    (void)state;
    test_folder_clear();
    static const char data[4096];
    static const rlim_t limits[] = {0, 100, 128 + 1, 128 + 4095};
    const char *path = test_path("full.safetensors");
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        lac_writer *writer = NULL;
        assert_ok(lac_writer_open(path, &writer));
        declare(writer, "data", "U8", 1, sizeof data, 0);
        declare(writer, "more", "U8", 1, 0, 0);
        limit_file_size(limits[i]);
        lac_status status = lac_writer_write_tensor(writer, "data", data, sizeof data);
        unlimit_file_size();
        assert_int_equal(status, LAC_STATUS_IO);
        assert_non_null(strstr(lac_last_error(), path));
        assert_non_null(strstr(lac_last_error(), "File too large"));
        /* The rest of the file would be in the wrong place. */
        assert_fails(lac_writer_write_tensor(writer, "more", NULL, 0), LAC_STATUS_INVALID_ARGUMENT, "only be freed");
        assert_fails(lac_writer_commit(writer), LAC_STATUS_INVALID_ARGUMENT, "only be freed");
        lac_writer_free(writer);
        assert_int_equal(test_folder_files(), 0);
    }
    float values[64] = {0};
    lac_matrix matrix = {.data = values, .dtype = LAC_DTYPE_F32, .rows = 8, .cols = 8};
    lac_mask *mask = NULL;
    lac_weight *weight = make_weight("2:4", 16, 16);
    assert_ok(lac_mask_from_nonzeros(&matrix, &mask));
    limit_file_size(10);
    lac_status npy = lac_matrix_save_npy(&matrix, test_path("full.npy"));
    lac_status smtx = lac_mask_save_smtx(mask, test_path("full.smtx"));
    lac_status container = lac_weight_save(weight, path, "w");
    unlimit_file_size();
    assert_int_equal(npy, LAC_STATUS_IO);
    assert_int_equal(smtx, LAC_STATUS_IO);
    assert_int_equal(container, LAC_STATUS_IO);
    assert_int_equal(test_folder_files(), 0);
    lac_mask_free(mask);
    lac_weight_free(weight);
}

/* Past 4 GiB, offsets and sizes need more than 32 bits. The file is all holes, so it costs no room. */
static void reads_large_offsets(void **state)
{
    (void)state;
    char header[256];
    const uint64_t bytes = (UINT64_C(5) << 30) + 3;
    const char *path = test_path("sparse.safetensors");
    int length = snprintf(header, sizeof header,
                          "{\"big\":{\"dtype\":\"U8\",\"shape\":[%llu],\"data_offsets\":[0,%llu]},"
                          "\"end\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%llu,%llu]}}",
                          (unsigned long long)bytes, (unsigned long long)bytes, (unsigned long long)bytes,
                          (unsigned long long)bytes + 1);
    unsigned char prefix[8] = {(unsigned char)length};
    FILE *raw = fopen(path, "wb");
    assert_non_null(raw);
    assert_int_equal(fwrite(prefix, 1, 8, raw) + fwrite(header, 1, (size_t)length, raw), 8 + (size_t)length);
    assert_int_equal(fclose(raw), 0);
    assert_int_equal(truncate(path, (off_t)(8 + (uint64_t)length + bytes + 1)), 0); /* a file of holes */
    lac_file *file = NULL;
    lac_tensor_info tensor = {.size = sizeof tensor};
    assert_ok(lac_file_open(path, &file));
    assert_ok(lac_file_find_tensor(file, "big", &tensor));
    assert_true(tensor.bytes == bytes);
    const uint8_t *big = tensor.data;
    assert_ok(lac_file_find_tensor(file, "end", &tensor));
    assert_true((const uint8_t *)tensor.data - big == (ptrdiff_t)bytes);
    assert_int_equal(*(const uint8_t *)tensor.data, 0);
    lac_file_close(file);
    unlink(path);
}

static int clear_folder(void **state)
{
    (void)state;
    test_folder_clear();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_a_container),
        cmocka_unit_test(writes_a_plain_checkpoint),
        cmocka_unit_test(writes_an_empty_file),
        cmocka_unit_test(declares_by_size),
        cmocka_unit_test(refuses_wrong_arguments),
        cmocka_unit_test(refuses_bad_places),
        cmocka_unit_test(survives_a_refused_rename),
        cmocka_unit_test(refuses_too_much_for_one_file),
        cmocka_unit_test(refuses_a_free_weight_that_is_not_full),
        cmocka_unit_test(leaves_nothing_when_freed),
        cmocka_unit_test(honours_the_umask),
        cmocka_unit_test(keeps_the_permissions_of_what_it_replaces),
        cmocka_unit_test(follows_a_link_to_a_file),
        cmocka_unit_test(survives_a_full_disk),
        cmocka_unit_test(reads_large_offsets),
    };
    return cmocka_run_group_tests_name("files: writer", tests, NULL, clear_folder);
}
