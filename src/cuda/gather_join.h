/* gather_join.h - columns that several row groups read, in fours of which no row group reads more than two. wgmma.sp takes two of each
 * four for every output by itself: so low row groups share a tile, and each multiplies its own columns alone. gather_tile.c calls it. */
#ifndef LAC_CUDA_GATHER_JOIN_H
#define LAC_CUDA_GATHER_JOIN_H

#include <stdbool.h>
#include <stdint.h>

/* Row groups that a column's word has bits for. */
enum { LAC_GATHER_MOST_JOINED = 64 };

/* `readers` [k]: a bit for each row group that reads the column. Writes the columns that any reads to `columns`, four by four, -1 where a
 * four has a hole, and returns how many places it has written: a multiple of four, at most four for each such column. Near columns stay
 * near. */
int64_t lac_gather_join(const uint64_t *readers, int64_t k, int32_t *columns);

/* The places that it fills, about, where each of `groups` row groups reads `reads` of k columns, and which does not depend on the others'.
 * `in_blocks`: a few neighbours each time. */
double lac_gather_joined_places(double groups, double reads, double k, bool in_blocks);

#endif
