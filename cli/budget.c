/* budget.c - `lacuna prune --budget`: each layer's pattern by what it loses and how long it is predicted to take. Called by prune.c. */
#include "prune.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "replace.h"

static const char default_patterns[] = "2:4,1:4,vw32:16:32,vw32:8:32,vw32:4:32,64:2:8,64:2:16";

static int read_budget(pruner *p)
{
    const char *text = p->settings->budget, *equals = strchr(text, '=');
    char *end = NULL;
    p->budget = !strncmp(text, "speedup=", 8) ? LAC_BUDGET_SPEEDUP : !strncmp(text, "density=", 8) ? LAC_BUDGET_DENSITY : 0;
    p->amount = p->budget ? strtod(equals + 1, &end) : 0;
    if (p->budget && end != equals + 1 && !*end && p->amount > 0 && p->amount <= (p->budget == LAC_BUDGET_DENSITY ? 1 : 1e6))
        return CLI_EXIT_OK;
    cli_error(NULL, NULL, "--budget '%s': must be speedup=2 or its like, or density=0.3 with a share of 1 at most", text);
    return CLI_EXIT_USAGE;
}

int budget_read(pruner *p)
{
    const prune_settings *s = p->settings;
    if (!s->budget) {
        const char *stray = s->patterns ? "patterns" : s->target ? "target" : s->batch ? "batch" : s->table ? "table" : NULL;
        if (!stray) return CLI_EXIT_OK;
        cli_error(NULL, NULL, "--%s goes with --budget", stray);
        return CLI_EXIT_USAGE;
    }
    int refused = read_budget(p);
    if (refused) return refused;
    return prune_parse_patterns("patterns", s->patterns ? s->patterns : default_patterns, p->patterns, &p->pattern_count);
}

static int on_layer(void *user, const lac_layer_report *report)
{
    pruner *p = user;
    cli_progress_show(&p->progress, report->bytes_done, report->bytes_total, report->name);
    return cli_interrupted();
}

int budget_allocate(pruner *p, const lac_checkpoint_options *checkpoint)
{
    const prune_settings *s = p->settings;
    lac_checkpoint_options with_progress = *checkpoint;
    const char *device = s->target ? s->target : s->device ? s->device : "cpu";
    if (!strncmp(device, "cuda:", 5) && (device[5] < '0' || device[5] > '9')) device += 5; /* one that is not here */
    lac_status status = lac_device_open(device, &p->device);
    if (status != LAC_STATUS_OK) return cli_fail(NULL, NULL, status);
    lac_allocate_options options = {.size = sizeof options, .patterns = p->patterns, .pattern_count = p->pattern_count};
    options.budget = p->budget, options.amount = p->amount, options.device = p->device, options.m = s->batch;
    lac_plan_options plan = {.size = sizeof plan, .threads = (int32_t)s->threads};
    options.plan = &plan;
    with_progress.on_layer = on_layer, with_progress.user = p;
    cli_interrupt_catch();
    cli_progress_start(&p->progress, s->progress);
    status = lac_checkpoint_allocate(s->in, &with_progress, &options, &p->allocation);
    cli_progress_finish(&p->progress);
    if (status == LAC_STATUS_OK) return CLI_EXIT_OK;
    if (status == LAC_STATUS_CANCELLED) {
        cli_error(s->out, NULL, "stopped before the patterns were chosen; nothing was written");
        cli_interrupt_raise();
        return CLI_EXIT_FAILURE;
    }
    return prune_fail(s, status);
}

static const char *pattern_text(const lac_choice_info *choice, char *text)
{
    if (!choice->pruned || lac_pattern_format(&choice->pattern, text, LAC_PATTERN_TEXT_SIZE) != LAC_STATUS_OK)
        snprintf(text, LAC_PATTERN_TEXT_SIZE, "dense");
    return text;
}

