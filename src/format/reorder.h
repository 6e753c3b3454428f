/* reorder.h - masks and tensors with their rows and columns in another order. */
#ifndef LAC_FORMAT_REORDER_H
#define LAC_FORMAT_REORDER_H

#include "format/mask.h"

/* lac_mask_reorder with arguments that are right; with keep_rows the mask goes on having a row_perm, be it in order. */
lac_status lac_mask_reorder_with(const lac_mask *mask, const uint32_t *rows, const uint32_t *cols, bool keep_rows,
                                 lac_mask **out);

/* to[i][j] = from[rows[i]][cols[j]], elements of `bytes` each; NULL: as they are. from and to [n][k] do not overlap. */
void lac_reorder_elements(const void *from, int64_t n, int64_t k, uint64_t bytes, const uint32_t *rows, const uint32_t *cols,
                          void *to);

#endif
