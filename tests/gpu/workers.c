/* workers.c - see workers.h. test_gpu.c calls it before cmocka begins: a failed assertion then ends the process it is in, and
 * no other. */
#include "gpu/workers.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_WORKERS = 64, MOST_FAILURES = 20 };

/* What the processes share. */
typedef struct board {
    atomic_int next, taken, done;
    double deadline;                  /* 0: none */
    atomic_int current[MOST_WORKERS]; /* the row that a worker has under way; -1: none */
    lac_device_info info;
    int found;
} board;

static board *board_make(void)
{
    board *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (b == MAP_FAILED) {
        fprintf(stderr, "test_gpu: no shared memory\n");
        exit(2);
    }
    return b;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int gpu_probe(lac_device_info *info)
{
    board *b = board_make();
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
    munmap(b, sizeof *b);
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
        atomic_fetch_add(&b->taken, 1);
        atomic_store(&b->current[self], i);
        gpu_row_run(device, row, shapes);
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

gpu_results gpu_workers_run(const gpu_list *list, int shapes, int workers, const char *only, int seconds)
{
    board *b = board_make();
    gpu_results results = {0};
    double begin = now();
    if (seconds > 0) b->deadline = begin + seconds;
    pid_t children[MOST_WORKERS] = {0};
    if (workers > MOST_WORKERS) workers = MOST_WORKERS;
    if (workers == 0) work(b, list, shapes, 0, only);
    for (int i = 0; i < workers; ++i) children[i] = start(b, list, shapes, i, only);
    for (int running = workers; running > 0;) {
        int status = 0, self = 0;
        pid_t ended = wait(&status);
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
    munmap(b, sizeof *b);
    return results;
}
