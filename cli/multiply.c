/* multiply.c - `lacuna multiply`: Y = act(alpha * X * W^T + bias) + beta * C from files to a file, timed and, if wanted,
 * checked against the oracle. */
#include "shared.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct multiply_settings {
    const char *weights, *x, *out;
    const char *name, *device, *kernel, *bias, *residual;
    int layout, activation, precision, measure, check, force, json;
    double alpha, beta;
    lac_dtype dtype;
    int64_t threads, repeat;
} multiply_settings;

static const cli_operand operands[] = {{.name = "WEIGHTS",
                                        .offset = offsetof(multiply_settings, weights),
                                        .help = "The container with the compressed weight W[n,k].",
                                        .hint = CLI_HINT_FILE},
                                       {.name = "X",
                                        .offset = offsetof(multiply_settings, x),
                                        .help = "The activations X[m,k]: a .npy file, or a safetensors file with one matrix.",
                                        .hint = CLI_HINT_FILE},
                                       {.name = "OUT",
                                        .offset = offsetof(multiply_settings, out),
                                        .help = "Where Y[m,n] goes: .npy or .safetensors (as tensor 'y').",
                                        .hint = CLI_HINT_FILE},
                                       CLI_END};

#define FIELD(field) offsetof(multiply_settings, field)
static const cli_option options[] = {
    {.name = "name",
     .letter = 'n',
     .argument = "W",
     .type = CLI_TYPE_TEXT,
     .offset = FIELD(name),
     .help = "Which weight of the container; may be left out when there is only one."},
    CLI_OPTION_DEVICE(multiply_settings, .help = "Where to multiply, as 'lacuna devices' names it; cpu unless said."),
    CLI_OPTION_KERNEL(multiply_settings, .type = CLI_TYPE_TEXT,
                      .help = "Use this kernel instead of the planner's pick; 'lacuna devices --kernels' lists them."),
    CLI_OPTION_LAYOUT(
        multiply_settings,
        .help = "token: the files hold X[m,k], Y[m,n] and C[m,n]; feature: X[k,m], Y[n,m] and C[n,m]. token unless said."),
    {.name = "bias",
     .letter = 'b',
     .argument = "FILE",
     .type = CLI_TYPE_TEXT,
     .offset = FIELD(bias),
     .hint = CLI_HINT_FILE,
     .help = "Add the vector bias[n] of this file before the activation."},
    {.name = "activation",
     .letter = 'a',
     .argument = "NAME",
     .type = CLI_TYPE_CHOICE,
     .offset = FIELD(activation),
     .choices = cli_activation_choices,
     .help = "none, relu, gelu (by erf), gelu-tanh or silu; none unless said."},
    {.name = "residual",
     .letter = 'c',
     .argument = "FILE",
     .type = CLI_TYPE_TEXT,
     .offset = FIELD(residual),
     .hint = CLI_HINT_FILE,
     .help = "Add beta times the matrix C of this file after the activation."},
    {.name = "alpha",
     .argument = "NUMBER",
     .type = CLI_TYPE_NUMBER,
     .offset = FIELD(alpha),
     .help = "Scale the product; 1 unless said."},
    {.name = "beta",
     .argument = "NUMBER",
     .type = CLI_TYPE_NUMBER,
     .offset = FIELD(beta),
     .help = "Scale the residual; 1 unless said. Needs --residual."},
    CLI_OPTION_DTYPE(
        multiply_settings, .choices = cli_weight_dtype_choices,
        .help = "Convert X to f32, f16 or bf16 and compute Y in it; X's own unless said. bf16 goes into a .npy file as f32."),
    CLI_OPTION_PRECISION(multiply_settings, .help = CLI_HELP_PRECISION "."),
    {.name = "measure",
     .type = CLI_TYPE_FLAG,
     .offset = FIELD(measure),
     .help = "Let the planner time the kernels instead of trusting its model."},
    CLI_OPTION_THREADS(multiply_settings),
    {.name = "repeat",
     .letter = 'r',
     .argument = "COUNT",
     .type = CLI_TYPE_INTEGER,
     .offset = FIELD(repeat),
     .minimum = 1,
     .maximum = 1000,
     .help = "Multiply so often and report the median time; 3 unless said."},
    {.name = "check",
     .type = CLI_TYPE_FLAG,
     .offset = FIELD(check),
     .help = "Compare Y with the oracle; beyond its bound nothing is written and the exit status is 1."},
    CLI_OPTION_FORCE(multiply_settings),
    CLI_OPTION_JSON(multiply_settings),
    CLI_END};

