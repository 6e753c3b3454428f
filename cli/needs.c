/* needs.c - what a processor or a GPU must have for a kernel, for the table of kernels. devices.c prints it. A CPU's kernel says it
 * in its name; of a GPU's kernel each architecture is asked whether a plan with it could be made. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

/* Problems among which every kernel finds one to its liking. */
static const char *const patterns[] = {"2:4", "8:32", "vw32:8:32", "vw128:8:32", "bw64x64:1:2", "64:2:8", "shfl64:25%"};
static const lac_dtype dtypes[] = {LAC_DTYPE_F32, LAC_DTYPE_F16};
static const int64_t tokens[] = {1, 8, 256, 2048};
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* In the order in which they came. */
static const char *const archs[] = {"sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120"};
enum { N = 256, K = 512 };

static int takes_weight(lac_device *device, const lac_kernel_info *kernel, const lac_weight *weight)
{
    int taken = 0;
    for (size_t m = 0; !taken && m < COUNT(tokens); m++)
        for (int how = 0; !taken && how < 6; how++) {
            lac_layout layout = how % 2 ? LAC_LAYOUT_FEATURE_MAJOR : LAC_LAYOUT_TOKEN_MAJOR;
            lac_plan_options options = {.size = sizeof options,
                                        .x_layout = layout,
                                        .y_layout = layout,
                                        .precision = (lac_precision)(LAC_PRECISION_STRICT + how / 2),
                                        .kernel = kernel->name,
                                        .predict_only = 1};
            lac_plan *plan = NULL;
            taken = lac_plan_create(device, weight, tokens[m], &options, &plan) == LAC_STATUS_OK;
            lac_plan_free(plan);
        }
    return taken;
}

static lac_weight *make_weight(const lac_pattern *pattern, lac_dtype dtype)
{
    float *zeros = calloc(N * K, sizeof *zeros);
    lac_matrix dense = {.data = zeros, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K};
    lac_compress_options options = {.size = sizeof options, .dtype = dtype};
    lac_mask *mask = NULL;
    lac_weight *weight = NULL;
    if (zeros && !lac_prune(&dense, pattern, NULL, &mask)) lac_weight_compress(&dense, mask, &options, &weight);
    lac_mask_free(mask);
    free(zeros);
    return weight;
}

/* 1 when the architecture runs it. */
static int runs_on(const char *arch, const lac_kernel_info *kernel)
{
    lac_device *device = NULL;
    int taken = 0;
    if (lac_device_open(arch, &device)) return 0;
    for (size_t i = 0; !taken && i < COUNT(patterns) * COUNT(dtypes); i++) {
        lac_pattern pattern;
        lac_dtype dtype = dtypes[i % COUNT(dtypes)];
        if (lac_pattern_parse(patterns[i / COUNT(dtypes)], &pattern) || !(kernel->families >> pattern.family & 1) ||
            !(kernel->weight_dtypes >> dtype & 1))
            continue;
        lac_weight *weight = make_weight(&pattern, dtype);
        taken = weight && takes_weight(device, kernel, weight);
        lac_weight_free(weight);
    }
    lac_device_close(device);
    return taken;
}

/* "sm_80 and later", or just those that do where a later one does not. */
static cli_text gpu_needs(const lac_kernel_info *kernel)
{
    cli_text out = {""};
    int runs[COUNT(archs)], first = -1, gap = 0;
    for (size_t i = 0; i < COUNT(archs); i++) {
        runs[i] = runs_on(archs[i], kernel);
        if (runs[i] && first < 0) first = (int)i;
        gap = gap || (first >= 0 && !runs[i]);
    }
    if (first >= 0 && !gap) snprintf(out.text, sizeof out.text, "%s and later", archs[first]);
    for (size_t i = 0; gap && i < COUNT(archs); i++) {
        size_t used = strlen(out.text);
        if (runs[i]) snprintf(out.text + used, sizeof out.text - used, "%s%s", used ? ", " : "", archs[i]);
    }
    return out;
}

cli_text cli_kernel_needs(const lac_kernel_info *kernel)
{
    static const char *const units[][2] = {
        {"cpu_avx2_", "AVX2, FMA, F16C"}, {"cpu_avx512_", "AVX-512 F, BW, DQ, VL"}, {"cpu_neon_", "NEON"}};
    cli_text out = {"any CPU"};
    if (kernel->device == LAC_DEVICE_KIND_CUDA) return gpu_needs(kernel);
    for (size_t i = 0; i < COUNT(units); i++)
        if (!strncmp(kernel->name, units[i][0], strlen(units[i][0]))) snprintf(out.text, sizeof out.text, "%s", units[i][1]);
    return out;
}
