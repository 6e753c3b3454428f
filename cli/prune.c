/* prune.c - `lacuna prune`: a dense checkpoint into a container, tensor by tensor, with a summary. */
#include "prune.h"
#include "shared.h"

#include <stdlib.h>
#include <string.h>

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
    CLI_OPTION_PATTERN(
        prune_settings, .argument = "P",
        .help = "What stays: N:M (2:4), a density (25%), vwL:N:M (vw32:8:32), bwRxC:N:M (bw4x4:2:8), V:N:M (64:2:8) or "
                "shflL:DENSITY (shfl64:25%). One of this, --schedule and --budget must be given."),
    {.name = "schedule",
     .argument = "P,P,...",
     .type = CLI_TYPE_TEXT,
     .offset = offsetof(prune_settings, schedule),
     .help = "Prune in steps, from one pattern to the next (4:8,2:8 or 50%,25%), each step what the last one left; the last "
             "one stays."},
    {.name = "budget",
     .argument = "KIND=AMOUNT",
     .type = CLI_TYPE_TEXT,
     .offset = offsetof(prune_settings, budget),
     .help = "Choose each layer's pattern: speedup=2 for all layers together to take at most half the time that they take "
             "dense, as the performance model "
             "predicts it, or density=0.3 for at most 30% of the weights to stay, with the least loss in all. Layers that do "
             "not pay stay dense."},
    {.name = "patterns",
     .argument = "P,P,...",
     .type = CLI_TYPE_TEXT,
     .offset = offsetof(prune_settings, patterns),
     .help = "For --budget: what a layer may become; 2:4,1:4,vw32:16:32,vw32:8:32,vw32:4:32,64:2:8,64:2:16 unless said."},
    {.name = "target",
     .argument = "DEVICE",
     .type = CLI_TYPE_TEXT,
     .offset = offsetof(prune_settings, target),
     .help =
         "For --budget: where the model is to run, as 'lacuna devices' names it or a GPU that is not here (h200, cuda:h200, "
         "a100); that of --device, or cpu, unless said."},
    {.name = "batch",
     .argument = "M",
     .type = CLI_TYPE_INTEGER,
     .offset = offsetof(prune_settings, batch),
     .minimum = 1,
     .maximum = LAC_MAX_DIMENSION,
     .help = "For --budget: on how many tokens at a time; 1 unless said."},
    {.name = "table",
     .argument = "FILE",
     .type = CLI_TYPE_TEXT,
     .offset = offsetof(prune_settings, table),
     .help = "For --budget: write what every layer would lose and take under every pattern, and what was chosen, as JSON.",
     .hint = CLI_HINT_FILE},
    CLI_OPTION_INCLUDE(prune_settings,
                       .help = "Prune only tensors whose name matches; may be repeated. None: every floating-point matrix."),
    CLI_OPTION_EXCLUDE(prune_settings, .help = "Copy tensors whose name matches, even when included; may be repeated."),
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
     .help = "For obs: a GPU, such as cuda:0, that does the large products by cuBLAS. With --budget and without --target: "
             "where the model is to run."},
    {.name = "permute",
     .argument = "WHAT",
     .type = CLI_TYPE_CHOICE,
     .offset = offsetof(prune_settings, permute),
     .choices = permute_choices,
     .help = "Let the pattern keep more by reordering rows (vwL, V:N:M), columns (N:M of single inputs) or both; the order is "
             "stored "
             "and undone when multiplying."},
    {.name = "producer",
     .argument = "CONSUMER=PRODUCER",
     .type = CLI_TYPE_LIST,
     .offset = offsetof(prune_settings, producers),
     .help = "Let the inputs of the tensor CONSUMER stand in the order that lets the pattern keep most, and move the rows of "
             "the tensors "
             "that make them (PRODUCER,..., with their biases) instead of storing that order. A * stands for anything, the "
             "same on both "
             "sides: blocks.*.down.weight=blocks.*.up.weight. You promise that what lies between treats all channels alike, "
             "and that "
             "nothing reads the producers' outputs but the consumers that you name. May be repeated."},
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
    CLI_OPTION_DTYPE(prune_settings, .choices = cli_weight_dtype_choices,
                     .help = "Store the kept values as f32, f16 or bf16; as the input has them unless said."),
    CLI_OPTION_ENCODING(prune_settings,
                        .help = "How the index is stored: auto (the smallest), implicit, packed, bitmask or columns."),
    CLI_OPTION_SATURATE(prune_settings),
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

static int on_layer(void *user, const lac_layer_report *report)
{
    pruner *p = user;
    prune_layer *added = prune_add_layer(p, report->name, report->reason);
    added->pruned = report->pruned, added->resumed = report->resumed;
    if (report->pruned) lac_pattern_format(&report->pattern, added->pattern, sizeof added->pattern);
    added->n = report->n, added->k = report->k;
    added->dense_bytes = report->dense_bytes, added->stored_bytes = report->stored_bytes;
    added->energy_kept = report->energy_kept, added->seconds = report->seconds;
    added->output_error = report->output_error;
    added->moved = report->moved;
    cli_progress_show(&p->progress, report->bytes_done, report->bytes_total, report->name);
    return cli_interrupted();
}

