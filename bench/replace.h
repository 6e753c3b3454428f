/* replace.h - a file of text that takes the place of an older one whole or not at all: the report, and tables of the command line. */
#ifndef BENCH_REPLACE_H
#define BENCH_REPLACE_H

#include <stdio.h>

typedef struct bench_replacement {
    FILE *to;
    char *path;      /* what it replaces, behind all links; a link that leads nowhere is itself replaced */
    char *temporary; /* beside it; NULL: written as it comes, a pipe or a terminal */
} bench_replacement;

/* 0, or -1 with the reason in errno. Close it however writing went: `keep` puts it in place, unless writing failed. */
int bench_replace_open(bench_replacement *replacement, const char *path);
int bench_replace_close(bench_replacement *replacement, int keep);

#endif
