/* test_api.c - the public header as a contract: it compiles as C11 and as C++, its numbers are fixed, its structs can grow,
 * its log and its version work. What each function refuses is in test_arguments.c. */
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"

/* ---- numbers that callers have compiled in */

#define FIXED(name, number) _Static_assert((name) == (number), #name " has changed its number")

FIXED(LAC_STATUS_OK, 0);
FIXED(LAC_STATUS_INVALID_ARGUMENT, 1);
FIXED(LAC_STATUS_OUT_OF_MEMORY, 2);
FIXED(LAC_STATUS_IO, 3);
FIXED(LAC_STATUS_BAD_FILE, 4);
FIXED(LAC_STATUS_NOT_FOUND, 5);
FIXED(LAC_STATUS_PATTERN_VIOLATED, 6);
FIXED(LAC_STATUS_VALUE_OUT_OF_RANGE, 7);
FIXED(LAC_STATUS_UNSUPPORTED, 8);
FIXED(LAC_STATUS_DEVICE, 9);
FIXED(LAC_STATUS_CANCELLED, 10);
FIXED(LAC_STATUS_INTERNAL, 11);
FIXED(LAC_LOG_LEVEL_WARNING, 1);
FIXED(LAC_LOG_LEVEL_INFO, 2);
FIXED(LAC_LOG_LEVEL_DEBUG, 3);
FIXED(LAC_DTYPE_NONE, 0);
FIXED(LAC_DTYPE_F32, 1);
FIXED(LAC_DTYPE_F16, 2);
FIXED(LAC_DTYPE_BF16, 3);
FIXED(LAC_DTYPE_F64, 4);
FIXED(LAC_DTYPE_I8, 5);
FIXED(LAC_DTYPE_E4M3, 6);
FIXED(LAC_DTYPE_E5M2, 7);
FIXED(LAC_LAYOUT_ROW_MAJOR, 0);
FIXED(LAC_LAYOUT_COLUMN_MAJOR, 1);
FIXED(LAC_LAYOUT_TOKEN_MAJOR, 0);
FIXED(LAC_LAYOUT_FEATURE_MAJOR, 1);
FIXED(LAC_FAMILY_ELEMENT, 1);
FIXED(LAC_FAMILY_VECTOR, 2);
FIXED(LAC_FAMILY_BLOCK, 3);
FIXED(LAC_FAMILY_VNM, 4);
FIXED(LAC_FAMILY_SHUFFLED, 5);
FIXED(LAC_SCORE_DEFAULT, 0);
FIXED(LAC_SCORE_L1, 1);
FIXED(LAC_SCORE_L2, 2);
FIXED(LAC_INDEX_ENCODING_AUTO, 0);
FIXED(LAC_INDEX_ENCODING_IMPLICIT, 1);
FIXED(LAC_INDEX_ENCODING_PACKED, 2);
FIXED(LAC_INDEX_ENCODING_BITMASK, 3);
FIXED(LAC_INDEX_ENCODING_COLUMNS, 4);
FIXED(LAC_OVERFLOW_ERROR, 0);
FIXED(LAC_OVERFLOW_SATURATE, 1);
FIXED(LAC_PART_VALUES, 0);
FIXED(LAC_PART_INDEX, 1);
FIXED(LAC_PART_POSITIONS, 2);
FIXED(LAC_PART_COUNTS, 3);
FIXED(LAC_PART_COLUMNS, 4);
FIXED(LAC_PART_ROW_PERM, 5);
FIXED(LAC_PART_COL_PERM, 6);
FIXED(LAC_PART_SCALES, 7);
FIXED(LAC_PART_COUNT, 8);
FIXED(LAC_AXIS_N, 0);
FIXED(LAC_AXIS_K, 1);
FIXED(LAC_FILE_FORMAT_SAFETENSORS, 1);
FIXED(LAC_FILE_FORMAT_NPY, 2);
FIXED(LAC_FILE_FORMAT_SMTX, 3);
FIXED(LAC_DEVICE_KIND_CPU, 1);
FIXED(LAC_DEVICE_KIND_CUDA, 2);
FIXED(LAC_ACTIVATION_NONE, 0);
FIXED(LAC_ACTIVATION_RELU, 1);
FIXED(LAC_ACTIVATION_GELU_ERF, 2);
FIXED(LAC_ACTIVATION_GELU_TANH, 3);
FIXED(LAC_ACTIVATION_SILU, 4);
FIXED(LAC_PRECISION_DEFAULT, 0);
FIXED(LAC_PRECISION_STRICT, 1);
FIXED(LAC_PRECISION_FAST, 2);
FIXED(LAC_PRECISION_TF32, 3);
FIXED(LAC_MAX_DIMENSION, 2147483647);
FIXED(LAC_MAX_GROUP, 256);
FIXED(LAC_MAX_RANK, 8);
FIXED(LAC_PATTERN_TEXT_SIZE, 64);

