/* gpu_tiles.c - see gpu_tiles.h. */
#include "gpu/gpu_tiles.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/backend.h"
#include "cuda/choose.h"
#include "cuda/choose_shape.h"
#include "cuda/expand.h"
#include "cuda/expand_shape.h"
#include "cuda/gather.h"
#include "cuda/kernels/expand_arguments.h"
#include "format/sample.h"
#include "gpu/gpu_patterns.h"
#include "plan_case.h"

/* ---- the grids */

const char *const gpu_tile_kernels[GPU_TILE_KERNELS] = {"cuda_f16_gather", "cuda_f16_gather_sparse", "cuda_f16_stream",
                                                        "cuda_f16_expand", "cuda_f16_expand_ring",   "cuda_f16_choose"};
static const char *const listed[] = {"4:8",         "8:16",         "16:32",      "4:16",        "8:32",        "3:7",
                                     "5:8",         "2:4",          "2:8",        "vw16:8:32",   "vw32:16:32",  "vw32:4:32",
                                     "vw64:16:32",  "vw64:3:32",    "vw128:8:32", "vw256:8:32",  "64:2:8",      "128:2:8",
                                     "256:2:16",    "64:2:32",      "64:4:8",     "bw16x16:1:4", "bw32x32:1:2", "bw64x64:1:4",
                                     "bw64x96:1:8", "bw64x32:1:32", "shfl32:25%", "shfl64:25%",  "shfl128:50%", "vw80:25%"};

enum { PATTERNS = sizeof listed / sizeof *listed };

/* The text of a pattern, which stays. */
static const char *pattern_numbered(int number)
{
    static char texts[PATTERNS][LAC_PATTERN_TEXT_SIZE];
    lac_pattern pattern;
    if (!gpu_patterns_are_random()) return listed[number];
    /* Whether a free element-wise pattern suits a kernel follows from the weight, which is another one here than when it runs. */
    do pattern = gpu_random_pattern(number);
    while (pattern.family == LAC_FAMILY_ELEMENT && pattern.density > 0.0 && (number += 5 * PATTERNS));
    number %= PATTERNS;
    assert_ok(lac_pattern_format(&pattern, texts[number], sizeof texts[number]));
    return texts[number];
}

typedef struct grid {
    const int64_t *tokens;
    size_t token_count;
    const int64_t (*sizes)[2]; /* outputs, inputs */
    size_t size_count;
    double most_products;
    int64_t most_elements; /* of X, and of Y: the host makes and compares them */
} grid;

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const int64_t reach_tokens[] = {1,   5,   8,   16,  24,  32,  48,   64,   65,   100,
                                       128, 129, 200, 256, 300, 512, 1000, 2048, 8192, 20000};
static const int64_t reach_sizes[][2] = {{64, 64},     {64, 256},   {64, 2048},  {128, 512},   {320, 64},
                                         {320, 512},   {512, 512},  {768, 768},  {1024, 1024}, {1024, 4096},
                                         {2048, 2048}, {3072, 768}, {4096, 512}, {4096, 2048}, {8192, 512}};
static const grid reach = {reach_tokens, COUNT(reach_tokens), reach_sizes, COUNT(reach_sizes), 3e9, INT64_MAX};

/* No tile ends where these end. Tokens are multiples of 8 and others: gathered X is read from where it is, or turned round first. */
static const int64_t several_tokens[] = {44, 100, 250, 1001, 2024, 4101, 4104, 6008, 8197, 8200, 16389, 16392, 33001, 66000};
static const int64_t several_sizes[][2] = {{70001, 70}, {601, 60},    {601, 100},   {601, 203},  {36001, 203},
                                           {1100, 330}, {9001, 330},  {330, 520},   {2105, 520}, {601, 1003},
                                           {601, 2050}, {2105, 2050}, {1100, 4100}, {3001, 4100}};
static const grid several = {several_tokens, COUNT(several_tokens), several_sizes, COUNT(several_sizes), 8e10, 40000000};

/* ---- what tells programs apart */

