/* help.c - `lacuna help`: the help of a subcommand, its manual page, completion scripts, and all of these into a folder,
 * which is how the build makes what it installs. */
#include "cli.h"
#include "replace.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

typedef struct help_settings {
    const char *command;
    int manual, shell;
    const char *folder;
} help_settings;

static const char *const shells[] = {NULL, "bash", "zsh", "fish"};
static const cli_choice shell_choices[] = {{"bash", 1}, {"zsh", 2}, {"fish", 3}, {NULL, 0}};

static const cli_operand operands[] = {{.name = "COMMAND",
                                        .offset = offsetof(help_settings, command),
                                        .help = "The subcommand to describe; none: lacuna itself.",
                                        .hint = CLI_HINT_COMMAND,
                                        .optional = 1},
                                       CLI_END};

static const cli_option options[] = {{.name = "man",
                                      .letter = 'm',
                                      .type = CLI_TYPE_FLAG,
                                      .offset = offsetof(help_settings, manual),
                                      .help = "Print the manual page, in roff."},
                                     {.name = "completion",
                                      .letter = 'c',
                                      .argument = "SHELL",
                                      .type = CLI_TYPE_CHOICE,
                                      .offset = offsetof(help_settings, shell),
                                      .choices = shell_choices,
                                      .help = "Print the completion script for bash, zsh or fish."},
                                     {.name = "write",
                                      .letter = 'w',
                                      .argument = "DIR",
                                      .type = CLI_TYPE_TEXT,
                                      .offset = offsetof(help_settings, folder),
                                      .hint = CLI_HINT_FOLDER,
                                      .help = "Write every manual page to DIR/man and every completion script to DIR/bash, "
                                              "DIR/zsh and DIR/fish."},
                                     CLI_END};

static int create_file(cli_replacement *file, const char *folder, const char *part, const char *name)
{
    char path[4096];
    int folder_length = snprintf(path, sizeof path, "%s/%s", folder, part);
    if (folder_length < 0 || (size_t)folder_length + strlen(name) + 2 > sizeof path) {
        cli_error(folder, NULL, "the name of the folder is too long");
        return -1;
    }
    if ((mkdir(folder, 0777) != 0 && errno != EEXIST) || (mkdir(path, 0777) != 0 && errno != EEXIST)) {
        cli_error(path, NULL, "cannot make the folder: %s", strerror(errno));
        return -1;
    }
    path[folder_length] = '/';
    strcpy(path + folder_length + 1, name);
    if (!cli_replace_open(file, path)) return 0;
    cli_error(path, NULL, "cannot write: %s", strerror(errno));
    return -1;
}

static int close_file(cli_replacement *file, const char *folder)
{
    if (!cli_replace_close(file, 1)) return 0;
    cli_error(folder, NULL, "cannot write: %s", strerror(errno));
    return -1;
}

static int write_manual(const char *folder, const cli_command *command)
{
    char name[64];
    snprintf(name, sizeof name, "lacuna%s%s.1", command ? "-" : "", command ? command->name : "");
    cli_replacement file;
    if (create_file(&file, folder, "man", name) != 0) return -1;
    cli_describe_manual(file.to, command);
    return close_file(&file, folder);
}

static int write_all(const char *folder)
{
    static const char *const script_names[] = {NULL, "lacuna", "_lacuna", "lacuna.fish"};
    if (write_manual(folder, NULL) != 0) return CLI_EXIT_FAILURE;
    for (size_t i = 0; cli_commands[i]; i++)
        if (write_manual(folder, cli_commands[i]) != 0) return CLI_EXIT_FAILURE;
    for (int shell = 1; shell <= 3; shell++) {
        cli_replacement file;
        if (create_file(&file, folder, shells[shell], script_names[shell]) != 0) return CLI_EXIT_FAILURE;
        cli_describe_completion(file.to, shells[shell]);
        if (close_file(&file, folder) != 0) return CLI_EXIT_FAILURE;
    }
    return CLI_EXIT_OK;
}

static int run(const void *given)
{
    const help_settings *settings = given;
    const cli_command *command = NULL;
    if (settings->folder) return write_all(settings->folder);
    if (settings->shell) {
        cli_describe_completion(stdout, shells[settings->shell]);
        return CLI_EXIT_OK;
    }
    if (settings->command && !(command = cli_command_find(settings->command))) {
        const char *names[16] = {NULL};
        for (size_t i = 0; cli_commands[i] && i < 15; i++) names[i] = cli_commands[i]->name;
        const char *nearest = cli_nearest_name(settings->command, names);
        cli_error(NULL, NULL, "unknown command '%s'%s%s%s", settings->command, nearest ? "; did you mean '" : "",
                  nearest ? nearest : "", nearest ? "'?" : "");
        return CLI_EXIT_USAGE;
    }
    if (settings->manual)
        cli_describe_manual(stdout, command);
    else
        cli_describe_help(stdout, command);
    return CLI_EXIT_OK;
}

const cli_command cli_command_help = {
    .name = "help",
    .summary = "describe a command, print its manual page or a completion script",
    .description =
        "Prints the help of a command, as 'lacuna COMMAND --help' does, or its manual page, or the script that lets a "
        "shell complete lacuna's commands and options.",
    .examples = "lacuna help prune\nlacuna help --man prune | man -l -\nsource <(lacuna help --completion bash)",
    .operands = operands,
    .options = options,
    .settings_size = sizeof(help_settings),
    .run = run,
};