void budget_print(const pruner *p)
{
    const char *kind = p->budget == LAC_BUDGET_SPEEDUP ? "speedup" : "density";
    lac_allocation_info all = {.size = sizeof all};
    lac_choice_info one = {.size = sizeof one};
    lac_device_info device = {.size = sizeof device};
    char text[LAC_PATTERN_TEXT_SIZE];
    cli_table *table = cli_table_create("layer|shape|pattern|loss|predicted|dense|times", "lllrrrr");
    for (int64_t i = 0; lac_allocation_get_layer(p->allocation, i, &one) == LAC_STATUS_OK; i++)
        cli_table_add(table, one.name, cli_format_shape((int64_t[]){one.n, one.k}, 2).text, pattern_text(&one, text),
                      cli_format_number("%.4g", one.loss).text, cli_format_seconds(one.seconds).text,
                      cli_format_seconds(one.dense_seconds).text,
                      cli_format_number("%.2f", one.dense_seconds / one.seconds).text);
    if (lac_allocation_get_info(p->allocation, &all) != LAC_STATUS_OK) return;
    cli_table_rule(table);
    cli_table_add(table, "total", "", cli_format_percent(all.density).text, cli_format_number("%.4g", all.loss).text,
                  cli_format_seconds(all.seconds).text, cli_format_seconds(all.dense_seconds).text,
                  cli_format_number("%.2f", all.dense_seconds / all.seconds).text);
    cli_table_print(table);
    if (lac_device_get_info(p->device, &device) != LAC_STATUS_OK) return;
    printf(
        "%s %g on %s, %lld tokens at a time: %lld of %lld layers pruned; no choice of these patterns loses less than %.4g\n\n",
        kind, p->amount, device.name, (long long)(p->settings->batch ? p->settings->batch : 1), (long long)all.pruned,
        (long long)all.layers, all.loss_bound);
}

static json_t *choice_json(const lac_choice_info *c)
{
    char text[LAC_PATTERN_TEXT_SIZE];
    return json_pack("{s:s,s:o,s:o,s:o}", "pattern", pattern_text(c, text), "loss", cli_json_number(c->loss), "density",
                     cli_json_number(c->density), "predicted_seconds", cli_json_number(c->seconds));
}

json_t *budget_json(const pruner *p)
{
    lac_allocation_info all = {.size = sizeof all};
    lac_choice_info one = {.size = sizeof one}, option = one;
    lac_device_info device = {.size = sizeof device};
    json_t *layers = json_array();
    for (int64_t i = 0; lac_allocation_get_layer(p->allocation, i, &one) == LAC_STATUS_OK; i++) {
        json_t *options = json_array(), *layer = choice_json(&one);
        for (int64_t o = 0; lac_allocation_get_option(p->allocation, i, o, &option) == LAC_STATUS_OK; o++)
            json_array_append_new(options, choice_json(&option));
        json_object_set_new(layer, "name", cli_json_text(one.name));
        json_object_set_new(layer, "n", json_integer((json_int_t)one.n));
        json_object_set_new(layer, "k", json_integer((json_int_t)one.k));
        json_object_set_new(layer, "dense_seconds", cli_json_number(one.dense_seconds));
        json_object_set_new(layer, "options", options);
        json_array_append_new(layers, layer);
    }
    lac_allocation_get_info(p->allocation, &all);
    lac_device_get_info(p->device, &device);
    return json_pack("{s:s,s:f,s:s,s:I,s:o,s:I,s:I,s:f,s:f,s:f,s:f,s:f,s:f}", "budget",
                     p->budget == LAC_BUDGET_SPEEDUP ? "speedup" : "density", "amount", p->amount, "device", device.name, "m",
                     (json_int_t)(p->settings->batch ? p->settings->batch : 1), "layers", layers, "layer_count",
                     (json_int_t)all.layers, "pruned", (json_int_t)all.pruned, "loss", all.loss, "loss_bound", all.loss_bound,
                     "density", all.density, "predicted_seconds", all.seconds, "dense_seconds", all.dense_seconds, "speedup",
                     all.dense_seconds / all.seconds);
}

int budget_write(const pruner *p)
{
    if (!p->settings->table) return CLI_EXIT_OK;
    cli_replacement table;
    json_t *document = budget_json(p);
    int failed = !document || cli_replace_open(&table, p->settings->table);
    if (!failed) {
        int dumped = json_dumpf(document, table.to, JSON_INDENT(2) | JSON_REAL_PRECISION(12)) == 0;
        failed = cli_replace_close(&table, dumped) || !dumped;
    }
    if (failed) cli_error(p->settings->table, NULL, "cannot write the table: %s", document ? strerror(errno) : "out of memory");
    json_decref(document);
    return failed ? CLI_EXIT_FAILURE : CLI_EXIT_OK;
}

void budget_free(pruner *p)
{
    lac_allocation_free(p->allocation);
    lac_device_close(p->device);
}
