/* harness.h - the inside of a run: the session, one problem of it (a cell), and the contenders that are timed on it. */
#ifndef LACUNA_BENCH_HARNESS_H
#define LACUNA_BENCH_HARNESS_H

#include <pthread.h>

#include "backend.h"
#include "bench.h"
#include "child.h"
#include "data.h"
#include "machine.h"
#include "openblas.h"
#include "peer.h"
#include "turns.h"
#include "vendor.h"

/* ---------------------------------------------------------------- peer.c */

typedef struct bench_peer {
    char name[80];
    int (*layout)(const lac_peer_problem *problem);
    void *(*prepare)(const lac_peer_problem *problem, const void *w);
    int (*run)(void *handle, const void *x, void *y, void *stream);
    void (*release)(void *handle);
} bench_peer;

/* Nonzero when it is no peer; `why` says why. */
int bench_peer_open(bench_peer *peer, const char *path, char *why, size_t why_size);

/* ---------------------------------------------------------------- the session and the problem */

enum { BENCH_MOST_VENDORS = 4, BENCH_MOST_PEERS = 4, BENCH_MOST_PRECISIONS = 3 };

/* Where the time of a run goes. */
typedef enum bench_stage {
    BENCH_STAGE_OPEN,    /* device, libraries, ceilings                      */
    BENCH_STAGE_WEIGHT,  /* drawing, pruning, compressing                    */
    BENCH_STAGE_X,       /* drawing X, the oracle                            */
    BENCH_STAGE_DENSE,   /* the baseline: finding its quickest way, uploading */
    BENCH_STAGE_PLAN,    /* Lacuna's plans                                   */
    BENCH_STAGE_PEER,    /* preparing peers                                  */
    BENCH_STAGE_BUFFERS, /* X and Y on the device                            */
    BENCH_STAGE_CALL,    /* first calls, and Y back to the host              */
    BENCH_STAGE_CHECK,
    BENCH_STAGE_TIME,
    BENCH_STAGES
} bench_stage;

typedef struct bench_session {
    const bench_options *options;
    lac_device *device, *host; /* host: the CPU, where the oracle runs */
    lac_device_info info;
    const bench_backend *backend;
    bench_child *child;   /* runs the baseline of a CPU; NULL: none */
    bench_openblas *blas; /* in the child: what it runs             */
    bench_peer peers[BENCH_MOST_PEERS];
    int peer_count;
    const bench_vendor *vendors[BENCH_MOST_VENDORS]; /* of a GPU: those that are there */
    int vendor_count;
    struct bench_choice *choices; /* [choice_count] vendor.c's: the quickest dense way of each problem */
    size_t choice_count;
    int turns; /* turns.h; -1: none */
    int threads;
    lac_precision precisions[BENCH_MOST_PRECISIONS]; /* with the default resolved */
    int precision_count;
    uint64_t cache_bytes, memory_limit;
    bench_ceiling ceiling;
    char device_info[640];
    double deadline; /* in bench_seconds; infinite without --max-seconds */
    uint64_t cells_done, cells_total;
    int wrong;            /* how many contenders were refused */
    int rows;             /* how many were reported           */
    double timed_seconds; /* spent in bench_time                          */
    double timed_until;   /* when the last of that ended, in bench_seconds; 0: never */
    int64_t preempted;    /* how often a thread lost its core in that time */
    double stage_seconds[BENCH_STAGES];
    double stage_began; /* when the last stage ended */
    int restless;       /* threads were still running when another's turn began */
} bench_session;

/* What some outputs of some tokens must be. */
typedef struct bench_oracle {
    int64_t samples, width;
    int64_t *tokens;                      /* [samples] ascending                          */
    int64_t *outputs;                     /* [width] ascending; all n of them where W is small enough */
    double *y;                            /* [samples][width]                             */
    double *bound[BENCH_MOST_PRECISIONS]; /* [samples][width] for each precision of the problem */
    double *sums; /* [m] of a token's outputs with the layer's signs; NULL where all elements are compared */
} bench_oracle;

