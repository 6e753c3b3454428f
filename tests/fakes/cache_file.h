/* cache_file.h - a file of the kernels' cache, for tests that damage it or make it lie: the header with its checksum, the key, the
 * record, as in cache.c. */
#ifndef LAC_TESTS_FAKES_CACHE_FILE_H
#define LAC_TESTS_FAKES_CACHE_FILE_H

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cuda/cache.h"
#include "support/support.h"

enum { CACHE_HEADER_BYTES = 72, CACHE_KEY_BYTES_AT = 16, CACHE_CHECKSUM_AT = 56, CACHE_MOST_BYTES = 4096 };
typedef struct cache_file {
    char path[512];
    unsigned char data[CACHE_MOST_BYTES];
    size_t bytes;
} cache_file;

/* Leaves nothing in the test's folder but an empty cache. */
static inline void clear_cache(void)
{
    test_folder_clear();
    assert_int_equal(mkdir(test_path("cache"), 0700), 0);
}

/* Where the record begins. */
static inline size_t cache_file_record(const cache_file *file)
{
    uint64_t key_bytes;
    memcpy(&key_bytes, file->data + CACHE_KEY_BYTES_AT, sizeof key_bytes);
    return CACHE_HEADER_BYTES + key_bytes;
}

static inline void cache_file_read(cache_file *file)
{
    FILE *from = fopen(file->path, "rb");
    assert_non_null(from);
    file->bytes = fread(file->data, 1, sizeof file->data, from);
    fclose(from);
}

/* The folder's file whose record has so many bytes; there is just one. */
static inline void cache_file_find(const char *folder, size_t record_bytes, cache_file *file)
{
    char command[600];
    cache_file read;
    int found = 0;
    snprintf(command, sizeof command, "ls %s/*.lac", folder);
    FILE *list = popen(command, "r");
    assert_non_null(list);
    while (fgets(read.path, sizeof read.path, list)) {
        read.path[strcspn(read.path, "\n")] = 0;
        cache_file_read(&read);
        if (read.bytes - cache_file_record(&read) != record_bytes) continue;
        *file = read;
        found++;
    }
    pclose(list);
    assert_int_equal(found, 1);
}

static inline void cache_file_write(const cache_file *file, size_t bytes)
{
    test_write_file(file->path, file->data, bytes);
    assert_int_equal(chmod(file->path, 0600), 0);
}

/* Makes the checksum right. */
static inline void cache_file_seal(cache_file *file)
{
    memset(file->data + CACHE_CHECKSUM_AT, 0, CACHE_HEADER_BYTES - CACHE_CHECKSUM_AT);
    lac_hash hash = lac_hash_begin();
    lac_hash_add(&hash, file->data, file->bytes);
    memcpy(file->data + CACHE_CHECKSUM_AT, &hash.high, sizeof hash.high);
    memcpy(file->data + CACHE_CHECKSUM_AT + sizeof hash.high, &hash.low, sizeof hash.low);
}

#endif
