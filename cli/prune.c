/* prune.c - `lacuna prune`: a dense checkpoint into a container, tensor by tensor, with a summary. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

typedef struct prune_settings {
    const char *in, *out, *calibration, *device;
    cli_pattern pattern;
    cli_list include, exclude;
    int score, method, permute, transposable, encoding, saturate, dense, force, restart, dry_run, all, progress, json;
    lac_dtype dtype;
    int64_t threads;
    double damping;
} prune_settings;

static const cli_choice score_choices[] = {{"l1", LAC_SCORE_L1}, {"l2", LAC_SCORE_L2}, {NULL, 0}};

static const cli_choice method_choices[] = {{"magnitude", LAC_METHOD_MAGNITUDE},
                                            {"wanda", LAC_METHOD_WANDA},
                                            {"obs", LAC_METHOD_OBS},
                                            {"fisher", LAC_METHOD_FISHER},
                                            {NULL, 0}};

static const cli_choice permute_choices[] = {
    {"rows", LAC_PERMUTE_ROWS}, {"columns", LAC_PERMUTE_COLUMNS}, {"both", LAC_PERMUTE_ROWS | LAC_PERMUTE_COLUMNS}, {NULL, 0}};

static const cli_operand operands[] = {
    {.name = "IN",
     .offset = offsetof(prune_settings, in),
     .help = "The dense checkpoint: a safetensors file, a folder or index.json of them, or one matrix as .npy.",
     .hint = CLI_HINT_FILE},
    {.name = "OUT", .offset = offsetof(prune_settings, out), .help = "The container to write.", .hint = CLI_HINT_FILE},
    CLI_END};

static const cli_option options[] = {
    {.name = "pattern",
     .letter = 'p',
     .argument = "P",
     .type = CLI_TYPE_PATTERN,
     .offset = offsetof(prune_settings, pattern),
     .needed = 1,
     .help = "What stays: N:M (2:4), a density (25%), vwL:N:M (vw32:8:32), bwRxC:N:M (bw4x4:2:8), V:N:M (64:2:8) or "
             "shflL:DENSITY (shfl64:25%)."},
    {.name = "include",
     .letter = 'i',
     .argument = "GLOB",
     .type = CLI_TYPE_LIST,
     .offset = offsetof(prune_settings, include),
     .help = "Prune only tensors whose name matches; may be repeated. None: every floating-point matrix."},
    {.name = "exclude",
     .letter = 'x',
     .argument = "GLOB",
     .type = CLI_TYPE_LIST,
     .offset = offsetof(prune_settings, exclude),
     .help = "Copy tensors whose name matches, even when included; may be repeated."},
    {.name = "method",
     .letter = 'm',
     .argument = "METHOD",
     .type = CLI_TYPE_CHOICE,
     .offset = offsetof(prune_settings, method),
     .choices = method_choices,
     .help =
         "How weights are judged: magnitude, by themselves (unless said); wanda, times the norm of their input; obs, by what "
         "the outputs lose once the weights that stay have made up for it, which changes these; fisher, likewise by what the "
         "loss "
         "rises by, from gradients."},
    {.name = "calibration",
     .letter = 'c',
     .argument = "FILE",
     .type = CLI_TYPE_TEXT,
     .offset = offsetof(prune_settings, calibration),
     .help = "For wanda and obs: samples of each layer's inputs, a tensor [..., k] called a.b.input for a.b.weight; for fisher "
             "of its "
             "gradients, a.b.gradient [samples, n, k].",
     .hint = CLI_HINT_FILE},
    {.name = "damping",
     .argument = "SHARE",
     .type = CLI_TYPE_NUMBER,
     .offset = offsetof(prune_settings, damping),
     .help = "For obs and fisher: what is added to the moments of the inputs, as a share of their mean; 0.01 unless said."},
    {.name = "device",
     .argument = "NAME",
     .type = CLI_TYPE_TEXT,
     .offset = offsetof(prune_settings, device),
     .help = "For obs: a GPU, such as cuda:0, that does the large products by cuBLAS."},
    {.name = "permute",
     .argument = "WHAT",
     .type = CLI_TYPE_CHOICE,
     .offset = offsetof(prune_settings, permute),
     .choices = permute_choices,
     .help = "Let the pattern keep more by reordering rows (vwL, V:N:M), columns (N:M of single inputs) or both; the order is "
             "stored "
             "and undone when multiplying."},
    {.name = "transposable",
     .type = CLI_TYPE_FLAG,
     .offset = offsetof(prune_settings, transposable),
     .help = "For N:M by magnitude or wanda: N of M along columns as well, so that the transpose obeys the pattern too."},
    {.name = "score",
     .letter = 's',
     .argument = "SCORE",
     .type = CLI_TYPE_CHOICE,
     .offset = offsetof(prune_settings, score),
     .choices = score_choices,
     .help = "What a unit is worth: l2, the sum of its squares, or l1, the sum of its magnitudes; l2 unless said."},
    {.name = "dtype",
     .letter = 'd',
     .argument = "DTYPE",
     .type = CLI_TYPE_DTYPE,
     .offset = offsetof(prune_settings, dtype),
     .choices = cli_weight_dtype_choices,
     .help = "Store the kept values as f32, f16 or bf16; as the input has them unless said."},
    {.name = "encoding",
     .letter = 'e',
     .argument = "ENCODING",
     .type = CLI_TYPE_CHOICE,
     .offset = offsetof(prune_settings, encoding),
     .choices = cli_encoding_choices,
     .help = "How the index is stored: auto (the smallest), implicit, packed, bitmask or columns."},
    {.name = "saturate",
     .type = CLI_TYPE_FLAG,
     .offset = offsetof(prune_settings, saturate),
     .help = "Store values too large for the dtype as its largest one instead of failing."},
    {.name = "dense",
     .type = CLI_TYPE_FLAG,
     .offset = offsetof(prune_settings, dense),
     .help = "Write pruned tensors dense, with zeros, under their own names."},
    CLI_OPTION_THREADS(prune_settings),
    CLI_OPTION_FORCE(prune_settings),
    {.name = "restart",
     .type = CLI_TYPE_FLAG,
     .offset = offsetof(prune_settings, restart),
     .help = "Forget what an earlier run that was cut off had finished, instead of going on from there."},
    {.name = "dry-run",
     .letter = 'n',
     .type = CLI_TYPE_FLAG,
     .offset = offsetof(prune_settings, dry_run),
     .help = "Write nothing: tell which tensors would be pruned and what they would take."},
    {.name = "all",
     .letter = 'A',
     .type = CLI_TYPE_FLAG,
     .offset = offsetof(prune_settings, all),
     .help = "List the tensors that are copied too, and why."},
    CLI_OPTION_PROGRESS(prune_settings),
    CLI_OPTION_JSON(prune_settings),
    CLI_END};

typedef struct layer {
    char *name, *reason;
    int pruned, resumed;
    int64_t n, k;
    uint64_t dense_bytes, stored_bytes;
    double energy_kept, output_error, seconds; /* negative: not known */
} layer;