/* The size comes first wherever there is one. */
FIXED(offsetof(lac_pattern_violation, size), 0);
FIXED(offsetof(lac_mask_info, size), 0);
FIXED(offsetof(lac_prune_options, size), 0);
FIXED(offsetof(lac_compress_options, size), 0);
FIXED(offsetof(lac_weight_info, size), 0);
FIXED(offsetof(lac_file_info, size), 0);
FIXED(offsetof(lac_tensor_info, size), 0);
FIXED(offsetof(lac_layer_report, size), 0);
FIXED(offsetof(lac_checkpoint_options, size), 0);
FIXED(offsetof(lac_allocate_options, size), 0);
FIXED(offsetof(lac_allocation_info, size), 0);
FIXED(offsetof(lac_choice_info, size), 0);
FIXED(offsetof(lac_device_info, size), 0);
FIXED(offsetof(lac_plan_options, size), 0);
FIXED(offsetof(lac_plan_info, size), 0);
FIXED(offsetof(lac_execute_args, size), 0);
FIXED(offsetof(lac_kernel_info, size), 0);

/* ---- the header by itself */

static void compile_header(const char *compiler, const char *language)
{
    char command[8192], probe[256];
    snprintf(probe, sizeof probe, "command -v %s >/dev/null 2>&1", compiler);
    if (system(probe) != 0) {
        print_message("no %s here: not tried\n", compiler);
        return;
    }
    const char *source = "#include <lacuna.h>\n#include <lacuna.h>\nint main(void) { return lac_version() == NULL; }\n";
    const char *file = test_path(strstr(language, "++") ? "header.cpp" : "header.c");
    test_write_file(file, source, strlen(source));
    char header[4096];
    snprintf(header, sizeof header, "%s", test_source_path("include"));
    snprintf(command, sizeof command, "%s -x %s -Wall -Wextra -Wpedantic -Werror -Wshadow -I'%s' -fsyntax-only '%s'", compiler,
             language, header, file);
    print_message("%s\n", command);
    assert_int_equal(system(command), 0);
}

static void header_is_c_and_cpp(void **state)
{
    (void)state;
    static const char *c[] = {"gcc", "clang", "cc"}, *cpp[] = {"g++", "clang++", "c++"};
    for (int i = 0; i < 3; i++) {
        compile_header(c[i], "c -std=c11");
        compile_header(cpp[i], "c++ -std=c++11");
        compile_header(cpp[i], "c++ -std=c++17");
    }
}

static void version_and_names(void **state)
{
    (void)state;
    char want[32];
    snprintf(want, sizeof want, "%d.%d.%d", LAC_VERSION_MAJOR, LAC_VERSION_MINOR, LAC_VERSION_PATCH);
    assert_string_equal(lac_version(), want);
    for (int i = 0; i <= LAC_STATUS_INTERNAL; i++) {
        assert_true(strlen(lac_status_name((lac_status)i)) > 1);
        for (int j = 0; j < i; j++) assert_string_not_equal(lac_status_name((lac_status)i), lac_status_name((lac_status)j));
        assert_string_not_equal(lac_status_name((lac_status)i), lac_status_name((lac_status)1000));
    }
    assert_string_equal(lac_status_name(LAC_STATUS_INVALID_ARGUMENT), "invalid argument");
    static const char *parts[] = {"values", "index", "positions", "counts", "columns", "row_perm", "col_perm", "scales"};
    for (int i = 0; i < LAC_PART_COUNT; i++) assert_string_equal(lac_part_name((lac_part)i), parts[i]);
}

