/* pruning.c - patterns, pruning, and the calls that need no object, whose memory runs out; see faults.h. */
#include "faults/faults.h"

static lac_status try_plain_calls(test_scene *s)
{
    lac_dtype dtype;
    lac_pattern pattern;
    char text[LAC_PATTERN_TEXT_SIZE];
    lac_set_log(NULL, NULL, LAC_LOG_LEVEL_WARNING);
    return fault_ok_when(lac_status_name(LAC_STATUS_OK) && lac_last_error() && lac_version() && lac_part_name(LAC_PART_INDEX) &&
                         !lac_dtype_parse("bf16", &dtype) && lac_dtype_name(dtype) && lac_dtype_size(dtype) == 2 &&
                         !lac_pattern_parse(s->text, &pattern) && !lac_pattern_format(&pattern, text, sizeof text) &&
                         lac_pattern_density(&pattern) > 0);
}

static lac_status try_pattern_check(test_scene *s) { return lac_pattern_check(&s->pruned.view, &s->pattern, NULL); }
static lac_status try_prune(test_scene *s) { return lac_prune(&s->dense.view, &s->pattern, NULL, &s->new_mask); }

static lac_status try_prune_transposable(test_scene *s)
{
    float w[8 * 12];
    lac_matrix dense = {.data = w, .dtype = LAC_DTYPE_F32, .rows = 8, .cols = 12};
    lac_pattern pattern = {.family = LAC_FAMILY_ELEMENT, .unit_n = 1, .unit_k = 1, .n = 2, .m = 4};
    lac_prune_options options = {.size = sizeof options, .transposable = 1};
    for (int i = 0; i < 8 * 12; i++) w[i] = (float)(i * 37 % 11);
    return lac_prune(&dense, &pattern, &options, &s->new_mask);
}

static lac_status try_calibration_create(test_scene *s)
{
    lac_calibration *made = NULL;
    (void)s;
    lac_status status = lac_calibration_create(TEST_COLS, &made);
    lac_calibration_free(made);
    return status;
}

/* The rows of the weight serve as samples. */
static lac_status calibrated(test_scene *s, lac_method method)
{
    lac_calibration *calibration = NULL;
    lac_calibration_info info = {.size = sizeof info};
    double error = 0, total = 0;
    lac_status status = lac_calibration_create(TEST_COLS, &calibration);
    if (!status) status = lac_calibration_add(calibration, &s->dense.view, 1);
    static float none[TEST_COLS * TEST_COLS];
    lac_matrix moments = {.data = none, .dtype = LAC_DTYPE_F32, .rows = TEST_COLS, .cols = TEST_COLS};
    if (!status) status = lac_calibration_add_moments(calibration, &moments, 1);
    lac_prune_options options = {.size = sizeof options, .method = method, .calibration = calibration, .threads = 2};
    if (s->pattern.family == LAC_FAMILY_VECTOR || s->pattern.family == LAC_FAMILY_VNM) options.permute = LAC_PERMUTE_ROWS;
    if (s->pattern.m && s->pattern.unit_k == 1) options.permute |= LAC_PERMUTE_COLUMNS, options.permute_rounds = 2;
    if (!status && method == LAC_METHOD_WANDA) status = lac_prune(&s->dense.view, &s->pattern, &options, &s->new_mask);
    if (!status) status = lac_calibration_get_info(calibration, &info);
    if (!status) status = lac_calibration_error(calibration, &s->dense.view, &s->pruned.view, &error, &total);
    if (!status && method == LAC_METHOD_OBS)
        status = lac_prune_and_correct(&s->dense.view, &s->pattern, &options, &s->out.view, &s->new_mask);
    lac_calibration_free(calibration);
    if (status) {
        lac_mask_free(s->new_mask);
        s->new_mask = NULL;
        return status;
    }
    return fault_ok_when(info.samples == TEST_ROWS + 1 && total > 0 && error <= total * 4);
}

static lac_status try_prune_fisher(test_scene *s)
{
    lac_gradients gradients = {.size = sizeof gradients, .dtype = LAC_DTYPE_F32, .samples = 1};
    lac_prune_options options = {.size = sizeof options, .method = LAC_METHOD_FISHER, .threads = 2, .gradients = &gradients};
    float samples[TEST_ROWS * TEST_COLS];
    for (int i = 0; i < TEST_ROWS * TEST_COLS; i++) samples[i] = (float)(i % 7) - 3;
    gradients.data = samples;
    return lac_prune_and_correct(&s->dense.view, &s->pattern, &options, &s->out.view, &s->new_mask);
}

static lac_status try_prune_schedule(test_scene *s)
{
    lac_calibration *calibration = NULL;
    lac_prune_options options = {.size = sizeof options, .threads = 2, .schedule = &s->pattern, .schedule_count = 1};
    lac_status status = lac_calibration_create(TEST_COLS, &calibration);
    if (!status) status = lac_calibration_add(calibration, &s->dense.view, 1);
    if (!status) status = lac_prune(&s->dense.view, &s->pattern, &options, &s->new_mask);
    options.method = LAC_METHOD_OBS, options.calibration = calibration;
    lac_mask_free(s->new_mask);
    s->new_mask = NULL;
    if (!status) status = lac_prune_and_correct(&s->dense.view, &s->pattern, &options, &s->out.view, &s->new_mask);
    lac_calibration_free(calibration);
    return status;
}

static lac_status try_prune_wanda(test_scene *s) { return calibrated(s, LAC_METHOD_WANDA); }
static lac_status try_prune_obs(test_scene *s) { return calibrated(s, LAC_METHOD_OBS); }

/* ---- the table */

const fault_scenario fault_pruning_scenarios[] = {
    {"lac_status_name lac_last_error lac_version lac_set_log lac_set_allocator lac_part_name", try_plain_calls, 0, 0, false},
    {"lac_dtype_name lac_dtype_parse lac_dtype_size lac_pattern_parse lac_pattern_format lac_pattern_density", try_plain_calls,
     0, 0, false},
    {"lac_pattern_check", try_pattern_check, 0, 0, true},
    {"lac_prune", try_prune, 0, fault_check_new_mask, true},
    {"lac_prune", try_prune_transposable, 0, 0, true},
    {"lac_calibration_create lac_calibration_free", try_calibration_create, 0, 0, true},
    {"lac_calibration_add lac_calibration_add_moments lac_calibration_get_info lac_calibration_error", try_prune_wanda, 0, 0,
     true},
    {"lac_prune_and_correct", try_prune_obs, 0, 0, true},
    {"lac_prune_and_correct", try_prune_fisher, 0, 0, true},
    {"lac_prune_and_correct", try_prune_schedule, 0, 0, true},
    {0},
};
