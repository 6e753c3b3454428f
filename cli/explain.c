/* explain.c - `lacuna explain`: which kernels could multiply a problem, how long the model says each takes, and what bounds
 * the one that the planner picks. The weight is random; only its pattern and its shape matter here. */
#include "backend.h"
#include "shared.h"

#include <stdlib.h>
#include <string.h>

typedef struct explain_settings {
    const char *shape, *device, *kernel;
    cli_pattern pattern;
    lac_dtype dtype;
    int layout, precision, measure, no_dense, json;
    int64_t threads;
} explain_settings;

static const explain_settings defaults = {.device = "cpu", .dtype = LAC_DTYPE_F32};

static const cli_operand operands[] = {CLI_END};

#define FIELD(field) offsetof(explain_settings, field)
static const cli_option options[] = {
    {.name = "shape",
     .letter = 's',
     .argument = "M,N,K",
     .type = CLI_TYPE_TEXT,
     .offset = FIELD(shape),
     .needed = 1,
     .help = "The problem: tokens,outputs,inputs."},
    CLI_OPTION_PATTERN(explain_settings, .argument = "PATTERN", .needed = 1,
                       .help = "The pattern of W: 2:4, vw32:8:32, bw4x4:2:8, 64:2:8, shfl64:25% and their like."),
    CLI_OPTION_DTYPE(explain_settings, .choices = cli_weight_dtype_choices,
                     .help = "Of weights, activations and results: f32, f16 or bf16; f32 unless said."),
    CLI_OPTION_LAYOUT(explain_settings, .help = CLI_HELP_LAYOUT),
    CLI_OPTION_PRECISION(explain_settings, .help = CLI_HELP_PRECISION "."),
    CLI_OPTION_THREADS(explain_settings),
    CLI_OPTION_DEVICE(
        explain_settings,
        .help =
            "Where, as 'lacuna devices' names it; cpu unless said. h200, h100, a100, rtx4090 and rtx3090 can be asked about "
            "without having one."),
    CLI_OPTION_KERNEL(explain_settings, .type = CLI_TYPE_TEXT,
                      .help = "Explain this kernel instead of the planner's pick; 'lacuna devices --kernels' lists them."),
    {.name = "measure",
     .type = CLI_TYPE_FLAG,
     .offset = FIELD(measure),
     .help = "Time every kernel too, on operands that lie outside the caches."},
    {.name = "no-dense",
     .type = CLI_TYPE_FLAG,
     .offset = FIELD(no_dense),
     .help = "Pick no dense kernel, which would keep W with its zeros in memory."},
    CLI_OPTION_JSON(explain_settings),
    CLI_END};

typedef struct candidate {
    char kernel[96];
    int is_dense;
    char bound[32];
    double predicted, ceiling, measured; /* seconds; measured is 0 unless asked for */
    uint64_t dense_bytes;
    char note[512]; /* as long as a plan has it */
    int rivals;     /* other candidates that a plan times it against */
} candidate;

typedef struct explanation {
    const explain_settings *settings;
    int64_t m, n, k;
    lac_device *device;
    lac_device_info device_info;
    lac_weight *weight;
    lac_plan *plan; /* of the kernel to explain */
    candidate picked;
    candidate *candidates; /* [count], the fastest first */
    size_t count;
    /* When measuring: operands in the device's memory, and how its caches are emptied and its time is taken. */
    const bench_backend *backend;
    void *x, *y;
    size_t x_bytes, y_bytes, sweep_bytes;
} explanation;

/* ---- the problem */

static int read_shape(explanation *e)
{
    int64_t *const fields[] = {&e->m, &e->n, &e->k};
    const char *at = e->settings->shape;
    for (int i = 0; i < 3; i++) {
        char *end = NULL;
        long long value = strtoll(at, &end, 10);
        if (end == at || *end != (i < 2 ? ',' : '\0') || value < 1 || value > LAC_MAX_DIMENSION) {
            cli_error(NULL, NULL, "--shape '%s': must be M,N,K, three whole numbers from 1 to %d", e->settings->shape,
                      LAC_MAX_DIMENSION);
            return CLI_EXIT_USAGE;
        }
        *fields[i] = value;
        at = end + 1;
    }
    return CLI_EXIT_OK;
}

