/* bench.c - `lacuna bench`: a thin front of bench/, which does the work. Reads the options, prints a line for each result,
 * writes the CSV and the report. */
#include "bench.h"
#include "cli.h"
#include "replace.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct bench_settings {
    cli_list shapes, patterns, dtypes, precisions, kernels, from, peers;
    const char *shape_file, *device, *csv, *report, *accuracy, *compare, *turns;
    int layout, baseline, warm, extended, stages, resume, quick_check, progress;
    int64_t threads, max_m, seed;
    double min_time, max_seconds, tolerance;
} bench_settings;

static const bench_settings defaults = {
    .device = "auto", .baseline = BENCH_BASELINE_AUTO, .seed = 1, .min_time = 0.25, .max_seconds = 0, .tolerance = 0.1};

static const cli_choice layout_choices[] = {
    {"token", LAC_LAYOUT_TOKEN_MAJOR}, {"feature", LAC_LAYOUT_FEATURE_MAJOR}, {NULL, 0}};
static const cli_choice baseline_choices[] = {
    {"auto", BENCH_BASELINE_AUTO}, {"none", BENCH_BASELINE_NONE}, {"all", BENCH_BASELINE_ALL}, {NULL, 0}};

static const cli_operand operands[] = {{.name = "M,N,K",
                                        .offset = offsetof(bench_settings, shapes),
                                        .help =
                                            "Problem sizes: tokens,outputs,inputs. 1,2048,2048 and 128,2048,2048 when neither "
                                            "these nor --shapes are given.",
                                        .optional = 1,
                                        .repeated = 1},
                                       CLI_END};

