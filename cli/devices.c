/* devices.c - `lacuna devices`: what this machine can compute on, and the kernels that Lacuna has. */
#include "shared.h"

#include <string.h>

typedef struct devices_settings {
    int kernels, markdown, json;
} devices_settings;

static const cli_operand operands[] = {CLI_END};
static const cli_option options[] = {{.name = "kernels",
                                      .letter = 'k',
                                      .type = CLI_TYPE_FLAG,
                                      .offset = offsetof(devices_settings, kernels),
                                      .help = "List the kernels too: their patterns, dtypes and dataflow."},
                                     {.name = "markdown",
                                      .type = CLI_TYPE_FLAG,
                                      .offset = offsetof(devices_settings, markdown),
                                      .help = "Print the kernels alone, as a Markdown table that is the same on every machine "
                                              "of one architecture, whatever this one can run."},
                                     CLI_OPTION_JSON(devices_settings),
                                     CLI_END};

static const char *const family_names[] = {"", "element", "vector", "block", "vnm", "shuffled"};

static const char *device_kind_name(lac_device_kind kind) { return kind == LAC_DEVICE_KIND_CPU ? "cpu" : "cuda"; }

static json_t *device_json(const lac_device_info *info)
{
    return json_pack("{s:o,s:s,s:o,s:b,s:o,s:i,s:o,s:I,s:I,s:I,s:I}", "name", cli_json_text(info->name), "kind",
                     device_kind_name(info->kind), "model", cli_json_text(info->model), "available", info->available != 0,
                     "note", cli_json_text(info->note), "cores", (int)info->cores, "vector_unit",
                     cli_json_text(info->vector_unit), "memory_bytes", (json_int_t)info->memory_bytes, "l1_bytes",
                     (json_int_t)info->l1_bytes, "l2_bytes", (json_int_t)info->l2_bytes, "l3_bytes",
                     (json_int_t)info->l3_bytes);
}

static void add_device(cli_table *table, const lac_device_info *info)
{
    cli_table_add(table, info->name, info->available ? "yes" : "no", info->model, cli_format_count(info->cores).text,
                  info->vector_unit, info->memory_bytes ? cli_format_bytes(info->memory_bytes).text : "-",
                  info->l2_bytes ? cli_format_bytes(info->l2_bytes).text : "-",
                  info->l3_bytes ? cli_format_bytes(info->l3_bytes).text : "-", info->note);
}

static lac_status list_devices(cli_table *table, json_t *list)
{
    for (size_t i = 0;; i++) {
        lac_device_info info = {.size = sizeof info};
        lac_status status = lac_device_probe(i, &info);
        if (status == LAC_STATUS_NOT_FOUND) return LAC_STATUS_OK;
        if (status != LAC_STATUS_OK) return status;
        if (table)
            add_device(table, &info);
        else
            json_array_append_new(list, device_json(&info));
    }
}

/* What was looked for on this machine: where it is, or what is missing. */
static lac_status list_components(cli_table *table, json_t *list)
{
    for (size_t i = 0;; i++) {
        lac_component_info info = {.size = sizeof info};
        lac_status status = lac_component_probe(i, &info);
        if (status == LAC_STATUS_NOT_FOUND) return LAC_STATUS_OK;
        if (status != LAC_STATUS_OK) return status;
        if (table)
            cli_table_add(table, info.name, info.available ? "yes" : "no", *info.version ? info.version : "-",
                          *info.path ? info.path : "-", info.note);
        else
            json_array_append_new(list, json_pack("{s:o,s:b,s:o,s:o,s:o}", "name", cli_json_text(info.name), "available",
                                                  info.available != 0, "version", cli_json_text(info.version), "path",
                                                  cli_json_text(info.path), "note", cli_json_text(info.note)));
    }
}

static json_t *dtypes_json(uint32_t bits)
{
    json_t *list = json_array();
    for (int dtype = 1; dtype <= LAC_DTYPE_E5M2; dtype++)
        if (bits >> dtype & 1) json_array_append_new(list, json_string(lac_dtype_name((lac_dtype)dtype)));
    return list;
}

static json_t *kernel_json(const lac_kernel_info *info)
{
    json_t *families = json_array();
    for (int family = 1; family <= LAC_FAMILY_SHUFFLED; family++)
        if (info->families >> family & 1) json_array_append_new(families, json_string(family_names[family]));
    return json_pack("{s:s,s:s,s:b,s:s,s:o,s:o,s:o,s:o}", "name", info->name, "device", device_kind_name(info->device),
                     "is_dense", info->is_dense != 0, "summary", info->summary, "families", families, "weight_dtypes",
                     dtypes_json(info->weight_dtypes), "x_dtypes", dtypes_json(info->x_dtypes), "y_dtypes",
                     dtypes_json(info->y_dtypes));
}

