/* gpu_list.c - the list of cases for all kernels of the GPU: which rows there are, and how one is run. See gpu_case.h. */
#include "core/kernel.h"
#include "cuda/program.h"
#include "cuda/state.h"
#include "gpu/gpu_case.h"
#include "gpu/gpu_patterns.h"
#include "gpu/pairwise.h"

/* ---- the factors that are fixed when a program is compiled */

static const char *const listed[] = {"2:4",       "8:32",       "4:32",        "16:32",      "3:7",       "5:13",
                                     "1:8",       "25%",        "4:4",         "7:200",      "vw32:8:32", "vw32:16:32",
                                     "vw32:4:32", "vw24:3:10",  "vw4:2:4",     "vw64:25%",   "vw128:1:4", "vw32:32:32",
                                     "bw4x4:2:8", "bw16x8:1:4", "bw64x64:1:2", "64:2:8",     "128:2:16",  "32:1:8",
                                     "64:2:4",    "shfl64:25%", "shfl32:50%",  "shfl128:25%"};
enum { PATTERNS = sizeof listed / sizeof *listed };

static lac_pattern pattern_numbered(int number)
{
    return gpu_patterns_are_random() ? gpu_random_pattern(number) : pattern_of(listed[number]);
}

static const struct {
    lac_dtype weight, x, y;
} dtypes[] = {{LAC_DTYPE_F32, LAC_DTYPE_F32, LAC_DTYPE_F32},
              {LAC_DTYPE_F16, LAC_DTYPE_F16, LAC_DTYPE_F16},
              {LAC_DTYPE_BF16, LAC_DTYPE_BF16, LAC_DTYPE_BF16},
              {LAC_DTYPE_F16, LAC_DTYPE_F32, LAC_DTYPE_F32},
              {LAC_DTYPE_F32, LAC_DTYPE_F16, LAC_DTYPE_BF16}};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

enum { BIAS_NONE, BIAS_LIKE_Y, BIAS_F32, BIASES };
enum { RESIDUAL_NONE, RESIDUAL_LIKE_Y, RESIDUAL_F32, RESIDUALS };
typedef enum gpu_variant { IN_ORDER, ROWS_PERMUTED, BOTH_PERMUTED, HALF_OF_N, HALF_OF_K, VARIANTS } gpu_variant;

enum { PATTERN, X_LAYOUT, Y_LAYOUT, DTYPE, PRECISION, BIAS, ACTIVATION, RESIDUAL, VARIANT, FIXED_FACTORS };
static const int fixed_counts[FIXED_FACTORS] = {PATTERNS, 2, 2, DTYPES, 3, BIASES, 5, RESIDUALS, VARIANTS};

/* ---- and those that are not: round every tile edge, and padded */

static const int64_t tokens[] = {1, 2, 3, 5, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 96, 127, 128, 129, 200, 257};
static const int64_t outputs[] = {1, 7, 16, 31, 32, 33, 63, 64, 65, 96, 100, 127, 128, 129, 192, 255, 256, 257, 300, 400};
/* The last ones are long enough for every ring of stages to come round: what is wrong there shows in no shorter problem. */
static const int64_t inputs[] = {1,   5,   31,  32,  33,  63,  64,  65,  96,  127,  128,
                                 129, 160, 250, 256, 257, 384, 500, 512, 640, 1088, 2056};
#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

enum { TOKENS, OUTPUTS, INPUTS, PADDING, SCALING, IN_PLACE, FREE_FACTORS };
enum { PADDINGS = 4, SCALINGS = 4, SHAPES = 512 };
static const int free_counts[FREE_FACTORS] = {COUNT(tokens), COUNT(outputs), COUNT(inputs), PADDINGS, SCALINGS, 2};

static bool anything(const pairwise_row *row, void *user)
{
    (void)row;
    (void)user;
    return true;
}

/* ---- weights and cases */