#define FIELD(field) offsetof(bench_settings, field)
static const cli_option options[] = {
    {.name = "shapes",
     .letter = 's',
     .argument = "FILE",
     .type = CLI_TYPE_TEXT,
     .offset = FIELD(shape_file),
     .hint = CLI_HINT_FILE,
     .help = "Take the problem sizes from the columns m, n and k of this CSV file, or from those of a convolution."},
    {.name = "max-m",
     .argument = "TOKENS",
     .type = CLI_TYPE_INTEGER,
     .offset = FIELD(max_m),
     .maximum = LAC_MAX_DIMENSION,
     .help = "Cut every m down to so many tokens; shapes that become equal are run once. 0: as they are."},
    {.name = "device",
     .letter = 'D',
     .argument = "DEVICE",
     .type = CLI_TYPE_TEXT,
     .offset = FIELD(device),
     .help = "cpu, or another device as 'lacuna devices' names it; auto (the fastest) unless said."},
    {.name = "pattern",
     .letter = 'p',
     .argument = "PATTERN",
     .type = CLI_TYPE_LIST,
     .offset = FIELD(patterns),
     .help = "Prune to this pattern; may be repeated, or several with commas. One of each family unless said: 2:4, "
             "vw32:8:32, bw4x4:2:8, 64:2:8, shfl64:25%."},
    {.name = "dtype",
     .letter = 'd',
     .argument = "DTYPE",
     .type = CLI_TYPE_LIST,
     .offset = FIELD(dtypes),
     .help =
         "Of weights, activations and results: f32, f16 or bf16; may be repeated, or several with commas. f32 unless said."},
    {.name = "precision",
     .argument = "HOW",
     .type = CLI_TYPE_LIST,
     .offset = FIELD(precisions),
     .help =
         "How f32 is multiplied: default (the device's), strict, fast or tf32; may be repeated, or several with commas. Strict "
         "and fast are timed side by side."},
    {.name = "layout",
     .letter = 'l',
     .argument = "LAYOUT",
     .type = CLI_TYPE_CHOICE,
     .offset = FIELD(layout),
     .choices = layout_choices,
     .help = "token: X[m,k] and Y[m,n]; feature: X[k,m] and Y[n,m]. token unless said."},
    CLI_OPTION_THREADS(bench_settings),
    {.name = "kernel",
     .letter = 'k',
     .argument = "KERNEL",
     .type = CLI_TYPE_LIST,
     .offset = FIELD(kernels),
     .help = "Time this kernel; may be repeated; 'all' is each one that applies. The planner's pick unless said."},
    {.name = "baseline",
     .argument = "WHICH",
     .type = CLI_TYPE_CHOICE,
     .offset = FIELD(baseline),
     .choices = baseline_choices,
     .help = "auto: the dense library of the device (OpenBLAS on a CPU; LAC_OPENBLAS names its file; the faster of cuBLAS and "
             "cuBLASLt on a GPU, and cuSPARSELt where W is 2:4), on the same inputs in the same run; none: no baseline; all: "
             "cuSPARSE too."},
    {.name = "peer",
     .argument = "LIB.so",
     .type = CLI_TYPE_LIST,
     .offset = FIELD(peers),
     .hint = CLI_HINT_FILE,
     .help = "Time another implementation too: a shared library with the functions of bench/peer.h; may be repeated."},
    {.name = "warm",
     .letter = 'w',
     .type = CLI_TYPE_FLAG,
     .offset = FIELD(warm),
     .help = "Multiply the same buffers over and over. Otherwise every call finds its operands outside the caches."},
    {.name = "min-time",
     .argument = "SECONDS",
     .type = CLI_TYPE_NUMBER,
     .offset = FIELD(min_time),
     .help = "Time each contender for at least so long; 0.25 unless said. It goes on until the medians stand still, or six "
             "times as long."},
    {.name = "max-seconds",
     .argument = "SECONDS",
     .type = CLI_TYPE_NUMBER,
     .offset = FIELD(max_seconds),
     .help = "Stop after so long; what was left out is said. 0, no limit, unless said."},
    {.name = "seed",
     .argument = "NUMBER",
     .type = CLI_TYPE_INTEGER,
     .offset = FIELD(seed),
     .maximum = INT64_MAX,
     .help = "Of the random weights and activations; 1 unless said."},
    {.name = "csv",
     .letter = 'o',
     .argument = "FILE",
     .type = CLI_TYPE_TEXT,
     .offset = FIELD(csv),
     .hint = CLI_HINT_FILE,
     .help =
         "Write the results as CSV, replacing the file unless --resume is given; - is standard output, in place of the table."},
    {.name = "resume",
     .type = CLI_TYPE_FLAG,
     .offset = FIELD(resume),
     .help = "Go on with the file of --csv: problems that it holds rows of are passed over, new rows are added to it."},
    {.name = "extended",
     .type = CLI_TYPE_FLAG,
     .offset = FIELD(extended),
     .help = "Add columns to the CSV: the shape's name, the model's prediction and bound, whether the kernel is a dense one, "
             "how many runs were timed, the baseline's spread."},
    {.name = "stages",
     .type = CLI_TYPE_FLAG,
     .offset = FIELD(stages),
     .help = "Tell at the end where the run's own time went: weights, plans, checks, timing."},
    {.name = "quick-check",
     .type = CLI_TYPE_FLAG,
     .offset = FIELD(quick_check),
     .help = "Compare an eighth of the elements with the oracle; every token is held to the sum of its outputs all the same."},
    {.name = "turns",
     .argument = "FILE",
     .type = CLI_TYPE_TEXT,
     .offset = FIELD(turns),
     .hint = CLI_HINT_FILE,
     .help = "For several benchmarks on one device: all that name the same FILE prepare side by side, and each times alone."},
    {.name = "report",
     .letter = 'r',
     .argument = "FILE.html",
     .type = CLI_TYPE_TEXT,
     .offset = FIELD(report),
     .hint = CLI_HINT_FILE,
     .help = "Write a page with charts of the results, replacing the file."},
    {.name = "accuracy",
     .argument = "FILE.csv",
     .type = CLI_TYPE_TEXT,
     .offset = FIELD(accuracy),
     .hint = CLI_HINT_FILE,
     .help = "Draw speed against loss in the report: this table says what each pattern costs a model (bench/accuracy "
             "makes such tables)."},
    {.name = "from",
     .argument = "FILE.csv",
     .type = CLI_TYPE_LIST,
     .offset = FIELD(from),
     .hint = CLI_HINT_FILE,
     .help = "Run nothing: take the results of this earlier CSV, for --report or --compare; may be repeated."},
    {.name = "compare",
     .argument = "FILE.csv",
     .type = CLI_TYPE_TEXT,
     .offset = FIELD(compare),
     .hint = CLI_HINT_FILE,
     .help = "Compare the speedups with those of this earlier CSV; exit status 1 when a cell got slower."},
    {.name = "tolerance",
     .argument = "SHARE",
     .type = CLI_TYPE_NUMBER,
     .offset = FIELD(tolerance),
     .help = "How much of its stored speedup a cell may lose before --compare calls it slower; 0.1 unless said."},
    CLI_OPTION_PROGRESS(bench_settings),
    CLI_END};