/* One weight and what all problems with it share. */
typedef struct bench_layer {
    int64_t n, k;
    float *drawn;      /* [n][k] before pruning                              */
    float *held;       /* [n][k] what the weight holds, with its zeros       */
    float *signs;      /* [n] +1 or -1 ...                                   */
    double *projected; /* [k] ... and W^T signs: a cheap sum over all outputs */
    int is_projected;  /* it is that of what is held now                     */
    void *dense[2];    /* of a GPU: `held` in its memory, as it is and transposed; NULL: not asked for yet */
    lac_dtype dense_dtype;
} bench_layer;

typedef struct bench_problem {
    bench_session *session;
    const bench_shape *shape;
    int64_t m, n, k;
    lac_dtype dtype;
    lac_layout layout;
    lac_pattern pattern;
    char pattern_text[LAC_PATTERN_TEXT_SIZE];
    const lac_weight *weight;
    lac_weight_info weight_info;
    lac_precision precisions[BENCH_MOST_PRECISIONS]; /* that are timed side by side: they share the baseline */
    int precision_count;
    bench_layer *layer; /* NULL in the child                             */
    const float *w;     /* [n][k] what the weight holds, with its zeros */
    float *x;           /* [m][k] rounded to dtype                       */
    int is_cut;         /* out: time was up before there was enough to tell; it has no rows */
    bench_oracle oracle;
} bench_problem;

/* ---------------------------------------------------------------- weights.c */

/* A weight of a layer under one pattern and dtype. */
typedef struct bench_weight {
    const float *drawn; /* [n][k] before pruning; outlives it */
    int64_t n, k;
    lac_pattern pattern;
    lac_dtype dtype;
    lac_weight *weight; /* made, unless ...                         */
    lac_weight_info info;
    float *held;       /* [n][k] what the weight holds, with its zeros */
    lac_status status; /* ... this says otherwise ...              */
    char why[256];     /* ... and this why                         */
    pthread_t thread;
    int running;
} bench_weight;

/* Makes it; ahead: in a thread of its own, for bench_weight_wait to wait for. */
void bench_weight_start(bench_weight *w, int ahead);
void bench_weight_wait(bench_weight *w);
/* Takes one that was never started, if it is all zero. */
void bench_weight_free(bench_weight *w);