static void remember(void *user, lac_log_level level, const char *message) { snprintf(user, 64, "%d %s", (int)level, message); }

static void log_goes_to_the_callback(void **state)
{
    (void)state;
    char heard[64] = "";
    lac_set_log(remember, heard, LAC_LOG_LEVEL_INFO);
    lac_log(LAC_LOG_LEVEL_WARNING, "first %d", 1);
    assert_string_equal(heard, "1 first 1");
    lac_log(LAC_LOG_LEVEL_INFO, "second");
    assert_string_equal(heard, "2 second");
    lac_log(LAC_LOG_LEVEL_DEBUG, "third");
    assert_string_equal(heard, "2 second");
    lac_set_log(NULL, NULL, LAC_LOG_LEVEL_DEBUG);
    lac_log(LAC_LOG_LEVEL_WARNING, "fourth");
    assert_string_equal(heard, "2 second");
}

/* ---- structs that grow. Each is laid into a larger place, as a newer caller would. */

typedef union place {
    size_t size;
    unsigned char bytes[4096];
    max_align_t aligned;
} place;

typedef struct growing {
    const char *name;
    size_t known;
    lac_status (*call)(test_world *the, place *p); /* a call that succeeds with any defaults; undoes what it made */
    size_t second;                                 /* where the field behind `size` ends: the oldest caller's size */
} growing;

static lac_status use_prune(test_world *the, place *p)
{
    lac_mask *mask = NULL;
    lac_status status = lac_prune(&the->dense, &the->pattern, (const lac_prune_options *)p, &mask);
    lac_mask_free(mask);
    return status;
}

static lac_status use_compress(test_world *the, place *p)
{
    lac_weight *weight = NULL;
    lac_status status = lac_weight_compress(&the->dense, the->mask, (const lac_compress_options *)p, &weight);
    lac_weight_free(weight);
    return status;
}

static lac_status use_plan(test_world *the, place *p)
{
    lac_plan *plan = NULL;
    lac_status status = lac_plan_create(the->device, the->weight, 1, (const lac_plan_options *)p, &plan);
    lac_plan_free(plan);
    return status;
}

static lac_status use_checkpoint(test_world *the, place *p)
{
    if (p->size >= offsetof(lac_checkpoint_options, include)) ((lac_checkpoint_options *)p)->pattern = &the->pattern;
    return lac_checkpoint_prune(the->checkpoint, the->out, (const lac_checkpoint_options *)p);
}

static lac_status use_tensor(test_world *the, place *p)
{
    lac_tensor_info tensor = {.size = p->size, .name = "t", .type = "F32"};
    memcpy(p, &tensor, offsetof(lac_tensor_info, dtype));
    lac_writer *writer = NULL;
    assert_ok(lac_writer_open(the->out, &writer));
    lac_status status = lac_writer_declare_tensor(writer, (const lac_tensor_info *)p);
    lac_writer_free(writer);
    return status;
}

static const growing inputs[] = {
    {"prune options", sizeof(lac_prune_options), use_prune, offsetof(lac_prune_options, threads)},
    {"compress options", sizeof(lac_compress_options), use_compress, offsetof(lac_compress_options, encoding)},
    {"plan options", sizeof(lac_plan_options), use_plan, offsetof(lac_plan_options, y_layout)},
    {"checkpoint options", sizeof(lac_checkpoint_options), use_checkpoint, offsetof(lac_checkpoint_options, include)},
    {"tensor info", sizeof(lac_tensor_info), use_tensor, offsetof(lac_tensor_info, dtype)},
};

