/* ring.c - products by cuda_f16_expand_ring whose ring comes round, on the emulator: blocks then wait for each other before they overwrite
 * what was read, and the rows of tests/gpu are too small for that. For ctest, which looks for races meanwhile, and for mutants:
 *
 *     EMULATOR_MULTIPROCESSORS=4 scripts/emulate.sh build sm_90 build/tests/emulator/emulated_ring [m n k]
 *
 * Small integers, so that every sum must be what plain loops give. */
#include <lacuna.h>

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TRY(call)                                                                                                              \
    do {                                                                                                                       \
        if (call) {                                                                                                            \
            fprintf(stderr, "ring: %s\n", lac_last_error());                                                                   \
            exit(1);                                                                                                           \
        }                                                                                                                      \
    } while (0)

static void *allocate(size_t bytes)
{
    void *block = calloc(1, bytes);
    if (!block) abort();
    return block;
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 16;
}

/* An integer of fewer than 11 bits as a half, and back. */
static uint16_t to_half(int value)
{
    int exponent = 0;
    double fraction = frexp(abs(value), &exponent);
    if (!value) return 0;
    return (uint16_t)((value < 0 ? 0x8000 : 0) | (exponent + 14) << 10 | ((int)(fraction * 2048) & 0x3ff));
}
static double of_half(uint16_t half)
{
    int exponent = half >> 10 & 31;
    double size = exponent ? ldexp((half & 0x3ff) | 0x400, exponent - 25) : ldexp(half & 0x3ff, -24);
    return half & 0x8000 ? -size : size;
}

typedef struct problem {
    int64_t m, n, k;
    float *w;    /* [n][k], pruned */
    uint16_t *x; /* [m][k]: 0 or 1 */
    uint16_t *y; /* [m][n] */
} problem;

/* The plan does without a ring where that is faster: whether the emulator, which lists its launches in this file, has run one. */
static bool had_ring(const char *file)
{
    char line[1024];
    bool had = false;
    FILE *list = fopen(file, "r");
    while (list && fgets(line, sizeof line, list)) had = had || !strncmp(line, "lac_expand_ring,", 16);
    if (list) fclose(list);
    remove(file);
    return had;
}

static void multiply(lac_device *device, const problem *p, const lac_weight *weight)
{
    lac_plan *plan;
    void *x, *y, *workspace;
    lac_plan_options options = {.size = sizeof options, .kernel = "cuda_f16_expand_ring", .no_timing = 1};
    lac_plan_info info = {.size = sizeof info};
    TRY(lac_plan_create(device, weight, p->m, &options, &plan));
    TRY(lac_plan_get_info(plan, &info));
    TRY(lac_device_allocate(device, (uint64_t)(p->m * p->k) * 2, &x));
    TRY(lac_device_allocate(device, (uint64_t)(p->m * p->n) * 2, &y));
    TRY(lac_device_allocate(device, info.workspace_bytes, &workspace));
    TRY(lac_device_upload(device, x, p->x, (uint64_t)(p->m * p->k) * 2));
    lac_execute_args args = {
        .size = sizeof args, .x = x, .y = y, .workspace = workspace, .workspace_bytes = info.workspace_bytes};
    TRY(lac_plan_execute(plan, &args));
    TRY(lac_device_synchronize(device));
    TRY(lac_device_download(device, p->y, y, (uint64_t)(p->m * p->n) * 2));
    lac_device_release(device, x);
    lac_device_release(device, y);
    lac_device_release(device, workspace);
    lac_plan_free(plan);
}

static int64_t count_wrong(const problem *p)
{
    int64_t wrong = 0;
    for (int64_t i = 0; i < p->m; ++i)
        for (int64_t j = 0; j < p->n; ++j) {
            float sum = 0;
            for (int64_t l = 0; l < p->k; ++l) sum += p->x[i * p->k + l] ? p->w[j * p->k + l] : 0;
            wrong += of_half(p->y[i * p->n + j]) != sum;
        }
    return wrong;
}

static int64_t run(lac_device *device, int64_t m, int64_t n, int64_t k)
{
    problem p = {
        m, n, k, allocate((size_t)(n * k) * sizeof(float)), allocate((size_t)(m * k) * 2), allocate((size_t)(m * n) * 2)};
    lac_matrix dense = {.data = p.w, .dtype = LAC_DTYPE_F32, .rows = n, .cols = k};
    lac_compress_options halves = {.size = sizeof halves, .dtype = LAC_DTYPE_F16};
    lac_pattern pattern;
    lac_mask *mask;
    lac_weight *weight;
    uint32_t random = 1;
    for (int64_t i = 0; i < n * k; ++i) p.w[i] = (float)(next_random(&random) % 7) - 3;
    for (int64_t i = 0; i < m * k; ++i) p.x[i] = to_half((int)(next_random(&random) % 2));
    TRY(lac_pattern_parse("8:32", &pattern));
    TRY(lac_prune(&dense, &pattern, NULL, &mask));
    TRY(lac_weight_compress(&dense, mask, &halves, &weight));
    TRY(lac_weight_decompress(weight, &dense));
    char launches[64];
    snprintf(launches, sizeof launches, "emulated_ring_%ld.csv", (long)getpid());
    setenv("EMULATOR_COUNT", launches, 1);
    multiply(device, &p, weight);
    bool had = had_ring(launches);
    int64_t wrong = had ? count_wrong(&p) : m * n;
    printf("ring: %lld x %lld x %lld: %lld outputs are wrong%s\n", (long long)m, (long long)n, (long long)k, (long long)wrong,
           had ? "" : ": there was no ring");
    lac_weight_free(weight);
    lac_mask_free(mask);
    free(p.w);
    free(p.x);
    free(p.y);
    return wrong;
}

int main(int count, char **argument)
{
    lac_device *device;
    int64_t wrong;
    TRY(lac_device_open("cuda:0", &device));
    if (count == 4)
        wrong = run(device, atoll(argument[1]), atoll(argument[2]), atoll(argument[3]));
    else /* inputs enough for a ring to come round within a tile, and tiles enough to come round between them */
        wrong = run(device, 256, 256, 2560) + run(device, 512, 1024, 1024);
    lac_device_close(device);
    return wrong != 0;
}
