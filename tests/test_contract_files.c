/* test_contract_files.c - what lacuna.h says of compressed weights and of files, and no other test has tried: what a weight's numbers count, whose the bytes
 * are, and what a file tells of itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/support.h"

static const char *const texts[] = {"2:4", "4:4", "25%", "vw4:3:8", "bw2x3:1:3", "bw2x3:50%", "4:2:8", "shfl4:50%"};
enum { TEXTS = sizeof texts / sizeof *texts, N = 9, K = 26 };

static lac_weight *make(const char *text, lac_dtype dtype)
{
    test_random random = test_random_make("contract_files", 0);
    test_matrix dense = test_matrix_random(&random, N, K, LAC_DTYPE_F32);
    test_matrix_fill(&random, &dense, TEST_FILL_GAUSSIAN);
    lac_pattern pattern;
    lac_mask *mask = NULL;
    lac_weight *weight = NULL;
    lac_compress_options options = {.size = sizeof options, .dtype = dtype};
    assert_ok(lac_pattern_parse(text, &pattern));
    assert_ok(lac_prune(&dense.view, &pattern, NULL, &mask));
    assert_ok(lac_weight_compress(&dense.view, mask, &options, &weight));
    lac_mask_free(mask);
    test_matrix_free(&dense);
    return weight;
}

static lac_weight_info info_of(const lac_weight *weight)
{
    lac_weight_info info = {.size = sizeof info};
    assert_ok(lac_weight_get_info(weight, &info));
    return info;
}

/* ---- weights */

static void numbers_of_a_weight_count_its_parts(void **state)
{
    (void)state;
    for (int i = 0; i < TEXTS; i++)
        for (int dtype = LAC_DTYPE_F32; dtype <= LAC_DTYPE_BF16; dtype++) {
            lac_weight *weight = make(texts[i], (lac_dtype)dtype);
            lac_weight_info info = info_of(weight);
            uint64_t rest = 0;
            for (int part = 0; part < LAC_PART_COUNT; part++) {
                lac_span span = {&info, 1};
                assert_ok(lac_weight_get_part(weight, (lac_part)part, &span));
                assert_true((uintptr_t)span.data % 64 == 0 && (span.data || span.bytes == 0));
                if (part == LAC_PART_VALUES) assert_int_equal(span.bytes, info.value_bytes);
                if (part != LAC_PART_VALUES) rest += span.bytes;
                if (part == LAC_PART_ROW_PERM) assert_int_equal(span.data != NULL, info.has_row_perm);
                if (part == LAC_PART_COL_PERM) assert_int_equal(span.data != NULL, info.has_col_perm);
                if (part == LAC_PART_SCALES) assert_null(span.data);
            }
            assert_int_equal(info.index_bytes, rest);
            assert_int_equal(info.value_bytes, (uint64_t)info.kept * lac_dtype_size((lac_dtype)dtype));
            assert_int_equal(info.dense_bytes, N * K * lac_dtype_size((lac_dtype)dtype));
            assert_true(info.n == N && info.k == K && info.n_out == N && info.k_in == K && (int)info.dtype == dtype);
            lac_weight_free(weight);
        }
}

/* The dtype of the matrix, F32 for F64; and the same whatever the threads. */
static void values_have_the_matrix_s_dtype(void **state)
{
    (void)state;
    static const lac_dtype from[] = {LAC_DTYPE_F32, LAC_DTYPE_F16, LAC_DTYPE_BF16, LAC_DTYPE_F64},
                           to[] = {LAC_DTYPE_F32, LAC_DTYPE_F16, LAC_DTYPE_BF16, LAC_DTYPE_F32};
    test_random random = test_random_make("dtypes", 0);
    for (int i = 0; i < 4; i++) {
        test_matrix dense = test_matrix_random(&random, N, K, from[i]);
        test_matrix_fill(&random, &dense, TEST_FILL_GAUSSIAN);
        lac_pattern pattern;
        lac_mask *mask = NULL;
        lac_weight *weight[2] = {NULL, NULL};
        lac_compress_options zero = {.size = sizeof zero};
        assert_ok(lac_pattern_parse("2:4", &pattern));
        assert_ok(lac_prune(&dense.view, &pattern, NULL, &mask));
        assert_ok(lac_weight_compress(&dense.view, mask, NULL, &weight[0]));
        assert_ok(lac_weight_compress(&dense.view, mask, &zero, &weight[1]));
        assert_int_equal(info_of(weight[0]).dtype, to[i]);
        lac_span a, b;
        assert_ok(lac_weight_get_part(weight[0], LAC_PART_VALUES, &a));
        assert_ok(lac_weight_get_part(weight[1], LAC_PART_VALUES, &b));
        assert_int_equal(a.bytes, b.bytes);
        assert_memory_equal(a.data, b.data, a.bytes);
        lac_weight_free(weight[0]);
        lac_weight_free(weight[1]);
        lac_mask_free(mask);
        test_matrix_free(&dense);
    }
}