typedef struct pruner {
    const prune_settings *settings;
    layer *layers; /* [count] */
    size_t count, capacity;
    cli_progress progress;
} pruner;

static layer *add_layer(pruner *p, const char *name, const char *reason)
{
    if (p->count == p->capacity) {
        size_t capacity = p->capacity ? 2 * p->capacity : 64;
        layer *layers = cli_allocate(capacity * sizeof *layers);
        if (p->count) memcpy(layers, p->layers, p->count * sizeof *layers);
        free(p->layers);
        p->layers = layers;
        p->capacity = capacity;
    }
    layer *added = &p->layers[p->count++];
    *added = (layer){.name = cli_copy_text(name), .reason = cli_copy_text(reason), .pruned = !*reason, .output_error = -1};
    return added;
}

static void free_layers(pruner *p)
{
    for (size_t i = 0; i < p->count; i++) {
        free(p->layers[i].name);
        free(p->layers[i].reason);
    }
    free(p->layers);
}

static int on_layer(void *user, const lac_layer_report *report)
{
    pruner *p = user;
    layer *added = add_layer(p, report->name, report->reason);
    added->pruned = report->pruned, added->resumed = report->resumed;
    added->n = report->n, added->k = report->k;
    added->dense_bytes = report->dense_bytes, added->stored_bytes = report->stored_bytes;
    added->energy_kept = report->energy_kept, added->seconds = report->seconds;
    added->output_error = report->output_error;
    cli_progress_show(&p->progress, report->bytes_done, report->bytes_total, report->name);
    return cli_interrupted();
}

