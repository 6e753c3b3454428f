/* test_files_container.c - containers and checkpoints of several files: what they give, and that a record and its tensors
 * must agree. */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file_bytes.h"

/* n x k under a pattern, with values of no meaning. */
static lac_weight *make_weight(const char *text, int64_t n, int64_t k)
{
    static float ones[32 * 32];
    for (int i = 0; i < 32 * 32; i++) ones[i] = (float)(i % 7) + 1;
    lac_matrix dense = {.data = ones, .dtype = LAC_DTYPE_F32, .rows = n, .cols = k};
    lac_pattern pattern;
    lac_mask *mask = NULL;
    lac_weight *weight = NULL;
    assert_ok(lac_pattern_parse(text, &pattern));
    assert_ok(lac_prune(&dense, &pattern, NULL, &mask));
    assert_ok(lac_weight_compress(&dense, mask, NULL, &weight));
    lac_mask_free(mask);
    return weight;
}

/* Field by field: the padding between fields means nothing. */
static void expect_same_info(const lac_weight_info *a, const lac_weight_info *b)
{
    char left[LAC_PATTERN_TEXT_SIZE], right[LAC_PATTERN_TEXT_SIZE];
    assert_ok(lac_pattern_format(&a->pattern, left, sizeof left));
    assert_ok(lac_pattern_format(&b->pattern, right, sizeof right));
    assert_string_equal(left, right);
    assert_true(a->n == b->n && a->k == b->k && a->n_out == b->n_out && a->k_in == b->k_in);
    assert_true(a->dtype == b->dtype && a->encoding == b->encoding);
    assert_true(a->has_row_perm == b->has_row_perm && a->has_col_perm == b->has_col_perm);
    assert_true(a->kept == b->kept && a->value_bytes == b->value_bytes);
    assert_true(a->index_bytes == b->index_bytes && a->dense_bytes == b->dense_bytes);
}

/* The two hold the same parts, to the byte. */
static void expect_same_weight(const lac_weight *got, const lac_weight *want)
{
    lac_weight_info a = {.size = sizeof a}, b = {.size = sizeof b};
    assert_ok(lac_weight_get_info(got, &a));
    assert_ok(lac_weight_get_info(want, &b));
    expect_same_info(&a, &b);
    for (int part = 0; part < LAC_PART_COUNT; part++) {
        lac_span left, right;
        assert_ok(lac_weight_get_part(got, (lac_part)part, &left));
        assert_ok(lac_weight_get_part(want, (lac_part)part, &right));
        assert_int_equal(left.bytes, right.bytes);
        assert_int_equal(!left.data, !right.data);
        if (left.bytes > 0) assert_memory_equal(left.data, right.data, left.bytes);
    }
}

static void round_trips_every_family(void **state)
{
    (void)state;
    static const char *const patterns[] = {"2:4",       "1:1",       "3:5",   "25%",   "vw4:2:8", "vw4:50%",
                                           "bw2x3:1:3", "bw2x3:40%", "4:2:8", "4:4:6", "8:1:4",   "shfl4:40%"};
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        lac_weight *weight = make_weight(patterns[i], 9, 19), *again = NULL;
        const char *path = test_path("family.safetensors");
        assert_ok(lac_weight_save(weight, path, "layer.0"));
        assert_ok(lac_weight_load(path, "layer.0", &again));
        expect_same_weight(again, weight);
        lac_weight_free(again);
        assert_ok(lac_weight_load(path, NULL, &again));
        expect_same_weight(again, weight);
        lac_weight_free(again);

        lac_file *file = NULL;
        lac_file_info info = {.size = sizeof info};
        lac_weight_info stored = {.size = sizeof stored}, own = {.size = sizeof own};
        const char *name;
        assert_ok(lac_file_open(path, &file));
        assert_ok(lac_file_get_info(file, &info));
        assert_int_equal(info.tensors, 0); /* parts and padding are not tensors */
        assert_int_equal(info.weights, 1);
        assert_ok(lac_file_get_weight(file, 0, &name, &stored));
        assert_string_equal(name, "layer.0");
        assert_ok(lac_weight_get_info(weight, &own));
        expect_same_info(&stored, &own);
        const char *key;
        assert_status(lac_file_get_metadata(file, 0, &key, NULL), LAC_STATUS_NOT_FOUND); /* the record is ours */
        assert_fails(lac_file_get_weight(file, 1, &name, &stored), LAC_STATUS_NOT_FOUND, "1");
        assert_fails(lac_file_load_weight(file, "layer.1", &again), LAC_STATUS_NOT_FOUND, "'layer.1'");
        lac_tensor_info tensor = {.size = sizeof tensor};
        assert_fails(lac_file_find_tensor(file, "layer.0:values", &tensor), LAC_STATUS_NOT_FOUND, "layer.0:values");
        assert_fails(lac_file_find_tensor(file, "layer.0", &tensor), LAC_STATUS_NOT_FOUND, "compressed weight");
        lac_file_close(file);
        lac_weight_free(weight);
    }
}

