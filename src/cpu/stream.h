/* stream.h - the dataflow "stream" for any vector unit. kernels.c registers it once a unit. */
#ifndef LAC_CPU_STREAM_H
#define LAC_CPU_STREAM_H

#include "cpu/unit.h"

/* Second-level caches that W may fill where threads share out the tokens: it is read at 2 bytes a cycle, which the next level
 * gives as well. */
enum { LAC_CPU_STREAM_CACHES = 8 };

/* The kernel's config is its lac_cpu_unit. */
bool lac_cpu_stream_applies(const lac_problem *problem);
/* Rows of W in a strip, and vectors of tokens in a tile: what the cost depends on. */
int lac_cpu_stream_rows(const lac_weight *weight);
int lac_cpu_stream_tile_vectors(const lac_problem *problem);
/* Columns in a block. */
int64_t lac_cpu_stream_block_columns(const lac_problem *problem);
/* About how many of the slots of a row all rows of its strip share, of 1. */
double lac_cpu_stream_shared(const lac_problem *problem);
size_t lac_cpu_stream_workspace(const lac_problem *problem);
lac_status lac_cpu_stream_prepare(const lac_problem *problem, void **state);
lac_status lac_cpu_stream_execute(const lac_problem *problem, const void *state, const lac_call *call);
void lac_cpu_stream_release(void *state);

#endif
