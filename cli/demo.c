/* demo.c - `lacuna demo`: the whole job on a small made-up checkpoint, once for each family of patterns. `make demo` runs it.
 *
 * Every figure it prints is measured in that run, and every check can fail it: the values against the checkpoint, the
 * pattern, and the product against the oracle. */
#include "shared.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct demo_settings {
    const char *folder;
    int64_t seed, tokens, threads;
    int progress, json;
} demo_settings;

static const cli_operand operands[] = {CLI_END};
static const cli_option options[] = {
    {.name = "out",
     .letter = 'o',
     .argument = "DIR",
     .type = CLI_TYPE_TEXT,
     .offset = offsetof(demo_settings, folder),
     .hint = CLI_HINT_FOLDER,
     .help = "Where the files go, demo-*.safetensors, replacing those of an earlier run; 'lacuna-demo' unless said."},
    {.name = "seed",
     .letter = 's',
     .argument = "NUMBER",
     .type = CLI_TYPE_INTEGER,
     .offset = offsetof(demo_settings, seed),
     .maximum = INT64_MAX,
     .help = "The seed of the made-up weights; 1 unless said."},
    {.name = "tokens",
     .letter = 'm',
     .argument = "M",
     .type = CLI_TYPE_INTEGER,
     .offset = offsetof(demo_settings, tokens),
     .minimum = 1,
     .maximum = 4096,
     .help = "How many tokens are multiplied; 16 unless said."},
    CLI_OPTION_THREADS(demo_settings),
    CLI_OPTION_PROGRESS(demo_settings),
    CLI_OPTION_JSON(demo_settings),
    CLI_END};

/* One pattern of each family. */
static const char *const patterns[] = {"2:4", "8:32", "vw32:8:32", "bw4x4:2:8", "64:2:8", "shfl32:25%"};
enum { PATTERN_COUNT = sizeof patterns / sizeof *patterns };

/* A small transformer, with shapes that no tile divides. */
typedef struct demo_tensor {
    const char *name;
    lac_dtype dtype;
    int64_t rows, cols; /* cols 0: a vector of `rows` */
} demo_tensor;

static const demo_tensor tensors[] = {
    {"embed.weight", LAC_DTYPE_F32, 1000, 384},
    {"layers.0.norm.weight", LAC_DTYPE_F32, 384, 0},
    {"layers.0.q.weight", LAC_DTYPE_F32, 384, 384},
    {"layers.0.k.weight", LAC_DTYPE_F32, 128, 384},
    {"layers.0.v.weight", LAC_DTYPE_F32, 128, 384},
    {"layers.0.o.weight", LAC_DTYPE_F32, 384, 384},
    {"layers.0.up.weight", LAC_DTYPE_F32, 1027, 384},
    {"layers.0.down.weight", LAC_DTYPE_F32, 384, 1027},
    {"layers.1.norm.weight", LAC_DTYPE_F32, 384, 0},
    {"layers.1.up.weight", LAC_DTYPE_BF16, 1024, 384},
    {"layers.1.down.weight", LAC_DTYPE_F16, 384, 1024},
    {"head.weight", LAC_DTYPE_F32, 250, 1027},
    {"router.weight", LAC_DTYPE_F32, 33, 5},
};
enum { TENSOR_COUNT = sizeof tensors / sizeof *tensors };

typedef struct result {
    const char *pattern;
    char path[512];
    int64_t kept, elements, weights;
    uint64_t stored_bytes, dense_bytes;
    double energy, total_energy; /* of the pruned tensors: kept, and all */
    double max_error, share;
    double prune_seconds, multiply_seconds;
    char kernel[96];
    int kernels; /* how many different ones */
    int ok;
} result;

typedef struct demo {
    const demo_settings *settings;
    char checkpoint[512];
    double energy[TENSOR_COUNT]; /* the sum of squares of each tensor */
    lac_device *device;
    result results[PATTERN_COUNT];
} demo;

/* Weights as trained networks have them: tails heavier than a bell curve, and channels of different scale. */
static void draw_tensor(const demo_tensor *tensor, uint64_t seed, lac_matrix *matrix)
{
    cli_random random = {seed};
    double *scales = cli_allocate((size_t)matrix->cols * sizeof *scales);
    for (int64_t j = 0; j < matrix->cols; j++) {
        double u = cli_random_uniform(&random);
        scales[j] = tensor->cols ? 0.02 * (0.25 + 3 * u * u * u) : 1 + 0.1 * u;
    }
    for (int64_t i = 0; i < matrix->rows * matrix->cols; i++) {
        double value = cli_random_gaussian(&random), chi = 0;
        for (int d = 0; d < 5; d++) {
            double g = cli_random_gaussian(&random);
            chi += g * g;
        }
        /* Student's t with 5 degrees of freedom; vectors, as norms have them, hold just their scale. */
        cli_matrix_put(matrix, i, scales[i % matrix->cols] * (tensor->cols ? value / sqrt(chi / 5) : 1));
    }
    free(scales);
}

