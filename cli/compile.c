/* compile.c - `lacuna compile`: fills a cache of compiled GPU kernels ahead of deployment, without a GPU. */
#include "shared.h"

#include <stdlib.h>
#include <string.h>

typedef struct compile_settings {
    cli_list archs;
    cli_values pattern, tokens; /* lac_pattern, int64_t */
    int64_t n, k;
    lac_dtype dtype, y_dtype;
    int x_layout, y_layout, precision, activation, bias, residual, progress, json;
    const char *kernel, *out;
} compile_settings;

static const cli_operand operands[] = {CLI_END};
static const cli_option options[] = {
    {.name = "arch",
     .letter = 'a',
     .argument = "ARCH",
     .type = CLI_TYPE_LIST,
     .offset = offsetof(compile_settings, archs),
     .needed = 1,
     .help = "Compile for sm_75, sm_80, sm_86, sm_87, sm_89, sm_90a (H100, H200), sm_100a, sm_103a, sm_110a, sm_120 or sm_121. "
             "May be "
             "repeated."},
    CLI_OPTION_PATTERN(compile_settings, .argument = "PATTERN", .several = 1, .needed = 1,
                       .help = "The weights' pattern, such as 2:4 or vw32:8:32. May be repeated."),
    {.name = "out",
     .letter = 'o',
     .argument = "DIR",
     .type = CLI_TYPE_TEXT,
     .offset = offsetof(compile_settings, out),
     .hint = CLI_HINT_FOLDER,
     .help = "The cache to fill, made when it is missing; set LAC_CACHE_DIR to it where it is used. Without it, your own."},
    {.name = "tokens",
     .letter = 'm',
     .argument = "COUNT",
     .type = CLI_TYPE_INTEGER,
     .offset = offsetof(compile_settings, tokens),
     .minimum = 1,
     .maximum = LAC_MAX_DIMENSION,
     .several = 1,
     .help = "Compile what so many tokens need. May be repeated; 1, 8, 16, 64, 256 and 4096 when it is not given."},
    {.name = "outputs",
     .letter = 'n',
     .argument = "COUNT",
     .type = CLI_TYPE_INTEGER,
     .offset = offsetof(compile_settings, n),
     .minimum = 1,
     .maximum = LAC_MAX_DIMENSION,
     .help = "Rows of the weights; 4096."},
    {.name = "inputs",
     .letter = 'k',
     .argument = "COUNT",
     .type = CLI_TYPE_INTEGER,
     .offset = offsetof(compile_settings, k),
     .minimum = 1,
     .maximum = LAC_MAX_DIMENSION,
     .help = "Columns of the weights; 4096."},
    CLI_OPTION_DTYPE(compile_settings, .choices = cli_weight_dtype_choices,
                     .help = "Of the weights and activations: f32, f16 or bf16."),
    {.name = "y-dtype",
     .argument = "DTYPE",
     .type = CLI_TYPE_DTYPE,
     .offset = offsetof(compile_settings, y_dtype),
     .choices = cli_weight_dtype_choices,
     .help = "Of the results, when it is another one."},
    {.name = "x-layout",
     .argument = "LAYOUT",
     .type = CLI_TYPE_CHOICE,
     .offset = offsetof(compile_settings, x_layout),
     .choices = cli_layout_choices,
     .help = "Of the activations: token, X[m][k], or feature, X[k][m]."},
    {.name = "y-layout",
     .argument = "LAYOUT",
     .type = CLI_TYPE_CHOICE,
     .offset = offsetof(compile_settings, y_layout),
     .choices = cli_layout_choices,
     .help = "Of the results."},
    CLI_OPTION_PRECISION(compile_settings, .help = "How f32 is multiplied: default, strict, fast or tf32."),
    {.name = "activation",
     .argument = "NAME",
     .type = CLI_TYPE_CHOICE,
     .offset = offsetof(compile_settings, activation),
     .choices = cli_activation_choices,
     .help = "none, relu, gelu, gelu-tanh or silu."},
    {.name = "bias", .type = CLI_TYPE_FLAG, .offset = offsetof(compile_settings, bias), .help = "Plans will add a bias."},
    {.name = "residual",
     .type = CLI_TYPE_FLAG,
     .offset = offsetof(compile_settings, residual),
     .help = "Plans will add beta * C."},
    {.name = "kernel",
     .argument = "NAME",
     .type = CLI_TYPE_TEXT,
     .offset = offsetof(compile_settings, kernel),
     .help = "Only this kernel, of those that 'lacuna devices --kernels' lists."},
    CLI_OPTION_PROGRESS(compile_settings),
    CLI_OPTION_JSON(compile_settings),
    CLI_END};
static const compile_settings defaults = {.dtype = LAC_DTYPE_F32};

typedef struct compilation {
    const compile_settings *settings;
    cli_progress progress;
    cli_table *table;
    json_t *list;
    int64_t compiled, found, spilled, serialized;
    double seconds;
} compilation;