/* The library begins its message with the tensor's name, if a tensor was the trouble: then it is said as everywhere. */
static int fail(const prune_settings *s, lac_status status)
{
    char message[2048];
    snprintf(message, sizeof message, "%s", lac_last_error());
    lac_file *file = NULL;
    lac_file_info info = {.size = sizeof info};
    if (status == LAC_STATUS_IO || lac_file_open(s->in, &file) != LAC_STATUS_OK) return cli_fail(s->in, NULL, status);
    int64_t count = lac_file_get_info(file, &info) == LAC_STATUS_OK ? info.tensors : 0;
    for (int64_t i = 0; i < count; i++) {
        lac_tensor_info tensor = {.size = sizeof tensor};
        if (lac_file_get_tensor(file, i, &tensor) != LAC_STATUS_OK) break;
        size_t length = strlen(tensor.name);
        if (strncmp(message, tensor.name, length) != 0 || strncmp(message + length, ": ", 2) != 0) continue;
        cli_error(s->in, tensor.name, "%s", message + length + 2);
        lac_file_close(file);
        return CLI_EXIT_FAILURE;
    }
    lac_file_close(file);
    return cli_fail(strstr(message, s->out) ? NULL : s->in, NULL, status);
}

static int prune_for_real(pruner *p)
{
    const prune_settings *s = p->settings;
    int refused = cli_refuse_overwrite(s->out, s->force);
    if (refused) return refused;
    lac_checkpoint_options options = {.size = sizeof options, .pattern = &s->pattern.value, .on_layer = on_layer, .user = p};
    options.include = s->include.items, options.include_count = s->include.count;
    options.exclude = s->exclude.items, options.exclude_count = s->exclude.count;
    options.prune = (lac_prune_options){.size = sizeof options.prune, .score = s->score, .threads = (int32_t)s->threads};
    options.prune.method = (lac_method)s->method, options.prune.damping = s->damping;
    options.prune.permute = (uint32_t)s->permute;
    options.prune.transposable = s->transposable;
    options.calibration = s->calibration;
    options.compress =
        (lac_compress_options){.size = sizeof options.compress, .dtype = s->dtype, .threads = (int32_t)s->threads};
    options.compress.encoding = (lac_index_encoding)s->encoding;
    options.compress.overflow = s->saturate ? LAC_OVERFLOW_SATURATE : LAC_OVERFLOW_ERROR;
    options.keep_dense = s->dense;
    options.resume = s->restart ? LAC_RESUME_RESTART : LAC_RESUME_YES;
    lac_device *device = NULL;
    if (s->device && lac_device_open(s->device, &device)) return cli_fail(NULL, NULL, LAC_STATUS_DEVICE);
    options.prune.device = device;
    cli_interrupt_catch();
    cli_progress_start(&p->progress, s->progress);
    lac_status status = lac_checkpoint_prune(s->in, s->out, &options);
    cli_progress_finish(&p->progress);
    lac_device_close(device);
    if (status == LAC_STATUS_OK) return CLI_EXIT_OK;
    if (status == LAC_STATUS_CANCELLED) {
        cli_error(s->out, NULL, "stopped after %zu tensors; the same command goes on from there", p->count);
        cli_interrupt_raise();
        return CLI_EXIT_FAILURE;
    }
    return fail(s, status);
}

