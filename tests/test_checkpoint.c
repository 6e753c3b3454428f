/* test_checkpoint.c - lac_checkpoint_prune from file to file: what is pruned and what is copied, that the result is the
 * masked input, the reports, cancelling, failures that leave nothing behind. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/support.h"

enum { REPORTS_MAX = 16 };

/* What on_layer was told. */
typedef struct reports {
    lac_layer_report list[REPORTS_MAX];
    char name[REPORTS_MAX][64];
    int count;
    int stop_after; /* cancels when that many have come; 0: never */
} reports;

static int collect(void *user, const lac_layer_report *report)
{
    reports *r = user;
    assert_true(r->count < REPORTS_MAX);
    assert_int_equal(report->size, sizeof *report);
    r->list[r->count] = *report;
    snprintf(r->name[r->count], sizeof r->name[0], "%s", report->name);
    r->count++;
    return r->count == r->stop_after;
}

static const lac_layer_report *report_of(const reports *r, const char *name)
{
    for (int i = 0; i < r->count; i++)
        if (strcmp(r->name[i], name) == 0) return &r->list[i];
    fail_msg("no report of %s", name);
    return NULL;
}

/* The tensors of the checkpoint that the tests prune. */
static const struct sample {
    const char *name, *type;
    int rank;
    int64_t shape[3];
    bool is_matrix;
} samples[] = {
    {"layers.0.weight", "F32", 2, {33, 40}, true},
    {"layers.0.bias", "F32", 1, {33}, false},
    {"layers.1.weight", "F16", 2, {17, 51}, true},
    {"layers.2.weight", "BF16", 2, {8, 3}, true},
    {"head.weight", "F64", 2, {5, 9}, true},
    {"ids", "I64", 2, {4, 4}, false},
    {"bytes", "U8", 2, {3, 5}, false},
    {"conv", "F32", 3, {2, 3, 4}, false},
    {"empty", "F32", 2, {0, 8}, true},
    {"scalar", "F32", 0, {0}, false},
};
enum { SAMPLES = sizeof samples / sizeof *samples };

static size_t type_size(const char *type) { return (size_t)atoi(type + strcspn(type, "0123456789")) / 8; }

static lac_dtype type_dtype(const char *type)
{
    lac_dtype dtype = LAC_DTYPE_NONE;
    if (type[0] != 'F' && type[0] != 'B') return dtype;
    assert_ok(lac_dtype_parse(type, &dtype));
    return dtype;
}

static uint64_t sample_bytes(const struct sample *s)
{
    uint64_t bytes = type_size(s->type);
    for (int i = 0; i < s->rank; i++) bytes *= (uint64_t)s->shape[i];
    return bytes;
}

/* The same bytes at every call. */
static void sample_fill(int index, void *out)
{
    const struct sample *s = &samples[index];
    test_random random = test_random_make("checkpoint", index);
    uint64_t count = sample_bytes(s) / type_size(s->type);
    for (uint64_t i = 0; i < count; i++) {
        lac_dtype dtype = type_dtype(s->type);
        uint64_t bits = dtype ? test_encode(dtype, test_random_gaussian(&random)) : test_random_bits(&random);
        memcpy((char *)out + i * type_size(s->type), &bits, type_size(s->type));
    }
}

/* Samples [first, end) in a file of their own. */
static void write_samples(const char *path, int first, int end)
{
    lac_writer *writer;
    assert_ok(lac_writer_open(path, &writer));
    assert_ok(lac_writer_set_metadata(writer, "author", "the test"));
    for (int i = first; i < end; i++) {
        const struct sample *s = &samples[i];
        lac_tensor_info info = {.size = sizeof info, .name = s->name, .type = s->type, .rank = s->rank};
        memcpy(info.shape, s->shape, sizeof s->shape);
        assert_ok(lac_writer_declare_tensor(writer, &info));
    }
    for (int i = first; i < end; i++) {
        char *data = malloc(sample_bytes(&samples[i]) + 1);
        sample_fill(i, data);
        assert_ok(lac_writer_write_tensor(writer, samples[i].name, data, sample_bytes(&samples[i])));
        free(data);
    }
    assert_ok(lac_writer_commit(writer));
    lac_writer_free(writer);
}

