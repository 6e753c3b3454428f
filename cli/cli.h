/* cli.h - what the subcommands of `lacuna` share.
 *
 * A subcommand is one cli_command: a table of operands and options, and a function. The table alone makes the parser,
 * `--help`, the man page and the completion of three shells, so none of them can say what another does not.
 * Every subcommand lives in its own file; main.c lists them. Options that several have are in shared.h. */
#ifndef LACUNA_CLI_H
#define LACUNA_CLI_H

#include <jansson.h>
#include <lacuna.h>
#include <stdint.h>
#include <stdio.h>

/* Every subcommand returns one of these; help and man pages describe them from the same list (options.c). */
enum {
    CLI_EXIT_OK = 0,
    CLI_EXIT_NO = 1,     /* the question was answered, and the answer is no */
    CLI_EXIT_USAGE = 2,  /* the command line makes no sense                 */
    CLI_EXIT_FAILURE = 3 /* a file, memory or a device failed               */
};

/* ---------------------------------------------------------------- the tables */

/* How an option's text is read, and what it is written to in the settings. */
typedef enum cli_type {
    CLI_TYPE_FLAG,    /* int: 1 when given            */
    CLI_TYPE_TEXT,    /* const char *                 */
    CLI_TYPE_LIST,    /* cli_list: may be repeated    */
    CLI_TYPE_INTEGER, /* int64_t, from minimum to maximum */
    CLI_TYPE_NUMBER,  /* double, finite               */
    CLI_TYPE_CHOICE,  /* int: the value of a choice   */
    CLI_TYPE_DTYPE,   /* lac_dtype, one of the choices */
    CLI_TYPE_PATTERN  /* cli_pattern; of several, lac_pattern */
} cli_type;

/* What a shell may offer in its place. */
typedef enum cli_hint { CLI_HINT_NONE, CLI_HINT_FILE, CLI_HINT_FOLDER, CLI_HINT_COMMAND } cli_hint;

typedef struct cli_choice {
    const char *name; /* NULL ends a list */
    int value;
} cli_choice;

typedef struct cli_list {
    const char **items; /* [count] */
    size_t count;
} cli_list;

typedef struct cli_values {
    void *items; /* [count] of int64_t, double, int, lac_dtype or lac_pattern */
    size_t count;
} cli_values;

typedef struct cli_pattern {
    const char *text; /* NULL: not given */
    lac_pattern value;
} cli_pattern;

typedef struct cli_option {
    const char *name; /* without the dashes; NULL ends a table */
    char letter;      /* 0: none                               */
    const char *argument;
    cli_type type;
    size_t offset; /* of its field in the settings          */
    const char *help;
    const cli_choice *choices;
    int64_t minimum, maximum;
    cli_hint hint;
    int needed;
    int several; /* may be repeated, and its text be several with commas: the field is a cli_values of what the type reads */
} cli_option;

typedef struct cli_operand {
    const char *name; /* NULL ends a table */
    size_t offset;    /* of its const char * in the settings; of a cli_list when it may be repeated */
    const char *help;
    cli_hint hint;
    int optional;
    int repeated; /* it is the last, and takes all that is left */
} cli_operand;

typedef struct cli_command {
    const char *name;
    const char *summary;     /* one line, no full stop                                   */
    const char *description; /* paragraphs, an empty line between them                    */
    const char *examples;    /* lines of shell, NULL: none                                */
    const cli_operand *operands;
    const cli_option *options; /* --help comes by itself                                 */
    size_t settings_size;
    const void *defaults; /* settings_size bytes; NULL: all zero                         */
    int (*run)(const void *settings);
} cli_command;

#define CLI_END                                                                                                                \
    {                                                                                                                          \
        .name = NULL                                                                                                           \
    }
extern const cli_command *const cli_commands[]; /* NULL-terminated, in the order of the help */
extern const cli_command cli_command_devices, cli_command_info, cli_command_prune, cli_command_verify, cli_command_convert,
    cli_command_multiply, cli_command_bench, cli_command_explain, cli_command_compile, cli_command_demo, cli_command_help;

/* ---------------------------------------------------------------- options.c, describe.c, manual.c, completion.c */

extern const cli_option cli_option_help; /* --help, part of every subcommand */