typedef struct product {
    const multiply_settings *settings;
    lac_device *device;
    lac_weight *weight;
    lac_weight_info weight_info;
    lac_matrix x, y, bias, residual; /* x [m][k] or [k][m], y and residual [m][n] or [n][m], bias [n] */
    int64_t m;
    lac_plan *plan;
    lac_plan_info plan_info;
    lac_execute_args args; /* host pointers, as the oracle takes them */
    float alpha, beta;
    double seconds;
    cli_product checked;
} product;

/* Reads the only matrix of a file; f64 is no dtype of activations and becomes f32. */
static int read_matrix(const char *path, lac_dtype dtype, lac_matrix *matrix)
{
    lac_file *file = NULL;
    lac_status status = lac_file_open(path, &file);
    if (status != LAC_STATUS_OK) return cli_fail(path, NULL, status);
    int failed = cli_matrix_read(file, path, NULL, dtype, matrix, NULL);
    if (!failed && matrix->dtype == LAC_DTYPE_F64) {
        cli_matrix_free(matrix);
        failed = cli_matrix_read(file, path, NULL, LAC_DTYPE_F32, matrix, NULL);
    }
    lac_file_close(file);
    return failed;
}

static int wrong_shape(const char *path, const char *what, const lac_matrix *matrix, int64_t rows, int64_t cols)
{
    cli_error(path, NULL, "%s is %lldx%lld; it must be %lldx%lld", what, (long long)matrix->rows, (long long)matrix->cols,
              (long long)rows, (long long)cols);
    return CLI_EXIT_FAILURE;
}

/* Without --name, which of its weights? */
static int refuse_unnamed(const char *path)
{
    lac_file *file = NULL;
    lac_file_info info = {.size = sizeof info};
    lac_status status = lac_file_open(path, &file);
    if (status == LAC_STATUS_OK) status = lac_file_get_info(file, &info);
    lac_file_close(file);
    if (status != LAC_STATUS_OK) return cli_fail(path, NULL, status);
    if (info.weights)
        cli_error(path, NULL, "holds %lld weights; --name says which, 'lacuna info' lists them", (long long)info.weights);
    else
        cli_error(path, NULL, "holds no compressed weight; 'lacuna prune' makes a container of them");
    return CLI_EXIT_FAILURE;
}

static int load_weight(product *p)
{
    const multiply_settings *s = p->settings;
    lac_status status = lac_weight_load(s->weights, s->name, &p->weight);
    if (status == LAC_STATUS_INVALID_ARGUMENT && !s->name) return refuse_unnamed(s->weights);
    if (status == LAC_STATUS_OK) status = lac_weight_get_info(p->weight, &p->weight_info);
    return status == LAC_STATUS_OK ? CLI_EXIT_OK : cli_fail(s->weights, s->name, status);
}

static int load_operands(product *p)
{
    const multiply_settings *s = p->settings;
    int64_t n = p->weight_info.n_out, k = p->weight_info.k_in;
    int feature = s->layout == LAC_LAYOUT_FEATURE_MAJOR;
    int failed = read_matrix(s->x, s->dtype, &p->x);
    if (failed) return failed;
    p->m = feature ? p->x.cols : p->x.rows;
    if ((feature ? p->x.rows : p->x.cols) != k) {
        cli_error(s->x, NULL, "X is %lldx%lld, %s-major, but the weight has k = %lld inputs", (long long)p->x.rows,
                  (long long)p->x.cols, feature ? "feature" : "token", (long long)k);
        return CLI_EXIT_FAILURE;
    }
    if (s->bias) {
        failed = read_matrix(s->bias, p->x.dtype, &p->bias);
        if (failed) return failed;
        if (p->bias.rows * p->bias.cols != n || (p->bias.rows != 1 && p->bias.cols != 1))
            return wrong_shape(s->bias, "the bias", &p->bias, 1, n);
    }
    int64_t rows = feature ? n : p->m, cols = feature ? p->m : n;
    if (s->residual) {
        failed = read_matrix(s->residual, p->x.dtype, &p->residual);
        if (failed) return failed;
        if (p->residual.rows != rows || p->residual.cols != cols)
            return wrong_shape(s->residual, "C", &p->residual, rows, cols);
    }
    if (cli_matrix_create(&p->y, p->x.dtype, rows, cols) != 0) return cli_fail(NULL, NULL, LAC_STATUS_OUT_OF_MEMORY);
    return CLI_EXIT_OK;
}

