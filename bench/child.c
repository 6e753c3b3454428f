/* child.c - the baseline of a CPU in a process of its own, so that its threads and Lacuna's never share a core.
 *
 * OpenBLAS keeps its threads spinning after a call, and so does OpenMP. In one process both would wait for each other's
 * time slices. Here the process that has OpenBLAS is forked before either has a thread. It does what it is asked over a
 * socket, with buffers of its own and the code of contender.c and timing.c; what it sends back are times and, for the
 * check, its Y. Whoever had a turn lets its threads fall asleep before the other one begins.
 *
 * run.c starts it; contender.c and timing.c hand the baseline's work over. Requests are answered one by one. */
#include "child.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness.h"

typedef enum request_kind { OPEN = 1, PROBLEM, COPY, CALL, CALL_FIRST, TURN, CLOSE } request_kind;

typedef struct request {
    request_kind kind;
    int64_t m, n, k; /* PROBLEM: followed by W [n][k] and X [m][k]; OPEN: threads in m */
    lac_dtype dtype;
    lac_layout layout;
    size_t copies, slots; /* COPY */
    bench_turn turn;      /* TURN */
} request;

/* After CALL_FIRST Y follows, when the status is OK. */
typedef struct answer {
    lac_status status;
    int way;
    char text[512]; /* OPEN: what it is, or why not; PROBLEM: the baseline's name */
    bench_turn turn;
} answer;

struct bench_child {
    int socket;
    pid_t process; /* of the child; 0 in the child itself */
    int is_gone;   /* it did not answer */
};

/* ---- both ends */

