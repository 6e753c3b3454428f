/* status.c - status names, this thread's error message, the log callback, and the rule for growing structs.
 * Everything in Lacuna that can fail ends here. */
#include "core/status.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE_SIZE = 1024 };
enum { LARGEST_STRUCT = 1 << 16 }; /* bytes, far more than any of ours: a larger size is one that nobody has set */

static _Thread_local char last_error[MESSAGE_SIZE];
static _Thread_local bool is_host_memory; /* what the message is about */

const char *lac_last_error(void) { return last_error; }
bool lac_error_is_host_memory(void) { return is_host_memory; }

const char *lac_status_name(lac_status status)
{
    switch (status) {
    case LAC_STATUS_OK:
        return "ok";
    case LAC_STATUS_INVALID_ARGUMENT:
        return "invalid argument";
    case LAC_STATUS_OUT_OF_MEMORY:
        return "out of memory";
    case LAC_STATUS_IO:
        return "input/output error";
    case LAC_STATUS_BAD_FILE:
        return "bad file";
    case LAC_STATUS_NOT_FOUND:
        return "not found";
    case LAC_STATUS_PATTERN_VIOLATED:
        return "pattern violated";
    case LAC_STATUS_VALUE_OUT_OF_RANGE:
        return "value out of range";
    case LAC_STATUS_UNSUPPORTED:
        return "unsupported";
    case LAC_STATUS_DEVICE:
        return "device failure";
    case LAC_STATUS_CANCELLED:
        return "cancelled";
    case LAC_STATUS_INTERNAL:
        return "internal error";
    }
    return "unknown status";
}

#define TEXT_OF(number)     #number
#define VERSION_OF(a, b, c) TEXT_OF(a) "." TEXT_OF(b) "." TEXT_OF(c)

const char *lac_version(void) { return VERSION_OF(LAC_VERSION_MAJOR, LAC_VERSION_MINOR, LAC_VERSION_PATCH); }

lac_status lac_fail(lac_status status, const char *format, ...)
{
    /* Arguments may point into last_error itself, so the text is made beside it. */
    char message[MESSAGE_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    memcpy(last_error, message, sizeof last_error);
    is_host_memory = false;
    return status;
}

lac_status lac_fail_in(lac_status status, const char *format, ...)
{
    char prefix[MESSAGE_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(prefix, sizeof prefix, format, arguments);
    va_end(arguments);
    bool same = is_host_memory;
    lac_fail(status, "%s: %s", prefix, last_error);
    is_host_memory = same;
    return status;
}

lac_status lac_fail_memory(const char *what, uint64_t bytes)
{
    lac_fail(LAC_STATUS_OUT_OF_MEMORY, "%s: no memory for %llu bytes", what, (unsigned long long)bytes);
    is_host_memory = true;
    return LAC_STATUS_OUT_OF_MEMORY;
}

/* The callback may be set while other threads log, so its three fields change together. */
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static lac_log_fn log_fn;
static void *log_user;
static lac_log_level log_level;

void lac_set_log(lac_log_fn fn, void *user, lac_log_level level)
{
    pthread_mutex_lock(&log_lock);
    log_fn = fn;
    log_user = user;
    log_level = level;
    pthread_mutex_unlock(&log_lock);
}

void lac_log(lac_log_level level, const char *format, ...)
{
    pthread_mutex_lock(&log_lock);
    lac_log_fn fn = level <= log_level ? log_fn : NULL;
    void *user = log_user;
    pthread_mutex_unlock(&log_lock);
    if (!fn) return; /* called outside the lock, so that a callback that takes its time keeps nobody else waiting */

    char message[MESSAGE_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    fn(user, level, message);
}

lac_status lac_read_struct(const char *name, const void *from, void *to, size_t known)
{
    memset(to, 0, known);
    if (!from) return LAC_STATUS_OK;
    size_t size;
    memcpy(&size, from, sizeof size);
    if (size < sizeof size || size > LARGEST_STRUCT)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s->size is %zu; set it to sizeof(*%s)", name, size, name);
    for (size_t i = known; i < size; ++i)
        if (((const unsigned char *)from)[i])
            return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                            "%s->size is %zu, and byte %zu is set: a field that this version (%s) does not know", name, size, i,
                            lac_version());
    memcpy(to, from, size < known ? size : known);
    return LAC_STATUS_OK;
}

lac_status lac_write_struct(const char *name, void *to, const void *from, size_t known)
{
    if (!to) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s is NULL", name);
    size_t size;
    memcpy(&size, to, sizeof size);
    if (size < sizeof size || size > LARGEST_STRUCT)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s->size is %zu; set it to sizeof(*%s)", name, size, name);
    if (size > known) memset((char *)to + known, 0, size - known);
    memcpy(to, from, size < known ? size : known);
    memcpy(to, &size, sizeof size);
    return LAC_STATUS_OK;
}