static int make_plan(product *p)
{
    const multiply_settings *s = p->settings;
    const char *device = s->device ? s->device : "cpu";
    lac_status status = lac_device_open(device, &p->device);
    if (status != LAC_STATUS_OK) return cli_fail(NULL, NULL, status);
    lac_plan_options options = {.size = sizeof options, .x_dtype = p->x.dtype, .y_dtype = p->x.dtype};
    options.x_layout = options.y_layout = (lac_layout)s->layout;
    options.precision = (lac_precision)s->precision;
    options.has_bias = s->bias != NULL;
    options.activation = (lac_activation)s->activation;
    options.has_residual = s->residual != NULL;
    options.kernel = s->kernel;
    options.threads = (int32_t)s->threads;
    options.measure = s->measure;
    status = lac_plan_create(p->device, p->weight, p->m, &options, &p->plan);
    if (status == LAC_STATUS_OK) status = lac_plan_get_info(p->plan, &p->plan_info);
    return status == LAC_STATUS_OK ? CLI_EXIT_OK : cli_fail(s->weights, NULL, status);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The matrices in the device's memory, and a workspace; on a CPU these are copies. */
typedef struct device_blocks {
    void *x, *y, *bias, *residual, *workspace;
} device_blocks;

static lac_status copy_to_device(lac_device *device, const lac_matrix *from, void **to)
{
    uint64_t bytes = (uint64_t)from->rows * (uint64_t)from->cols * lac_dtype_size(from->dtype);
    if (!from->data) return LAC_STATUS_OK;
    lac_status status = lac_device_allocate(device, bytes, to);
    return status == LAC_STATUS_OK ? lac_device_upload(device, *to, from->data, bytes) : status;
}

static lac_status make_blocks(product *p, device_blocks *b)
{
    lac_status status = copy_to_device(p->device, &p->x, &b->x);
    if (status == LAC_STATUS_OK) status = copy_to_device(p->device, &p->y, &b->y);
    if (status == LAC_STATUS_OK) status = copy_to_device(p->device, &p->bias, &b->bias);
    if (status == LAC_STATUS_OK) status = copy_to_device(p->device, &p->residual, &b->residual);
    if (status == LAC_STATUS_OK) status = lac_device_allocate(p->device, p->plan_info.workspace_bytes, &b->workspace);
    return status;
}

static void free_blocks(lac_device *device, device_blocks *b)
{
    void *blocks[] = {b->x, b->y, b->bias, b->residual, b->workspace};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) lac_device_release(device, blocks[i]);
}

/* The median time of a few runs, each until the device is done; the result goes to p->y. */
static lac_status run_on_device(product *p, const lac_execute_args *args)
{
    int64_t repeat = p->settings->repeat;
    double *times = cli_allocate((size_t)repeat * sizeof *times);
    lac_status status = LAC_STATUS_OK;
    for (int64_t i = 0; i < repeat && status == LAC_STATUS_OK; i++) {
        double started = cli_seconds();
        status = lac_plan_execute(p->plan, args);
        if (status == LAC_STATUS_OK) status = lac_device_synchronize(p->device);
        times[i] = cli_seconds() - started;
    }
    qsort(times, (size_t)repeat, sizeof *times, compare_doubles);
    p->seconds = times[repeat / 2];
    free(times);
    uint64_t bytes = (uint64_t)p->y.rows * (uint64_t)p->y.cols * lac_dtype_size(p->y.dtype);
    return status == LAC_STATUS_OK ? lac_device_download(p->device, p->y.data, args->y, bytes) : status;
}

