/* journal.h - what a run over a checkpoint has finished, in "<out>.journal": a line for each record, JSON behind its checksum. A line that a
 * power cut tore off does not count, nor does anything after it. Used by resume.c. */
#ifndef LAC_PRUNE_JOURNAL_H
#define LAC_PRUNE_JOURNAL_H

#include <jansson.h>
#include <stdbool.h>

#include "lacuna.h"

typedef struct lac_journal lac_journal;

/* Opens or makes the journal beside `out` and locks it: IO while another run has it. With `restart` what it holds is forgotten. */
lac_status lac_journal_open(const char *out, bool restart, lac_journal **journal);
/* The next record of an earlier run, which stays the journal's; NULL when there is none. */
const json_t *lac_journal_next(const lac_journal *journal);
/* The next record holds: the one after it is next. */
void lac_journal_accept(lac_journal *journal);
/* Forgets the records that were not accepted, and adds one at the end; takes `record`, NULL included: then memory was short. */
lac_status lac_journal_append(lac_journal *journal, json_t *record);
/* Closes it, and removes it when it is `done` with. NULL is fine. */
void lac_journal_close(lac_journal *journal, bool done);

#endif