static void keeps_a_shards_numbers(void **state)
{
    (void)state;
    lac_weight *whole = make_weight("shfl4:50%", 12, 8), *shard = NULL, *again = NULL;
    lac_weight_info info = {.size = sizeof info};
    assert_ok(lac_weight_shard(whole, LAC_AXIS_N, 4, 8, &shard));
    assert_ok(lac_weight_save(shard, test_path("shard.safetensors"), "s"));
    assert_ok(lac_weight_load(test_path("shard.safetensors"), "s", &again));
    expect_same_weight(again, shard);
    assert_ok(lac_weight_get_info(again, &info));
    assert_int_equal(info.n, 4);
    assert_int_equal(info.n_out, 12);
    lac_weight_free(again);
    lac_weight_free(shard);
    lac_weight_free(whole);
}

#define RECORD(text) "{\"__metadata__\":{\"lacuna\":\"" text "\"}"
#define WEIGHT(text) RECORD("{\\\"format\\\":1,\\\"weights\\\":{\\\"w\\\":{" text "}}}")
#define SOUND        "\\\"pattern\\\":\\\"2:4\\\",\\\"n\\\":2,\\\"k\\\":4,\\\"dtype\\\":\\\"F32\\\",\\\"encoding\\\":\\\"packed\\\""
#define VALUES       ",\"w:values\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}"
#define INDEX        ",\"w:index\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[16,18]}"

