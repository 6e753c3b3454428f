/* test_gpu_runtime.c - what the runtime promises on a GPU, whatever the kernel: any stream, many threads, graphs; no memory
 * kept; clear errors. */
#include <dlfcn.h>
#include <pthread.h>

#include "gpu/gpu_case.h"
#include "gpu/test_gpu.h"

/* The calls of the driver that a user would make: declared here, found in the library that Lacuna has opened. */
static struct {
    int (*context_set)(void *context);
    int (*context_retain)(void **context, int device);
    int (*context_release)(int device);
    int (*memory_info)(size_t *available, size_t *total);
    int (*stream_create)(void **stream, unsigned flags);
    int (*stream_destroy)(void *stream);
    int (*stream_wait)(void *stream);
    int (*capture_begin)(void *stream, int mode);
    int (*capture_end)(void *stream, void **graph);
    int (*graph_instantiate)(void **executable, void *graph, unsigned long long flags);
    int (*graph_destroy)(void *graph);
    int (*executable_destroy)(void *executable);
    int (*graph_launch)(void *executable, void *stream);
} cu;

static lac_device *device;
static void *context;

static int open_all(void **state)
{
    (void)state;
    static const struct {
        void *field;
        const char *name;
    } functions[] = {{&cu.context_set, "cuCtxSetCurrent"},
                     {&cu.context_retain, "cuDevicePrimaryCtxRetain"},
                     {&cu.context_release, "cuDevicePrimaryCtxRelease_v2"},
                     {&cu.memory_info, "cuMemGetInfo_v2"},
                     {&cu.stream_create, "cuStreamCreate"},
                     {&cu.stream_destroy, "cuStreamDestroy_v2"},
                     {&cu.stream_wait, "cuStreamSynchronize"},
                     {&cu.capture_begin, "cuStreamBeginCapture_v2"},
                     {&cu.capture_end, "cuStreamEndCapture"},
                     {&cu.graph_instantiate, "cuGraphInstantiateWithFlags"},
                     {&cu.graph_destroy, "cuGraphDestroy"},
                     {&cu.executable_destroy, "cuGraphExecDestroy"},
                     {&cu.graph_launch, "cuGraphLaunch"}};
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    assert_non_null(library);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; ++i) {
        void *symbol = dlsym(library, functions[i].name);
        assert_non_null(symbol);
        memcpy(functions[i].field, &symbol, sizeof symbol);
    }
    assert_ok(lac_device_open("cuda:0", &device));
    assert_int_equal(cu.context_retain(&context, 0), 0);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    cu.context_release(0);
    lac_device_close(device);
    return 0;
}

/* ---- a small product in device memory, with its right answer */

typedef struct product {
    lac_weight *weight;
    lac_plan *plan;
    void *x, *y, *workspace;
    lac_execute_args args;
    float *want; /* [m][n] what the first, plain execution gave; itself judged by the oracle elsewhere */
    int64_t m, n, k;
} product;

static product product_make(const char *pattern, const char *kernel, int64_t m, int64_t n, int64_t k)
{
    test_random random = test_random_make("gpu_runtime", m + n + k);
    product p = {.m = m, .n = n, .k = k};
    lac_pattern parsed = pattern_of(pattern);
    p.weight = weight_make(&random, &parsed, n, k, LAC_DTYPE_F32, TEST_FILL_GAUSSIAN);
    lac_plan_options options = {.size = sizeof options, .kernel = kernel};
    assert_ok(lac_plan_create(device, p.weight, m, &options, &p.plan));
    float *x = malloc((size_t)(m * k) * sizeof *x);
    for (int64_t i = 0; i < m * k; ++i) x[i] = (float)test_random_gaussian(&random);
    lac_plan_info info = {.size = sizeof info};
    assert_ok(lac_plan_get_info(p.plan, &info));
    assert_ok(lac_device_allocate(device, (uint64_t)(m * k) * sizeof *x, &p.x));
    assert_ok(lac_device_allocate(device, (uint64_t)(m * n) * sizeof *x, &p.y));
    if (info.workspace_bytes) assert_ok(lac_device_allocate(device, info.workspace_bytes, &p.workspace));
    assert_ok(lac_device_upload(device, p.x, x, (uint64_t)(m * k) * sizeof *x));
    p.args = (lac_execute_args){
        .size = sizeof p.args, .x = p.x, .y = p.y, .workspace = p.workspace, .workspace_bytes = info.workspace_bytes};
    assert_ok(lac_plan_execute(p.plan, &p.args));
    assert_ok(lac_device_synchronize(device));
    p.want = malloc((size_t)(m * n) * sizeof *p.want);
    assert_ok(lac_device_download(device, p.want, p.y, (uint64_t)(m * n) * sizeof *p.want));
    free(x);
    return p;
}