/* Finds a subcommand; NULL when there is none. */
const cli_command *cli_command_find(const char *name);
/* The name in `names` (NULL-terminated) nearest to `text`, or NULL when none is near. */
const char *cli_nearest_name(const char *text, const char *const *names);
/* Reads the arguments after the subcommand's name into `settings`. Returns 0, or -1 after saying what is wrong, or 1
 * when --help was asked for. */
int cli_options_parse(const cli_command *command, int count, char **arguments, void *settings);
void cli_settings_free(const cli_command *command, void *settings);

/* The usage line, the page of --help, the manual page, the completion script. `command` NULL: of lacuna itself. */
void cli_describe_usage(FILE *to, const cli_command *command);
void cli_describe_help(FILE *to, const cli_command *command);
void cli_describe_manual(FILE *to, const cli_command *command);
/* `shell` is "bash", "zsh" or "fish". */
void cli_describe_completion(FILE *to, const char *shell);
/* What an exit status means, 0 to 3. */
const char *cli_exit_meaning(int status);

/* ---------------------------------------------------------------- report.c: errors, JSON, progress */
/* Bytes of the control character (of ASCII, or U+0080 to U+009F in UTF-8) that `text` begins with; 0: of none. */
size_t cli_control_bytes(const char *text);

/* Sends on what was printed, where it is wanted before the end. A stream that fails forgets why: the first reason is kept. */
void cli_output_flush(void);
/* Why standard output has not got all that was printed, or NULL: it has. */
const char *cli_output_trouble(void);

