/* linear_layer.c - one pruned layer of a checkpoint, y = gelu(x W^T + bias), for several batch sizes.
 *
 *     lacuna prune model.safetensors sparse.safetensors --pattern 2:4
 *     example_linear_layer sparse.safetensors layers.0.up
 *
 * A plan is for one number of tokens: make one for each batch size that you serve, once, and keep them. They share the
 * weight and, as long as they run one after the other, one workspace, as large as the largest of them needs. */
#include <lacuna.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define TRY(call)                                                                                                              \
    do {                                                                                                                       \
        if ((call) != LAC_STATUS_OK) return fprintf(stderr, "%s: %s\n", #call, lac_last_error()), 1;                           \
    } while (0)

enum { BATCHES = 3 };
static const int64_t batches[BATCHES] = {1, 16, 100}; /* tokens, ascending */

/* All that has to be freed; what is NULL was never made. */
typedef struct layer {
    lac_file *file;
    lac_weight *weight;
    lac_device *device;
    lac_plan *plans[BATCHES];
    float *x, *y, *bias;       /* [m][k], [m][n], [n] */
    double *expected, *bounds; /* [m][n] */
    void *workspace;
} layer;

/* Loads NAME.weight, and NAME.bias where there is one. */
static int load(layer *l, const char *path, const char *name, lac_weight_info *info)
{
    char weight_name[256], bias_name[256];
    lac_tensor_info found = {.size = sizeof found};
    snprintf(weight_name, sizeof weight_name, "%s.weight", name);
    snprintf(bias_name, sizeof bias_name, "%s.bias", name);
    TRY(lac_file_open(path, &l->file));
    TRY(lac_file_load_weight(l->file, weight_name, &l->weight));
    TRY(lac_weight_get_info(l->weight, info));
    if (lac_file_find_tensor(l->file, bias_name, &found) != LAC_STATUS_OK) return 0;
    if (!(l->bias = calloc((size_t)info->n_out, sizeof *l->bias))) return perror("calloc"), 1;
    lac_matrix bias = {.data = l->bias, .dtype = LAC_DTYPE_F32, .rows = 1, .cols = info->n_out};
    TRY(lac_file_read_matrix(l->file, bias_name, &bias)); /* whatever dtype the file has, these are floats */
    return 0;
}

/* Is every output as near to the oracle's, which is computed in double, as the oracle says that rounding may take it? */
static int check(const layer *l, const lac_plan *plan, const lac_execute_args *args, const lac_plan_info *info)
{
    TRY(lac_plan_reference(plan, args, l->expected, l->bounds, info->n));
    for (int64_t i = 0; i < info->m * info->n; i++)
        if (!(fabs(l->y[i] - l->expected[i]) <= l->bounds[i])) {
            fprintf(stderr, "token %lld, output %lld: %g, not %g\n", (long long)(i / info->n), (long long)(i % info->n),
                    l->y[i], l->expected[i]);
            return 1;
        }
    return 0;
}

static int run(layer *l, const char *path, const char *name)
{
    const size_t most = (size_t)batches[BATCHES - 1];
    lac_weight_info weight = {.size = sizeof weight};
    size_t workspace_bytes = 0;
    if (load(l, path, name, &weight)) return 1;
    lac_plan_options options = {.size = sizeof options,
                                .x_dtype = LAC_DTYPE_F32, /* and so are y and bias; W may be f16 or bf16 */
                                .has_bias = l->bias != NULL,
                                .activation = LAC_ACTIVATION_GELU_ERF};
    TRY(lac_device_open("cpu", &l->device));
    for (int i = 0; i < BATCHES; i++) {
        lac_plan_info info = {.size = sizeof info};
        TRY(lac_plan_create(l->device, l->weight, batches[i], &options, &l->plans[i]));
        TRY(lac_plan_get_info(l->plans[i], &info));
        if (info.workspace_bytes > workspace_bytes) workspace_bytes = info.workspace_bytes;
    }
    workspace_bytes = (workspace_bytes + 64) / 64 * 64; /* aligned_alloc wants a multiple, and not 0 */
    l->workspace = aligned_alloc(64, workspace_bytes);
    l->x = calloc(most * (size_t)weight.k_in, sizeof *l->x);
    l->y = calloc(most * (size_t)weight.n_out, sizeof *l->y);
    l->expected = calloc(most * (size_t)weight.n_out, sizeof *l->expected);
    l->bounds = calloc(most * (size_t)weight.n_out, sizeof *l->bounds);
    if (!l->workspace || !l->x || !l->y || !l->expected || !l->bounds) return perror("malloc"), 1;
    for (size_t i = 0; i < most * (size_t)weight.k_in; i++) l->x[i] = (float)(i * 29 % 97) / 48 - 1;

    for (int i = 0; i < BATCHES; i++) {
        lac_plan_info info = {.size = sizeof info};
        lac_execute_args args = {.size = sizeof args,
                                 .x = l->x,
                                 .y = l->y,
                                 .bias = l->bias,
                                 .workspace = l->workspace,
                                 .workspace_bytes = workspace_bytes};
        TRY(lac_plan_get_info(l->plans[i], &info));
        TRY(lac_plan_execute(l->plans[i], &args));
        if (check(l, l->plans[i], &args, &info)) return 1;
        printf("%3lld tokens x %lld inputs -> %lld outputs%s by %s%s: right\n", (long long)info.m, (long long)info.k,
               (long long)info.n, l->bias ? " with bias" : "", info.kernel, info.is_dense ? " (dense is faster here)" : "");
    }
    return 0;
}

int main(int argc, char **argv)
{
    layer l = {0};
    if (argc != 3) return fprintf(stderr, "usage: %s FILE LAYER, for the tensor LAYER.weight of FILE\n", argv[0]), 2;
    int failed = run(&l, argv[1], argv[2]);
    for (int i = 0; i < BATCHES; i++) lac_plan_free(l.plans[i]);
    lac_device_close(l.device);
    lac_weight_free(l.weight);
    lac_file_close(l.file);
    free(l.x), free(l.y), free(l.bias), free(l.expected), free(l.bounds), free(l.workspace);
    return failed;
}