static void product_free(product *p)
{
    lac_plan_free(p->plan);
    lac_weight_free(p->weight);
    lac_device_release(device, p->x);
    lac_device_release(device, p->y);
    lac_device_release(device, p->workspace);
    free(p->want);
}

static size_t y_bytes(const product *p) { return (size_t)(p->m * p->n) * sizeof(float); }

static void clear(const product *p, void *y)
{
    void *nothing = malloc(y_bytes(p));
    memset(nothing, 0xff, y_bytes(p));
    assert_ok(lac_device_upload(device, y, nothing, y_bytes(p)));
    free(nothing);
}

static bool is_right(const product *p, const void *y)
{
    float *got = malloc(y_bytes(p));
    bool right = lac_device_download(device, got, y, y_bytes(p)) == LAC_STATUS_OK && !memcmp(got, p->want, y_bytes(p));
    free(got);
    return right;
}

/* ---- the tests */

static const char *const picked_patterns[] = {"2:4", "3:7", "vw32:8:32", "bw4x4:2:8", "64:2:8", "shfl64:25%", "4:4"};
static const int64_t picked_tokens[] = {1, 7, 33, 300};
enum { PICKED_PATTERNS = sizeof picked_patterns / sizeof *picked_patterns, PICKED_TOKENS = 4, PICKED_N = 320, PICKED_K = 512 };
static const lac_plan_options picked_options = {
    .size = sizeof picked_options, .has_bias = 1, .activation = LAC_ACTIVATION_GELU_TANH};

static lac_weight *picked_weight(test_random *random, int i, int j)
{
    static const lac_dtype dtypes[] = {LAC_DTYPE_F32, LAC_DTYPE_F16, LAC_DTYPE_BF16};
    lac_pattern pattern = pattern_of(picked_patterns[i]);
    return weight_make(random, &pattern, PICKED_N, PICKED_K, dtypes[(i + j) % 3], TEST_FILL_GAUSSIAN);
}

static void the_planner_picks_a_kernel_that_is_right(void **state)
{
    (void)state;
    test_random random = test_random_make("gpu_pick", 0);
    for (int i = 0; i < PICKED_PATTERNS; ++i)
        for (int j = 0; j < PICKED_TOKENS; ++j) {
            plan_case c =
                case_make(&random, picked_weight(&random, i, j), picked_tokens[j], &picked_options, TEST_FILL_GAUSSIAN);
            gpu_case_check(device, &c, NULL, JUDGE_BOUND);
            case_free(&c);
        }
}

static bool applies_to(const lac_weight *weight, int64_t m, const char *kernel, lac_plan_options options)
{
    lac_plan *plan = NULL;
    options.kernel = kernel;
    lac_status status = lac_plan_create(device, weight, m, &options, &plan);
    lac_plan_free(plan);
    if (status != LAC_STATUS_UNSUPPORTED) assert_ok(status);
    return status == LAC_STATUS_OK;
}

