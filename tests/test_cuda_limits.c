/* test_cuda_limits.c - problems at the edge of what the GPU's kernels can number: tokens within a tile of 2^31, no inputs at all, inputs
 * far apart. Kernels that cannot must say so, and some kernel must be left. On a target of which no GPU is needed. */
#include "tile_case.h"

#include "cuda/plan.h"
#include "cuda/slide_tile.h"
#include "cuda/state.h"

static const lac_kernel *kernel_named(const char *name)
{
    const lac_kernel *kernel = NULL;
    for (size_t i = 0; (kernel = lac_registry_kernel(i)) && strcmp(kernel->info.name, name) != 0; ++i) {}
    assert_non_null(kernel);
    return kernel;
}

static lac_problem problem_of(lac_device *target, const lac_weight *w, int64_t m, lac_layout layout)
{
    lac_problem problem = {.device = target, .weight = w, .m = m, .options = {.size = sizeof(lac_plan_options)}};
    problem.options.x_layout = problem.options.y_layout = layout;
    ASSERT_OK(lac_plan_options_resolve(w, target, &problem.options));
    return problem;
}

static bool takes(const lac_kernel *kernel, lac_problem problem)
{
    problem.kernel = kernel;
    return kernel->info.device == LAC_DEVICE_KIND_CUDA && kernel->applies(&problem);
}

/* How many kernels of the GPU there are for a problem. */
static int takers(const lac_problem *problem)
{
    const lac_kernel *kernel;
    int count = 0;
    for (size_t i = 0; (kernel = lac_registry_kernel(i)); ++i) count += takes(kernel, *problem);
    return count;
}

/* Kernels that cut tokens into tiles number the last one's padding too. */
static void tokens_up_to_the_last_int(void **state)
{
    (void)state;
    static const struct {
        const char *kernel, *pattern;
    } cases[] = {{"cuda_f16_gather", "vw64:1:4"},   {"cuda_f16_gather_sparse", "64:2:8"}, {"cuda_f16_stream", "2:4"},
                 {"cuda_f16_window", "vw32:1:4"},   {"cuda_f16_pick", "vw32:1:4"},        {"cuda_f16_choose", "vw128:1:4"},
                 {"cuda_f16_expand", "4:8"},        {"cuda_f16_expand_ring", "4:8"},      {"cuda_f16_mma", "vw64:1:4"},
                 {"cuda_f16_mma_sparse", "64:2:8"}, {"cuda_f16_mma_expand", "4:8"}};
    lac_device *target;
    ASSERT_OK(lac_cuda_target_open("sm_90a", &target));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        const lac_kernel *kernel = kernel_named(cases[i].kernel);
        lac_weight *w = tile_sample(cases[i].pattern, 128, 256);
        if (!takes(kernel, problem_of(target, w, 1000, LAC_LAYOUT_TOKEN_MAJOR)))
            fail_msg("%s does not take %s", cases[i].kernel, cases[i].pattern);
        for (int64_t less = 0; less < 8; ++less) {
            lac_problem most = problem_of(target, w, INT32_MAX - less, LAC_LAYOUT_TOKEN_MAJOR);
            if (takes(kernel, most))
                fail_msg("%s takes %lld tokens of %s", cases[i].kernel, (long long)most.m, cases[i].pattern);
        }
        lac_problem most = problem_of(target, w, INT32_MAX, LAC_LAYOUT_TOKEN_MAJOR);
        assert_true(takers(&most) > 0);
        lac_weight_free(w);
    }
    lac_device_close(target);
}