/* Why lac_checkpoint_prune would copy this tensor; the tests hold a dry run against a real one. */
static const char *reason_to_copy(const prune_settings *s, const lac_tensor_info *tensor)
{
    static const cli_list none = {NULL, 0};
    if (tensor->rank != 2) return "not a matrix";
    if (!cli_tensor_is_floating(tensor)) return "not of a floating type";
    if (tensor->shape[0] > LAC_MAX_DIMENSION || tensor->shape[1] > LAC_MAX_DIMENSION) return "too large";
    if (!cli_name_selected(tensor->name, &s->include, &none)) return "not included";
    return cli_name_selected(tensor->name, &none, &s->exclude) ? "" : "excluded";
}

static lac_status measure_tensor(pruner *p, const lac_tensor_info *tensor)
{
    const prune_settings *s = p->settings;
    layer *added = add_layer(p, tensor->name, reason_to_copy(s, tensor));
    added->dense_bytes = added->stored_bytes = tensor->bytes;
    added->energy_kept = added->pruned ? -1 : 1;
    added->seconds = -1;
    if (tensor->rank == 2) added->n = tensor->shape[0], added->k = tensor->shape[1];
    if (!added->pruned || s->dense) return LAC_STATUS_OK;
    lac_weight_info info = {.size = sizeof info, .pattern = s->pattern.value, .n = added->n, .k = added->k};
    info.dtype = s->dtype ? s->dtype : tensor->dtype == LAC_DTYPE_F64 ? LAC_DTYPE_F32 : tensor->dtype;
    info.encoding = (lac_index_encoding)s->encoding;
    info.has_row_perm = s->pattern.value.family == LAC_FAMILY_SHUFFLED || (s->permute & LAC_PERMUTE_ROWS);
    info.has_col_perm = (s->permute & LAC_PERMUTE_COLUMNS) != 0;
    lac_status status = lac_weight_measure(&info, NULL);
    added->stored_bytes = info.value_bytes + info.index_bytes;
    return status;
}

static int measure_file(pruner *p, const lac_file *file)
{
    lac_file_info info = {.size = sizeof info};
    lac_status status = lac_file_get_info(file, &info);
    if (status != LAC_STATUS_OK) return cli_fail(p->settings->in, NULL, status);
    if (info.masks) {
        cli_error(p->settings->in, NULL, "holds a mask, which has no weights to prune");
        return CLI_EXIT_FAILURE;
    }
    for (int64_t i = 0; i < info.tensors; i++) {
        lac_tensor_info tensor = {.size = sizeof tensor};
        status = lac_file_get_tensor(file, i, &tensor);
        if (status == LAC_STATUS_OK) status = measure_tensor(p, &tensor);
        if (status != LAC_STATUS_OK) return cli_fail(p->settings->in, tensor.name, status);
    }
    for (int64_t i = 0; i < info.weights; i++) {
        const char *name = NULL;
        lac_weight_info weight = {.size = sizeof weight};
        status = lac_file_get_weight(file, i, &name, &weight);
        if (status != LAC_STATUS_OK) return cli_fail(p->settings->in, NULL, status);
        layer *added = add_layer(p, name, "compressed already");
        added->n = weight.n, added->k = weight.k;
        added->dense_bytes = weight.dense_bytes, added->stored_bytes = weight.value_bytes + weight.index_bytes;
        added->energy_kept = 1, added->seconds = -1;
    }
    return CLI_EXIT_OK;
}

static int prune_dry(pruner *p)
{
    lac_file *file = NULL;
    lac_status status = lac_file_open(p->settings->in, &file);
    if (status != LAC_STATUS_OK) return cli_fail(p->settings->in, NULL, status);
    int failed = measure_file(p, file);
    lac_file_close(file);
    return failed;
}

typedef struct totals {
    int64_t pruned, copied, resumed;
    uint64_t dense_bytes, stored_bytes;
} totals;

