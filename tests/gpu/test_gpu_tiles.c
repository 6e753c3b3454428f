/* test_gpu_tiles.c - every tile that the model reaches, alone and several of a block (gpu_tiles.h), with numbers whose sums are exact, against
 * cuda_f32_plain on the same operands: rows of X and Y as the copy engine takes them, and not, which goes other ways. */
#include <math.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "gpu/gpu_case.h"
#include "gpu/gpu_tiles.h"
#include "gpu/test_gpu.h"
#include "plan_case.h"

static lac_device *device;
static gpu_tiles tiles;

/* ---- operands */

/* X or Y of 16-bit elements here and on the GPU: lines of `length`, `ld` apart. Whatever nobody has set is a NaN. */
typedef struct operand {
    uint16_t *here;
    void *there;
    int64_t lines, length, ld;
} operand;

enum { UNSET = 0xffff, ALIGNED = 8 }; /* elements of 16 bytes */

static size_t bytes_of(const operand *o) { return (size_t)(o->lines * o->ld) * sizeof *o->here; }

/* Lines that are aligned, and so many elements more apart. */
static operand operand_make(const gpu_tile *tile, int64_t features, int64_t beside)
{
    bool token_major = tile->layout == LAC_LAYOUT_TOKEN_MAJOR;
    operand o = {.lines = token_major ? tile->m : features, .length = token_major ? features : tile->m};
    o.ld = (o.length + ALIGNED - 1) / ALIGNED * ALIGNED + beside;
    o.here = malloc(bytes_of(&o));
    assert_non_null(o.here);
    memset(o.here, 0xff, bytes_of(&o));
    assert_ok(lac_device_allocate(device, bytes_of(&o), &o.there));
    return o;
}

static void operand_free(operand *o)
{
    lac_device_release(device, o->there);
    free(o->here);
}

/* X of -1, 0 and 1, the same for every ld: sums of up to some thousand products with weights of -8 to 8 are whole numbers, which fp32 holds
 * and which round to f16 in one way. */
static operand x_make(const gpu_tile *tile, int64_t beside)
{
    static const uint16_t numbers[] = {0x0000, 0x3c00, 0xbc00, 0x3c00};
    operand x = operand_make(tile, tile->k, beside);
    test_random random = test_random_make("gpu_tiles_x", x.lines);
    for (int64_t line = 0; line < x.lines; ++line)
        for (int64_t i = 0; i < x.length; ++i) x.here[line * x.ld + i] = numbers[test_random_bits(&random) & 3];
    assert_ok(lac_device_upload(device, x.there, x.here, bytes_of(&x)));
    return x;
}

static lac_weight *weight_of(const gpu_tile *tile)
{
    test_random random = test_random_make("gpu_tiles_weight", tile->n + tile->k);
    lac_pattern pattern = pattern_of(tile->pattern);
    return weight_make(&random, &pattern, tile->n, tile->k, LAC_DTYPE_F16, TEST_FILL_INTEGER);
}

/* ---- running */

/* A kernel on a problem, and its workspace, which is full of NaNs at first and holds what the last call left afterwards. */
typedef struct prepared {
    lac_plan *plan;
    void *workspace;
    size_t bytes;
} prepared;

static prepared prepare(const gpu_tile *tile, const lac_weight *weight, const char *kernel)
{
    prepared p = {0};
    lac_plan_info info = {.size = sizeof info};
    lac_plan_options options = {.size = sizeof options, .kernel = kernel, .x_layout = tile->layout, .y_layout = tile->layout};
    assert_ok(lac_plan_create(device, weight, tile->m, &options, &p.plan));
    assert_ok(lac_plan_get_info(p.plan, &info));
    p.bytes = info.workspace_bytes;
    if (!p.bytes) return p;
    unsigned char *fill = malloc(p.bytes);
    assert_non_null(fill);
    memset(fill, 0xff, p.bytes);
    assert_ok(lac_device_allocate(device, p.bytes, &p.workspace));
    assert_ok(lac_device_upload(device, p.workspace, fill, p.bytes));
    free(fill);
    return p;
}

static void prepared_free(prepared *p)
{
    lac_device_release(device, p->workspace);
    lac_plan_free(p->plan);
}

static operand run(const gpu_tile *tile, const prepared *p, const operand *x, int64_t beside)
{
    operand y = operand_make(tile, tile->n, beside);
    lac_execute_args args = {.size = sizeof args,
                             .x = x->there,
                             .ldx = x->ld,
                             .y = y.there,
                             .ldy = y.ld,
                             .workspace = p->workspace,
                             .workspace_bytes = p->bytes};
    assert_ok(lac_device_upload(device, y.there, y.here, bytes_of(&y)));
    assert_ok(lac_plan_execute(p->plan, &args));
    assert_ok(lac_device_synchronize(device));
    assert_ok(lac_device_download(device, y.here, y.there, bytes_of(&y)));
    return y;
}

