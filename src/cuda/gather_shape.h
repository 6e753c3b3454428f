/* gather_shape.h - how kernels/gather.cu cuts a problem: its compile-time constants and what follows from them. gather.c and
 * gather_tile.c ask it. */
#ifndef LAC_CUDA_GATHER_SHAPE_H
#define LAC_CUDA_GATHER_SHAPE_H

#include "cuda/runtime.h"

/* What distinguishes the kernels of this dataflow. */
typedef enum lac_gather_kind {
    LAC_GATHER_DENSE,  /* wgmma on the rows of X that a row group selects                  */
    LAC_GATHER_SPARSE, /* wgmma.sp on them: V:N:M, whose rows keep at most two of four; low row groups, joined */
    LAC_GATHER_STREAM  /* wgmma.sp on all rows of X, where every row keeps at most two of four */
} lac_gather_kind;

/* How the parts of a tile that are blocks of a cluster get each other's sums; what LAC_PUSHES is in stream_few.cu. */
typedef enum lac_gather_sums {
    LAC_GATHER_SUMS_READ,  /* out of the others' memory                                              */
    LAC_GATHER_SUMS_KEPT,  /* they are sent into room that is kept for them: stream_meet.cuh         */
    LAC_GATHER_SUMS_STAGED /* they are sent into a stage that is done with, for there is no such room */
} lac_gather_sums;

typedef struct lac_gather_shape {
    lac_gather_kind kind;
    int rows;                                    /* of X a stage                       */
    int tile_outputs, tile_tokens, width;        /* width: tokens of one product       */
    int stages, cluster, parts;                  /* parts of k                         */
    bool meets;                                  /* the parts of a tile are blocks of one cluster     */
    lac_gather_sums sums;                        /* ... and so they add up                            */
    int resident;                                /* blocks of a multiprocessor         */
    bool paired;                                 /* a tile has two row groups of up to 64 outputs */
    bool joined;                                 /* a tile reads what any of its row groups selects: for low ones */
    double filled;                               /* ... sparse: of its slots, those that have a row of X, about */
    bool every;                                  /* ... and these being so many, all rows of X in their order */
    bool apart;                                  /* rows of X come one by one although they are neighbours */
    bool packed;                                 /* a stream's W has two values for eight inputs: few tokens */
    bool few;                                    /* tokens: as many stages as fit, few registers */
    bool boxes;                                  /* a stage's rows of X are neighbours: gather_block.cu */
    int staging;                                 /* pieces of Y on its way out; 0: it goes directly, or ... */
    bool by_last;                                /* ... through the last stage of its tile */
    int64_t height;                              /* outputs that share their rows of X */
    int64_t groups, tiles_a_group, output_tiles; /* of outputs; paired: two groups a tile */
    int64_t token_tiles;                         /* a multiple of cluster              */
    int64_t most_stages;                         /* of a tile of outputs               */
    double efficiency;                           /* of the bound's rate, what the tile reaches: cost only */
    double usual_stages;                         /* paired: as many as two independent choices have */
} lac_gather_shape;

/* Bytes that gather.cu counts the same way. */
static inline bool lac_gather_is_sparse(const lac_gather_shape *s) { return s->kind != LAC_GATHER_DENSE; }
/* Low row groups share a tile by fours of columns (gather_join.h); some slots then have no row of X. */
static inline bool lac_gather_in_fours(const lac_gather_shape *s) { return s->joined && lac_gather_is_sparse(s); }
/* Whether nothing is read for such a slot. To ask for each row costs more than it saves but where L2 is the bound. */
static inline bool lac_gather_has_holes(const lac_gather_shape *s) { return lac_gather_in_fours(s) && s->tile_tokens == 512; }
static inline int lac_gather_w_row(const lac_gather_shape *s)
{
    return s->packed ? s->rows / 2 : s->rows * (lac_gather_is_sparse(s) ? 1 : 2);
}
/* Values, places, and codes where W is packed. */
static inline int lac_gather_w_stage(const lac_gather_shape *s)
{
    return s->tile_outputs *
           (lac_gather_w_row(s) + (lac_gather_is_sparse(s) ? s->rows / 8 : 0) + (s->packed ? s->rows / 16 : 0));
}
static inline int lac_gather_x_stage(const lac_gather_shape *s) { return (s->tile_tokens + 63) / 64 * 64 * s->rows * 2; }
/* Whether the stream reads X that the copy engine cannot take out of a copy in the workspace; else gather.cu does, from where it is. */
static inline bool lac_gather_copies_x(const lac_gather_shape *s)
{
    return s->kind == LAC_GATHER_STREAM && (s->packed || s->width == 32 || s->meets);
}
/* Whether a stream is stream_few.cu's, whose stages are runs of steps of `rows` rows; else a stage is a step. */
enum { LAC_GATHER_RUN = 2 };
static inline bool lac_gather_streams_few(const lac_gather_shape *s) { return s->kind == LAC_GATHER_STREAM && s->meets; }
static inline int lac_gather_run(const lac_gather_shape *s) { return lac_gather_streams_few(s) ? LAC_GATHER_RUN : 1; }
static inline int lac_gather_stage(const lac_gather_shape *s)
{
    return (lac_gather_run(s) * (lac_gather_x_stage(s) + lac_gather_w_stage(s)) + 1023) / 1024 * 1024;
}
/* The two warpgroups have the stages of 64 outputs x 64 tokens in turns, and need staging to add up. */
static inline bool lac_gather_in_turns(const lac_gather_shape *s)
{
    return s->few && s->tile_outputs == 64 && s->tile_tokens == 64;
}
static inline int lac_gather_staging(int pieces) { return pieces * 2 * 8192; } /* 64 x 64 elements for each warpgroup */
/* The sums that the others of a cluster send, where parts divide them: half of the width for each of 256 threads. */
static inline int lac_gather_meeting(const lac_gather_shape *s)
{
    return s->meets && s->width / 2 % s->parts == 0 ? (s->parts - 1) * (s->width / 2 / s->parts) * 1024 : 0;
}
/* Barriers and row numbers of kernels/gather.cu, beside what lac_gather_shared counts. */
enum { LAC_GATHER_NUMBERS_BYTES = 3072 };

