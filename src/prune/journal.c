/* journal.c - the journal of a run over a checkpoint: read, cut, append. Records go out by one write each, after the bytes that they speak of; nothing is
 * flushed, because resume.c believes a record only when those bytes have its checksum. Called by resume.c. */
#include "prune/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/digest.h"
#include "core/memory.h"
#include "core/status.h"
#include "io/text.h"

/* A journal larger than this is none of ours. */
static const int64_t JOURNAL_MOST = INT64_C(1) << 30;
/* "<16 digits of the checksum> " */
enum { PREFIX = 17, ATTEMPTS = 16 };

struct lac_journal {
    int folder, descriptor;
    char *path;         /* for messages                  */
    const char *name;   /* its last component            */
    json_t *records;    /* of the earlier run            */
    int64_t *ends;      /* [records] where each ends     */
    size_t accepted;    /* records that hold             */
    int64_t size, kept; /* bytes of the file, and of them those that hold */
};

static lac_status fail_errno(const lac_journal *j, const char *what)
{
    lac_error_text reason;
    int number = errno;
    return lac_fail(LAC_STATUS_IO, "%s: %s: %s", j->path, what, lac_error_describe(number, &reason));
}

static uint64_t digest_of(const void *data, size_t bytes)
{
    lac_digest digest = lac_digest_begin();
    lac_digest_add(&digest, data, bytes);
    return lac_digest_value(&digest);
}