static void add_row(compilation *c, const lac_compile_report *r)
{
    if (c->list)
        json_array_append_new(c->list, json_pack("{s:s,s:s,s:s,s:I,s:s,s:b,s:i,s:i,s:i,s:b,s:i,s:I,s:o}", "kernel", r->kernel,
                                                 "arch", r->arch, "pattern", r->pattern, "m", (json_int_t)r->m, "entry",
                                                 r->entry, "found", r->found, "registers", (int)r->registers, "spill_bytes",
                                                 (int)r->spill_bytes, "stack_bytes", (int)r->stack_bytes, "serialized",
                                                 r->serialized, "shared_bytes", (int)r->shared_bytes, "image_bytes",
                                                 (json_int_t)r->image_bytes, "seconds", cli_json_number(r->seconds)));
    else
        cli_table_add(c->table, r->kernel, r->arch, r->pattern, cli_format_count(r->m).text, r->entry,
                      cli_format_count(r->registers).text, cli_format_count(r->spill_bytes).text,
                      r->shared_bytes ? cli_format_bytes((uint64_t)r->shared_bytes).text : "-",
                      cli_format_bytes(r->image_bytes).text, r->found ? "there" : cli_format_seconds(r->seconds).text);
}

static int on_program(void *user, const lac_compile_report *report)
{
    compilation *c = user;
    add_row(c, report);
    c->compiled += !report->found;
    c->found += report->found;
    c->spilled += report->spill_bytes > 0;
    c->serialized += report->serialized;
    c->seconds += report->seconds;
    cli_progress_show(&c->progress, (uint64_t)report->index + 1, (uint64_t)report->total, report->kernel);
    return cli_interrupted();
}

static int finish(compilation *c, lac_status status)
{
    cli_progress_finish(&c->progress);
    if (status != LAC_STATUS_OK) {
        json_decref(c->list);
        if (c->table) cli_table_free(c->table);
        cli_interrupt_raise();
        return cli_fail(NULL, NULL, status);
    }
    if (c->list)
        return cli_json_print(json_pack("{s:s,s:I,s:I,s:o,s:o}", "command", "compile", "compiled", (json_int_t)c->compiled,
                                        "found", (json_int_t)c->found, "seconds", cli_json_number(c->seconds), "programs",
                                        c->list),
                              CLI_EXIT_OK);
    cli_table_print(c->table);
    printf("\n%lld compiled, %lld there already, in %s", (long long)c->compiled, (long long)c->found,
           cli_format_seconds(c->seconds).text);
    if (c->spilled) printf("; %lld spill%s registers", (long long)c->spilled, c->spilled == 1 ? "s" : "");
    if (c->serialized) printf("; of %lld the compiler put matrix products one behind the other", (long long)c->serialized);
    puts(".");
    if (c->settings->out) printf("Set LAC_CACHE_DIR to %s where they are to be used.\n", c->settings->out);
    return CLI_EXIT_OK;
}

static int run(const void *given)
{
    const compile_settings *s = given;
    compilation c = {.settings = s};
    if (s->json)
        c.list = json_array();
    else
        c.table = cli_table_create("kernel|arch|pattern|m|entry|registers|spills|shared|image|time", "lllrlrrrrr");
    lac_plan_options plan = {.size = sizeof plan,
                             .x_layout = (lac_layout)s->x_layout,
                             .y_layout = (lac_layout)s->y_layout,
                             .y_dtype = s->y_dtype,
                             .precision = (lac_precision)s->precision,
                             .activation = (lac_activation)s->activation,
                             .has_bias = s->bias,
                             .has_residual = s->residual,
                             .kernel = s->kernel};
    lac_kernels_compile_options o = {.size = sizeof o,
                                     .archs = s->archs.items,
                                     .arch_count = s->archs.count,
                                     .patterns = s->pattern.items,
                                     .pattern_count = s->pattern.count,
                                     .n = s->n,
                                     .k = s->k,
                                     .m = s->tokens.items,
                                     .m_count = s->tokens.count,
                                     .dtype = s->dtype,
                                     .plan = &plan,
                                     .folder = s->out,
                                     .on_program = on_program,
                                     .user = &c};
    cli_interrupt_catch();
    cli_progress_start(&c.progress, s->progress);
    return finish(&c, lac_kernels_compile(&o));
}

const cli_command cli_command_compile = {
    .name = "compile",
    .summary = "compile GPU kernels ahead, without a GPU",
    .description =
        "A GPU's kernels are compiled for the exact problem when a plan is made, and kept in a cache. This fills such a cache "
        "ahead, so that no machine has to compile when it starts: every program that plans for these architectures, patterns "
        "and numbers of tokens would ask for. It needs NVRTC ('lacuna devices' says whether it was found) and no GPU.\n\n"
        "A program fits plans of the same pattern, dtypes, layouts, precision and epilogue. docs/cuda.md tells more.",
    .examples = "lacuna compile --arch sm_90a --pattern vw32:8:32 --out kernels\n"
                "lacuna compile -a sm_80 -a sm_90a -p 2:4 -p 64:2:8 --dtype f16 --bias --out kernels",
    .operands = operands,
    .options = options,
    .settings_size = sizeof(compile_settings),
    .defaults = &defaults,
    .run = run,
};