enum { MOST_PRECISIONS = 8 };

typedef struct bench_work {
    const bench_settings *settings;
    bench_rows rows, stored; /* stored: of --compare */
    bench_accuracy accuracy;
    lac_pattern *patterns;
    lac_dtype *dtypes;
    lac_precision precisions[MOST_PRECISIONS];
    size_t pattern_count, dtype_count, precision_count;
    bench_shapes shapes;
    FILE *csv;
    int fresh;         /* what the file held before is still there: it goes when there is something to put in its place */
    int table, titled; /* print the table; its title was printed */
    int failed;        /* a row could not be kept or written      */
    cli_progress progress;
} bench_work;

/* ---- what bench/ tells while it runs */

static void on_message(void *user, const char *message)
{
    bench_work *work = user;
    cli_progress_finish(&work->progress);
    cli_error(NULL, NULL, "%s", message);
}

/* Beside the table, which it is about; a CSV has the load in its device_info. */
static void on_notice(void *user, const char *notice)
{
    bench_work *work = user;
    cli_progress_finish(&work->progress);
    if (work->table) printf("%s\n", notice);
}

static void on_progress(void *user, uint64_t done, uint64_t total, const char *what)
{
    cli_progress_show(&((bench_work *)user)->progress, done, total, what);
}

static int should_stop(void *user)
{
    (void)user;
    return cli_interrupted();
}

static void print_row(bench_work *work, const bench_row *row)
{
    if (!work->titled)
        printf("%-17s %-12s %-4s %-28s %11s %7s %11s %8s %9s %8s\n", "m,n,k", "pattern", "type", "kernel", "time us", "spread",
               "dense us", "speedup", "GFLOP/s", "ceiling");
    work->titled = 1;
    char shape[80], dense[32] = "-", speedup[32] = "-";
    snprintf(shape, sizeof shape, "%lld,%lld,%lld", (long long)row->m, (long long)row->n, (long long)row->k);
    if (isfinite(row->dense_us)) snprintf(dense, sizeof dense, "%.1f", row->dense_us);
    if (isfinite(row->speedup)) snprintf(speedup, sizeof speedup, "%.2fx", row->speedup);
    const char *colour = !isfinite(row->speedup) ? "plain" : row->speedup < 0.98 ? "red" : "green";
    printf("%-17s %-12s %-4s %-28s %11.1f %6.1f%% %11s %s%8s%s %9.1f %7.0f%%\n", shape, row->pattern, row->dtype, row->kernel,
           row->time_us, 100 * row->spread, dense, cli_colour(colour), speedup, cli_colour("plain"), 1e3 * row->tflops_real,
           100 * row->share_of_ceiling);
    fflush(stdout);
}

/* Before the first row: a command that makes no sense, or a device that does not open, must not cost earlier results. */
static void begin_csv(bench_work *work)
{
    if (!work->fresh) return;
    work->fresh = 0;
    if (work->csv != stdout && ftruncate(fileno(work->csv), 0)) errno = 0; /* a pipe holds nothing */
    bench_csv_write_header(work->csv, work->settings->extended);
}

static void on_row(void *user, const bench_row *row)
{
    bench_work *work = user;
    cli_progress_finish(&work->progress);
    if (bench_rows_add(&work->rows, row)) {
        cli_error(NULL, NULL, "out of memory");
        work->failed = 1;
    }
    if (work->table) print_row(work, row);
    if (work->csv) {
        begin_csv(work);
        bench_csv_write_row(work->csv, row, work->settings->extended);
        if (fflush(work->csv)) work->failed = 1; /* said when the file is closed */
    }
}

/* ---- reading the options */