static inline unsigned lac_gather_shared(const lac_gather_shape *s)
{
    return (unsigned)(s->stages * lac_gather_stage(s) + lac_gather_staging(s->staging) +
                      (s->sums == LAC_GATHER_SUMS_KEPT ? lac_gather_meeting(s) : 0));
}

/* Bytes of X in the workspace (turn.h); 0 where the caller's X will always do. Only a stream can do with X as it is at times and not at others. */
uint64_t lac_gather_turned_bytes(const lac_problem *problem, const lac_gather_shape *shape);

/* Rows of X that a tile of outputs reads at most. */
int64_t lac_gather_rows(const lac_weight *weight, lac_gather_kind kind);
/* Clusters of so many blocks that run at once. */
double lac_gather_clusters_at_once(const lac_problem *problem, int blocks);

/* Fills in what follows from kind, rows, tile, width, cluster, resident, paired, height and groups; false when the kernel cannot run so. */
bool lac_gather_shape_complete(const lac_problem *problem, lac_gather_shape *shape);
/* Whether the copy engine brings X, where X is aligned: stream.cu, or gather_block.cu. It takes rows as they lie, so a stream whose
 * columns are in another order gathers instead. */
bool lac_gather_by_engine(const lac_problem *problem, const lac_gather_shape *shape);
/* Whether Y leaves the registers directly although the copy engine could take it. */
bool lac_gather_leaves_directly(const lac_problem *problem, const lac_gather_shape *shape);
/* gather_cost.c: what it costs so. */
lac_cost lac_gather_cost(const lac_problem *problem, const lac_gather_shape *shape);

/* The constants of gathered tiles there, beside each tile's own rate (`efficiency`): tests/test_cuda_gather_fit.c fits both to runs with named
 * tiles. Seconds, but for shares, the rate of round trips, and what each further stage overlaps. */
typedef struct lac_gather_constants {
    double fill;                       /* the first stages of a block and its last stores                                 */
    double change, epilogue;           /* a tile beside its stages, and one of 128 x 256 for its size                     */
    double last, last_share, direct;   /* the same of a block's last; of it, two on a multiprocessor; Y out of registers   */
    double one_stage, overlap_a_stage; /* what a block with one stage does in turn, and how much less with each further one */
    double trip, trip_rate;            /* a stage's round trip, and of L2's rate what all of them get                     */
    double joined, fours, few_fours;   /* of a tile's rate, what is left where row groups are joined                       */
} lac_gather_constants;

extern const lac_gather_constants lac_gather_fitted;
lac_cost lac_gather_cost_by(const lac_problem *problem, const lac_gather_shape *shape, const lac_gather_constants *constants);

/* Shows every way in which the kernel can take the problem, one after the other. */
typedef void lac_gather_look(const lac_problem *problem, const lac_gather_shape *shape, void *context);
void lac_gather_candidates(const lac_problem *problem, lac_gather_kind kind, lac_gather_look *look, void *context);
/* The shape that the model likes best; false when the kernel cannot take the problem. */
bool lac_gather_shape_make(const lac_problem *problem, lac_gather_kind kind, lac_gather_shape *out, lac_cost *cost);

#endif
