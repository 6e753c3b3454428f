/* completion.c - completion scripts for bash, zsh and fish, made from the tables. The build installs them. */
#include "cli.h"

#include <string.h>

static const cli_option *option_at(const cli_command *command, size_t index)
{
    size_t count = 0;
    while (command->options[count].name) count++;
    return index < count ? &command->options[index] : index == count ? &cli_option_help : NULL;
}

static void print_commands(FILE *to)
{
    for (size_t i = 0; cli_commands[i]; i++) fprintf(to, "%s%s", i ? " " : "", cli_commands[i]->name);
}

static void print_choices(FILE *to, const cli_choice *choices)
{
    for (const cli_choice *c = choices; c->name; c++) fprintf(to, "%s%s", c == choices ? "" : " ", c->name);
}

/* The words of a help text inside single quotes: without the characters that mean something there or to zsh. */
static void print_quoted(FILE *to, const char *text, const char *unwanted)
{
    size_t length = strlen(text);
    if (length && text[length - 1] == '.') length--;
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '\'')
            fputs("'\\''", to);
        else if (strchr(unwanted, text[i]))
            fprintf(to, "\\%c", text[i]);
        else
            fputc(text[i] == '\n' ? ' ' : text[i], to);
    }
}

/* What bash puts in COMPREPLY for a value: a list of words, folders, or files. */
static void print_bash_value(FILE *to, const cli_choice *choices, cli_hint hint)
{
    if (choices) {
        fputs("COMPREPLY=($(compgen -W '", to);
        print_choices(to, choices);
        fputs("' -- \"$current\"))", to);
    } else if (hint == CLI_HINT_COMMAND) {
        fputs("COMPREPLY=($(compgen -W '", to);
        print_commands(to);
        fputs("' -- \"$current\"))", to);
    } else if (hint == CLI_HINT_NONE) {
        fputs("COMPREPLY=()", to);
    } else {
        fputs("compopt -o filenames; ", to);
        fprintf(to, "mapfile -t COMPREPLY < <(compgen -%c -- \"$current\")", hint == CLI_HINT_FOLDER ? 'd' : 'f');
    }
}

static void print_bash_command(FILE *to, const cli_command *command)
{
    fprintf(to, "    %s)\n", command->name);
    fputs("        case $previous in\n", to);
    const cli_option *o;
    for (size_t i = 0; (o = option_at(command, i)); i++) {
        if (!o->argument) continue;
        fputs("        ", to);
        if (o->letter) fprintf(to, "-%c | ", o->letter);
        fprintf(to, "--%s)\n            ", o->name);
        print_bash_value(to, o->choices, o->hint);
        fputs("\n            return\n            ;;\n", to);
    }
    fputs("        esac\n        if [[ $current == -* ]]; then\n            COMPREPLY=($(compgen -W '", to);
    for (size_t i = 0; (o = option_at(command, i)); i++) fprintf(to, "%s--%s", i ? " " : "", o->name);
    fputs("' -- \"$current\"))\n        else\n            ", to);
    print_bash_value(to, NULL, command->operands->name ? command->operands->hint : CLI_HINT_NONE);
    fputs("\n        fi\n        ;;\n", to);
}

static void print_bash(FILE *to)
{
    fputs("# bash completion of lacuna, made by `lacuna help --completion bash`.\n_lacuna() {\n", to);
    fputs("    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}\n    COMPREPLY=()\n", to);
    fputs("    if ((COMP_CWORD == 1)); then\n        COMPREPLY=($(compgen -W '", to);
    print_commands(to);
    fputs(" --help --version' -- \"$current\"))\n        return\n    fi\n    case ${COMP_WORDS[1]} in\n", to);
    for (size_t i = 0; cli_commands[i]; i++) print_bash_command(to, cli_commands[i]);
    fputs("    esac\n}\ncomplete -F _lacuna lacuna\n", to);
}

static void print_zsh_value(FILE *to, const char *name, const cli_choice *choices, cli_hint hint)
{
    fputc(':', to);
    print_quoted(to, name, ":[]\\");
    fputc(':', to);
    if (choices) {
        fputc('(', to);
        print_choices(to, choices);
        fputc(')', to);
    } else if (hint == CLI_HINT_COMMAND) {
        fputc('(', to);
        print_commands(to);
        fputc(')', to);
    } else if (hint == CLI_HINT_FOLDER) {
        fputs("_files -/", to);
    } else if (hint == CLI_HINT_FILE) {
        fputs("_files", to);
    }
}