/* Made of bytes that are taken away afterwards, by a caller who says no more than he must. */
static void parts_are_copied(void **state)
{
    (void)state;
    for (int i = 0; i < TEXTS; i++) {
        lac_weight *weight = make(texts[i], LAC_DTYPE_F32), *again = NULL;
        lac_weight_info info = info_of(weight),
                        least = {.size = sizeof least, .pattern = info.pattern, .n = N, .k = K, .dtype = info.dtype};
        least.encoding = info.encoding;
        lac_span parts[LAC_PART_COUNT], copies[LAC_PART_COUNT];
        for (int part = 0; part < LAC_PART_COUNT; part++) {
            assert_ok(lac_weight_get_part(weight, (lac_part)part, &parts[part]));
            copies[part] = parts[part];
            if (!parts[part].data) continue;
            void *copy = malloc(parts[part].bytes + 1);
            copies[part].data = memcpy(copy, parts[part].data, parts[part].bytes);
        }
        assert_ok(lac_weight_from_parts(&least, copies, &again));
        for (int part = 0; part < LAC_PART_COUNT; part++) {
            if (!copies[part].data) continue;
            memset((void *)(uintptr_t)copies[part].data, 0xee, copies[part].bytes);
            free((void *)(uintptr_t)copies[part].data);
        }
        for (int part = 0; part < LAC_PART_COUNT; part++) {
            lac_span span;
            assert_ok(lac_weight_get_part(again, (lac_part)part, &span));
            assert_int_equal(span.bytes, parts[part].bytes);
            if (span.bytes) assert_memory_equal(span.data, parts[part].data, span.bytes);
        }
        lac_weight_info made = info_of(again);
        assert_true(made.n_out == N && made.k_in == K && made.kept == info.kept && made.has_row_perm == info.has_row_perm);
        lac_weight_free(again);
        lac_weight_free(weight);
    }
}

/* Whatever is done with it, by every kernel: the bytes stay. */
static void weights_do_not_change(void **state)
{
    test_world *the = *state;
    float x[3 * K], y[3 * N], back[N * K];
    for (int i = 0; i < 3 * K; i++) x[i] = (float)(i % 7 - 3);
    for (int i = 0; i < TEXTS; i++) {
        lac_weight *weight = make(texts[i], LAC_DTYPE_F32), *shard = NULL;
        lac_span parts[LAC_PART_COUNT];
        void *copies[LAC_PART_COUNT] = {NULL};
        for (int part = 0; part < LAC_PART_COUNT; part++) {
            assert_ok(lac_weight_get_part(weight, (lac_part)part, &parts[part]));
            copies[part] = malloc(parts[part].bytes + 1);
            if (parts[part].bytes) memcpy(copies[part], parts[part].data, parts[part].bytes);
        }
        lac_kernel_info kernel = {.size = sizeof kernel};
        for (size_t at = 0; lac_kernel_probe(at, &kernel) == LAC_STATUS_OK; at++) {
            lac_plan_options options = {.size = sizeof options, .kernel = kernel.name, .threads = 1};
            lac_plan *plan = NULL;
            if (lac_plan_create(the->device, weight, 3, &options, &plan) != LAC_STATUS_OK) continue;
            lac_plan_info info = {.size = sizeof info};
            assert_ok(lac_plan_get_info(plan, &info));
            void *workspace = aligned_alloc(64, info.workspace_bytes / 64 * 64 + 64);
            lac_execute_args args = {.size = sizeof args, .x = x, .y = y, .workspace = workspace};
            args.workspace_bytes = info.workspace_bytes;
            assert_ok(lac_plan_execute(plan, &args));
            free(workspace);
            lac_plan_free(plan);
        }
        lac_matrix dense = {.data = back, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K};
        assert_ok(lac_weight_decompress(weight, &dense));
        assert_ok(lac_weight_save(weight, the->out, "w"));
        assert_int_equal(remove(the->out), 0);
        assert_ok(lac_weight_shard(weight, LAC_AXIS_N, 0, N, &shard));
        lac_weight_free(shard);
        for (int part = 0; part < LAC_PART_COUNT; part++) {
            lac_span now;
            assert_ok(lac_weight_get_part(weight, (lac_part)part, &now));
            assert_true(now.data == parts[part].data && now.bytes == parts[part].bytes);
            if (now.bytes) assert_memory_equal(now.data, copies[part], now.bytes);
            free(copies[part]);
        }
        lac_weight_free(weight);
    }
}

