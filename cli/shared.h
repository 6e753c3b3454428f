/* shared.h - the options that several subcommands have, each written once: its name, its letter, how it is read, what a shell offers.
 *
 * A table of options takes them as CLI_OPTION_LAYOUT(settings, .help = "..."); the settings have a field of the option's
 * name. What is the subcommand's own follows as further members. */
#ifndef LACUNA_CLI_SHARED_H
#define LACUNA_CLI_SHARED_H

#include "cli.h"

#include <stddef.h>

extern const cli_choice cli_progress_choices[], cli_encoding_choices[], cli_weight_dtype_choices[], cli_any_dtype_choices[],
    cli_layout_choices[], cli_precision_choices[], cli_activation_choices[];

/* ---- what is multiplied, and how */

#define CLI_OPTION_PATTERN(settings, ...)                                                                                      \
    {                                                                                                                          \
        .name = "pattern", .letter = 'p', .type = CLI_TYPE_PATTERN, .offset = offsetof(settings, pattern), __VA_ARGS__         \
    }
#define CLI_OPTION_DTYPE(settings, ...)                                                                                        \
    {                                                                                                                          \
        .name = "dtype", .letter = 'd', .argument = "DTYPE", .type = CLI_TYPE_DTYPE, .offset = offsetof(settings, dtype),      \
        __VA_ARGS__                                                                                                            \
    }
#define CLI_OPTION_PRECISION(settings, ...)                                                                                    \
    {                                                                                                                          \
        .name = "precision", .argument = "HOW", .type = CLI_TYPE_CHOICE, .offset = offsetof(settings, precision),              \
        .choices = cli_precision_choices, __VA_ARGS__                                                                          \
    }
#define CLI_OPTION_LAYOUT(settings, ...)                                                                                       \
    {                                                                                                                          \
        .name = "layout", .letter = 'l', .argument = "LAYOUT", .type = CLI_TYPE_CHOICE, .offset = offsetof(settings, layout),  \
        .choices = cli_layout_choices, __VA_ARGS__                                                                             \
    }
#define CLI_OPTION_DEVICE(settings, ...)                                                                                       \
    {                                                                                                                          \
        .name = "device", .letter = 'D', .argument = "DEVICE", .type = CLI_TYPE_TEXT, .offset = offsetof(settings, device),    \
        __VA_ARGS__                                                                                                            \
    }
#define CLI_OPTION_KERNEL(settings, ...)                                                                                       \
    {                                                                                                                          \
        .name = "kernel", .letter = 'k', .argument = "KERNEL", .offset = offsetof(settings, kernel), __VA_ARGS__               \
    }

#define CLI_HELP_LAYOUT    "token: X[m,k] and Y[m,n]; feature: X[k,m] and Y[n,m]. token unless said."
#define CLI_HELP_PRECISION "How f32 is multiplied: default (the device's), strict, fast or tf32"

/* ---- which tensors, and how they are stored */

#define CLI_OPTION_INCLUDE(settings, ...)                                                                                      \
    {                                                                                                                          \
        .name = "include", .letter = 'i', .argument = "GLOB", .type = CLI_TYPE_LIST, .offset = offsetof(settings, include),    \
        __VA_ARGS__                                                                                                            \
    }
#define CLI_OPTION_EXCLUDE(settings, ...)                                                                                      \
    {                                                                                                                          \
        .name = "exclude", .letter = 'x', .argument = "GLOB", .type = CLI_TYPE_LIST, .offset = offsetof(settings, exclude),    \
        __VA_ARGS__                                                                                                            \
    }
#define CLI_OPTION_AGAINST(settings, ...)                                                                                      \
    {                                                                                                                          \
        .name = "against", .letter = 'a', .argument = "DENSE", .type = CLI_TYPE_TEXT, .offset = offsetof(settings, against),   \
        .hint = CLI_HINT_FILE, __VA_ARGS__                                                                                     \
    }
#define CLI_OPTION_ENCODING(settings, ...)                                                                                     \
    {                                                                                                                          \
        .name = "encoding", .letter = 'e', .argument = "ENCODING", .type = CLI_TYPE_CHOICE,                                    \
        .offset = offsetof(settings, encoding), .choices = cli_encoding_choices, __VA_ARGS__                                   \
    }
#define CLI_OPTION_SATURATE(settings)                                                                                          \
    {                                                                                                                          \
        .name = "saturate", .type = CLI_TYPE_FLAG, .offset = offsetof(settings, saturate),                                     \
        .help = "Store values too large for the dtype as its largest one instead of failing."                                  \
    }

/* ---- how the subcommand itself runs and answers */

#define CLI_OPTION_THREADS(settings)                                                                                           \
    {                                                                                                                          \
        .name = "threads", .letter = 't', .argument = "COUNT", .type = CLI_TYPE_INTEGER,                                       \
        .offset = offsetof(settings, threads), .maximum = 4096, .help = "Use so many threads; 0 is every core."                \
    }
#define CLI_OPTION_PROGRESS(settings)                                                                                          \
    {                                                                                                                          \
        .name = "progress", .argument = "WHEN", .type = CLI_TYPE_CHOICE, .offset = offsetof(settings, progress),               \
        .choices = cli_progress_choices,                                                                                       \
        .help = "Draw a progress bar on standard error: auto (on a terminal, when it takes over two seconds), always, never."  \
    }
#define CLI_OPTION_FORCE(settings)                                                                                             \
    {                                                                                                                          \
        .name = "force", .letter = 'f', .type = CLI_TYPE_FLAG, .offset = offsetof(settings, force),                            \
        .help = "Replace OUT when it exists."                                                                                  \
    }
#define CLI_OPTION_JSON(settings)                                                                                              \
    {                                                                                                                          \
        .name = "json", .letter = 'j', .type = CLI_TYPE_FLAG, .offset = offsetof(settings, json),                              \
        .help = "Print one JSON document instead of tables."                                                                   \
    }

#endif