static lac_weight *weight_of(test_random *random, const gpu_row *row, int64_t n, int64_t k, test_fill fill)
{
    lac_weight *weight = weight_make(random, &row->pattern, n, k, row->weight_dtype, fill);
    bool rows = row->variant == ROWS_PERMUTED || row->variant == BOTH_PERMUTED;
    bool columns = row->variant == BOTH_PERMUTED;
    if (rows || columns) weight = weight_permuted(random, weight, rows, columns);
    if (row->variant == HALF_OF_N) weight = weight_half(weight, LAC_AXIS_N);
    if (row->variant == HALF_OF_K) weight = weight_half(weight, LAC_AXIS_K);
    return weight;
}

static gpu_row row_of(const pairwise_row *fixed, const char *kernel)
{
    gpu_row row = {.kernel = kernel, .variant = fixed->value[VARIANT], .weight_dtype = dtypes[fixed->value[DTYPE]].weight};
    row.pattern = pattern_numbered(fixed->value[PATTERN]);
    lac_dtype y = dtypes[fixed->value[DTYPE]].y;
    row.options =
        (lac_plan_options){.size = sizeof row.options,
                           .x_layout = (lac_layout)fixed->value[X_LAYOUT],
                           .y_layout = (lac_layout)fixed->value[Y_LAYOUT],
                           .x_dtype = dtypes[fixed->value[DTYPE]].x,
                           .y_dtype = y,
                           .bias_dtype = fixed->value[BIAS] == BIAS_F32 ? LAC_DTYPE_F32 : y,
                           .c_dtype = fixed->value[RESIDUAL] == RESIDUAL_F32 ? LAC_DTYPE_F32 : y,
                           .precision = (lac_precision)(LAC_PRECISION_STRICT + fixed->value[PRECISION]),
                           .has_bias = fixed->value[BIAS] != BIAS_NONE,
                           .activation = (lac_activation)fixed->value[ACTIVATION],
                           .has_residual = fixed->value[RESIDUAL] != RESIDUAL_NONE,
                           .threads = 1,
                           .no_timing = fixed->value[PATTERN] % 4 != 0}; /* timing takes long beside other processes */
    return row;
}

void gpu_row_describe(const gpu_row *row, char *buffer, size_t size)
{
    static const char *const variants[] = {"in order", "rows permuted", "permuted", "half of n", "half of k"};
    static const char *const precisions[] = {"default", "strict", "fast", "tf32"};
    const lac_plan_options *o = &row->options;
    char pattern[LAC_PATTERN_TEXT_SIZE] = "";
    lac_pattern_format(&row->pattern, pattern, sizeof pattern);
    snprintf(buffer, size, "%s:%d %s %s*%s->%s %s, X %s, Y %s, bias %s, activation %d, residual %s, %s", row->kernel,
             row->index, pattern, lac_dtype_name(o->x_dtype), lac_dtype_name(row->weight_dtype), lac_dtype_name(o->y_dtype),
             precisions[o->precision], o->x_layout ? "feature" : "token", o->y_layout ? "feature" : "token",
             o->has_bias ? lac_dtype_name(o->bias_dtype) : "no", (int)o->activation,
             o->has_residual ? lac_dtype_name(o->c_dtype) : "no", variants[row->variant]);
}

/* ---- the list */

typedef struct asking {
    lac_device *target;
    const lac_kernel *kernel;
    test_random random;
    lac_weight *weights[PATTERNS][LAC_DTYPE_BF16 + 1][VARIANTS]; /* made when first asked for */
} asking;

/* A shape of middling size stands for all. */
static lac_problem problem_of(asking *a, const gpu_row *row, int pattern)
{
    lac_weight **weight = &a->weights[pattern][row->weight_dtype][row->variant];
    if (!*weight) *weight = weight_of(&a->random, row, 256, 384, TEST_FILL_GAUSSIAN);
    return (lac_problem){a->target, *weight, 129, row->options, a->kernel};
}

static void free_weights(asking *a)
{
    for (int i = 0; i < PATTERNS; ++i)
        for (int j = 0; j <= LAC_DTYPE_BF16; ++j)
            for (int k = 0; k < VARIANTS; ++k) lac_weight_free(a->weights[i][j][k]);
}