/* The library begins its message with the tensor's name, if a tensor was the trouble: then it is said as everywhere. */
int prune_fail(const prune_settings *s, lac_status status)
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

/* They stay valid as long as the pruner. */
static lac_checkpoint_options make_options(pruner *p)
{
    const prune_settings *s = p->settings;
    lac_checkpoint_options options = {.size = sizeof options, .prune = &p->prune, .compress = &p->compress};
    options.include = s->include.items, options.include_count = s->include.count;
    options.exclude = s->exclude.items, options.exclude_count = s->exclude.count;
    options.producers = s->producers.items, options.producer_count = s->producers.count;
    p->prune = (lac_prune_options){.size = sizeof p->prune, .score = s->score, .threads = (int32_t)s->threads};
    p->prune.method = (lac_method)s->method, p->prune.damping = s->damping;
    p->prune.permute = (uint32_t)s->permute;
    p->prune.transposable = s->transposable;
    p->prune.schedule = p->steps, p->prune.schedule_count = p->step_count;
    p->prune.device = p->worker;
    options.calibration = s->calibration;
    p->compress = (lac_compress_options){.size = sizeof p->compress, .dtype = s->dtype, .threads = (int32_t)s->threads};
    p->compress.encoding = (lac_index_encoding)s->encoding;
    p->compress.overflow = s->saturate ? LAC_OVERFLOW_SATURATE : LAC_OVERFLOW_ERROR;
    return options;
}

