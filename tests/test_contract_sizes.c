/* test_contract_sizes.c - structs that open with `size` can grow: those that test_api.c does not have, those that lie behind a pointer
 * in another one, and the one that a call both reads and fills. A caller of an older library knows fewer fields and one of a
 * newer library more; either is understood, and nothing behind a caller's own struct is read or written. */
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where a newer caller's struct would lie. */
typedef union place {
    size_t size;
    unsigned char bytes[2048];
    max_align_t aligned;
} place;

static lac_allocation *allocation;
static lac_calibration *calibration;

/* ---- structs that are read */

typedef struct input {
    const char *name;
    size_t known, oldest; /* sizeof, and where the last field ends without which the call cannot do */
    const void *good;     /* [known] */
    lac_status (*call)(test_world *the, const place *p);
    const char *says; /* how the call names it */
} input;

static lac_status use_allocate(test_world *the, const place *p)
{
    lac_checkpoint_options checkpoint = {.size = sizeof checkpoint};
    lac_allocation *made = NULL;
    lac_status status = lac_checkpoint_allocate(the->checkpoint, &checkpoint, (const lac_allocate_options *)p, &made);
    lac_allocation_free(made);
    return status;
}

static lac_status use_allocate_plan(test_world *the, const place *p)
{
    lac_checkpoint_options checkpoint = {.size = sizeof checkpoint};
    lac_allocate_options options = {.size = sizeof options, .patterns = &the->pattern, .pattern_count = 1};
    options.device = the->device, options.budget = LAC_BUDGET_DENSITY, options.amount = 1;
    options.plan = (const lac_plan_options *)p;
    lac_allocation *made = NULL;
    lac_status status = lac_checkpoint_allocate(the->checkpoint, &checkpoint, &options, &made);
    lac_allocation_free(made);
    return status;
}

static lac_status use_checkpoint(test_world *the, const lac_prune_options *prune, const lac_compress_options *compress)
{
    lac_checkpoint_options options = {.size = sizeof options, .pattern = &the->pattern, .prune = prune, .compress = compress};
    lac_status status = lac_checkpoint_prune(the->checkpoint, the->out, &options);
    if (!status) assert_int_equal(remove(the->out), 0);
    return status;
}

static lac_status use_checkpoint_prune(test_world *the, const place *p)
{
    return use_checkpoint(the, (const lac_prune_options *)p, NULL);
}

static lac_status use_checkpoint_compress(test_world *the, const place *p)
{
    return use_checkpoint(the, NULL, (const lac_compress_options *)p);
}

static lac_status use_gradients(test_world *the, const place *p)
{
    float corrected[64];
    lac_matrix out = the->dense;
    out.data = corrected;
    lac_prune_options options = {.size = sizeof options, .method = LAC_METHOD_FISHER, .threads = 1};
    options.gradients = (const lac_gradients *)p;
    lac_mask *mask = NULL;
    lac_status status = lac_prune_and_correct(&the->dense, &the->pattern, &options, &out, &mask);
    lac_mask_free(mask);
    return status;
}

static lac_status use_parts(test_world *the, const place *p)
{
    lac_span parts[LAC_PART_COUNT];
    lac_weight *weight = NULL;
    for (int i = 0; i < LAC_PART_COUNT; i++) assert_ok(lac_weight_get_part(the->weight, (lac_part)i, &parts[i]));
    lac_status status = lac_weight_from_parts((const lac_weight_info *)p, parts, &weight);
    lac_weight_free(weight);
    return status;
}

static lac_status use_declared(test_world *the, const place *p)
{
    lac_writer *writer = NULL;
    assert_ok(lac_writer_open(the->out, &writer));
    lac_status status = lac_writer_declare_weight(writer, "w", (const lac_weight_info *)p, NULL);
    lac_writer_free(writer);
    return status;
}

static lac_status use_reference(test_world *the, const place *p)
{
    double y[16];
    return lac_plan_reference(the->plan, (const lac_execute_args *)p, y, NULL, 0);
}