static bool kernel_takes(const pairwise_row *fixed, void *user)
{
    asking *a = user;
    gpu_row row = row_of(fixed, a->kernel->info.name);
    const lac_kernel_info *info = &a->kernel->info;
    if (!(info->families >> row.pattern.family & 1) || !(info->weight_dtypes >> row.weight_dtype & 1) ||
        !(info->x_dtypes >> row.options.x_dtype & 1) || !(info->y_dtypes >> row.options.y_dtype & 1))
        return false;
    lac_problem problem = problem_of(a, &row, fixed->value[PATTERN]);
    bool takes = false;
    for (int i = 0; !takes && i < COUNT(tokens); i += 4) {
        problem.m = tokens[i];
        takes = a->kernel->applies(&problem);
    }
    return takes;
}

uint64_t gpu_request_hash(const lac_cuda_request *request)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (const char *c = request->source; *c; ++c) hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    for (const char *c = request->entry; *c; ++c) hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    for (int i = 0; i < request->define_count; ++i)
        hash = (hash ^ (uint64_t)request->defines[i].value) * UINT64_C(0x100000001b3) ^ hash >> 31;
    return hash;
}

/* How many programs of the row nobody before it has asked for; `seen` has room for them. */
static int count_programs(asking *a, const gpu_row *row, int pattern, uint64_t *seen, int known)
{
    lac_cuda_request requests[LAC_CUDA_MOST_REQUESTS];
    int count = 0, fresh = 0;
    lac_problem problem = problem_of(a, row, pattern);
    for (int i = 0; i < COUNT(tokens) && !a->kernel->applies(&problem); ++i) problem.m = tokens[i];
    const lac_cuda_flow *flow = a->kernel->config;
    if (a->kernel->applies(&problem) && flow->requests(&problem, requests, &count)) count = 0;
    for (int i = 0; i < count; ++i) {
        uint64_t hash = gpu_request_hash(&requests[i]);
        int j = 0;
        while (j < known + fresh && seen[j] != hash) ++j;
        if (j == known + fresh) seen[known + fresh++] = hash;
    }
    return fresh;
}

/* The first rows of all kernels, then the second ones: where time is short, all kernels get some. */
static int compare_rows(const void *a, const void *b)
{
    const gpu_row *left = a, *right = b;
    return left->index != right->index ? (left->index > right->index) - (left->index < right->index)
                                       : strcmp(left->kernel, right->kernel);
}

bool gpu_kernel_is_wanted(const char *name, const char *prefix)
{
    if (!prefix) return true;
    bool others = *prefix == '!';
    return (strncmp(name, prefix + others, strlen(prefix + others)) != 0) == others;
}

void gpu_list_make(const char *arch, const char *prefix, int most, gpu_list *list)
{
    *list = (gpu_list){0};
    static asking a;
    memset(&a, 0, sizeof a);
    a.random = test_random_make("gpu_applies", 0);
    assert_ok(lac_cuda_target_open(arch, &a.target));
    pairwise_row *fixed = malloc((size_t)most * sizeof *fixed);
    uint64_t *seen = NULL;
    for (size_t i = 0; (a.kernel = lac_registry_kernel(i)); ++i) {
        if (a.kernel->info.device != LAC_DEVICE_KIND_CUDA) continue;
        if (!gpu_kernel_is_wanted(a.kernel->info.name, prefix)) continue;
        test_random random = test_random_make(a.kernel->info.name, -1); /* the same rows, whatever other kernels there are */
        list->kernels++;
        int made = pairwise_make(&random, fixed_counts, FIXED_FACTORS, kernel_takes, &a, fixed, most);
        list->unused += made == 0;
        list->rows = realloc(list->rows, (size_t)(list->count + made + 1) * sizeof *list->rows);
        seen = realloc(seen, (size_t)(list->count + made + 1) * LAC_CUDA_MOST_REQUESTS * sizeof *seen);
        for (int j = 0; j < made; ++j) {
            gpu_row *row = &list->rows[list->count++];
            *row = row_of(&fixed[j], a.kernel->info.name);
            row->index = j;
            list->programs += count_programs(&a, row, fixed[j].value[PATTERN], seen, list->programs);
        }
    }
    if (list->count) qsort(list->rows, (size_t)list->count, sizeof *list->rows, compare_rows);
    free(fixed);
    free(seen);
    free_weights(&a);
    lac_device_close(a.target);
}

