/* resume.h - how lac_checkpoint_prune goes on where an earlier run was cut off. */
#ifndef LAC_PRUNE_RESUME_H
#define LAC_PRUNE_RESUME_H

#include "io/writer.h"
#include "prune/journal.h"

/* The journal beside `out`, when `mode` wants one. `options` says what the result depends on besides the tensors; it is taken. An
 * earlier run with other options is refused, unless it is to be forgotten. */
lac_status lac_resume_open(const char *out, lac_resume mode, json_t *options, lac_journal **journal);

/* Once everything is declared: begins to write, and refuses an earlier run whose tensors were others. */
lac_status lac_resume_begin(lac_journal *journal, lac_writer *writer);

/* What a tensor is made of: its own bytes, and those of its samples when there are some. */
typedef struct lac_resume_source {
    uint64_t tensor, samples; /* digests; samples 0 without */
} lac_resume_source;

uint64_t lac_resume_digest(const lac_tensor_info *tensor);
/* `tensor` is its digest. */
lac_resume_source lac_resume_look(uint64_t tensor, const lac_tensor_info *samples);

/* Whether the earlier run finished this tensor, from the same source: then its bytes are there, and the report is filled in with what that run
 * told. A source that changed is refused. */
lac_status lac_resume_pass(lac_journal *journal, lac_writer *writer, const lac_resume_source *source, lac_layer_report *report,
                           bool *passed);

/* The order for the columns of the tensor `name`, perm [k], as the earlier run found it from the same source; or that it did not. A source that changed is
 * refused. An order that was searched for is noted, so that what was written in it fits what is written later. */
lac_status lac_resume_pass_order(lac_journal *journal, const lac_writer *writer, const lac_resume_source *source,
                                 const char *name, int64_t k, uint32_t *perm, bool *passed);
lac_status lac_resume_note_order(lac_journal *journal, lac_writer *writer, const lac_resume_source *source, const char *name,
                                 int64_t k, const uint32_t *perm);

/* Before and after a tensor is written. */
lac_status lac_resume_prepare(lac_journal *journal, lac_writer *writer);
lac_status lac_resume_note(lac_journal *journal, const lac_writer *writer, const lac_resume_source *source,
                           const lac_layer_report *report);

#endif