static totals add_up(const pruner *p)
{
    totals t = {0};
    for (size_t i = 0; i < p->count; i++) {
        if (p->layers[i].pruned)
            t.pruned++;
        else
            t.copied++;
        t.resumed += p->layers[i].resumed;
        t.dense_bytes += p->layers[i].dense_bytes;
        t.stored_bytes += p->layers[i].stored_bytes;
    }
    return t;
}

static double ratio(uint64_t part, uint64_t whole) { return whole ? (double)part / (double)whole : 1; }

static double megabytes_per_second(const layer *l) { return l->seconds > 0 ? (double)l->dense_bytes / l->seconds / 1e6 : -1; }

static json_t *known(double value) { return value < 0 ? json_null() : cli_json_number(value); }

static int print_json(const pruner *p, double seconds)
{
    const prune_settings *s = p->settings;
    totals t = add_up(p);
    json_t *layers = json_array();
    for (size_t i = 0; i < p->count; i++) {
        const layer *l = &p->layers[i];
        json_array_append_new(layers,
                              json_pack("{s:o,s:b,s:b,s:s,s:I,s:I,s:I,s:I,s:o,s:o,s:o,s:o}", "name", cli_json_text(l->name),
                                        "pruned", l->pruned, "resumed", l->resumed, "reason", l->reason, "n", (json_int_t)l->n,
                                        "k", (json_int_t)l->k, "dense_bytes", (json_int_t)l->dense_bytes, "stored_bytes",
                                        (json_int_t)l->stored_bytes, "energy_kept", known(l->energy_kept), "output_error",
                                        known(l->output_error), "seconds", known(l->seconds), "megabytes_per_second",
                                        known(megabytes_per_second(l))));
    }
    return cli_json_print(json_pack("{s:s,s:o,s:o,s:s,s:b,s:o,s:{s:I,s:I,s:I,s:I,s:I,s:f,s:f}}", "command", "prune", "in",
                                    cli_json_text(s->in), "out", cli_json_text(s->out), "pattern", s->pattern.text, "dry_run",
                                    s->dry_run, "layers", layers, "totals", "pruned", (json_int_t)t.pruned, "copied",
                                    (json_int_t)t.copied, "resumed", (json_int_t)t.resumed, "dense_bytes",
                                    (json_int_t)t.dense_bytes, "stored_bytes", (json_int_t)t.stored_bytes, "of_dense",
                                    ratio(t.stored_bytes, t.dense_bytes), "seconds", seconds),
                          CLI_EXIT_OK);
}

static void print_tables(const pruner *p, double seconds)
{
    const prune_settings *s = p->settings;
    cli_table *table = cli_table_create("name|shape|pattern|before|after|of dense|energy kept|output error|MB/s", "lllrrrrrr");
    for (size_t i = 0; i < p->count; i++) {
        const layer *l = &p->layers[i];
        if (!l->pruned && !s->all) continue;
        double speed = megabytes_per_second(l);
        char what[80];
        snprintf(what, sizeof what, "%s%s", l->pruned ? s->pattern.text : "copied: ", l->reason);
        cli_table_add(table, l->name, l->n || l->k ? cli_format_shape((int64_t[]){l->n, l->k}, 2).text : "-", what,
                      cli_format_bytes(l->dense_bytes).text, cli_format_bytes(l->stored_bytes).text,
                      cli_format_percent(ratio(l->stored_bytes, l->dense_bytes)).text,
                      l->energy_kept < 0 ? "-" : cli_format_percent(l->energy_kept).text,
                      l->output_error < 0 ? "-" : cli_format_percent(l->output_error).text,
                      speed < 0 ? "-" : cli_format_number("%.0f", speed).text);
    }
    totals t = add_up(p);
    cli_table_rule(table);
    cli_table_add(table, "total", "", "", cli_format_bytes(t.dense_bytes).text, cli_format_bytes(t.stored_bytes).text,
                  cli_format_percent(ratio(t.stored_bytes, t.dense_bytes)).text, "", "",
                  s->dry_run ? "" : cli_format_number("%.0f", seconds > 0 ? (double)t.dense_bytes / seconds / 1e6 : 0).text);
    cli_table_print(table);
    if (s->dry_run)
        printf("a dry run: %lld tensors would be pruned and %lld copied; nothing was written\n", (long long)t.pruned,
               (long long)t.copied);
    else
        printf("%s: %lld tensors pruned, %lld copied, in %s\n", s->out, (long long)t.pruned, (long long)t.copied,
               cli_format_seconds(seconds).text);
    if (t.resumed) printf("%lld of them an earlier run had finished\n", (long long)t.resumed);
}