/* How many differ, -0 being 0, and how many were written that lie beside Y. */
static int64_t count_wrong(const operand *got, const operand *want)
{
    int64_t wrong = 0;
    for (int64_t line = 0; line < want->lines; ++line) {
        const uint16_t *a = got->here + line * got->ld, *b = want->here + line * want->ld;
        for (int64_t i = 0; i < want->length; ++i) wrong += a[i] != b[i] && ((a[i] | b[i]) & 0x7fff) != 0;
        for (int64_t i = want->length; i < got->ld; ++i) wrong += a[i] != UNSET;
    }
    return wrong;
}

static void describe(const gpu_tile *tile, int index, char *text, size_t size)
{
    snprintf(text, size, "%s %s at (%lld,%lld,%lld), %s-major, %.1f tiles a block (LAC_TEST_GPU_TILE=%d)", tile->kernel,
             tile->pattern, (long long)tile->m, (long long)tile->n, (long long)tile->k,
             tile->layout == LAC_LAYOUT_TOKEN_MAJOR ? "token" : "feature", tile->tiles_a_block, index);
}

static bool is_right(const gpu_tile *tile, int index)
{
    lac_weight *weight = weight_of(tile);
    prepared plain = prepare(tile, weight, "cuda_f32_plain"), own = prepare(tile, weight, tile->kernel);
    operand x[2] = {x_make(tile, 0), x_make(tile, 1)}, want = run(tile, &plain, &x[0], 0);
    int64_t all_wrong = 0;
    for (int way = 0; way < 4; ++way) {
        int beside_x = way & 1, beside_y = way >> 1;
        operand got = run(tile, &own, &x[beside_x], beside_y);
        int64_t wrong = count_wrong(&got, &want);
        char text[256];
        describe(tile, index, text, sizeof text);
        if (wrong)
            print_message("%s, lines of X%s aligned, of Y%s: %lld of %lld outputs are wrong\n", text, beside_x ? " not" : "",
                          beside_y ? " not" : "", (long long)wrong, (long long)(tile->m * tile->n));
        fflush(stdout);
        all_wrong += wrong;
        operand_free(&got);
    }
    operand_free(&want);
    for (int i = 0; i < 2; ++i) operand_free(&x[i]);
    prepared_free(&plain);
    prepared_free(&own);
    lac_weight_free(weight);
    return all_wrong == 0;
}

/* ---- one after the other */

static char under_way[320];

/* A kernel that never ends is a failure, not a test that never ends: its process is. */
static void end_stuck(int signal)
{
    (void)signal; /* what was printed before has been flushed */
    ssize_t told = write(STDERR_FILENO, under_way, strlen(under_way));
    _exit(told < 0 ? 2 : 1);
}

static int number_of(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text && *text ? atoi(text) : otherwise;
}

static bool is_wanted(const gpu_tile *tile, int index)
{
    int only = number_of("LAC_TEST_GPU_TILE", -1);
    return (only < 0 || only == index) && tile->tiles_a_block >= number_of("LAC_TEST_GPU_TILES", 0) &&
           gpu_kernel_is_wanted(tile->kernel, getenv("LAC_TEST_GPU_KERNEL"));
}

/* The emulator wants problems that are small enough for it; with few multiprocessors these have several tiles a block too. */
static double most_products(void)
{
    const char *text = getenv("LAC_TEST_GPU_PRODUCTS");
    double most = text && *text ? atof(text) : INFINITY;
    if (most > 0.0) return most;
    fprintf(stderr, "test_gpu: LAC_TEST_GPU_PRODUCTS is '%s'; it is like 1e9\n", text);
    exit(2);
}

/* By whichever process comes to it when ten seconds have gone by since it told the last time. */
static void tell_how_far(int index)
{
    static time_t told, begun;
    time_t now = time(NULL);
    if (!begun) told = begun = now;
    if (now - told < 10) return;
    told = now;
    print_message("  %d of %d problems after %lld s\n", index < tiles.count ? index : tiles.count, tiles.count,
                  (long long)(now - begun));
    fflush(stdout);
}

static gpu_step check(int index)
{
    if (!device) assert_ok(lac_device_open("cuda:0", &device));
    if (!tiles.tile) gpu_tiles_make(device, most_products(), &tiles);
    if (index == 0) print_message("%d problems, %d programs\n", tiles.count, tiles.programs);
    tell_how_far(index);
    static int done, wrong;
    if (index >= tiles.count) {
        print_message("%d problems by this process, %d of them wrong\n", done, wrong);
        return GPU_STEP_NONE;
    }
    const gpu_tile *tile = &tiles.tile[index];
    if (!is_wanted(tile, index)) return GPU_STEP_PASSED;
    describe(tile, index, under_way, sizeof under_way - 32);
    strcat(under_way, ": goes on and on\n");
    signal(SIGALRM, end_stuck);
    alarm((unsigned)number_of("LAC_TEST_GPU_ROW_SECONDS", 60));
    bool right = is_right(tile, index);
    alarm(0);
    ++done;
    wrong += !right;
    return right ? GPU_STEP_PASSED : GPU_STEP_FAILED;
}

static int processes;

static void every_tile_that_is_reached_is_right(void **state)
{
    (void)state;
    assert_int_equal(gpu_workers_each(check, processes), 0);
}

int test_gpu_tiles(int workers)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_tile_that_is_reached_is_right)};
    processes = workers;
    return cmocka_run_group_tests_name("tiles", tests, NULL, NULL);
}
