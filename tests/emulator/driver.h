/* driver.h - what the four files of the emulator's libcuda know of each other; nobody else includes it.
 *
 *   driver.c         devices, contexts, errors, modules, functions
 *   driver_memory.c  blocks of memory, copies
 *   driver_launch.c  launches and tensor maps: what they may be
 *   driver_stream.c  work, streams, captures, graphs, events
 *
 * Types of the driver's interface are written out, as in src/cuda/driver.h, but not taken from there: what Lacuna passes is checked
 * against a second reading of the manual. Locks are taken in this order: emu_driver_gpu, then emu_driver_objects, then that of blocks. */
#ifndef LAC_EMULATOR_DRIVER_H
#define LAC_EMULATOR_DRIVER_H

#include <pthread.h>

#include "emulator.h"

#define EXPORT __attribute__((visibility("default")))

/* CUresult. */
enum {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY = 209,
    INVALID_PTX = 218,
    INVALID_HANDLE = 400,
    ILLEGAL_STATE = 401,
    NOT_FOUND = 500,
    ILLEGAL_ADDRESS = 700,
    CONTEXT_DESTROYED = 709,
    LAUNCH_FAILED = 719,
    COOPERATIVE_TOO_LARGE = 720,
    NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    CAPTURE_IMPLICIT = 906,
    CAPTURED_EVENT = 907,
    CAPTURE_WRONG_THREAD = 908,
    INVALID_CLUSTER_SIZE = 912
};

/* ---- the device */

typedef struct emu_gpu {
    int capability;
    const char *arch;                                                           /* "sm_90" */
    int multiprocessors, clock, memory_clock, memory_width;                     /* kHz, kHz, bits */
    int l2_bytes, shared_per_multiprocessor, shared_per_block, shared_reserved; /* of a block */
    int threads, blocks;                                                        /* of a multiprocessor, at most */
} emu_gpu;

/* The one that EMULATOR_ARCH names. NULL: it names none, which cuInit has said. */
const emu_gpu *emu_driver_device(void);

/* ---- calls */

/* 0 where a context is current and well; else what the call has to return. */
int emu_driver_enter(void);
/* The same for calls that nobody may make while he captures a stream, unless he said that he may. */
int emu_driver_enter_unsafe(void);
/* The context is lost: `why` is told, and all calls from now on return `result`, which this does too. */
int emu_driver_lose(int result, const char *why);
/* Tells why a call is refused, which the driver itself never does, and returns `result`. */
int emu_driver_refuse(int result, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- objects: a handle is an object's address, and is looked for among those alive before it is used */

typedef struct emu_object {
    struct emu_object *next;
} emu_object;

typedef enum emu_object_kind {
    EMU_MODULES,
    EMU_STREAMS,
    EMU_EVENTS,
    EMU_GRAPHS,
    EMU_EXECUTABLES,
    EMU_OBJECT_KINDS
} emu_object_kind;

extern pthread_mutex_t emu_driver_objects;
extern emu_object *emu_driver_alive[EMU_OBJECT_KINDS]; /* under emu_driver_objects, as are the three functions */
void emu_driver_add(emu_object_kind kind, emu_object *object);
void *emu_driver_find(emu_object_kind kind, const void *handle); /* NULL: it is none that is alive */
void *emu_driver_take(emu_object_kind kind, const void *handle); /* and it is alive no more */

/* ---- functions */

typedef struct emu_handle { /* CUfunction */
    const emu_function *code;
    int dynamic_shared; /* that launches may ask for */
} emu_handle;

/* Under emu_driver_objects. NULL, false: its module is unloaded. */
emu_handle *emu_driver_function(const void *handle);
bool emu_driver_function_is_loaded(const emu_function *code);
/* Blocks of it that a multiprocessor has room for, as far as threads and shared memory go: nobody knows its registers. */
int emu_driver_blocks_that_fit(const emu_function *code, uint64_t threads, size_t dynamic_shared);

/* ---- work, which is done at once or written down in a graph (driver_stream.c) */

typedef enum emu_work_kind { EMU_LAUNCH, EMU_COPY, EMU_FILL } emu_work_kind;

typedef struct emu_work {
    struct emu_work *next;
    emu_work_kind kind;
    emu_launch launch; /* its params are those below */
    bool to_device, from_device;
    uint64_t to, from;
    size_t bytes;
    unsigned char value;
    void *params[]; /* [launch.function->params], then what they point to */
} emu_work;

/* One thing at a time is done on the GPU, whoever wants it: held while a kernel runs or bytes are copied. */
extern pthread_mutex_t emu_driver_gpu;

/* Does it, or puts it behind what `stream` has captured. Frees it. */
int emu_driver_submit(void *stream, emu_work *work);

/* Gives all memory back: the context is gone. (driver_memory.c) */
void emu_driver_free_all(void);

#endif
