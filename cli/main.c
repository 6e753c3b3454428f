/* main.c - the entry of `lacuna`: finds the subcommand, reads its options by its table, runs it.
 *
 * The list of subcommands stands here and nowhere else. */
#include "cli.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

const cli_command *const cli_commands[] = {
    &cli_command_devices, &cli_command_info,     &cli_command_prune, &cli_command_verify,
    &cli_command_convert, &cli_command_multiply, &cli_command_bench, &cli_command_explain,
    &cli_command_compile, &cli_command_demo,     &cli_command_help,  NULL,
};

/* Whoever starts us with a closed stream would have the next file that is opened stand in its place, and messages in it. What
 * takes the place of standard output cannot be written to either, so that an answer that nobody gets is still a failure. */
static void occupy_streams(void)
{
    for (int stream = 0; stream < 3; stream++)
        if (fcntl(stream, F_GETFD) < 0 && open("/dev/null", stream == 1 ? O_RDONLY : O_RDWR) < 0) return;
}

/* What was printed may still sit in a buffer; a full disk must not pass for success. */
static int finish_output(int status)
{
    const char *trouble = cli_output_trouble();
    if (!trouble) return status;
    cli_error(NULL, NULL, "standard output: %s", trouble);
    return CLI_EXIT_FAILURE;
}

static int unknown_command(const char *name)
{
    const char *names[sizeof cli_commands / sizeof *cli_commands] = {NULL};
    for (size_t i = 0; cli_commands[i]; i++) names[i] = cli_commands[i]->name;
    const char *nearest = cli_nearest_name(name, names);
    if (nearest)
        cli_error(NULL, NULL, "unknown command '%s'; did you mean '%s'?", name, nearest);
    else
        cli_error(NULL, NULL, "unknown command '%s'; 'lacuna help' lists them", name);
    return CLI_EXIT_USAGE;
}

static int run_command(const cli_command *command, int count, char **arguments)
{
    cli_set_command_name(command->name);
    void *settings = cli_allocate(command->settings_size);
    if (command->defaults)
        memcpy(settings, command->defaults, command->settings_size);
    else
        memset(settings, 0, command->settings_size);
    int status = CLI_EXIT_USAGE;
    int parsed = cli_options_parse(command, count, arguments, settings);
    if (parsed == 1) {
        cli_describe_help(stdout, command);
        status = CLI_EXIT_OK;
    } else if (parsed == 0) {
        status = command->run(settings);
    }
    cli_settings_free(command, settings);
    status = finish_output(status);
    cli_interrupt_raise(); /* what was in hand may have been all that there was: whoever sent the signal wants to see it heeded */
    return status;
}

int main(int count, char **arguments)
{
    occupy_streams();
    if (count < 2) {
        cli_describe_help(stderr, NULL);
        return CLI_EXIT_USAGE;
    }
    const char *first = arguments[1];
    if (!strcmp(first, "--help") || !strcmp(first, "-h")) {
        cli_describe_help(stdout, NULL);
        return finish_output(CLI_EXIT_OK);
    }
    if (!strcmp(first, "--version") || !strcmp(first, "-V")) {
        printf("lacuna %s\n", lac_version());
        return finish_output(CLI_EXIT_OK);
    }
    const cli_command *command = cli_command_find(first);
    if (!command) return unknown_command(first);
    return run_command(command, count - 2, arguments + 2);
}