static void refuses_bad_records(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t bytes;
        lac_status status;
        const char *words[4];
    } cases[] = {
        {RECORD("[1") "}", 0, LAC_STATUS_BAD_FILE, {"lacuna record", "JSON"}},
        {RECORD("[1]") "}", 0, LAC_STATUS_BAD_FILE, {"record is an array of 1"}},
        {RECORD("{\\\"weights\\\":{}}") "}", 0, LAC_STATUS_BAD_FILE, {"format is missing"}},
        {RECORD("{\\\"format\\\":\\\"1\\\",\\\"weights\\\":{}}") "}", 0, LAC_STATUS_BAD_FILE, {"format is '1'"}},
        {RECORD("{\\\"format\\\":7,\\\"weights\\\":{}}") "}", 0, LAC_STATUS_UNSUPPORTED, {"format 7", "reads format 1"}},
        {RECORD("{\\\"format\\\":1}") "}", 0, LAC_STATUS_BAD_FILE, {"weights is missing"}},
        {RECORD("{\\\"format\\\":1,\\\"weights\\\":{},\\\"x\\\":1}") "}", 0, LAC_STATUS_BAD_FILE, {"unknown key 'x'"}},
        {RECORD("{\\\"format\\\":1,\\\"weights\\\":{\\\"w\\\":3}}") "}", 0, LAC_STATUS_BAD_FILE, {"weight 'w' is 3"}},
        {WEIGHT(SOUND ",\\\"bias\\\":1") "}", 0, LAC_STATUS_BAD_FILE, {"'w'", "unknown key 'bias'"}},
        {WEIGHT("\\\"n\\\":2") "}", 0, LAC_STATUS_BAD_FILE, {"'w'", "pattern is missing"}},
        {WEIGHT("\\\"pattern\\\":\\\"5:4\\\",\\\"n\\\":2,\\\"k\\\":4,\\\"dtype\\\":\\\"F32\\\",\\\"encoding\\\":"
                "\\\"packed\\\"") "}",
         0,
         LAC_STATUS_BAD_FILE,
         {"'w'", "5"}},
        {WEIGHT("\\\"pattern\\\":\\\"2:4\\\\u001b[2J\\\",\\\"n\\\":2,\\\"k\\\":4,\\\"dtype\\\":\\\"F32\\\",\\\"encoding\\\":"
                "\\\"packed\\\"") "}",
         0,
         LAC_STATUS_BAD_FILE,
         {"'w'", "'2:4?[2J'"}},
        {WEIGHT("\\\"pattern\\\":\\\"2:4\\\",\\\"n\\\":-2,\\\"k\\\":4,\\\"dtype\\\":\\\"F32\\\",\\\"encoding\\\":"
                "\\\"packed\\\"") "}",
         0,
         LAC_STATUS_BAD_FILE,
         {"'w'", "n is -2"}},
        {WEIGHT("\\\"pattern\\\":\\\"2:4\\\",\\\"n\\\":2,\\\"k\\\":2147483648,\\\"dtype\\\":\\\"F32\\\",\\\"encoding\\\":"
                "\\\"packed\\\"") "}",
         0,
         LAC_STATUS_BAD_FILE,
         {"'w'", "k is 2147483648"}},
        {WEIGHT("\\\"pattern\\\":\\\"2:4\\\",\\\"n\\\":2,\\\"k\\\":4,\\\"dtype\\\":\\\"F64\\\",\\\"encoding\\\":"
                "\\\"packed\\\"") "}",
         0,
         LAC_STATUS_BAD_FILE,
         {"'w'", "dtype 'F64'"}},
        {WEIGHT("\\\"pattern\\\":\\\"2:4\\\",\\\"n\\\":2,\\\"k\\\":4,\\\"dtype\\\":\\\"F32\\\",\\\"encoding\\\":"
                "\\\"zip\\\"") "}",
         0,
         LAC_STATUS_BAD_FILE,
         {"'w'", "unknown encoding 'zip'"}},
        {WEIGHT("\\\"pattern\\\":\\\"2:4\\\",\\\"n\\\":2,\\\"k\\\":4,\\\"dtype\\\":\\\"F32\\\",\\\"encoding\\\":"
                "\\\"implicit\\\"") "}",
         0,
         LAC_STATUS_BAD_FILE,
         {"'w'", "implicit"}},
        {WEIGHT("\\\"pattern\\\":\\\"vw64:1:256\\\",\\\"n\\\":2147483647,\\\"k\\\":2147483647,\\\"dtype\\\":\\\"F32\\\","
                "\\\"encoding\\\":"
                "\\\"packed\\\"") "}",
         0,
         LAC_STATUS_BAD_FILE,
         {"'w'", "':values' is missing"}},
        {WEIGHT(SOUND) "}", 0, LAC_STATUS_BAD_FILE, {"'w'", "':values' is missing"}},
        {WEIGHT(SOUND) VALUES "}", 16, LAC_STATUS_BAD_FILE, {"'w'", "':index' is missing"}},
        {WEIGHT(SOUND) VALUES ",\"w:index\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[16,19]}}",
         19,
         LAC_STATUS_BAD_FILE,
         {"'w'", "':index' has 3 bytes, not 2"}},
        {WEIGHT(SOUND) VALUES ",\"w:index\":{\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":[16,18]}}",
         18,
         LAC_STATUS_BAD_FILE,
         {"'w'", "':index' is I8", "not U8"}},
        {WEIGHT(SOUND) VALUES ",\"w:index\":{\"dtype\":\"U8\",\"shape\":[1,2],\"data_offsets\":[16,18]}}",
         18,
         LAC_STATUS_BAD_FILE,
         {"'w'", "':index' is U8 of rank 2"}},
        {WEIGHT(SOUND) ",\"w:values\":{\"dtype\":\"F16\",\"shape\":[8],\"data_offsets\":[0,16]}" INDEX "}",
         18,
         LAC_STATUS_BAD_FILE,
         {"'w'", "':values' is F16"}},
        {WEIGHT(SOUND) VALUES INDEX ",\"w:counts\":{\"dtype\":\"U32\",\"shape\":[1],\"data_offsets\":[18,22]}}",
         22,
         LAC_STATUS_BAD_FILE,
         {"'w'", "':counts' has no place"}},
        {WEIGHT(SOUND) VALUES INDEX ",\"w:scales\":{\"dtype\":\"U32\",\"shape\":[1],\"data_offsets\":[18,22]}}",
         22,
         LAC_STATUS_BAD_FILE,
         {"'w'", "':scales' has no place"}},
        {WEIGHT(SOUND ",\\\"n_out\\\":5") VALUES INDEX "}", 18, LAC_STATUS_BAD_FILE, {"'w'", "n_out is 5"}},
        {WEIGHT(SOUND ",\\\"n_out\\\":0") VALUES INDEX "}", 18, LAC_STATUS_BAD_FILE, {"'w'", "n_out is 0"}},
        {WEIGHT(SOUND ",\\\"k_in\\\":0") VALUES INDEX "}", 18, LAC_STATUS_BAD_FILE, {"'w'", "k_in is 0"}},
        {WEIGHT(SOUND) VALUES INDEX ",\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[18,19]}}",
         19,
         LAC_STATUS_BAD_FILE,
         {"'w'", "both a weight and a tensor"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_refused(write_safetensors("record.safetensors", cases[i].header, cases[i].bytes), cases[i].status,
                       cases[i].words);
}

/* The tables agree, but the bits of the index do not obey the pattern: found when the weight is loaded. */
static void refuses_bad_parts(void **state)
{
    (void)state;
    const char *path = write_safetensors("parts.safetensors", WEIGHT(SOUND) VALUES INDEX "}", 18);
    lac_file *file = NULL;
    lac_weight *weight = NULL;
    assert_ok(lac_file_open(path, &file));
    assert_fails(lac_file_load_weight(file, "w", &weight), LAC_STATUS_BAD_FILE, path);
    assert_non_null(strstr(lac_last_error(), "weight 'w'"));
    assert_null(weight);
    lac_file_close(file);
}

static void write_index(const char *name, const char *text) { test_write_file(test_path(name), text, strlen(text)); }

static void opens_checkpoints_of_several_files(void **state)
{
    (void)state;
    test_folder_clear();
    lac_weight *weight = make_weight("2:4", 8, 16), *again = NULL;
    write_safetensors("one.safetensors",
                      "{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
                      "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}",
                      3);
    write_safetensors(
        "two.safetensors",
        "{\"__metadata__\":{\"format\":\"pt\",\"x\":\"y\"},\"c\":{\"dtype\":\"F16\",\"shape\":[1,2],\"data_offsets\":[0,4]}}",
        4);
    assert_ok(lac_weight_save(weight, test_path("three.safetensors"), "w"));
    write_index("model.safetensors.index.json",
                " {\"metadata\":{\"total_size\":7},\"weight_map\":{\"a\":\"one.safetensors\",\"c\":\"two.safetensors\","
                "\"b\":\"one.safetensors\",\"w:values\":\"three.safetensors\",\"w:index\":\"three.safetensors\"}}");
    const char *paths[] = {test_path("model.safetensors.index.json"), test_folder()};
    for (int i = 0; i < 2; i++) {
        lac_file *file = NULL;
        lac_file_info info = {.size = sizeof info};
        lac_tensor_info tensor = {.size = sizeof tensor};
        assert_ok(lac_file_open(paths[i], &file));
        assert_ok(lac_file_get_info(file, &info));
        assert_int_equal(info.files, 3);
        assert_int_equal(info.tensors, 3);
        assert_int_equal(info.weights, 1);
        assert_ok(lac_file_find_tensor(file, "c", &tensor));
        assert_non_null(strstr(tensor.path, "two.safetensors"));
        assert_int_equal(tensor.dtype, LAC_DTYPE_F16);
        assert_ok(lac_file_load_weight(file, "w", &again));
        expect_same_weight(again, weight);
        lac_weight_free(again);
        const char *key, *value;
        assert_ok(lac_file_get_metadata(file, 1, &key, &value)); /* "format" of both files stands once */
        assert_string_equal(key, "x");
        assert_status(lac_file_get_metadata(file, 2, &key, &value), LAC_STATUS_NOT_FOUND);
        lac_file_close(file);
    }
    lac_weight_free(weight);
}

static void refuses_bad_checkpoints(void **state)
{
    (void)state;
    test_folder_clear();
    const char *index = test_path("model.safetensors.index.json");
    expect_refused(test_folder(), LAC_STATUS_NOT_FOUND, WORDS("holds no *.safetensors"));
    static const struct {
        const char *text;
        lac_status status;
        const char *words[4];
    } cases[] = {
        {"{", LAC_STATUS_BAD_FILE, {"index", "JSON"}},
        {"{\"metadata\":{}}", LAC_STATUS_BAD_FILE, {"weight_map is missing"}},
        {"{\"weight_map\":[]}", LAC_STATUS_BAD_FILE, {"weight_map is an array"}},
        {"{\"weight_map\":{\"a\":1}}", LAC_STATUS_BAD_FILE, {"weight_map 'a' is 1"}},
        {"{\"weight_map\":{\"a\":\"\"}}", LAC_STATUS_BAD_FILE, {"'a'", "''"}},
        {"{\"weight_map\":{\"a\":\"..\"}}", LAC_STATUS_BAD_FILE, {"'a'", "'..'"}},
        {"{\"weight_map\":{\"a\":\"../one.safetensors\"}}", LAC_STATUS_BAD_FILE, {"'a'", "'../one.safetensors'"}},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", LAC_STATUS_BAD_FILE, {"'a'", "'/etc/passwd'"}},
        {"{\"weight_map\":{\"a\":\"gone.safetensors\"}}", LAC_STATUS_IO, {"gone.safetensors", "No such file"}},
        {"{\"weight_map\":{\"a\":\"one.safetensors\",\"z\":\"one.safetensors\"}}",
         LAC_STATUS_BAD_FILE,
         {"'z'", "holds no such tensor"}},
        {"{\"weight_map\":{\"__metadata__\":\"one.safetensors\"}}", LAC_STATUS_BAD_FILE, {"__metadata__"}},
    };
    write_safetensors("one.safetensors", "{\"__metadata__\":{},\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}",
                      2);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_index("model.safetensors.index.json", cases[i].text);
        expect_refused(index, cases[i].status, cases[i].words);
    }
    write_safetensors("two.safetensors",
                      "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\",\"shape\":[0],"
                      "\"data_offsets\":[2,2]}}",
                      2);
    write_index("model.safetensors.index.json", "{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\"}}");
    lac_file *file = NULL;
    assert_fails(lac_file_open(index, &file), LAC_STATUS_BAD_FILE, "tensor 'a' is also in");
    unlink(index);
    expect_refused(test_folder(), LAC_STATUS_BAD_FILE,
                   WORDS("one.safetensors", "two.safetensors", "no *.safetensors.index.json"));
    unlink(test_path("two.safetensors"));
    assert_ok(lac_file_open(test_folder(), &file)); /* the only one */
    lac_file_close(file);
    write_safetensors("model.safetensors", "{}", 0); /* has the last word */
    assert_ok(lac_file_open(test_folder(), &file));
    lac_file_info info = {.size = sizeof info};
    assert_ok(lac_file_get_info(file, &info));
    assert_int_equal(info.tensors, 0);
    lac_file_close(file);
}

