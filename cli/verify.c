/* verify.c - `lacuna verify`: is this file sound, and is it what was pruned from that checkpoint?
 *
 * check.c judges one weight; here are the dense tensors, the masks, and the report. */
#include "shared.h"

#include <string.h>

typedef struct verify_settings {
    const char *path, *against;
    cli_pattern pattern;
    cli_list include, exclude;
    int64_t multiply, threads;
    int progress, json;
} verify_settings;

static const cli_operand operands[] = {{.name = "FILE",
                                        .offset = offsetof(verify_settings, path),
                                        .help = "A container; or, with --against or --pattern, any file that info reads.",
                                        .hint = CLI_HINT_FILE},
                                       CLI_END};
static const cli_option options[] = {
    CLI_OPTION_AGAINST(
        verify_settings,
        .help = "Compare with the original checkpoint: every kept value must be the original's, rounded to the stored dtype, "
                "and every other tensor must be the same byte for byte. Tells how much was dropped."),
    CLI_OPTION_PATTERN(verify_settings, .argument = "P",
                       .help = "Dense floating-point matrices (and the mask of a .smtx file) must obey this pattern too."),
    CLI_OPTION_INCLUDE(verify_settings, .help = "Check only tensors whose name matches; may be repeated."),
    CLI_OPTION_EXCLUDE(verify_settings, .help = "Do not check tensors whose name matches; may be repeated."),
    {.name = "multiply",
     .letter = 'm',
     .argument = "M",
     .type = CLI_TYPE_INTEGER,
     .offset = offsetof(verify_settings, multiply),
     .maximum = 1 << 20,
     .help = "Multiply M random tokens by each weight and compare with the oracle; 4 unless said, 0: do not."},
    CLI_OPTION_THREADS(verify_settings),
    CLI_OPTION_PROGRESS(verify_settings),
    CLI_OPTION_JSON(verify_settings),
    CLI_END};

typedef struct verifier {
    const verify_settings *settings;
    lac_file *file, *against;
    lac_file_info info, against_info;
    lac_device *device;
    cli_table *table; /* NULL: JSON */
    json_t *weights, *tensors;
    json_t *first_problem;
    int64_t checked, bad;
    cli_progress progress;
} verifier;

static json_t *product_json(const cli_product *p)
{
    return json_pack("{s:s,s:I,s:f,s:o,s:o}", "kernel", p->kernel, "m", (json_int_t)p->m, "seconds", p->seconds, "max_error",
                     cli_json_number(p->max_error), "share_of_bound", cli_json_number(p->share));
}

/* One line of the answer; `is_weight` says which list it belongs to. */
static void report(verifier *v, const char *name, int is_weight, int64_t rows, int64_t cols, const cli_verdict *verdict)
{
    v->checked++;
    if (!verdict->ok) {
        v->bad++;
        cli_progress_finish(&v->progress);
        cli_error(v->settings->path, name, "%s", verdict->problem);
        if (!v->first_problem)
            v->first_problem =
                json_pack("{s:o,s:o}", "tensor", cli_json_text(name), "problem", cli_json_text(verdict->problem));
    }
    if (v->table) {
        cli_table_add(v->table, name, cli_format_shape((int64_t[]){rows, cols}, 2).text, verdict->pattern,
                      verdict->compared ? cli_format_percent(verdict->energy_kept).text : "-",
                      verdict->compared ? cli_format_count(verdict->dropped).text : "-",
                      verdict->multiplied ? cli_format_number("%.2e", verdict->product.max_error).text : "-",
                      verdict->multiplied ? cli_format_percent(verdict->product.share).text : "-",
                      verdict->multiplied ? verdict->product.kernel : "-", verdict->ok ? "ok" : "WRONG");
        return;
    }
    json_t *entry = json_pack("{s:o,s:I,s:I,s:s,s:b,s:o,s:o,s:o,s:o}", "name", cli_json_text(name), "n", (json_int_t)rows, "k",
                              (json_int_t)cols, "pattern", verdict->pattern, "ok", verdict->ok, "problem",
                              verdict->ok ? json_null() : cli_json_text(verdict->problem), "energy_kept",
                              verdict->compared ? cli_json_number(verdict->energy_kept) : json_null(), "dropped",
                              verdict->compared ? json_integer(verdict->dropped) : json_null(), "product",
                              verdict->multiplied ? product_json(&verdict->product) : json_null());
    json_array_append_new(is_weight ? v->weights : v->tensors, entry);
}