/* Kernels for few tokens number the inputs of a whole chunk, of which the last may end behind k. */
static void inputs_up_to_the_last_int(void **state)
{
    (void)state;
    static const char *const kernels[] = {"cuda_spmv_gather", "cuda_spmv_mma", "cuda_spmv_select"};
    static const char *const patterns[] = {"vw32:1:256", "1:32"};
    lac_device *target;
    ASSERT_OK(lac_cuda_target_open("sm_90a", &target));
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; ++i) {
        lac_weight *w = tile_sample(patterns[i], 1, INT32_MAX);
        lac_problem most = problem_of(target, w, 8, LAC_LAYOUT_TOKEN_MAJOR);
        for (size_t j = 0; j < sizeof kernels / sizeof *kernels; ++j)
            if (takes(kernel_named(kernels[j]), most)) fail_msg("%s takes 2^31 - 1 inputs of %s", kernels[j], patterns[i]);
        assert_true(takers(&most) > 0);
        lac_weight_free(w);
    }
    lac_device_close(target);
}

/* Kernels that number the slots of all windows of a vector: more than an int holds where a row keeps most of nearly 2^31 inputs. Of such a weight there is
 * nothing but its shape here; applying looks at no more. */
static void slots_up_to_the_last_int(void **state)
{
    (void)state;
    static const char *const kernels[] = {"cuda_f16_pick", "cuda_f16_window"};
    lac_device *target;
    ASSERT_OK(lac_cuda_target_open("sm_90a", &target));
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; ++i)
        for (int large = 0; large < 2; ++large) {
            lac_weight w = {.dtype = LAC_DTYPE_F16, .n_out = 64, .k_in = large ? INT32_MAX - 100 : INT32_MAX / 16};
            ASSERT_OK(lac_pattern_parse("vw64:15:16", &w.pattern));
            ASSERT_OK(lac_geometry_make(&w.pattern, w.n_out, w.k_in, &w.geometry));
            if (takes(kernel_named(kernels[i]), problem_of(target, &w, 1000, LAC_LAYOUT_TOKEN_MAJOR)) == large)
                fail_msg("%s and %lld inputs", kernels[i], (long long)w.k_in);
        }
    lac_device_close(target);
}

/* The same of the tokens of fp32. */
static void tokens_of_fp32_up_to_the_last_int(void **state)
{
    (void)state;
    static const char *const kernels[] = {"cuda_f32_fast", "cuda_f32_fast_mma", "cuda_f32_fast_dense"};
    lac_device *target;
    lac_pattern pattern;
    lac_weight *w;
    ASSERT_OK(lac_cuda_target_open("sm_90a", &target));
    ASSERT_OK(lac_pattern_parse("vw32:1:4", &pattern));
    ASSERT_OK(lac_weight_sample(&pattern, 32, 4, LAC_DTYPE_F32, &w));
    for (size_t j = 0; j < sizeof kernels / sizeof *kernels; ++j) {
        assert_true(takes(kernel_named(kernels[j]), problem_of(target, w, 1000, LAC_LAYOUT_FEATURE_MAJOR)));
        assert_false(takes(kernel_named(kernels[j]), problem_of(target, w, INT32_MAX, LAC_LAYOUT_FEATURE_MAJOR)));
    }
    lac_weight_free(w);
    lac_device_close(target);
}

/* Without inputs every pattern still has a kernel, and a kernel that keeps no weights has no program. */
static void no_inputs(void **state)
{
    (void)state;
    static const char *const patterns[] = {"2:4",       "3:7",    "2:8",   "vw5:2:4",   "vw64:1:4",
                                           "bw4x4:2:8", "64:2:8", "8:3:8", "shfl64:25%"};
    static const char *const archs[] = {"sm_75", "sm_80", "sm_90a"};
    for (size_t a = 0; a < sizeof archs / sizeof *archs; ++a) {
        lac_device *target;
        ASSERT_OK(lac_cuda_target_open(archs[a], &target));
        for (size_t i = 0; i < sizeof patterns / sizeof *patterns; ++i) {
            lac_weight *w = tile_sample(patterns[i], 40, 0);
            lac_problem problem = problem_of(target, w, 40, LAC_LAYOUT_FEATURE_MAJOR);
            assert_true(takers(&problem) > 0);
            assert_false(takes(kernel_named("cuda_f16_mma_expand"), problem));
            lac_weight_free(w);
        }
        lac_device_close(target);
    }
}

