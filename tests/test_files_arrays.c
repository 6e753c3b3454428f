/* test_files_arrays.c - .npy arrays and .smtx masks: what is read and written, and what is refused. */
#include <stdio.h>
#include <stdlib.h>

#include "file_bytes.h"

static const char *write_npy(int version, const char *header, const void *data, size_t bytes)
{
    unsigned char file[2048] = "\x93NUMPY";
    size_t length = strlen(header), start = version == 1 ? 10 : 12;
    assert_true(start + length + bytes <= sizeof file);
    file[6] = (unsigned char)version;
    for (size_t i = 8; i < start; i++) file[i] = (unsigned char)(length >> 8 * (i - 8));
    memcpy(file + start, header, length);
    if (bytes > 0) memcpy(file + start + length, data, bytes);
    const char *path = test_path("array.npy");
    test_write_file(path, file, start + length + bytes);
    return path;
}

static void reads_npy_versions(void **state)
{
    (void)state;
    const float data[6] = {0, 1, 2, 3, 4, 5};
    static const char *const headers[] = {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }          \n",
                                          "{\"shape\":(2,3,),\"descr\":\"<f4\",\"fortran_order\":False}",
                                          "{'fortran_order': False , 'shape' : ( 2 , 3 ) , 'descr': '<f4' , }\n"};
    for (int version = 1; version <= 3; version++) {
        const char *path = write_npy(version, headers[version - 1], data, sizeof data);
        lac_file *file = NULL;
        lac_file_info info = {.size = sizeof info};
        lac_tensor_info tensor = {.size = sizeof tensor};
        assert_ok(lac_file_open(path, &file));
        assert_ok(lac_file_get_info(file, &info));
        assert_int_equal(info.format, LAC_FILE_FORMAT_NPY);
        assert_true(info.tensors == 1 && info.weights == 0 && info.masks == 0 && info.files == 1);
        assert_ok(lac_file_find_tensor(file, "array", &tensor));
        assert_true(tensor.rank == 2 && tensor.shape[0] == 2 && tensor.shape[1] == 3 && tensor.dtype == LAC_DTYPE_F32);
        assert_memory_equal(tensor.data, data, sizeof data);
        lac_file_close(file);
    }
}

static void reads_npy_types(void **state)
{
    (void)state;
    static const struct {
        const char *descr, *type;
        unsigned char bytes[8];
        int size;
        double value;
    } cases[] = {
        {"<f4", "F32", {0, 0, 0xc0, 0xbf}, 4, -1.5},
        {"<f2", "F16", {0, 0x3e}, 2, 1.5},
        {"<f8", "F64", {0, 0, 0, 0, 0, 0, 0xf8, 0x3f}, 8, 1.5},
        {"|u1", "U8", {255}, 1, 255},
        {"|i1", "I8", {255}, 1, -1},
        {"|b1", "BOOL", {1}, 1, 1},
        {"<i2", "I16", {0xfe, 0xff}, 2, -2},
        {"<u2", "U16", {0xfe, 0xff}, 2, 65534},
        {"<i4", "I32", {0xfd, 0xff, 0xff, 0xff}, 4, -3},
        {"<u4", "U32", {0xff, 0xff, 0xff, 0xff}, 4, 4294967295.0},
        {"<i8", "I64", {0, 0, 0, 0, 0, 0, 0, 0x80}, 8, -9223372036854775808.0},
        {"<u8", "U64", {0, 0, 0, 0, 0, 0, 0, 0x80}, 8, 9223372036854775808.0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char header[128];
        snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (1,), }\n", cases[i].descr);
        lac_file *file = NULL;
        lac_tensor_info tensor = {.size = sizeof tensor};
        double value = 0;
        lac_matrix out = {.data = &value, .dtype = LAC_DTYPE_F64, .rows = 1, .cols = 1};
        assert_ok(lac_file_open(write_npy(1, header, cases[i].bytes, (size_t)cases[i].size), &file));
        assert_ok(lac_file_get_tensor(file, 0, &tensor));
        assert_string_equal(tensor.type, cases[i].type);
        assert_ok(lac_file_read_matrix(file, "array", &out));
        assert_true(value == cases[i].value);
        lac_file_close(file);
    }
}

