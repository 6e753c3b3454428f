/* quickstart.c - the ten lines of the README: prune a dense W, compress it, multiply by it. */
#include <lacuna.h>
#include <stdio.h>
#include <stdlib.h>

#define TRY(call)                                                                                                              \
    do {                                                                                                                       \
        if ((call) != LAC_STATUS_OK) return fprintf(stderr, "%s: %s\n", #call, lac_last_error()), 1;                           \
    } while (0)

enum { M = 2, N = 64, K = 128 };
static float w[N][K], x[M][K], y[M][N];

int main(void)
{
    for (int i = 0; i < N * K; i++) w[i / K][i % K] = (float)(i * 37 % 101 - 50) / 50;
    for (int i = 0; i < M * K; i++) x[i / K][i % K] = (float)(i * 17 % 29 - 14) / 14;

    lac_matrix dense = {.data = w, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K};
    lac_plan_info info = {.size = sizeof info};
    lac_pattern pattern;
    lac_device *device;
    lac_mask *mask;
    lac_weight *weight;
    lac_plan *plan;
    TRY(lac_device_open("cpu", &device));
    TRY(lac_pattern_parse("2:4", &pattern));
    TRY(lac_prune(&dense, &pattern, NULL, &mask));         /* which weights stay   */
    TRY(lac_weight_compress(&dense, mask, NULL, &weight)); /* the compressed W     */
    TRY(lac_plan_create(device, weight, M, NULL, &plan));  /* a kernel, prepared   */
    TRY(lac_plan_get_info(plan, &info));
    size_t bytes = (info.workspace_bytes + 63) / 64 * 64;
    lac_execute_args args = {
        .size = sizeof args, .x = x, .y = y, .workspace = aligned_alloc(64, bytes), .workspace_bytes = bytes};
    TRY(lac_plan_execute(plan, &args)); /* Y = X * W^T */
    printf("y[0][0] = %g by %s\n", y[0][0], info.kernel);

    free(args.workspace);
    lac_plan_free(plan);
    lac_weight_free(weight);
    lac_mask_free(mask);
    lac_device_close(device);
    return 0;
}
