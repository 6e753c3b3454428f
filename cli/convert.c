/* convert.c - `lacuna convert`: the same numbers in another kind of file. The ending of OUT says which.
 *
 * One matrix or mask is converted here; whole safetensors files in container.c. */
#include "convert.h"
#include "shared.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const cli_operand operands[] = {
    {.name = "IN",
     .offset = offsetof(convert_settings, in),
     .help = "A safetensors file or container, a folder or index.json of them, .npy or .smtx.",
     .hint = CLI_HINT_FILE},
    {.name = "OUT",
     .offset = offsetof(convert_settings, out),
     .help = "The file to write: .safetensors, .npy (one matrix) or .smtx (the mask of one matrix).",
     .hint = CLI_HINT_FILE},
    CLI_END};

#define FIELD(field) offsetof(convert_settings, field)
static const cli_option options[] = {
    {.name = "name",
     .letter = 'n',
     .argument = "NAME",
     .type = CLI_TYPE_TEXT,
     .offset = FIELD(name),
     .help = "The tensor or weight to take from IN; where IN has no names (.npy, .smtx), the name to write it under."},
    {.name = "dense",
     .type = CLI_TYPE_FLAG,
     .offset = FIELD(dense),
     .help = "Write compressed weights dense, with zeros, under their own names."},
    CLI_OPTION_PATTERN(
        convert_settings, .argument = "P",
        .help = "Compress matrices that obey this pattern already; fails, with exit status 1, naming the first violation."),
    CLI_OPTION_INCLUDE(convert_settings, .help = "With --pattern: compress only tensors whose name matches; may be repeated."),
    CLI_OPTION_EXCLUDE(convert_settings, .help = "With --pattern: copy tensors whose name matches; may be repeated."),
    CLI_OPTION_DTYPE(convert_settings, .choices = cli_any_dtype_choices,
                     .help = "Change floating-point numbers to f32, f16, bf16 or (dense only) f64."),
    CLI_OPTION_ENCODING(convert_settings,
                        .help = "Store the index as auto (the smallest), implicit, packed, bitmask or columns."),
    CLI_OPTION_SATURATE(convert_settings),
    CLI_OPTION_AGAINST(convert_settings, .help = "With a .smtx IN: take the values from this matrix instead of writing ones."),
    CLI_OPTION_THREADS(convert_settings),
    CLI_OPTION_FORCE(convert_settings),
    CLI_OPTION_PROGRESS(convert_settings),
    CLI_OPTION_JSON(convert_settings),
    CLI_END};

int cli_convert_change_dtype(const conversion *c, const char *name, lac_matrix *matrix, lac_dtype dtype)
{
    if (dtype == LAC_DTYPE_NONE || dtype == matrix->dtype) return CLI_EXIT_OK;
    lac_matrix changed;
    if (cli_matrix_create(&changed, dtype, matrix->rows, matrix->cols) != 0)
        return cli_fail(c->settings->in, name, LAC_STATUS_OUT_OF_MEMORY);
    for (int64_t i = 0; i < matrix->rows * matrix->cols; i++) {
        double value = cli_matrix_get(matrix, i), rounded = cli_number_round(value, dtype);
        if (isinf(rounded) && isfinite(value)) {
            if (!c->settings->saturate) {
                cli_error(c->settings->in, name, "element (%lld, %lld) is %.9g, too large for %s; --saturate stores %g",
                          (long long)(i / matrix->cols), (long long)(i % matrix->cols), value, lac_dtype_name(dtype),
                          copysign(cli_number_largest(dtype), value));
                cli_matrix_free(&changed);
                return CLI_EXIT_FAILURE;
            }
            rounded = copysign(cli_number_largest(dtype), value);
        }
        cli_matrix_put(&changed, i, rounded);
    }
    cli_matrix_free(matrix);
    *matrix = changed;
    return CLI_EXIT_OK;
}

static int take_weight(conversion *c, const char *name, lac_matrix *matrix)
{
    lac_weight *weight = NULL;
    lac_weight_info info = {.size = sizeof info};
    lac_status status = lac_file_load_weight(c->file, name, &weight);
    if (status == LAC_STATUS_OK) status = lac_weight_get_info(weight, &info);
    if (status == LAC_STATUS_OK && cli_matrix_create(matrix, info.dtype, info.n_out, info.k_in) != 0)
        status = LAC_STATUS_OUT_OF_MEMORY;
    if (status == LAC_STATUS_OK) {
        status = lac_weight_decompress(weight, matrix);
        if (status != LAC_STATUS_OK) cli_matrix_free(matrix);
    }
    lac_weight_free(weight);
    return status == LAC_STATUS_OK ? CLI_EXIT_OK : cli_fail(c->settings->in, name, status);
}