static int write_tensor(demo *d, lac_writer *writer, size_t index)
{
    const demo_tensor *tensor = &tensors[index];
    lac_matrix matrix;
    int64_t rows = tensor->cols ? tensor->rows : 1, cols = tensor->cols ? tensor->cols : tensor->rows;
    if (cli_matrix_create(&matrix, tensor->dtype, rows, cols) != 0)
        return cli_fail(d->checkpoint, tensor->name, LAC_STATUS_OUT_OF_MEMORY);
    draw_tensor(tensor, (uint64_t)d->settings->seed * UINT64_C(1000003) + index, &matrix);
    d->energy[index] = 0;
    for (int64_t i = 0; i < rows * cols; i++) d->energy[index] += cli_matrix_get(&matrix, i) * cli_matrix_get(&matrix, i);
    uint64_t bytes = (uint64_t)(rows * cols) * lac_dtype_size(tensor->dtype);
    lac_status status = lac_writer_write_tensor(writer, tensor->name, matrix.data, bytes);
    cli_matrix_free(&matrix);
    return status == LAC_STATUS_OK ? CLI_EXIT_OK : cli_fail(d->checkpoint, tensor->name, status);
}

static int fill_checkpoint(demo *d, lac_writer *writer)
{
    lac_status status = lac_writer_set_metadata(writer, "source", "lacuna demo");
    for (size_t i = 0; i < TENSOR_COUNT && status == LAC_STATUS_OK; i++) {
        lac_tensor_info info = {.size = sizeof info, .name = tensors[i].name, .dtype = tensors[i].dtype};
        info.rank = tensors[i].cols ? 2 : 1;
        info.shape[0] = tensors[i].rows;
        info.shape[1] = tensors[i].cols;
        status = lac_writer_declare_tensor(writer, &info);
    }
    if (status != LAC_STATUS_OK) return cli_fail(d->checkpoint, NULL, status);
    for (size_t i = 0; i < TENSOR_COUNT; i++) {
        int failed = cli_interrupted() ? CLI_EXIT_FAILURE : write_tensor(d, writer, i);
        if (failed) return failed;
    }
    status = lac_writer_commit(writer);
    return status == LAC_STATUS_OK ? CLI_EXIT_OK : cli_fail(d->checkpoint, NULL, status);
}

static int make_checkpoint(demo *d)
{
    const char *folder = d->settings->folder;
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
        cli_error(folder, NULL, "cannot make the folder: %s", strerror(errno));
        return CLI_EXIT_FAILURE;
    }
    int length = snprintf(d->checkpoint, sizeof d->checkpoint, "%s/demo-checkpoint.safetensors", folder);
    if (length < 0 || (size_t)length >= sizeof d->checkpoint) {
        cli_error(folder, NULL, "the name of the folder is too long");
        return CLI_EXIT_FAILURE;
    }
    lac_writer *writer = NULL;
    lac_status status = lac_writer_open(d->checkpoint, &writer);
    int failed = status == LAC_STATUS_OK ? fill_checkpoint(d, writer) : cli_fail(d->checkpoint, NULL, status);
    lac_writer_free(writer);
    return failed;
}

typedef struct layer_user {
    demo *d;
    result *r;
} layer_user;

static int on_layer(void *user, const lac_layer_report *report)
{
    layer_user *u = user;
    for (size_t i = 0; i < TENSOR_COUNT && report->pruned; i++) {
        if (strcmp(tensors[i].name, report->name) != 0) continue;
        u->r->energy += report->energy_kept * u->d->energy[i];
        u->r->total_energy += u->d->energy[i];
    }
    return cli_interrupted();
}

