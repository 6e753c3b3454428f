/* bench.h - the benchmark behind `lacuna bench`: what it is asked (bench_options), what it answers (bench_row), and the
 * files that rows become. It sees nothing of the library but lacuna.h. The command line calls it; docs/benchmark.md explains it. */
#ifndef LACUNA_BENCH_H
#define LACUNA_BENCH_H

#include <lacuna.h>
#include <stdint.h>
#include <stdio.h>

/* The same numbers as the exit statuses of the command line. */
typedef enum bench_status {
    BENCH_OK = 0,
    BENCH_WRONG = 1,  /* a kernel, a peer or the baseline gave a wrong result, or a cell got slower */
    BENCH_USAGE = 2,  /* what was asked makes no sense                                              */
    BENCH_FAILURE = 3 /* a file, memory or a device failed                                          */
} bench_status;

/* ---------------------------------------------------------------- shapes.c */

typedef struct bench_shape {
    char name[48]; /* "" when it has none */
    int64_t m, n, k;
} bench_shape;

typedef struct bench_shapes {
    bench_shape *items; /* [count] */
    size_t count;
} bench_shapes;

/* "m,n,k" appended to the list. On failure `why` says what is wrong. */
bench_status bench_shapes_parse(bench_shapes *shapes, const char *text, char *why, size_t why_size);
/* The rows of a CSV file: columns m, n, k, or those of a convolution (batch, h, w, c_in, c_out, r, s). */
bench_status bench_shapes_read(bench_shapes *shapes, const char *path, char *why, size_t why_size);
/* Cuts every m down to max_m (0: leaves it), and drops shapes that are there twice. */
void bench_shapes_scale(bench_shapes *shapes, int64_t max_m);
void bench_shapes_free(bench_shapes *shapes);

/* ---------------------------------------------------------------- rows */

/* One line of the CSV: one contender on one problem. Numbers that are not known are NaN and leave their field empty. */
typedef struct bench_row {
    char device[32], kernel[96], dtype[8], precision[8], pattern[LAC_PATTERN_TEXT_SIZE];
    double density;
    char layout[8];
    int64_t threads, m, n, k;
    double time_us, spread; /* the median, and the interquartile range as a share of it */
    char dense_name[64];
    double dense_us, speedup, tflops_dense_equivalent, tflops_real, gbytes_per_s, ceiling_us, share_of_ceiling;
    double max_error, error_bound;
    char cache[8], commit[48], device_info[640];
    /* The columns of --extended. */
    char name[48];       /* of the shape                                   */
    double predicted_us; /* by the performance model                       */
    char bound[24];      /* what the model says limits it                  */
    int64_t is_dense;    /* 1: a kernel that ignores the sparsity          */
    int64_t runs;        /* timed calls                                    */
    double dense_spread;
    char levels[192]; /* "memory=12.5 l2=3.1 ...": the model's levels, in microseconds */
} bench_row;

typedef struct bench_rows {
    bench_row *items; /* [count] */
    size_t count, capacity;
} bench_rows;

/* csv.c. Columns are found by name, in any order; unknown ones are passed over, and those of --extended may be missing. */
bench_status bench_rows_add(bench_rows *rows, const bench_row *row);
bench_status bench_rows_read(bench_rows *rows, const char *path, char *why, size_t why_size);
void bench_rows_free(bench_rows *rows);
void bench_csv_write_header(FILE *to, int extended);
void bench_csv_write_row(FILE *to, const bench_row *row, int extended);
/* Cuts a line into fields[BENCH_CSV_MOST_FIELDS] in place, quotes undone; their number, or -1 when a quote is left open or
 * there are too many. */
#define BENCH_CSV_MOST_FIELDS 128
int bench_csv_split(char *line, char **fields);
typedef struct bench_csv_line {
    int number; /* of the line in its file, 0 before the first */
    char *fields[BENCH_CSV_MOST_FIELDS];
    char text[1 << 16];
} bench_csv_line;

/* The fields of the next line that is neither empty nor a comment: how many; 0 at the end, -1 with `why` when there is no making
 * sense of it. A file without lines, a device that never ends for one, is not read on and on. */
