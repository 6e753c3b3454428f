/* gpu_or_cpu.c - the same code for a GPU and a CPU: the library's own calls allocate and copy, so no CUDA header is needed.
 *
 *     example_gpu_or_cpu            on the fastest device that there is
 *     example_gpu_or_cpu cuda:0     on that one, or on the CPU where it cannot do it
 *
 * It shows what a program should do with errors: on failure a call has made nothing and changed nothing, so it is enough to
 * release what was made before it. The status says whether there is another way; the text is for people. */
#include <lacuna.h>
#include <stdio.h>

enum { M = 4, N = 96, K = 256 };
static float w[N][K], x[M][K], y[M][N]; /* whole numbers, so small that every sum of products is exact in fp32 */

/* 64 outputs at a time select 4 of every 8 inputs, and each of them keeps 2 of those. */
static lac_status make_weight(lac_weight **out)
{
    lac_matrix dense = {.data = w, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K};
    lac_pattern pattern;
    lac_mask *mask = NULL;
    lac_status status = lac_pattern_parse("64:2:8", &pattern);
    if (status == LAC_STATUS_OK) status = lac_prune(&dense, &pattern, NULL, &mask);
    if (status == LAC_STATUS_OK) status = lac_weight_compress(&dense, mask, NULL, out);
    lac_mask_free(mask); /* NULL is fine, here and in every other call that frees */
    return status;
}

/* y = x W^T on the named device, and its name to standard output. */
static lac_status multiply(const char *name, const lac_weight *weight)
{
    lac_device_info device_info = {.size = sizeof device_info};
    lac_plan_info plan_info = {.size = sizeof plan_info};
    lac_execute_args args = {.size = sizeof args};
    lac_device *device = NULL;
    lac_plan *plan = NULL;
    void *x_there = NULL, *y_there = NULL, *workspace = NULL; /* in the device's memory; on a CPU that is plain memory */
    lac_status status;

    if ((status = lac_device_open(name, &device)) != LAC_STATUS_OK) goto done;
    if ((status = lac_device_get_info(device, &device_info)) != LAC_STATUS_OK) goto done;
    if ((status = lac_plan_create(device, weight, M, NULL, &plan)) != LAC_STATUS_OK) goto done;
    if ((status = lac_plan_get_info(plan, &plan_info)) != LAC_STATUS_OK) goto done;
    if ((status = lac_device_allocate(device, sizeof x, &x_there)) != LAC_STATUS_OK) goto done;
    if ((status = lac_device_allocate(device, sizeof y, &y_there)) != LAC_STATUS_OK) goto done;
    if ((status = lac_device_allocate(device, plan_info.workspace_bytes, &workspace)) != LAC_STATUS_OK) goto done;
    if ((status = lac_device_upload(device, x_there, x, sizeof x)) != LAC_STATUS_OK) goto done;

    /* On a GPU this returns at once. The stream is the default one here; a CUstream or a cudaStream_t goes into .stream. */
    args.x = x_there;
    args.y = y_there;
    args.workspace = workspace;
    args.workspace_bytes = plan_info.workspace_bytes;
    if ((status = lac_plan_execute(plan, &args)) != LAC_STATUS_OK) goto done;
    if ((status = lac_device_download(device, y, y_there, sizeof y)) != LAC_STATUS_OK) goto done; /* waits for the product */
    printf("%s (%s), by %s\n", device_info.name, device_info.model, plan_info.kernel);
    if (plan_info.note[0]) printf("note: %s\n", plan_info.note);

done:
    if (status != LAC_STATUS_OK) fprintf(stderr, "%s: %s: %s\n", name, lac_status_name(status), lac_last_error());
    lac_device_release(device, workspace);
    lac_device_release(device, y_there);
    lac_device_release(device, x_there);
    lac_plan_free(plan);
    lac_device_close(device);
    return status;
}

/* How many of y are not what plain loops over the weight with its zeros give. */
static int count_wrong(const lac_weight *weight)
{
    lac_matrix pruned = {.data = w, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K};
    int wrong = 0;
    if (lac_weight_decompress(weight, &pruned) != LAC_STATUS_OK) return M * N;
    for (int i = 0; i < M * N; i++) {
        float sum = 0;
        for (int j = 0; j < K; j++) sum += x[i / N][j] * w[i % N][j];
        wrong += y[i / N][i % N] != sum;
    }
    return wrong;
}

int main(int argc, char **argv)
{
    lac_weight *weight = NULL;
    for (int i = 0; i < N * K; i++) w[i / K][i % K] = (float)(i * 37 % 101 - 50);
    for (int i = 0; i < M * K; i++) x[i / K][i % K] = (float)(i * 17 % 29 - 14);
    if (make_weight(&weight) != LAC_STATUS_OK) return fprintf(stderr, "%s\n", lac_last_error()), 1;

    lac_status status = multiply(argc > 1 ? argv[1] : "auto", weight);
    /* Reasons to try another device: there is no such one, no compiler for its kernels, no memory left on it, or it, or its
     * driver, has failed. Anything else is a mistake in this program, which would fail on the CPU just the same. */
    if (status == LAC_STATUS_NOT_FOUND || status == LAC_STATUS_UNSUPPORTED || status == LAC_STATUS_OUT_OF_MEMORY ||
        status == LAC_STATUS_DEVICE) {
        fprintf(stderr, "the CPU does it instead\n");
        status = multiply("cpu", weight);
    }
    int wrong = status == LAC_STATUS_OK ? count_wrong(weight) : 0;
    if (wrong) fprintf(stderr, "%d of %d outputs are wrong\n", wrong, M * N);
    lac_weight_free(weight);
    return status != LAC_STATUS_OK || wrong;
}
