/* workers.c - see workers.h. test_gpu.c calls it before cmocka begins: a failed assertion then ends the process it is in, and
 * no other. */
#include "gpu/workers.h"

#include "cuda/state.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_WORKERS = 64, MOST_FAILURES = 20 };

/* What the processes share. */
typedef struct board {
    atomic_int next, taken, done;
    double deadline;                    /* 0: none */
    atomic_int current[MOST_WORKERS];   /* the row that a worker has under way; -1: none */
    _Atomic double since[MOST_WORKERS]; /* when it began that row */
    lac_device_info info;
    int found;
    struct {
        atomic_int state;
        float seconds;
    } row[]; /* [rows] */
} board;

enum { ROW_LEFT, ROW_BEGUN, ROW_PASSED };

/* What all processes write into. */
static void *shared_make(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        fprintf(stderr, "test_gpu: no shared memory\n");
        exit(2);
    }
    return memory;
}

static size_t board_bytes(int rows) { return sizeof(board) + (size_t)rows * sizeof((board *)NULL)->row[0]; }

static board *board_make(int rows) { return shared_make(board_bytes(rows)); }

static void board_free(board *b, int rows) { munmap(b, board_bytes(rows)); }

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int gpu_probe(lac_device_info *info)
{
    board *b = board_make(0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        lac_device_info seen = {.size = sizeof seen};
        snprintf(b->info.note, sizeof b->info.note, "there is no sign of an NVIDIA GPU or its driver");
        for (size_t i = 0; !b->found && lac_device_probe(i, &seen) == LAC_STATUS_OK; ++i) {
            if (seen.kind != LAC_DEVICE_KIND_CUDA) continue;
            b->info = seen;
            b->found = seen.available;
        }
        _exit(0);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
        snprintf(b->info.note, sizeof b->info.note, "the process that looked for one ended badly");
    *info = b->info;
    int missing = !b->found;
    board_free(b, 0);
    return missing;
}

/* Takes rows until there are none left. */
static void work(board *b, const gpu_list *list, int shapes, int self, const char *only)
{
    lac_device *device = NULL;
    assert_ok(lac_device_open("cuda:0", &device));
    for (int i; (i = atomic_fetch_add(&b->next, 1)) < list->count;) {
        const gpu_row *row = &list->rows[i];
        char name[128];
        snprintf(name, sizeof name, "%s:%d", row->kernel, row->index);
        if (only && strcmp(only, name) != 0) continue;
        if (b->deadline > 0 && now() > b->deadline) break;
        double begin = now();
        atomic_fetch_add(&b->taken, 1);
        atomic_store(&b->since[self], begin);
        atomic_store(&b->current[self], i);
        atomic_store(&b->row[i].state, ROW_BEGUN);
        gpu_row_run(device, row, shapes, gpu_case_check);
        b->row[i].seconds = (float)(now() - begin);
        atomic_store(&b->row[i].state, ROW_PASSED);
        atomic_store(&b->current[self], -1);
        atomic_fetch_add(&b->done, 1);
    }
    lac_device_close(device);
}

static pid_t start(board *b, const gpu_list *list, int shapes, int self, const char *only)
{
    atomic_store(&b->current[self], -1);
    fflush(NULL);
    pid_t child = fork();
    if (child) return child;
    work(b, list, shapes, self, only);
    fflush(NULL);
    _exit(0);
}

/* A worker ended before its time: says at which row. */
static void report(const board *b, const gpu_list *list, int self, int status)
{
    int at = atomic_load(&b->current[self]);
    char row[512] = "no row";
    if (at >= 0) gpu_row_describe(&list->rows[at], row, sizeof row);
    fprintf(stderr, "FAILED (%s %d): %s\n", WIFSIGNALED(status) ? "signal" : "exit status",
            WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), row);
    if (at >= 0)
        fprintf(stderr, "  again: LAC_TEST_GPU_CASE=%s:%d LAC_TEST_GPU_WORKERS=0 test_gpu\n", list->rows[at].kernel,
                list->rows[at].index);
}

/* ---- compiling ahead */

/* What a row asks for; then, sorted and each once, what there is to compile. */
typedef struct program_list {
    atomic_int next_row, next_program, fresh;
    int count;
    struct {
        uint64_t hash; /* 0: none */
        lac_cuda_request request;
    } program[];
} program_list;

