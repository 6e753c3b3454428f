/* map.h - a whole file in memory, read-only. Every reader of src/io starts from one. */
#ifndef LAC_IO_MAP_H
#define LAC_IO_MAP_H

#include "lacuna.h"

typedef struct lac_map {
    const uint8_t *data; /* [bytes]; never NULL once mapped, even when bytes is 0 */
    uint64_t bytes;
    char *path; /* as the caller gave it, for messages */
} lac_map;

/* IO when the system refuses, BAD_FILE when `path` is no regular file. A file of 0 bytes maps to an empty range. */
lac_status lac_map_open(const char *path, lac_map *out);
void lac_map_close(lac_map *map); /* a zeroed map is fine */

#endif