/* The array of shape (2, 3, 2) that counts up in C order, stored column first. */
static void reads_npy_in_fortran_order(void **state)
{
    (void)state;
    unsigned char data[12];
    for (int a = 0; a < 2; a++)
        for (int b = 0; b < 3; b++)
            for (int c = 0; c < 2; c++) data[a + 2 * b + 6 * c] = (unsigned char)((a * 3 + b) * 2 + c);
    lac_file *file = NULL;
    lac_tensor_info tensor = {.size = sizeof tensor};
    assert_ok(lac_file_open(write_npy(1, "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3, 2), }\n", data, 12), &file));
    assert_ok(lac_file_get_tensor(file, 0, &tensor));
    for (int i = 0; i < 12; i++) assert_int_equal(((const unsigned char *)tensor.data)[i], i);
    lac_file_close(file);

    const float columns[6] = {1, 4, 2, 5, 3, 6};
    float rows[6] = {0};
    lac_matrix out = {.data = rows, .dtype = LAC_DTYPE_F32, .rows = 2, .cols = 3};
    assert_ok(lac_file_open(write_npy(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }\n", columns, 24), &file));
    assert_ok(lac_file_read_matrix(file, "array", &out));
    for (int i = 0; i < 6; i++) assert_true(rows[i] == (float)(i + 1));
    lac_file_close(file);
    assert_ok(lac_file_open(write_npy(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (0, 3), }\n", NULL, 0), &file));
    lac_file_close(file);
}

static void refuses_bad_npy(void **state)
{
    (void)state;
    static const struct {
        int version;
        const char *header;
        size_t bytes;
        lac_status status;
        const char *words[4];
    } cases[] = {
        {1, "", 0, LAC_STATUS_BAD_FILE, {"expected '{'"}},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), } x", 4, LAC_STATUS_BAD_FILE, {"expected the end", "x"}},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)", 4, LAC_STATUS_BAD_FILE, {"',' or '}'"}},
        {1, "{'descr': '<f4' 'fortran_order': False, 'shape': (1,)}", 4, LAC_STATUS_BAD_FILE, {"',' or '}'"}},
        {1, "{'descr': '<f4', 'fortran_order': False}", 4, LAC_STATUS_BAD_FILE, {"'shape' is missing"}},
        {1, "{'descr': '<f4', 'shape': (1,)}", 4, LAC_STATUS_BAD_FILE, {"'fortran_order' is missing"}},
        {1, "{'fortran_order': False, 'shape': (1,)}", 4, LAC_STATUS_BAD_FILE, {"'descr' is missing"}},
        {1,
         "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}",
         4,
         LAC_STATUS_BAD_FILE,
         {"'descr' stands twice"}},
        {1, "{'shape': (1,), 'shape': (1,), 'descr': '<f4'}", 4, LAC_STATUS_BAD_FILE, {"'shape' stands twice"}},
        {1, "{'colour': 1}", 4, LAC_STATUS_BAD_FILE, {"unknown key 'colour'"}},
        {1, "{'descr': '<f4', 'fortran_order': 1, 'shape': (1,)}", 4, LAC_STATUS_BAD_FILE, {"True or False"}},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1)}", 4, LAC_STATUS_BAD_FILE, {"',' after the only dimension"}},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': [1]}", 4, LAC_STATUS_BAD_FILE, {"'('"}},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", 4, LAC_STATUS_BAD_FILE, {"a number in shape", "-1"}},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1.0,)}", 4, LAC_STATUS_BAD_FILE, {"',' or ')'"}},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (01,)}", 4, LAC_STATUS_BAD_FILE, {"leading zeros"}},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1 2,)}", 4, LAC_STATUS_BAD_FILE, {"',' or ')'"}},
        {1,
         "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
         4,
         LAC_STATUS_BAD_FILE,
         {"99999999999999999999", "too large"}},
        {1,
         "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}",
         4,
         LAC_STATUS_BAD_FILE,
         {"overflows"}},
        {1,
         "{'descr': '<f4', 'fortran_order': True, 'shape': (1000000, 1000000)}",
         4,
         LAC_STATUS_BAD_FILE,
         {"truncated", "only 4"}},
        {1,
         "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}",
         4,
         LAC_STATUS_BAD_FILE,
         {"truncated", "8 bytes", "only 4"}},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", 5, LAC_STATUS_BAD_FILE, {"1 trailing bytes"}},
        {1,
         "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 1, 1, 1)}",
         4,
         LAC_STATUS_UNSUPPORTED,
         {"more than 8"}},
        {1, "{'descr': '>f4', 'fortran_order': False, 'shape': (1,)}", 4, LAC_STATUS_UNSUPPORTED, {"'>f4'", "big-endian"}},
        {1, "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", 8, LAC_STATUS_UNSUPPORTED, {"'|O'"}},
        {1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", 4, LAC_STATUS_UNSUPPORTED, {"a list"}},
        {4, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", 4, LAC_STATUS_UNSUPPORTED, {"version 4.0"}},
    };
    static const unsigned char data[16];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_refused(write_npy(cases[i].version, cases[i].header, data, cases[i].bytes), cases[i].status, cases[i].words);
    const char *path = test_path("short.npy");
    test_write_file(path, "\x93NUMPY\1", 7);
    expect_refused(path, LAC_STATUS_BAD_FILE, WORDS("truncated", "7 bytes"));
    test_write_file(path, "\x93NUMPY\1\0\377\377{}", 12);
    expect_refused(path, LAC_STATUS_BAD_FILE, WORDS("truncated", "65535", "only 2"));
    test_write_file(path, "\x93NUMPY\2\0\377\377\377\377{}", 14);
    expect_refused(path, LAC_STATUS_BAD_FILE, WORDS("truncated", "4294967295"));
    test_write_file(path, "\x93NUMPY\2\0\1\0", 10);
    expect_refused(path, LAC_STATUS_BAD_FILE, WORDS("truncated", "10 bytes"));
}

