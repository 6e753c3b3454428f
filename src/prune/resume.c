/* resume.c - going on where a run over a checkpoint was cut off. The run writes "<out>.partial" and, after each tensor, a record of it in "<out>.journal": checksums of
 * the tensor as it was, of its samples and of what was written. A later run with the same options takes over every tensor whose three checksums are
 * still right, from the first on; at the first whose written bytes are not, it works again. Nothing is believed for its date or its name. Called by checkpoint.c. */
#include "prune/resume.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/digest.h"
#include "core/memory.h"
#include "core/number.h"
#include "core/status.h"

enum { VERSION = 1 };

static json_t *pack_digest(uint64_t digest)
{
    char text[17];
    snprintf(text, sizeof text, "%016" PRIx64, digest);
    return json_string(text);
}

/* As text: JSON has no NaN, which weights may well hold. */
static json_t *pack_number(double value)
{
    char text[32];
    lac_number_write(value, text, sizeof text);
    return json_string(text);
}

static bool is_digest(const json_t *record, const char *key, uint64_t digest)
{
    char text[17];
    const char *found = json_string_value(json_object_get(record, key));
    snprintf(text, sizeof text, "%016" PRIx64, digest);
    return found && strcmp(found, text) == 0;
}

/* Names the first option that differs. */
static lac_status refuse_options(const char *out, const json_t *then, const json_t *now)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)now, key, value)
    {
        const json_t *other = json_object_get(then, key);
        char before[128] = "", after[128] = "";
        if (other && json_equal(other, value)) continue;
        size_t length[2] = {other ? json_dumpb(other, before, sizeof before - 1, JSON_ENCODE_ANY | JSON_COMPACT) : 0,
                            json_dumpb(value, after, sizeof after - 1, JSON_ENCODE_ANY | JSON_COMPACT)};
        if (length[0] == 0 || length[0] >= sizeof before) snprintf(before, sizeof before, "another");
        if (length[1] == 0 || length[1] >= sizeof after) snprintf(after, sizeof after, "not the same");
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                        "%s.journal is of a run with %s %s, now it is %s; go on as it began, or start anew "
                        "(LAC_RESUME_RESTART, --restart)",
                        out, key, before, after);
    }
    return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                    "%s.journal is of a run with other options; start anew (LAC_RESUME_RESTART, --restart)", out);
}

/* A run that was killed between its last two steps leaves the whole output and a journal that speaks of nothing any more. */
static lac_status find_partial(const char *out, bool *found)
{
    uint64_t room = strlen(out) + sizeof ".partial";
    char *path = lac_allocate(room);
    if (!path) return lac_fail_memory("a path", room);
    snprintf(path, room, "%s.partial", out);
    *found = access(path, F_OK) == 0;
    lac_release(path);
    return LAC_STATUS_OK;
}

lac_status lac_resume_open(const char *out, lac_resume mode, json_t *options, lac_journal **journal)
{
    json_t *first = json_pack("{s:i,s:s,s:o}", "journal", (int)VERSION, "lacuna", lac_version(), "options", options);
    if (!first) return lac_fail_memory("the options of a run", 0);
    lac_journal *made = NULL;
    bool partial = false;
    lac_status status = find_partial(out, &partial);
    if (status == LAC_STATUS_OK) status = lac_journal_open(out, mode == LAC_RESUME_RESTART || !partial, &made);
    if (status != LAC_STATUS_OK) {
        json_decref(first);
        return status;
    }
    const json_t *earlier = lac_journal_next(made);
    if (!earlier) { /* a new run */
        status = lac_journal_append(made, first);
    } else {
        const char *version = json_string_value(json_object_get(earlier, "lacuna"));
        const json_t *then = json_object_get(earlier, "options");
        if (json_integer_value(json_object_get(earlier, "journal")) != VERSION || !version ||
            strcmp(version, lac_version()) != 0)
            status = lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                              "%s.journal was written by another version of Lacuna; start anew (LAC_RESUME_RESTART, --restart)",
                              out);
        else if (!json_equal(then, options))
            status = refuse_options(out, then, options);
        else
            lac_journal_accept(made);
        json_decref(first);
    }
    if (status != LAC_STATUS_OK) {
        lac_journal_close(made, false);
        return status;
    }
    *journal = made;
    return LAC_STATUS_OK;
}

lac_status lac_resume_begin(lac_journal *journal, lac_writer *writer)
{
    writer->output.digest = lac_digest_begin();
    lac_status status = lac_writer_begin(writer);
    if (status != LAC_STATUS_OK) return status;
    uint64_t digest = lac_digest_value(&writer->output.digest);
    const json_t *earlier = lac_journal_next(journal);
    if (!earlier) {
        status = lac_output_cut(&writer->output);
        if (status != LAC_STATUS_OK) return status;
        return lac_journal_append(journal, json_pack("{s:o}", "header", pack_digest(digest)));
    }
    if (!is_digest(earlier, "header", digest))
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                        "%s.journal is of a run over other tensors: names, shapes, types or metadata of the input changed "
                        "since; start anew (LAC_RESUME_RESTART, --restart)",
                        writer->output.path);
    lac_journal_accept(journal);
    return LAC_STATUS_OK;
}

uint64_t lac_resume_digest(const lac_tensor_info *tensor)
{
    lac_digest digest = lac_digest_begin();
    lac_digest_add(&digest, tensor->data, tensor->bytes);
    return lac_digest_value(&digest);
}

lac_resume_source lac_resume_look(uint64_t tensor, const lac_tensor_info *samples)
{
    return (lac_resume_source){.tensor = tensor, .samples = samples ? lac_resume_digest(samples) : 0};
}