/* Calls `add` with each text of a list whose items may be several with commas. */
static int each_item(const cli_list *list, int (*add)(bench_work *work, const char *text), bench_work *work)
{
    for (size_t i = 0; i < list->count; i++) {
        char *copy = cli_copy_text(list->items[i]);
        char *rest = copy, *item;
        int status = 0;
        while (!status && (item = strsep(&rest, ","))) status = add(work, item);
        free(copy);
        if (status) return status;
    }
    return 0;
}

static int add_pattern(bench_work *work, const char *text)
{
    lac_pattern pattern;
    if (lac_pattern_parse(text, &pattern)) {
        cli_error(NULL, NULL, "--pattern '%s': %s", text, cli_pattern_trouble(text));
        return CLI_EXIT_USAGE;
    }
    lac_pattern *patterns = cli_allocate((work->pattern_count + 1) * sizeof *patterns);
    if (work->pattern_count) memcpy(patterns, work->patterns, work->pattern_count * sizeof *patterns);
    free(work->patterns);
    work->patterns = patterns;
    patterns[work->pattern_count++] = pattern;
    return 0;
}

static int add_dtype(bench_work *work, const char *text)
{
    lac_dtype dtype = LAC_DTYPE_NONE;
    int known = !lac_dtype_parse(text, &dtype);
    if (!known || (dtype != LAC_DTYPE_F32 && dtype != LAC_DTYPE_F16 && dtype != LAC_DTYPE_BF16)) {
        cli_error(NULL, NULL, "--dtype '%s': must be one of f32, f16, bf16", text);
        return CLI_EXIT_USAGE;
    }
    lac_dtype *dtypes = cli_allocate((work->dtype_count + 1) * sizeof *dtypes);
    if (work->dtype_count) memcpy(dtypes, work->dtypes, work->dtype_count * sizeof *dtypes);
    free(work->dtypes);
    work->dtypes = dtypes;
    dtypes[work->dtype_count++] = dtype;
    return 0;
}

static int add_precision(bench_work *work, const char *text)
{
    static const char *const names[] = {"default", "strict", "fast", "tf32"}; /* numbers of lac_precision */
    for (int i = 0; i < 4; i++)
        if (!strcmp(text, names[i]) && work->precision_count < MOST_PRECISIONS) {
            work->precisions[work->precision_count++] = (lac_precision)i;
            return CLI_EXIT_OK;
        }
    cli_error(NULL, NULL, "--precision '%s': must be one of default, strict, fast, tf32", text);
    return CLI_EXIT_USAGE;
}

static int read_shapes(bench_work *work)
{
    const bench_settings *s = work->settings;
    char why[512];
    bench_status status = BENCH_OK;
    for (size_t i = 0; !status && i < s->shapes.count; i++)
        status = bench_shapes_parse(&work->shapes, s->shapes.items[i], why, sizeof why);
    if (!status && s->shape_file) status = bench_shapes_read(&work->shapes, s->shape_file, why, sizeof why);
    if (!status && !work->shapes.count) {
        status = bench_shapes_parse(&work->shapes, "1,2048,2048", why, sizeof why);
        if (!status) status = bench_shapes_parse(&work->shapes, "128,2048,2048", why, sizeof why);
    }
    if (status) cli_error(NULL, NULL, "%s", why);
    bench_shapes_scale(&work->shapes, s->max_m);
    return (int)status;
}

static int read_lists(bench_work *work)
{
    static const char *const families[] = {"2:4", "vw32:8:32", "bw4x4:2:8", "64:2:8", "shfl64:25%"};
    const bench_settings *s = work->settings;
    int status = each_item(&s->patterns, add_pattern, work);
    for (size_t i = 0; !status && !s->patterns.count && i < sizeof families / sizeof *families; i++)
        status = add_pattern(work, families[i]);
    if (!status) status = s->dtypes.count ? each_item(&s->dtypes, add_dtype, work) : add_dtype(work, "f32");
    if (!status) status = each_item(&s->precisions, add_precision, work);
    return status ? status : read_shapes(work);
}

/* Names of one file that is there, be it by a link. */
static int is_same(const char *a, const char *b)
{
    struct stat of_a, of_b;
    return a && b && stat(a, &of_a) == 0 && stat(b, &of_b) == 0 && S_ISREG(of_a.st_mode) && of_a.st_dev == of_b.st_dev &&
           of_a.st_ino == of_b.st_ino;
}

