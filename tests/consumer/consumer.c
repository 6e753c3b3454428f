/* consumer.c - a stranger's program: prunes a small matrix, compresses, multiplies and checks the product by hand.
 * consumer.cpp includes it, so it is written in what C11 and C++17 have in common. Built and run by run.sh. */
#include <lacuna.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, lac_last_error());
    return 1;
}

int main(void)
{
    /* 2:4 keeps the two largest of every four */
    float w[2][8] = {{1, -4, 3, 0, 5, 6, -7, 8}, {9, 1, 1, 8, 0, 2, 0, 3}}; /* [n][k] */
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};                                  /* [1][k] */
    const float expected[2] = {-8 + 9 - 49 + 64, 9 + 32 + 12 + 24};
    float y[2] = {0, 0}; /* [1][n] */

    lac_matrix dense;
    memset(&dense, 0, sizeof dense);
    dense.data = w;
    dense.dtype = LAC_DTYPE_F32;
    dense.rows = 2;
    dense.cols = 8;

    lac_pattern pattern;
    lac_mask *mask = NULL;
    lac_weight *weight = NULL;
    lac_device *device = NULL;
    lac_plan *plan = NULL;
    lac_plan_info info;
    memset(&info, 0, sizeof info);
    info.size = sizeof info;
    lac_execute_args args;
    memset(&args, 0, sizeof args);
    args.size = sizeof args;
    args.x = x;
    args.y = y;
    if (strcmp(lac_version(), "0.1.0") != 0) return fail("lac_version");
    if (lac_pattern_parse("2:4", &pattern) != LAC_STATUS_OK) return fail("lac_pattern_parse");
    if (lac_prune(&dense, &pattern, NULL, &mask) != LAC_STATUS_OK) return fail("lac_prune");
    if (lac_weight_compress(&dense, mask, NULL, &weight) != LAC_STATUS_OK) return fail("lac_weight_compress");
    if (lac_device_open("cpu", &device) != LAC_STATUS_OK) return fail("lac_device_open");
    if (lac_plan_create(device, weight, 1, NULL, &plan) != LAC_STATUS_OK) return fail("lac_plan_create");
    if (lac_plan_get_info(plan, &info) != LAC_STATUS_OK) return fail("lac_plan_get_info");
    args.workspace_bytes = (info.workspace_bytes + 63) / 64 * 64;
    args.workspace = args.workspace_bytes ? aligned_alloc(64, args.workspace_bytes) : NULL;
    if (lac_plan_execute(plan, &args) != LAC_STATUS_OK) return fail("lac_plan_execute");
    free(args.workspace);
    lac_plan_free(plan);
    lac_device_close(device);
    lac_weight_free(weight);
    lac_mask_free(mask);
    if (memcmp(y, expected, sizeof y) != 0) {
        fprintf(stderr, "y is %g %g, not %g %g\n", y[0], y[1], expected[0], expected[1]);
        return 1;
    }
    printf("lacuna %s: ok\n", lac_version());
    return 0;
}
