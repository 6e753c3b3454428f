/* replace.h - a file of text that takes the place of an older one whole or not at all: the report of `bench`, the table of `prune`,
 * pages of `help`.
 *
 * The library's own files are written by its src/io/output.c, which nobody sees from here: it knows tensors and journals, and refuses
 * what is no regular file. Text also goes into pipes and terminals. */
#ifndef LACUNA_CLI_REPLACE_H
#define LACUNA_CLI_REPLACE_H

#include <stdio.h>

typedef struct cli_replacement {
    FILE *to;        /* memory, written out in the end: a stream that fails midway forgets why */
    char *path;      /* what it replaces, behind all links; a link that leads nowhere is itself replaced */
    char *temporary; /* beside it; NULL: a pipe or a terminal, which nothing replaces */
    int descriptor;
    char *text;
    size_t bytes;
} cli_replacement;

/* 0, or -1 with the reason in errno. Close it however writing went: `keep` puts it in place, unless writing failed. It stays where it
 * is in between: `to` writes into it. */
int cli_replace_open(cli_replacement *replacement, const char *path);
int cli_replace_close(cli_replacement *replacement, int keep);

#endif