/* The file may vanish between our opening and locking it, when the run that had it ends well. */
static lac_status open_locked(lac_journal *j)
{
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        struct stat found;
        j->descriptor = openat(j->folder, j->name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (j->descriptor < 0) return fail_errno(j, "cannot open");
        if (flock(j->descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
            return lac_fail(LAC_STATUS_IO, "%s: another run is writing there", j->path);
        if (fstat(j->descriptor, &found) != 0) return fail_errno(j, "cannot look at");
        if (!S_ISREG(found.st_mode)) return lac_fail(LAC_STATUS_IO, "%s: is not a regular file", j->path);
        j->size = found.st_size;
        if (found.st_nlink > 0) return LAC_STATUS_OK;
        close(j->descriptor);
        j->descriptor = -1;
    }
    return lac_fail(LAC_STATUS_IO, "%s: another run is writing there", j->path);
}

static lac_status read_all(const lac_journal *j, char *text)
{
    for (int64_t done = 0; done < j->size;) {
        ssize_t got = pread(j->descriptor, text + done, (size_t)(j->size - done), (off_t)done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fail_errno(j, "cannot read");
        if (got == 0) return lac_fail(LAC_STATUS_IO, "%s: became shorter while it was read", j->path);
        done += got;
    }
    return LAC_STATUS_OK;
}

/* A line's record, or NULL when it is not whole. */
static json_t *parse_line(const char *line, size_t length)
{
    char *end = NULL, digits[PREFIX] = "";
    if (length < PREFIX || line[PREFIX - 1] != ' ') return NULL;
    memcpy(digits, line, PREFIX - 1);
    uint64_t digest = strtoull(digits, &end, 16);
    if (*end || digest != digest_of(line + PREFIX, length - PREFIX)) return NULL;
    return json_loadb(line + PREFIX, length - PREFIX, JSON_REJECT_DUPLICATES, NULL);
}

static lac_status read_records(lac_journal *j)
{
    uint64_t bytes = (uint64_t)j->size + 1;
    char *text = lac_allocate(bytes);
    if (!text) return lac_fail_memory("a journal", bytes);
    lac_status status = read_all(j, text);
    size_t lines = 0;
    for (int64_t i = 0; status == LAC_STATUS_OK && i < j->size; i++) lines += text[i] == '\n';
    j->ends = lac_allocate((lines + 1) * sizeof *j->ends);
    if (!j->ends && status == LAC_STATUS_OK) status = lac_fail_memory("a journal", lines * sizeof *j->ends);
    for (int64_t at = 0; status == LAC_STATUS_OK && at < j->size;) {
        const char *newline = memchr(text + at, '\n', (size_t)(j->size - at));
        json_t *record = newline ? parse_line(text + at, (size_t)(newline - text - at)) : NULL;
        if (!record) break;
        at = newline - text + 1;
        j->ends[json_array_size(j->records)] = at;
        if (json_array_append_new(j->records, record) != 0) status = lac_fail_memory("a journal", bytes);
    }
    lac_release(text);
    return status;
}

lac_status lac_journal_open(const char *out, bool restart, lac_journal **journal)
{
    lac_journal *j = lac_allocate_zeroed(sizeof *j);
    if (!j) return lac_fail_memory("a journal", sizeof *j);
    uint64_t room = strlen(out) + sizeof ".journal";
    lac_status status = LAC_STATUS_OK;
    j->folder = j->descriptor = -1;
    j->path = lac_allocate(room);
    j->records = json_array();
    if (!j->path || !j->records)
        status = lac_fail_memory("a journal", room);
    else
        snprintf(j->path, room, "%s.journal", out);
    if (status == LAC_STATUS_OK) {
        char *slash = strrchr(j->path, '/'), saved = slash ? slash[1] : '\0';
        j->name = slash ? slash + 1 : j->path;
        if (slash) slash[1] = '\0';
        j->folder = open(slash ? j->path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (slash) slash[1] = saved;
        if (j->folder < 0) status = fail_errno(j, "cannot open its folder");
    }
    if (status == LAC_STATUS_OK) status = open_locked(j);
    if (status == LAC_STATUS_OK && j->size > JOURNAL_MOST)
        status = lac_fail(LAC_STATUS_BAD_FILE, "%s: is no journal: it has %" PRId64 " bytes", j->path, j->size);
    if (status == LAC_STATUS_OK && !restart) status = read_records(j);
    if (status != LAC_STATUS_OK) {
        lac_journal_close(j, false);
        return status;
    }
    *journal = j;
    return LAC_STATUS_OK;
}

const json_t *lac_journal_next(const lac_journal *j) { return json_array_get(j->records, j->accepted); }

void lac_journal_accept(lac_journal *j) { j->kept = j->ends[j->accepted++]; }

/* "<digest> <text>\n" at the end of the file, by one write where the system takes it. */
static lac_status write_line(lac_journal *j, const json_t *record)
{
    size_t flags = JSON_COMPACT, length = json_dumpb(record, NULL, 0, flags), bytes = PREFIX + length + 1, done = 0;
    char *line = lac_allocate(bytes), digest[PREFIX + 1];
    if (!line) return lac_fail_memory("a record", bytes);
    if (length == 0 || json_dumpb(record, line + PREFIX, length, flags) != length) {
        lac_release(line);
        return lac_fail_memory("a record", bytes);
    }
    snprintf(digest, sizeof digest, "%016" PRIx64 " ", digest_of(line + PREFIX, length));
    memcpy(line, digest, PREFIX);
    line[bytes - 1] = '\n';
    lac_status status = LAC_STATUS_OK;
    while (done < bytes && status == LAC_STATUS_OK) {
        ssize_t went = pwrite(j->descriptor, line + done, bytes - done, (off_t)j->size);
        if (went < 0 && errno == EINTR) continue;
        if (went <= 0) status = fail_errno(j, "cannot write");
        if (went > 0) done += (size_t)went, j->size += went;
    }
    lac_release(line);
    if (status == LAC_STATUS_OK) j->kept = j->size;
    return status;
}

lac_status lac_journal_append(lac_journal *j, json_t *record)
{
    if (!record) return lac_fail_memory("a record", 0);
    json_array_clear(j->records);
    j->accepted = 0;
    while (j->size > j->kept) {
        if (ftruncate(j->descriptor, (off_t)j->kept) == 0)
            j->size = j->kept;
        else if (errno != EINTR) {
            json_decref(record);
            return fail_errno(j, "cannot shorten");
        }
    }
    lac_status status = write_line(j, record);
    json_decref(record);
    return status;
}

void lac_journal_close(lac_journal *j, bool done)
{
    if (!j) return;
    if (done && j->descriptor >= 0) unlinkat(j->folder, j->name, 0);
    if (j->descriptor >= 0) close(j->descriptor);
    if (j->folder >= 0) close(j->folder);
    json_decref(j->records);
    lac_release(j->ends);
    lac_release(j->path);
    lac_release(j);
}