static int make_input(void **state)
{
    (void)state;
    test_folder_clear();
    write_samples(test_path("in.safetensors"), 0, SAMPLES);
    return 0;
}

static lac_status run(const char *in, const char *out, const char *pattern, lac_checkpoint_options options)
{
    lac_pattern p;
    assert_ok(lac_pattern_parse(pattern, &p));
    options.size = sizeof options;
    options.pattern = &p;
    return lac_checkpoint_prune(test_path(in), test_path(out), &options);
}

/* Tensor `index` of the result is its sample, byte for byte. */
static void expect_copied(const lac_file *file, int index)
{
    lac_tensor_info info = {.size = sizeof info};
    uint64_t bytes = sample_bytes(&samples[index]);
    char *data = malloc(bytes + 1);
    sample_fill(index, data);
    assert_ok(lac_file_find_tensor(file, samples[index].name, &info));
    assert_string_equal(info.type, samples[index].type);
    assert_int_equal(info.rank, samples[index].rank);
    for (int i = 0; i < info.rank; i++) assert_int_equal(info.shape[i], samples[index].shape[i]);
    assert_int_equal(info.bytes, bytes);
    if (bytes > 0) assert_memory_equal(info.data, data, bytes);
    free(data);
}

/* The result holds the sample masked by lac_prune, compressed or dense; the report tells the energy of the mask. */
static void expect_pruned(const lac_file *file, int index, const char *pattern, bool dense, const lac_layer_report *report)
{
    const struct sample *s = &samples[index];
    lac_dtype dtype = type_dtype(s->type), stored = !dense && dtype == LAC_DTYPE_F64 ? LAC_DTYPE_F32 : dtype;
    test_matrix want = test_matrix_make(s->shape[0], s->shape[1], dtype, LAC_LAYOUT_ROW_MAJOR, 0, 0);
    test_matrix got = test_matrix_make(s->shape[0], s->shape[1], stored, LAC_LAYOUT_ROW_MAJOR, 0, 0);
    lac_pattern p;
    lac_mask *mask;
    double kept, total;
    sample_fill(index, want.view.data);
    assert_ok(lac_pattern_parse(pattern, &p));
    assert_ok(lac_prune(&want.view, &p, NULL, &mask));
    assert_ok(lac_mask_energy(mask, &want.view, &kept, &total));
    assert_ok(lac_mask_apply(mask, &want.view));
    assert_true(report->energy_kept == (total > 0 ? kept / total : 1));
    assert_int_equal(report->n, s->shape[0]);
    assert_int_equal(report->k, s->shape[1]);
    assert_int_equal(report->dense_bytes, sample_bytes(s));
    if (dense) {
        assert_ok(lac_file_read_matrix(file, s->name, &got.view));
        assert_int_equal(report->stored_bytes, sample_bytes(s));
    } else {
        lac_weight *weight;
        lac_weight_info info = {.size = sizeof info};
        assert_ok(lac_file_load_weight(file, s->name, &weight));
        assert_ok(lac_weight_get_info(weight, &info));
        assert_int_equal(info.dtype, stored);
        assert_int_equal(report->stored_bytes, info.value_bytes + info.index_bytes);
        assert_ok(lac_weight_decompress(weight, &got.view));
        lac_weight_free(weight);
    }
    for (int64_t r = 0; r < s->shape[0]; r++)
        for (int64_t c = 0; c < s->shape[1]; c++)
            assert_true(test_matrix_get(&got, r, c) == test_rounded(stored, test_matrix_get(&want, r, c)));
    lac_mask_free(mask);
    test_matrix_free(&want);
    test_matrix_free(&got);
}

static void expect_metadata(const lac_file *file, const char *key, const char *value)
{
    const char *k, *v;
    for (int64_t i = 0; lac_file_get_metadata(file, i, &k, &v) == LAC_STATUS_OK; i++)
        if (strcmp(k, key) == 0) {
            assert_string_equal(v, value);
            return;
        }
    fail_msg("no metadata %s", key);
}