static int run(const void *given)
{
    pruner p = {.settings = given};
    const prune_settings *s = p.settings;
    if (s->dense && (s->dtype || s->encoding || s->saturate)) {
        cli_error(NULL, NULL, "--dense keeps the dtype and has no index: it goes with none of --dtype, --encoding, --saturate");
        return CLI_EXIT_USAGE;
    }
    int calibrated = s->method >= LAC_METHOD_WANDA;
    if (calibrated != (s->calibration != NULL)) {
        cli_error(NULL, NULL,
                  calibrated ? "--method %s needs samples of each layer: --calibration FILE"
                             : "--calibration goes with --method wanda, obs or fisher",
                  s->method == LAC_METHOD_OBS      ? "obs"
                  : s->method == LAC_METHOD_FISHER ? "fisher"
                                                   : "wanda");
        return CLI_EXIT_USAGE;
    }
    if (s->damping < 0 || (s->damping > 0 && s->method < LAC_METHOD_OBS)) {
        cli_error(NULL, NULL, "--damping is %g; it must be positive, and goes with --method obs or fisher", s->damping);
        return CLI_EXIT_USAGE;
    }
    if (s->device && s->method != LAC_METHOD_OBS) {
        cli_error(NULL, NULL, "--device is '%s'; it goes with --method obs", s->device);
        return CLI_EXIT_USAGE;
    }
    double started = cli_seconds();
    int exit_status = s->dry_run ? prune_dry(&p) : prune_for_real(&p);
    double seconds = cli_seconds() - started;
    if (exit_status == CLI_EXIT_OK) {
        if (s->json)
            exit_status = print_json(&p, seconds);
        else
            print_tables(&p, seconds);
        if (add_up(&p).pruned == 0) cli_error(s->in, NULL, "warning: no tensor was pruned; --all tells why");
    }
    free_layers(&p);
    return exit_status;
}

const cli_command cli_command_prune = {
    .name = "prune",
    .summary = "prune a checkpoint to a pattern and store it compressed",
    .description =
        "Keeps the best weights that the pattern allows in every floating-point matrix of IN and writes them compressed to "
        "OUT, beside a copy of all other tensors. Only one tensor is in memory at a time, so IN may be larger than that.\n\n"
        "The best are the largest, or with --method and --calibration those that the layer's outputs need most over samples of "
        "its "
        "inputs; 'output error' is what these outputs lose, as a share of their energy.\n\n"
        "OUT appears complete or not at all. A run that is cut off, by Ctrl-C (which ends after the tensor in hand) or by "
        "anything else, leaves "
        "OUT.partial and OUT.journal; the same command checks them and goes on from there, and refuses when the options or IN "
        "are not "
        "the same. --restart begins anew.",
    .examples = "lacuna prune model.safetensors pruned.safetensors --pattern 2:4 --exclude '*embed*'\n"
                "lacuna prune checkpoint/ pruned.safetensors -p vw32:8:32 --dtype bf16 --json\n"
                "lacuna prune model.safetensors pruned.safetensors -p 2:4 -m obs -c inputs.safetensors\n"
                "lacuna prune model.safetensors pruned.safetensors -p 64:2:8 --dry-run",
    .operands = operands,
    .options = options,
    .settings_size = sizeof(prune_settings),
    .run = run,
};