static void options_can_grow(void **state)
{
    test_world *the = *state;
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
        const growing *g = &inputs[i];
        print_message("%s\n", g->name);
        place p = {0};
        p.size = g->known;
        assert_ok(g->call(the, &p));
        p = (place){0};
        p.size = g->second; /* what lies past an old caller's size is not ours to read */
        memset(p.bytes + g->second, 0xff, sizeof p - g->second);
        assert_ok(g->call(the, &p));
        p = (place){0};
        p.size = g->known + 24;
        assert_ok(g->call(the, &p));
        p.bytes[g->known + 23] = 1;
        assert_fails(g->call(the, &p), LAC_STATUS_INVALID_ARGUMENT, "size is");
        p.bytes[g->known + 23] = 0;
        p.bytes[g->known + 24] = 1; /* past the size: not looked at */
        assert_ok(g->call(the, &p));
        p.size = 0;
        assert_fails(g->call(the, &p), LAC_STATUS_INVALID_ARGUMENT, "size is 0");
        p.size = SIZE_MAX - 7; /* not initialised */
        assert_fails(g->call(the, &p), LAC_STATUS_INVALID_ARGUMENT, "size is 184467440737095516");
    }
}

static lac_status fill_mask(test_world *the, place *p) { return lac_mask_get_info(the->mask, (lac_mask_info *)p); }
static lac_status fill_weight(test_world *the, place *p) { return lac_weight_get_info(the->weight, (lac_weight_info *)p); }
static lac_status fill_plan(test_world *the, place *p) { return lac_plan_get_info(the->plan, (lac_plan_info *)p); }
static lac_status fill_level(test_world *the, place *p) { return lac_plan_explain(the->plan, 0, (lac_level_info *)p); }
static lac_status fill_file(test_world *the, place *p) { return lac_file_get_info(the->file, (lac_file_info *)p); }
static lac_status fill_device(test_world *the, place *p) { return lac_device_get_info(the->device, (lac_device_info *)p); }
static lac_status fill_tensor(test_world *the, place *p) { return lac_file_get_tensor(the->file, 0, (lac_tensor_info *)p); }
static lac_status fill_found(test_world *the, place *p)
{
    return lac_file_find_tensor(the->file, "bias", (lac_tensor_info *)p);
}
static lac_status fill_stored(test_world *the, place *p)
{
    const char *name = NULL;
    return lac_file_get_weight(the->file, 0, &name, (lac_weight_info *)p);
}
static lac_status fill_kernel(test_world *the, place *p)
{
    (void)the;
    return lac_kernel_probe(0, (lac_kernel_info *)p);
}
static lac_status fill_probe(test_world *the, place *p)
{
    (void)the;
    return lac_device_probe(0, (lac_device_info *)p);
}
/* The matrix is dense, so that there is a violation to tell; that is what this call is to find. */
static lac_status fill_violation(test_world *the, place *p)
{
    lac_status status = lac_pattern_check(&the->dense, &the->pattern, (lac_pattern_violation *)p);
    return status == LAC_STATUS_PATTERN_VIOLATED ? LAC_STATUS_OK : status;
}

static const growing outputs[] = {
    {"mask info", sizeof(lac_mask_info), fill_mask, offsetof(lac_mask_info, k)},
    {"weight info", sizeof(lac_weight_info), fill_weight, offsetof(lac_weight_info, n)},
    {"plan info", sizeof(lac_plan_info), fill_plan, offsetof(lac_plan_info, is_dense)},
    {"level info", sizeof(lac_level_info), fill_level, offsetof(lac_level_info, amount)},
    {"file info", sizeof(lac_file_info), fill_file, offsetof(lac_file_info, weights)},
    {"device info", sizeof(lac_device_info), fill_device, offsetof(lac_device_info, name)},
    {"device probe", sizeof(lac_device_info), fill_probe, offsetof(lac_device_info, name)},
    {"tensor by number", sizeof(lac_tensor_info), fill_tensor, offsetof(lac_tensor_info, type)},
    {"tensor by name", sizeof(lac_tensor_info), fill_found, offsetof(lac_tensor_info, type)},
    {"stored weight", sizeof(lac_weight_info), fill_stored, offsetof(lac_weight_info, n)},
    {"kernel info", sizeof(lac_kernel_info), fill_kernel, offsetof(lac_kernel_info, device)},
    {"violation", sizeof(lac_pattern_violation), fill_violation, offsetof(lac_pattern_violation, col)},
};

