/* stream_pairs.h - two rows at a time for dataflow "stream": which rows of W go together, and their slots. */
#ifndef LAC_CPU_STREAM_PAIRS_H
#define LAC_CPU_STREAM_PAIRS_H

#include "cpu/stream_state.h"

typedef struct lac_cpu_stream_pairs lac_cpu_stream_pairs;

/* For `threads` threads; NULL without memory. What sizes the state must be there already, and room for its strips. */
lac_cpu_stream_pairs *lac_cpu_stream_pairs_make(const lac_problem *problem, lac_cpu_stream_state *state, int threads);
void lac_cpu_stream_pairs_release(lac_cpu_stream_pairs *pairs); /* NULL is fine */

/* Both are tasks of lac_parallel_for_each: the pairs of an item in every block, and how many slots each needs; then, when it is
 * known where the item's slots begin, what these hold. */
void lac_cpu_stream_pairs_choose(void *pairs, int thread, int64_t item);
void lac_cpu_stream_pairs_write(void *pairs, int thread, int64_t item);

#endif
