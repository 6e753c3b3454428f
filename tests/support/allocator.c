/* allocator.c - see allocator.h. Counters are atomic: the library may allocate from several threads. */
#include <stdarg.h>
#include <stddef.h>

#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/allocator.h"
#include "support/check.h"

#include <jansson.h>
#include <stdatomic.h>
#include <stdlib.h>

static atomic_int_least64_t count, live, fail_number;
static atomic_uint_least64_t limit;
static atomic_bool failed, fail_all_after;

static void *counted_allocate(size_t bytes, void *user)
{
    (void)user;
    int64_t number = atomic_fetch_add(&count, 1) + 1;
    uint64_t most = atomic_load(&limit);
    int64_t failing = atomic_load(&fail_number);
    if ((failing && (atomic_load(&fail_all_after) ? number >= failing : number == failing)) || (most && bytes > most)) {
        atomic_store(&failed, true);
        return NULL;
    }
    void *block = malloc(bytes ? bytes : 1);
    if (block) atomic_fetch_add(&live, 1);
    return block;
}

static void counted_release(void *block, void *user)
{
    (void)user;
    if (!block) return;
    atomic_fetch_sub(&live, 1);
    free(block);
}

static void *json_allocate(size_t bytes) { return counted_allocate(bytes, NULL); }
static void json_release(void *block) { counted_release(block, NULL); }

void test_allocator_install(void)
{
    json_set_alloc_funcs(json_allocate, json_release);
    assert_ok(lac_set_allocator(counted_allocate, counted_release, NULL));
}

void test_allocator_fail_at(int64_t number)
{
    atomic_store(&failed, false);
    atomic_store(&count, 0);
    atomic_store(&fail_all_after, false);
    atomic_store(&fail_number, number);
}

void test_allocator_fail_from(int64_t number)
{
    test_allocator_fail_at(number);
    atomic_store(&fail_all_after, true);
}

void test_allocator_limit(uint64_t bytes)
{
    atomic_store(&failed, false);
    atomic_store(&limit, bytes);
}

bool test_allocator_failed(void) { return atomic_load(&failed); }
int64_t test_allocator_count(void) { return atomic_load(&count); }
int64_t test_allocator_live(void) { return atomic_load(&live); }