static void needs_a_name_among_several(void **state)
{
    (void)state;
    const char *path = test_path("several.safetensors");
    lac_weight *weight = make_weight("2:4", 2, 4), *again = NULL;
    lac_writer *writer = NULL;
    static const char *const names[] = {"b", "a", "c"};
    assert_ok(lac_writer_open(path, &writer));
    for (int i = 0; i < 3; i++) assert_ok(lac_writer_declare_weight(writer, names[i], NULL, weight));
    for (int i = 0; i < 3; i++) assert_ok(lac_writer_write_weight(writer, names[i], weight));
    assert_ok(lac_writer_commit(writer));
    lac_writer_free(writer);
    assert_fails(lac_weight_load(path, NULL, &again), LAC_STATUS_INVALID_ARGUMENT, "holds 3 weights");
    for (int i = 0; i < 3; i++) {
        assert_ok(lac_weight_load(path, names[i], &again));
        expect_same_weight(again, weight);
        lac_weight_free(again);
    }
    assert_fails(lac_weight_load(path, "d", &again), LAC_STATUS_NOT_FOUND, "'d'");
    lac_weight_free(weight);
}

static void refuses_a_weight_in_two_files(void **state)
{
    (void)state;
    test_folder_clear();
    lac_weight *weight = make_weight("2:4", 2, 4);
    assert_ok(lac_weight_save(weight, test_path("one.safetensors"), "w"));
    assert_ok(lac_weight_save(weight, test_path("two.safetensors"), "w"));
    write_index("x.safetensors.index.json",
                "{\"weight_map\":{\"w:values\":\"one.safetensors\",\"w:index\":\"two.safetensors\"}}");
    lac_file *file = NULL;
    assert_fails(lac_file_open(test_folder(), &file), LAC_STATUS_BAD_FILE, "weight 'w' is also in");
    lac_weight_free(weight);
}