/* A narrow shard of a permuted weight: its few inputs are a little further apart than cuda_f16_window's ring is long, which leaves most
 * steps of a stream empty. AddressSanitizer watches the room that they are given. */
static void inputs_far_apart(void **state)
{
    (void)state;
    enum { K = 60480, APART = 1674, COUNT = 37 };
    lac_weight_info info = {.size = sizeof info, .n = 8, .k = K, .dtype = LAC_DTYPE_F16, .has_col_perm = true};
    uint64_t bytes[LAC_PART_COUNT];
    lac_span parts[LAC_PART_COUNT] = {{0}};
    ASSERT_OK(lac_pattern_parse("vw8:1:1", &info.pattern));
    ASSERT_OK(lac_weight_measure(&info, bytes));
    uint32_t *order = malloc(K * sizeof *order);
    assert_non_null(order);
    int64_t at = 0;
    for (uint32_t i = 0; i < COUNT; ++i) order[at++] = i * APART;
    for (uint32_t i = 0; i < K; ++i)
        if (i % APART || i / APART >= COUNT) order[at++] = i;
    void *blocks[LAC_PART_COUNT] = {NULL};
    for (int i = 0; i < LAC_PART_COUNT; ++i) {
        if (i != LAC_PART_COL_PERM && bytes[i]) assert_non_null(blocks[i] = calloc(bytes[i], 1));
        parts[i] = (lac_span){i == LAC_PART_COL_PERM ? (void *)order : blocks[i], bytes[i]};
    }
    lac_weight *whole, *shard;
    ASSERT_OK(lac_weight_from_parts(&info, parts, &whole));
    ASSERT_OK(lac_weight_shard(whole, LAC_AXIS_K, 0, COUNT, &shard));
    lac_device *target;
    ASSERT_OK(lac_cuda_target_open("sm_90a", &target));
    lac_problem problem = problem_of(target, shard, 8448, LAC_LAYOUT_TOKEN_MAJOR);
    lac_slide_shape shape;
    lac_slide_tiled tiled;
    lac_cost cost;
    assert_true(lac_slide_shape_make(&problem, &shape, &cost));
    ASSERT_OK(lac_slide_tile(shard, &shape, &tiled));
    assert_int_equal(tiled.first[tiled.streams], tiled.step_count);
    assert_true(tiled.step_count > COUNT * shape.batch); /* more steps than inputs */
    lac_slide_tiled_release(&tiled);
    lac_device_close(target);
    lac_weight_free(shard);
    lac_weight_free(whole);
    for (int i = 0; i < LAC_PART_COUNT; ++i) free(blocks[i]);
    free(order);
}

/* Multiprocessors that a cluster of a program takes: one for each block, or for as many as the program is compiled to run beside each other. */
static int64_t taken_by(const lac_cuda_request *r)
{
    int64_t cluster = 1, parts = 1, meets = 0, split = 1, beside = 1;
    for (int i = 0; i < r->define_count; i++) {
        const lac_cuda_define *d = &r->defines[i];
        if (!strcmp(d->name, "LAC_CLUSTER")) cluster = d->value;
        if (!strcmp(d->name, "LAC_PARTS")) parts = d->value;
        if (!strcmp(d->name, "LAC_MEETS")) meets = d->value;
        if (!strcmp(d->name, "LAC_SPLIT")) split = d->value;
        if (!strcmp(d->name, "LAC_BLOCKS")) beside = d->value;
    }
    int64_t blocks = cluster * split * (meets ? parts : 1);
    return (blocks + beside - 1) / beside;
}

/* The most of all programs that a kernel asks for; 0 where it does not apply. */
static int64_t taken_by_a_cluster(const lac_kernel *kernel, lac_problem problem)
{
    lac_cuda_request requests[LAC_CUDA_MOST_REQUESTS];
    int64_t most = 0;
    int count = 0;
    if (!takes(kernel, problem)) return 0;
    problem.kernel = kernel;
    ASSERT_OK(((const lac_cuda_flow *)kernel->config)->requests(&problem, requests, &count));
    for (int i = 0; i < count; i++)
        if (taken_by(&requests[i]) > most) most = taken_by(&requests[i]);
    return most;
}

