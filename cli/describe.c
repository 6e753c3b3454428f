/* describe.c - the usage line and the page of --help, made from a subcommand's table. */
#include "cli.h"

#include <string.h>

enum { PAGE_WIDTH = 96, HELP_COLUMN = 28 };

void cli_describe_usage(FILE *to, const cli_command *command)
{
    if (!command) {
        fputs("usage: lacuna COMMAND [ARGUMENT...]\n", to);
        return;
    }
    fprintf(to, "usage: lacuna %s", command->name);
    for (const cli_operand *o = command->operands; o->name; o++)
        fprintf(to, o->optional ? " [%s%s]" : " %s%s", o->name, o->repeated ? "..." : "");
    for (const cli_option *o = command->options; o->name; o++)
        if (o->needed) fprintf(to, " --%s %s", o->name, o->argument);
    fputs(" [OPTION...]\n", to);
}

/* Prints the paragraphs of `text` between the columns `indent` and PAGE_WIDTH; the cursor stands at `column`. */
static void print_wrapped(FILE *to, const char *text, int column, int indent)
{
    while (*text) {
        size_t length = strcspn(text, " \n");
        if (column > indent && column + 1 + (int)length > PAGE_WIDTH) {
            fputc('\n', to);
            column = 0;
        }
        if (column < indent) {
            fprintf(to, "%*s", indent - column, "");
            column = indent;
        } else if (column > indent) {
            fputc(' ', to);
            column++;
        }
        fwrite(text, 1, length, to);
        column += (int)length;
        text += length;
        if (text[0] == '\n' && text[1] == '\n') {
            fputs("\n\n", to);
            column = 0;
        }
        text += strspn(text, " \n");
    }
    fputc('\n', to);
}

static void print_option(FILE *to, const cli_option *option)
{
    int column = option->letter ? fprintf(to, "  -%c, ", option->letter) : fprintf(to, "      ");
    column += fprintf(to, "--%s", option->name);
    if (option->argument) column += fprintf(to, " %s", option->argument);
    if (column + 2 > HELP_COLUMN) {
        fputc('\n', to);
        column = 0;
    }
    fprintf(to, "%*s", HELP_COLUMN - column, "");
    print_wrapped(to, option->help, HELP_COLUMN, HELP_COLUMN);
}

static void print_exit_statuses(FILE *to)
{
    fputs("\nExit status:\n", to);
    for (int status = CLI_EXIT_OK; status <= CLI_EXIT_FAILURE; status++)
        fprintf(to, "  %d  %s\n", status, cli_exit_meaning(status));
}

static void print_overview(FILE *to)
{
    cli_describe_usage(to, NULL);
    fputs("\nPrunes the weights of neural networks to N:M patterns, stores them compressed, and multiplies by them.\n\n"
          "Commands:\n",
          to);
    for (size_t i = 0; cli_commands[i]; i++) fprintf(to, "  %-10s %s\n", cli_commands[i]->name, cli_commands[i]->summary);
    fputs("\nOptions:\n  -h, --help     Print this help and exit.\n  -V, --version  Print the version and exit.\n", to);
    print_exit_statuses(to);
    fputs("\n'lacuna COMMAND --help' tells more; 'man lacuna-COMMAND' tells the same.\n", to);
}

void cli_describe_help(FILE *to, const cli_command *command)
{
    if (!command) {
        print_overview(to);
        return;
    }
    cli_describe_usage(to, command);
    fputc('\n', to);
    print_wrapped(to, command->description, 0, 0);
    if (command->operands->name) fputs("\nArguments:\n", to);
    for (const cli_operand *o = command->operands; o->name; o++) {
        int column = fprintf(to, "  %s", o->name);
        fprintf(to, "%*s", HELP_COLUMN - column, "");
        print_wrapped(to, o->help, HELP_COLUMN, HELP_COLUMN);
    }
    fputs("\nOptions:\n", to);
    for (const cli_option *o = command->options; o->name; o++) print_option(to, o);
    print_option(to, &cli_option_help);
    if (command->examples) {
        fputs("\nExamples:\n", to);
        for (const char *line = command->examples; *line;) {
            size_t length = strcspn(line, "\n");
            fprintf(to, "  %.*s\n", (int)length, line);
            line += length + (line[length] == '\n');
        }
    }
    print_exit_statuses(to);
}
