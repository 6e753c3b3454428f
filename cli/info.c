/* info.c - `lacuna info`: what a file holds, without loading it. */
#include "shared.h"

#include <stdlib.h>

typedef struct info_settings {
    const char *path;
    int density, metadata, json;
} info_settings;

static const cli_operand operands[] = {
    {.name = "FILE",
     .offset = offsetof(info_settings, path),
     .help = "A safetensors file or container, a folder or index.json of them, .npy or .smtx.",
     .hint = CLI_HINT_FILE},
    CLI_END};
static const cli_option options[] = {{.name = "density",
                                      .letter = 'd',
                                      .type = CLI_TYPE_FLAG,
                                      .offset = offsetof(info_settings, density),
                                      .help = "Count the nonzeros of dense tensors too, which reads the whole file."},
                                     {.name = "metadata",
                                      .letter = 'm',
                                      .type = CLI_TYPE_FLAG,
                                      .offset = offsetof(info_settings, metadata),
                                      .help = "Print the file's metadata too; --json always has it."},
                                     CLI_OPTION_JSON(info_settings),
                                     CLI_END};

static const char *const format_names[] = {"", "safetensors", "npy", "smtx"};

typedef struct totals {
    uint64_t bytes, dense_bytes; /* as stored, and were everything dense */
} totals;

/* Where the rows go: a table or JSON lists, whichever the user wants. */
typedef struct sink {
    cli_table *table; /* NULL: JSON */
    json_t *weights, *tensors, *masks;
    totals sum;
} sink;

static const char *encoding_name(lac_index_encoding encoding)
{
    for (const cli_choice *c = cli_encoding_choices; c->name; c++)
        if (c->value == (int)encoding) return c->name;
    return "unknown";
}

static double share(double part, double whole) { return whole > 0 ? part / whole : 1; }

static int add_weight(sink *to, const lac_file *file, const char *path, int64_t index)
{
    const char *name = NULL;
    lac_weight_info w = {.size = sizeof w};
    char pattern[LAC_PATTERN_TEXT_SIZE];
    lac_status status = lac_file_get_weight(file, index, &name, &w);
    if (status == LAC_STATUS_OK) status = lac_pattern_format(&w.pattern, pattern, sizeof pattern);
    if (status != LAC_STATUS_OK) return cli_fail(path, name, status);
    uint64_t bytes = w.value_bytes + w.index_bytes;
    double density = share((double)w.kept, (double)w.n * (double)w.k);
    double ratio = share((double)bytes, (double)w.dense_bytes);
    to->sum.bytes += bytes;
    to->sum.dense_bytes += w.dense_bytes;
    if (to->table) {
        cli_table_add(to->table, name, cli_format_shape((int64_t[]){w.n, w.k}, 2).text, pattern, lac_dtype_name(w.dtype),
                      cli_format_percent(density).text, cli_format_bytes(bytes).text, cli_format_bytes(w.dense_bytes).text,
                      cli_format_percent(ratio).text, encoding_name(w.encoding));
        return CLI_EXIT_OK;
    }
    json_array_append_new(
        to->weights,
        json_pack("{s:o,s:I,s:I,s:s,s:s,s:s,s:b,s:b,s:I,s:f,s:I,s:I,s:I,s:I,s:f}", "name", cli_json_text(name), "n",
                  (json_int_t)w.n, "k", (json_int_t)w.k, "pattern", pattern, "dtype", lac_dtype_name(w.dtype), "encoding",
                  encoding_name(w.encoding), "has_row_perm", w.has_row_perm != 0, "has_col_perm", w.has_col_perm != 0, "kept",
                  (json_int_t)w.kept, "density", density, "bytes", (json_int_t)bytes, "value_bytes", (json_int_t)w.value_bytes,
                  "index_bytes", (json_int_t)w.index_bytes, "dense_bytes", (json_int_t)w.dense_bytes, "of_dense", ratio));
    return CLI_EXIT_OK;
}

static int64_t count_nonzeros(const lac_tensor_info *tensor)
{
    int64_t nonzeros = 0, count = (int64_t)(tensor->bytes / lac_dtype_size(tensor->dtype));
    for (int64_t i = 0; i < count; i++) nonzeros += cli_number_get(tensor->data, tensor->dtype, i) != 0;
    return nonzeros;
}

static int add_tensor(sink *to, const lac_file *file, const char *path, int64_t index, int count_density)
{
    lac_tensor_info t = {.size = sizeof t};
    lac_status status = lac_file_get_tensor(file, index, &t);
    if (status != LAC_STATUS_OK) return cli_fail(path, NULL, status);
    int counted = count_density && cli_tensor_is_floating(&t);
    size_t size = lac_dtype_size(t.dtype);
    double density = counted ? share((double)count_nonzeros(&t), (double)(t.bytes / size)) : 1;
    to->sum.bytes += t.bytes;
    to->sum.dense_bytes += t.bytes;
    if (to->table) {
        cli_table_add(to->table, t.name, cli_format_shape(t.shape, t.rank).text, "dense", t.type,
                      counted ? cli_format_percent(density).text : "-", cli_format_bytes(t.bytes).text,
                      cli_format_bytes(t.bytes).text, cli_format_percent(1).text, "-");
        return CLI_EXIT_OK;
    }
    json_t *shape = json_array();
    for (int i = 0; i < t.rank; i++) json_array_append_new(shape, json_integer(t.shape[i]));
    json_t *entry = json_pack("{s:o,s:o,s:o,s:s,s:I,s:o,s:o}", "name", cli_json_text(t.name), "shape", shape, "type",
                              cli_json_text(t.type), "dtype", lac_dtype_name(t.dtype), "bytes", (json_int_t)t.bytes, "file",
                              cli_json_text(t.path ? t.path : path), "density", counted ? json_real(density) : json_null());
    json_array_append_new(to->tensors, entry);
    return CLI_EXIT_OK;
}