static void expect_result(const char *out, const char *pattern, bool dense, const reports *r)
{
    lac_file *file;
    assert_ok(lac_file_open(test_path(out), &file));
    lac_file_info info = {.size = sizeof info};
    assert_ok(lac_file_get_info(file, &info));
    int64_t weights = 0;
    uint64_t bytes = 0;
    for (int i = 0; i < SAMPLES; i++) {
        const lac_layer_report *report = report_of(r, samples[i].name);
        bytes += sample_bytes(&samples[i]);
        assert_int_equal(report->pruned, *report->reason == '\0');
        if (report->pruned) {
            expect_pruned(file, i, pattern, dense, report);
            weights += !dense;
        } else {
            expect_copied(file, i);
            assert_true(report->energy_kept == 1 && report->stored_bytes == sample_bytes(&samples[i]));
        }
    }
    assert_int_equal(r->count, SAMPLES);
    for (int i = 0; i < r->count; i++) {
        assert_int_equal(r->list[i].index, i);
        assert_int_equal(r->list[i].total, SAMPLES);
        assert_int_equal(r->list[i].bytes_total, bytes);
        assert_true(r->list[i].seconds >= 0);
    }
    assert_int_equal(r->list[r->count - 1].bytes_done, bytes);
    assert_int_equal(info.weights, weights);
    assert_int_equal(info.tensors, SAMPLES - weights);
    lac_file_close(file);
}

static const char *const patterns[] = {"2:4",       "8:32",      "25%",    "vw4:2:8", "vw64:8:32",
                                       "bw4x4:2:8", "bw3x2:30%", "16:2:8", "4:1:20",  "shfl4:25%"};

static void test_every_family(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        for (int dense = 0; dense < 2; dense++) {
            reports r = {0};
            print_message("%s%s\n", patterns[i], dense ? ", kept dense" : "");
            assert_ok(run("in.safetensors", "out.safetensors", patterns[i],
                          (lac_checkpoint_options){.keep_dense = dense, .on_layer = collect, .user = &r}));
            for (int s = 0; s < SAMPLES; s++) assert_int_equal(report_of(&r, samples[s].name)->pruned, samples[s].is_matrix);
            expect_result("out.safetensors", patterns[i], dense, &r);
        }
    }
    lac_file *file;
    assert_ok(lac_file_open(test_path("out.safetensors"), &file));
    expect_metadata(file, "author", "the test");
    lac_file_close(file);
    assert_int_equal(test_folder_files(), 2);
}

static void test_include_exclude(void **state)
{
    (void)state;
    const char *include[] = {"layers.*", "h??d.[a-w]eight"}, *exclude[] = {"*.1.weight"};
    reports r = {0};
    assert_ok(run(
        "in.safetensors", "out.safetensors", "2:4",
        (lac_checkpoint_options){
            .include = include, .include_count = 2, .exclude = exclude, .exclude_count = 1, .on_layer = collect, .user = &r}));
    expect_result("out.safetensors", "2:4", false, &r);
    assert_string_equal(report_of(&r, "layers.0.weight")->reason, "");
    assert_string_equal(report_of(&r, "layers.2.weight")->reason, "");
    assert_string_equal(report_of(&r, "head.weight")->reason, "");
    assert_string_equal(report_of(&r, "layers.1.weight")->reason, "excluded");
    assert_string_equal(report_of(&r, "layers.0.bias")->reason, "not a matrix");
    assert_string_equal(report_of(&r, "ids")->reason, "not of a floating type");
    assert_string_equal(report_of(&r, "empty")->reason, "not included");
}

static void test_cancel(void **state)
{
    (void)state;
    for (int stop = 1; stop <= SAMPLES; stop++) {
        reports r = {.stop_after = stop};
        assert_fails(run("in.safetensors", "out.safetensors", "2:4", (lac_checkpoint_options){.on_layer = collect, .user = &r}),
                     LAC_STATUS_CANCELLED, samples[stop - 1].name);
        assert_int_equal(r.count, stop);
        assert_int_equal(test_folder_files(), 1);
    }
}