/* The rows of the list are small. Here a block has several tiles, one behind the other: what it does with the next while it writes the
 * last is seen only so. */
static void blocks_with_several_tiles_are_right(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *kernel;
        lac_layout layout;
    } cases[] = {{"vw128:8:32", "cuda_f16_gather", LAC_LAYOUT_FEATURE_MAJOR},
                 {"128:2:8", "cuda_f16_gather_sparse", LAC_LAYOUT_FEATURE_MAJOR},
                 {"vw32:4:32", "cuda_f16_gather_sparse", LAC_LAYOUT_FEATURE_MAJOR},
                 {"2:4", "cuda_f16_stream", LAC_LAYOUT_FEATURE_MAJOR},
                 {"vw128:8:32", "cuda_f16_gather", LAC_LAYOUT_TOKEN_MAJOR},
                 {"vw64:8:32", "cuda_f16_gather", LAC_LAYOUT_TOKEN_MAJOR}, /* these three through a tile's last stage */
                 {"64:2:16", "cuda_f16_gather_sparse", LAC_LAYOUT_TOKEN_MAJOR},
                 {"bw64x64:1:4", "cuda_f16_gather", LAC_LAYOUT_TOKEN_MAJOR},
                 {"shfl64:25%", "cuda_unshuffle", LAC_LAYOUT_TOKEN_MAJOR},
                 {"shfl128:50%", "cuda_unshuffle", LAC_LAYOUT_TOKEN_MAJOR}};
    enum { M = 1288, N = 7112, K = 768 };
    lac_plan_options options = {.size = sizeof options, .x_dtype = LAC_DTYPE_F16, .y_dtype = LAC_DTYPE_F16, .has_bias = 1};
    test_random random = test_random_make("gpu_tiles", 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        lac_pattern pattern = pattern_of(cases[i].pattern);
        lac_weight *weight = weight_make(&random, &pattern, N, K, LAC_DTYPE_F16, TEST_FILL_GAUSSIAN);
        options.x_layout = options.y_layout = cases[i].layout;
        if (!applies_to(weight, M, cases[i].kernel, options)) { /* not this GPU's kernel */
            lac_weight_free(weight);
            continue;
        }
        plan_case c = case_make(&random, weight, M, &options, TEST_FILL_GAUSSIAN);
        gpu_case_check(device, &c, cases[i].kernel, JUDGE_BOUND);
        case_free(&c);
    }
}

/* Boxes of token-major X end with the last token, or have 256 of the 512 of a tile. Inputs that are no multiple of 8 the copy engine
 * cannot take as they are. */
static void streams_take_any_number_of_tokens(void **state)
{
    (void)state;
    static const struct {
        int64_t m, n, k;
    } cases[] = {{5, 4096, 512},   {24, 4096, 520},  {32, 2048, 1024}, {50, 4096, 768},  {64, 4000, 1024},
                 {100, 4096, 512}, {129, 4096, 512}, {20, 4096, 1002}, {50, 4096, 1002}, {8200, 320, 64}};
    lac_plan_options options = {.size = sizeof options, .x_dtype = LAC_DTYPE_F16, .y_dtype = LAC_DTYPE_F16};
    lac_pattern pattern = pattern_of("2:4");
    test_random random = test_random_make("gpu_streams", 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        lac_weight *weight = weight_make(&random, &pattern, cases[i].n, cases[i].k, LAC_DTYPE_F16, TEST_FILL_GAUSSIAN);
        if (!applies_to(weight, cases[i].m, "cuda_f16_stream", options)) { /* not this GPU's kernel */
            lac_weight_free(weight);
            continue;
        }
        plan_case c = case_make(&random, weight, cases[i].m, &options, TEST_FILL_GAUSSIAN);
        gpu_case_check(device, &c, "cuda_f16_stream", JUDGE_BOUND);
        case_free(&c);
    }
}