static int add_mask(sink *to, const lac_file *file, const char *path, uint64_t bytes)
{
    lac_mask *mask = NULL;
    lac_mask_info m = {.size = sizeof m};
    lac_status status = lac_file_load_mask(file, &mask);
    if (status == LAC_STATUS_OK) status = lac_mask_get_info(mask, &m);
    if (status != LAC_STATUS_OK) {
        lac_mask_free(mask);
        return cli_fail(path, NULL, status);
    }
    double density = share((double)m.kept, (double)m.n * (double)m.k);
    to->sum.bytes += bytes;
    if (to->table)
        cli_table_add(to->table, "mask", cli_format_shape((int64_t[]){m.n, m.k}, 2).text, "mask", "-",
                      cli_format_percent(density).text, cli_format_bytes(bytes).text, "-", "-", "text");
    else
        json_array_append_new(to->masks, json_pack("{s:s,s:I,s:I,s:I,s:f}", "name", "mask", "n", (json_int_t)m.n, "k",
                                                   (json_int_t)m.k, "kept", (json_int_t)m.kept, "density", density));
    lac_mask_free(mask);
    return CLI_EXIT_OK;
}

static int list_contents(sink *to, const lac_file *file, const lac_file_info *info, const info_settings *settings)
{
    int failed = CLI_EXIT_OK;
    for (int64_t i = 0; i < info->weights && !failed; i++) failed = add_weight(to, file, settings->path, i);
    for (int64_t i = 0; i < info->tensors && !failed; i++) failed = add_tensor(to, file, settings->path, i, settings->density);
    if (info->masks > 0 && !failed) failed = add_mask(to, file, settings->path, info->bytes);
    return failed;
}

static void print_metadata(const lac_file *file)
{
    const char *key, *value;
    for (int64_t i = 0; lac_file_get_metadata(file, i, &key, &value) == LAC_STATUS_OK; i++) {
        cli_table *line = cli_table_create("metadata|value", "ll");
        cli_table_add(line, key, value);
        cli_table_print(line);
    }
}

static json_t *metadata_json(const lac_file *file)
{
    json_t *object = json_object();
    const char *key, *value;
    for (int64_t i = 0; lac_file_get_metadata(file, i, &key, &value) == LAC_STATUS_OK; i++)
        json_object_set_new(object, key, cli_json_text(value));
    return object;
}

static int print_json(const lac_file *file, const lac_file_info *info, const info_settings *settings)
{
    sink to = {.weights = json_array(), .tensors = json_array(), .masks = json_array()};
    int failed = list_contents(&to, file, info, settings);
    json_t *document =
        json_pack("{s:s,s:o,s:s,s:I,s:I,s:o,s:o,s:o,s:o,s:{s:I,s:I,s:I,s:I,s:f}}", "command", "info", "file",
                  cli_json_text(settings->path), "format", format_names[info->format], "files", (json_int_t)info->files,
                  "bytes", (json_int_t)info->bytes, "metadata", metadata_json(file), "weights", to.weights, "tensors",
                  to.tensors, "masks", to.masks, "totals", "weights", (json_int_t)info->weights, "tensors",
                  (json_int_t)info->tensors, "bytes", (json_int_t)to.sum.bytes, "dense_bytes", (json_int_t)to.sum.dense_bytes,
                  "of_dense", share((double)to.sum.bytes, (double)to.sum.dense_bytes));
    if (!failed) return cli_json_print(document, CLI_EXIT_OK);
    json_decref(document);
    return failed;
}

static int print_tables(const lac_file *file, const lac_file_info *info, const info_settings *settings)
{
    printf("%s: %s, %s", settings->path, format_names[info->format], cli_format_bytes(info->bytes).text);
    if (info->files > 1) printf(" in %lld files", (long long)info->files);
    printf(", %lld weights, %lld dense tensors\n", (long long)info->weights, (long long)info->tensors);
    sink to = {.table = cli_table_create("name|shape|pattern|dtype|density|bytes|dense|of dense|encoding", "lllrrrrrl")};
    int failed = list_contents(&to, file, info, settings);
    if (!info->masks) {
        cli_table_rule(to.table);
        cli_table_add(to.table, "total", "", "", "", "", cli_format_bytes(to.sum.bytes).text,
                      cli_format_bytes(to.sum.dense_bytes).text,
                      cli_format_percent(share((double)to.sum.bytes, (double)to.sum.dense_bytes)).text, "");
    }
    cli_table_print(to.table);
    if (settings->metadata) print_metadata(file);
    return failed;
}

static int run(const void *given)
{
    const info_settings *settings = given;
    lac_file *file = NULL;
    lac_status status = lac_file_open(settings->path, &file);
    if (status != LAC_STATUS_OK) return cli_fail(settings->path, NULL, status);
    lac_file_info info = {.size = sizeof info};
    status = lac_file_get_info(file, &info);
    int exit_status;
    if (status != LAC_STATUS_OK)
        exit_status = cli_fail(settings->path, NULL, status);
    else
        exit_status = (settings->json ? print_json : print_tables)(file, &info, settings);
    lac_file_close(file);
    return exit_status;
}

const cli_command cli_command_info = {
    .name = "info",
    .summary = "show what a file holds",
    .description = "Lists the compressed weights and dense tensors of a file: shape, pattern, dtype, the share of the weights "
                   "kept, the bytes they take, and what they would take dense.",
    .examples = "lacuna info model.safetensors\nlacuna info --json checkpoint/ | jq .totals",
    .operands = operands,
    .options = options,
    .settings_size = sizeof(info_settings),
    .run = run,
};