/* Results may take the place of those that --from or --compare has read; nothing else may go over what is of another kind. */
static int check_files(const bench_settings *s)
{
    const char *const written[] = {s->csv, s->report};
    static const char *const names[] = {"csv", "report"};
    for (int i = 0; i < 2; i++) {
        const char *read = is_same(written[i], s->accuracy) ? "accuracy" : is_same(written[i], s->shape_file) ? "shapes" : NULL;
        if (i == 1 && is_same(written[i], s->compare)) read = "compare";
        for (size_t j = 0; i == 1 && j < s->from.count && !read; j++)
            if (is_same(written[i], s->from.items[j])) read = "from";
        if (!read) continue;
        cli_error(written[i], NULL, "--%s would write over what --%s reads", names[i], read);
        return CLI_EXIT_USAGE;
    }
    return CLI_EXIT_OK;
}

static int check_settings(const bench_settings *s)
{
    const char *wrong = NULL;
    char text[96];
    if (s->min_time <= 0 || s->min_time > 3600) {
        snprintf(text, sizeof text, "--min-time is %g; it must lie between 0 and 3600 seconds", s->min_time);
        wrong = text;
    }
    if (s->resume && (!s->csv || !strcmp(s->csv, "-"))) wrong = "--resume needs the file of --csv";
    if (s->resume && s->from.count) wrong = "--from runs nothing, so there is nothing to resume";
    if (s->max_seconds < 0) {
        snprintf(text, sizeof text, "--max-seconds is %g; it must not be negative", s->max_seconds);
        wrong = text;
    }
    if (s->tolerance < 0 || s->tolerance >= 1) {
        snprintf(text, sizeof text, "--tolerance is %g; it must be at least 0 and below 1", s->tolerance);
        wrong = text;
    }
    if (s->from.count && (s->shapes.count || s->shape_file)) wrong = "--from runs nothing, so it takes no shapes";
    if (s->accuracy && !s->report) wrong = "--accuracy draws in the report, so it needs --report";
    if (s->from.count && !s->report && !s->compare && !s->csv) wrong = "--from needs --report, --compare or --csv";
    if (s->csv && s->report && (!strcmp(s->csv, s->report) || is_same(s->csv, s->report)))
        wrong = "--csv and --report name the same file";
    if (wrong) cli_error(NULL, NULL, "%s", wrong);
    return wrong ? CLI_EXIT_USAGE : check_files(s);
}

/* ---- results: from a run or from files */

/* Before anything is timed: a table that cannot be read must not cost a run. */
static int read_accuracy(bench_work *work)
{
    char why[512];
    bench_status status = BENCH_OK;
    if (work->settings->accuracy) status = bench_accuracy_read(&work->accuracy, work->settings->accuracy, why, sizeof why);
    if (status) cli_error(NULL, NULL, "%s", why);
    return (int)status;
}

static int run_benchmark(bench_work *work)
{
    const bench_settings *s = work->settings;
    int status = read_lists(work);
    if (status) return status;
    bench_options asked = {.shapes = &work->shapes,
                           .device = s->device,
                           .patterns = work->patterns,
                           .pattern_count = work->pattern_count,
                           .dtypes = work->dtypes,
                           .dtype_count = work->dtype_count,
                           .precisions = work->precisions,
                           .precision_count = work->precision_count,
                           .layout = (lac_layout)s->layout,
                           .threads = (int)s->threads,
                           .baseline = s->baseline,
                           .peers = s->peers.items,
                           .peer_count = s->peers.count,
                           .kernels = s->kernels.items,
                           .kernel_count = s->kernels.count,
                           .warm = s->warm,
                           .min_seconds = s->min_time,
                           .max_seconds = s->max_seconds,
                           .stages = s->stages,
                           .quick_check = s->quick_check,
                           .turns = s->turns,
                           .known = s->resume ? &work->rows : NULL,
                           .seed = (uint64_t)s->seed,
                           .user = work,
                           .on_row = on_row,
                           .on_progress = on_progress,
                           .on_message = on_message,
                           .on_notice = on_notice,
                           .should_stop = should_stop};
    cli_interrupt_catch();
    cli_progress_start(&work->progress, s->progress);
    status = (int)bench_run(&asked);
    cli_progress_finish(&work->progress);
    return status;
}