static void nothing_to_do_is_done(void **state)
{
    (void)state;
    test_random random = test_random_make("gpu_empty", 0);
    lac_pattern pattern = pattern_of("2:4");
    lac_plan_options options = {.size = sizeof options};
    plan_case c = case_make(&random, weight_make(&random, &pattern, 32, 64, LAC_DTYPE_F32, TEST_FILL_GAUSSIAN), 0, &options,
                            TEST_FILL_GAUSSIAN);
    gpu_case_check(device, &c, NULL, JUDGE_BOUND);
    case_free(&c);
}

static void measuring_picks_a_kernel_too(void **state)
{
    (void)state;
    test_random random = test_random_make("gpu_measure", 0);
    lac_pattern pattern = pattern_of("vw32:8:32");
    lac_plan_options options = {.size = sizeof options, .measure = 1};
    plan_case c = case_make(&random, weight_make(&random, &pattern, 256, 256, LAC_DTYPE_F32, TEST_FILL_GAUSSIAN), 64, &options,
                            TEST_FILL_GAUSSIAN);
    gpu_case_check(device, &c, NULL, JUDGE_BOUND);
    case_free(&c);
}

/* Where the model holds several for nearly as fast: they are timed, the plan is right, and the next one is the same. */
static void close_kernels_are_timed_once(void **state)
{
    (void)state;
    static const char *const patterns[] = {"2:4", "64:2:8", "vw64:16:32"};
    int timed = 0;
    for (int i = 0; i < 3; ++i) {
        test_random random = test_random_make("gpu_close", i);
        lac_pattern pattern = pattern_of(patterns[i]);
        for (int64_t m = 64; m <= 512 && timed < 4; m += 64) {
            lac_plan_options options = {.size = sizeof options};
            lac_weight *weight = weight_make(&random, &pattern, 1024, 1024, LAC_DTYPE_F16, TEST_FILL_GAUSSIAN);
            lac_plan *plan = NULL;
            lac_plan_info first = {.size = sizeof first}, second = first;
            assert_ok(lac_plan_create(device, weight, m, &options, &plan));
            assert_ok(lac_plan_get_info(plan, &first));
            lac_plan_free(plan);
            assert_ok(lac_plan_create(device, weight, m, &options, &plan));
            assert_ok(lac_plan_get_info(plan, &second));
            lac_plan_free(plan);
            assert_string_equal(first.kernel, second.kernel);
            assert_true(first.measured_seconds == second.measured_seconds);
            assert_true((first.rivals > 0) == (first.measured_seconds > 0));
            if (first.rivals && !timed++) {
                plan_case c = case_make(&random, weight, m, &options, TEST_FILL_GAUSSIAN);
                gpu_case_check(device, &c, NULL, JUDGE_BOUND);
                case_free(&c);
            } else {
                lac_weight_free(weight);
            }
            if (first.rivals)
                print_message("%s, %lld tokens: %s, %.1f us, %.1f by the model\n", patterns[i], (long long)m, first.kernel,
                              1e6 * first.measured_seconds, 1e6 * first.predicted_seconds);
        }
    }
    assert_true(timed > 0);
}

static lac_status try_plan(const char *text, const char *kernel, int64_t m, int64_t n, int64_t k)
{
    test_random random = test_random_make("gpu_graph", m);
    lac_pattern pattern = pattern_of(text);
    lac_weight *weight = weight_make(&random, &pattern, n, k, LAC_DTYPE_F32, TEST_FILL_GAUSSIAN);
    lac_plan_options options = {.size = sizeof options, .kernel = kernel};
    lac_plan *plan = NULL;
    lac_status status = lac_plan_create(device, weight, m, &options, &plan);
    lac_plan_free(plan);
    lac_weight_free(weight);
    return status;
}

static const struct {
    const char *pattern;
    int64_t m;
} graphs[] = {{"vw32:8:32", 160}, {"2:4", 1}, {"128:2:16", 160}};
enum { GRAPHS = sizeof graphs / sizeof *graphs };

