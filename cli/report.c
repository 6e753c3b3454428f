/* report.c - what every subcommand says besides its answer: errors, JSON, the progress bar, Ctrl-C.
 *
 * Errors and progress go to standard error, answers to standard output. */
#include "cli.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PROGRESS_BAR = 30, MAX_PROGRESS_LINE = 100 }; /* columns */

static const char *command_name = NULL;

void cli_set_command_name(const char *name) { command_name = name; }

const char *cli_exit_meaning(int status)
{
    switch (status) {
    case CLI_EXIT_OK:
        return "Done; the answer is yes.";
    case CLI_EXIT_NO:
        return "The answer is no: a difference, a violated pattern, or an error beyond its bound.";
    case CLI_EXIT_USAGE:
        return "The command line makes no sense.";
    case CLI_EXIT_FAILURE:
        return "A file, memory or a device failed.";
    }
    return "Stopped by a signal: 128 and its number.";
}

size_t cli_control_bytes(const char *text)
{
    unsigned char first = (unsigned char)text[0];
    if (first == 0xc2 && ((unsigned char)text[1] & 0xe0) == 0x80) return 2;
    return (first && first < 0x20) || first == 0x7f;
}

/* Names come out of files that nobody has vetted: they must not steer a terminal. */
static void print_harmless(FILE *to, const char *text)
{
    while (*text) {
        size_t control = cli_control_bytes(text);
        if (!control) fputc(*text++, to);
        for (; control; control--) fprintf(to, "\\x%02x", (unsigned char)*text++);
    }
}