/* The subcommand that error messages name. */
void cli_set_command_name(const char *name);
/* "lacuna prune: FILE: tensor 'x': message"; file and tensor may be NULL. Control characters are made harmless. */
void cli_error(const char *file, const char *tensor, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The same of the library's last error, without saying twice what that says already. Returns the exit status. */
int cli_fail(const char *file, const char *tensor, lac_status status);
/* What lac_pattern_parse has against `text`, without the text itself. */
const char *cli_pattern_trouble(const char *text);
/* Remembers what cli_matrix_create had no memory for, so that cli_fail can say it. */
void cli_note_shortage(int64_t rows, int64_t cols, lac_dtype dtype);
/* 0 when `path` may be written, or CLI_EXIT_FAILURE after saying that it exists. */
int cli_refuse_overwrite(const char *path, int force);
/* 1 when `path` ends so, whatever the case. */
int cli_ends_with(const char *path, const char *ending);

/* A JSON string of any bytes: those that are no UTF-8 become U+FFFD. */
json_t *cli_json_text(const char *text);
/* A JSON number, or null when it is not finite. */
json_t *cli_json_number(double value);
/* Prints the document, frees it and returns `status`. */
int cli_json_print(json_t *document, int status);

double cli_seconds(void);

typedef struct cli_progress {
    int enabled, drawn, always;
    double started, last;
} cli_progress;

/* `when` is a value of cli_progress_choices. */
void cli_progress_start(cli_progress *progress, int when);
void cli_progress_show(cli_progress *progress, uint64_t done, uint64_t total, const char *what);
void cli_progress_finish(cli_progress *progress);

/* Lets Ctrl-C and SIGTERM finish the tensor in hand, so that no half-made file stays; a second one ends at once. */
void cli_interrupt_catch(void);
int cli_interrupted(void);
/* Ends the process by the signal that came, when one came. */
void cli_interrupt_raise(void);

/* ---------------------------------------------------------------- table.c */

typedef struct cli_text {
    char text[96];
} cli_text;

cli_text cli_format_bytes(uint64_t bytes);   /* "12.3 MiB" */
cli_text cli_format_percent(double share);   /* "12.5%"    */
cli_text cli_format_seconds(double seconds); /* "1.25 ms"  */
cli_text cli_format_count(int64_t count);    /* "12345"    */
cli_text cli_format_shape(const int64_t *shape, int rank);
cli_text cli_format_number(const char *format, double value);

typedef struct cli_table cli_table;

/* `titles` are parted by '|'; `align` has 'l' or 'r' for each. */
cli_table *cli_table_create(const char *titles, const char *align);
/* As many const char * as there are columns; copied. */
void cli_table_add(cli_table *table, ...);
/* A line above the next row: what follows are totals. */
void cli_table_rule(cli_table *table);
void cli_table_print(cli_table *table); /* to standard output; frees it */
void cli_table_free(cli_table *table);
/* The escape sequence of "bold", "red", "green", "plain", or "" where colour is not wanted. */
const char *cli_colour(const char *name);

/* ---------------------------------------------------------------- matrix.c: dense matrices, names, numbers */

/* Memory or a message: the command line ends when a small block cannot be had. */
void *cli_allocate(size_t bytes);
char *cli_copy_text(const char *text);

/* An owned dense matrix, row-major without padding; -1 and nothing said when there is no memory. */
int cli_matrix_create(lac_matrix *matrix, lac_dtype dtype, int64_t rows, int64_t cols);
void cli_matrix_free(lac_matrix *matrix);
double cli_matrix_get(const lac_matrix *matrix, int64_t index);
void cli_matrix_put(const lac_matrix *matrix, int64_t index, double value);
/* Reads a tensor of rank 1 or 2. `name` NULL: the only one that fits. dtype NONE: its own. Returns an exit status; on
 * success `*chosen` (may be NULL) is the tensor's name, which lives as long as the file. */
int cli_matrix_read(const lac_file *file, const char *path, const char *name, lac_dtype dtype, lac_matrix *matrix,
                    const char **chosen);
/* Writes .npy or .safetensors by the ending; `name` is for the latter. Returns an exit status. */
int cli_matrix_write(const lac_matrix *matrix, const char *path, const char *name);
/* 1 when the name is wanted: by the include globs (none: all) and not by the exclude globs. */
int cli_name_selected(const char *name, const cli_list *include, const cli_list *exclude);
int cli_tensor_is_floating(const lac_tensor_info *tensor);
int cli_tensor_is_matrix(const lac_tensor_info *tensor); /* floating and of rank 2 */

double cli_number_get(const void *data, lac_dtype dtype, int64_t index);
/* The nearest value of the dtype, ties to even; an infinity when it is too large. */
double cli_number_round(double value, lac_dtype dtype);
double cli_number_largest(lac_dtype dtype);
void cli_number_put(void *data, lac_dtype dtype, int64_t index, double value);

/* A fixed stream of random numbers, the same on every machine. */
typedef struct cli_random {
    uint64_t state;
} cli_random;
double cli_random_uniform(cli_random *random);  /* [0, 1)      */
double cli_random_gaussian(cli_random *random); /* mean 0, 1   */

/* ---------------------------------------------------------------- check.c: against the oracle and the original */

typedef struct cli_product {
    char kernel[96];
    int64_t m;
    double seconds;
    double max_error; /* the largest distance from the oracle        */
    double share;     /* the largest error / bound                   */
    int64_t row, col; /* of the first element beyond its bound       */
    double got, want, bound;
    int ok;
} cli_product;

/* Compares y (of the plan's layout and dtype) with the oracle of the same plan and arguments. */
lac_status cli_product_compare(const lac_plan *plan, const lac_execute_args *args, const lac_matrix *y, cli_product *product);
/* Multiplies random X[m,k] by the weight, three times, and compares; `seconds` is the shortest. */
lac_status cli_product_check(lac_device *device, const lac_weight *weight, int64_t m, int threads, cli_product *product);

typedef struct cli_verdict {
    int ok;
    char problem[512]; /* the first one; "" when ok          */
    char pattern[LAC_PATTERN_TEXT_SIZE];
    lac_weight_info info;
    int compared;    /* the original was given             */
    int64_t dropped; /* nonzeros of it that are zero now   */
    double energy_kept;
    int multiplied;
    cli_product product;
} cli_verdict;

typedef struct cli_verify_options {
    const lac_file *against; /* NULL: none */
    const char *against_path;
    lac_device *device; /* NULL: do not multiply */
    int64_t m;
    int threads;
} cli_verify_options;

/* Loads one weight and puts it to every test; a status other than OK means that it could not be tested. */
lac_status cli_weight_verify(const lac_file *file, const char *name, const cli_verify_options *options, cli_verdict *verdict);
/* Whether each nonzero of `now` is that of `before` (F64), rounded to now's dtype. Fills dropped, energy_kept, problem. */
void cli_matrix_compare(const lac_matrix *now, const lac_matrix *before, cli_verdict *verdict);

/* ---------------------------------------------------------------- needs.c */

/* What a machine must have to run the kernel: "AVX2, FMA, F16C", "sm_80 and later". */
cli_text cli_kernel_needs(const lac_kernel_info *kernel);

#endif
