/* state.h - an opened GPU inside: what lac_device.state points to. Only device.c, memory.c, launch.c and program.c look at
 * it; the dataflows use runtime.h, program.h and plan.h. */
#ifndef LAC_CUDA_STATE_H
#define LAC_CUDA_STATE_H

#include <pthread.h>

#include "cuda/runtime.h"

/* A loaded program. Entries are added and never removed while the GPU is open. */
typedef struct lac_cuda_entry lac_cuda_entry;

/* What was timed once on a GPU: notes.h. */
typedef struct lac_cuda_note lac_cuda_note;

/* The programs of one GPU, shared by everybody who has it open: they all are in its primary context. */
typedef struct lac_cuda_programs {
    struct lac_cuda_programs *next;
    int ordinal, holders;
    pthread_rwlock_t entries_lock;
    pthread_mutex_t build_lock; /* one compilation at a time: the second asker finds the first one's result */
    lac_cuda_entry *entries;
    pthread_mutex_t notes_lock; /* one timing at a time: the second asker finds the first one's result */
    lac_cuda_note *notes;
} lac_cuda_programs;

typedef struct lac_cuda_state {
    const lac_cuda_driver *driver; /* NULL: a target to compile for, without a GPU behind it */
    lac_cu_device device;
    int ordinal;
    lac_cu_context context; /* the primary one, retained                              */
    lac_cu_stream copies;   /* of our own: an upload waits for nobody else's work     */
    char arch[16];          /* "sm_90a"                                               */
    lac_cuda_target target;
    lac_gpu_rates rates;
    lac_cuda_programs *programs; /* NULL without a GPU */
    pthread_mutex_t cublaslt_lock;
    void *cublaslt; /* its handle; NULL until dense.c asks for one */
} lac_cuda_state;

static inline lac_cuda_state *lac_cuda_state_of(const lac_device *device) { return device->state; }

/* Makes the device's context this thread's, unless it is already; leave undoes just that. DEVICE for a target without a GPU,
 * naming `what` was asked of it. */
lac_status lac_cuda_enter(const lac_device *device, const char *what, bool *entered);
void lac_cuda_leave(const lac_device *device, bool entered);

/* program.c: the programs of a GPU, for one holder more or one less; the last one unloads all, while the context is current or
 * gone. Taking NULL is no release. */
lac_status lac_cuda_programs_hold(int ordinal, lac_cuda_programs **out);
void lac_cuda_programs_release(const lac_cuda_driver *driver, lac_cuda_programs *programs);

/* notes.c: forgets them. NULL is none. */
void lac_cuda_notes_release(lac_cuda_note *notes);

/* memory.c: another thread may be capturing a graph, during which the driver forbids much everywhere unless a thread says that
 * what it does has nothing to do with the capture. Restore gets what relax returned. */
int lac_cuda_relax_capture(const lac_cuda_driver *driver);
void lac_cuda_restore_capture(const lac_cuda_driver *driver, int mode);

/* cublaslt.c: gives a GPU's handle back, while its context is current. NULL is none. */
void lac_cublaslt_release(void *handle);

/* A device to compile for, on a machine without a GPU: `arch` is "sm_90a" and the like. Launches, allocations and loads fail
 * with a clear message. Close it with lac_device_close. */
lac_status lac_cuda_target_open(const char *arch, lac_device **out);

/* memory.c and launch.c: what lac_device_ops asks for. */
lac_status lac_cuda_block_allocate(const lac_device *device, const char *what, uint64_t bytes, void **out);
void lac_cuda_block_release(const lac_device *device, void *block);
lac_status lac_cuda_block_upload(const lac_device *device, void *to, const void *from, uint64_t bytes);
lac_status lac_cuda_block_download(const lac_device *device, void *to, const void *from, uint64_t bytes);
lac_status lac_cuda_synchronize(const lac_device *device);
/* race.c and timed_picks.c, likewise. */
lac_status lac_cuda_race(const lac_device *device, const lac_work *works, int count, double *seconds);
lac_status lac_cuda_recall(const lac_device *device, const char *key, lac_timed_pick *out);
lac_status lac_cuda_remember(const lac_device *device, const char *key, lac_timed_pick *pick);

#endif
