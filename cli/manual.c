/* manual.c - the manual pages in roff, made from the tables. `lacuna help --man` prints them; the build installs them. */
#include "cli.h"

#include <ctype.h>
#include <string.h>

/* Text as roff wants it: a dash is a minus to copy, a backslash an escape, and no line begins with a request. */
static void print_roff(FILE *to, const char *text)
{
    int line_start = 1;
    for (const char *c = text; *c; c++) {
        if (line_start && (*c == '.' || *c == '\'')) fputs("\\&", to);
        line_start = *c == '\n';
        if (c[0] == '\n' && c[1] == '\n') {
            fputs("\n.PP\n", to);
            c++;
            line_start = 1;
        } else if (*c == '-') {
            fputs("\\-", to);
        } else if (*c == '\\') {
            fputs("\\e", to);
        } else {
            fputc(*c, to);
        }
    }
}

static void print_title(FILE *to, const char *name)
{
    fputs(".TH LACUNA", to);
    if (name) fputs("\\-", to);
    for (const char *c = name ? name : ""; *c; c++) fputc(toupper((unsigned char)*c), to);
    fprintf(to, " 1 \"\" \"lacuna %s\" \"User Commands\"\n", lac_version());
}

static void print_exit_section(FILE *to)
{
    fputs(".SH EXIT STATUS\n", to);
    for (int status = CLI_EXIT_OK; status <= CLI_EXIT_FAILURE; status++) {
        fprintf(to, ".TP\n.B %d\n", status);
        print_roff(to, cli_exit_meaning(status));
        fputc('\n', to);
    }
    fputs(".TP\n.B 128+\n", to);
    print_roff(to, cli_exit_meaning(-1));
    fputc('\n', to);
}

static void print_option_entry(FILE *to, const cli_option *option)
{
    fputs(".TP\n", to);
    if (option->letter) fprintf(to, "\\fB\\-%c\\fR, ", option->letter);
    fputs("\\fB\\-\\-", to);
    print_roff(to, option->name);
    fputs("\\fR", to);
    if (option->argument) fprintf(to, " \\fI%s\\fR", option->argument);
    fputc('\n', to);
    print_roff(to, option->help);
    if (option->needed) fputs(" It must be given.", to);
    fputc('\n', to);
}

static void print_examples(FILE *to, const char *examples)
{
    fputs(".SH EXAMPLES\n.nf\n", to);
    print_roff(to, examples);
    fputs("\n.fi\n", to);
}

static void print_environment(FILE *to)
{
    fputs(".SH ENVIRONMENT\n.TP\n.B NO_COLOR\nWhen set and not empty, nothing is coloured.\n", to);
    fputs(".TP\n.B OMP_NUM_THREADS\nThe number of threads that prune and compress where no option says it.\n", to);
}

static void print_see_also(FILE *to, const cli_command *self)
{
    fputs(".SH SEE ALSO\n", to);
    const char *separator = "";
    if (self) {
        fputs(".BR lacuna (1)", to);
        separator = ",\n";
    }
    for (size_t i = 0; cli_commands[i]; i++) {
        if (cli_commands[i] == self) continue;
        fputs(separator, to);
        fprintf(to, ".BR lacuna\\-%s (1)", cli_commands[i]->name);
        separator = ",\n";
    }
    fputc('\n', to);
}

static void print_overview(FILE *to)
{
    print_title(to, NULL);
    fputs(".SH NAME\nlacuna \\- prune, store and multiply N:M\\-sparse weights\n", to);
    fputs(
        ".SH SYNOPSIS\n.B lacuna\n.I COMMAND\n[\\fIARGUMENT\\fR...]\n.br\n.B lacuna \\-\\-help\n.br\n.B lacuna \\-\\-version\n",
        to);
    fputs(".SH DESCRIPTION\nPrunes the weights of neural networks to N:M patterns, stores them compressed in plain\n"
          "safetensors files, and multiplies by them.\n.SH COMMANDS\n",
          to);
    for (size_t i = 0; cli_commands[i]; i++) {
        fprintf(to, ".TP\n.BR lacuna\\-%s (1)\n", cli_commands[i]->name);
        print_roff(to, cli_commands[i]->summary);
        fputs(".\n", to);
    }
    print_exit_section(to);
    print_environment(to);
    print_see_also(to, NULL);
}

void cli_describe_manual(FILE *to, const cli_command *command)
{
    if (!command) {
        print_overview(to);
        return;
    }
    print_title(to, command->name);
    fprintf(to, ".SH NAME\nlacuna\\-%s \\- ", command->name);
    print_roff(to, command->summary);
    fprintf(to, "\n.SH SYNOPSIS\n\\fBlacuna %s\\fR", command->name);
    for (const cli_operand *o = command->operands; o->name; o++)
        fprintf(to, o->optional ? " [\\fI%s\\fR%s]" : " \\fI%s\\fR%s", o->name, o->repeated ? "..." : "");
    for (const cli_option *o = command->options; o->name; o++)
        if (o->needed) fprintf(to, " \\fB\\-\\-%s\\fR \\fI%s\\fR", o->name, o->argument);
    fputs(" [\\fIOPTION\\fR...]\n.SH DESCRIPTION\n", to);
    print_roff(to, command->description);
    if (command->operands->name) fputs("\n.SH ARGUMENTS", to);
    for (const cli_operand *o = command->operands; o->name; o++) {
        fprintf(to, "\n.TP\n.I %s\n", o->name);
        print_roff(to, o->help);
    }
    fputs("\n.SH OPTIONS\n", to);
    for (const cli_option *o = command->options; o->name; o++) print_option_entry(to, o);
    print_option_entry(to, &cli_option_help);
    if (command->examples) print_examples(to, command->examples);
    print_exit_section(to);
    print_environment(to);
    print_see_also(to, command);
}