static void a_graph_of_it_gives_the_same_bits(void **state)
{
    (void)state;
    lac_kernel_info kernel = {.size = sizeof kernel};
    int captured = 0;
    for (size_t i = 0; lac_kernel_probe(i, &kernel) == LAC_STATUS_OK; ++i) {
        if (kernel.device != LAC_DEVICE_KIND_CUDA) continue;
        for (int j = 0; j < GRAPHS; ++j) {
            lac_status status = try_plan(graphs[j].pattern, kernel.name, graphs[j].m, 256, 512);
            if (status == LAC_STATUS_UNSUPPORTED) continue;
            assert_ok(status);
            product p = product_make(graphs[j].pattern, kernel.name, graphs[j].m, 256, 512);
            void *stream = NULL, *graph = NULL, *executable = NULL;
            assert_int_equal(cu.context_set(context), 0);
            assert_int_equal(cu.stream_create(&stream, 1), 0);
            p.args.stream = stream;
            assert_int_equal(cu.capture_begin(stream, 0), 0); /* the strictest mode */
            for (int call = 0; call < 3; ++call) assert_ok(lac_plan_execute(p.plan, &p.args));
            assert_int_equal(cu.capture_end(stream, &graph), 0);
            assert_int_equal(cu.graph_instantiate(&executable, graph, 0), 0);
            clear(&p, p.y);
            assert_int_equal(cu.graph_launch(executable, stream), 0);
            assert_int_equal(cu.stream_wait(stream), 0);
            if (!is_right(&p, p.y)) fail_msg("%s: a graph gave other bits", kernel.name);
            cu.executable_destroy(executable);
            cu.graph_destroy(graph);
            cu.stream_destroy(stream);
            cu.context_set(NULL);
            product_free(&p);
            ++captured;
        }
    }
    assert_true(captured > 0);
}

typedef struct member {
    const product *p;
    int wrong;
} member;

/* A stream and buffers of its own, the plan everybody's. */
static void *execute_often(void *opaque)
{
    member *self = opaque;
    const product *p = self->p;
    lac_execute_args args = p->args;
    void *stream = NULL, *y = NULL, *workspace = NULL;
    self->wrong = 1;
    if (cu.context_set(context) || cu.stream_create(&stream, 1)) return NULL;
    if (lac_device_allocate(device, y_bytes(p), &y)) return NULL;
    if (args.workspace_bytes && lac_device_allocate(device, args.workspace_bytes, &workspace)) return NULL;
    args.y = y;
    args.workspace = workspace;
    args.stream = stream;
    self->wrong = 0;
    for (int i = 0; i < 50; ++i) {
        self->wrong += lac_plan_execute(p->plan, &args) != LAC_STATUS_OK;
        if (i % 10 == 9) self->wrong += cu.stream_wait(stream) || !is_right(p, y);
    }
    lac_device_release(device, y);
    lac_device_release(device, workspace);
    cu.stream_destroy(stream);
    return NULL;
}

static void many_threads_and_streams_share_a_plan(void **state)
{
    (void)state;
    enum { THREADS = 8 };
    static const char *const patterns[] = {"vw32:8:32", "2:4", "64:2:8"};
    for (int i = 0; i < 3; ++i) {
        product p = product_make(patterns[i], NULL, i == 1 ? 1 : 100, 384, 512);
        pthread_t threads[THREADS];
        member members[THREADS];
        for (int j = 0; j < THREADS; ++j) {
            members[j] = (member){&p, 1};
            assert_int_equal(pthread_create(&threads[j], NULL, execute_often, &members[j]), 0);
        }
        int wrong = 0;
        for (int j = 0; j < THREADS; ++j) {
            pthread_join(threads[j], NULL);
            wrong += members[j].wrong;
        }
        product_free(&p);
        assert_int_equal(wrong, 0);
    }
}

