/* bench.c - `lacuna bench`: a thin front of bench/, which does the work. Here are its options and what they exclude;
 * bench_run.c runs, bench_files.c keeps the files. */
#include "bench_work.h"
#include "shared.h"

#include <string.h>

static const bench_settings defaults = {
    .device = "auto", .baseline = BENCH_BASELINE_AUTO, .seed = 1, .min_time = 0.25, .max_seconds = 0, .tolerance = 0.1};

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
    CLI_OPTION_DEVICE(bench_settings,
                      .help = "cpu, or another device as 'lacuna devices' names it; auto (the fastest) unless said."),
    CLI_OPTION_PATTERN(
        bench_settings, .argument = "PATTERN", .several = 1,
        .help = "Prune to this pattern; may be repeated, or several with commas. One of each family unless said: 2:4, "
                "vw32:8:32, bw4x4:2:8, 64:2:8, shfl64:25%."),
    CLI_OPTION_DTYPE(
        bench_settings, .choices = cli_weight_dtype_choices, .several = 1,
        .help =
            "Of weights, activations and results: f32, f16 or bf16; may be repeated, or several with commas. f32 unless said."),
    CLI_OPTION_PRECISION(bench_settings, .several = 1,
                         .help = CLI_HELP_PRECISION
                         "; may be repeated, or several with commas. Strict and fast are timed side by side."),
    CLI_OPTION_LAYOUT(bench_settings, .help = CLI_HELP_LAYOUT),
    CLI_OPTION_THREADS(bench_settings),
    CLI_OPTION_KERNEL(bench_settings, .type = CLI_TYPE_LIST,
                      .help =
                          "Time this kernel; may be repeated; 'all' is each one that applies. The planner's pick unless said."),
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
    if (wrong) cli_error(NULL, NULL, "%s", wrong);
    return wrong ? CLI_EXIT_USAGE : cli_bench_check_files(s);
}

static int run(const void *given)
{
    bench_work work = {.settings = given, .table = 1};
    int status = check_settings(work.settings);
    if (!status) status = cli_bench_open_files(&work);
    if (!status) {
        status = work.settings->from.count ? cli_bench_read_results(&work) : cli_bench_run(&work);
        int closed = cli_bench_close_csv(&work), written = cli_interrupted() ? 0 : cli_bench_write_outputs(&work);
        if (closed > status) status = closed;
        if (written > status) status = written;
        if (work.failed) status = CLI_EXIT_FAILURE;
    }
    bench_rows_free(&work.rows);
    bench_rows_free(&work.stored);
    bench_accuracy_free(&work.accuracy);
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