static void fill_random(const lac_matrix *matrix)
{
    cli_random random = {UINT64_C(20260301)};
    for (int64_t i = 0; i < matrix->rows * matrix->cols; i++) cli_matrix_put(matrix, i, 2 * cli_random_uniform(&random) - 1);
}

static int make_weight(explanation *e)
{
    lac_matrix dense = {0};
    lac_mask *mask = NULL;
    if (cli_matrix_create(&dense, LAC_DTYPE_F32, e->n, e->k) != 0) return cli_fail(NULL, NULL, LAC_STATUS_OUT_OF_MEMORY);
    fill_random(&dense);
    lac_compress_options compress = {.size = sizeof compress, .dtype = e->settings->dtype};
    lac_status status = lac_prune(&dense, &e->settings->pattern.value, NULL, &mask);
    if (status == LAC_STATUS_OK) status = lac_weight_compress(&dense, mask, &compress, &e->weight);
    lac_mask_free(mask);
    cli_matrix_free(&dense);
    return status == LAC_STATUS_OK ? CLI_EXIT_OK : cli_fail(NULL, NULL, status);
}

static lac_status make_plan(const explanation *e, const char *kernel, lac_plan **out)
{
    const explain_settings *s = e->settings;
    lac_plan_options wanted = {.size = sizeof wanted,
                               .kernel = kernel,
                               .threads = (int32_t)s->threads,
                               .precision = (lac_precision)s->precision,
                               .predict_only = !s->measure,
                               .no_dense = s->no_dense};
    wanted.x_layout = wanted.y_layout = (lac_layout)s->layout;
    return lac_plan_create(e->device, e->weight, e->m, &wanted, out);
}

/* ---- measuring */

static int make_operands(explanation *e)
{
    char why[256] = "out of memory";
    const lac_device_info *info = &e->device_info;
    uint64_t cache = info->l3_bytes > info->l2_bytes ? info->l3_bytes : info->l2_bytes;
    lac_matrix numbers = {0};
    e->backend = info->kind == LAC_DEVICE_KIND_CPU ? bench_backend_cpu() : bench_backend_cuda_open(info, why, sizeof why);
    if (!e->backend) {
        cli_error(NULL, NULL, "--measure: %s: %s", info->name, why);
        return CLI_EXIT_FAILURE;
    }
    size_t size = lac_dtype_size(e->settings->dtype);
    e->sweep_bytes = cache ? 2 * (size_t)cache : (size_t)64 << 20;
    e->x_bytes = (size_t)(e->m * e->k) * size;
    e->y_bytes = (size_t)(e->m * e->n) * size;
    e->x = e->backend->allocate(e->x_bytes);
    e->y = e->backend->allocate(e->y_bytes);
    if (!e->x || !e->y || cli_matrix_create(&numbers, e->settings->dtype, e->m, e->k) != 0)
        return cli_fail(NULL, NULL, LAC_STATUS_OUT_OF_MEMORY);
    fill_random(&numbers);
    e->backend->upload(e->x, numbers.data, e->x_bytes);
    cli_matrix_free(&numbers);
    return CLI_EXIT_OK;
}

