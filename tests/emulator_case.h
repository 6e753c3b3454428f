/* emulator_case.h - a kernel written by hand, as PTX, and run by the emulator (tests/emulator): what test_emulator_*.c share. Of the
 * driver they call what a kernel's memory needs; prototypes are written out, since the driver has no header of its own. */
#ifndef TEST_EMULATOR_CASE_H
#define TEST_EMULATOR_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulator/emulator.h"

int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuCtxPushCurrent_v2(void *context);
int cuCtxPopCurrent_v2(void **context);
int cuMemAlloc_v2(uint64_t *out, size_t bytes);
int cuMemFree_v2(uint64_t address);

/* What every kernel begins with, a body's first line being CASE_FIRST_LINE: `memory` is in %d0, the thread's number in %r0, and there are
 * registers of all kinds, 4096 bytes of shared memory and 12 of a variable. */
#define CASE_HEAD                                                                                                              \
    ".version 8.6\n.target sm_90a\n.global .align 4 .b8 variable[12]; .visible .entry kernel(.param .u64 memory, "             \
    ".param .align 64 .b8 map[128]) { .reg .pred %p<8>; .reg .b16 %h<10>; .reg .b32 %r<400>; .reg .f32 %f<160>; "              \
    ".reg .b64 %d<16>; .shared .align 1024 .b8 tile[4096]; ld.param.u64 %d0, [memory]; mov.u32 %r0, %tid.x;\n"
enum { CASE_FIRST_LINE = 4, CASE_TEXT = 1 << 16 };

typedef struct case_launch {
    uint32_t threads, blocks, cluster; /* 0: one */
    uint32_t dynamic_shared;
    bool early;
    emu_tensor_map map;
} case_launch;

/* For cmocka's group set-up and tear-down: memory can be had. */
static inline int case_open(void **state)
{
    (void)state;
    void *context = NULL;
    return cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxPushCurrent_v2(context);
}
static inline int case_close(void **state)
{
    (void)state;
    return cuCtxPopCurrent_v2(NULL) || cuDevicePrimaryCtxRelease_v2(0);
}

/* A block of the emulated GPU's memory, which is the host's. */
static inline void *case_allocate(size_t bytes)
{
    uint64_t address = 0;
    assert_int_equal(cuMemAlloc_v2(&address, bytes), 0);
    return (void *)(uintptr_t)address;
}
static inline void case_free(void *memory) { assert_int_equal(cuMemFree_v2((uint64_t)(uintptr_t)memory), 0); }

/* Runs CASE_HEAD, the body and "}". False: it failed, and `why` says how; a text that is not understood fails the test. */
static inline bool case_run(const case_launch *how, const char *body, void *memory, char *why, size_t why_size)
{
    static const case_launch one;
    char *text = malloc(CASE_TEXT);
    if (!how) how = &one;
    assert_true(text && (size_t)snprintf(text, CASE_TEXT, "%s%s\n}\n", CASE_HEAD, body) < CASE_TEXT);
    emu_module *module = emu_module_parse(text, why, why_size);
    if (!module) print_error("%s\n%s\n", why, body);
    free(text);
    assert_non_null(module);
    _Alignas(64) unsigned char map[128] = {0};
    memcpy(map, &how->map, sizeof how->map);
    void *params[] = {&memory, map};
    emu_launch launch = {.function = module->function,
                         .grid = {how->blocks ? how->blocks : 1, 1, 1},
                         .block = {how->threads ? how->threads : 1, 1, 1},
                         .cluster = how->cluster,
                         .dynamic_shared = how->dynamic_shared,
                         .early = how->early,
                         .params = params};
    bool done = emu_run_launch(&launch, why, why_size);
    emu_module_free(module);
    return done;
}

/* The same for a kernel that has to run through. */
static inline void case_must_run(const case_launch *how, const char *body, void *memory)
{
    char why[1024] = "";
    if (!case_run(how, body, memory, why, sizeof why)) fail_msg("%s\n%s", why, body);
}

/* The order that copies land in and warps run in; NULL: the default. */
static inline void case_order(const char *order, int seed)
{
    char number[16];
    snprintf(number, sizeof number, "%d", seed);
    setenv("EMULATOR_SEED", number, 1);
    if (order)
        setenv("EMULATOR_ORDER", order, 1);
    else
        unsetenv("EMULATOR_ORDER");
}

#endif
