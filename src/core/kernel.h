/* kernel.h - what a kernel is to the planner. Backends fill in tables of lac_kernel; core/registry.c gathers them. */
#ifndef LAC_CORE_KERNEL_H
#define LAC_CORE_KERNEL_H

#include <stdatomic.h>
#include <stdbool.h>

#include "lacuna.h"

typedef struct lac_device_ops lac_device_ops;
typedef struct lac_kernel lac_kernel;

struct lac_device {
    atomic_int holders;
    lac_device_info info;
    const lac_device_ops *ops;
    void *state; /* the backend's */
};

/* Work to be timed: puts itself on `stream`. */
typedef struct lac_work {
    lac_status (*run)(void *user, void *stream);
    void *user;
} lac_work;

/* What timing has found out: the quickest of some kernels for a problem. */
enum { LAC_KERNEL_NAME_SIZE = 48 };
typedef struct lac_timed_pick {
    char kernel[LAC_KERNEL_NAME_SIZE];
    double seconds;
} lac_timed_pick;

/* What a backend offers: its devices and its kernels. */
struct lac_device_ops {
    lac_device_kind kind;
    const char *prefix; /* of its devices' names, so that nobody else's are looked for in vain */
    /* The index-th device of this backend; NOT_FOUND past the end. */
    lac_status (*probe)(size_t index, lac_device_info *info);
    lac_status (*open)(const lac_device_info *info, void **state);
    void (*close)(void *state);
    /* A device of its kind that is not here, to predict for; NOT_FOUND when it knows none of that name. NULL: it knows none. */
    lac_status (*open_absent)(const char *name, lac_device **out);
    /* Memory of its own, copies, and waiting; all NULL when it works in the host's memory. `what` names a block. */
    lac_status (*allocate)(const lac_device *device, const char *what, uint64_t bytes, void **out);
    void (*release)(const lac_device *device, void *block);
    lac_status (*upload)(const lac_device *device, void *to, const void *from, uint64_t bytes);
    lac_status (*download)(const lac_device *device, void *to, const void *from, uint64_t bytes);
    lac_status (*synchronize)(const lac_device *device);
    /* Seconds of each work on the device, run in turns, its caches cold; NULL: the host's clock. */
    lac_status (*race)(const lac_device *device, const lac_work *works, int count, double *seconds);
    /* What was remembered under `key`, in the process or on disk; NOT_FOUND, without a message, where nothing was, or a
     * kernel for which `key` has no line that begins "rival NAME ". Remembering it where somebody else was quicker brings theirs
     * back. Both NULL: the device remembers nothing. */
    lac_status (*recall)(const lac_device *device, const char *key, lac_timed_pick *out);
    lac_status (*remember)(const lac_device *device, const char *key, lac_timed_pick *pick);
    /* The index-th thing that it looks for on the machine; NULL: none. */
    lac_status (*component)(size_t index, lac_component_info *info);
    /* Products of large matrices in its memory, for pruning; NULL: none. */
    const struct lac_linear_ops *linear;
};

/* A problem: everything a kernel is chosen by. All options are resolved: no defaults are left. */
typedef struct lac_problem {
    const lac_device *device;
    const lac_weight *weight;
    int64_t m;
    lac_plan_options options;
    const lac_kernel *kernel; /* the one that is asked or that runs: a table's functions serve many kernels */
} lac_problem;

/* One resource of the device in the model: what a call asks of it and how long that takes at the device's own rate. */
typedef struct lac_level {
    const char *name, *unit, *remedy; /* static texts; see lac_level_info in lacuna.h */
    double amount, rate, seconds;
} lac_level;

enum { LAC_COST_LEVELS = 6, LAC_COST_MOST_LEVELS = 8 }; /* of a CPU; of any device at most */

/* What the model says of a kernel on a problem. */
typedef struct lac_cost {
    double seconds;
    const char *bound; /* static text: the name of the level that takes longest */
    double ceiling;    /* seconds of that level alone */
    int levels;
    lac_level level[LAC_COST_MOST_LEVELS];
} lac_cost;