static int prune_for_real(pruner *p)
{
    const prune_settings *s = p->settings;
    lac_checkpoint_options options = make_options(p);
    if (p->allocation)
        options.allocation = p->allocation;
    else
        options.pattern = &s->pattern.value;
    options.on_layer = on_layer, options.user = p;
    options.keep_dense = s->dense;
    options.resume = s->restart ? LAC_RESUME_RESTART : LAC_RESUME_YES;
    cli_interrupt_catch();
    cli_progress_start(&p->progress, s->progress);
    lac_status status = lac_checkpoint_prune(s->in, s->out, &options);
    cli_progress_finish(&p->progress);
    if (status == LAC_STATUS_OK) return CLI_EXIT_OK;
    if (status == LAC_STATUS_CANCELLED) {
        cli_error(s->out, NULL, "stopped after %zu tensors; the same command goes on from there", p->count);
        cli_interrupt_raise();
        return CLI_EXIT_FAILURE;
    }
    return prune_fail(s, status);
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

/* Whether --producer names it as a consumer, whose order of inputs is not stored. */
static int is_consumer(const prune_settings *s, const char *name)
{
    static const cli_list none = {NULL, 0};
    int found = 0;
    for (size_t i = 0; i < s->producers.count && !found; i++) {
        char *glob = cli_copy_text(s->producers.items[i]);
        glob[strcspn(glob, "=")] = '\0';
        found = cli_name_selected(name, &(cli_list){(const char *[]){glob}, 1}, &none);
        free(glob);
    }
    return found;
}

static lac_status measure_tensor(pruner *p, const lac_tensor_info *tensor)
{
    const prune_settings *s = p->settings;
    prune_layer *added = prune_add_layer(p, tensor->name, reason_to_copy(s, tensor));
    added->dense_bytes = added->stored_bytes = tensor->bytes;
    added->energy_kept = added->pruned ? -1 : 1;
    added->seconds = -1;
    if (tensor->rank == 2) added->n = tensor->shape[0], added->k = tensor->shape[1];
    if (added->pruned) snprintf(added->pattern, sizeof added->pattern, "%s", s->pattern.text);
    if (!added->pruned || s->dense) return LAC_STATUS_OK;
    lac_weight_info info = {.size = sizeof info, .pattern = s->pattern.value, .n = added->n, .k = added->k};
    info.dtype = s->dtype ? s->dtype : tensor->dtype == LAC_DTYPE_F64 ? LAC_DTYPE_F32 : tensor->dtype;
    info.encoding = (lac_index_encoding)s->encoding;
    info.has_row_perm = s->pattern.value.family == LAC_FAMILY_SHUFFLED || (s->permute & LAC_PERMUTE_ROWS);
    info.has_col_perm = (s->permute & LAC_PERMUTE_COLUMNS) && !is_consumer(s, tensor->name);
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
        prune_layer *added = prune_add_layer(p, name, "compressed already");
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

int prune_parse_patterns(const char *option, const char *text, lac_pattern *patterns, size_t *count)
{
    *count = 0;
    for (const char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        char *one = cli_copy_text(at); /* whole: the beginning of a long pattern may be another one */
        one[strcspn(one, ",")] = '\0';
        int sound = *count < PRUNE_PATTERNS_MOST && lac_pattern_parse(one, &patterns[*count]) == LAC_STATUS_OK;
        free(one);
        if (!sound) {
            cli_error(NULL, NULL, "--%s '%s': %s", option, text,
                      *count == PRUNE_PATTERNS_MOST ? "has too many patterns" : lac_last_error());
            return CLI_EXIT_USAGE;
        }
        ++*count;
    }
    return CLI_EXIT_OK;
}

/* One of --pattern, --schedule and --budget says what stays. The last step of a schedule becomes the pattern. */
static int read_patterns(pruner *p, prune_settings *s)
{
    static char last[LAC_PATTERN_TEXT_SIZE];
    if (!s->schedule && !s->pattern.text && !s->budget) {
        cli_error(NULL, NULL,
                  "none of --pattern, --schedule and --budget is given: --pattern 2:4, for one, keeps 2 of every 4 inputs");
        return CLI_EXIT_USAGE;
    }
    if (s->schedule && s->pattern.text) {
        cli_error(NULL, NULL, "--schedule ends with the pattern: it does not go with --pattern");
        return CLI_EXIT_USAGE;
    }
    if (s->budget && (s->schedule || s->pattern.text)) {
        cli_error(NULL, NULL, "--budget chooses each layer's pattern, from --patterns: it does not go with --%s",
                  s->schedule ? "schedule" : "pattern");
        return CLI_EXIT_USAGE;
    }
    int refused = budget_read(p);
    if (refused || !s->schedule) return refused;
    refused = prune_parse_patterns("schedule", s->schedule, p->steps, &p->step_count);
    if (refused) return refused;
    s->pattern = (cli_pattern){.text = last, .value = p->steps[--p->step_count]};
    lac_pattern_format(&s->pattern.value, last, sizeof last);
    return CLI_EXIT_OK;
}

static int check_settings(const prune_settings *s)
{
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
    if (s->device && !s->budget && s->method != LAC_METHOD_OBS) {
        cli_error(NULL, NULL, "--device is '%s'; it goes with --method obs, or with --budget", s->device);
        return CLI_EXIT_USAGE;
    }
    return CLI_EXIT_OK;
}

/* With a budget the patterns are chosen first, and a dry run ends there. */
static int work(pruner *p)
{
    const prune_settings *s = p->settings;
    if (s->dry_run && !s->budget) return prune_dry(p);
    int refused = s->dry_run ? CLI_EXIT_OK : cli_refuse_overwrite(s->out, s->force);
    if (refused) return refused;
    /* With a budget and no target, --device is only where the model is to run. */
    lac_status status = s->device && (!s->budget || s->target) ? lac_device_open(s->device, &p->worker) : LAC_STATUS_OK;
    if (status != LAC_STATUS_OK) return cli_fail(NULL, NULL, status);
    if (s->budget) {
        lac_checkpoint_options options = make_options(p);
        refused = budget_allocate(p, &options);
        if (refused == CLI_EXIT_OK) refused = budget_write(p);
        if (refused) return refused;
        if (!s->json) budget_print(p);
    }
    return s->dry_run ? CLI_EXIT_OK : prune_for_real(p);
}

static int run(const void *given)
{
    prune_settings settings;
    memcpy(&settings, given, sizeof settings);
    pruner p = {.settings = &settings};
    const prune_settings *s = p.settings;
    int exit_status = check_settings(s);
    if (!exit_status) exit_status = read_patterns(&p, &settings);
    if (!exit_status) {
        double started = cli_seconds();
        exit_status = work(&p);
        double seconds = cli_seconds() - started;
        if (exit_status == CLI_EXIT_OK) {
            if (s->json)
                exit_status = prune_print_json(&p, seconds);
            else if (!s->budget || !s->dry_run)
                prune_print_tables(&p, seconds);
            if (!s->budget && prune_add_up(&p).pruned == 0)
                cli_error(s->in, NULL, "warning: no tensor was pruned; --all tells why");
        }
    }
    budget_free(&p);
    lac_device_close(p.worker);
    prune_free_layers(&p);
    return exit_status;
}

const cli_command cli_command_prune = {
    .name = "prune",
    .summary = "prune a checkpoint to a pattern and store it compressed",
    .description =
        "Keeps the best weights that the pattern allows in every floating-point matrix of IN and writes them compressed to "
        "OUT, beside a copy of all other tensors. One or two tensors are in memory at a time, so IN may be larger than "
        "that.\n\n"
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
                "lacuna prune model.safetensors out.safetensors --schedule 6:8,4:8,2:8 -m fisher -c g.safetensors\n"
                "lacuna prune model.safetensors out.safetensors --budget speedup=2 --target h200 --batch 16\n"
                "lacuna prune model.safetensors out.safetensors -p 2:4 --producer 'b.*.down.weight=b.*.up.weight'\n"
                "lacuna prune model.safetensors pruned.safetensors -p 64:2:8 --dry-run",
    .operands = operands,
    .options = options,
    .settings_size = sizeof(prune_settings),
    .run = run,
};
