/* test_gpu.c - the tests that need a GPU; `make test-gpu` builds and runs them. First every kernel of the registry on its
 * list of cases, in several processes; then the runtime: streams, threads, graphs, errors, memory, time.
 *
 *     LAC_TEST_GPU_WORKERS=4         so many processes (0: none, all in this one); one for each core unless said, 16 at most
 *     LAC_TEST_GPU_ROWS=30           at most so many rows of a kernel; 160 unless said, which covers all pairs
 *     LAC_TEST_GPU_SHAPES=2          so many shapes of each row; 2 unless said
 *     LAC_TEST_GPU_SECONDS=60        begin no row after so long; rows of all kernels come in turns
 *     LAC_TEST_GPU_ROW_SECONDS=60    a row, or a problem of the tiles, that goes on for longer has failed; 60 unless said
 *     LAC_TEST_GPU_TIMES=FILE.csv    the host's times go there too
 *     LAC_TEST_GPU_RESULTS=FILE.csv  a line for each row goes there: passed, failed or left out, and its seconds
 *     LAC_TEST_GPU_PATTERNS=random   rows and tiles of random patterns in place of the listed ones; other ones with each LAC_TEST_SEED
 *     LAC_TEST_GPU_KERNEL=cuda_f32   only kernels whose names begin so; !cuda_f32: only the others
 *     LAC_TEST_GPU_CASE=KERNEL:ROW   only this row
 *     LAC_TEST_GPU_TILES=2           of the tiles' problems only those in which a block has so many tiles, or more
 *     LAC_TEST_GPU_TILE=17           only this one of them
 *     LAC_TEST_GPU_PRODUCTS=1e8      of them only such as have so many products m n k, or fewer, as the emulator wants them
 *     LAC_TEST_GPU_ONLY=rows,runtime only these groups of tests: rows, tiles, numbers, runtime, time
 *     LAC_TEST_GPU_PART=2/5          each fifth row, from the second on: for a run in parts
 *     LAC_TEST_GPU_COMPILERS=8       so many processes compile ahead; one for each core unless said
 *     LAC_TEST_GPU_LIST=sm_90a       run nothing: print the rows for this architecture, for which no GPU is needed
 *
 *     LAC_TEST_GPU_COMPILE=sm_90a    run nothing: compile what the rows need for this architecture, into the cache
 *
 * Without a GPU it fails, and says so. */
#include "gpu/test_gpu.h"

#include <time.h>
#include <unistd.h>

#include "cuda/state.h"
#include "gpu/gpu_patterns.h"
#include "gpu/workers.h"

static gpu_list list;
static gpu_results results;
static gpu_compiled compiled;
static bool all_apply; /* the GPU is one that every kernel has a case for */

static double seconds_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int number_of(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text && *text ? atoi(text) : otherwise;
}

/* Whether LAC_TEST_GPU_ONLY names a group of tests, or is not set. */
static bool is_asked_for(const char *group)
{
    const char *wanted = getenv("LAC_TEST_GPU_ONLY");
    size_t length = strlen(group);
    if (!wanted || !*wanted) return true;
    for (const char *at = wanted; *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == length && !strncmp(at, group, length)) return true;
    return false;
}

static void every_kernel_passes_its_cases(void **state)
{
    (void)state;
    assert_true(list.kernels > 0);
    /* All kernels know sm_90a; some know nothing else, and a few random patterns may be none of theirs. */
    bool all_are_met = all_apply && !gpu_patterns_are_random();
    if (list.unused && (all_are_met || list.unused == list.kernels))
        fail_msg("%d of %d kernels took no case at all", list.unused, list.kernels);
    assert_int_equal(results.failed, 0);
    assert_int_equal(results.done, results.taken);
    if (!getenv("LAC_TEST_GPU_SECONDS")) assert_int_equal(results.taken, getenv("LAC_TEST_GPU_CASE") ? 1 : list.count);
    assert_true(results.taken > 0);
}

/* Kernels are compiled for the architecture with its own instructions, where it has any. */
static const char *target_of(const lac_device_info *info)
{
    static char arch[40];
    static const char *const special[] = {"sm_90", "sm_100", "sm_103", "sm_110"};
    snprintf(arch, sizeof arch, "%s", info->vector_unit);
    for (size_t i = 0; i < sizeof special / sizeof *special; ++i)
        if (!strcmp(special[i], info->vector_unit)) snprintf(arch, sizeof arch, "%sa", special[i]);
    return arch;
}

/* LAC_TEST_GPU_PART=2/5 takes each fifth row, from the second on. */
static void make_list(const char *arch)
{
    const char *wanted = getenv("LAC_TEST_GPU_PART");
    int part = 1, parts = 1, kept = 0;
    gpu_list_make(arch, getenv("LAC_TEST_GPU_KERNEL"), number_of("LAC_TEST_GPU_ROWS", 160), &list);
    if (wanted && (sscanf(wanted, "%d/%d", &part, &parts) != 2 || part < 1 || part > parts)) {
        fprintf(stderr, "test_gpu: LAC_TEST_GPU_PART is '%s'; it is like 2/5\n", wanted);
        exit(2);
    }
    for (int i = part - 1; i < list.count; i += parts) list.rows[kept++] = list.rows[i];
    list.count = kept;
}

