/* folder.h - a temporary folder, in memory where the machine has such a place, removed with all it holds. */
#ifndef TEST_SUPPORT_FOLDER_H
#define TEST_SUPPORT_FOLDER_H

#include <stdint.h>

/* Makes the folder at the first call, removes it when the program ends. */
const char *test_folder(void);
/* "<folder>/<name>" in one of a few static buffers: good for the next seven calls. */
const char *test_path(const char *name);
/* How many files lie in it, at any depth. */
int64_t test_folder_files(void);
/* Removes everything inside. */
void test_folder_clear(void);
void test_write_file(const char *path, const void *data, uint64_t bytes);

#endif