/* Arguments of execute with nothing left to default: ld resolved, alpha and beta by value, c NULL when unread. */
typedef struct lac_call {
    const void *x, *bias, *c;
    void *y;
    int64_t ldx, ldy, ldc;
    float alpha, beta;
    void *stream, *workspace;
} lac_call;

struct lac_kernel {
    lac_kernel_info info;
    const void *config; /* the backend's own: a vector unit, a tile */
    bool oracle;        /* never the planner's pick: only by name */
    bool (*applies)(const lac_problem *problem);
    lac_cost (*cost)(const lac_problem *problem);
    /* What cannot be known from the problem alone, asked of a kernel that would be picked: UNSUPPORTED, with the reason, when
     * something that it needs is not on this machine, and the next best is taken. NULL: nothing is needed. */
    lac_status (*available)(const lac_problem *problem);
    /* The kernel that does the products for one that only prepares and finishes; NULL: it does them itself. */
    const lac_kernel *(*inner)(const lac_problem *problem);
    size_t (*workspace)(const lac_problem *problem);                 /* NULL: none          */
    size_t (*workspace_of)(const void *state);                       /* what a prepared one needs; NULL: as workspace says */
    lac_status (*prepare)(const lac_problem *problem, void **state); /* NULL: nothing to do */
    lac_status (*execute)(const lac_problem *problem, const void *state, const lac_call *call);
    void (*release)(void *state); /* must take NULL; NULL: nothing to release */
};

/* registry.c, the one file that knows which backends exist. */
size_t lac_registry_device_ops(const lac_device_ops *const **out);
const lac_kernel *lac_registry_kernel(size_t index); /* NULL past the end */

struct lac_plan {
    lac_problem problem; /* weight retained, device retained */
    const lac_kernel *kernel;
    void *state;
    lac_plan_info info;
    char note[512]; /* what info.note points to */
    lac_cost cost;
};

/* Fills in what a caller's plan options leave to default, and checks the rest. */
lac_status lac_plan_options_resolve(const lac_weight *weight, const lac_device *device, lac_plan_options *options);

/* Checks a caller's arguments against the plan and leaves nothing to default. The oracle reads the inputs only, so it
 * asks for neither y nor a workspace. */
typedef enum lac_call_use { LAC_CALL_EXECUTE, LAC_CALL_REFERENCE } lac_call_use;
lac_status lac_plan_resolve_call(const lac_plan *plan, const lac_execute_args *args, lac_call_use use, lac_call *out);

/* plan.c: the bytes that execute needs; `state` is NULL for a kernel that is not prepared. */
size_t lac_kernel_workspace(const lac_kernel *kernel, const lac_problem *problem, const void *state);

/* choose.c: fills in the plan's kernel, its state, its note and what info tells of the choice. `forced` may be NULL. */
lac_status lac_plan_choose(lac_plan *plan, const char *forced);
lac_status lac_kernel_prepare(const lac_kernel *kernel, const lac_problem *problem, void **state);
void lac_kernel_release(const lac_kernel *kernel, void *state);

/* measure.c: random operands for a problem in the device's memory, and prepared kernels timed on them in turns. */
typedef struct lac_test_bed {
    const lac_problem *problem;
    void *x, *y, *c, *bias;
} lac_test_bed;

typedef struct lac_entrant {
    const lac_kernel *kernel;
    const void *state;
    double seconds; /* found out */
} lac_entrant;

enum { LAC_MOST_ENTRANTS = 2 };
lac_status lac_test_bed_make(const lac_problem *problem, lac_test_bed *out); /* nothing is left to release when it fails */
lac_status lac_test_bed_race(const lac_test_bed *bed, lac_entrant *entrants, int count);
void lac_test_bed_release(lac_test_bed *bed);

#endif