static void round_trips_npy(test_random *random, int64_t index, void *user)
{
    (void)user;
    lac_dtype dtype = test_random_dtype(random, 1);
    int64_t rows = test_random_between(random, 0, 9), cols = test_random_between(random, 0, 9);
    test_describe("%lld: %lld x %lld %s", (long long)index, (long long)rows, (long long)cols, lac_dtype_name(dtype));
    test_matrix matrix = test_matrix_random(random, rows, cols, dtype);
    test_matrix_fill(random, &matrix, TEST_FILL_NONFINITE);
    const char *path = test_path("trip.npy");
    assert_ok(lac_matrix_save_npy(&matrix.view, path));
    test_matrix again = test_matrix_random(random, rows, cols, dtype);
    lac_file *file = NULL;
    assert_ok(lac_file_open(path, &file));
    assert_ok(lac_file_read_matrix(file, "array", &again.view));
    lac_file_close(file);
    assert_same_matrix(&again, &matrix);
    assert_true(test_matrix_intact(&again));
    test_matrix_free(&again);
    test_matrix_free(&matrix);
}

static void round_trips_many_npy(void **state)
{
    (void)state;
    test_run_cases("npy", 300, round_trips_npy, NULL);
}

static const char *write_text(const char *text)
{
    const char *path = test_path("mask.smtx");
    test_write_file(path, text, strlen(text));
    return path;
}

static void reads_smtx(void **state)
{
    (void)state;
    static const char *const texts[] = {"3, 4, 5\n0 2 2 5\n0 3 1 2 3\n", "3,4,5 0 2 2 5 0 3 1 2 3",
                                        "3 , 4 ,5\r\n0 2\t2 5\r\n0 3 1 2 3 \r\n\n"};
    for (int i = 0; i < 3; i++) {
        lac_file *file = NULL;
        lac_file_info info = {.size = sizeof info};
        lac_mask *mask = NULL;
        lac_mask_info got = {.size = sizeof got};
        assert_ok(lac_file_open(write_text(texts[i]), &file));
        assert_ok(lac_file_get_info(file, &info));
        assert_int_equal(info.format, LAC_FILE_FORMAT_SMTX);
        assert_true(info.tensors == 0 && info.masks == 1);
        assert_ok(lac_file_load_mask(file, &mask));
        lac_file_close(file);
        assert_ok(lac_mask_get_info(mask, &got));
        assert_true(got.n == 3 && got.k == 4 && got.kept == 5 && !got.has_pattern);
        static const int kept[3][4] = {{1, 0, 0, 1}, {0, 0, 0, 0}, {0, 1, 1, 1}};
        for (int row = 0; row < 3; row++)
            for (int col = 0; col < 4; col++) assert_int_equal(lac_mask_get(mask, row, col), kept[row][col]);
        lac_mask_free(mask);
    }
}