static int clear_folder(void **state)
{
    (void)state;
    test_folder_clear();
    return 0;
}

/* docs/format.md: a missing part counts as one of no bytes where none are due. */
static void takes_missing_parts_for_empty_ones(void **state)
{
    (void)state;
    const char *header = WEIGHT(
        "\\\"pattern\\\":\\\"2:4\\\",\\\"n\\\":0,\\\"k\\\":4,\\\"dtype\\\":\\\"F32\\\",\\\"encoding\\\":\\\"packed\\\"") "}";
    lac_weight *weight = NULL;
    const char *path = write_safetensors("empty.safetensors", header, 0);
    assert_ok(lac_weight_load(path, "w", &weight));
    lac_weight_free(weight);

    /* A free distribution may keep nothing: counts of zero, and neither values nor columns. */
    static unsigned char file[1024];
    header = WEIGHT("\\\"pattern\\\":\\\"50%\\\",\\\"n\\\":2,\\\"k\\\":4,\\\"dtype\\\":\\\"F32\\\",\\\"encoding\\\":"
                    "\\\"columns\\\"") ",\"w:counts\":{\"dtype\":\"U32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
    file[0] = (unsigned char)strlen(header);
    memcpy(file + 8, header, strlen(header));
    size_t bytes = 8 + strlen(header) + 8;
    test_write_file(path, file, bytes);
    assert_ok(lac_weight_load(path, "w", &weight));
    lac_weight_info info = {.size = sizeof info};
    assert_ok(lac_weight_get_info(weight, &info));
    assert_int_equal(info.kept, 0);
    lac_weight_free(weight);
    file[bytes - 1] = 1;
    test_write_file(path, file, bytes);
    expect_refused(path, LAC_STATUS_BAD_FILE, WORDS("'w'", "':values' is missing"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trips_every_family),
        cmocka_unit_test(keeps_a_shards_numbers),
        cmocka_unit_test(refuses_bad_records),
        cmocka_unit_test(takes_missing_parts_for_empty_ones),
        cmocka_unit_test(refuses_bad_parts),
        cmocka_unit_test(opens_checkpoints_of_several_files),
        cmocka_unit_test(refuses_bad_checkpoints),
        cmocka_unit_test(needs_a_name_among_several),
        cmocka_unit_test(refuses_a_weight_in_two_files),
    };
    return cmocka_run_group_tests_name("files: containers and checkpoints", tests, NULL, clear_folder);
}