/* A cluster's blocks run at once: no kernel may want more of them than there are multiprocessors, however well the model, which is not told
 * here that there are few, likes it. */
static void clusters_have_room(void **state)
{
    (void)state;
    static const struct {
        const char *kernel, *pattern;
        int64_t m, n, k;
        lac_layout layout;
    } cases[] = {{"cuda_f16_gather", "vw64:1:2", 16384, 4096, 2048, LAC_LAYOUT_FEATURE_MAJOR},
                 {"cuda_f16_stream", "2:4", 4096, 4096, 1024, LAC_LAYOUT_TOKEN_MAJOR},
                 {"cuda_f16_stream", "2:4", 16, 2048, 4096, LAC_LAYOUT_TOKEN_MAJOR},
                 {"cuda_f16_expand", "4:8", 4096, 4096, 1024, LAC_LAYOUT_TOKEN_MAJOR},
                 {"cuda_f16_expand_ring", "4:8", 4096, 4096, 1024, LAC_LAYOUT_TOKEN_MAJOR},
                 {"cuda_f16_expand_few", "8:32", 16, 512, 4096, LAC_LAYOUT_TOKEN_MAJOR},
                 {"cuda_f32_strict", "vw32:1:4", 64, 512, 2048, LAC_LAYOUT_TOKEN_MAJOR},
                 {"cuda_spmv_select", "vw32:1:4", 8, 512, 4096, LAC_LAYOUT_TOKEN_MAJOR},
                 {"cuda_spmv_gather", "8:32", 4, 32, 4096, LAC_LAYOUT_TOKEN_MAJOR},
                 {"cuda_spmv_mma", "8:32", 8, 32, 4096, LAC_LAYOUT_TOKEN_MAJOR}};
    lac_device *target;
    ASSERT_OK(lac_cuda_target_open("sm_90a", &target));
    lac_cuda_state *gpu = target->state;
    int all = gpu->target.multiprocessors;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const lac_kernel *kernel = kernel_named(cases[i].kernel);
        lac_weight *w = tile_sample(cases[i].pattern, cases[i].n, cases[i].k);
        lac_problem problem = problem_of(target, w, cases[i].m, cases[i].layout);
        gpu->target.multiprocessors = all;
        assert_true(taken_by_a_cluster(kernel, problem) > 1);
        for (int few = 1; few < 9; few++) {
            gpu->target.multiprocessors = few;
            int64_t taken = taken_by_a_cluster(kernel, problem);
            if (taken > few) fail_msg("%s: a cluster takes %d of %d multiprocessors", cases[i].kernel, (int)taken, few);
        }
        lac_weight_free(w);
    }
    lac_device_close(target);
}

/* One tile at least, no more than there are, and else as many as fit: of tiles that have nothing, all. */
static void bands_are_what_l2_keeps(void **state)
{
    (void)state;
    assert_int_equal(lac_cuda_band_within(10.0, 3.0, 100), 3);
    assert_int_equal(lac_cuda_band_within(10.0, 3.0, 2), 2);
    assert_int_equal(lac_cuda_band_within(10.0, 11.0, 100), 1);
    assert_int_equal(lac_cuda_band_within(10.0, 0.0, 7), 7);
    assert_int_equal(lac_cuda_band(5e6, 100), 4); /* of 20 MB */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tokens_up_to_the_last_int),
                                       cmocka_unit_test(no_inputs),
                                       cmocka_unit_test(inputs_up_to_the_last_int),
                                       cmocka_unit_test(slots_up_to_the_last_int),
                                       cmocka_unit_test(tokens_of_fp32_up_to_the_last_int),
                                       cmocka_unit_test(inputs_far_apart),
                                       cmocka_unit_test(clusters_have_room),
                                       cmocka_unit_test(bands_are_what_l2_keeps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