static void *make_plans(void *opaque)
{
    member *self = opaque;
    self->wrong = 0;
    for (int i = 0; i < 10; ++i) {
        lac_plan *plan = NULL;
        self->wrong += lac_plan_create(device, self->p->weight, 1 + i * 13, NULL, &plan) != LAC_STATUS_OK;
        lac_plan_free(plan);
    }
    return NULL;
}

static void many_threads_make_plans(void **state)
{
    (void)state;
    enum { THREADS = 8 };
    product p = product_make("vw32:8:32", NULL, 64, 256, 256);
    pthread_t threads[THREADS];
    member members[THREADS];
    for (int j = 0; j < THREADS; ++j) {
        members[j] = (member){&p, 1};
        assert_int_equal(pthread_create(&threads[j], NULL, make_plans, &members[j]), 0);
    }
    int wrong = 0;
    for (int j = 0; j < THREADS; ++j) {
        pthread_join(threads[j], NULL);
        wrong += members[j].wrong;
    }
    product_free(&p);
    assert_int_equal(wrong, 0);
}

static void pointers_must_be_the_devices(void **state)
{
    (void)state;
    product p = product_make("2:4", NULL, 8, 64, 64);
    float *host = malloc(8 * 64 * sizeof *host);
    lac_execute_args args = p.args;
    args.x = host;
    assert_fails(lac_plan_execute(p.plan, &args), LAC_STATUS_INVALID_ARGUMENT, "args->x");
    args = p.args;
    args.y = host;
    assert_fails(lac_plan_execute(p.plan, &args), LAC_STATUS_INVALID_ARGUMENT, "args->y");
    args = p.args;
    args.x = NULL;
    assert_fails(lac_plan_execute(p.plan, &args), LAC_STATUS_INVALID_ARGUMENT, "x");
    args = p.args;
    args.ldx = 3;
    assert_fails(lac_plan_execute(p.plan, &args), LAC_STATUS_INVALID_ARGUMENT, "ldx");
    args = p.args;
    assert_ok(lac_plan_execute(p.plan, &args)); /* nothing was broken by the failures */
    assert_ok(lac_device_synchronize(device));
    assert_true(is_right(&p, p.y));
    lac_plan_options options = {.size = sizeof options, .has_bias = 1, .has_residual = 1};
    lac_plan *plan = NULL;
    assert_ok(lac_plan_create(device, p.weight, 8, &options, &plan));
    lac_plan_info info = {.size = sizeof info};
    assert_ok(lac_plan_get_info(plan, &info));
    void *workspace = NULL;
    if (info.workspace_bytes) assert_ok(lac_device_allocate(device, info.workspace_bytes, &workspace));
    args = (lac_execute_args){.size = sizeof args,
                              .x = p.x,
                              .y = p.y,
                              .bias = host,
                              .c = p.y,
                              .workspace = workspace,
                              .workspace_bytes = info.workspace_bytes};
    assert_fails(lac_plan_execute(plan, &args), LAC_STATUS_INVALID_ARGUMENT, "args->bias");
    args.bias = p.x;
    args.c = host;
    assert_fails(lac_plan_execute(plan, &args), LAC_STATUS_INVALID_ARGUMENT, "args->c");
    lac_device_release(device, workspace);
    lac_plan_free(plan);
    free(host);
    product_free(&p);
}

static void too_much_memory_is_refused(void **state)
{
    (void)state;
    void *block = &block;
    assert_status(lac_device_allocate(device, UINT64_C(1) << 50, &block), LAC_STATUS_OUT_OF_MEMORY);
    assert_ptr_equal(block, &block);
}

static size_t free_memory(void)
{
    size_t available = 0, total = 0;
    assert_int_equal(cu.context_set(context), 0);
    assert_int_equal(cu.memory_info(&available, &total), 0);
    cu.context_set(NULL);
    return available;
}

