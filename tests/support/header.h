/* header.h - the names of all public functions, read from include/lacuna.h itself, so that a test can show that its table
 * leaves none out. */
#ifndef TEST_SUPPORT_HEADER_H
#define TEST_SUPPORT_HEADER_H

#include <stdbool.h>

/* The path of a file of the source tree: "include/lacuna.h". In a static buffer. */
const char *test_source_path(const char *name);
/* Marks the function that the text of a call begins with: "lac_prune(dense, ...)" marks lac_prune. */
void test_mark_called(const char *call);
/* True when every LAC_API function has been marked and every mark is one; prints the others. */
bool test_all_functions_marked(void);

#endif
