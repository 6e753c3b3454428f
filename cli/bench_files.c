/* bench_files.c - where the results of `lacuna bench` come from and go to: the CSV that grows with a run or goes on with an earlier one,
 * the results of --from and --compare, the report. No file goes over one of another kind. */
#include "bench_work.h"
#include "replace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Names of one file that is there, be it by a link. */
static int is_same(const char *a, const char *b)
{
    struct stat of_a, of_b;
    return a && b && stat(a, &of_a) == 0 && stat(b, &of_b) == 0 && S_ISREG(of_a.st_mode) && of_a.st_dev == of_b.st_dev &&
           of_a.st_ino == of_b.st_ino;
}

/* Results may take the place of those that --from or --compare has read; nothing else may go over what is of another kind. */
int cli_bench_check_files(const bench_settings *s)
{
    const char *const written[] = {s->csv, s->report};
    static const char *const names[] = {"csv", "report"};
    if (s->csv && s->report && (!strcmp(s->csv, s->report) || is_same(s->csv, s->report))) {
        cli_error(NULL, NULL, "--csv and --report name the same file");
        return CLI_EXIT_USAGE;
    }
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

/* ---- what is read */

/* Before anything is timed: a table that cannot be read must not cost a run. */
static int read_accuracy(bench_work *work)
{
    char why[512];
    bench_status status = BENCH_OK;
    if (work->settings->accuracy) status = bench_accuracy_read(&work->accuracy, work->settings->accuracy, why, sizeof why);
    if (status) cli_error(NULL, NULL, "%s", why);
    return (int)status;
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

/* ---- the CSV */

/* Under whatever name: /dev/stdout, or the file that a shell sends it to. The table would go between the rows. */
static int is_standard_output(const char *path)
{
    struct stat of_path, of_output;
    return !strcmp(path, "-") || (stat(path, &of_path) == 0 && fstat(STDOUT_FILENO, &of_output) == 0 &&
                                  of_path.st_dev == of_output.st_dev && of_path.st_ino == of_output.st_ino);
}

/* All rows are known, so that the file is replaced whole: it may be the very one that they were read from. */
static int rewrite_csv(bench_work *work)
{
    const char *path = work->settings->csv;
    cli_replacement file = {.to = stdout};
    if (!path) return CLI_EXIT_OK;
    work->table = !is_standard_output(path);
    if (!work->table || !cli_replace_open(&file, path)) {
        bench_csv_write_header(file.to, work->settings->extended);
        for (size_t i = 0; i < work->rows.count; i++)
            bench_csv_write_row(file.to, &work->rows.items[i], work->settings->extended);
        if (!work->table || !cli_replace_close(&file, 1)) return CLI_EXIT_OK;
    }
    cli_error(path, NULL, "%s", strerror(errno));
    return CLI_EXIT_FAILURE;
}

int cli_bench_read_results(bench_work *work)
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
    return rewrite_csv(work);
}

/* Before the first row: a command that makes no sense, or a device that does not open, must not cost earlier results. */
static void begin_csv(bench_work *work)
{
    if (!work->fresh) return;
    work->fresh = 0;
    if (work->csv != stdout && ftruncate(fileno(work->csv), 0)) errno = 0; /* a pipe holds nothing */
    bench_csv_write_header(work->csv, work->settings->extended);
}

void cli_bench_write_row(bench_work *work, const bench_row *row)
{
    if (!work->csv) return;
    errno = 0;
    begin_csv(work);
    bench_csv_write_row(work->csv, row, work->settings->extended);
    if (work->csv == stdout) cli_output_flush(); /* finds it all out, and main.c says so */
    if (!fflush(work->csv) && !ferror(work->csv)) return;
    work->failed = 1;
    if (!work->csv_error) work->csv_error = errno ? errno : EIO; /* said when the file is closed */
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
    struct stat found;
    if (stat(path, &found) == 0 && !S_ISREG(found.st_mode)) { /* it may have no end, or nobody at the other one */
        cli_error(path, NULL, "--resume: it is not a regular file");
        return CLI_EXIT_FAILURE;
    }
    FILE *file = fopen(path, "r");
    if (!file && errno == ENOENT) return CLI_EXIT_OK;
    if (!file) { /* what cannot be read may hold results */
        cli_error(path, NULL, "--resume: %s", strerror(errno));
        return CLI_EXIT_FAILURE;
    }
    int is_empty = getline(&header, &size, file) <= 0, own = is_empty ? 2 : is_own_header(header, extended);
    int status = CLI_EXIT_OK;
    if (is_empty && ferror(file)) {
        cli_error(path, NULL, "--resume: %s", strerror(errno));
        status = CLI_EXIT_FAILURE;
    } else if (!own && !strstr(header, ",levels") != !extended) {
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
    if (!path || work->settings->from.count) return CLI_EXIT_OK; /* rewrite_csv opens it, once there are rows */
    int status = work->settings->resume ? read_known(work, path) : CLI_EXIT_OK;
    if (status) return status;
    work->csv = is_standard_output(path) ? stdout : fopen(path, "a");
    if (!work->csv) {
        cli_error(path, NULL, "%s", strerror(errno));
        return CLI_EXIT_FAILURE;
    }
    work->table = work->csv != stdout;
    work->fresh = !work->rows.count;
    return CLI_EXIT_OK;
}

int cli_bench_close_csv(bench_work *work)
{
    struct stat found;
    if (!work->csv) return CLI_EXIT_OK;
    if (work->csv == stdout || fstat(fileno(work->csv), &found) || !found.st_size)
        begin_csv(work); /* a new one has its header */
    if (work->csv == stdout) return CLI_EXIT_OK;
    if (fclose(work->csv) && !work->csv_error) work->csv_error = errno;
    if (!work->csv_error) return CLI_EXIT_OK;
    cli_error(work->settings->csv, NULL, "%s", strerror(work->csv_error));
    return CLI_EXIT_FAILURE;
}

/* ---- the report */

/* Before anything is timed, too: whether the report can be written. Nothing stays of it yet, since there may be no results. */
static int check_report(const char *path)
{
    struct stat found;
    cli_replacement page;
    if (stat(path, &found) == 0 && !S_ISREG(found.st_mode) && !S_ISDIR(found.st_mode))
        return CLI_EXIT_OK; /* who reads a pipe would see its end */
    if (!cli_replace_open(&page, path) && !cli_replace_close(&page, 0)) return CLI_EXIT_OK;
    cli_error(path, NULL, "--report: %s", strerror(errno));
    return CLI_EXIT_FAILURE;
}

static int write_report(bench_work *work)
{
    const char *path = work->settings->report;
    cli_replacement page;
    int status = CLI_EXIT_OK;
    if (cli_replace_open(&page, path)) {
        cli_error(path, NULL, "%s", strerror(errno));
        return CLI_EXIT_FAILURE;
    }
    status = (int)bench_report_write(&work->rows, work->settings->accuracy ? &work->accuracy : NULL, page.to);
    if (cli_replace_close(&page, !status)) {
        cli_error(path, NULL, "%s", strerror(errno));
        return CLI_EXIT_FAILURE;
    }
    if (status) cli_error(NULL, NULL, "out of memory");
    if (!status && work->table) printf("The report is in %s\n", path);
    return status;
}

int cli_bench_write_outputs(bench_work *work)
{
    const bench_settings *s = work->settings;
    int status = s->report && work->rows.count ? write_report(work) : CLI_EXIT_OK;
    if (s->compare && work->rows.count) {
        int compared = (int)bench_compare(&work->rows, &work->stored, s->tolerance, work->table ? stdout : stderr);
        if (compared > status) status = compared;
    }
    return status;
}

int cli_bench_open_files(bench_work *work)
{
    int status = read_accuracy(work);
    if (!status) status = read_stored(work);
    if (!status && work->settings->report) status = check_report(work->settings->report);
    return status ? status : open_csv(work);
}