/* A weight compressed before stays as it is; the file may even be its own output. */
static void test_again(void **state)
{
    (void)state;
    const char *only[] = {"layers.0.*"}, *key, *value;
    reports r = {0};
    assert_ok(
        run("in.safetensors", "again.safetensors", "shfl8:30%", (lac_checkpoint_options){.include = only, .include_count = 1}));
    lac_weight *first, *second;
    assert_ok(lac_weight_load(test_path("again.safetensors"), "layers.0.weight", &first));
    assert_ok(run("again.safetensors", "again.safetensors", "2:4", (lac_checkpoint_options){.on_layer = collect, .user = &r}));
    assert_ok(lac_weight_load(test_path("again.safetensors"), "layers.0.weight", &second));
    for (int part = 0; part < LAC_PART_COUNT; part++) {
        lac_span a, b;
        assert_ok(lac_weight_get_part(first, (lac_part)part, &a));
        assert_ok(lac_weight_get_part(second, (lac_part)part, &b));
        assert_int_equal(a.bytes, b.bytes);
        if (a.bytes > 0) assert_memory_equal(a.data, b.data, a.bytes);
    }
    assert_string_equal(report_of(&r, "layers.0.weight")->reason, "compressed already");
    assert_int_equal(report_of(&r, "layers.1.weight")->pruned, 1);
    assert_int_equal(r.list[r.count - 1].bytes_done, r.list[r.count - 1].bytes_total);
    lac_file *file;
    int records = 0;
    assert_ok(lac_file_open(test_path("again.safetensors"), &file));
    expect_copied(file, 1);
    for (int64_t i = 0; lac_file_get_metadata(file, i, &key, &value) == LAC_STATUS_OK; i++)
        records += strcmp(key, "lacuna") == 0;
    assert_true(records <= 1);
    lac_file_close(file);
    lac_weight_free(first);
    lac_weight_free(second);
}

static void test_several_files(void **state)
{
    (void)state;
    char text[2048] = "{\"metadata\": {}, \"weight_map\": {";
    write_samples(test_path("part-1.safetensors"), 0, 4);
    write_samples(test_path("part-2.safetensors"), 4, SAMPLES);
    for (int i = 0; i < SAMPLES; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s\"%s\": \"part-%d.safetensors\"", i ? ", " : "",
                 samples[i].name, i < 4 ? 1 : 2);
    strcat(text, "}}");
    test_write_file(test_path("model.safetensors.index.json"), text, strlen(text));
    reports r = {0};
    assert_ok(run("model.safetensors.index.json", "out.safetensors", "2:4",
                  (lac_checkpoint_options){.on_layer = collect, .user = &r}));
    lac_file *file;
    assert_ok(lac_file_open(test_path("out.safetensors"), &file));
    for (int i = 0; i < SAMPLES; i++) {
        if (samples[i].is_matrix)
            expect_pruned(file, i, "2:4", false, report_of(&r, samples[i].name));
        else
            expect_copied(file, i);
    }
    lac_file_close(file);
}

/* safetensors does not align its data: floats may begin anywhere. */
static void test_unaligned(void **state)
{
    (void)state;
    for (int pad = 0; pad < 8; pad++) {
        char file[256] = {0}, header[128];
        snprintf(header, sizeof header, "{\"w\":{\"dtype\":\"F64\",\"shape\":[1,4],\"data_offsets\":[0,32]}}%*s", pad, "");
        uint64_t length = strlen(header);
        const double values[4] = {1, -4, 3, 2};
        memcpy(file, &length, 8);
        memcpy(file + 8, header, length);
        memcpy(file + 8 + length, values, sizeof values);
        test_write_file(test_path("odd.safetensors"), file, 8 + length + sizeof values);
        for (int dense = 0; dense < 2; dense++) {
            double got[4];
            lac_matrix out = {.data = got, .dtype = LAC_DTYPE_F64, .rows = 1, .cols = 4};
            lac_weight *weight;
            lac_file *result;
            assert_ok(run("odd.safetensors", "out.safetensors", "2:4", (lac_checkpoint_options){.keep_dense = dense}));
            if (dense) {
                assert_ok(lac_file_open(test_path("out.safetensors"), &result));
                assert_ok(lac_file_read_matrix(result, "w", &out));
                lac_file_close(result);
            } else {
                assert_ok(lac_weight_load(test_path("out.safetensors"), NULL, &weight));
                assert_ok(lac_weight_decompress(weight, &out));
                lac_weight_free(weight);
            }
            assert_memory_equal(got, ((double[4]){0, -4, 3, 0}), sizeof got);
        }
    }
}