/* ---- files */

/* By what is in it: names say nothing. */
static void files_are_known_by_their_content(void **state)
{
    test_world *the = *state;
    static const char *const names[] = {"a.smtx", "b.npy", "c.safetensors", "d"};
    const char *const from[] = {the->container, the->npy, the->smtx};
    static const lac_file_format formats[] = {LAC_FILE_FORMAT_SAFETENSORS, LAC_FILE_FORMAT_NPY, LAC_FILE_FORMAT_SMTX};
    for (int i = 0; i < 3; i++)
        for (size_t j = 0; j < sizeof names / sizeof *names; j++) {
            char path[512];
            struct stat found;
            lac_file *file = NULL;
            lac_file_info info = {.size = sizeof info};
            snprintf(path, sizeof path, "%s", test_path(names[j]));
            assert_int_equal(link(from[i], path), 0);
            assert_ok(lac_file_open(path, &file));
            assert_ok(lac_file_get_info(file, &info));
            assert_int_equal(info.format, formats[i]);
            assert_true(info.files == 1 && info.tensors == (i < 2) && info.weights == (i == 0) && info.masks == (i == 2));
            assert_int_equal(stat(path, &found), 0);
            assert_int_equal(info.bytes, found.st_size);
            lac_file_close(file);
            assert_int_equal(unlink(path), 0);
        }
}

/* From none to eight dimensions, and what lies in it where it is mapped. */
static void tensors_have_up_to_eight_dimensions(void **state)
{
    test_world *the = *state;
    lac_writer *writer = NULL;
    lac_file *file = NULL;
    static const char *const names[] = {"0", "1", "2", "3", "4", "5", "6", "7", "8"};
    const double value = 42;
    assert_ok(lac_writer_open(the->out, &writer));
    for (int pass = 0; pass < 2; pass++)
        for (int rank = 0; rank <= LAC_MAX_RANK; rank++) {
            lac_tensor_info info = {.size = sizeof info, .name = names[rank], .dtype = LAC_DTYPE_F64, .rank = rank};
            for (int i = 0; i < rank; i++) info.shape[i] = 1;
            if (pass == 0)
                assert_ok(lac_writer_declare_tensor(writer, &info));
            else
                assert_ok(lac_writer_write_tensor(writer, names[rank], &value, sizeof value));
        }
    lac_writer *other = NULL;
    lac_tensor_info deep = {.size = sizeof deep, .name = "9", .dtype = LAC_DTYPE_F64, .rank = LAC_MAX_RANK + 1};
    assert_ok(lac_writer_open(the->out, &other));
    assert_fails(lac_writer_declare_tensor(other, &deep), LAC_STATUS_INVALID_ARGUMENT, "rank is 9");
    lac_writer_free(other);
    assert_ok(lac_writer_commit(writer));
    lac_writer_free(writer);
    assert_ok(lac_file_open(the->out, &file));
    for (int rank = 0; rank <= LAC_MAX_RANK; rank++) {
        lac_tensor_info info = {.size = sizeof info};
        assert_ok(lac_file_find_tensor(file, names[rank], &info));
        assert_true(info.rank == rank && info.bytes == sizeof value && info.dtype == LAC_DTYPE_F64);
        for (int i = 0; i < rank; i++) assert_int_equal(info.shape[i], 1);
        assert_memory_equal(info.data, &value, sizeof value);
        double row = 0;
        lac_matrix out = {.data = &row, .dtype = LAC_DTYPE_F64, .rows = 1, .cols = 1};
        lac_status status = lac_file_read_matrix(file, names[rank], &out);
        assert_int_equal(status, rank == 1 || rank == 2 ? LAC_STATUS_OK : LAC_STATUS_INVALID_ARGUMENT);
        assert_true((row == value) == (status == LAC_STATUS_OK));
    }
    lac_file_close(file);
    assert_int_equal(remove(the->out), 0);
}