static void results_can_grow(void **state)
{
    test_world *the = *state;
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
        const growing *g = &outputs[i];
        print_message("%s\n", g->name);
        place full, old, newer;
        memset(&full, 0xee, sizeof full);
        memset(&old, 0xee, sizeof old);
        memset(&newer, 0xee, sizeof newer);
        full.size = g->known;
        old.size = g->second;
        newer.size = g->known + 40;
        assert_ok(g->call(the, &full));
        assert_ok(g->call(the, &old));
        assert_ok(g->call(the, &newer));
        place wild = {.size = (size_t)0xeeeeeeeeeeeeeeee};
        assert_fails(g->call(the, &wild), LAC_STATUS_INVALID_ARGUMENT, "size is 17216961135462248174");
        assert_true(full.size == g->known && old.size == g->second && newer.size == g->known + 40);
        size_t head = sizeof(size_t);
        assert_memory_equal(old.bytes + head, full.bytes + head, g->second - head);
        assert_memory_equal(newer.bytes + head, full.bytes + head, g->known - head);
        for (size_t b = g->second; b < sizeof old; b++) assert_int_equal(old.bytes[b], 0xee);
        for (size_t b = g->known; b < sizeof full; b++) assert_int_equal(full.bytes[b], 0xee);
        for (size_t b = g->known; b < g->known + 40; b++) assert_int_equal(newer.bytes[b], 0); /* unknown here: zero */
        for (size_t b = g->known + 40; b < sizeof newer; b++) assert_int_equal(newer.bytes[b], 0xee);
        place none;
        memset(&none, 0xee, sizeof none);
        none.size = 0;
        assert_fails(g->call(the, &none), LAC_STATUS_INVALID_ARGUMENT, "size is 0");
        for (size_t b = head; b < sizeof none; b++) assert_int_equal(none.bytes[b], 0xee);
    }
}

static void arguments_can_grow(void **state)
{
    test_world *the = *state;
    place p = {0};
    lac_plan_info info = {.size = sizeof info};
    assert_ok(lac_plan_get_info(the->plan, &info));
    void *workspace = aligned_alloc(64, (info.workspace_bytes + 127) / 64 * 64);
    lac_execute_args args = {
        .size = sizeof args, .x = the->x, .y = the->y, .workspace = workspace, .workspace_bytes = info.workspace_bytes};
    memcpy(&p, &args, sizeof args);
    assert_ok(lac_plan_execute(the->plan, (const lac_execute_args *)&p));
    p.size = sizeof args + 8;
    assert_ok(lac_plan_execute(the->plan, (const lac_execute_args *)&p));
    p.bytes[sizeof args] = 1;
    assert_fails(lac_plan_execute(the->plan, (const lac_execute_args *)&p), LAC_STATUS_INVALID_ARGUMENT, "args->size");
    p.size = 0;
    assert_fails(lac_plan_execute(the->plan, (const lac_execute_args *)&p), LAC_STATUS_INVALID_ARGUMENT, "args->size is 0");
    free(workspace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(header_is_c_and_cpp), cmocka_unit_test(version_and_names), cmocka_unit_test(log_goes_to_the_callback),
        cmocka_unit_test(options_can_grow),    cmocka_unit_test(results_can_grow),  cmocka_unit_test(arguments_can_grow),
    };
    return cmocka_run_group_tests(tests, test_world_open, test_world_close);
}