/* What happened since the last call was of this stage. */
void bench_stage_end(bench_session *session, bench_stage stage);
void bench_say(const bench_session *session, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---------------------------------------------------------------- contender.c */

/* Copies of X and Y that calls use in turn. */
typedef struct bench_ring {
    lac_dtype dtype;
    lac_layout layout;
    void **x, **y; /* [count] */
    size_t count, next;
    size_t x_bytes, y_bytes;
} bench_ring;

typedef enum bench_role { BENCH_ROLE_DENSE, BENCH_ROLE_KERNEL, BENCH_ROLE_PEER } bench_role;

/* Something that multiplies: the baseline, one of Lacuna's kernels, a peer. */
typedef struct bench_contender {
    bench_role role;
    char name[96];
    const bench_problem *problem;
    bench_ring *ring;
    lac_dtype dtype;            /* of its X and Y */
    lac_layout layout;          /* of its X       */
    int precision;              /* which of the problem's */
    int y_is_token;             /* 1: its Y is token-major, whatever its X is; some peers */
    const bench_peer *peer;     /* NULL: it is none             */
    void **handles;             /* [copies] plans, dense weights or the peer's: a copy of the weight each */
    lac_weight **weights;       /* [copies] what the plans were made of                                  */
    size_t copies, next;        /* next: which of them is to be used                                     */
    double weight_bytes;        /* that one call reads of it                                             */
    int way;                    /* of OpenBLAS, or of the vendor's library */
    const bench_vendor *vendor; /* NULL: none of theirs                */
    void *recording;            /* a rotation of calls on a GPU, ready to be replayed; NULL: none ...  */
    int recorded;               /* ... and how many calls it holds                                        */
    void *workspace;            /* one for all calls, as OpenBLAS has its own buffers */
    lac_plan_info plan;         /* of the first plan */
    float *transposed;          /* [k][n] for the way that wants it */
    double estimate;            /* seconds a call  */
    double *samples;            /* [count] seconds */
    size_t count, capacity;     /* samples         */
    int64_t runs;               /* timed calls     */
    double timed;               /* their seconds   */
    double last_median, last_spread;
    size_t last_count;
    int stable;
    double median, spread, max_error, error_bound;
    uint64_t digest; /* of the result that was checked */
} bench_contender;

/* Makes the first copy. OK; or UNSUPPORTED when it cannot do the problem (lac_last_error says why for kernels). */
lac_status bench_contender_open_kernel(bench_contender *c, const bench_problem *problem, const char *kernel, int precision);
lac_status bench_contender_open_dense(bench_contender *c, const bench_problem *problem);
lac_status bench_contender_open_peer(bench_contender *c, const bench_problem *problem, const bench_peer *peer);
/* As many copies in all. */
lac_status bench_contender_copy(bench_contender *c, size_t copies);
/* One call on the next copy and the ring's next slot, or on the first ones of both. Nonzero: it failed. */
int bench_contender_call(bench_contender *c);
int bench_contender_call_first(bench_contender *c);
/* Records a rotation of calls, each copy and each slot of the ring as often as any other, to be replayed at once; on a
 * device that can. Each copy once where the cache is swept before a replay. Sets recording and recorded, unless a call refuses
 * to be recorded. */
void bench_contender_record(bench_contender *c, int sweep);
void bench_contender_close(bench_contender *c);
/* The bytes of X, Y and weight that a call must move. */
double bench_contender_bytes(const bench_contender *c);

lac_status bench_ring_open(bench_ring *ring, const bench_problem *problem, lac_dtype dtype, lac_layout layout, size_t count);
void bench_ring_close(bench_ring *ring, const bench_session *session);

/* ---------------------------------------------------------------- vendor.c */

/* Opens the GPU vendor's libraries and says which are missing; `info` gets their versions. */
void bench_vendors_open(bench_session *session, char *info, size_t info_size);
void bench_vendors_close(bench_session *session);
/* The quickest dense way of all of them. UNSUPPORTED: there is none. */
lac_status bench_vendor_open_dense(bench_contender *c, const bench_problem *problem);
/* The library session->vendors[index], if it uses the zeros of W. UNSUPPORTED: it does not, or cannot do this problem. */
lac_status bench_vendor_open_sparse(bench_contender *c, const bench_problem *problem, int index);
/* Frees what the vendors' products keep of a layer's weight, which is about to change. */
void bench_vendor_forget_layer(bench_layer *layer);
/* What contender.c does for a contender with a vendor: another handle; a call; the end of a handle. */
lac_status bench_vendor_copy(bench_contender *c, void **out);
int bench_vendor_call(const bench_contender *c, void *handle, const void *x, void *y);
void bench_vendor_release(const bench_contender *c, void *handle);

/* ---------------------------------------------------------------- check.c */

/* Draws the signs of a layer whose weight has changed, and sums W up with them. */
lac_status bench_layer_project(bench_layer *layer, uint64_t seed);
lac_status bench_oracle_open(bench_problem *problem, uint64_t seed);
void bench_oracle_close(bench_oracle *oracle);
/* Is this Y, in host memory, right? Fills max_error and error_bound; `why` says what is wrong. 1: right. */
int bench_check(bench_contender *c, const void *y, char *why, size_t why_size);

/* ---------------------------------------------------------------- timing.c */

/* Fewer say nothing. */
#define BENCH_FEWEST_SAMPLES 3

/* Some calls of one contender, one after another. */
typedef struct bench_turn {
    int calls;
    int batch;                        /* all calls are timed as one                               */
    int lead;                         /* an untimed call comes first                              */
    uint64_t sweep_bytes;             /* what is cleared out of the cache before it; 0: nothing   */
    double seconds[BENCH_MOST_MARKS]; /* out: of each call; of all in [0] when batch              */
    int64_t preempted;                /* out: how often a thread lost its core                    */
    int restless;                     /* out: threads that should sleep by now still run          */
} bench_turn;

/* Takes a turn in this process. Afterwards its threads sleep. Nonzero: a call failed. */
int bench_turn_run(bench_session *session, bench_contender *c, bench_turn *turn);

/* Times all contenders in turns until their medians stand still; fills median, spread and runs. `sweep`: empty the cache
 * before each turn. Nonzero when one failed or the user stopped it. */
int bench_time(bench_session *session, bench_contender *contenders, size_t count, int sweep, const char *what);

/* ---------------------------------------------------------------- cell.c */

/* Checks and times everybody on one problem and hands out the rows. */
bench_status bench_cell_run(bench_problem *problem);

#endif