static int read_results(bench_work *work)
{
    char why[512];
    for (size_t i = 0; i < work->settings->from.count; i++) {
        bench_status status = bench_rows_read(&work->rows, work->settings->from.items[i], why, sizeof why);
        if (!status) continue;
        cli_error(NULL, NULL, "%s", why);
        return (int)status;
    }
    if (!work->rows.count) { /* nothing to report is no report, and nothing compared is not nothing slower */
        cli_error(NULL, NULL, "--from '%s'%s: there are no results in it", work->settings->from.items[0],
                  work->settings->from.count > 1 ? " and the others" : "");
        return CLI_EXIT_USAGE;
    }
    for (size_t i = 0; work->csv && i < work->rows.count; i++) {
        begin_csv(work); /* all files were read: the one that is replaced may be among them */
        bench_csv_write_row(work->csv, &work->rows.items[i], work->settings->extended);
    }
    return CLI_EXIT_OK;
}

/* Before anything is timed, too: whether the report can be written. Nothing stays of it yet, since there may be no results. */
static int check_report(const char *path)
{
    struct stat found;
    bench_replacement page;
    if (stat(path, &found) == 0 && !S_ISREG(found.st_mode) && !S_ISDIR(found.st_mode))
        return CLI_EXIT_OK; /* who reads a pipe would see its end */
    if (!bench_replace_open(&page, path) && !bench_replace_close(&page, 0)) return CLI_EXIT_OK;
    cli_error(path, NULL, "--report: %s", strerror(errno));
    return CLI_EXIT_FAILURE;
}

/* Before anything is timed, like the table of losses, and before --csv replaces the file, should it be the same. */
static int read_stored(bench_work *work)
{
    char why[512];
    bench_status status = BENCH_OK;
    if (work->settings->compare) status = bench_rows_read(&work->stored, work->settings->compare, why, sizeof why);
    if (status) cli_error(NULL, NULL, "--compare: %s", why);
    return (int)status;
}

/* 1: rows of this run may stand under that first line. 0: not; 2: it is the beginning of such a line. */
static int is_own_header(const char *line, int extended)
{
    char *own = NULL;
    size_t length = 0;
    FILE *to = open_memstream(&own, &length);
    if (!to) return 0;
    bench_csv_write_header(to, extended);
    fclose(to);
    int same = own && !strcmp(line, own) ? 1 : own && !strncmp(line, own, strlen(line)) ? 2 : 0;
    free(own);
    return same;
}

/* A run that was killed, or whose disk was full, may have left half a line. */
static int drop_cut_line(const char *path, FILE *file)
{
    char *line = NULL;
    size_t size = 0;
    ssize_t got;
    off_t whole = 0;
    rewind(file);
    while ((got = getline(&line, &size, file)) > 0 && line[got - 1] == '\n') whole += got;
    free(line);
    if (got <= 0) return CLI_EXIT_OK;
    printf("The last line of %s was cut off: it goes, and its problem is run again\n", path);
    if (!truncate(path, whole)) return CLI_EXIT_OK;
    cli_error(path, NULL, "%s", strerror(errno));
    return CLI_EXIT_FAILURE;
}

/* What an earlier run left in the file; nothing where there is none. The columns must be those that will be added. */
static int read_known(bench_work *work, const char *path)
{
    char why[512], *header = NULL;
    size_t size = 0;
    const int extended = work->settings->extended;
    FILE *file = fopen(path, "r");
    if (!file) return CLI_EXIT_OK;
    int is_empty = getline(&header, &size, file) <= 0, own = is_empty ? 2 : is_own_header(header, extended);
    int status = CLI_EXIT_OK;
    if (!own && !strstr(header, ",levels") != !extended) {
        cli_error(path, NULL, "it was written %s --extended", extended ? "without" : "with");
        status = CLI_EXIT_USAGE;
    } else if (!own) {
        cli_error(path, NULL, "--resume: its columns are not those that would be added");
        status = CLI_EXIT_USAGE;
    } else if (own == 1) {
        status = drop_cut_line(path, file);
    }
    free(header);
    fclose(file);
    if (status || own != 1) return status;
    status = (int)bench_rows_read(&work->rows, path, why, sizeof why);
    if (status) cli_error(NULL, NULL, "%s", why);
    return status;
}