static void check_input(test_world *the, const input *in)
{
    char text[64];
    place p = {0};
    print_message("%s\n", in->name);
    memcpy(&p, in->good, in->known);
    assert_ok(in->call(the, &p));
    memset(p.bytes + in->oldest, 0xff, sizeof p - in->oldest); /* behind an old caller's struct lies anything */
    p.size = in->oldest;
    assert_ok(in->call(the, &p));
    p = (place){0};
    memcpy(&p, in->good, in->known);
    p.size = in->known + 24;
    assert_ok(in->call(the, &p)); /* new fields at their defaults */
    p.bytes[in->known + 24] = 1;
    assert_ok(in->call(the, &p)); /* behind it */
    p.bytes[in->known + 8] = 1;
    snprintf(text, sizeof text, "%s->size is %zu", in->says, in->known + 24);
    assert_fails(in->call(the, &p), LAC_STATUS_INVALID_ARGUMENT, text);
    snprintf(text, sizeof text, "%s->size is 0", in->says);
    p.size = 0;
    assert_fails(in->call(the, &p), LAC_STATUS_INVALID_ARGUMENT, text);
}

static void structs_that_are_read(void **state)
{
    test_world *the = *state;
    lac_allocate_options allocate = {.size = sizeof allocate, .patterns = &the->pattern, .pattern_count = 1};
    allocate.budget = LAC_BUDGET_DENSITY, allocate.amount = 1;
    lac_plan_options plan = {.size = sizeof plan};
    lac_prune_options prune = {.size = sizeof prune};
    lac_compress_options compress = {.size = sizeof compress};
    lac_gradients gradients = {.size = sizeof gradients, .data = the->values, .dtype = LAC_DTYPE_F32, .samples = 1};
    lac_weight_info info = {.size = sizeof info};
    lac_execute_args args = {.size = sizeof args, .x = the->x};
    assert_ok(lac_weight_get_info(the->weight, &info));
    info.has_row_perm = info.has_col_perm = 0;
    const input inputs[] = {
        {"allocate", sizeof allocate, offsetof(lac_allocate_options, device), &allocate, use_allocate, "options"},
        {"allocate's plan", sizeof plan, offsetof(lac_plan_options, y_layout), &plan, use_allocate_plan, "options->plan"},
        {"checkpoint's prune", sizeof prune, offsetof(lac_prune_options, threads), &prune, use_checkpoint_prune,
         "options->prune"},
        {"checkpoint's compress", sizeof compress, offsetof(lac_compress_options, encoding), &compress, use_checkpoint_compress,
         "options->compress"},
        {"gradients", sizeof gradients, sizeof gradients, &gradients, use_gradients, "gradients"},
        {"parts", sizeof info, offsetof(lac_weight_info, has_row_perm), &info, use_parts, "info"},
        {"a declared weight", sizeof info, offsetof(lac_weight_info, has_row_perm), &info, use_declared, "info"},
        {"the oracle's", sizeof args, offsetof(lac_execute_args, ldx), &args, use_reference, "args"},
    };
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) check_input(the, &inputs[i]);
}

/* ---- structs that are filled */

typedef struct output {
    const char *name;
    size_t known, second; /* sizeof, and where the first field behind the size ends */
    lac_status (*call)(place *p);
} output;

static lac_status fill_calibration(place *p) { return lac_calibration_get_info(calibration, (lac_calibration_info *)p); }
static lac_status fill_component(place *p) { return lac_component_probe(0, (lac_component_info *)p); }
static lac_status fill_allocation(place *p) { return lac_allocation_get_info(allocation, (lac_allocation_info *)p); }
static lac_status fill_layer(place *p) { return lac_allocation_get_layer(allocation, 0, (lac_choice_info *)p); }
static lac_status fill_option(place *p) { return lac_allocation_get_option(allocation, 0, 1, (lac_choice_info *)p); }

static const output outputs[] = {
    {"calibration", sizeof(lac_calibration_info), offsetof(lac_calibration_info, samples), fill_calibration},
    {"component", sizeof(lac_component_info), offsetof(lac_component_info, available), fill_component},
    {"allocation", sizeof(lac_allocation_info), offsetof(lac_allocation_info, pruned), fill_allocation},
    {"layer", sizeof(lac_choice_info), offsetof(lac_choice_info, n), fill_layer},
    {"option", sizeof(lac_choice_info), offsetof(lac_choice_info, n), fill_option},
};

