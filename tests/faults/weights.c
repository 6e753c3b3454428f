/* weights.c - masks and weights whose memory runs out; see faults.h. */
#include "faults/faults.h"

static lac_status try_mask_from_matrix(test_scene *s)
{
    return lac_mask_from_matrix(&s->pruned.view, &s->pattern, &s->new_mask);
}
static lac_status try_mask_from_nonzeros(test_scene *s) { return lac_mask_from_nonzeros(&s->pruned.view, &s->new_mask); }
static lac_status try_mask_with_pattern(test_scene *s) { return lac_mask_with_pattern(s->mask, &s->pattern, &s->new_mask); }
/* Of a mask with an order in both directions. */
static lac_status try_mask_reorder(test_scene *s)
{
    uint32_t rows[TEST_ROWS], cols[TEST_COLS];
    lac_mask *ordered = NULL;
    lac_prune_options options = {.size = sizeof options, .permute = LAC_PERMUTE_COLUMNS};
    for (uint32_t i = 0; i < TEST_ROWS; i++) rows[i] = TEST_ROWS - 1 - i;
    for (uint32_t i = 0; i < TEST_COLS; i++) cols[i] = TEST_COLS - 1 - i;
    lac_pattern pattern;
    lac_status status = lac_pattern_parse("2:4", &pattern);
    if (!status) status = lac_prune(&s->dense.view, &pattern, &options, &ordered);
    if (!status) status = lac_mask_reorder(ordered, rows, cols, &s->new_mask);
    lac_mask_free(ordered);
    return status;
}

static lac_status try_mask_apply(test_scene *s) { return lac_mask_apply(s->mask, &s->pruned.view); }

static lac_status try_mask_reads(test_scene *s)
{
    lac_mask_info info = {.size = sizeof info};
    double kept = 0, total = 0;
    lac_status status = lac_mask_get_info(s->mask, &info);
    if (!status) status = lac_mask_energy(s->mask, &s->dense.view, &kept, &total);
    if (status) return status;
    lac_mask_get(s->mask, 0, 0);
    return fault_ok_when(info.kept > 0 && kept > 0 && kept <= total);
}

static lac_status try_compress(test_scene *s) { return lac_weight_compress(&s->dense.view, s->mask, NULL, &s->new_weight); }

static lac_status try_compress_f16(test_scene *s)
{
    lac_compress_options options = {.size = sizeof options, .dtype = LAC_DTYPE_F16, .threads = 3};
    return lac_weight_compress(&s->dense.view, s->mask, &options, &s->new_weight);
}

static lac_status try_decompress(test_scene *s) { return lac_weight_decompress(s->weight, &s->out.view); }

static lac_status try_from_parts(test_scene *s)
{
    lac_weight_info info = {.size = sizeof info};
    lac_span parts[LAC_PART_COUNT];
    lac_status status = lac_weight_get_info(s->weight, &info);
    for (int i = 0; !status && i < LAC_PART_COUNT; i++) status = lac_weight_get_part(s->weight, (lac_part)i, &parts[i]);
    return status ? status : lac_weight_from_parts(&info, parts, &s->new_weight);
}

static lac_status try_weight_reads(test_scene *s)
{
    lac_weight_info info = {.size = sizeof info};
    lac_span span;
    lac_status status = lac_weight_get_info(s->weight, &info);
    if (!status) status = lac_weight_get_part(s->weight, LAC_PART_VALUES, &span);
    if (!status) status = lac_weight_measure(&info, NULL);
    lac_weight *again = lac_weight_retain(s->weight);
    lac_weight_free(again);
    return status ? status : fault_ok_when(again == s->weight);
}

static lac_status try_shard_n(test_scene *s)
{
    int64_t end = s->pattern.unit_n < TEST_ROWS ? s->pattern.unit_n : TEST_ROWS;
    return lac_weight_shard(s->weight, LAC_AXIS_N, 0, end, &s->new_weight);
}

static lac_status try_shard_k(test_scene *s)
{
    int64_t begin = (int64_t)s->pattern.unit_k * (s->pattern.m ? s->pattern.m : 1);
    return lac_weight_shard(s->weight, LAC_AXIS_K, begin < TEST_COLS ? begin : 0, TEST_COLS, &s->new_weight);
}

/* ---- checks of what a success made */

static void check_matrix(test_scene *s) { assert_same_matrix(&s->out, &s->pruned); }

/* 2 of every 4 of the matrix that was pruned, and all of the last 2. */
static void check_reordered(test_scene *s)
{
    lac_mask_info info = {.size = sizeof info};
    assert_ok(lac_mask_get_info(s->new_mask, &info));
    assert_int_equal(info.kept, TEST_ROWS * (TEST_COLS / 4 * 2 + 2));
    assert_true(info.col_perm != NULL);
}

/* ---- the table */

const fault_scenario fault_weights_scenarios[] = {
    {"lac_mask_from_matrix", try_mask_from_matrix, 0, fault_check_new_mask, true},
    {"lac_mask_from_nonzeros", try_mask_from_nonzeros, 0, fault_check_new_mask, true},
    {"lac_mask_with_pattern", try_mask_with_pattern, 0, fault_check_new_mask, true},
    {"lac_mask_reorder", try_mask_reorder, 0, check_reordered, true},
    {"lac_mask_apply", try_mask_apply, 0, 0, false},
    {"lac_mask_get_info lac_mask_energy lac_mask_get lac_mask_free", try_mask_reads, 0, 0, false},
    {"lac_weight_compress", try_compress, 0, fault_check_new_weight, true},
    {"lac_weight_compress", try_compress_f16, 0, fault_check_new_weight, true},
    {"lac_weight_decompress", try_decompress, 0, check_matrix, true},
    {"lac_weight_from_parts", try_from_parts, 0, fault_check_new_weight, true},
    {"lac_weight_get_info lac_weight_get_part lac_weight_measure lac_weight_retain lac_weight_free", try_weight_reads, 0, 0,
     false},
    {"lac_weight_shard", try_shard_n, 0, fault_check_new_weight, true},
    {"lac_weight_shard", try_shard_k, 0, fault_check_new_weight, true},
    {0},
};