/* The values that a mask keeps, from --against; without it, ones. */
static int fill_mask(conversion *c, const lac_mask *mask, const lac_mask_info *info, lac_matrix *matrix)
{
    const convert_settings *s = c->settings;
    if (!s->against) {
        if (cli_matrix_create(matrix, s->dtype ? s->dtype : LAC_DTYPE_F32, info->n, info->k) != 0)
            return cli_fail(s->in, NULL, LAC_STATUS_OUT_OF_MEMORY);
        for (int64_t i = 0; i < info->n; i++)
            for (int64_t j = 0; j < info->k; j++) cli_matrix_put(matrix, i * info->k + j, lac_mask_get(mask, i, j));
        return CLI_EXIT_OK;
    }
    lac_file *dense = NULL;
    lac_status status = lac_file_open(s->against, &dense);
    if (status != LAC_STATUS_OK) return cli_fail(s->against, NULL, status);
    /* --name chooses in DENSE when DENSE has names. */
    lac_tensor_info named = {.size = sizeof named};
    int has_name = s->name && lac_file_find_tensor(dense, s->name, &named) == LAC_STATUS_OK;
    int failed = cli_matrix_read(dense, s->against, has_name ? s->name : NULL, LAC_DTYPE_NONE, matrix, NULL);
    lac_file_close(dense);
    if (failed) return failed;
    if (matrix->rows != info->n || matrix->cols != info->k) {
        cli_error(s->against, NULL, "the matrix is %lldx%lld, but the mask of %s is %lldx%lld", (long long)matrix->rows,
                  (long long)matrix->cols, s->in, (long long)info->n, (long long)info->k);
        failed = CLI_EXIT_FAILURE;
    } else if ((status = lac_mask_apply(mask, matrix)) != LAC_STATUS_OK) {
        failed = cli_fail(s->against, NULL, status);
    }
    if (failed) cli_matrix_free(matrix);
    return failed;
}

static int take_mask(conversion *c, lac_matrix *matrix)
{
    lac_mask *mask = NULL;
    lac_mask_info info = {.size = sizeof info};
    lac_status status = lac_file_load_mask(c->file, &mask);
    if (status == LAC_STATUS_OK) status = lac_mask_get_info(mask, &info);
    int failed = status == LAC_STATUS_OK ? fill_mask(c, mask, &info, matrix) : cli_fail(c->settings->in, NULL, status);
    lac_mask_free(mask);
    return failed;
}

int cli_convert_take_matrix(conversion *c, lac_matrix *matrix, const char **name)
{
    const convert_settings *s = c->settings;
    *name = s->name ? s->name : c->info.masks ? "mask" : "array";
    if (c->info.masks) return take_mask(c, matrix);
    if (c->info.format == LAC_FILE_FORMAT_NPY) return cli_matrix_read(c->file, s->in, NULL, LAC_DTYPE_NONE, matrix, NULL);
    for (int64_t i = 0; i < c->info.weights; i++) {
        const char *weight = NULL;
        lac_weight_info info = {.size = sizeof info};
        lac_status status = lac_file_get_weight(c->file, i, &weight, &info);
        if (status != LAC_STATUS_OK) return cli_fail(s->in, NULL, status);
        int only = !s->name && c->info.weights == 1 && c->info.tensors == 0;
        if (!only && (!s->name || strcmp(s->name, weight) != 0)) continue;
        *name = weight;
        return take_weight(c, weight, matrix);
    }
    if (!s->name && c->info.weights + c->info.tensors > 1) {
        cli_error(s->in, NULL, "holds %lld weights and %lld tensors; --name says which", (long long)c->info.weights,
                  (long long)c->info.tensors);
        return CLI_EXIT_FAILURE;
    }
    return cli_matrix_read(c->file, s->in, s->name, LAC_DTYPE_NONE, matrix, name);
}

/* OUT is .npy or .smtx. */
static int convert_to_single(conversion *c)
{
    const convert_settings *s = c->settings;
    int to_mask = cli_ends_with(s->out, ".smtx");
    lac_matrix matrix;
    const char *name = NULL;
    int failed = cli_convert_take_matrix(c, &matrix, &name);
    if (failed) return failed;
    lac_dtype dtype = s->dtype;
    if (!dtype && matrix.dtype == LAC_DTYPE_BF16) dtype = LAC_DTYPE_F32; /* .npy knows no bf16; f32 holds it exactly */
    if (!to_mask) failed = cli_convert_change_dtype(c, name, &matrix, dtype);
    if (!failed && to_mask) {
        lac_mask *mask = NULL;
        lac_status status = lac_mask_from_nonzeros(&matrix, &mask);
        if (status == LAC_STATUS_OK) status = lac_mask_save_smtx(mask, s->out);
        lac_mask_free(mask);
        if (status != LAC_STATUS_OK) failed = cli_fail(s->out, NULL, status);
    } else if (!failed) {
        failed = cli_matrix_write(&matrix, s->out, name);
    }
    c->dense++;
    cli_matrix_free(&matrix);
    return failed;
}

static int nonsense(const char *format, ...) __attribute__((format(printf, 1, 2)));

