/* find.h - the functions by which a test steers a fake library, found in it by name. */
#ifndef TEST_FAKES_FIND_H
#define TEST_FAKES_FIND_H

#include <dlfcn.h>
#include <string.h>

#include "support/support.h"

/* `function` points to the pointer; ISO C has no cast from an object's pointer to a function's. */
static inline void fake_find(void *library, const char *symbol, void *function)
{
    void *found = dlsym(library, symbol);
    assert_non_null(found);
    memcpy(function, &found, sizeof found);
}

#endif
