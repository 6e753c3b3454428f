/* vector_select_pack.h - weights whose rows keep inputs of their own, cut for kernels/vector_select.cu. vector_select_tile.c calls it. */
#ifndef LAC_CUDA_VECTOR_SELECT_PACK_H
#define LAC_CUDA_VECTOR_SELECT_PACK_H

#include "cuda/vector_select_tile.h"

enum { LAC_PACK_INPUTS = 32, LAC_PACK_ROWS = 32, LAC_PACK_FOURS = 8, LAC_PACK_UNITS = 4 };

/* Deals 32 inputs out to eight fours. keeps[input]: a bit for each row that keeps it; `bank` is that of the first input's row of X. Input
 * four[q][i] is the i-th of four q. Where that can be, fours 0 to 3 lie in the lower four banks and the others in the upper four, or the other
 * way round when `upper_first`, each in four different ones. As few rows as can be keep more than two of a four. */
void lac_pack_deal(const uint32_t keeps[LAC_PACK_INPUTS], int bank, bool upper_first, uint8_t four[LAC_PACK_FOURS][4]);

/* Where four q's code of two bits stands in a row's 16. */
static inline int lac_pack_code_at(int q) { return q < 4 ? 4 * q : 4 * q - 14; }

lac_status lac_select_pack(const lac_weight *weight, const lac_select_shape *shape, lac_select_tiled *out);

#endif