static int nonsense(const char *format, ...)
{
    char message[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    cli_error(NULL, NULL, "%s", message);
    return CLI_EXIT_USAGE;
}

/* Combinations that mean nothing, before anything is read. */
static int check_options(const convert_settings *s)
{
    int single = cli_ends_with(s->out, ".npy") || cli_ends_with(s->out, ".smtx");
    if (!single && !cli_ends_with(s->out, ".safetensors"))
        return nonsense("OUT '%s': its ending must be .safetensors, .npy or .smtx", s->out);
    if (single && s->pattern.text) return nonsense("--pattern makes a container; OUT '%s' is none", s->out);
    if (single && s->encoding) return nonsense("--encoding is for containers; OUT '%s' is none", s->out);
    if (cli_ends_with(s->out, ".smtx") && s->dtype) return nonsense("--dtype: a mask such as '%s' has no numbers", s->out);
    if (cli_ends_with(s->out, ".npy") && s->dtype == LAC_DTYPE_BF16)
        return nonsense("--dtype bf16: .npy files such as '%s' cannot hold it", s->out);
    if (s->dense && s->pattern.text) return nonsense("--dense and --pattern '%s' contradict each other", s->pattern.text);
    if (s->dense && s->encoding) return nonsense("--dense writes no index, so --encoding has nothing to do");
    if ((s->include.count || s->exclude.count) && !s->pattern.text) return nonsense("--include and --exclude need --pattern");
    if (s->pattern.text && s->dtype == LAC_DTYPE_F64) return nonsense("--dtype f64: compressed values are f32, f16 or bf16");
    return CLI_EXIT_OK;
}

/* Combinations that mean nothing for what IN turned out to be. */
static int check_input(const conversion *c)
{
    const convert_settings *s = c->settings;
    if (s->against && !c->info.masks) return nonsense("--against '%s' needs a .smtx mask as IN", s->against);
    if (c->info.masks && cli_ends_with(s->out, ".smtx")) return nonsense("'%s' is a mask already", s->in);
    if (c->info.masks && s->pattern.text && !s->against)
        return nonsense("'%s' is a mask without values: --pattern needs --against DENSE", s->in);
    if (s->encoding && !s->pattern.text && !c->info.weights)
        return nonsense("--encoding: '%s' holds no compressed weight; --pattern makes some", s->in);
    if (s->dense && !c->info.weights) return nonsense("--dense: '%s' holds no compressed weight", s->in);
    return CLI_EXIT_OK;
}

static int convert_file(conversion *c)
{
    lac_status status = lac_file_get_info(c->file, &c->info);
    if (status != LAC_STATUS_OK) return cli_fail(c->settings->in, NULL, status);
    int failed = check_input(c);
    if (failed) return failed;
    cli_interrupt_catch();
    return cli_ends_with(c->settings->out, ".safetensors") ? cli_convert_to_container(c) : convert_to_single(c);
}

static int run(const void *given)
{
    conversion c = {.settings = given, .info = {.size = sizeof c.info}};
    const convert_settings *s = c.settings;
    int exit_status = check_options(s);
    if (!exit_status) exit_status = cli_refuse_overwrite(s->out, s->force);
    if (exit_status) return exit_status;
    lac_status status = lac_file_open(s->in, &c.file);
    if (status != LAC_STATUS_OK) return cli_fail(s->in, NULL, status);
    exit_status = convert_file(&c);
    lac_file_close(c.file);
    if (exit_status) return exit_status;
    if (s->json)
        return cli_json_print(json_pack("{s:s,s:o,s:o,s:I,s:I,s:I}", "command", "convert", "in", cli_json_text(s->in), "out",
                                        cli_json_text(s->out), "compressed", (json_int_t)c.compressed, "dense",
                                        (json_int_t)c.dense, "copied", (json_int_t)c.copied),
                              CLI_EXIT_OK);
    printf("%s: %lld compressed, %lld dense, %lld copied\n", s->out, (long long)c.compressed, (long long)c.dense,
           (long long)c.copied);
    return CLI_EXIT_OK;
}

const cli_command cli_command_convert = {
    .name = "convert",
    .summary = "convert between .npy, .smtx, safetensors and containers",
    .description =
        "Writes what IN holds as the kind of file that OUT's ending names. A matrix goes between .npy and safetensors; its "
        "mask "
        "to .smtx; a mask to a matrix of 0 and 1, or with --against of the values it keeps; a container to dense tensors with "
        "--dense; dense tensors that obey a pattern already to a container with --pattern; and a container to another encoding "
        "or dtype.",
    .examples = "lacuna convert w.npy w.safetensors --name w\n"
                "lacuna convert pruned.safetensors dense.safetensors --dense\n"
                "lacuna convert dense.safetensors pruned.safetensors --pattern 2:4 --include '*.weight'\n"
                "lacuna convert pruned.safetensors w.npy --name layers.0.up.weight\n"
                "lacuna convert mask.smtx mask.npy",
    .operands = operands,
    .options = options,
    .settings_size = sizeof(convert_settings),
    .run = run,
};