static void blame(cli_verdict *verdict, const char *problem)
{
    if (!verdict->ok) return;
    verdict->ok = 0;
    snprintf(verdict->problem, sizeof verdict->problem, "%s", problem);
}

static int verify_weights(verifier *v)
{
    cli_verify_options check = {.against = v->against,
                                .against_path = v->settings->against,
                                .device = v->settings->multiply ? v->device : NULL,
                                .m = v->settings->multiply,
                                .threads = (int)v->settings->threads};
    for (int64_t i = 0; i < v->info.weights; i++) {
        const char *name = NULL;
        lac_weight_info info = {.size = sizeof info};
        lac_status status = lac_file_get_weight(v->file, i, &name, &info);
        if (status != LAC_STATUS_OK) return cli_fail(v->settings->path, name, status);
        if (!cli_name_selected(name, &v->settings->include, &v->settings->exclude)) continue;
        cli_verdict verdict;
        status = cli_weight_verify(v->file, name, &check, &verdict);
        if (status != LAC_STATUS_OK) {
            cli_progress_finish(&v->progress);
            return cli_fail(v->settings->path, name, status);
        }
        report(v, name, 1, info.n, info.k, &verdict);
        cli_progress_show(&v->progress, (uint64_t)i + 1, (uint64_t)(v->info.weights + v->info.tensors), name);
    }
    return CLI_EXIT_OK;
}

static void compare_bytes(const lac_tensor_info *now, const lac_tensor_info *before, cli_verdict *verdict)
{
    verdict->compared = 1;
    verdict->energy_kept = 1;
    if (strcmp(now->type, before->type) != 0 || now->rank != before->rank ||
        memcmp(now->shape, before->shape, (size_t)now->rank * sizeof *now->shape) != 0)
        blame(verdict, "type or shape is not the original's");
    else if (now->bytes != before->bytes || memcmp(now->data, before->data, now->bytes) != 0)
        blame(verdict, "its bytes are not the original's");
}

/* A dense matrix that was pruned and written with its zeros. */
static int verify_pruned_matrix(verifier *v, const lac_tensor_info *tensor, const lac_tensor_info *before, cli_verdict *verdict)
{
    lac_matrix now, original;
    int failed = cli_matrix_read(v->file, v->settings->path, tensor->name, LAC_DTYPE_NONE, &now, NULL);
    if (failed) return failed;
    lac_pattern_violation violation = {.size = sizeof violation};
    lac_status status = lac_pattern_check(&now, &v->settings->pattern.value, &violation);
    snprintf(verdict->pattern, sizeof verdict->pattern, "%.*s", LAC_PATTERN_TEXT_SIZE - 1, v->settings->pattern.text);
    if (status == LAC_STATUS_PATTERN_VIOLATED)
        blame(verdict, violation.message);
    else if (status != LAC_STATUS_OK)
        failed = cli_fail(v->settings->path, tensor->name, status);
    if (!failed && before) {
        if (!cli_tensor_is_matrix(before) || before->shape[0] != now.rows || before->shape[1] != now.cols) {
            blame(verdict, "type or shape is not the original's");
        } else {
            failed = cli_matrix_read(v->against, v->settings->against, tensor->name, LAC_DTYPE_F64, &original, NULL);
            if (!failed) {
                cli_matrix_compare(&now, &original, verdict);
                cli_matrix_free(&original);
            }
        }
    }
    cli_matrix_free(&now);
    return failed;
}