static int execute(product *p)
{
    const multiply_settings *s = p->settings;
    p->alpha = (float)s->alpha;
    p->beta = isnan(s->beta) ? 1 : (float)s->beta;
    p->args = (lac_execute_args){.size = sizeof p->args, .x = p->x.data, .y = p->y.data, .alpha = &p->alpha};
    if (s->bias) p->args.bias = p->bias.data;
    if (s->residual) p->args.c = p->residual.data, p->args.beta = &p->beta;
    device_blocks blocks = {0};
    lac_status status = make_blocks(p, &blocks);
    if (status == LAC_STATUS_OK) {
        lac_execute_args args = p->args;
        args.x = blocks.x;
        args.y = blocks.y;
        args.bias = blocks.bias;
        args.c = blocks.residual;
        args.workspace = blocks.workspace;
        args.workspace_bytes = p->plan_info.workspace_bytes;
        status = run_on_device(p, &args);
    }
    free_blocks(p->device, &blocks);
    return status == LAC_STATUS_OK ? CLI_EXIT_OK : cli_fail(s->weights, NULL, status);
}

static int check(product *p)
{
    const multiply_settings *s = p->settings;
    /* The comparison wants tokens by outputs whatever the layout. */
    lac_matrix y = p->y;
    y.layout = (lac_layout)s->layout;
    y.rows = p->m;
    y.cols = p->weight_info.n_out;
    lac_status status = cli_product_compare(p->plan, &p->args, &y, &p->checked);
    if (status != LAC_STATUS_OK) return cli_fail(s->weights, NULL, status);
    if (p->checked.ok) return CLI_EXIT_OK;
    cli_error(s->weights, s->name, "kernel %s: y(%lld, %lld) is %.9g, the oracle says %.9g within %.3g", p->plan_info.kernel,
              (long long)p->checked.row, (long long)p->checked.col, p->checked.got, p->checked.want, p->checked.bound);
    return CLI_EXIT_NO;
}

/* .npy knows no bf16; f32 holds it exactly. */
static int write_result(product *p)
{
    lac_matrix wide = p->y;
    int convert = p->y.dtype == LAC_DTYPE_BF16 && cli_ends_with(p->settings->out, ".npy");
    if (convert) {
        if (cli_matrix_create(&wide, LAC_DTYPE_F32, p->y.rows, p->y.cols) != 0)
            return cli_fail(NULL, NULL, LAC_STATUS_OUT_OF_MEMORY);
        for (int64_t i = 0; i < wide.rows * wide.cols; i++) cli_matrix_put(&wide, i, cli_matrix_get(&p->y, i));
    }
    cli_interrupt_catch();
    int failed = cli_matrix_write(&wide, p->settings->out, "y");
    if (convert) cli_matrix_free(&wide);
    return failed;
}