static int compare_programs(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left < right) - (left > right); /* those without a program last */
}

static void ask_rows(program_list *p, const gpu_list *list, lac_device *target, int shapes)
{
    int most = shapes * LAC_CUDA_MOST_REQUESTS;
    lac_cuda_request *requests = malloc((size_t)most * sizeof *requests);
    assert_non_null(requests);
    for (int row; (row = atomic_fetch_add(&p->next_row, 1)) < list->count;) {
        int made = gpu_row_requests(target, &list->rows[row], shapes, requests);
        for (int i = 0; i < made; ++i) {
            p->program[row * most + i].hash = gpu_request_hash(&requests[i]) | 1;
            p->program[row * most + i].request = requests[i];
        }
    }
    free(requests);
}

static void compile_programs(program_list *p, lac_device *target)
{
    for (int i; (i = atomic_fetch_add(&p->next_program, 1)) < p->count;) {
        lac_cuda_image image;
        bool found = false;
        assert_ok(
            lac_cuda_image_get(target, &p->program[i].request, &(lac_cuda_image_options){.must_store = true}, &found, &image));
        lac_cuda_image_release(&image);
        atomic_fetch_add(&p->fresh, !found);
    }
}

/* One half of the work in all processes; false when one of them failed. */
static bool compile_half(program_list *p, const gpu_list *list, const char *arch, int shapes, int processes)
{
    int failed = 0;
    for (int i = 0; i < processes; ++i) {
        fflush(NULL);
        pid_t child = fork();
        if (child < 0) break;
        if (child > 0) continue;
        lac_device *target = NULL;
        assert_ok(lac_cuda_target_open(arch, &target));
        if (list)
            ask_rows(p, list, target, shapes);
        else
            compile_programs(p, target);
        lac_device_close(target);
        fflush(NULL);
        _exit(0);
    }
    for (int status = 0; wait(&status) > 0;) failed |= status;
    return !failed;
}

gpu_compiled gpu_workers_compile(const gpu_list *list, const char *arch, int shapes, int processes)
{
    gpu_compiled result = {.fresh = -1};
    double begin = now();
    size_t room = (size_t)list->count * (size_t)shapes * LAC_CUDA_MOST_REQUESTS;
    size_t bytes = sizeof(program_list) + room * sizeof((program_list *)NULL)->program[0];
    program_list *p = shared_make(bytes);
    if (compile_half(p, list, arch, shapes, processes)) {
        qsort(p->program, room, sizeof p->program[0], compare_programs);
        for (size_t i = 0; i < room && p->program[i].hash; ++i)
            if (!p->count || p->program[p->count - 1].hash != p->program[i].hash) p->program[p->count++] = p->program[i];
        result.programs = p->count;
        if (compile_half(p, NULL, arch, shapes, processes)) result.fresh = atomic_load(&p->fresh);
    }
    munmap(p, bytes);
    result.seconds = now() - begin;
    return result;
}

int gpu_workers_each(gpu_step (*one)(int index), int processes)
{
    board *b = board_make(0);
    int failed = 0, status;
    for (int i = 0; i < processes; ++i) {
        fflush(NULL);
        pid_t child = fork();
        if (child < 0) ++failed;
        if (child != 0) continue;
        bool fails = false;
        for (gpu_step step; (step = one(atomic_fetch_add(&b->next, 1))) != GPU_STEP_NONE;) fails |= step == GPU_STEP_FAILED;
        fflush(NULL);
        _exit(fails);
    }
    while (wait(&status) > 0) failed += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    board_free(b, 0);
    return failed;
}

/* "cuda_f32_strict: 158 of 160 rows passed, 2 failed", kernel by kernel. */
static void print_results(const board *b, const gpu_list *list)
{
    bool *told = calloc((size_t)list->count, sizeof *told);
    for (int i = 0; told && i < list->count; ++i) {
        int rows = 0, counts[3] = {0};
        if (told[i]) continue;
        for (int j = i; j < list->count; ++j) {
            if (strcmp(list->rows[i].kernel, list->rows[j].kernel) != 0) continue;
            told[j] = true;
            ++rows;
            ++counts[atomic_load(&b->row[j].state)];
        }
        printf("  %-28s %4d of %4d rows passed, %d failed\n", list->rows[i].kernel, counts[ROW_PASSED], rows,
               counts[ROW_BEGUN]);
    }
    free(told);
}