static void structs_that_are_filled(void **state)
{
    (void)state;
    enum { HEAD = sizeof(size_t), MORE = 40 };
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
        const output *out = &outputs[i];
        place full, old, newer, none;
        print_message("%s\n", out->name);
        memset(&full, 0xee, sizeof full);
        old = newer = none = full;
        full.size = out->known, old.size = out->second, newer.size = out->known + MORE, none.size = 0;
        assert_ok(out->call(&full));
        assert_ok(out->call(&old));
        assert_ok(out->call(&newer));
        assert_fails(out->call(&none), LAC_STATUS_INVALID_ARGUMENT, "info->size is 0");
        assert_true(full.size == out->known && old.size == out->second && newer.size == out->known + MORE);
        assert_memory_equal(old.bytes + HEAD, full.bytes + HEAD, out->second - HEAD);
        assert_memory_equal(newer.bytes + HEAD, full.bytes + HEAD, out->known - HEAD);
        for (size_t b = HEAD; b < sizeof full; b++) {
            if (b >= out->known) assert_int_equal(full.bytes[b], 0xee);
            if (b >= out->second) assert_int_equal(old.bytes[b], 0xee);
            if (b >= out->known) assert_int_equal(newer.bytes[b], b < out->known + MORE ? 0 : 0xee);
            assert_int_equal(none.bytes[b], 0xee);
        }
    }
}

/* ---- the one that is read and filled */

static void the_struct_that_is_measured(void **state)
{
    test_world *the = *state;
    enum { MORE = 16 };
    lac_weight_info full = {.size = sizeof full, .pattern = the->pattern, .n = 8, .k = 8, .dtype = LAC_DTYPE_F32};
    place old, newer = {0};
    memset(&old, 0xee, sizeof old);
    size_t second = offsetof(lac_weight_info, has_row_perm);
    memcpy(&old, &full, second);
    memcpy(&newer, &full, sizeof full);
    old.size = second, newer.size = sizeof full + MORE;
    uint64_t bytes[3][LAC_PART_COUNT];
    assert_ok(lac_weight_measure(&full, bytes[0]));
    assert_ok(lac_weight_measure((lac_weight_info *)&old, bytes[1]));
    assert_ok(lac_weight_measure((lac_weight_info *)&newer, bytes[2]));
    assert_true(full.kept == 32 && full.value_bytes == 128 && full.index_bytes == 8 && full.dense_bytes == 256);
    assert_memory_equal(bytes[1], bytes[0], sizeof bytes[0]);
    assert_memory_equal(bytes[2], bytes[0], sizeof bytes[0]);
    assert_true(old.size == second && newer.size == sizeof full + MORE);
    assert_int_equal(((const lac_weight_info *)&newer)->kept, 32);
    for (size_t b = second; b < sizeof old; b++) assert_int_equal(old.bytes[b], 0xee);
    newer.bytes[sizeof full + 1] = 1;
    assert_fails(lac_weight_measure((lac_weight_info *)&newer, NULL), LAC_STATUS_INVALID_ARGUMENT, "info->size is");
}

static int set_up(void **state)
{
    if (test_world_open(state)) return 1;
    test_world *the = *state;
    lac_checkpoint_options checkpoint = {.size = sizeof checkpoint};
    lac_allocate_options options = {.size = sizeof options, .patterns = &the->pattern, .pattern_count = 1};
    options.budget = LAC_BUDGET_DENSITY, options.amount = 0.5;
    assert_ok(lac_checkpoint_allocate(the->checkpoint, &checkpoint, &options, &allocation));
    assert_ok(lac_calibration_create(8, &calibration));
    return 0;
}

static int tear_down(void **state)
{
    lac_calibration_free(calibration);
    lac_allocation_free(allocation);
    return test_world_close(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(structs_that_are_read),
        cmocka_unit_test(structs_that_are_filled),
        cmocka_unit_test(the_struct_that_is_measured),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
