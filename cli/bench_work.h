/* bench_work.h - what the files of `lacuna bench` share: its settings, and a run in hand. */
#ifndef LACUNA_CLI_BENCH_WORK_H
#define LACUNA_CLI_BENCH_WORK_H

#include "bench.h"
#include "cli.h"

typedef struct bench_settings {
    cli_list shapes, kernel, from, peers;
    cli_values pattern, dtype, precision; /* lac_pattern, lac_dtype, int */
    const char *shape_file, *device, *csv, *report, *accuracy, *compare, *turns;
    int layout, baseline, warm, extended, stages, resume, quick_check, progress;
    int64_t threads, max_m, seed;
    double min_time, max_seconds, tolerance;
} bench_settings;

typedef struct bench_work {
    const bench_settings *settings;
    bench_rows rows, stored; /* stored: of --compare */
    bench_accuracy accuracy;
    FILE *csv;
    int csv_error;     /* why the first row that was not written was not */
    int fresh;         /* what the file held before is still there: it goes when there is something to put in its place */
    int table, titled; /* print the table; its title was printed */
    int failed;        /* a row could not be kept or written      */
    cli_progress progress;
} bench_work;

/* bench_run.c: times what the settings ask for. Returns an exit status. */
int cli_bench_run(bench_work *work);

/* bench_files.c: the files that results come from and go to. Whether one would go over what another is read from. */
int cli_bench_check_files(const bench_settings *settings);
/* Reads and opens, or finds out that it cannot, before anything is timed. */
int cli_bench_open_files(bench_work *work);
/* The results of --from, in place of a run. */
int cli_bench_read_results(bench_work *work);
/* A row into the file of --csv, when there is one. */
void cli_bench_write_row(bench_work *work, const bench_row *row);
int cli_bench_close_csv(bench_work *work);
/* The report, and the comparison. */
int cli_bench_write_outputs(bench_work *work);

#endif
