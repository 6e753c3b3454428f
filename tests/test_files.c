/* test_files.c - the safetensors reader: what it reads, and every way in which a file can break the rules. */
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file_bytes.h"

static void expect_bad(const char *header, size_t bytes, const char *const *words)
{
    expect_refused(write_safetensors("bad.safetensors", header, bytes), LAC_STATUS_BAD_FILE, words);
}

static void reads_tensors(void **state)
{
    (void)state;
    const char *path = write_safetensors("good.safetensors",
                                         "{\"__metadata__\":{\"format\":\"pt\",\"who\":\"me\"},"
                                         "\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[24,27]},"
                                         "\"a.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
                                         "\"c\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[27,35]}}   ",
                                         35);
    lac_file *file = NULL;
    lac_file_info info = {.size = sizeof info};
    lac_tensor_info tensor = {.size = sizeof tensor};
    assert_ok(lac_file_open(path, &file));
    assert_ok(lac_file_get_info(file, &info));
    assert_int_equal(info.format, LAC_FILE_FORMAT_SAFETENSORS);
    assert_int_equal(info.tensors, 3);
    assert_int_equal(info.weights, 0);
    assert_int_equal(info.masks, 0);
    assert_int_equal(info.files, 1);
    /* In the order of their bytes. */
    static const char *const names[] = {"a.weight", "b", "c"};
    for (int i = 0; i < 3; i++) {
        assert_ok(lac_file_get_tensor(file, i, &tensor));
        assert_string_equal(tensor.name, names[i]);
        assert_string_equal(tensor.path, path);
    }
    assert_int_equal(tensor.rank, 0);
    assert_int_equal(tensor.bytes, 8);
    assert_int_equal(((const unsigned char *)tensor.data)[0], 28); /* unaligned */
    assert_ok(lac_file_find_tensor(file, "b", &tensor));
    assert_string_equal(tensor.type, "U8");
    assert_int_equal(tensor.dtype, LAC_DTYPE_NONE);
    assert_ok(lac_file_find_tensor(file, "a.weight", &tensor));
    assert_int_equal(tensor.dtype, LAC_DTYPE_F32);
    assert_int_equal(tensor.rank, 2);
    assert_int_equal(tensor.shape[0], 2);
    assert_int_equal(tensor.shape[1], 3);
    assert_fails(lac_file_get_tensor(file, 3, &tensor), LAC_STATUS_NOT_FOUND, "3");
    assert_fails(lac_file_get_tensor(file, -1, &tensor), LAC_STATUS_NOT_FOUND, "-1");
    assert_fails(lac_file_find_tensor(file, "nobody", &tensor), LAC_STATUS_NOT_FOUND, "'nobody'");
    const char *key, *value;
    assert_ok(lac_file_get_metadata(file, 1, &key, &value));
    assert_string_equal(key, "who");
    assert_string_equal(value, "me");
    assert_fails(lac_file_get_metadata(file, 2, &key, &value), LAC_STATUS_NOT_FOUND, "2");
    lac_file_close(file);
}

static void reads_empty_and_zero_length(void **state)
{
    (void)state;
    lac_file *file = NULL;
    lac_file_info info = {.size = sizeof info};
    lac_tensor_info tensor = {.size = sizeof tensor};
    assert_ok(lac_file_open(write_safetensors("none.safetensors", "{}", 0), &file));
    assert_ok(lac_file_get_info(file, &info));
    assert_int_equal(info.tensors, 0);
    lac_file_close(file);
    const char *header = "{\"z\":{\"dtype\":\"F32\",\"shape\":[0,4],\"data_offsets\":[0,0]},"
                         "\"w\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
                         "\"y\":{\"dtype\":\"F16\",\"shape\":[3,0],\"data_offsets\":[2,2]}}";
    assert_ok(lac_file_open(write_safetensors("zero.safetensors", header, 2), &file));
    assert_ok(lac_file_find_tensor(file, "y", &tensor));
    assert_int_equal(tensor.bytes, 0);
    assert_non_null(tensor.data);
    lac_matrix out = {.dtype = LAC_DTYPE_F32, .rows = 0, .cols = 4};
    assert_ok(lac_file_read_matrix(file, "z", &out));
    lac_file_close(file);
}

