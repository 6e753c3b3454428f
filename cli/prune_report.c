/* prune_report.c - what `lacuna prune` tells: its tensors, their sizes and what pruning cost, as a table or as JSON. Called by prune.c. */
#include "prune.h"

#include <stdlib.h>
#include <string.h>

prune_layer *prune_add_layer(pruner *p, const char *name, const char *reason)
{
    if (p->count == p->capacity) {
        size_t capacity = p->capacity ? 2 * p->capacity : 64;
        prune_layer *layers = cli_allocate(capacity * sizeof *layers);
        if (p->count) memcpy(layers, p->layers, p->count * sizeof *layers);
        free(p->layers);
        p->layers = layers;
        p->capacity = capacity;
    }
    prune_layer *added = &p->layers[p->count++];
    *added =
        (prune_layer){.name = cli_copy_text(name), .reason = cli_copy_text(reason), .pruned = !*reason, .output_error = -1};
    return added;
}

void prune_free_layers(pruner *p)
{
    for (size_t i = 0; i < p->count; i++) {
        free(p->layers[i].name);
        free(p->layers[i].reason);
    }
    free(p->layers);
}

prune_totals prune_add_up(const pruner *p)
{
    prune_totals t = {0};
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

static double megabytes_per_second(const prune_layer *l)
{
    return l->seconds > 0 ? (double)l->dense_bytes / l->seconds / 1e6 : -1;
}

static const char *moved_name(uint32_t moved)
{
    static const char *const names[] = {"", "rows", "columns", "both"};
    return names[moved & 3u];
}

static json_t *known(double value) { return value < 0 ? json_null() : cli_json_number(value); }

int prune_print_json(const pruner *p, double seconds)
{
    const prune_settings *s = p->settings;
    prune_totals t = prune_add_up(p);
    json_t *layers = json_array();
    for (size_t i = 0; i < p->count; i++) {
        const prune_layer *l = &p->layers[i];
        json_array_append_new(layers,
                              json_pack("{s:o,s:b,s:o,s:b,s:s,s:s,s:I,s:I,s:I,s:I,s:o,s:o,s:o,s:o}", "name",
                                        cli_json_text(l->name), "pruned", l->pruned, "pattern",
                                        l->pruned ? cli_json_text(l->pattern) : json_null(), "resumed", l->resumed, "reason",
                                        l->reason, "moved", moved_name(l->moved), "n", (json_int_t)l->n, "k", (json_int_t)l->k,
                                        "dense_bytes", (json_int_t)l->dense_bytes, "stored_bytes", (json_int_t)l->stored_bytes,
                                        "energy_kept", known(l->energy_kept), "output_error", known(l->output_error), "seconds",
                                        known(l->seconds), "megabytes_per_second", known(megabytes_per_second(l))));
    }
    return cli_json_print(json_pack("{s:s,s:o,s:o,s:o,s:b,s:o,s:o,s:{s:I,s:I,s:I,s:I,s:I,s:f,s:f}}", "command", "prune", "in",
                                    cli_json_text(s->in), "out", cli_json_text(s->out), "pattern",
                                    s->pattern.text ? cli_json_text(s->pattern.text) : json_null(), "dry_run", s->dry_run,
                                    "layers", layers, "allocation", p->allocation ? budget_json(p) : json_null(), "totals",
                                    "pruned", (json_int_t)t.pruned, "copied", (json_int_t)t.copied, "resumed",
                                    (json_int_t)t.resumed, "dense_bytes", (json_int_t)t.dense_bytes, "stored_bytes",
                                    (json_int_t)t.stored_bytes, "of_dense", ratio(t.stored_bytes, t.dense_bytes), "seconds",
                                    seconds),
                          CLI_EXIT_OK);
}

void prune_print_tables(const pruner *p, double seconds)
{
    const prune_settings *s = p->settings;
    cli_table *table = cli_table_create("name|shape|pattern|before|after|of dense|energy kept|output error|MB/s", "lllrrrrrr");
    for (size_t i = 0; i < p->count; i++) {
        const prune_layer *l = &p->layers[i];
        if (!l->pruned && !l->moved && !s->all) continue;
        double speed = megabytes_per_second(l);
        char what[112];
        snprintf(what, sizeof what, "%s%s%s%s", l->pruned ? l->pattern : "copied: ", l->reason, l->moved ? ", moved " : "",
                 moved_name(l->moved));
        cli_table_add(table, l->name, l->n || l->k ? cli_format_shape((int64_t[]){l->n, l->k}, 2).text : "-", what,
                      cli_format_bytes(l->dense_bytes).text, cli_format_bytes(l->stored_bytes).text,
                      cli_format_percent(ratio(l->stored_bytes, l->dense_bytes)).text,
                      l->energy_kept < 0 ? "-" : cli_format_percent(l->energy_kept).text,
                      l->output_error < 0 ? "-" : cli_format_percent(l->output_error).text,
                      speed < 0 ? "-" : cli_format_number("%.0f", speed).text);
    }
    prune_totals t = prune_add_up(p);
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
