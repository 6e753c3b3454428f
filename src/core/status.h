/* status.h - how every call fails: a status, and a message in this thread's buffer. Used by all of Lacuna. */
#ifndef LAC_CORE_STATUS_H
#define LAC_CORE_STATUS_H

#include <stdbool.h>

#include "lacuna.h"

/* Formats this thread's message and returns `status`, so that a failure is one line: return lac_fail(...). Messages
 * name the argument and its value: "pattern: N is 5 but M is 4; N must not exceed M". Allocates nothing. */
__attribute__((format(printf, 2, 3))) lac_status lac_fail(lac_status status, const char *format, ...);

/* The same with the words of what failed before put behind a prefix: "layer 3: <old message>". Keeps the status. */
__attribute__((format(printf, 2, 3))) lac_status lac_fail_in(lac_status status, const char *format, ...);

/* The usual failure of lac_allocate. */
lac_status lac_fail_memory(const char *what, uint64_t bytes);
/* Whether this thread's last failure was that one: OUT_OF_MEMORY may be a device's, too. */
bool lac_error_is_host_memory(void);

__attribute__((format(printf, 2, 3))) void lac_log(lac_log_level level, const char *format, ...);

/* Reads a versioned struct: copies min(size, known) bytes of the caller's `from` into `to` (already `known` bytes,
 * zeroed here), and refuses a size that is 0, or fields that this library does not know and that are not zero.
 * `from` may be NULL when all defaults are wanted. */
lac_status lac_read_struct(const char *name, const void *from, void *to, size_t known);

/* Writes a versioned struct back: copies min(to->size, known) bytes, leaving to->size as the caller set it. */
lac_status lac_write_struct(const char *name, void *to, const void *from, size_t known);

#endif