static void print_zsh_option(FILE *to, const cli_option *o)
{
    const char *repeat = o->type == CLI_TYPE_LIST || o->several ? "*" : "";
    for (int form = o->letter ? 0 : 1; form < 2; form++) {
        fprintf(to, " \\\n            '%s", repeat);
        if (form == 0)
            fprintf(to, "-%c[", o->letter);
        else
            fprintf(to, "--%s%s[", o->name, o->argument ? "=" : "");
        print_quoted(to, o->help, ":[]\\");
        fputc(']', to);
        if (o->argument) print_zsh_value(to, o->argument, o->choices, o->hint);
        fputc('\'', to);
    }
}

static void print_zsh(FILE *to)
{
    fputs("#compdef lacuna\n# zsh completion of lacuna, made by `lacuna help --completion zsh`.\n_lacuna() {\n", to);
    fputs("    local -a commands\n    commands=(\n", to);
    for (size_t i = 0; cli_commands[i]; i++) {
        fprintf(to, "        '%s:", cli_commands[i]->name);
        print_quoted(to, cli_commands[i]->summary, "");
        fputs("'\n", to);
    }
    fputs("    )\n    if ((CURRENT == 2)); then\n        _describe command commands\n        return\n    fi\n", to);
    fputs("    local command=$words[2]\n    shift words\n    ((CURRENT--))\n    case $command in\n", to);
    for (size_t i = 0; cli_commands[i]; i++) {
        const cli_command *command = cli_commands[i];
        fprintf(to, "    %s)\n        _arguments", command->name);
        const cli_option *o;
        for (size_t j = 0; (o = option_at(command, j)); j++) print_zsh_option(to, o);
        for (const cli_operand *operand = command->operands; operand->name; operand++) {
            fprintf(to, " \\\n            '%s", operand->repeated ? "*" : operand->optional ? ":" : "");
            print_zsh_value(to, operand->name, NULL, operand->hint);
            fputc('\'', to);
        }
        fputs("\n        ;;\n", to);
    }
    fputs("    esac\n}\n_lacuna \"$@\"\n", to);
}

static void print_fish_option(FILE *to, const cli_command *command, const cli_option *o)
{
    fprintf(to, "complete -c lacuna -n '__fish_seen_subcommand_from %s' -l %s", command->name, o->name);
    if (o->letter) fprintf(to, " -s %c", o->letter);
    if (o->argument) {
        fputs(o->hint == CLI_HINT_FILE ? " -r -F" : " -x", to);
        if (o->choices || o->hint == CLI_HINT_COMMAND) {
            fputs(" -a '", to);
            if (o->choices)
                print_choices(to, o->choices);
            else
                print_commands(to);
            fputc('\'', to);
        } else if (o->hint == CLI_HINT_FOLDER) {
            fputs(" -a '(__fish_complete_directories)'", to);
        }
    }
    fputs(" -d '", to);
    /* In fish a quote inside quotes is \', not the '\'' of the other shells. */
    for (const char *c = o->help; *c; c++) {
        if (*c == '\'' || *c == '\\') fputc('\\', to);
        fputc(*c, to);
    }
    fputs("'\n", to);
}

static void print_fish(FILE *to)
{
    fputs("# fish completion of lacuna, made by `lacuna help --completion fish`.\ncomplete -c lacuna -f\n", to);
    fputs("complete -c lacuna -n __fish_use_subcommand -l help -s h -d 'Print the help'\n", to);
    fputs("complete -c lacuna -n __fish_use_subcommand -l version -s V -d 'Print the version'\n", to);
    for (size_t i = 0; cli_commands[i]; i++) {
        const cli_command *command = cli_commands[i];
        fprintf(to, "complete -c lacuna -n __fish_use_subcommand -a %s -d '", command->name);
        print_quoted(to, command->summary, "'");
        fputs("'\n", to);
        if (command->operands->name && command->operands->hint == CLI_HINT_FILE)
            fprintf(to, "complete -c lacuna -n '__fish_seen_subcommand_from %s' -F\n", command->name);
        if (command->operands->name && command->operands->hint == CLI_HINT_COMMAND) {
            fprintf(to, "complete -c lacuna -n '__fish_seen_subcommand_from %s' -a '", command->name);
            print_commands(to);
            fputs("'\n", to);
        }
        const cli_option *o;
        for (size_t j = 0; (o = option_at(command, j)); j++) print_fish_option(to, command, o);
    }
}

void cli_describe_completion(FILE *to, const char *shell)
{
    if (!strcmp(shell, "bash"))
        print_bash(to);
    else if (!strcmp(shell, "zsh"))
        print_zsh(to);
    else
        print_fish(to);
}