static int verify_tensors(verifier *v)
{
    for (int64_t i = 0; i < v->info.tensors; i++) {
        lac_tensor_info tensor = {.size = sizeof tensor}, before = {.size = sizeof before};
        lac_status status = lac_file_get_tensor(v->file, i, &tensor);
        if (status != LAC_STATUS_OK) return cli_fail(v->settings->path, NULL, status);
        if (!cli_name_selected(tensor.name, &v->settings->include, &v->settings->exclude)) continue;
        int has_pattern = v->settings->pattern.text && cli_tensor_is_matrix(&tensor);
        if (!has_pattern && !v->against) continue;
        cli_verdict verdict = {.ok = 1, .pattern = "dense"};
        int found = v->against && lac_file_find_tensor(v->against, tensor.name, &before) == LAC_STATUS_OK;
        if (v->against && !found) blame(&verdict, "the original has no such tensor");
        if (has_pattern) {
            int failed = verify_pruned_matrix(v, &tensor, found ? &before : NULL, &verdict);
            if (failed) return failed;
        } else if (found) {
            compare_bytes(&tensor, &before, &verdict);
        }
        int64_t cols = tensor.rank ? tensor.shape[tensor.rank - 1] : 1, rows = 1;
        for (int d = 0; d + 1 < tensor.rank; d++) rows *= tensor.shape[d];
        report(v, tensor.name, 0, rows, cols, &verdict);
        cli_progress_show(&v->progress, (uint64_t)(v->info.weights + i + 1), (uint64_t)(v->info.weights + v->info.tensors),
                          tensor.name);
    }
    return CLI_EXIT_OK;
}

/* What the original has and the file lacks. */
static int verify_nothing_is_missing(verifier *v)
{
    for (int64_t i = 0; i < v->against_info.tensors; i++) {
        lac_tensor_info tensor = {.size = sizeof tensor}, here = {.size = sizeof here};
        lac_status status = lac_file_get_tensor(v->against, i, &tensor);
        if (status != LAC_STATUS_OK) return cli_fail(v->settings->against, NULL, status);
        if (!cli_name_selected(tensor.name, &v->settings->include, &v->settings->exclude)) continue;
        int found = lac_file_find_tensor(v->file, tensor.name, &here) == LAC_STATUS_OK;
        for (int64_t w = 0; w < v->info.weights && !found; w++) {
            const char *name = NULL;
            lac_weight_info info = {.size = sizeof info};
            status = lac_file_get_weight(v->file, w, &name, &info);
            if (status != LAC_STATUS_OK) return cli_fail(v->settings->path, NULL, status);
            found = !strcmp(name, tensor.name);
        }
        if (found) continue;
        cli_verdict verdict = {.ok = 1, .pattern = "missing"};
        blame(&verdict, "is in the original but not here");
        report(v, tensor.name, 0, tensor.rank ? tensor.shape[0] : 1, tensor.rank > 1 ? tensor.shape[1] : 1, &verdict);
    }
    return CLI_EXIT_OK;
}

static int verify_mask(verifier *v)
{
    lac_mask *mask = NULL, *obeying = NULL;
    lac_mask_info info = {.size = sizeof info};
    lac_status status = lac_file_load_mask(v->file, &mask);
    if (status == LAC_STATUS_OK) status = lac_mask_get_info(mask, &info);
    cli_verdict verdict = {.ok = 1};
    snprintf(verdict.pattern, sizeof verdict.pattern, "%.*s", LAC_PATTERN_TEXT_SIZE - 1, v->settings->pattern.text);
    if (status == LAC_STATUS_OK) {
        status = lac_mask_with_pattern(mask, &v->settings->pattern.value, &obeying);
        if (status == LAC_STATUS_PATTERN_VIOLATED) {
            blame(&verdict, lac_last_error());
            status = LAC_STATUS_OK;
        }
    }
    if (status == LAC_STATUS_OK) report(v, "mask", 0, info.n, info.k, &verdict);
    lac_mask_free(obeying);
    lac_mask_free(mask);
    return status == LAC_STATUS_OK ? CLI_EXIT_OK : cli_fail(v->settings->path, NULL, status);
}

static int verify_contents(verifier *v)
{
    int failed = verify_weights(v);
    if (!failed) failed = verify_tensors(v);
    if (!failed && v->against) failed = verify_nothing_is_missing(v);
    if (!failed && v->info.masks && v->settings->pattern.text) failed = verify_mask(v);
    cli_progress_finish(&v->progress);
    if (failed) return failed;
    if (v->checked == 0) {
        cli_error(v->settings->path, NULL,
                  "nothing to check: no compressed weight was chosen, and dense tensors need --against or --pattern");
        return CLI_EXIT_USAGE;
    }
    return v->bad ? CLI_EXIT_NO : CLI_EXIT_OK;
}

