/* obs.h - what the steps of second-order pruning share: factor, selection, correction. */
#ifndef LAC_PRUNE_OBS_H
#define LAC_PRUNE_OBS_H

#include <stdbool.h>

#include "core/pattern.h"
#include "format/mask.h"
#include "lacuna.h"

/* Columns that are corrected together, with the exact least-squares change of those that stay: a group, when it is no wider. */
enum { LAC_OBS_STEP_MOST = 64, LAC_OBS_STEP_FREE = 32 };
/* Groups up to this wide are selected with regard to how their weights stand in for each other. */
enum { LAC_OBS_JOINT_MOST = 32, LAC_OBS_BLOCKS_MOST = 160 /* groups of blocks */, LAC_OBS_VNM_MOST = 160 /* of V:N:M */ };

typedef struct lac_obs {
    int64_t n, k;
    lac_pattern pattern;
    lac_geometry geometry;
    int threads;          /* 1 or more */
    float *w;             /* [n][k]: as corrected so far */
    const float *moments; /* [k][k]: of the inputs, not damped */
    const float *u;       /* [k][k]: upper triangle, u^T u = the inverse of the damped moments */
    float *scores;        /* [n][widest group], or [n][k] when the distribution is free */
    double *scratch;      /* [threads][scratch_count] */
    int64_t scratch_count;
    double *inverse; /* [LAC_OBS_STEP_MOST][LAC_OBS_STEP_MOST]: of the step in hand */
    double *losses;  /* [n]: of a row, of the damped squared error of the outputs, so far */
    lac_mask *mask;
    const lac_mask *within; /* what may stay; the rest goes first. NULL: everything */
} lac_obs;

/* The inverse of the moments of the inputs from `from` on, restricted to columns [first, first + count): [count][count]. */
void lac_obs_inverse(const lac_obs *obs, int64_t from, int64_t first, int64_t count, double *out);

/* The inverse of lac_obs_inverse(obs, first, first, count, ..), with scratch [count][count]: their moments once all after them make up for what they lose. That is U^T U, with U the
 * triangle of u there, so this is V V^T, V = U^-1. */
void lac_obs_moments(const lac_obs *obs, int64_t first, int count, double *scratch, double *out);

/* Scores [n][count] of columns [first, first + count): nothing for what went in an earlier step, something for all the rest. */
void lac_obs_rank_within(float *scores, const lac_mask *within, int64_t first, int64_t count);

/* A group of single inputs, or a step of a free distribution, of which each row group keeps as many. */
typedef struct lac_obs_group {
    lac_obs *obs;
    const uint32_t *perm;  /* [n]: the rows in the order of row groups, or NULL when that is theirs */
    const double *inverse; /* F, [count][count]: the inverse of the inputs' moments, all before them settled */
    const double *moments; /* A = F^-1 */
    int64_t first;
    int count; /* at most LAC_OBS_JOINT_MOST */
    int kept;  /* negative: as many as the mask keeps now */
} lac_obs_group;

/* The row that stands at place i. */
int64_t lac_obs_group_row(const lac_obs_group *group, int64_t i);
/* The inputs, a bit each, that an earlier step of a schedule let go in all of these rows. */
uint64_t lac_obs_group_gone(const lac_obs_group *group, int64_t row, int64_t rows);
/* How many inputs the mask keeps now; and which it keeps from now on. */
int lac_obs_group_kept(const lac_obs_group *group, int64_t row_group);
void lac_obs_group_keep(const lac_obs_group *group, int64_t row_group, uint64_t kept);

/* obs_sets.c: whether every set of so many inputs is priced in units of so many rows, and doubles of scratch that takes a thread. */
bool lac_obs_sets_are_few(int count, int kept, int64_t rows);
int64_t lac_obs_sets_scratch(const lac_geometry *geometry);
/* Keeps the best of all sets in every row group. */
void lac_obs_sets_select(const lac_obs_group *group);
/* obs_exchange.c: one input after the other, and then exchanges; of one row group, and of all. */
int64_t lac_obs_exchange_scratch(const lac_geometry *geometry);
void lac_obs_exchange_group(const lac_obs_group *group, int thread, int64_t row_group);
void lac_obs_exchange_select(const lac_obs_group *group);

/* obs_vnm.c: chooses what stays of columns [first, first + count), a group of up to LAC_OBS_VNM_MOST, beginning with a choice by cost [n][count]. */
int64_t lac_obs_vnm_scratch(const lac_geometry *geometry);
lac_status lac_obs_select_vnm(lac_obs *obs, int64_t first, int count, const lac_mask *by_cost);

/* Doubles of scratch that selection needs a thread. */
int64_t lac_obs_select_scratch(const lac_obs *obs);
/* Chooses what stays of columns [first, first + count), a whole group, given the weights as they are now. */
lac_status lac_obs_select_group(lac_obs *obs, int64_t first, int64_t count);
/* By what a free distribution is shared out among the steps of a row group. By cost, inputs that can stand in for each other all seem cheap, and may all go; by effect, as if
 * nothing stood in for anything. Neither is always better, and neither is always better than even. */
typedef enum lac_obs_share {
    LAC_OBS_SHARE_EFFECT, /* what a unit does to the outputs by itself: w_Q^T H_QQ w_Q, H the moments */
    LAC_OBS_SHARE_COST,   /* what it costs when it alone goes: w_Q^T (F_QQ)^-1 w_Q                      */
    LAC_OBS_SHARE_EVEN,   /* the same everywhere                                                      */
    LAC_OBS_SHARES
} lac_obs_share;

/* Which of them are tried, a bit each: all. bench/accuracy/free.py builds programs that try one, to tell what each is worth. */
#ifndef LAC_OBS_SHARES_TRIED
#define LAC_OBS_SHARES_TRIED 7
#endif

/* Chooses what stays of the whole matrix, for free distributions. `shuffled`: rows in an order that goes to the mask, not by EVEN; else rows in order, also for patterns whose
 * rows may be shuffled. */
lac_status lac_obs_select_all(lac_obs *obs, lac_obs_share share, bool shuffled);
/* Chooses anew which of columns [first, first + count) stay, as many in each row group as the mask keeps there, given the weights as
 * they are now. Nothing changes for blocks. */
void lac_obs_select_step(lac_obs *obs, int64_t first, int64_t count);
/* obs_blocks.c: whether blocks of columns so many can be let go one after the other. */
bool lac_obs_blocks_are_joint(const lac_geometry *geometry, int64_t count);
/* Chooses which blocks of columns [first, first + count) stay, whole blocks of which the above holds: group_n of each row group, or as_many as the mask keeps there. */
lac_status lac_obs_select_blocks(lac_obs *obs, int64_t first, int64_t count, bool as_many);

#endif