void gpu_list_free(gpu_list *list)
{
    free(list->rows);
    *list = (gpu_list){0};
}

/* ---- running a row */

/* The shapes are pairwise too, over all rows together: row r takes those from r * shapes on. */
static const pairwise_row *shape_of(int number)
{
    static pairwise_row rows[SHAPES];
    static int made;
    if (!made) {
        test_random random = test_random_make("gpu_shapes", 0);
        made = pairwise_make(&random, free_counts, FREE_FACTORS, anything, NULL, rows, SHAPES);
    }
    return &rows[number % made];
}

/* The last way has lines that are aligned, whatever their length: what is stored many bytes at a time must still end with them. */
static test_matrix matrix_like(const test_matrix *old, int padding)
{
    enum { ALIGNED = 16 }; /* elements */
    const lac_matrix v = old->view;
    int64_t length = v.layout == LAC_LAYOUT_ROW_MAJOR ? v.cols : v.rows;
    const int64_t paddings[PADDINGS] = {0, 1, 5, 2 * ALIGNED - length % ALIGNED}, offsets[PADDINGS] = {0, 1, 3, 0};
    return test_matrix_make(v.rows, v.cols, v.dtype, v.layout, paddings[padding], offsets[padding]);
}

/* case_make draws strides by itself; here they come from the shape. */
static void restride(test_random *random, plan_case *c, const pairwise_row *shape, test_fill fill)
{
    test_matrix *const all[] = {&c->x, &c->y, &c->c};
    for (int i = 0; i < 3; ++i) {
        test_matrix fresh = matrix_like(all[i], (shape->value[PADDING] + i) % PADDINGS);
        test_matrix_free(all[i]);
        *all[i] = fresh;
        if (i != 1) test_matrix_fill(random, all[i], fill);
    }
}

static void set_scaling(plan_case *c, int scaling)
{
    static const float alphas[SCALINGS] = {1.0f, 0.5f, -2.0f, 1.0f}, betas[SCALINGS] = {1.0f, 2.0f, 0.0f, -0.5f};
    c->pass_alpha = scaling > 0;
    c->pass_beta = scaling > 0;
    c->alpha = alphas[scaling];
    c->beta = betas[scaling];
    if (c->options.has_residual && scaling == 2) /* beta is 0: C is not read, whatever it holds */
        for (int64_t i = 0; i < c->m; ++i)
            for (int64_t j = 0; j < c->info.n_out; ++j) test_matrix_set(&c->c, i, j, NAN);
}

/* With few tokens and inputs now and then so many more outputs that no GPU holds all its blocks at once. */
static int64_t outputs_of(const pairwise_row *shape)
{
    int64_t n = outputs[shape->value[OUTPUTS]];
    bool few = tokens[shape->value[TOKENS]] <= 2 && inputs[shape->value[INPUTS]] <= 65;
    return few && shape->value[OUTPUTS] % 2 ? n + 22000 : n;
}

/* With few tokens and outputs now and then so many more inputs that shared memory holds X only in parts. */
static int64_t inputs_of(const pairwise_row *shape)
{
    int64_t m = tokens[shape->value[TOKENS]], k = inputs[shape->value[INPUTS]];
    bool few = m <= 16 && outputs_of(shape) <= 33;
    return few && shape->value[INPUTS] % 2 ? k + (m <= 2 ? 61000 : 21000) : k;
}

typedef void case_run(lac_device *device, const plan_case *c, const char *kernel, judge how);