/* What two programs may differ in and still be the same tile. */
static bool tells_tiles_apart(const char *name)
{
    static const char *const others[] = {"LAC_STAGES",       "LAC_X_DTYPE",  "LAC_Y_DTYPE",    "LAC_W_DTYPE",
                                         "LAC_ACTIVATION",   "LAC_HAS_BIAS", "LAC_BIAS_DTYPE", "LAC_HAS_RESIDUAL",
                                         "LAC_HAS_ROW_PERM", "LAC_C_DTYPE",  "LAC_RUN",        "LAC_PER"};
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

/* What a tile of an expanding kernel does not tell: how W lies. */
static uint64_t pattern_hash(const gpu_tile *tile)
{
    uint64_t hash = mix(mix(UINT64_C(0xcbf29ce484222325), tile->kernel, 0), tile->pattern, 0);
    return mix(hash, "layout", (uint64_t)tile->layout);
}

/* Others turn X, add up parts or clear counters, and a block has one thing to do. */
static bool walks_over_tiles(const lac_cuda_request *request)
{
    static const char *const others[] = {"lac_turn", "lac_tile_reduce", "lac_expand_clear"};
    for (size_t i = 0; i < COUNT(others); ++i)
        if (!strcmp(request->entry, others[i])) return false;
    return true;
}

/* ---- how blocks walk */

/* Stages of a tile: fewer than LAC_EARLY, as many as there is room for in shared memory or in the ring, or more. */
typedef enum length { LENGTH_ONE, LENGTH_FITS, LENGTH_GOES_ROUND } length;

typedef struct walk {
    double tiles; /* of a block, in the mean of all                             */
    length length;
    bool other; /* gathered X is turned round first; several teams have a ring; chosen tokens are eights */
} walk;

static length length_of(double stages, int room)
{
    return stages <= 1.0 ? LENGTH_ONE : stages <= room ? LENGTH_FITS : LENGTH_GOES_ROUND;
}

/* A program for X that is not aligned has the same tiles, in no larger clusters. */
static walk walk_gathering(const lac_problem *problem)
{
    lac_gather_shape s;
    lac_cost cost;
    assert_true(lac_gather_shape_make(problem, ((const lac_gather_flow *)problem->kernel->config)->kind, &s, &cost));
    int64_t clusters = lac_cuda_target_of(problem->device)->multiprocessors * s.resident / s.cluster;
    double items = (double)(s.token_tiles * s.output_tiles / s.cluster * s.parts);
    return (walk){.tiles = s.meets ? 1.0 : items / (double)clusters,
                  .length = length_of(s.usual_stages / s.parts, s.stages),
                  .other = lac_gather_turned_bytes(problem, &s) > 0};
}

/* The same; beside a ring such a program has tiles of half the tokens, twice as many. */
static walk walk_expanding(const lac_problem *problem)
{
    lac_expand_shape s;
    lac_cost cost;
    assert_true(lac_expand_shape_make(problem, ((const lac_expand_flow *)problem->kernel->config)->ring, &s, &cost));
    if (s.team) {
        double items = (double)(s.output_tiles / s.cluster * (s.token_tiles / s.team));
        return (walk){.tiles = items / s.teams,
                      .length = length_of((double)s.steps, LAC_RING_SLOTS * LAC_RING_STEPS),
                      .other = s.teams > 1};
    }
    int64_t clusters = lac_cuda_target_of(problem->device)->multiprocessors / s.cluster;
    double items = (double)(s.token_tiles * s.output_tiles / s.cluster * s.parts);
    return (walk){.tiles = items / (double)clusters, .length = length_of((double)s.steps / s.parts, s.stages)};
}

static walk walk_choosing(const lac_problem *problem)
{
    lac_choose_shape s;
    lac_cost cost;
    assert_true(lac_choose_shape_make(problem, &s, &cost));
    int64_t clusters = lac_cuda_target_of(problem->device)->multiprocessors / LAC_CHOOSE_BLOCKS;
    return (walk){.tiles = (double)(s.quads * s.token_tiles) / (double)clusters,
                  .length = length_of(s.usual_stages, s.stages),
                  .other = problem->m % 8 == 0};
}

static bool chooses(const lac_problem *problem) { return problem->kernel->execute == lac_cuda_choose_execute; }
static bool expands(const lac_problem *problem) { return problem->kernel->execute == lac_cuda_expand_execute; }

static walk walk_of(const lac_problem *problem)
{
    return chooses(problem) ? walk_choosing(problem) : expands(problem) ? walk_expanding(problem) : walk_gathering(problem);
}

double gpu_tiles_a_block(const lac_problem *problem) { return walk_of(problem).tiles; }

/* ---- asking */

/* A problem and its programs. */
typedef struct found {
    gpu_tile tile;
    walk walk;
    double cost;   /* what it is sorted by ... */
    size_t number; /* ... and, of equals, this  */
    struct {
        uint64_t hash;
        bool walks;
    } program[LAC_CUDA_MOST_REQUESTS];
    int programs;
    bool expands;
} found;

bool gpu_tiles_problem(const lac_device *target, const lac_weight *weight, const gpu_tile *tile, lac_problem *problem)
{
    *problem = (lac_problem){.device = target, .weight = weight, .m = tile->m};
    problem->options = (lac_plan_options){.size = sizeof problem->options, .x_layout = tile->layout, .y_layout = tile->layout};
    assert_ok(lac_plan_options_resolve(weight, target, &problem->options));
    for (size_t i = 0; i < lac_cuda_kernel_count; ++i)
        if (!strcmp(lac_cuda_kernels[i].info.name, tile->kernel)) problem->kernel = &lac_cuda_kernels[i];
    assert_non_null(problem->kernel);
    return problem->kernel->applies(problem);
}

static void ask(const lac_problem *problem, found *out)
{
    lac_cuda_request requests[LAC_CUDA_MOST_REQUESTS];
    const char *kernel = problem->kernel->info.name;
    assert_ok(((const lac_cuda_flow *)problem->kernel->config)->requests(problem, requests, &out->programs));
    for (int i = 0; i < out->programs; ++i) {
        out->program[i].hash = tile_hash(kernel, &requests[i]);
        out->program[i].walks = walks_over_tiles(&requests[i]);
    }
    out->expands = expands(problem);
    out->walk = walk_of(problem);
    out->tile.tiles_a_block = out->walk.tiles;
}

static double products_of(const gpu_tile *t) { return (double)t->m * (double)t->n * (double)t->k; }

/* To find an order for so many rows takes the pruning many seconds. */
static bool is_slow_to_prune(const gpu_tile *t) { return t->n > 40000 && !strncmp(t->pattern, "shfl", 4); }

static bool is_within(const grid *g, const gpu_tile *t)
{
    return !is_slow_to_prune(t) && products_of(t) <= g->most_products && t->m * t->n <= g->most_elements &&
           t->m * t->k <= g->most_elements;
}

/* Every problem of the grid that a kernel takes. */
static found *ask_all(lac_device *target, const grid *g, size_t *count)
{
    size_t each = GPU_TILE_KERNELS * g->token_count * 2;
    found *all = malloc(PATTERNS * g->size_count * each * sizeof *all);
    assert_non_null(all);
    *count = 0;
    for (int p = 0; p < PATTERNS; ++p)
        for (size_t s = 0; s < g->size_count; ++s) {
            lac_pattern pattern = pattern_of(pattern_numbered(p));
            lac_weight *weight = NULL;
            assert_ok(lac_weight_sample(&pattern, g->sizes[s][0], g->sizes[s][1], LAC_DTYPE_F16, &weight));
            for (size_t i = 0; i < each; ++i) {
                found *f = &all[*count];
                lac_problem problem;
                f->tile = (gpu_tile){.kernel = gpu_tile_kernels[i % GPU_TILE_KERNELS],
                                     .pattern = pattern_numbered(p),
                                     .m = g->tokens[i / GPU_TILE_KERNELS / 2],
                                     .n = g->sizes[s][0],
                                     .k = g->sizes[s][1],
                                     .layout = i / GPU_TILE_KERNELS % 2 ? LAC_LAYOUT_FEATURE_MAJOR : LAC_LAYOUT_TOKEN_MAJOR};
                if (!is_within(g, &f->tile) || !gpu_tiles_problem(target, weight, &f->tile, &problem)) continue;
                ask(&problem, f);
                f->number = (*count)++;
            }
            lac_weight_free(weight);
        }
    return all;
}

/* ---- keeping */

typedef struct marks {
    uint64_t *mark;
    int count;
} marks;

/* Whether it was not there yet. */
static bool marks_add(marks *m, uint64_t mark)
{
    for (int i = 0; i < m->count; ++i)
        if (m->mark[i] == mark) return false;
    m->mark[m->count++] = mark;
    return true;
}

static void note_program(gpu_tiles *tiles, uint64_t hash, double tiles_a_block)
{
    int at = 0;
    while (at < tiles->programs && tiles->program[at].hash != hash) ++at;
    if (at == tiles->programs) tiles->program[tiles->programs++] = (gpu_program){.hash = hash};
    if (tiles_a_block > tiles->program[at].tiles_a_block) tiles->program[at].tiles_a_block = tiles_a_block;
}

/* Keeps those that have something that none before has: a tile, or a pattern that is expanded. With several tiles a block each of that is wanted
 * with tiles of every length, and a tile also both ways of `other`. */
static void keep(gpu_tiles *tiles, const found *all, size_t count, bool has_several)
{
    enum { MOST_MARKS = LAC_CUDA_MOST_REQUESTS + 1 };
    marks seen = {malloc((count + 1) * MOST_MARKS * sizeof *seen.mark), 0};
    tiles->tile = realloc(tiles->tile, ((size_t)tiles->count + count + 1) * sizeof *tiles->tile);
    tiles->program = realloc(tiles->program, ((size_t)tiles->programs + (count + 1) * MOST_MARKS) * sizeof *tiles->program);
    assert_true(seen.mark && tiles->tile && tiles->program);
    for (const found *f = all; f < all + count; ++f) {
        uint64_t length = has_several ? (uint64_t)f->walk.length : 0, other = has_several && f->walk.other;
        bool fresh = f->expands && marks_add(&seen, mix(pattern_hash(&f->tile), "length", length));
        for (int i = 0; i < f->programs; ++i)
            if (f->program[i].walks || !has_several)
                fresh |= marks_add(&seen, mix(mix(f->program[i].hash, "length", length), "other", other));
        if (!fresh) continue;
        tiles->tile[tiles->count++] = f->tile;
        for (int i = 0; i < f->programs; ++i)
            note_program(tiles, f->program[i].hash, f->program[i].walks ? f->walk.tiles : 0.0);
    }
    free(seen.mark);
}

static int compare_costs(const void *a, const void *b)
{
    const found *left = a, *right = b;
    if (left->cost != right->cost) return left->cost > right->cost ? 1 : -1;
    return (left->number > right->number) - (left->number < right->number);
}

static void keep_smallest(gpu_tiles *tiles, found *all, size_t count)
{
    for (size_t i = 0; i < count; ++i) all[i].cost = products_of(&all[i].tile);
    qsort(all, count, sizeof *all, compare_costs);
    keep(tiles, all, count, false);
}

/* Three tiles a block before two, two before one for most of them; of these what is done soonest, about: X is made, W is made and cut, Y is
 * compared four times, by the host; the reference multiplies. */
static void keep_several(gpu_tiles *tiles, found *all, size_t count)
{
    static const double X = 3e-9, W = 50e-9, Y = 20e-9, PRODUCT = 1e-12, FEWER = 1e3;
    size_t kept = 0;
    for (size_t i = 0; i < count; ++i) {
        if (all[i].walk.tiles <= 1.0) continue;
        const gpu_tile *t = &all[i].tile;
        double m = (double)t->m, n = (double)t->n, k = (double)t->k, tiles_a_block = all[i].walk.tiles;
        all[i].cost = X * m * k + W * n * k + Y * m * n + PRODUCT * m * n * k;
        all[i].cost += FEWER * (tiles_a_block >= 3.0 ? 0 : tiles_a_block >= 2.0 ? 1 : 2);
        all[kept++] = all[i];
    }
    qsort(all, kept, sizeof *all, compare_costs);
    keep(tiles, all, kept, true);
}

static grid within(grid g, double most_products)
{
    g.most_products = fmin(g.most_products, most_products);
    return g;
}

void gpu_tiles_make(lac_device *target, double most_products, gpu_tiles *tiles)
{
    size_t count;
    grid small = within(reach, most_products), large = within(several, most_products);
    *tiles = (gpu_tiles){0};
    found *all = ask_all(target, &small, &count);
    keep_smallest(tiles, all, count);
    free(all);
    all = ask_all(target, &large, &count);
    keep_several(tiles, all, count);
    free(all);
}

void gpu_tiles_free(gpu_tiles *tiles)
{
    free(tiles->tile);
    free(tiles->program);
    *tiles = (gpu_tiles){0};
}

double gpu_tiles_most(const gpu_tiles *tiles, const lac_problem *problem)
{
    found f = {0};
    double least = 1e9;
    ask(problem, &f);
    for (int i = 0; i < f.programs; ++i) {
        double most = 0.0;
        for (int j = 0; j < tiles->programs; ++j)
            if (tiles->program[j].hash == f.program[i].hash) most = tiles->program[j].tiles_a_block;
        if (f.program[i].walks && most < least) least = most;
    }
    return least;
}