static int open_csv(bench_work *work)
{
    const char *path = work->settings->csv;
    if (!path) return CLI_EXIT_OK;
    int status = work->settings->resume ? read_known(work, path) : CLI_EXIT_OK;
    if (status) return status;
    work->csv = !strcmp(path, "-") ? stdout : fopen(path, "a");
    if (!work->csv) {
        cli_error(path, NULL, "%s", strerror(errno));
        return CLI_EXIT_FAILURE;
    }
    work->table = work->csv != stdout;
    work->fresh = !work->rows.count;
    return CLI_EXIT_OK;
}

static int close_csv(bench_work *work)
{
    struct stat found;
    if (!work->csv) return CLI_EXIT_OK;
    if (work->csv == stdout || fstat(fileno(work->csv), &found) || !found.st_size)
        begin_csv(work); /* a new one has its header */
    if (work->csv == stdout) return CLI_EXIT_OK;
    int failed = ferror(work->csv);
    if (!fclose(work->csv) && !failed) return CLI_EXIT_OK;
    cli_error(work->settings->csv, NULL, "%s", errno ? strerror(errno) : "cannot write");
    return CLI_EXIT_FAILURE;
}

static int write_outputs(bench_work *work)
{
    char why[512];
    int status = CLI_EXIT_OK;
    if (work->settings->report && work->rows.count &&
        bench_report_write(&work->rows, work->settings->accuracy ? &work->accuracy : NULL, work->settings->report, why,
                           sizeof why)) {
        cli_error(NULL, NULL, "%s", why);
        status = CLI_EXIT_FAILURE;
    } else if (work->settings->report && work->rows.count && work->table) {
        printf("The report is in %s\n", work->settings->report);
    }
    if (work->settings->compare && work->rows.count) {
        int compared = (int)bench_compare(&work->rows, &work->stored, work->settings->tolerance, work->table ? stdout : stderr);
        if (compared > status) status = compared;
    }
    return status;
}

static int run(const void *given)
{
    const bench_settings *settings = given;
    int status = check_settings(settings);
    if (status) return status;
    bench_work work = {.settings = settings, .table = 1};
    status = read_accuracy(&work);
    if (!status) status = read_stored(&work);
    if (!status && settings->report) status = check_report(settings->report);
    if (!status) status = open_csv(&work);
    if (!status) {
        status = settings->from.count ? read_results(&work) : run_benchmark(&work);
        int closed = close_csv(&work), written = cli_interrupted() ? 0 : write_outputs(&work);
        if (closed > status) status = closed;
        if (written > status) status = written;
        if (work.failed) status = CLI_EXIT_FAILURE;
    }
    bench_rows_free(&work.rows);
    bench_rows_free(&work.stored);
    bench_accuracy_free(&work.accuracy);
    bench_shapes_free(&work.shapes);
    free(work.patterns);
    free(work.dtypes);
    cli_interrupt_raise();
    return status;
}

const cli_command cli_command_bench = {
    .name = "bench",
    .summary = "time kernels against the dense library",
    .description =
        "Draws random weights and activations, prunes, multiplies, and times. Each result is checked against the oracle first; "
        "a "
        "wrong one is named, is not reported, and makes the exit status 1.\n\n"
        "The dense baseline runs on the same inputs in the same run, in turns with the kernels. Times are medians; the spread "
        "is "
        "the interquartile range as a share of the median. Buffers rotate, so that every call finds its operands outside the "
        "caches; with --warm they do not. 'ceiling' is the share of what the machine could do at most, by its measured rates "
        "of "
        "arithmetic and memory.\n\n"
        "docs/benchmark.md explains every column.",
    .examples = "lacuna bench 1,4096,4096 128,4096,4096 --pattern 2:4,1:4\n"
                "lacuna bench --shapes bench/shapes/decode.csv --pattern vw32:8:32 --csv out.csv --report out.html\n"
                "lacuna bench 128,4096,4096 --kernel all --threads 1\n"
                "lacuna bench --from out.csv --report again.html",
    .operands = operands,
    .options = options,
    .settings_size = sizeof(bench_settings),
    .defaults = &defaults,
    .run = run,
};