static int prune_checkpoint(demo *d, result *r)
{
    char safe[LAC_PATTERN_TEXT_SIZE];
    snprintf(safe, sizeof safe, "%s", r->pattern);
    for (char *c = safe; *c; c++)
        if (*c == ':' || *c == '%') *c = *c == ':' ? '-' : 'p';
    snprintf(r->path, sizeof r->path, "%.400s/demo-%s.safetensors", d->settings->folder, safe);
    lac_pattern pattern;
    layer_user user = {d, r};
    lac_status status = lac_pattern_parse(r->pattern, &pattern);
    lac_prune_options prune = {.size = sizeof prune, .threads = (int32_t)d->settings->threads};
    lac_compress_options compress = {.size = sizeof compress, .threads = (int32_t)d->settings->threads};
    lac_checkpoint_options options = {.size = sizeof options, .pattern = &pattern, .on_layer = on_layer, .user = &user};
    options.prune = &prune, options.compress = &compress;
    double started = cli_seconds();
    if (status == LAC_STATUS_OK) status = lac_checkpoint_prune(d->checkpoint, r->path, &options);
    r->prune_seconds = cli_seconds() - started;
    return status == LAC_STATUS_OK ? CLI_EXIT_OK : cli_fail(r->path, NULL, status);
}

static void add_verdict(result *r, const char *name, const cli_verdict *verdict)
{
    const cli_product *p = &verdict->product;
    r->weights++;
    r->kept += verdict->info.kept;
    r->elements += verdict->info.n * verdict->info.k;
    r->stored_bytes += verdict->info.value_bytes + verdict->info.index_bytes;
    r->dense_bytes += verdict->info.dense_bytes;
    if (p->max_error > r->max_error || isnan(p->max_error)) r->max_error = p->max_error;
    if (p->share > r->share || isnan(p->share)) r->share = p->share;
    r->multiply_seconds += p->seconds;
    if (r->kernels == 0) snprintf(r->kernel, sizeof r->kernel, "%s", p->kernel);
    if (r->kernels == 0 || strcmp(r->kernel, p->kernel) != 0) r->kernels++;
    if (verdict->ok) return;
    r->ok = 0;
    cli_error(r->path, name, "%s", verdict->problem);
}

static int verify_result(demo *d, result *r, const lac_file *file, const lac_file *checkpoint)
{
    lac_file_info info = {.size = sizeof info};
    lac_status status = lac_file_get_info(file, &info);
    if (status != LAC_STATUS_OK) return cli_fail(r->path, NULL, status);
    cli_verify_options check = {.against = checkpoint, .against_path = d->checkpoint, .device = d->device};
    check.m = d->settings->tokens;
    check.threads = (int)d->settings->threads;
    for (int64_t i = 0; i < info.weights; i++) {
        const char *name = NULL;
        lac_weight_info weight = {.size = sizeof weight};
        cli_verdict verdict;
        status = lac_file_get_weight(file, i, &name, &weight);
        if (status == LAC_STATUS_OK) status = cli_weight_verify(file, name, &check, &verdict);
        if (status != LAC_STATUS_OK) return cli_fail(r->path, name, status);
        add_verdict(r, name, &verdict);
    }
    int64_t matrices = 0;
    for (size_t i = 0; i < TENSOR_COUNT; i++) matrices += tensors[i].cols > 0;
    if (r->weights != matrices) {
        cli_error(r->path, NULL, "holds %lld compressed weights, not %lld", (long long)r->weights, (long long)matrices);
        r->ok = 0;
    }
    return CLI_EXIT_OK;
}

static int run_pattern(demo *d, result *r)
{
    int failed = prune_checkpoint(d, r);
    if (failed) return failed;
    lac_file *file = NULL, *checkpoint = NULL;
    lac_status status = lac_file_open(r->path, &file);
    if (status == LAC_STATUS_OK) status = lac_file_open(d->checkpoint, &checkpoint);
    failed = status == LAC_STATUS_OK ? verify_result(d, r, file, checkpoint) : cli_fail(r->path, NULL, status);
    lac_file_close(file);
    lac_file_close(checkpoint);
    return failed;
}

static double ratio(double part, double whole) { return whole > 0 ? part / whole : 1; }