/* The library names its arguments, people here give options: the message with the one in place of the other. */
static void name_options(const char *message, char *out, size_t size)
{
    static const struct {
        const char *argument, *option;
    } names[] = {{"options->kernel is '", "--kernel is '"},
                 {"options->plan->kernel is '", "--kernel is '"},
                 {"name is '", "--device is '"}, /* lac_device_open alone says this */
                 {"arch is '", "--arch is '"},
                 {"options: producers '", "--producer '"},
                 {"options: no choice of the", "--budget: no choice of the"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *at = strstr(message, names[i].argument);
        if (!at) continue;
        snprintf(out, size, "%.*s%s%s", (int)(at - message), message, names[i].option, at + strlen(names[i].argument));
        return;
    }
    snprintf(out, size, "%s", message);
}

static void print_error(const char *file, const char *tensor, const char *message)
{
    fputs(command_name ? "lacuna " : "lacuna", stderr);
    fputs(command_name ? command_name : "", stderr);
    fputs(": ", stderr);
    if (file) {
        print_harmless(stderr, file);
        fputs(": ", stderr);
    }
    if (tensor) {
        fputs("tensor '", stderr);
        print_harmless(stderr, tensor);
        fputs("': ", stderr);
    }
    char named[2048];
    name_options(message, named, sizeof named);
    print_harmless(stderr, named);
    fputc('\n', stderr);
}

void cli_error(const char *file, const char *tensor, const char *format, ...)
{
    char message[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    print_error(file, tensor, message);
}

static char shortage[96] = ""; /* what this program, rather than the library, had no memory for */

void cli_note_shortage(int64_t rows, int64_t cols, lac_dtype dtype)
{
    snprintf(shortage, sizeof shortage, "out of memory for %lld x %lld values of %s", (long long)rows, (long long)cols,
             lac_dtype_name(dtype));
}

/* Whether `message` names `name` as a word of its own: a file called "a" is not named by every message with an a in it. */
static int mentions(const char *message, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = strstr(message, name); length && at; at = strstr(at + 1, name)) {
        int begins = at == message || strchr(" '\"(", at[-1]) != NULL;
        int ends = at[length] == 0 || strchr(" '\"):,;", at[length]) != NULL;
        if (begins && ends) return 1;
    }
    return 0;
}

const char *cli_pattern_trouble(const char *text)
{
    char opening[LAC_PATTERN_TEXT_SIZE + 32];
    int length = snprintf(opening, sizeof opening, "pattern is '%.60s': ", text);
    const char *message = lac_last_error();
    if (!strncmp(message, opening, (size_t)length)) message += length;
    return strncmp(message, "pattern: ", 9) ? message : message + 9;
}

int cli_fail(const char *file, const char *tensor, lac_status status)
{
    const char *message = lac_last_error();
    if (status == LAC_STATUS_OUT_OF_MEMORY && *shortage) message = shortage;
    if (status == LAC_STATUS_OK || !*message) message = lac_status_name(status);
    if (file && mentions(message, file)) file = NULL;
    if (tensor && mentions(message, tensor)) tensor = NULL;
    print_error(file, tensor, message);
    return status == LAC_STATUS_PATTERN_VIOLATED ? CLI_EXIT_NO : CLI_EXIT_FAILURE;
}

int cli_refuse_overwrite(const char *path, int force)
{
    struct stat found;
    if (lstat(path, &found) != 0) return 0;
    if (S_ISDIR(found.st_mode)) {
        cli_error(path, NULL, "is a folder; name a file");
        return CLI_EXIT_FAILURE;
    }
    if (force) return 0;
    cli_error(path, NULL, "exists; --force replaces it");
    return CLI_EXIT_FAILURE;
}

int cli_ends_with(const char *path, const char *ending)
{
    size_t length = strlen(path), wanted = strlen(ending);
    return length >= wanted && !strcasecmp(path + length - wanted, ending);
}

json_t *cli_json_text(const char *text)
{
    json_t *string = json_string(text);
    if (string) return string;
    char *safe = cli_allocate(3 * strlen(text) + 1);
    char *to = safe;
    for (const char *c = text; *c; c++) {
        if ((unsigned char)*c < 0x80) {
            *to++ = *c;
        } else {
            memcpy(to, "\xef\xbf\xbd", 3);
            to += 3;
        }
    }
    *to = 0;
    string = json_string(safe);
    free(safe);
    return string;
}

json_t *cli_json_number(double value) { return isfinite(value) ? json_real(value) : json_null(); }

static int output_error = 0; /* of the first time that standard output was not to be written to */

static void note_output_error(void)
{
    if (!output_error) output_error = errno;
}

void cli_output_flush(void)
{
    if (fflush(stdout)) note_output_error();
}

const char *cli_output_trouble(void)
{
    cli_output_flush();
    if (output_error) return strerror(output_error);
    return ferror(stdout) ? "cannot write" : NULL; /* a full buffer went out, and nothing is left that could fail again */
}

int cli_json_print(json_t *document, int status)
{
    int failed = !document || json_dumpf(document, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(12)) != 0;
    int made = document && !(failed && !ferror(stdout)); /* main says what is wrong with the stream */
    if (made && failed) note_output_error();
    json_decref(document);
    if (!made) cli_error(NULL, NULL, "cannot make the JSON document");
    if (failed) return CLI_EXIT_FAILURE;
    putchar('\n');
    return status;
}

double cli_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void cli_progress_start(cli_progress *progress, int when)
{
    *progress = (cli_progress){.enabled = when == 1 || (when == 0 && isatty(STDERR_FILENO)), .always = when == 1};
    progress->started = cli_seconds();
}

/* How much of `text` print_harmless can print in `room` columns; no character is cut in two. */
static size_t fitting_bytes(const char *text, int room)
{
    size_t count = 0, step;
    for (; text[count]; count += step) {
        size_t control = cli_control_bytes(text + count);
        step = control ? control : 1;
        room -= control ? 4 * (int)control : 1;
        if (room < 0) break;
    }
    while (count && ((unsigned char)text[count] & 0xc0) == 0x80) count--;
    return count;
}

void cli_progress_show(cli_progress *progress, uint64_t done, uint64_t total, const char *what)
{
    if (!progress->enabled || total == 0) return;
    double now = cli_seconds(), elapsed = now - progress->started;
    double share = (double)done / (double)total;
    double left = share > 0 ? elapsed / share - elapsed : 0;
    /* Wait a little before judging how long it will take, then draw at most ten times a second. */
    int worth = progress->always || (elapsed > 0.3 && elapsed + left > 2.0);
    if (!worth || (progress->drawn && now - progress->last < 0.1 && done < total)) return;
    progress->drawn = 1;
    progress->last = now;
    /* A line that is longer than the terminal is wide would stay there: the name is cut first, then the bar goes. */
    struct winsize size;
    int width = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : MAX_PROGRESS_LINE + 1;
    char line[MAX_PROGRESS_LINE + 1] = "[";
    int filled = (int)(share * PROGRESS_BAR), seconds = left < 3599999 ? (int)left : 3599999;
    for (int i = 0; i < PROGRESS_BAR; i++) line[1 + i] = i < filled ? '#' : '.';
    snprintf(line + 1 + PROGRESS_BAR, sizeof line - 1 - PROGRESS_BAR, "] %3.0f%%  %d:%02d left  ", 100 * share, seconds / 60,
             seconds % 60);
    const char *shown = (int)strlen(line) < width ? line : line + PROGRESS_BAR + 3;
    int room = width - 1 - (int)strlen(shown);
    fprintf(stderr, "\r\033[K%.*s", width - 1, shown);
    char name[41];
    snprintf(name, sizeof name, "%.*s", (int)fitting_bytes(what, room < 40 ? room : 40), what);
    print_harmless(stderr, name);
    fflush(stderr);
}

void cli_progress_finish(cli_progress *progress)
{
    if (progress->drawn) fputs("\r\033[K", stderr);
    progress->drawn = 0;
}

static volatile sig_atomic_t caught_signal = 0;

static void remember_signal(int number) { caught_signal = number; }

void cli_interrupt_catch(void)
{
    struct sigaction action = {.sa_handler = remember_signal, .sa_flags = (int)SA_RESETHAND | SA_RESTART};
    sigemptyset(&action.sa_mask);
    int signals[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        struct sigaction before;
        /* A signal that the parent told us to ignore (nohup) stays ignored. */
        if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN) continue;
        sigaction(signals[i], &action, NULL);
    }
}

int cli_interrupted(void) { return caught_signal != 0; }

void cli_interrupt_raise(void)
{
    if (!caught_signal) return;
    fflush(NULL);
    signal(caught_signal, SIG_DFL);
    raise(caught_signal);
}