int bench_csv_next(FILE *from, const char *path, bench_csv_line *line, char *why, size_t why_size);
/* The number after "key=" in a device_info such as "cores=2; peak_gflops=170.2"; NaN when it is not there. */
double bench_info_number(const char *device_info, const char *key);
/* The text after "key=", up to its semicolon; "" when it is not there. */
void bench_info_text(const char *device_info, const char *key, char *buffer, size_t size);
/* 1 when both tell of the same kind of machine: model, cores and vector unit. Its software, its clock and its load may differ. */
int bench_info_is_same_machine(const char *device_info, const char *other);

/* ---------------------------------------------------------------- run.c */

typedef enum bench_baseline {
    BENCH_BASELINE_NONE = 0,
    BENCH_BASELINE_AUTO = 1, /* the device's dense library; on a GPU cuSPARSELt too, where W is 2:4 */
    BENCH_BASELINE_ALL = 2   /* cuSPARSE as well                                                   */
} bench_baseline;

typedef struct bench_options {
    const bench_shapes *shapes;
    const char *device; /* what lac_device_open takes */
    const lac_pattern *patterns;
    size_t pattern_count;
    const lac_dtype *dtypes;
    size_t dtype_count;
    const lac_precision *precisions; /* of F32, each once; none: the device's default */
    size_t precision_count;
    lac_layout layout;
    int threads;              /* 0: every core that the process may use                             */
    int baseline;             /* a bench_baseline                                                   */
    const char *const *peers; /* shared libraries with the functions of peer.h                      */
    size_t peer_count;
    const char *const *kernels; /* by name; "all": each one that applies; none: the planner's pick    */
    size_t kernel_count;
    int warm;                /* 1: leave the caches as the last call left them                      */
    double min_seconds;      /* of timed calls for each contender                                   */
    double max_seconds;      /* of the whole run; 0: no limit                                       */
    int stages;              /* 1: a notice at the end tells where the time went                    */
    int quick_check;         /* 1: the oracle computes an eighth of what it would                   */
    const char *turns;       /* a file: whoever names it prepares beside others and times alone; NULL: alone anyway */
    const bench_rows *known; /* problems with rows here are passed over; NULL: none            */
    uint64_t seed;
    void *user;
    void (*on_row)(void *user, const bench_row *row);
    void (*on_progress)(void *user, uint64_t done, uint64_t total, const char *what);
    void (*on_message)(void *user, const char *message); /* what went wrong, was left out or is worth knowing */
    void (*on_notice)(void *user, const char *notice);   /* the end of a run that went well: how far to trust it      */
    int (*should_stop)(void *user);                      /* asked between calls                              */
} bench_options;

bench_status bench_run(const bench_options *options);

/* ---------------------------------------------------------------- compare.c */

/* 1 when both rows are of the same problem under the same conditions, whatever the kernel. Peers have cells of their own. */
int bench_row_is_same_cell(const bench_row *a, const bench_row *b);

/* Compares the speedups of `rows`, cell by cell, with the stored ones: prints a line for each cell that lost more than
 * `tolerance` (0.1: 10%) of its stored speedup. WRONG when there is one, USAGE when no cell is in both. */
bench_status bench_compare(const bench_rows *rows, const bench_rows *stored, double tolerance, FILE *to);

/* ---------------------------------------------------------------- report.c */

/* What a model loses under a pattern; NaN where it was not measured. */
typedef struct bench_loss {
    char pattern[64], method[64];
    double pruned, tuned; /* above the dense model, after pruning and after training on */
} bench_loss;

typedef struct bench_accuracy {
    bench_loss *items; /* [count] */
    size_t count, capacity;
} bench_accuracy;

/* pareto.c. A CSV with the columns pattern, method, permute, dense_loss, dense_tuned_loss, pruned_loss and tuned_loss. */
bench_status bench_accuracy_read(bench_accuracy *accuracy, const char *path, char *why, size_t why_size);
void bench_accuracy_free(bench_accuracy *accuracy);

/* One self-contained HTML page of these rows, of which there is one at least; with `accuracy` (or NULL) also what each pattern
 * costs. FAILURE: there was no memory. Whether it could be written is the stream's to tell. */
bench_status bench_report_write(const bench_rows *rows, const bench_accuracy *accuracy, FILE *to);

#endif
