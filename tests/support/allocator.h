/* allocator.h - an allocator that counts its blocks and fails when told to, for the library and for its JSON reader. */
#ifndef TEST_SUPPORT_ALLOCATOR_H
#define TEST_SUPPORT_ALLOCATOR_H

#include <stdbool.h>
#include <stdint.h>

/* Routes the memory of the library and of jansson through the counter. Before any other call of either. */
void test_allocator_install(void);
/* The `number`-th allocation from now (1 is the next), and it alone, fails; 0 lets all succeed. */
void test_allocator_fail_at(int64_t number);
/* That one and all after it fail. */
void test_allocator_fail_from(int64_t number);
/* Every allocation larger than this fails; 0: no limit. */
void test_allocator_limit(uint64_t bytes);
/* Whether the allocation that was to fail has been reached. */
bool test_allocator_failed(void);
/* Allocations since the last test_allocator_fail_at. */
int64_t test_allocator_count(void);
int64_t test_allocator_live(void);

#endif