/* The names whose bits are set, with `between` between them. */
static cli_text join_bits(uint32_t bits, int last, int of_families, const char *between)
{
    cli_text out = {""};
    for (int i = 1; i <= last; i++) {
        if (!(bits >> i & 1)) continue;
        size_t used = strlen(out.text);
        snprintf(out.text + used, sizeof out.text - used, "%s%s", used ? between : "",
                 of_families ? family_names[i] : lac_dtype_name((lac_dtype)i));
    }
    return out;
}

static lac_status list_kernels(cli_table *table, json_t *list)
{
    for (size_t i = 0;; i++) {
        lac_kernel_info info = {.size = sizeof info};
        lac_status status = lac_kernel_probe(i, &info);
        if (status == LAC_STATUS_NOT_FOUND) return LAC_STATUS_OK;
        if (status != LAC_STATUS_OK) return status;
        if (table)
            cli_table_add(table, info.name, device_kind_name(info.device), info.is_dense ? "yes" : "no",
                          join_bits(info.families, LAC_FAMILY_SHUFFLED, 1, ",").text,
                          join_bits(info.weight_dtypes, LAC_DTYPE_E5M2, 0, ",").text,
                          join_bits(info.x_dtypes, LAC_DTYPE_E5M2, 0, ",").text,
                          join_bits(info.y_dtypes, LAC_DTYPE_E5M2, 0, ",").text, info.summary);
        else
            json_array_append_new(list, kernel_json(&info));
    }
}

static lac_status print_markdown(void)
{
    const uint32_t every_family = (2u << LAC_FAMILY_SHUFFLED) - 2;
    puts("| kernel | needs | patterns | weights | dense | dataflow |\n|---|---|---|---|---|---|");
    for (size_t i = 0;; i++) {
        lac_kernel_info info = {.size = sizeof info};
        lac_status status = lac_kernel_probe(i, &info);
        if (status == LAC_STATUS_NOT_FOUND) return LAC_STATUS_OK;
        if (status != LAC_STATUS_OK) return status;
        printf("| `%s` | %s | %s | %s | %s | %s |\n", info.name, cli_kernel_needs(&info).text,
               info.families == every_family ? "all" : join_bits(info.families, LAC_FAMILY_SHUFFLED, 1, ", ").text,
               join_bits(info.weight_dtypes, LAC_DTYPE_E5M2, 0, ", ").text, info.is_dense ? "yes" : "no", info.summary);
    }
}

static int run(const void *given)
{
    const devices_settings *settings = given;
    if (settings->markdown && settings->json) {
        cli_error(NULL, NULL, "--markdown and --json exclude each other");
        return CLI_EXIT_USAGE;
    }
    if (settings->markdown) {
        lac_status status = print_markdown();
        return status == LAC_STATUS_OK ? CLI_EXIT_OK : cli_fail(NULL, NULL, status);
    }
    if (settings->json) {
        json_t *devices = json_array(), *components = json_array(), *kernels = json_array();
        lac_status status = list_devices(NULL, devices);
        if (status == LAC_STATUS_OK) status = list_components(NULL, components);
        if (status == LAC_STATUS_OK && settings->kernels) status = list_kernels(NULL, kernels);
        json_t *document = json_pack("{s:s,s:s,s:o,s:o}", "command", "devices", "version", lac_version(), "devices", devices,
                                     "components", components);
        if (settings->kernels)
            json_object_set_new(document, "kernels", kernels);
        else
            json_decref(kernels);
        if (status == LAC_STATUS_OK) return cli_json_print(document, CLI_EXIT_OK);
        json_decref(document);
        return cli_fail(NULL, NULL, status);
    }
    cli_table *table = cli_table_create("device|usable|model|cores|vector unit|memory|L2|L3|note", "lllrlrrrl");
    lac_status status = list_devices(table, NULL);
    cli_table_print(table);
    if (status == LAC_STATUS_OK) {
        putchar('\n');
        table = cli_table_create("looked for|found|version|where|note", "lllll");
        status = list_components(table, NULL);
        cli_table_print(table);
    }
    if (status == LAC_STATUS_OK && settings->kernels) {
        putchar('\n');
        table = cli_table_create("kernel|device|dense|patterns|weights|X|Y|dataflow", "llllllll");
        status = list_kernels(table, NULL);
        cli_table_print(table);
    }
    return status == LAC_STATUS_OK ? CLI_EXIT_OK : cli_fail(NULL, NULL, status);
}

const cli_command cli_command_devices = {
    .name = "devices",
    .summary = "list the devices and kernels of this machine",
    .description =
        "Lists every device that Lacuna sees, usable or not, then what it looked for to use a GPU and where it found "
        "it: the driver, the compiler NVRTC, the cache of compiled kernels, cuBLAS and cuBLASLt. With --kernels every kernel "
        "it "
        "can choose from.",
    .examples = "lacuna devices\nlacuna devices --kernels --json\nlacuna devices --markdown",
    .operands = operands,
    .options = options,
    .settings_size = sizeof(devices_settings),
    .run = run,
};
