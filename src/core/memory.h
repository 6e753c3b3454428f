/* memory.h - all of Lacuna's memory goes through here, so that a test can fail each allocation in turn. */
#ifndef LAC_CORE_MEMORY_H
#define LAC_CORE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Aligned to 64 bytes, not cleared; NULL when there is no memory. Zero bytes give a valid block. */
void *lac_allocate(uint64_t bytes);
void *lac_allocate_zeroed(uint64_t bytes);
/* A larger block with the first `old_bytes` copied and `block` freed; on failure NULL, with `block` as it was. */
void *lac_grow(void *block, uint64_t old_bytes, uint64_t new_bytes);
void lac_release(void *block); /* NULL is fine */

/* Scratch of `count` threads in one cleared block: a head for each, which is what is returned, and behind them a room for each, no two
 * on one cache line. Room i begins at first + i * each. */
typedef struct lac_rooms {
    char *first;
    uint64_t each;
} lac_rooms;
void *lac_allocate_rooms(int count, uint64_t head_bytes, uint64_t room_bytes, lac_rooms *rooms);

char *lac_copy_text(const char *text);

/* a * b and a + b in *out, or false when they do not fit. */
static inline bool lac_multiply_u64(uint64_t a, uint64_t b, uint64_t *out) { return !__builtin_mul_overflow(a, b, out); }
static inline bool lac_add_u64(uint64_t a, uint64_t b, uint64_t *out) { return !__builtin_add_overflow(a, b, out); }

#endif