static void reads_every_type(void **state)
{
    (void)state;
    static const struct {
        const char *type;
        int bits;
        lac_dtype dtype;
    } types[] = {{"BOOL", 8, 0},
                 {"U8", 8, 0},
                 {"I8", 8, LAC_DTYPE_I8},
                 {"F8_E5M2", 8, LAC_DTYPE_E5M2},
                 {"F8_E4M3", 8, LAC_DTYPE_E4M3},
                 {"F8_E8M0", 8, 0},
                 {"I16", 16, 0},
                 {"U16", 16, 0},
                 {"F16", 16, LAC_DTYPE_F16},
                 {"BF16", 16, LAC_DTYPE_BF16},
                 {"I32", 32, 0},
                 {"U32", 32, 0},
                 {"F32", 32, LAC_DTYPE_F32},
                 {"C64", 64, 0},
                 {"F64", 64, LAC_DTYPE_F64},
                 {"I64", 64, 0},
                 {"U64", 64, 0},
                 {"F4", 4, 0},
                 {"F6_E2M3", 6, 0},
                 {"F6_E3M2", 6, 0}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        char header[256];
        int bytes = types[i].bits * 4 / 8;
        snprintf(header, sizeof header, "{\"t\":{\"dtype\":\"%s\",\"shape\":[4],\"data_offsets\":[0,%d]}}", types[i].type,
                 bytes);
        lac_file *file = NULL;
        lac_tensor_info tensor = {.size = sizeof tensor};
        assert_ok(lac_file_open(write_safetensors("type.safetensors", header, (size_t)bytes), &file));
        assert_ok(lac_file_find_tensor(file, "t", &tensor));
        assert_string_equal(tensor.type, types[i].type);
        assert_int_equal(tensor.dtype, types[i].dtype);
        lac_file_close(file);
    }
}

static void refuses_bad_lengths(void **state)
{
    (void)state;
    const char *path = test_path("length.safetensors");
    test_write_file(path, "", 0);
    expect_refused(path, LAC_STATUS_BAD_FILE, WORDS("empty"));
    test_write_file(path, "\1\0\0", 3);
    expect_refused(path, LAC_STATUS_BAD_FILE, WORDS("truncated", "3 bytes"));
    test_write_file(path, "\377\377\377\377\377\377\377\377{}", 10);
    expect_refused(path, LAC_STATUS_BAD_FILE, WORDS("18446744073709551615", "100000000"));
    test_write_file(path, "\1\341\365\5\0\0\0\0{}", 10); /* 100,000,001 */
    expect_refused(path, LAC_STATUS_BAD_FILE, WORDS("100000001", "limit"));
    test_write_file(path, "\3\0\0\0\0\0\0\0{}", 10);
    expect_refused(path, LAC_STATUS_BAD_FILE, WORDS("truncated", "header length 3", "only 2"));
    test_write_file(path, "\0\0\0\0\0\0\0\0", 8);
    expect_refused(path, LAC_STATUS_BAD_FILE, WORDS("0 bytes", "'{'"));
    test_write_file(path, "\3\0\0\0\0\0\0\0 {}", 11);
    expect_refused(path, LAC_STATUS_BAD_FILE, WORDS("does not begin with '{'"));
    test_write_file(path, "plain text of no kind", 21);
    expect_refused(path, LAC_STATUS_BAD_FILE, WORDS("neither safetensors"));
}