static int send_all(int socket, const void *data, size_t bytes)
{
    for (const char *at = data; bytes;) {
        ssize_t sent = send(socket, at, bytes, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return -1;
        at += sent;
        bytes -= (size_t)sent;
    }
    return 0;
}

static int receive_all(int socket, void *data, size_t bytes)
{
    for (char *at = data; bytes;) {
        ssize_t got = recv(socket, at, bytes, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return -1;
        at += got;
        bytes -= (size_t)got;
    }
    return 0;
}

/* 1 when thread `id` of this process is on a core or waits for one. */
static int is_running(const char *id)
{
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/self/task/%.20s/stat", id);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0; /* it ended meanwhile */
    ssize_t got = read(file, text, sizeof text - 1);
    close(file);
    if (got <= 0) return 0;
    text[got] = 0;
    const char *name_end = strrchr(text, ')'); /* "17 (name) S ..." */
    return name_end && name_end[1] == ' ' && name_end[2] == 'R';
}

static int is_settled(void)
{
    char own[24];
    snprintf(own, sizeof own, "%ld", (long)gettid());
    DIR *tasks = opendir("/proc/self/task");
    if (!tasks) return 1; /* nothing to be seen */
    int settled = 1;
    for (const struct dirent *task; settled && (task = readdir(tasks));)
        settled = task->d_name[0] == '.' || !strcmp(task->d_name, own) || !is_running(task->d_name);
    closedir(tasks);
    return settled;
}

int bench_settle(void)
{
    const struct timespec pause = {.tv_nsec = 200000};
    const double begin = bench_seconds(), patience = 0.2;
    while (!is_settled()) {
        if (bench_seconds() - begin > patience) return 1;
        nanosleep(&pause, NULL);
    }
    return 0;
}

/* ---- the child */

typedef struct server {
    int socket;
    bench_session session; /* no device: only what the baseline needs */
    bench_problem problem;
    bench_contender dense;
    bench_ring ring;
} server;

static void close_problem(server *s)
{
    bench_contender_close(&s->dense);
    if (s->ring.count) bench_ring_close(&s->ring, &s->session);
    free((void *)(uintptr_t)s->problem.w);
    free(s->problem.x);
    s->problem = (bench_problem){0};
}

static lac_status make_ring(server *s, size_t slots)
{
    if (s->ring.count) bench_ring_close(&s->ring, &s->session);
    lac_status status = bench_ring_open(&s->ring, &s->problem, s->dense.dtype, s->dense.layout, slots);
    s->dense.ring = &s->ring;
    return status;
}

/* Nonzero: the other end is gone. The data is read in any case. */
static int serve_problem(server *s, const request *r, answer *a)
{
    close_problem(s);
    size_t w_bytes = (size_t)(r->n * r->k) * sizeof(float), x_bytes = (size_t)(r->m * r->k) * sizeof(float);
    float *w = malloc(w_bytes);
    s->problem =
        (bench_problem){.session = &s->session, .m = r->m, .n = r->n, .k = r->k, .dtype = r->dtype, .layout = r->layout};
    s->problem.w = w;
    s->problem.x = malloc(x_bytes);
    if (!w || !s->problem.x) return -1; /* the parent sees the process end, and says so */
    if (receive_all(s->socket, w, w_bytes) || receive_all(s->socket, s->problem.x, x_bytes)) return -1;
    a->status = bench_contender_open_dense(&s->dense, &s->problem);
    if (!a->status) a->status = make_ring(s, 1);
    a->way = s->dense.way;
    snprintf(a->text, sizeof a->text, "%s", s->dense.name);
    return 0;
}

static void serve_open(server *s, const request *r, answer *a)
{
    s->session.threads = (int)r->m;
    s->session.blas = bench_openblas_open(s->session.threads, a->text, sizeof a->text);
    a->status = s->session.blas ? LAC_STATUS_OK : LAC_STATUS_NOT_FOUND;
    if (s->session.blas) snprintf(a->text, sizeof a->text, "%s", bench_openblas_info(s->session.blas));
}

/* Nonzero: the other end is gone. */
static int serve_one(server *s, const request *r)
{
    static answer a; /* large */
    memset(&a, 0, sizeof a);
    switch (r->kind) {
    case OPEN:
        serve_open(s, r, &a);
        break;
    case PROBLEM:
        if (serve_problem(s, r, &a)) return -1;
        break;
    case COPY:
        a.status = make_ring(s, r->slots);
        if (!a.status) a.status = bench_contender_copy(&s->dense, r->copies);
        break;
    case CALL:
        a.status = bench_contender_call(&s->dense) ? LAC_STATUS_DEVICE : LAC_STATUS_OK;
        break;
    case CALL_FIRST:
        memset(s->ring.y[0], 0xff, s->ring.y_bytes);
        a.status = bench_contender_call_first(&s->dense) ? LAC_STATUS_DEVICE : LAC_STATUS_OK;
        break;
    case TURN:
        a.turn = r->turn;
        a.status = bench_turn_run(&s->session, &s->dense, &a.turn) ? LAC_STATUS_DEVICE : LAC_STATUS_OK;
        break;
    case CLOSE:
        close_problem(s);
        break;
    }
    if (r->kind != TURN) bench_settle(); /* a turn has seen to it */
    if (send_all(s->socket, &a, sizeof a)) return -1;
    return r->kind == CALL_FIRST && !a.status ? send_all(s->socket, s->ring.y[0], s->ring.y_bytes) : 0;
}

static _Noreturn void serve(int socket, const bench_session *session)
{
    static request r; /* large */
    server s = {.socket = socket};
    s.session.options = session->options;
    s.session.backend = bench_backend_cpu();
    signal(SIGINT, SIG_IGN); /* the parent hears it too, and ends the run */
    while (!receive_all(socket, &r, sizeof r) && !serve_one(&s, &r)) continue;
    _exit(0);
}

/* ---- the parent */

bench_child *bench_child_start(const bench_session *session, char *why, size_t why_size)
{
    int ends[2];
    bench_child *child = calloc(1, sizeof *child);
    if (!child || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) {
        snprintf(why, why_size, "no socket for its process: %s", strerror(errno));
        free(child);
        return NULL;
    }
    fflush(NULL); /* or the child could write out what is buffered here a second time */
    child->process = fork();
    if (child->process == 0) {
        close(ends[0]);
        serve(ends[1], session);
    }
    close(ends[1]);
    child->socket = ends[0];
    if (child->process < 0) {
        snprintf(why, why_size, "no process for it: %s", strerror(errno));
        close(child->socket);
        free(child);
        return NULL;
    }
    return child;
}

void bench_child_stop(bench_child *child)
{
    if (!child) return;
    close(child->socket); /* it ends when it reads that */
    while (waitpid(child->process, NULL, 0) < 0 && errno == EINTR) continue;
    free(child);
}

int bench_child_is_gone(const bench_child *child) { return child && child->is_gone; }

/* Sends a request and what goes with it. DEVICE when the process is gone, else what it answers. */
static lac_status ask(bench_child *child, const request *r, const bench_problem *problem, answer *a)
{
    memset(a, 0, sizeof *a);
    child->is_gone = send_all(child->socket, r, sizeof *r) ||
                     (problem && (send_all(child->socket, problem->w, (size_t)(problem->n * problem->k) * sizeof(float)) ||
                                  send_all(child->socket, problem->x, (size_t)(problem->m * problem->k) * sizeof(float)))) ||
                     receive_all(child->socket, a, sizeof *a);
    return child->is_gone ? LAC_STATUS_DEVICE : a->status;
}

static lac_status ask_plain(bench_child *child, request_kind kind)
{
    static request r; /* large, both */
    static answer a;
    r.kind = kind;
    return ask(child, &r, NULL, &a);
}

int bench_child_open(bench_child *child, int threads, char *info, size_t info_size, char *why, size_t why_size)
{
    static answer a;
    const request r = {.kind = OPEN, .m = threads};
    lac_status status = ask(child, &r, NULL, &a);
    snprintf(status ? why : info, status ? why_size : info_size, "%s",
             status == LAC_STATUS_DEVICE ? "the process that should run OpenBLAS ended" : a.text);
    return status != LAC_STATUS_OK;
}

lac_status bench_child_open_dense(bench_child *child, const bench_problem *problem, bench_contender *c)
{
    static answer a;
    const request r = {
        .kind = PROBLEM, .m = problem->m, .n = problem->n, .k = problem->k, .dtype = problem->dtype, .layout = problem->layout};
    bench_settle(); /* it is about to find out which way is the quickest */
    lac_status status = ask(child, &r, problem, &a);
    c->way = a.way;
    snprintf(c->name, sizeof c->name, "%.*s", (int)sizeof c->name - 1, a.text);
    return status;
}

lac_status bench_child_copy(bench_child *child, size_t copies, size_t slots)
{
    static answer a;
    const request r = {.kind = COPY, .copies = copies, .slots = slots};
    return ask(child, &r, NULL, &a);
}

int bench_child_call(bench_child *child) { return ask_plain(child, CALL) != LAC_STATUS_OK; }

int bench_child_call_first(bench_child *child, void *y, size_t bytes)
{
    return ask_plain(child, CALL_FIRST) != LAC_STATUS_OK || receive_all(child->socket, y, bytes);
}

int bench_child_turn(bench_child *child, bench_turn *turn)
{
    static answer a;
    static request r;
    r = (request){.kind = TURN, .turn = *turn};
    if (ask(child, &r, NULL, &a)) return -1;
    *turn = a.turn;
    return 0;
}

void bench_child_close_dense(bench_child *child) { ask_plain(child, CLOSE); }
