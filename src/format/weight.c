/* weight.c - the compressed weight as an object: its sizes, its one block of memory, its holders, its parts and how
 * kernels and the oracle read its index. Called by compress, validate, shard, files, kernels. */
#include "format/weight.h"

#include <string.h>

#include "core/dtype.h"
#include "core/memory.h"
#include "core/status.h"
#include "format/index.h"

static const char *const part_names[LAC_PART_COUNT] = {"values",  "index",    "positions", "counts",
                                                       "columns", "row_perm", "col_perm",  "scales"};

const char *lac_part_name(lac_part part)
{
    if ((unsigned)part >= LAC_PART_COUNT) return NULL;
    return part_names[part];
}

lac_status lac_weight_resolve(lac_weight_info *info, lac_geometry *geometry)
{
    lac_status status = lac_pattern_validate(&info->pattern);
    if (!status) status = lac_geometry_make(&info->pattern, info->n, info->k, geometry);
    if (status) return status;
    if (!lac_dtype_is_storage(info->dtype)) {
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "dtype is %s (%d): values are f32, f16 or bf16",
                        lac_dtype_name(info->dtype), (int)info->dtype);
    }
    if (info->encoding == LAC_INDEX_ENCODING_AUTO) info->encoding = lac_index_choose(geometry);
    status = lac_index_check_encoding(geometry, info->encoding);
    if (status) return status;
    if (info->n_out == 0) info->n_out = info->n;
    if (info->k_in == 0) info->k_in = info->k;
    if (info->n_out < info->n || info->n_out > LAC_MAX_DIMENSION) {
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "n_out is %lld, but must be at least n, %lld, and at most %d",
                        (long long)info->n_out, (long long)info->n, LAC_MAX_DIMENSION);
    }
    if (info->k_in < info->k || info->k_in > LAC_MAX_DIMENSION) {
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "k_in is %lld, but must be at least k, %lld, and at most %d",
                        (long long)info->k_in, (long long)info->k, LAC_MAX_DIMENSION);
    }
    if (!info->has_row_perm && info->n_out != info->n) {
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "n_out is %lld, but without row_perm it must be n, %lld",
                        (long long)info->n_out, (long long)info->n);
    }
    if (!info->has_col_perm && info->k_in != info->k) {
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "k_in is %lld, but without col_perm it must be k, %lld",
                        (long long)info->k_in, (long long)info->k);
    }
    return LAC_STATUS_OK;
}

int lac_weight_has_part(const lac_weight_info *info, const lac_geometry *geometry, lac_part part)
{
    switch (part) {
    case LAC_PART_VALUES:
        return 1;
    case LAC_PART_INDEX:
        return info->encoding == LAC_INDEX_ENCODING_PACKED || info->encoding == LAC_INDEX_ENCODING_BITMASK;
    case LAC_PART_POSITIONS:
        return info->pattern.family == LAC_FAMILY_VNM && geometry->slot_n < LAC_VNM_SELECTED;
    case LAC_PART_COUNTS:
    case LAC_PART_COLUMNS:
        return info->encoding == LAC_INDEX_ENCODING_COLUMNS;
    case LAC_PART_ROW_PERM:
        return info->has_row_perm != 0;
    case LAC_PART_COL_PERM:
        return info->has_col_perm != 0;
    case LAC_PART_SCALES:
        break;
    }
    return 0;
}