static void refuses_bad_smtx(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *words[4];
    } cases[] = {
        {"3 4 5\n0 2 2 5\n0 3 1 2 3\n", {"expected ','", "'4'"}},
        {"3, 4\n", {"expected ','"}},
        {"3, -4, 5\n", {"size 1", "'-4,'"}},
        {"3, 4x, 5\n", {"size 1", "'4x,'"}},
        {"2147483648, 4, 0\n", {"size 0 is 2147483648", "2147483647"}},
        {"1, 99999999999999999999999999, 0\n", {"size 1 is 99999999999999999999999999"}},
        {"3, 4, 13\n0 4 8 13\n", {"size 2 is 13", "more than 12"}},
        {"3, 4, 9223372036854775808\n", {"size 2 is 9223372036854775808"}},
        {"000000000000000000000003, 4, 0\n0 0 0 0\n", {"size 0", "expected a number"}},
        {"1, 4, 2\n", {"row offset 0", "the end"}},
        {"1, 4, 2\n0\n", {"row offset 1", "the end"}},
        {"1, 4, 2\n1 2\n0 1\n", {"row offset 0 is 1, not 0"}},
        {"2, 4, 2\n0 2 1\n0 1\n", {"row offset 2 is 1", "before, 2"}},
        {"1, 4, 2\n0 3\n0 1 2\n", {"row offset 1 is 3", "more than 2"}},
        {"1, 4, 2\n0 1\n0 1\n", {"last row offset is 1", "2 nonzeros"}},
        {"2, 2, 3\n0 3 3\n0 1 2\n", {"row 0 keeps 3 of 2"}},
        {"1, 4, 2\n0 2\n0 4\n", {"column 1 is 4", "more than 3"}},
        {"1, 4, 2\n0 2\n0 -1\n", {"column 1", "'-1'"}},
        {"1, 4, 2\n0 2\n0 1.0\n", {"column 1", "'1.0'"}},
        {"1, 4, 2\n0 2\n2 1\n", {"column 1 of row 0 is 1", "above", "2"}},
        {"1, 4, 2\n0 2\n2 2\n", {"duplicate", "2"}},
        {"1, 4, 2\n0 2\n2\n", {"column 1", "the end"}},
        {"1, 4, 2\n0 2\n1 2 3\n", {"trailing text", "'3'"}},
        {"1, 4, 0\n0 0\nrest\n", {"trailing text", "'rest'"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_refused(write_text(cases[i].text), LAC_STATUS_BAD_FILE, cases[i].words);
}

/* 30,000 rows of 2^31 - 1 columns: sound, but 8 TB of mask for 60 kB of text. */
static void refuses_masks_beyond_memory(void **state)
{
    (void)state;
    static char text[1 << 16];
    const int64_t rows = 30000;
    int used = snprintf(text, sizeof text, "%lld, 2147483647, 0\n", (long long)rows);
    for (int64_t row = 0; row <= rows; row++) used += snprintf(text + used, sizeof text - (size_t)used, "0 ");
    lac_file *file = NULL;
    lac_mask *mask = NULL;
    assert_ok(lac_file_open(write_text(text), &file));
    assert_fails(lac_file_load_mask(file, &mask), LAC_STATUS_OUT_OF_MEMORY, "30000 x 2147483647");
    assert_null(mask);
    lac_file_close(file);
}

static void round_trips_smtx(test_random *random, int64_t index, void *user)
{
    (void)user;
    int64_t n = test_random_between(random, 0, 40), k = test_random_pick(random, 0, 1, 63, 64, 65, 200);
    int percent = (int)test_random_pick(random, 0, 10, 50, 100);
    test_describe("%lld: %lld x %lld, %d%%", (long long)index, (long long)n, (long long)k, percent);
    float *values = calloc((size_t)(n * k + 1), sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < n * k; i++) values[i] = test_random_chance(random, percent) ? 1.0f : 0.0f;
    lac_matrix dense = {.data = values, .dtype = LAC_DTYPE_F32, .rows = n, .cols = k};
    lac_mask *mask = NULL, *again = NULL;
    lac_file *file = NULL;
    assert_ok(lac_mask_from_nonzeros(&dense, &mask));
    const char *path = test_path("trip.smtx");
    assert_ok(lac_mask_save_smtx(mask, path));
    assert_ok(lac_file_open(path, &file));
    assert_ok(lac_file_load_mask(file, &again));
    lac_mask_info info = {.size = sizeof info};
    assert_ok(lac_mask_get_info(again, &info));
    assert_true(info.n == n && info.k == k);
    for (int64_t row = 0; row < n; row++)
        for (int64_t col = 0; col < k; col++) assert_int_equal(lac_mask_get(again, row, col), values[row * k + col] != 0);
    lac_file_close(file);
    lac_mask_free(mask);
    lac_mask_free(again);
    free(values);
}

static void round_trips_many_smtx(void **state)
{
    (void)state;
    test_run_cases("smtx", 200, round_trips_smtx, NULL);
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
        cmocka_unit_test(reads_npy_versions),         cmocka_unit_test(reads_npy_types),
        cmocka_unit_test(reads_npy_in_fortran_order), cmocka_unit_test(refuses_bad_npy),
        test_of_cases(round_trips_many_npy),          cmocka_unit_test(reads_smtx),
        cmocka_unit_test(refuses_bad_smtx),           cmocka_unit_test(refuses_masks_beyond_memory),
        test_of_cases(round_trips_many_smtx),
    };
    return cmocka_run_group_tests_name("files: .npy and .smtx", tests, NULL, clear_folder);
}