static void free_operands(explanation *e)
{
    if (!e->backend) return;
    if (e->x) e->backend->release(e->x, e->x_bytes);
    if (e->y) e->backend->release(e->y, e->y_bytes);
    if (e->backend->kind == LAC_DEVICE_KIND_CUDA) bench_backend_cuda_close();
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of a few runs, each after the operands were pushed out of the caches. */
static lac_status measure(explanation *e, const lac_plan *plan, double *seconds)
{
    enum { RUNS = 7 };
    const bench_backend *backend = e->backend;
    lac_plan_info info = {.size = sizeof info};
    lac_status status = lac_plan_get_info(plan, &info);
    if (status != LAC_STATUS_OK) return status;
    void *workspace = info.workspace_bytes ? backend->allocate(info.workspace_bytes) : NULL;
    lac_execute_args args = {.size = sizeof args, .x = e->x, .y = e->y, .stream = backend->stream, .workspace = workspace};
    args.workspace_bytes = info.workspace_bytes;
    double times[RUNS] = {0};
    if (info.workspace_bytes && !workspace) return LAC_STATUS_OUT_OF_MEMORY;
    for (int run = -1; run < RUNS && status == LAC_STATUS_OK; run++) { /* run -1 warms up */
        backend->sweep(e->sweep_bytes);
        backend->mark(0);
        status = lac_plan_execute(plan, &args);
        backend->mark(1);
        backend->finish();
        if (run >= 0) times[run] = backend->elapsed(0, 1);
    }
    if (workspace) backend->release(workspace, info.workspace_bytes);
    if (status == LAC_STATUS_OK && backend->trouble()) {
        cli_error(NULL, NULL, "%s: %s", info.kernel, backend->trouble());
        status = LAC_STATUS_DEVICE;
    }
    qsort(times, RUNS, sizeof *times, compare_doubles);
    *seconds = times[RUNS / 2];
    return status;
}

/* ---- the candidates */

static lac_status describe(const lac_plan *plan, candidate *out)
{
    lac_plan_info info = {.size = sizeof info};
    lac_status status = lac_plan_get_info(plan, &info);
    if (status != LAC_STATUS_OK) return status;
    snprintf(out->kernel, sizeof out->kernel, "%s", info.kernel);
    snprintf(out->bound, sizeof out->bound, "%s", info.bound ? info.bound : "");
    out->is_dense = info.is_dense;
    out->predicted = info.predicted_seconds;
    out->ceiling = info.ceiling_seconds;
    out->measured = 0;
    out->dense_bytes = info.dense_bytes;
    snprintf(out->note, sizeof out->note, "%s", info.note);
    out->rivals = info.rivals;
    return LAC_STATUS_OK;
}

static int compare_candidates(const void *a, const void *b)
{
    return compare_doubles(&((const candidate *)a)->predicted, &((const candidate *)b)->predicted);
}

/* Every kernel that applies; those that the model has no levels for (the oracle) are none for the planner either. */
static lac_status find_candidates(explanation *e)
{
    size_t kernels = 0;
    lac_kernel_info info = {.size = sizeof info};
    while (lac_kernel_probe(kernels, &info) == LAC_STATUS_OK) kernels++;
    e->candidates = cli_allocate((kernels + 1) * sizeof *e->candidates);
    for (size_t i = 0; i < kernels; i++) {
        lac_plan *plan = NULL;
        lac_level_info level = {.size = sizeof level};
        lac_status status = lac_kernel_probe(i, &info);
        if (status == LAC_STATUS_OK && info.device != e->device_info.kind) continue;
        if (info.is_dense && e->settings->no_dense) continue;
        if (status == LAC_STATUS_OK) status = make_plan(e, info.name, &plan);
        if (status == LAC_STATUS_UNSUPPORTED) continue; /* it does not apply */
        if (status == LAC_STATUS_OK && lac_plan_explain(plan, 0, &level) == LAC_STATUS_OK) {
            candidate *one = &e->candidates[e->count++];
            status = describe(plan, one);
            if (status == LAC_STATUS_OK && e->settings->measure) status = measure(e, plan, &one->measured);
            if (!strcmp(one->kernel, e->picked.kernel)) e->picked.measured = one->measured;
        }
        lac_plan_free(plan);
        if (status != LAC_STATUS_OK) return status;
    }
    qsort(e->candidates, e->count, sizeof *e->candidates, compare_candidates);
    return LAC_STATUS_OK;
}

/* The fastest dense one, or NULL. */
static const candidate *find_dense(const explanation *e)
{
    for (size_t i = 0; i < e->count; i++)
        if (e->candidates[i].is_dense) return &e->candidates[i];
    return NULL;
}

/* ---- printing */

static json_t *measured_json(const explanation *e, double seconds)
{
    return e->settings->measure ? cli_json_number(seconds) : json_null();
}

static json_t *candidate_json(const explanation *e, const candidate *c)
{
    return json_pack("{s:o,s:b,s:I,s:o,s:o,s:o,s:o}", "kernel", cli_json_text(c->kernel), "is_dense", c->is_dense,
                     "dense_bytes", (json_int_t)c->dense_bytes, "predicted_seconds", cli_json_number(c->predicted),
                     "ceiling_seconds", cli_json_number(c->ceiling), "bound_by", cli_json_text(c->bound), "measured_seconds",
                     measured_json(e, c->measured));
}

static int print_json(const explanation *e)
{
    const explain_settings *s = e->settings;
    json_t *candidates = json_array(), *levels = json_array(), *remedy = NULL;
    for (size_t i = 0; i < e->count; i++) json_array_append_new(candidates, candidate_json(e, &e->candidates[i]));
    lac_level_info level = {.size = sizeof level};
    for (size_t i = 0; lac_plan_explain(e->plan, i, &level) == LAC_STATUS_OK; i++) {
        json_array_append_new(levels, json_pack("{s:s,s:s,s:o,s:o,s:o,s:b}", "name", level.name, "unit", level.unit, "amount",
                                                cli_json_number(level.amount), "rate", cli_json_number(level.rate), "seconds",
                                                cli_json_number(level.seconds), "is_bound", level.is_bound));
        if (level.is_bound) remedy = cli_json_text(level.remedy);
    }
    const candidate *dense = find_dense(e);
    return cli_json_print(
        json_pack("{s:s,s:I,s:I,s:I,s:o,s:s,s:s,s:o,s:o,s:i,s:o,s:o,s:o,s:o,s:o}", "command", "explain", "m", (json_int_t)e->m,
                  "n", (json_int_t)e->n, "k", (json_int_t)e->k, "pattern", cli_json_text(s->pattern.text), "dtype",
                  lac_dtype_name(s->dtype), "layout", s->layout == LAC_LAYOUT_FEATURE_MAJOR ? "feature" : "token", "device",
                  cli_json_text(e->device_info.name), "pick", candidate_json(e, &e->picked), "rivals", e->picked.rivals, "note",
                  cli_json_text(e->picked.note), "levels", levels, "remedy", remedy ? remedy : json_null(), "dense",
                  dense ? candidate_json(e, dense) : json_null(), "candidates", candidates),
        CLI_EXIT_OK);
}

static cli_text format_measured(const explanation *e, const candidate *c)
{
    return e->settings->measure ? cli_format_seconds(c->measured) : (cli_text){"-"};
}

static void print_candidates(const explanation *e)
{
    cli_table *table = cli_table_create("kernel|predicted|bound by|ceiling|measured", "lrlrr");
    for (size_t i = 0; i < e->count; i++) {
        const candidate *c = &e->candidates[i];
        cli_table_add(table, c->kernel, cli_format_seconds(c->predicted).text, c->bound, cli_format_seconds(c->ceiling).text,
                      format_measured(e, c).text);
    }
    cli_table_print(table);
}

static cli_text format_rate(const lac_level_info *level)
{
    if (!(level->rate > 1e6)) return (cli_text){"-"}; /* waves, seconds, launches: nothing that comes by the billion */
    return cli_format_number(strcmp(level->unit, "bytes") ? "%.2f G/s" : "%.2f GB/s", level->rate / 1e9);
}

/* Why a kernel that ignores the sparsity was picked, and what it keeps in memory. */
static void print_dense_reason(const explanation *e)
{
    const candidate *sparse = NULL;
    for (size_t i = 0; i < e->count && !sparse; i++)
        if (!e->candidates[i].is_dense) sparse = &e->candidates[i];
    printf("It ignores the sparsity and keeps W with its zeros, %s.", cli_format_bytes(e->picked.dense_bytes).text);
    if (sparse)
        printf(" The fastest kernel that does not, %s, would take %s by the model, %.2f times as long.", sparse->kernel,
               cli_format_seconds(sparse->predicted).text, sparse->predicted / e->picked.predicted);
    printf("%s\n", e->settings->kernel ? "" : " --no-dense (options.no_dense) forbids it.");
}

/* The levels of the picked kernel, and in words what they mean. */
static void print_levels(const explanation *e)
{
    const candidate *pick = &e->picked, *dense = find_dense(e);
    char remedy[256] = "";
    cli_table *table = cli_table_create("level|amount|unit|rate|time|share", "lrlrrr");
    lac_level_info level = {.size = sizeof level};
    for (size_t i = 0; lac_plan_explain(e->plan, i, &level) == LAC_STATUS_OK; i++) {
        cli_table_add(table, level.name, cli_format_number("%.3g", level.amount).text, level.unit, format_rate(&level).text,
                      cli_format_seconds(level.seconds).text, cli_format_percent(level.seconds / pick->predicted).text);
        if (level.is_bound) snprintf(remedy, sizeof remedy, "%s", level.remedy);
    }
    printf("\n%s%s%s, level by level; the share is that of the predicted time, and levels overlap:\n", cli_colour("bold"),
           pick->kernel, cli_colour("plain"));
    cli_table_print(table);
    printf("\npredicted %s", cli_format_seconds(pick->predicted).text);
    if (e->settings->measure) printf(", measured %s", cli_format_seconds(pick->measured).text);
    printf("; bound by %s, and the ceiling is %s.\n", pick->bound, cli_format_seconds(pick->ceiling).text);
    if (*remedy) printf("%s\n", remedy);
    if (*pick->note) printf("%s.\n", pick->note);
    if (pick->rivals && !e->settings->measure)
        printf("%d other%s so close to it that a plan times all of them, once for the problem, and takes the quickest.\n",
               pick->rivals, pick->rivals == 1 ? " is" : "s are");
    if (pick->is_dense) {
        print_dense_reason(e);
        return;
    }
    if (!dense) return;
    printf("Dense (%s) would take %s by the model, %.2f times as long", dense->kernel,
           cli_format_seconds(dense->predicted).text, dense->predicted / pick->predicted);
    if (e->settings->measure)
        printf("; measured %s, %.2f times", cli_format_seconds(dense->measured).text, dense->measured / pick->measured);
    printf(".\n");
}

static int print(const explanation *e)
{
    const explain_settings *s = e->settings;
    if (s->json) return print_json(e);
    printf("m %lld, n %lld, k %lld, pattern %s, %s, %s-major, on %s (%s)\n\n", (long long)e->m, (long long)e->n,
           (long long)e->k, s->pattern.text, lac_dtype_name(s->dtype),
           s->layout == LAC_LAYOUT_FEATURE_MAJOR ? "feature" : "token", e->device_info.name, e->device_info.model);
    print_candidates(e);
    print_levels(e);
    return CLI_EXIT_OK;
}

static int explain(explanation *e)
{
    const explain_settings *s = e->settings;
    lac_status status = lac_device_open(s->device, &e->device);
    if (status == LAC_STATUS_OK) status = lac_device_get_info(e->device, &e->device_info);
    if (status != LAC_STATUS_OK) return cli_fail(NULL, NULL, status);
    int failed = make_weight(e);
    if (!failed && s->measure) failed = make_operands(e);
    if (failed) return failed;
    status = make_plan(e, s->kernel, &e->plan);
    if (status == LAC_STATUS_OK) status = describe(e->plan, &e->picked);
    if (status == LAC_STATUS_OK) status = find_candidates(e);
    return status == LAC_STATUS_OK ? print(e) : cli_fail(NULL, NULL, status);
}

static int run(const void *given)
{
    explanation e = {.settings = given, .device_info = {.size = sizeof e.device_info}};
    int status = read_shape(&e);
    if (!status) status = explain(&e);
    lac_plan_free(e.plan);
    lac_weight_free(e.weight);
    free_operands(&e);
    lac_device_close(e.device);
    free(e.candidates);
    return status;
}

const cli_command cli_command_explain = {
    .name = "explain",
    .summary = "say which kernel a problem gets, how fast, and what bounds it",
    .description =
        "Draws a random weight of the pattern and the shape, and asks the performance model: every kernel that applies with "
        "its "
        "predicted time, and for the planner's pick what each level of the machine has to do, at which rate and for how long, "
        "which level bounds it, what the time would be if the resource that takes longest were all (the ceiling), and what "
        "would "
        "have to change.\n\n"
        "docs/model.md explains the model. The machine's rates are measured when it is opened; the environment variable "
        "LAC_CPU_RATES replaces them.",
    .examples = "lacuna explain --shape 1,4096,4096 --pattern 2:4\n"
                "lacuna explain --shape 128,4096,4096 --pattern vw32:8:32 --threads 1 --measure\n"
                "lacuna explain --shape 64,4096,4096 --pattern 64:2:8 --kernel cpu_avx2_f32_stream --json\n"
                "lacuna explain --device h200 --shape 4096,4096,4096 --pattern vw32:8:32 --precision strict",
    .operands = operands,
    .options = options,
    .settings_size = sizeof(explain_settings),
    .defaults = &defaults,
    .run = run,
};