static int print_list(const char *arch)
{
    make_list(arch);
    for (int i = 0; i < list.count; ++i) {
        char row[512];
        gpu_row_describe(&list.rows[i], row, sizeof row);
        puts(row);
    }
    printf("%d kernels, %d rows, %d programs and those of other shapes\n", list.kernels, list.count, list.programs);
    gpu_list_free(&list);
    return 0;
}

/* One program after the other takes minutes: all cores at once. No GPU is needed, so there may be more of these than workers. */
static int compile_ahead(const char *arch, int shapes)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int processes = number_of("LAC_TEST_GPU_COMPILERS", cores > 64 ? 64 : (int)cores);
    compiled = gpu_workers_compile(&list, arch, shapes, processes);
    if (compiled.fresh < 0)
        printf("nothing is compiled ahead: see above\n");
    else
        printf("%d rows, %d programs, %d of them compiled by %d processes in %.1f s\n", list.count, compiled.programs,
               compiled.fresh, processes, compiled.seconds);
    fflush(stdout);
    return compiled.fresh < 0;
}

static int compile_list(const char *arch)
{
    make_list(arch);
    int failed = compile_ahead(arch, number_of("LAC_TEST_GPU_SHAPES", 2));
    gpu_list_free(&list);
    return failed;
}

/* As many as there are cores, for compiling takes the time; but each has a context of its own in the GPU's memory. */
static int usual_workers(const lac_device_info *info)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN), room = (long)(info->memory_bytes >> 30);
    long workers = cores < 16 ? cores : 16;
    if (workers > room) workers = room;
    return workers > 1 ? (int)workers : 1;
}

static int test_rows(const lac_device_info *info, int workers)
{
    int shapes = number_of("LAC_TEST_GPU_SHAPES", 2);
    all_apply = !strcmp(target_of(info), "sm_90a");
    make_list(target_of(info));
    printf("%s, %s: %d kernels, %d rows, %d programs and those of other shapes, %d shapes each, %d processes\n", info->model,
           info->vector_unit, list.kernels, list.count, list.programs, shapes, workers);
    fflush(NULL);
    if (workers > 0 && !getenv("LAC_TEST_GPU_CASE") && !getenv("LAC_TEST_GPU_SECONDS")) compile_ahead(target_of(info), shapes);
    gpu_limits limits = {number_of("LAC_TEST_GPU_SECONDS", 0), number_of("LAC_TEST_GPU_ROW_SECONDS", 60)};
    results = gpu_workers_run(&list, shapes, workers, getenv("LAC_TEST_GPU_CASE"), &limits, getenv("LAC_TEST_GPU_RESULTS"));
    printf("%d of %d rows passed, %d failed, in %.1f s\n", results.done, list.count, results.failed, results.seconds);
    fflush(NULL);
    const struct CMUnitTest cases[] = {cmocka_unit_test(every_kernel_passes_its_cases)};
    return cmocka_run_group_tests_name("kernels of the GPU", cases, NULL, NULL);
}

int main(void)
{
    const char *arch = getenv("LAC_TEST_GPU_LIST"), *target = getenv("LAC_TEST_GPU_COMPILE");
    double begin = seconds_now();
    if (arch) return print_list(arch);
    if (target) return compile_list(target);
    lac_device_info info;
    memset(&info, 0, sizeof info);
    if (gpu_probe(&info)) {
        fprintf(stderr, "test_gpu: no usable GPU, so nothing was tested: %s\n", info.note);
        return 1;
    }
    int workers = number_of("LAC_TEST_GPU_WORKERS", usual_workers(&info));
    int failures = is_asked_for("rows") ? test_rows(&info, workers) : 0;
    /* A sanitizer takes what the runtime's tests do on purpose for errors, and their times are not its business. */
    bool all = !getenv("LAC_TEST_GPU_CASE") && !getenv("LAC_TEST_GPU_RAW"), runtime = all && !getenv("LAC_TEST_GPU_KERNEL");
    if (all && is_asked_for("tiles")) failures += test_gpu_tiles(workers > 0 ? workers : 1);
    if (runtime && is_asked_for("numbers")) failures += test_gpu_numbers();
    if (runtime && workers > 0 && (is_asked_for("runtime") || is_asked_for("time")))
        gpu_workers_each(test_gpu_runtime_plan, workers);
    if (runtime && is_asked_for("runtime")) failures += test_gpu_runtime();
    if (runtime && is_asked_for("time")) failures += test_gpu_time();
    printf("%s: %d of %d rows passed, %d failed; %d programs compiled in %.0f s, rows run in %.0f s, all in %.0f s\n",
           failures ? "FAILED" : "PASSED", results.done, list.count, results.failed, compiled.fresh, compiled.seconds,
           results.seconds, seconds_now() - begin);
    gpu_list_free(&list);
    return failures != 0;
}