static int print_answer(const product *p, int exit_status)
{
    const multiply_settings *s = p->settings;
    const lac_plan_info *plan = &p->plan_info;
    double seconds = p->seconds > 0 ? p->seconds : 1e-9;
    double gflops = 2e-9 * (double)p->m * (double)p->weight_info.kept / seconds;
    double dense_gflops = 2e-9 * (double)p->m * (double)p->weight_info.n * (double)p->weight_info.k / seconds;
    char pattern[LAC_PATTERN_TEXT_SIZE] = "";
    lac_pattern_format(&p->weight_info.pattern, pattern, sizeof pattern);
    if (s->json) {
        json_t *checked = json_null();
        if (s->check)
            checked = json_pack("{s:b,s:o,s:o}", "ok", p->checked.ok, "max_error", cli_json_number(p->checked.max_error),
                                "share_of_bound", cli_json_number(p->checked.share));
        return cli_json_print(json_pack("{s:s,s:o,s:o,s:o,s:s,s:s,s:I,s:I,s:I,s:s,s:b,s:s,s:f,s:f,s:f,s:f,s:o}", "command",
                                        "multiply", "weights", cli_json_text(s->weights), "x", cli_json_text(s->x), "out",
                                        exit_status == CLI_EXIT_OK ? cli_json_text(s->out) : json_null(), "pattern", pattern,
                                        "dtype", lac_dtype_name(p->x.dtype), "m", (json_int_t)p->m, "n", (json_int_t)plan->n,
                                        "k", (json_int_t)plan->k, "kernel", plan->kernel, "is_dense", plan->is_dense != 0,
                                        "bound_by", plan->bound ? plan->bound : "", "seconds", p->seconds, "predicted_seconds",
                                        plan->predicted_seconds, "gflops", gflops, "dense_equivalent_gflops", dense_gflops,
                                        "check", checked),
                              exit_status);
    }
    printf("m %lld, n %lld, k %lld, pattern %s, %s\n", (long long)p->m, (long long)plan->n, (long long)plan->k, pattern,
           lac_dtype_name(p->x.dtype));
    printf("kernel %s%s, %s, %.2f GFLOP/s (%.2f as if dense)\n", plan->kernel, plan->is_dense ? " (dense)" : "",
           cli_format_seconds(p->seconds).text, gflops, dense_gflops);
    if (s->check)
        printf("max error %.3e, at most %.2f%% of its bound: %s%s%s\n", p->checked.max_error, 100 * p->checked.share,
               cli_colour(p->checked.ok ? "green" : "red"), p->checked.ok ? "ok" : "WRONG", cli_colour("plain"));
    if (exit_status == CLI_EXIT_OK) printf("%s written\n", s->out);
    return exit_status;
}

static int run(const void *given)
{
    product p = {.settings = given, .weight_info = {.size = sizeof p.weight_info}, .plan_info = {.size = sizeof p.plan_info}};
    const multiply_settings *s = p.settings;
    if (!isnan(s->beta) && !s->residual) {
        cli_error(NULL, NULL, "--beta %g needs --residual FILE", s->beta);
        return CLI_EXIT_USAGE;
    }
    if (fabs(s->alpha) > FLT_MAX || fabs(s->beta) > FLT_MAX) { /* false for the NaN of a beta that was not given */
        int is_alpha = fabs(s->alpha) > FLT_MAX;
        cli_error(NULL, NULL, "--%s %g is too large: it is multiplied as f32", is_alpha ? "alpha" : "beta",
                  is_alpha ? s->alpha : s->beta);
        return CLI_EXIT_USAGE;
    }
    if (!cli_ends_with(s->out, ".npy") && !cli_ends_with(s->out, ".safetensors")) {
        cli_error(s->out, NULL, "a matrix is written as .npy or .safetensors");
        return CLI_EXIT_USAGE;
    }
    int exit_status = cli_refuse_overwrite(s->out, s->force);
    if (!exit_status) exit_status = load_weight(&p);
    if (!exit_status) exit_status = load_operands(&p);
    if (!exit_status) exit_status = make_plan(&p);
    if (!exit_status) exit_status = execute(&p);
    int executed = !exit_status;
    if (!exit_status && s->check) exit_status = check(&p);
    if (!exit_status) exit_status = write_result(&p);
    if (executed && exit_status != CLI_EXIT_FAILURE) exit_status = print_answer(&p, exit_status);
    cli_matrix_free(&p.x);
    cli_matrix_free(&p.y);
    cli_matrix_free(&p.bias);
    cli_matrix_free(&p.residual);
    lac_plan_free(p.plan);
    lac_weight_free(p.weight);
    lac_device_close(p.device);
    return exit_status;
}

static const multiply_settings defaults = {.alpha = 1, .beta = NAN, .repeat = 3};

const cli_command cli_command_multiply = {
    .name = "multiply",
    .summary = "multiply activations by a compressed weight",
    .description =
        "Computes Y[m,n] = act(alpha * X[m,k] * W[n,k]^T + bias[n]) + beta * C[m,n] from files, writes Y, and prints "
        "the kernel that was chosen, its time and its GFLOP/s.",
    .examples = "lacuna multiply pruned.safetensors x.npy y.npy --name layers.0.up.weight --check\n"
                "lacuna multiply w.safetensors x.npy y.npy --bias b.npy --activation gelu --layout feature",
    .operands = operands,
    .options = options,
    .settings_size = sizeof(multiply_settings),
    .defaults = &defaults,
    .run = run,
};