lac_status lac_weight_sizes(const lac_weight_info *info, const lac_geometry *geometry, int64_t slots, int64_t last_slots,
                            uint64_t bytes[LAC_PART_COUNT], int64_t *kept)
{
    uint64_t unit_k = (uint64_t)geometry->unit_k, unit_n = (uint64_t)geometry->unit_n, groups = (uint64_t)geometry->row_groups;
    uint64_t last_rows = groups ? (uint64_t)lac_geometry_rows(geometry, geometry->row_groups - 1) : 0;
    uint64_t values, value_bytes, part[LAC_PART_COUNT] = {0};
    bool fits;
    if (geometry->is_free) {
        /* Full row groups have unit_n rows, the last one last_rows. */
        uint64_t full, last;
        fits = lac_multiply_u64((uint64_t)(slots - last_slots), unit_k * unit_n, &full);
        fits = lac_multiply_u64((uint64_t)last_slots, unit_k * last_rows, &last) && fits;
        fits = lac_add_u64(full, last, &values) && fits;
        part[LAC_PART_COUNTS] = groups * 4;
        fits = lac_multiply_u64((uint64_t)slots, 4, &part[LAC_PART_COLUMNS]) && fits;
    } else {
        fits = lac_multiply_u64((uint64_t)geometry->n, (uint64_t)geometry->slots * unit_k, &values);
        uint64_t each = (uint64_t)lac_index_group_bytes(geometry, info->encoding);
        fits = lac_multiply_u64(groups, each, &part[LAC_PART_INDEX]) && fits;
    }
    if (lac_weight_has_part(info, geometry, LAC_PART_POSITIONS) && groups) {
        uint64_t full = (uint64_t)lac_positions_group_bytes(geometry, geometry->unit_n);
        uint64_t last = (uint64_t)lac_positions_group_bytes(geometry, (int64_t)last_rows);
        fits = lac_multiply_u64(groups - 1, full, &part[LAC_PART_POSITIONS]) && fits;
        fits = lac_add_u64(part[LAC_PART_POSITIONS], last, &part[LAC_PART_POSITIONS]) && fits;
    }
    fits = fits && lac_multiply_u64(values, lac_dtype_size(info->dtype), &value_bytes) && value_bytes <= INT64_MAX / 2;
    fits = fits && part[LAC_PART_POSITIONS] <= INT64_MAX / 8 && part[LAC_PART_INDEX] <= INT64_MAX / 8;
    if (!fits) {
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "a weight of %lld x %lld is too large", (long long)info->n,
                        (long long)info->k);
    }
    part[LAC_PART_VALUES] = value_bytes;
    if (info->has_row_perm) part[LAC_PART_ROW_PERM] = (uint64_t)info->n * 4;
    if (info->has_col_perm) part[LAC_PART_COL_PERM] = (uint64_t)info->k * 4;
    memcpy(bytes, part, sizeof part);
    *kept = (int64_t)values;
    return LAC_STATUS_OK;
}

lac_status lac_weight_create(const lac_weight_info *info, const lac_geometry *geometry, const uint64_t bytes[LAC_PART_COUNT],
                             int64_t kept, lac_weight **out)
{
    uint64_t offset[LAC_PART_COUNT + 1], total = 0;
    bool fits = true;
    for (int i = 0; i <= LAC_PART_COUNT; i++) {
        uint64_t size = i < LAC_PART_COUNT ? bytes[i] : geometry->is_free ? (uint64_t)(geometry->row_groups + 1) * 8 : 0;
        offset[i] = total;
        fits = fits && lac_add_u64(total, size, &total) && lac_add_u64(total, 63, &total);
        total &= ~UINT64_C(63);
    }
    if (!fits) return lac_fail_memory("weight", UINT64_MAX);
    lac_weight *w = lac_allocate_zeroed(sizeof *w);
    if (!w) return lac_fail_memory("weight", sizeof *w);
    w->storage = lac_allocate(total);
    if (!w->storage) {
        lac_release(w);
        return lac_fail_memory("weight", total);
    }
    atomic_init(&w->holders, 1);
    w->pattern = info->pattern;
    w->geometry = *geometry;
    w->dtype = info->dtype;
    w->encoding = info->encoding;
    w->n_out = info->n_out;
    w->k_in = info->k_in;
    w->kept = kept;
    for (int i = 0; i < LAC_PART_COUNT; i++) {
        if (!lac_weight_has_part(info, geometry, (lac_part)i)) continue;
        w->part[i].data = (char *)w->storage + offset[i];
        w->part[i].bytes = bytes[i];
    }
    if (geometry->is_free) w->first_slot = (int64_t *)(void *)((char *)w->storage + offset[LAC_PART_COUNT]);
    *out = w;
    return LAC_STATUS_OK;
}

lac_weight *lac_weight_retain(const lac_weight *weight)
{
    lac_weight *w = (lac_weight *)(uintptr_t)weight; /* only the count of holders changes */
    if (w) atomic_fetch_add_explicit(&w->holders, 1, memory_order_relaxed);
    return w;
}