static lac_status check_source(const json_t *record, const lac_writer *writer, const lac_resume_source *source)
{
    bool same = is_digest(record, "source", source->tensor);
    if (same && is_digest(record, "samples", source->samples)) return LAC_STATUS_OK;
    return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                    "%s of it changed since the run that left %s.journal; start anew (LAC_RESUME_RESTART, --restart)",
                    same ? "the samples" : "the weights", writer->output.path);
}

/* As hexadecimal digits, eight a number. */
static bool read_order(const char *text, int64_t k, uint32_t *perm, uint8_t *seen)
{
    if (!text || strlen(text) != (size_t)k * 8) return false;
    for (int64_t i = 0; i < k; i++) {
        char digits[9] = {0}, *end;
        memcpy(digits, text + 8 * i, 8);
        perm[i] = (uint32_t)strtoul(digits, &end, 16);
        if (end != digits + 8 || perm[i] >= k || seen[perm[i]]) return false;
        seen[perm[i]] = 1;
    }
    return true;
}

lac_status lac_resume_pass_order(lac_journal *journal, const lac_writer *writer, const lac_resume_source *source,
                                 const char *name, int64_t k, uint32_t *perm, bool *passed)
{
    const json_t *record = lac_journal_next(journal);
    const char *found = json_string_value(json_object_get(record, "order"));
    *passed = false;
    if (!found || strcmp(found, name) != 0) return LAC_STATUS_OK;
    lac_status status = check_source(record, writer, source);
    if (status != LAC_STATUS_OK) return status;
    uint8_t *seen = lac_allocate_zeroed((uint64_t)k);
    if (!seen) return lac_fail_memory("the check of an order", (uint64_t)k);
    *passed = read_order(json_string_value(json_object_get(record, "columns")), k, perm, seen);
    lac_release(seen);
    if (*passed) lac_journal_accept(journal);
    return LAC_STATUS_OK;
}

lac_status lac_resume_note_order(lac_journal *journal, lac_writer *writer, const lac_resume_source *source, const char *name,
                                 int64_t k, const uint32_t *perm)
{
    uint64_t bytes = (uint64_t)k * 8 + 1;
    char *text = lac_allocate(bytes);
    if (!text) return lac_fail_memory("an order in the journal", bytes);
    text[0] = '\0';
    for (int64_t i = 0; i < k; i++) snprintf(text + 8 * i, 9, "%08" PRIx32, perm[i]);
    json_t *record = json_pack("{s:s,s:o,s:o,s:s}", "order", name, "source", pack_digest(source->tensor), "samples",
                               pack_digest(source->samples), "columns", text);
    lac_release(text);
    lac_status status = lac_journal_next(journal) ? lac_output_cut(&writer->output) : LAC_STATUS_OK;
    if (status == LAC_STATUS_OK) return lac_journal_append(journal, record);
    json_decref(record);
    return status;
}

lac_status lac_resume_pass(lac_journal *journal, lac_writer *writer, const lac_resume_source *source, lac_layer_report *report,
                           bool *passed)
{
    const json_t *record = lac_journal_next(journal);
    const char *name = json_string_value(json_object_get(record, "tensor"));
    json_int_t bytes = 0;
    const char *data = NULL, *energy = NULL, *error = NULL, *rise = NULL, *seconds = NULL;
    *passed = false;
    if (!name || strcmp(name, report->name) != 0) return LAC_STATUS_OK;
    lac_status same = check_source(record, writer, source);
    if (same != LAC_STATUS_OK) return same;
    if (json_unpack((json_t *)(uintptr_t)record, "{s:s,s:I,s:s,s:s,s:s,s:s}", "data", &data, "stored_bytes", &bytes,
                    "energy_kept", &energy, "output_error", &error, "loss_rise", &rise, "seconds", &seconds) != 0)
        return LAC_STATUS_OK;
    lac_status status = lac_writer_pass(writer, report->name, strtoull(data, NULL, 16), passed);
    if (status != LAC_STATUS_OK) return status;
    if (!*passed) {
        lac_log(LAC_LOG_LEVEL_WARNING, "%s.partial: what it holds of %s is damaged; the run goes on from there",
                writer->output.path, report->name);
        return LAC_STATUS_OK;
    }
    lac_journal_accept(journal);
    report->resumed = 1;
    report->stored_bytes = (uint64_t)bytes;
    report->energy_kept = lac_number_read(energy, NULL), report->output_error = lac_number_read(error, NULL);
    report->loss_rise = lac_number_read(rise, NULL);
    report->seconds = lac_number_read(seconds, NULL);
    return LAC_STATUS_OK;
}

lac_status lac_resume_prepare(lac_journal *journal, lac_writer *writer)
{
    lac_status status = lac_journal_next(journal) ? lac_output_cut(&writer->output) : LAC_STATUS_OK;
    writer->output.digest = lac_digest_begin();
    return status;
}

lac_status lac_resume_note(lac_journal *journal, const lac_writer *writer, const lac_resume_source *source,
                           const lac_layer_report *report)
{
    json_t *record =
        json_pack("{s:s,s:o,s:o,s:o,s:I,s:o,s:o,s:o,s:o}", "tensor", report->name, "source", pack_digest(source->tensor),
                  "samples", pack_digest(source->samples), "data", pack_digest(lac_digest_value(&writer->output.digest)),
                  "stored_bytes", (json_int_t)report->stored_bytes, "energy_kept", pack_number(report->energy_kept),
                  "output_error", pack_number(report->output_error), "loss_rise", pack_number(report->loss_rise), "seconds",
                  pack_number(report->seconds));
    return lac_journal_append(journal, record);
}
