/* gpu_tiles.c - see gpu_tiles.h. */
#include "gpu/gpu_tiles.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/backend.h"
#include "cuda/program.h"
#include "format/sample.h"
#include "plan_case.h"

static const char *const kernels[] = {"cuda_f16_gather", "cuda_f16_gather_sparse", "cuda_f16_stream"};
static const char *const patterns[] = {"2:4",         "2:8",         "8:32",       "vw16:8:32",  "vw32:16:32",
                                       "vw32:4:32",   "vw64:16:32",  "vw64:3:32",  "vw128:8:32", "vw256:8:32",
                                       "64:2:8",      "128:2:8",     "256:2:16",   "64:4:8",     "bw16x16:1:4",
                                       "bw32x32:1:2", "bw64x64:1:4", "shfl32:25%", "shfl64:25%", "shfl128:50%"};
static const int64_t tokens[] = {1, 5, 8, 16, 24, 32, 48, 64, 65, 100, 128, 129, 200, 256, 300, 512, 1000, 2048, 8192, 20000};
static const int64_t sizes[][2] = {{64, 64},     {64, 256},   {64, 2048},  {128, 512},   {320, 64},
                                   {320, 512},   {512, 512},  {768, 768},  {1024, 1024}, {1024, 4096},
                                   {2048, 2048}, {3072, 768}, {4096, 512}, {4096, 2048}, {8192, 512}};
#define COUNT(array) (sizeof(array) / sizeof *(array))
static const double MOST_PRODUCTS = 3e9;

/* What two programs may differ in and still be the same tile: how many stages fit, and what the epilogue does. */
static bool tells_tiles_apart(const char *name)
{
    static const char *const others[] = {"LAC_STAGES",       "LAC_X_DTYPE",  "LAC_Y_DTYPE",    "LAC_W_DTYPE",
                                         "LAC_ACTIVATION",   "LAC_HAS_BIAS", "LAC_BIAS_DTYPE", "LAC_HAS_RESIDUAL",
                                         "LAC_HAS_ROW_PERM", "LAC_C_DTYPE"};
    for (size_t i = 0; i < COUNT(others); ++i)
        if (!strcmp(name, others[i])) return false;
    return true;
}

static uint64_t mix(uint64_t hash, const char *text, uint64_t value)
{
    for (; *text; ++text) hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return (hash ^ value) * UINT64_C(0x100000001b3) ^ hash >> 31;
}

static uint64_t tile_hash(const char *kernel, const lac_cuda_request *request)
{
    uint64_t hash = mix(mix(UINT64_C(0xcbf29ce484222325), kernel, 0), request->entry, 0);
    for (int i = 0; i < request->define_count; ++i)
        if (tells_tiles_apart(request->defines[i].name))
            hash = mix(hash, request->defines[i].name, (uint64_t)request->defines[i].value);
    return hash;
}

/* A problem and the tiles of its programs. */
typedef struct found {
    gpu_tile tile;
    double products;
    uint64_t hash[LAC_CUDA_MOST_REQUESTS];
    int hashes;
} found;

static int compare_products(const void *a, const void *b)
{
    double left = ((const found *)a)->products, right = ((const found *)b)->products;
    return (left > right) - (left < right);
}

static bool ask(const lac_problem *problem, found *out)
{
    lac_cuda_request requests[LAC_CUDA_MOST_REQUESTS];
    const lac_cuda_flow *flow = problem->kernel->config;
    if (!problem->kernel->applies(problem)) return false;
    assert_ok(flow->requests(problem, requests, &out->hashes));
    for (int i = 0; i < out->hashes; ++i) out->hash[i] = tile_hash(problem->kernel->info.name, &requests[i]);
    return true;
}

/* Every problem of the grid that a kernel takes. */
static found *ask_all(lac_device *target, size_t *count)
{
    size_t room = COUNT(kernels) * COUNT(patterns) * COUNT(tokens) * COUNT(sizes) * 2;
    found *all = malloc(room * sizeof *all);
    assert_non_null(all);
    *count = 0;
    for (size_t p = 0; p < COUNT(patterns); ++p)
        for (size_t s = 0; s < COUNT(sizes); ++s) {
            lac_pattern pattern = pattern_of(patterns[p]);
            lac_weight *weight = NULL;
            assert_ok(lac_weight_sample(&pattern, sizes[s][0], sizes[s][1], LAC_DTYPE_F16, &weight));
            for (size_t i = 0; i < 2 * COUNT(tokens) * COUNT(kernels); ++i) {
                found *f = &all[*count];
                f->tile = (gpu_tile){.kernel = kernels[i % COUNT(kernels)],
                                     .pattern = patterns[p],
                                     .m = tokens[i / COUNT(kernels) / 2],
                                     .n = sizes[s][0],
                                     .k = sizes[s][1],
                                     .layout = i / COUNT(kernels) % 2 ? LAC_LAYOUT_FEATURE_MAJOR : LAC_LAYOUT_TOKEN_MAJOR};
                f->products = (double)f->tile.m * (double)f->tile.n * (double)f->tile.k;
                lac_problem problem = {.device = target, .weight = weight, .m = f->tile.m};
                problem.options =
                    (lac_plan_options){.size = sizeof problem.options, .x_layout = f->tile.layout, .y_layout = f->tile.layout};
                assert_ok(lac_plan_options_resolve(weight, target, &problem.options));
                for (size_t k = 0; k < lac_cuda_kernel_count; ++k)
                    if (!strcmp(lac_cuda_kernels[k].info.name, f->tile.kernel)) problem.kernel = &lac_cuda_kernels[k];
                *count += f->products <= MOST_PRODUCTS && ask(&problem, f);
            }
            lac_weight_free(weight);
        }
    return all;
}

void gpu_tiles_make(lac_device *target, gpu_tiles *tiles)
{
    size_t count;
    found *all = ask_all(target, &count);
    uint64_t *seen = malloc((count + 1) * LAC_CUDA_MOST_REQUESTS * sizeof *seen);
    *tiles = (gpu_tiles){.tile = malloc((count + 1) * sizeof *tiles->tile)};
    assert_true(seen && tiles->tile);
    qsort(all, count, sizeof *all, compare_products);
    for (size_t i = 0; i < count; ++i) {
        bool fresh = false;
        for (int j = 0; j < all[i].hashes; ++j) {
            int at = 0;
            while (at < tiles->programs && seen[at] != all[i].hash[j]) ++at;
            if (at < tiles->programs) continue;
            seen[tiles->programs++] = all[i].hash[j];
            fresh = true;
        }
        if (fresh) tiles->tile[tiles->count++] = all[i].tile;
    }
    free(seen);
    free(all);
}

void gpu_tiles_free(gpu_tiles *tiles)
{
    free(tiles->tile);
    *tiles = (gpu_tiles){0};
}