static int print_json(const demo *d, int all_ok)
{
    json_t *list = json_array();
    for (size_t i = 0; i < PATTERN_COUNT; i++) {
        const result *r = &d->results[i];
        json_array_append_new(
            list, json_pack("{s:s,s:o,s:I,s:f,s:I,s:I,s:f,s:f,s:o,s:o,s:f,s:f,s:s,s:i,s:b}", "pattern", r->pattern, "file",
                            cli_json_text(r->path), "weights", (json_int_t)r->weights, "density",
                            ratio((double)r->kept, (double)r->elements), "bytes", (json_int_t)r->stored_bytes, "dense_bytes",
                            (json_int_t)r->dense_bytes, "of_dense", ratio((double)r->stored_bytes, (double)r->dense_bytes),
                            "energy_kept", ratio(r->energy, r->total_energy), "max_error", cli_json_number(r->max_error),
                            "share_of_bound", cli_json_number(r->share), "prune_seconds", r->prune_seconds, "multiply_seconds",
                            r->multiply_seconds, "kernel", r->kernel, "kernels", r->kernels, "ok", r->ok));
    }
    return cli_json_print(json_pack("{s:s,s:o,s:I,s:I,s:b,s:o}", "command", "demo", "checkpoint", cli_json_text(d->checkpoint),
                                    "seed", (json_int_t)d->settings->seed, "tokens", (json_int_t)d->settings->tokens, "ok",
                                    all_ok, "results", list),
                          all_ok ? CLI_EXIT_OK : CLI_EXIT_NO);
}

static int print_tables(const demo *d, int all_ok)
{
    cli_table *table = cli_table_create(
        "pattern|density|bytes|of dense|energy kept|max error|of bound|prune|multiply|kernel|result", "lrrrrrrrrll");
    for (size_t i = 0; i < PATTERN_COUNT; i++) {
        const result *r = &d->results[i];
        char kernel[128];
        snprintf(kernel, sizeof kernel, r->kernels > 1 ? "%s, others" : "%s", r->kernel);
        cli_table_add(table, r->pattern, cli_format_percent(ratio((double)r->kept, (double)r->elements)).text,
                      cli_format_bytes(r->stored_bytes).text,
                      cli_format_percent(ratio((double)r->stored_bytes, (double)r->dense_bytes)).text,
                      cli_format_percent(ratio(r->energy, r->total_energy)).text, cli_format_number("%.2e", r->max_error).text,
                      cli_format_percent(r->share).text, cli_format_seconds(r->prune_seconds).text,
                      cli_format_seconds(r->multiply_seconds).text, kernel, r->ok ? "ok" : "WRONG");
    }
    cli_table_print(table);
    printf(
        "\nEach row: %d matrices (%s dense) pruned, saved, reloaded, compared with the checkpoint value by value, and\n"
        "multiplied by %lld tokens (the best of three times). 'of bound' is the largest error as a share of what the oracle\n"
        "allows that element; rounding a 16-bit output takes nearly all of its share.\n",
        (int)d->results[0].weights, cli_format_bytes(d->results[0].dense_bytes).text, (long long)d->settings->tokens);
    char *folder = realpath(d->settings->folder, NULL);
    printf("%s%s%s The files are in %s: try 'lacuna info' on one.\n", cli_colour(all_ok ? "green" : "red"),
           all_ok ? "All checks passed." : "Some checks FAILED.", cli_colour("plain"), folder ? folder : d->settings->folder);
    free(folder);
    return all_ok ? CLI_EXIT_OK : CLI_EXIT_NO;
}

static int run(const void *given)
{
    demo d = {.settings = given};
    cli_progress progress;
    lac_status status = lac_device_open("cpu", &d.device);
    if (status != LAC_STATUS_OK) return cli_fail(NULL, NULL, status);
    cli_interrupt_catch();
    cli_progress_start(&progress, d.settings->progress);
    int failed = make_checkpoint(&d), all_ok = 1;
    for (size_t i = 0; i < PATTERN_COUNT && !failed; i++) {
        cli_progress_show(&progress, i, PATTERN_COUNT, patterns[i]);
        d.results[i] = (result){.pattern = patterns[i], .ok = 1};
        failed = cli_interrupted() ? CLI_EXIT_FAILURE : run_pattern(&d, &d.results[i]);
        all_ok = all_ok && d.results[i].ok;
    }
    cli_progress_finish(&progress);
    if (!failed) failed = d.settings->json ? print_json(&d, all_ok) : print_tables(&d, all_ok);
    lac_device_close(d.device);
    cli_interrupt_raise();
    return failed;
}

static const demo_settings defaults = {.folder = "lacuna-demo", .seed = 1, .tokens = 16};

const cli_command cli_command_demo = {
    .name = "demo",
    .summary = "show the whole job on a small made-up checkpoint",
    .description =
        "Makes a small checkpoint with weights like a transformer's and some ragged shapes, always the same; prunes it "
        "to one pattern of each family; saves, reloads, multiplies, and checks everything against the checkpoint and "
        "the oracle. It takes a few seconds.",
    .examples = "lacuna demo --out demo",
    .operands = operands,
    .options = options,
    .settings_size = sizeof(demo_settings),
    .defaults = &defaults,
    .run = run,
};