static void plans_give_their_memory_back(void **state)
{
    (void)state;
    bool back = false;
    /* Others may use the GPU meanwhile, and take memory; plans that keep theirs do so every time. */
    for (int attempt = 0; attempt < 20 && !back; ++attempt) {
        size_t before = 0;
        for (int i = 0; i < 4; ++i) {
            product p = product_make("vw32:8:32", NULL, 64, 2048, 2048);
            product_free(&p);
            if (i == 0) before = free_memory(); /* the first one loads the kernel */
        }
        back = free_memory() + ((size_t)1 << 20) >= before;
    }
    assert_true(back);
}

static void devices_can_be_opened_again_and_beside_each_other(void **state)
{
    (void)state;
    for (int i = 0; i < 3; ++i) {
        lac_device *other = NULL;
        void *block = NULL;
        float number = 0, one = 1;
        assert_ok(lac_device_open("cuda:0", &other));
        assert_ok(lac_device_allocate(other, sizeof one, &block));
        assert_ok(lac_device_upload(other, block, &one, sizeof one));
        assert_ok(lac_device_download(device, &number, block, sizeof number));
        assert_true(number == one);
        lac_device_release(other, block);
        lac_device_close(other);
    }
}

/* The plans of the tests above that want a program of their own; nobody minds when one fails here. */
gpu_step test_gpu_runtime_plan(int index)
{
    if (!device) assert_ok(lac_device_open("cuda:0", &device));
    if (index < PICKED_PATTERNS * PICKED_TOKENS) {
        int i = index / PICKED_TOKENS, j = index % PICKED_TOKENS;
        test_random random = test_random_make("gpu_pick", index);
        lac_weight *weight = picked_weight(&random, i, j);
        lac_plan *plan = NULL;
        lac_plan_create(device, weight, picked_tokens[j], &picked_options, &plan);
        lac_plan_free(plan);
        lac_weight_free(weight);
        return GPU_STEP_PASSED;
    }
    index -= PICKED_PATTERNS * PICKED_TOKENS;
    lac_kernel_info kernel = {.size = sizeof kernel};
    for (size_t i = 0; lac_kernel_probe(i, &kernel) == LAC_STATUS_OK; ++i) {
        if (kernel.device != LAC_DEVICE_KIND_CUDA) continue;
        if (index < GRAPHS) try_plan(graphs[index].pattern, kernel.name, graphs[index].m, 256, 512);
        if (index == GRAPHS) try_plan("vw32:8:32", kernel.name, 64, 256, 256); /* that measuring compares */
        if (index <= GRAPHS) return GPU_STEP_PASSED;
        index -= GRAPHS + 1;
    }
    if (index < 10) try_plan("vw32:8:32", NULL, 1 + 13 * index, 256, 256);
    return index < 10 ? GPU_STEP_PASSED : GPU_STEP_NONE;
}

int test_gpu_runtime(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_planner_picks_a_kernel_that_is_right),
                                       cmocka_unit_test(blocks_with_several_tiles_are_right),
                                       cmocka_unit_test(streams_take_any_number_of_tokens),
                                       cmocka_unit_test(nothing_to_do_is_done),
                                       cmocka_unit_test(measuring_picks_a_kernel_too),
                                       cmocka_unit_test(close_kernels_are_timed_once),
                                       cmocka_unit_test(a_graph_of_it_gives_the_same_bits),
                                       cmocka_unit_test(many_threads_and_streams_share_a_plan),
                                       cmocka_unit_test(many_threads_make_plans),
                                       cmocka_unit_test(pointers_must_be_the_devices),
                                       cmocka_unit_test(too_much_memory_is_refused),
                                       cmocka_unit_test(plans_give_their_memory_back),
                                       cmocka_unit_test(devices_can_be_opened_again_and_beside_each_other)};
    return cmocka_run_group_tests_name("the runtime of the GPU", tests, open_all, close_all);
}