static int open_files(verifier *v)
{
    lac_status status = lac_file_open(v->settings->path, &v->file);
    if (status == LAC_STATUS_OK) status = lac_file_get_info(v->file, &v->info);
    if (status != LAC_STATUS_OK) {
        cli_fail(v->settings->path, NULL, status);
        if (status != LAC_STATUS_BAD_FILE) return CLI_EXIT_FAILURE;
        v->first_problem = json_pack("{s:n,s:o}", "tensor", "problem", cli_json_text(lac_last_error()));
        return CLI_EXIT_NO;
    }
    if (v->settings->against) {
        status = lac_file_open(v->settings->against, &v->against);
        if (status == LAC_STATUS_OK) status = lac_file_get_info(v->against, &v->against_info);
        if (status != LAC_STATUS_OK) {
            cli_fail(v->settings->against, NULL, status);
            return CLI_EXIT_FAILURE;
        }
    }
    status = lac_device_open("cpu", &v->device);
    return status == LAC_STATUS_OK ? CLI_EXIT_OK : cli_fail(NULL, NULL, status);
}

static int print_answer(verifier *v, int exit_status)
{
    int answered = exit_status == CLI_EXIT_OK || exit_status == CLI_EXIT_NO;
    if (!v->table) {
        json_t *document =
            json_pack("{s:s,s:o,s:o,s:b,s:I,s:I,s:O?,s:O,s:O}", "command", "verify", "file", cli_json_text(v->settings->path),
                      "against", v->settings->against ? cli_json_text(v->settings->against) : json_null(), "ok",
                      exit_status == CLI_EXIT_OK, "checked", (json_int_t)v->checked, "bad", (json_int_t)v->bad, "first_problem",
                      v->first_problem, "weights", v->weights, "tensors", v->tensors);
        if (answered) return cli_json_print(document, exit_status);
        json_decref(document);
        return exit_status;
    }
    if (v->checked)
        cli_table_print(v->table);
    else
        cli_table_free(v->table);
    if (exit_status == CLI_EXIT_OK)
        printf("%s%s: all %lld right%s\n", cli_colour("green"), v->settings->path, (long long)v->checked, cli_colour("plain"));
    else if (v->bad)
        printf("%s%s: %lld of %lld wrong%s\n", cli_colour("red"), v->settings->path, (long long)v->bad, (long long)v->checked,
               cli_colour("plain"));
    return exit_status;
}

static int run(const void *given)
{
    verifier v = {.settings = given, .info = {.size = sizeof v.info}, .against_info = {.size = sizeof v.against_info}};
    v.weights = json_array();
    v.tensors = json_array();
    if (!v.settings->json)
        v.table = cli_table_create("name|shape|pattern|energy kept|dropped|max error|of bound|kernel|result", "lllrrrrll");
    cli_progress_start(&v.progress, v.settings->progress);
    int exit_status = open_files(&v);
    if (exit_status == CLI_EXIT_OK) exit_status = verify_contents(&v);
    exit_status = print_answer(&v, exit_status);
    json_decref(v.weights);
    json_decref(v.tensors);
    json_decref(v.first_problem);
    lac_file_close(v.file);
    lac_file_close(v.against);
    lac_device_close(v.device);
    return exit_status;
}

static const verify_settings defaults = {.multiply = 4};

const cli_command cli_command_verify = {
    .name = "verify",
    .summary = "check a compressed file, and compare it with the original",
    .description =
        "Loads every compressed weight, which validates it in full, checks its pattern on the decompressed matrix, and "
        "multiplies random tokens by it to compare with the oracle: double precision, with a bound for each element.\n\n"
        "With --against every kept value must also be the original's. The first difference is named, and the exit status is 1; "
        "so it is for a file whose bytes break the format's rules.",
    .examples = "lacuna verify pruned.safetensors\nlacuna verify pruned.safetensors --against model.safetensors\n"
                "lacuna verify dense.safetensors --pattern 2:4 --include '*.weight'",
    .operands = operands,
    .options = options,
    .settings_size = sizeof(verify_settings),
    .defaults = &defaults,
    .run = run,
};