/* A file may go while it is open: it is mapped, and what was told of it stays. */
static void what_is_mapped_stays_until_it_is_closed(void **state)
{
    test_world *the = *state;
    lac_file *file = NULL;
    lac_tensor_info tensor = {.size = sizeof tensor};
    lac_weight *weight = NULL;
    const char *name = NULL;
    lac_weight_info stored = {.size = sizeof stored};
    assert_int_equal(link(the->container, the->out), 0);
    assert_ok(lac_file_open(the->out, &file));
    assert_ok(lac_file_find_tensor(file, "bias", &tensor));
    assert_int_equal(unlink(the->out), 0);
    assert_memory_equal(tensor.data, the->values, 32);
    assert_ok(lac_file_get_weight(file, 0, &name, &stored));
    assert_string_equal(name, "w");
    assert_ok(lac_file_load_weight(file, name, &weight));
    lac_file_close(file);
    lac_weight_info own = info_of(weight); /* a weight has bytes of its own */
    assert_true(own.kept == stored.kept && own.value_bytes == stored.value_bytes && own.index_bytes == stored.index_bytes);
    float back[64];
    lac_matrix out = {.data = back, .dtype = LAC_DTYPE_F32, .rows = 8, .cols = 8};
    assert_ok(lac_weight_decompress(weight, &out));
    for (int i = 0; i < 64; i++) assert_true(back[i] == (lac_mask_get(the->mask, i / 8, i % 8) ? the->values[i] : 0));
    lac_weight_free(weight);
}

/* Sizes by the weight itself or by its description: the latter may come before the weight is there. */
static void weights_are_declared_by_sizes(void **state)
{
    test_world *the = *state;
    for (int i = 0; i < TEXTS; i++) {
        lac_weight *weight = make(texts[i], LAC_DTYPE_F16), *again = NULL;
        lac_weight_info info = info_of(weight), measured = info;
        uint64_t bytes[LAC_PART_COUNT];
        lac_writer *writer = NULL;
        measured.kept = 0, measured.value_bytes = measured.index_bytes = measured.dense_bytes = 0;
        assert_ok(lac_weight_measure(&measured, bytes));
        assert_true(measured.kept == info.kept && measured.value_bytes == info.value_bytes); /* pruned, it is full */
        assert_true(measured.index_bytes == info.index_bytes && measured.dense_bytes == info.dense_bytes);
        assert_ok(lac_weight_measure(&measured, NULL));
        assert_ok(lac_writer_open(the->out, &writer));
        assert_ok(lac_writer_declare_weight(writer, "by size", &info, NULL));
        assert_ok(lac_writer_declare_weight(writer, "by itself", NULL, weight));
        assert_ok(lac_writer_write_weight(writer, "by size", weight));
        assert_int_not_equal(access(the->out, F_OK), 0); /* nothing there before the commit */
        assert_ok(lac_writer_write_weight(writer, "by itself", weight));
        assert_ok(lac_writer_commit(writer));
        lac_writer_free(writer);
        assert_ok(lac_weight_load(the->out, "by size", &again));
        assert_int_equal(info_of(again).kept, info.kept);
        lac_weight_free(again);
        lac_weight_free(weight);
        assert_int_equal(remove(the->out), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_of_a_weight_count_its_parts),
        cmocka_unit_test(values_have_the_matrix_s_dtype),
        cmocka_unit_test(parts_are_copied),
        cmocka_unit_test(weights_do_not_change),
        cmocka_unit_test(files_are_known_by_their_content),
        cmocka_unit_test(tensors_have_up_to_eight_dimensions),
        cmocka_unit_test(what_is_mapped_stays_until_it_is_closed),
        cmocka_unit_test(weights_are_declared_by_sizes),
    };
    return cmocka_run_group_tests(tests, test_world_open, test_world_close);
}
