/* prune.h - what the files of `lacuna prune` share. */
#ifndef LACUNA_CLI_PRUNE_H
#define LACUNA_CLI_PRUNE_H

#include "cli.h"

typedef struct prune_settings {
    const char *in, *out, *calibration, *schedule, *budget, *patterns, *device, *target, *table;
    cli_pattern pattern;
    cli_list include, exclude, producers;
    int score, method, permute, transposable, encoding, saturate, dense, force, restart, dry_run, all, progress, json;
    lac_dtype dtype;
    int64_t threads, batch;
    double damping;
} prune_settings;

/* What became of a tensor, or in a dry run would. */
typedef struct prune_layer {
    char *name, *reason;
    char pattern[LAC_PATTERN_TEXT_SIZE]; /* "" when copied */
    int pruned, resumed;
    uint32_t moved; /* LAC_PERMUTE_*: by --producer */
    int64_t n, k;
    uint64_t dense_bytes, stored_bytes;
    double energy_kept, output_error, seconds; /* negative: not known */
} prune_layer;

enum { PRUNE_PATTERNS_MOST = 64 };

typedef struct pruner {
    const prune_settings *settings;
    lac_pattern steps[PRUNE_PATTERNS_MOST]; /* [step_count] of the schedule before the pattern */
    size_t step_count;
    lac_pattern patterns[PRUNE_PATTERNS_MOST]; /* [pattern_count] that --budget chooses from */
    size_t pattern_count;
    lac_prune_options prune; /* what the library is asked for */
    lac_compress_options compress;
    lac_budget budget;
    double amount;
    lac_device *device;
    lac_allocation *allocation; /* NULL without a budget */
    lac_device *worker;         /* that does the work of obs; NULL: this machine */
    prune_layer *layers;        /* [count] */
    size_t count, capacity;
    cli_progress progress;
} pruner;

typedef struct prune_totals {
    int64_t pruned, copied, resumed;
    uint64_t dense_bytes, stored_bytes;
} prune_totals;

/* prune_report.c */
prune_layer *prune_add_layer(pruner *p, const char *name, const char *reason);
void prune_free_layers(pruner *p);
prune_totals prune_add_up(const pruner *p);
int prune_print_json(const pruner *p, double seconds);
void prune_print_tables(const pruner *p, double seconds);

/* budget.c: --budget and what belongs to it. Reads the options, 0 or an exit status. */
int budget_read(pruner *p);
/* Measures every layer under every pattern and chooses; the result is p->allocation. */
int budget_allocate(pruner *p, const lac_checkpoint_options *checkpoint);
void budget_print(const pruner *p);
json_t *budget_json(const pruner *p);
/* Writes that document to --table. */
int budget_write(const pruner *p);
void budget_free(pruner *p);

/* prune.c: "P,P,..." into patterns [PRUNE_PATTERNS_MOST]; 0 or an exit status after saying what is wrong with the option. */
int prune_parse_patterns(const char *option, const char *text, lac_pattern *patterns, size_t *count);
/* Says why a call over p's checkpoint failed. */
int prune_fail(const prune_settings *s, lac_status status);

#endif