void lac_weight_free(lac_weight *weight)
{
    if (!weight || atomic_fetch_sub_explicit(&weight->holders, 1, memory_order_acq_rel) != 1) return;
    lac_release(weight->storage);
    lac_release(weight);
}

lac_status lac_weight_get_info(const lac_weight *weight, lac_weight_info *info)
{
    if (!weight) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "weight is NULL");
    if (!info) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "info is NULL");
    lac_weight_info full = {.size = sizeof full, .pattern = weight->pattern, .n = weight->geometry.n, .k = weight->geometry.k};
    full.n_out = weight->n_out;
    full.k_in = weight->k_in;
    full.dtype = weight->dtype;
    full.encoding = weight->encoding;
    full.has_row_perm = weight->part[LAC_PART_ROW_PERM].data != NULL;
    full.has_col_perm = weight->part[LAC_PART_COL_PERM].data != NULL;
    full.kept = weight->kept;
    full.value_bytes = weight->part[LAC_PART_VALUES].bytes;
    for (int i = 1; i < LAC_PART_COUNT; i++) full.index_bytes += weight->part[i].bytes;
    full.dense_bytes = (uint64_t)full.n * (uint64_t)full.k * lac_dtype_size(full.dtype);
    return lac_write_struct("info", info, &full, sizeof full);
}

lac_status lac_weight_get_part(const lac_weight *weight, lac_part part, lac_span *out)
{
    if (!weight) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "weight is NULL");
    if (!out) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "out is NULL");
    if ((unsigned)part >= LAC_PART_COUNT) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "part is %d, which is none", (int)part);
    *out = weight->part[part];
    return LAC_STATUS_OK;
}

lac_status lac_weight_measure(lac_weight_info *info, uint64_t bytes[LAC_PART_COUNT])
{
    lac_weight_info full;
    lac_geometry geometry;
    uint64_t part[LAC_PART_COUNT];
    if (!info) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "info is NULL");
    lac_status status = lac_read_struct("info", info, &full, sizeof full);
    if (!status) status = lac_weight_resolve(&full, &geometry);
    if (status) return status;
    int64_t slots = geometry.is_free ? geometry.row_groups * geometry.selected : 0; /* below 2^62 */
    int64_t last_slots = geometry.is_free && geometry.row_groups ? geometry.selected : 0;
    status = lac_weight_sizes(&full, &geometry, slots, last_slots, part, &full.kept);
    if (status) return status;
    full.value_bytes = part[LAC_PART_VALUES];
    full.index_bytes = 0;
    for (int i = 1; i < LAC_PART_COUNT; i++) full.index_bytes += part[i];
    full.dense_bytes = (uint64_t)full.n * (uint64_t)full.k * lac_dtype_size(full.dtype);
    status = lac_write_struct("info", info, &full, sizeof full);
    if (!status && bytes) memcpy(bytes, part, sizeof part);
    return status;
}

const uint8_t *lac_weight_group_index(const lac_weight *w, int64_t group)
{
    const uint8_t *index = w->part[LAC_PART_INDEX].data;
    return index ? index + group * lac_index_group_bytes(&w->geometry, w->encoding) : NULL;
}

const uint8_t *lac_weight_group_positions(const lac_weight *w, int64_t group)
{
    const uint8_t *positions = w->part[LAC_PART_POSITIONS].data;
    return positions ? positions + group * lac_positions_group_bytes(&w->geometry, w->geometry.unit_n) : NULL;
}

int64_t lac_weight_units(const lac_weight *w, int64_t group, uint32_t *units)
{
    if (w->first_slot) {
        const uint32_t *columns = w->part[LAC_PART_COLUMNS].data;
        int64_t count = lac_weight_slots(w, group);
        if (count) memcpy(units, columns + w->first_slot[group], (size_t)count * sizeof *units);
        return count;
    }
    lac_index_decode(&w->geometry, w->encoding, lac_weight_group_index(w, group), units);
    return w->geometry.selected;
}

int lac_weight_position(const lac_weight *w, int64_t group, int64_t slot, int64_t row)
{
    const uint8_t *positions = lac_weight_group_positions(w, group);
    if (!positions) return (int)(slot % LAC_VNM_SELECTED);
    return lac_position_get(positions, slot * lac_geometry_rows(&w->geometry, group) + row);
}