/* False when the kernel does not take the shape, which is its right. */
static bool run_shape(lac_device *device, const gpu_row *row, const pairwise_row *shape, test_random *random, test_fill fill,
                      case_run *run)
{
    int64_t m = tokens[shape->value[TOKENS]], n = outputs_of(shape), k = inputs_of(shape);
    if (getenv("LAC_TEST_GPU_CASE")) /* who asks for one row wants to know what it is */
        printf("  m %lld, n %lld, k %lld, padding %d, scaling %d, C is Y %d, fill %d\n", (long long)m, (long long)n,
               (long long)k, shape->value[PADDING], shape->value[SCALING], shape->value[IN_PLACE], (int)fill);
    lac_weight *weight = weight_of(random, row, n, k, fill);
    lac_plan *plan = NULL;
    lac_plan_options options = row->options;
    options.kernel = row->kernel;
    lac_status status = lac_plan_create(device, weight, m, &options, &plan);
    lac_plan_free(plan);
    if (status == LAC_STATUS_UNSUPPORTED) {
        lac_weight_free(weight);
        return false;
    }
    assert_ok(status);
    plan_case c = case_make(random, weight, m, &row->options, fill);
    restride(random, &c, shape, fill);
    set_scaling(&c, shape->value[SCALING]);
    c.c_is_y = row->options.has_residual && row->options.c_dtype == row->options.y_dtype && shape->value[IN_PLACE];
    run(device, &c, row->kernel, fill == TEST_FILL_INTEGER ? JUDGE_EXACT : JUDGE_BOUND);
    case_free(&c);
    return true;
}

static const lac_kernel *kernel_of(const gpu_row *row)
{
    const lac_kernel *kernel = NULL;
    for (size_t i = 0; (kernel = lac_registry_kernel(i)) && strcmp(kernel->info.name, row->kernel) != 0; ++i) {}
    return kernel;
}

/* What the kernel asks for at this shape; false when it does not take it. */
static bool shape_requests(lac_device *target, const gpu_row *row, const pairwise_row *shape, test_random *random,
                           lac_cuda_request requests[LAC_CUDA_MOST_REQUESTS], int *count)
{
    int64_t m = tokens[shape->value[TOKENS]], n = outputs_of(shape), k = inputs_of(shape);
    lac_weight *weight = weight_of(random, row, n, k, TEST_FILL_GAUSSIAN);
    const lac_kernel *kernel = kernel_of(row);
    lac_problem problem = {target, weight, m, row->options, kernel};
    bool taken = kernel->applies(&problem);
    *count = 0;
    if (taken) assert_ok(((const lac_cuda_flow *)kernel->config)->requests(&problem, requests, count));
    lac_weight_free(weight);
    return taken;
}

int gpu_row_requests(lac_device *target, const gpu_row *row, int shapes, lac_cuda_request *requests)
{
    test_random random = test_random_make(row->kernel, row->index);
    int made = 0;
    for (int i = 0, taken = 0; taken < shapes && i < 20 * shapes; ++i) {
        int count;
        taken += shape_requests(target, row, shape_of(row->index * shapes + i), &random, requests + made, &count);
        made += count;
    }
    return made;
}

void gpu_row_run(lac_device *device, const gpu_row *row, int shapes, case_run *run)
{
    bool exact = row->options.activation <= LAC_ACTIVATION_RELU;
    test_random random = test_random_make(row->kernel, row->index);
    int taken = 0;
    for (int i = 0; taken < shapes && i < 20 * shapes; ++i) {
        const pairwise_row *shape = shape_of(row->index * shapes + i);
        if (!run_shape(device, row, shape, &random, taken % 3 == 2 ? TEST_FILL_HEAVY_TAIL : TEST_FILL_GAUSSIAN, run)) continue;
        if (exact) run_shape(device, row, shape, &random, TEST_FILL_INTEGER, run);
        ++taken;
    }
    if (!taken) fail_msg("%s took none of %d shapes", row->kernel, 20 * shapes);
}