static void test_failures(void **state)
{
    (void)state;
    lac_pattern p = {LAC_FAMILY_ELEMENT, 1, 1, 2, 4, 0}, bad = {LAC_FAMILY_ELEMENT, 1, 1, 9, 4, 0};
    lac_checkpoint_options o = {.size = sizeof o};
    const char *in = test_path("in.safetensors"), *out = test_path("out.safetensors"), *none[] = {NULL};
    assert_fails(lac_checkpoint_prune(NULL, out, &o), LAC_STATUS_INVALID_ARGUMENT, "in");
    assert_fails(lac_checkpoint_prune(in, NULL, &o), LAC_STATUS_INVALID_ARGUMENT, "out");
    assert_fails(lac_checkpoint_prune(in, out, NULL), LAC_STATUS_INVALID_ARGUMENT, "options");
    assert_fails(lac_checkpoint_prune(in, out, &o), LAC_STATUS_INVALID_ARGUMENT, "pattern");
    o.pattern = &bad;
    assert_fails(lac_checkpoint_prune(in, out, &o), LAC_STATUS_INVALID_ARGUMENT, "9");
    o.pattern = &p, o.include_count = 1;
    assert_fails(lac_checkpoint_prune(in, out, &o), LAC_STATUS_INVALID_ARGUMENT, "include");
    o.include = none;
    assert_fails(lac_checkpoint_prune(in, out, &o), LAC_STATUS_INVALID_ARGUMENT, "include[0]");
    o.include_count = 0, o.exclude_count = 2;
    assert_fails(lac_checkpoint_prune(in, out, &o), LAC_STATUS_INVALID_ARGUMENT, "exclude");
    o.exclude_count = 0, o.keep_dense = 2;
    assert_fails(lac_checkpoint_prune(in, out, &o), LAC_STATUS_INVALID_ARGUMENT, "keep_dense");
    lac_prune_options prune = {0};
    lac_compress_options compress = {0};
    o.keep_dense = 0, o.prune = &prune, o.compress = &compress;
    assert_fails(lac_checkpoint_prune(in, out, &o), LAC_STATUS_INVALID_ARGUMENT, "options->prune->size is 0");
    prune.size = sizeof prune;
    assert_fails(lac_checkpoint_prune(in, out, &o), LAC_STATUS_INVALID_ARGUMENT, "options->compress->size is 0");
    compress.size = sizeof compress, prune.score = (lac_score)9;
    assert_fails(lac_checkpoint_prune(in, out, &o), LAC_STATUS_INVALID_ARGUMENT, "layers.0.weight");
    prune.score = LAC_SCORE_L1, compress.dtype = LAC_DTYPE_F64;
    assert_fails(lac_checkpoint_prune(in, out, &o), LAC_STATUS_INVALID_ARGUMENT, "layers.0.weight");
    compress.dtype = LAC_DTYPE_NONE;
    assert_status(lac_checkpoint_prune(test_path("missing"), out, &o), LAC_STATUS_IO);
    assert_status(lac_checkpoint_prune(in, test_path("missing/out"), &o), LAC_STATUS_IO);

    float large[4] = {1e6f, 2, 3, 4};
    lac_writer *writer;
    lac_tensor_info info = {.size = sizeof info, .name = "big", .dtype = LAC_DTYPE_F32, .rank = 2, .shape = {1, 4}};
    assert_ok(lac_writer_open(test_path("big.safetensors"), &writer));
    assert_ok(lac_writer_declare_tensor(writer, &info));
    assert_ok(lac_writer_write_tensor(writer, "big", large, sizeof large));
    assert_ok(lac_writer_commit(writer));
    lac_writer_free(writer);
    compress.dtype = LAC_DTYPE_F16;
    assert_fails(lac_checkpoint_prune(test_path("big.safetensors"), out, &o), LAC_STATUS_VALUE_OUT_OF_RANGE, "big");
    assert_int_equal(test_folder_files(), 2);
    compress.overflow = LAC_OVERFLOW_SATURATE;
    assert_ok(lac_checkpoint_prune(test_path("big.safetensors"), out, &o));
    assert_int_equal(test_folder_files(), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_every_family, make_input),  cmocka_unit_test_setup(test_include_exclude, make_input),
        cmocka_unit_test_setup(test_cancel, make_input),        cmocka_unit_test_setup(test_again, make_input),
        cmocka_unit_test_setup(test_several_files, make_input), cmocka_unit_test_setup(test_unaligned, make_input),
        cmocka_unit_test_setup(test_failures, make_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