static void store_results(const board *b, const gpu_list *list, const char *path)
{
    static const char *const states[] = {"left out", "failed", "passed"};
    FILE *file = fopen(path, "w");
    if (!file) {
        fprintf(stderr, "test_gpu: cannot write %s\n", path);
        return;
    }
    fprintf(file, "kernel,row,result,seconds,case\n");
    for (int i = 0; i < list->count; ++i) {
        char text[512];
        gpu_row_describe(&list->rows[i], text, sizeof text);
        fprintf(file, "%s,%d,%s,%.3f,\"%s\"\n", list->rows[i].kernel, list->rows[i].index,
                states[atomic_load(&b->row[i].state)], (double)b->row[i].seconds, text);
    }
    fclose(file);
}

/* A kernel that never ends is a failed row, not a test that never ends: its process is ended, and told of as others are. Such a kernel may
 * keep the whole GPU from the processes beside it; so only the one that is at its row for longest is ended, and the others get until the
 * next look to go on. */
static void end_stuck(const board *b, const gpu_list *list, pid_t children[], int workers, double row_seconds)
{
    int oldest = -1, stuck = 0;
    for (int i = 0; i < workers; ++i) {
        if (!children[i] || atomic_load(&b->current[i]) < 0 || now() - atomic_load(&b->since[i]) < row_seconds) continue;
        ++stuck;
        if (oldest < 0 || atomic_load(&b->since[i]) < atomic_load(&b->since[oldest])) oldest = i;
    }
    if (oldest < 0) return;
    const gpu_row *row = &list->rows[atomic_load(&b->current[oldest])];
    fprintf(stderr, "%s:%d goes on for more than %.0f s, as do %d others; its process is ended\n", row->kernel, row->index,
            row_seconds, stuck - 1);
    kill(children[oldest], SIGKILL);
}

/* Waits for the next process that ends; every few seconds it tells how far the rows are and looks for those that are stuck. */
static pid_t wait_telling(const board *b, const gpu_list *list, pid_t children[], int workers, const gpu_limits *limits,
                          double begin, double *told, int *status)
{
    enum { EVERY_SECONDS = 10 };
    pid_t ended;
    while ((ended = waitpid(-1, status, WNOHANG)) == 0) {
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        if (now() - *told < EVERY_SECONDS) continue;
        *told = now();
        end_stuck(b, list, children, workers, limits->row_seconds);
        printf("  %d of %d rows after %.0f s\n", atomic_load(&b->done), list->count, *told - begin);
        fflush(stdout);
    }
    return ended;
}

gpu_results gpu_workers_run(const gpu_list *list, int shapes, int workers, const char *only, const gpu_limits *limits,
                            const char *results_file)
{
    board *b = board_make(list->count);
    gpu_results results = {0};
    double begin = now(), told = begin;
    if (limits->seconds > 0) b->deadline = begin + limits->seconds;
    pid_t children[MOST_WORKERS] = {0};
    if (workers > MOST_WORKERS) workers = MOST_WORKERS;
    if (workers == 0) work(b, list, shapes, 0, only);
    for (int i = 0; i < workers; ++i) children[i] = start(b, list, shapes, i, only);
    for (int running = workers; running > 0;) {
        int status = 0, self = 0;
        pid_t ended = wait_telling(b, list, children, workers, limits, begin, &told, &status);
        if (ended < 0) break;
        while (self < workers && children[self] != ended) ++self;
        if (self == workers) continue;
        children[self] = 0;
        --running;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
        report(b, list, self, status);
        if (++results.failed >= MOST_FAILURES || atomic_load(&b->next) >= list->count) continue;
        children[self] = start(b, list, shapes, self, only);
        ++running;
    }
    results.taken = atomic_load(&b->taken);
    results.done = atomic_load(&b->done);
    results.seconds = now() - begin;
    print_results(b, list);
    if (results_file) store_results(b, list, results_file);
    board_free(b, list->count);
    return results;
}
