/* reorder.c - masks and tensors with their rows and columns in another order: how an order of a layer's inputs is folded into the layer before it. Called
 * by users and by prune/layer.c and prune/checkpoint.c. */
#include "format/reorder.h"

#include <string.h>

#include "core/memory.h"
#include "core/status.h"

static int64_t at(const uint32_t *perm, int64_t i) { return perm ? perm[i] : i; }

static lac_status check_order(const char *name, const uint32_t *perm, int64_t count)
{
    uint8_t *seen = lac_allocate_zeroed((uint64_t)count);
    int64_t bad = 0;
    if (!seen) return lac_fail_memory("the check of an order", (uint64_t)count);
    while (bad < count && perm[bad] < count && !seen[perm[bad]]) seen[perm[bad++]] = 1;
    lac_release(seen);
    if (bad == count) return LAC_STATUS_OK;
    return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s[%lld] is %lu; each of 0 to %lld must come once", name, (long long)bad,
                    (unsigned long)perm[bad], (long long)count - 1);
}

/* A mask's order in new numbers: out[i] is where perm[i] has gone to. NULL stays NULL, and so what the move undoes becomes, unless it is kept. */
static lac_status renumber(const uint32_t *perm, const uint32_t *order, int64_t count, bool keep, uint32_t **out)
{
    *out = NULL;
    if (!perm) return LAC_STATUS_OK;
    uint64_t bytes = (uint64_t)count * sizeof *perm;
    uint32_t *made = lac_allocate(bytes), *place = lac_allocate(bytes);
    if (!made || !place) {
        lac_release(made);
        lac_release(place);
        return lac_fail_memory("an order", bytes);
    }
    for (int64_t i = 0; i < count; i++) place[at(order, i)] = (uint32_t)i;
    bool moves = keep || !order;
    for (int64_t i = 0; i < count; i++) {
        made[i] = place[perm[i]];
        moves |= made[i] != i;
    }
    lac_release(place);
    if (moves)
        *out = made;
    else
        lac_release(made);
    return LAC_STATUS_OK;
}

lac_status lac_mask_reorder_with(const lac_mask *mask, const uint32_t *rows, const uint32_t *cols, bool keep_rows,
                                 lac_mask **out)
{
    lac_mask *made = NULL;
    lac_status status = lac_mask_create(mask->n, mask->k, mask->has_pattern ? &mask->pattern : NULL, &made);
    if (status == LAC_STATUS_OK) status = renumber(mask->row_perm, rows, mask->n, keep_rows, &made->row_perm);
    if (status == LAC_STATUS_OK) status = renumber(mask->col_perm, cols, mask->k, false, &made->col_perm);
    if (status != LAC_STATUS_OK) {
        lac_mask_free(made);
        return status;
    }
    for (int64_t r = 0; r < mask->n; r++) {
        if (!cols) {
            memcpy(lac_mask_row_writable(made, r), lac_mask_row(mask, at(rows, r)), (size_t)mask->words * sizeof *mask->bits);
            continue;
        }
        for (int64_t c = 0; c < mask->k; c++)
            if (lac_mask_test(mask, at(rows, r), cols[c])) lac_mask_set(made, r, c);
    }
    *out = made;
    return LAC_STATUS_OK;
}

lac_status lac_mask_reorder(const lac_mask *mask, const uint32_t *rows, const uint32_t *cols, lac_mask **out)
{
    if (!mask) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "mask is NULL");
    if (!out) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "out is NULL");
    lac_status status = rows ? check_order("rows", rows, mask->n) : LAC_STATUS_OK;
    if (status == LAC_STATUS_OK && cols) status = check_order("cols", cols, mask->k);
    return status == LAC_STATUS_OK ? lac_mask_reorder_with(mask, rows, cols, false, out) : status;
}

/* One row of k elements. */
static void pick(const char *from, int64_t k, uint64_t bytes, const uint32_t *cols, char *to)
{
    if (!cols)
        memcpy(to, from, (size_t)k * bytes);
    else if (bytes == 2)
        for (int64_t c = 0; c < k; c++) memcpy(to + 2 * c, from + 2 * (size_t)cols[c], 2);
    else if (bytes == 4)
        for (int64_t c = 0; c < k; c++) memcpy(to + 4 * c, from + 4 * (size_t)cols[c], 4);
    else
        for (int64_t c = 0; c < k; c++) memcpy(to + (size_t)c * bytes, from + cols[c] * bytes, bytes);
}

void lac_reorder_elements(const void *from, int64_t n, int64_t k, uint64_t bytes, const uint32_t *rows, const uint32_t *cols,
                          void *to)
{
    uint64_t row = (uint64_t)k * bytes;
    if (row == 0) return; /* from may be NULL then */
    for (int64_t r = 0; r < n; r++)
        pick((const char *)from + (uint64_t)at(rows, r) * row, k, bytes, cols, (char *)to + (uint64_t)r * row);
}