static void refuses_bad_json(void **state)
{
    (void)state;
    expect_bad("{\"a\":", 0, WORDS("header", "JSON"));
    expect_bad("{},{}", 0, WORDS("JSON", "one object"));
    expect_bad("{}]", 0, WORDS("JSON"));
    expect_bad("{}],[{}", 0, WORDS("JSON"));
    expect_bad("{} {}", 0, WORDS("JSON", "after \"{} {\""));
    expect_bad("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_"
               "offsets\":[0,1]}}",
               1, WORDS("duplicate", "\"a\""));
    expect_bad("{\"a\xff\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, WORDS("0xff"));
    expect_bad("{\"a\\u0000b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, WORDS("u0000"));
    expect_bad("{\"big\":{\"dtype\":\"U8\",\"shape\":[99999999999999999999],\"data_offsets\":[0,1]}}", 1,
               WORDS("too big", "99999999999999999999", "big"));
    expect_bad("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, WORDS("duplicate"));
}

static void refuses_bad_tensors(void **state)
{
    (void)state;
    static const struct {
        const char *entry;
        size_t bytes;
        const char *words[4];
    } cases[] = {
        {"3", 0, {"is 3, not an object"}},
        {"{\"shape\":[1],\"data_offsets\":[0,1]}", 1, {"dtype is missing"}},
        {"{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,1]}", 1, {"dtype is 7"}},
        {"{\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,1]}", 1, {"unknown dtype 'F33'"}},
        {"{\"dtype\":{\"a\":1},\"shape\":[1],\"data_offsets\":[0,1]}", 1, {"dtype is an object of 1"}},
        {"{\"dtype\":true,\"shape\":[1],\"data_offsets\":[0,1]}", 1, {"dtype is true"}},
        {"{\"dtype\":\"U8\",\"data_offsets\":[0,1]}", 1, {"shape is missing"}},
        {"{\"dtype\":\"U8\",\"shape\":1,\"data_offsets\":[0,1]}", 1, {"shape is 1, not an array"}},
        {"{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]}", 1, {"shape[0] is negative: -1"}},
        {"{\"dtype\":\"U8\",\"shape\":[1,1.5],\"data_offsets\":[0,1]}", 1, {"shape[1] is 1.5, not an integer"}},
        {"{\"dtype\":\"U8\",\"shape\":[1.0],\"data_offsets\":[0,1]}", 1, {"shape[0] is 1, not an integer"}},
        {"{\"dtype\":\"U8\",\"shape\":[\"1\"],\"data_offsets\":[0,1]}", 1, {"shape[0] is '1', not an integer"}},
        {"{\"dtype\":\"U8\",\"shape\":[1]}", 1, {"data_offsets is missing"}},
        {"{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1]}", 1, {"data_offsets is an array of 1"}},
        {"{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[-1,0]}", 1, {"data_offsets[0] is negative: -1"}},
        {"{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,null]}", 1, {"data_offsets[1] is null"}},
        {"{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,0]}", 1, {"end 0", "before begin 1"}},
        {"{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}", 1, {"truncated", "[0, 2]", "only 1"}},
        {"{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[9223372036854775806,9223372036854775807]}", 1, {"truncated"}},
        {"{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,3]}", 3, {"span 3 bytes", "needs 4"}},
        {"{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}", 1, {"whole number of bytes"}},
        {"{\"dtype\":\"F64\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,1]}", 1, {"overflow"}},
        {"{\"dtype\":\"U8\",\"shape\":[9223372036854775807,9223372036854775807,0],\"data_offsets\":[0,0]}", 0, {"overflow"}},
        {"{\"dtype\":\"U8\",\"shape\":[9223372036854775807],\"data_offsets\":[0,1]}", 1, {"overflow"}},
        {"{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}", 3, {"2 trailing bytes", "of 3"}},
        {"{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}", 2, {"hole of 1 bytes", "begins at 1"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char header[512];
        snprintf(header, sizeof header, "{\"the.tensor\":%s}", cases[i].entry);
        expect_bad(header, cases[i].bytes, cases[i].words);
        if (cases[i].bytes < 3) assert_non_null(strstr(lac_last_error(), "the.tensor"));
    }
    const char *deep = "{\"the.tensor\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}";
    expect_refused(write_safetensors("deep.safetensors", deep, 1), LAC_STATUS_UNSUPPORTED, WORDS("the.tensor", "rank 9", "8"));
}

static void refuses_bad_cover(void **state)
{
    (void)state;
    expect_bad("{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_"
               "offsets\":[2,5]}}",
               5, WORDS("'b' begins at 2", "overlaps 'a'", "ends at 3"));
    expect_bad("{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_"
               "offsets\":[0,3]}}",
               3, WORDS("'b' begins at 0", "overlaps 'a'"));
    expect_bad("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_"
               "offsets\":[3,5]}}",
               5, WORDS("hole of 1 bytes", "'b'"));
    /* A tensor of no bytes inside another one is an overlap too. */
    expect_bad("{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},\"z\":{\"dtype\":\"U8\",\"shape\":[0],\"data_"
               "offsets\":[1,1]}}",
               3, WORDS("'z' begins at 1", "overlaps 'a'"));
    expect_bad("{}", 2, WORDS("2 trailing bytes"));
}

static void refuses_bad_metadata(void **state)
{
    (void)state;
    expect_bad("{\"__metadata__\":[]}", 0, WORDS("__metadata__ is an array of 0"));
    expect_bad("{\"__metadata__\":{\"k\":1}}", 0, WORDS("__metadata__ 'k' is 1, not a string"));
    expect_bad("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0, WORDS("duplicate"));
}

/* A name from a file must not be able to steer the terminal that shows the message, nor fill it. */
static void tames_names_in_messages(void **state)
{
    (void)state;
    expect_bad("{\"\\u001b[31mred\":{\"dtype\":\"F99\",\"shape\":[],\"data_offsets\":[0,0]}}", 0, WORDS("'?[31mred'"));
    char header[2048] = "{\"";
    memset(header + 2, 'n', 1000);
    strcat(header, "\":{\"dtype\":\"F99\",\"shape\":[],\"data_offsets\":[0,0]}}");
    expect_bad(header, 0, WORDS("nnn...'", "F99"));
}

static void refuses_what_is_no_file(void **state)
{
    (void)state;
    lac_file *file = NULL;
    assert_fails(lac_file_open(test_path("absent"), &file), LAC_STATUS_IO, "No such file");
    assert_fails(lac_file_open(NULL, &file), LAC_STATUS_INVALID_ARGUMENT, "path is NULL");
    assert_fails(lac_file_open("x", NULL), LAC_STATUS_INVALID_ARGUMENT, "out is NULL");
    expect_refused("/dev/null", LAC_STATUS_BAD_FILE, WORDS("a device"));
    const char *pipe_path = test_path("pipe");
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    expect_refused(pipe_path, LAC_STATUS_BAD_FILE, WORDS("a pipe"));
    unlink(pipe_path);
    assert_null(file);
    lac_file_close(NULL);
}

static void converts_matrices(void **state)
{
    (void)state;
    const char *path = write_safetensors("convert.safetensors",
                                         "{\"pad\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                                         "\"i\":{\"dtype\":\"I16\",\"shape\":[2,2],\"data_offsets\":[1,9]},"
                                         "\"c\":{\"dtype\":\"C64\",\"shape\":[1,1],\"data_offsets\":[9,17]},"
                                         "\"t\":{\"dtype\":\"U8\",\"shape\":[1,1,2],\"data_offsets\":[17,19]},"
                                         "\"q\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[19,23]}}",
                                         23);
    lac_file *file = NULL;
    assert_ok(lac_file_open(path, &file));
    float values[4] = {0};
    lac_matrix out = {.data = values, .dtype = LAC_DTYPE_F32, .rows = 2, .cols = 2, .layout = LAC_LAYOUT_COLUMN_MAJOR};
    assert_ok(lac_file_read_matrix(file, "i", &out));
    /* Bytes 2, 3, ... 9: little-endian, unaligned, and turned into columns. */
    assert_true(values[0] == 0x0302 && values[2] == 0x0504 && values[1] == 0x0706 && values[3] == 0x0908);
    out = (lac_matrix){.data = values, .dtype = LAC_DTYPE_F32, .rows = 1, .cols = 4};
    assert_ok(lac_file_read_matrix(file, "q", &out)); /* 0x14 to 0x17: exponent 2, fractions 4 to 7 */
    for (int i = 0; i < 4; i++) assert_true(values[i] == (float)(12 + i) / 256.0f);
    assert_fails(lac_file_read_matrix(file, "i", &out), LAC_STATUS_INVALID_ARGUMENT, "2 x 2");
    out = (lac_matrix){.data = values, .dtype = LAC_DTYPE_F32, .rows = 1, .cols = 1};
    assert_fails(lac_file_read_matrix(file, "c", &out), LAC_STATUS_UNSUPPORTED, "C64");
    assert_fails(lac_file_read_matrix(file, "t", &out), LAC_STATUS_INVALID_ARGUMENT, "rank 3");
    assert_fails(lac_file_read_matrix(file, "x", &out), LAC_STATUS_NOT_FOUND, "'x'");
    lac_mask *mask = NULL;
    assert_fails(lac_file_load_mask(file, &mask), LAC_STATUS_NOT_FOUND, "no .smtx");
    lac_file_close(file);
}

/* Every bit pattern of the small floats, against their definitions. */
static void converts_small_floats(void **state)
{
    (void)state;
    static const struct {
        const char *type;
        int bytes, exponent_bits, fraction_bits;
    } types[] = {{"F8_E4M3", 1, 4, 3}, {"F8_E5M2", 1, 5, 2}, {"BF16", 2, 8, 7}, {"F16", 2, 5, 10}};
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        const int exponents = 1 << types[t].exponent_bits, fractions = 1 << types[t].fraction_bits, bias = exponents / 2 - 1;
        char header[256];
        int count = types[t].bytes == 1 ? 256 : 4096; /* of 16 bits: every sixteenth */
        unsigned char file[8 + 256 + 8192];
        int length = snprintf(header, sizeof header, "{\"t\":{\"dtype\":\"%s\",\"shape\":[%d],\"data_offsets\":[0,%d]}}",
                              types[t].type, count, count * types[t].bytes);
        memset(file, 0, 8);
        file[0] = (unsigned char)length;
        memcpy(file + 8, header, (size_t)length);
        for (int i = 0; i < count * types[t].bytes; i++) {
            int bits = types[t].bytes == 1 ? i : i / 2 * 16 + (i / 2 & 15);
            file[8 + length + i] = (unsigned char)(types[t].bytes == 2 && i % 2 ? bits >> 8 : bits);
        }
        const char *path = test_path("floats.safetensors");
        test_write_file(path, file, (uint64_t)(8 + length + count * types[t].bytes));
        static double values[4096];
        lac_file *opened = NULL;
        lac_matrix out = {.data = values, .dtype = LAC_DTYPE_F64, .rows = 1, .cols = count};
        assert_ok(lac_file_open(path, &opened));
        assert_ok(lac_file_read_matrix(opened, "t", &out));
        lac_file_close(opened);
        for (int i = 0; i < count; i++) {
            int bits = types[t].bytes == 1 ? i : i * 16 + (i & 15), fraction = bits & (fractions - 1);
            int exponent = (bits >> types[t].fraction_bits) & (exponents - 1);
            bool negative = bits >> (8 * types[t].bytes - 1) & 1, is_e4m3 = t == 0;
            double want = exponent == 0 ? ldexp(fraction, 1 - bias - types[t].fraction_bits)
                                        : ldexp(fractions + fraction, exponent - bias - types[t].fraction_bits);
            if (exponent == exponents - 1 && !is_e4m3) want = fraction ? NAN : INFINITY;
            if (is_e4m3 && exponent == 15 && fraction == 7) want = NAN;
            if (!test_same_number(values[i], negative ? -want : want))
                fail_msg("%s 0x%x is %g, not %g", types[t].type, (unsigned)bits, values[i], negative ? -want : want);
        }
    }
}

static void refuses_values_out_of_range(void **state)
{
    (void)state;
    const char *path = test_path("range.npy");
    double values[2][2] = {{1, 65504}, {INFINITY, 65520}};
    lac_matrix matrix = {.data = values, .dtype = LAC_DTYPE_F64, .rows = 2, .cols = 2};
    assert_ok(lac_matrix_save_npy(&matrix, path));
    lac_file *file = NULL;
    assert_ok(lac_file_open(path, &file));
    uint16_t halves[4] = {7, 7, 7, 7};
    lac_matrix out = {.data = halves, .dtype = LAC_DTYPE_F16, .rows = 2, .cols = 2};
    assert_fails(lac_file_read_matrix(file, "array", &out), LAC_STATUS_VALUE_OUT_OF_RANGE, "[1][1] is 65520");
    for (int i = 0; i < 4; i++) assert_int_equal(halves[i], 7);
    out.dtype = LAC_DTYPE_BF16; /* holds it */
    assert_ok(lac_file_read_matrix(file, "array", &out));
    assert_int_equal(halves[2], 0x7f80);
    lac_file_close(file);
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
        cmocka_unit_test(reads_tensors),
        cmocka_unit_test(reads_empty_and_zero_length),
        cmocka_unit_test(reads_every_type),
        cmocka_unit_test(refuses_bad_lengths),
        cmocka_unit_test(refuses_bad_json),
        cmocka_unit_test(refuses_bad_tensors),
        cmocka_unit_test(refuses_bad_cover),
        cmocka_unit_test(refuses_bad_metadata),
        cmocka_unit_test(tames_names_in_messages),
        cmocka_unit_test(refuses_what_is_no_file),
        cmocka_unit_test(converts_matrices),
        cmocka_unit_test(converts_small_floats),
        cmocka_unit_test(refuses_values_out_of_range),
    };
    return cmocka_run_group_tests_name("files", tests, NULL, clear_folder);
}
