/* run.c - the whole run: opens device, baseline and peer, measures the ceilings, then goes from problem to problem. A
 * weight is pruned once for all m of its (n, k, pattern). The command line calls it. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness.h"

void bench_say(const bench_session *session, const char *format, ...)
{
    char message[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    if (session->options->on_message) session->options->on_message(session->options->user, message);
}

void bench_stage_end(bench_session *session, bench_stage stage)
{
    double now = bench_seconds();
    session->stage_seconds[stage] += now - session->stage_began;
    session->stage_began = now;
}

/* For whoever has many problems and little time: what a run spends besides timing. */
static void tell_stages(const bench_session *session)
{
    static const char *const names[BENCH_STAGES] = {"opening", "weights", "x and oracle", "baseline", "plans",
                                                    "peers",   "buffers", "first calls",  "checks",   "timing"};
    char notice[256];
    size_t length = 0;
    for (int i = 0; i < BENCH_STAGES && length < sizeof notice; i++)
        length += (size_t)snprintf(notice + length, sizeof notice - length, "%s%s %.1f", i ? ", " : "Seconds: ", names[i],
                                   session->stage_seconds[i]);
    if (session->options->on_notice) session->options->on_notice(session->options->user, notice);
}

static bench_status failure(const bench_session *session, const char *what, lac_status status)
{
    bench_say(session, "%s: %s", what, status == LAC_STATUS_OUT_OF_MEMORY ? "out of memory" : lac_last_error());
    return BENCH_FAILURE;
}

static void show(const bench_session *session, const char *what)
{
    const bench_options *o = session->options;
    if (o->on_progress) o->on_progress(o->user, session->cells_done * 100, session->cells_total * 100, what);
}

static int is_stopped(const bench_session *session)
{
    const bench_options *o = session->options;
    return (o->should_stop && o->should_stop(o->user)) || bench_seconds() > session->deadline;
}

/* ---- the session */

static bench_status check_kernel_names(const bench_session *session)
{
    for (size_t i = 0; i < session->options->kernel_count; i++) {
        const char *name = session->options->kernels[i];
        lac_kernel_info info = {.size = sizeof info};
        int found = !strcmp(name, "all");
        for (size_t j = 0; !found && !lac_kernel_probe(j, &info); j++) found = !strcmp(info.name, name);
        if (found) continue;
        bench_say(session, "there is no kernel '%s'", name);
        return BENCH_USAGE;
    }
    return BENCH_OK;
}

/* OpenBLAS on a CPU, the vendor's libraries on a GPU; `info` tells their versions. */
static void open_baselines(bench_session *session, char *info, size_t size)
{
    char why[512];
    info[0] = 0;
    if (!session->options->baseline) return;
    if (session->info.kind != LAC_DEVICE_KIND_CPU) {
        bench_child_stop(session->child);
        session->child = NULL;
        bench_vendors_open(session, info, size);
        return;
    }
    if (!session->child || !bench_child_open(session->child, session->threads, info, size, why, sizeof why)) return;
    bench_say(session, "no baseline: %s", why);
    bench_child_stop(session->child);
    session->child = NULL;
}

/* Where buffers lie, how much room there is for them, and the device's ceilings. */
static bench_status open_backend(bench_session *session)
{
    char why[512] = "";
    int is_cpu = session->info.kind == LAC_DEVICE_KIND_CPU, failed;
    session->backend = is_cpu ? bench_backend_cpu() : bench_backend_cuda_open(&session->info, why, sizeof why);
    if (!session->backend) {
        bench_say(session, "%s: %s", session->info.name, why);
        return BENCH_FAILURE;
    }
    session->cache_bytes = bench_machine_cache_bytes(&session->info);
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    session->memory_limit = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page / 3 : (uint64_t)2 << 30;
    if (!is_cpu && bench_backend_cuda_memory() / 2 < session->memory_limit)
        session->memory_limit = bench_backend_cuda_memory() / 2;
    int want_f16 = 0, want_tf32 = 0;
    for (int i = 0; i < session->precision_count; i++) {
        want_f16 = want_f16 || session->precisions[i] == LAC_PRECISION_FAST;
        want_tf32 = want_tf32 || session->precisions[i] == LAC_PRECISION_TF32;
    }
    for (size_t i = 0; i < session->options->dtype_count; i++)
        want_f16 = want_f16 || session->options->dtypes[i] != LAC_DTYPE_F32;
    bench_turns_alone(session->turns);
    failed = is_cpu ? bench_ceiling_measure(&session->info, session->threads, &session->ceiling, why, sizeof why)
                    : bench_backend_cuda_measure(want_f16, want_tf32, &session->ceiling, why, sizeof why);
    bench_turns_together(session->turns);
    if (failed) bench_say(session, "%s", why);
    return failed ? BENCH_FAILURE : BENCH_OK;
}

static void describe_device(bench_session *session, const char *baseline)
{
    char more[320];
    if (session->info.kind == LAC_DEVICE_KIND_CPU) {
        bench_machine_describe(&session->info, &session->ceiling, baseline, session->device_info, sizeof session->device_info);
        return;
    }
    bench_backend_cuda_describe(more, sizeof more);
    size_t length = strlen(more);
    snprintf(more + length, sizeof more - length, "%s%s", *baseline ? "; " : "", baseline);
    bench_machine_describe_gpu(&session->info, &session->ceiling, more, session->device_info, sizeof session->device_info);
}

/* The default is the device's; each of them once. */
static void resolve_precisions(bench_session *session)
{
    const bench_options *o = session->options;
    const lac_precision usual = session->info.kind == LAC_DEVICE_KIND_CPU ? LAC_PRECISION_STRICT : LAC_PRECISION_FAST;
    for (size_t i = 0; i < (o->precision_count ? o->precision_count : 1); i++) {
        lac_precision wanted = o->precision_count && o->precisions[i] ? o->precisions[i] : usual;
        int known = 0;
        for (int j = 0; j < session->precision_count; j++) known = known || session->precisions[j] == wanted;
        if (!known && session->precision_count < BENCH_MOST_PRECISIONS)
            session->precisions[session->precision_count++] = wanted;
    }
}

static bench_status open_session(bench_session *session)
{
    const bench_options *o = session->options;
    char why[512], baseline[192];
    /* First of all: nothing has a thread yet. */
    if (o->baseline && !(session->child = bench_child_start(session, why, sizeof why)))
        bench_say(session, "no baseline: %s", why);
    lac_status status = lac_device_open(o->device, &session->device);
    if (!status) status = lac_device_open("cpu", &session->host);
    session->info.size = sizeof session->info;
    if (!status) status = lac_device_get_info(session->device, &session->info);
    if (status) return failure(session, "the device does not open", status);
    bench_status result = check_kernel_names(session);
    if (result) return result;
    int is_cpu = session->info.kind == LAC_DEVICE_KIND_CPU;
    session->threads = !is_cpu ? 1 : o->threads > 0 ? o->threads : session->info.cores > 0 ? session->info.cores : 1;
    resolve_precisions(session);
    if ((result = open_backend(session))) return result;
    open_baselines(session, baseline, sizeof baseline);
    describe_device(session, baseline);
    if (o->peer_count > BENCH_MOST_PEERS) {
        bench_say(session, "there are %zu peers; %d is the most", o->peer_count, BENCH_MOST_PEERS);
        return BENCH_USAGE;
    }
    for (; (size_t)session->peer_count < o->peer_count; session->peer_count++)
        if (bench_peer_open(&session->peers[session->peer_count], o->peers[session->peer_count], why, sizeof why)) {
            bench_say(session, "%s: %s", o->peers[session->peer_count], why);
            return BENCH_FAILURE;
        }
    return BENCH_OK;
}

static void close_session(bench_session *session)
{
    bench_child_stop(session->child);
    bench_vendors_close(session);
    if (session->backend && session->backend->kind == LAC_DEVICE_KIND_CUDA) bench_backend_cuda_close();
    lac_device_close(session->host);
    lac_device_close(session->device);
}

/* ---- the problems: (n, k) outside, then dtype and pattern, then every m of that (n, k) */

/* The same numbers for the same sizes, whatever else the run holds. */
static uint64_t seed_of(const bench_session *session, int64_t m, int64_t n, int64_t k)
{
    bench_random random = {session->options->seed ^ (uint64_t)n << 32 ^ (uint64_t)k};
    uint64_t seed = bench_random_next(&random) ^ (uint64_t)m;
    return bench_random_next(&(bench_random){seed});
}

static bench_status run_problem(bench_session *session, const bench_layer *l, bench_problem *problem)
{
    int64_t count = problem->m * problem->k;
    bench_random random = {seed_of(session, problem->m, l->n, l->k)};
    problem->x = malloc((size_t)count * sizeof *problem->x);
    if (!problem->x) return failure(session, "X", LAC_STATUS_OUT_OF_MEMORY);
    bench_random_gaussian(&random, problem->x, count);
    bench_round(problem->x, problem->dtype, count);
    lac_status status = bench_oracle_open(problem, bench_random_next(&random));
    bench_stage_end(session, BENCH_STAGE_X);
    bench_status result = status ? failure(session, "the oracle", status) : bench_cell_run(problem);
    bench_oracle_close(&problem->oracle);
    free(problem->x);
    problem->x = NULL;
    return result;
}

/* A row of this precision, of this kind of machine, stands in an earlier run's results. */
static int has_row(const bench_session *session, const bench_problem *problem, int64_t m, lac_precision precision)
{
    static const char *const precisions[] = {"default", "strict", "fast", "tf32"};
    const bench_rows *known = session->options->known;
    const char *dtype = lac_dtype_name(problem->dtype), *layout = problem->layout ? "feature" : "token";
    for (size_t i = 0; known && i < known->count; i++) {
        const bench_row *row = &known->items[i];
        if (row->threads == session->threads && !strcmp(row->device, session->info.name) &&
            !strcmp(row->cache, session->options->warm ? "warm" : "cold") && row->m == m && row->n == problem->n &&
            row->k == problem->k && !strcmp(row->pattern, problem->pattern_text) && !strcmp(row->dtype, dtype) &&
            !strcmp(row->layout, layout) && strncmp(row->kernel, "peer:", 5) &&
            !strcmp(row->precision, precisions[precision]) &&
            bench_info_is_same_machine(row->device_info, session->device_info)) /* cuda:0 is another GPU elsewhere */
            return 1;
    }
    return 0;
}

/* Rows of each precision do: this problem is done. */
static int is_known(const bench_session *session, const bench_problem *problem, int64_t m)
{
    int wanted = problem->dtype == LAC_DTYPE_F32 ? session->precision_count : 1, found = 0;
    for (int i = 0; i < wanted; i++) found += has_row(session, problem, m, session->precisions[i]);
    return found == wanted;
}

/* The problem in the precisions that share a baseline, side by side: strict and fast, then tf32; 16 bits know none. Those that an
 * earlier run came to are not run again. */
static bench_status run_precisions(bench_session *session, const bench_layer *l, bench_problem *problem)
{
    bench_status result = BENCH_OK;
    for (int tf32 = 0; !result && tf32 < 2; tf32++) {
        problem->precision_count = 0;
        for (int i = 0; i < session->precision_count; i++)
            if ((session->precisions[i] == LAC_PRECISION_TF32) == tf32 &&
                !has_row(session, problem, problem->m, session->precisions[i]))
                problem->precisions[problem->precision_count++] = session->precisions[i];
        if (problem->dtype != LAC_DTYPE_F32) {
            problem->precisions[0] = session->precisions[0];
            problem->precision_count = !tf32;
        }
        if (!problem->precision_count) continue;
        if (is_stopped(session))
            problem->is_cut = 1;
        else
            result = run_problem(session, l, problem);
    }
    return result;
}

/* The problems of this layer that are left; those that are done are counted. */
static int count_left(bench_session *session, const bench_problem *problem)
{
    const bench_shapes *shapes = session->options->shapes;
    int left = 0;
    for (size_t i = 0; i < shapes->count; i++) {
        if (shapes->items[i].n != problem->n || shapes->items[i].k != problem->k) continue;
        if (is_known(session, problem, shapes->items[i].m))
            session->cells_done++;
        else
            left++;
    }
    return left;
}

/* All problems of a layer under one pattern and dtype. */
static bench_status run_layer(bench_session *session, bench_layer *l, bench_problem *problem, bench_weight *w)
{
    const bench_shapes *shapes = session->options->shapes;
    char what[128];
    snprintf(what, sizeof what, "pruning %lldx%lld to %s", (long long)l->n, (long long)l->k, problem->pattern_text);
    show(session, what);
    bench_weight_wait(w);
    bench_stage_end(session, BENCH_STAGE_WEIGHT);
    if (w->status) {
        bench_say(session, "%s: %s", what, w->why);
        return BENCH_FAILURE;
    }
    bench_vendor_forget_layer(l);
    l->is_projected = 0;
    l->held = w->held;
    problem->w = w->held;
    problem->weight = w->weight;
    problem->weight_info = w->info;
    bench_status result = BENCH_OK;
    for (size_t i = 0; !result && i < shapes->count && !is_stopped(session); i++) {
        if (shapes->items[i].n != l->n || shapes->items[i].k != l->k) continue;
        if (is_known(session, problem, shapes->items[i].m)) continue;
        problem->shape = &shapes->items[i];
        problem->m = shapes->items[i].m;
        problem->is_cut = 0;
        result = run_precisions(session, l, problem);
        session->cells_done += !problem->is_cut;
    }
    return result;
}

/* The next pair of dtype and pattern from `at` on that has problems left: begins to make its weight and returns where it is;
 * the count of pairs when there is none. */
static size_t start_next(bench_session *session, bench_layer *l, size_t at, bench_problem *problem, bench_weight *w)
{
    const bench_options *o = session->options;
    const size_t pairs = o->dtype_count * o->pattern_count;
    for (; at < pairs; at++) {
        const lac_pattern *pattern = &o->patterns[at % o->pattern_count];
        *problem = (bench_problem){.session = session,
                                   .n = l->n,
                                   .k = l->k,
                                   .dtype = o->dtypes[at / o->pattern_count],
                                   .layout = o->layout,
                                   .pattern = *pattern,
                                   .layer = l};
        if (lac_pattern_format(pattern, problem->pattern_text, sizeof problem->pattern_text)) continue;
        if (!count_left(session, problem)) continue;
        *w = (bench_weight){.drawn = l->drawn, .n = l->n, .k = l->k, .pattern = *pattern, .dtype = problem->dtype};
        /* A CPU is what is timed: nothing else may run on it. */
        bench_weight_start(w, session->info.kind != LAC_DEVICE_KIND_CPU);
        break;
    }
    return at;
}

static bench_status run_layers(bench_session *session, bench_layer *l)
{
    const size_t pairs = session->options->dtype_count * session->options->pattern_count;
    bench_problem problems[2];
    bench_weight weights[2] = {{0}, {0}};
    bench_status result = BENCH_OK;
    size_t at = start_next(session, l, 0, &problems[0], &weights[0]);
    for (int turn = 0; !result && at < pairs && !is_stopped(session); turn = !turn) {
        bench_weight_wait(&weights[turn]);
        at = start_next(session, l, at + 1, &problems[!turn], &weights[!turn]);
        result = run_layer(session, l, &problems[turn], &weights[turn]);
        bench_vendor_forget_layer(l);
        bench_weight_free(&weights[turn]);
    }
    bench_weight_free(&weights[0]);
    bench_weight_free(&weights[1]);
    return result;
}

static bench_status run_sizes(bench_session *session, int64_t n, int64_t k)
{
    bench_layer l = {.n = n,
                     .k = k,
                     .drawn = malloc((size_t)(n * k) * sizeof *l.drawn),
                     .signs = malloc((size_t)n * sizeof *l.signs),
                     .projected = malloc((size_t)k * sizeof *l.projected)};
    bench_status result = BENCH_OK;
    if (!l.drawn || !l.signs || !l.projected) {
        result = failure(session, "W", LAC_STATUS_OUT_OF_MEMORY);
    } else {
        bench_random random = {seed_of(session, 0, n, k)};
        bench_random_gaussian(&random, l.drawn, n * k);
        result = run_layers(session, &l);
    }
    free(l.drawn);
    free(l.signs);
    free(l.projected);
    return result;
}

/* 1 when an earlier shape has the same n and k, so that this one was done with it. */
static int is_done(const bench_shapes *shapes, size_t index)
{
    for (size_t i = 0; i < index; i++)
        if (shapes->items[i].n == shapes->items[index].n && shapes->items[i].k == shapes->items[index].k) return 1;
    return 0;
}

/* On a quiet machine a thread keeps its core for seconds. Where it does not, threads that wait for each other lose whole
 * time slices, and ratios say more about the scheduler than about kernels. */
static void warn_when_busy(const bench_session *session)
{
    double rate = (double)session->preempted / (session->timed_seconds * session->threads);
    if (!session->options->on_notice || !session->rows) return;
    if (session->restless)
        session->options->on_notice(session->options->user,
                                    "Threads went on spinning while others were timed (is "
                                    "OMP_WAIT_POLICY active?). Times and ratios are not to be trusted.");
    if (!(rate > 10)) return;
    char notice[256];
    snprintf(notice, sizeof notice,
             "The machine was busy: each thread lost its core %.0f times a second. Times and ratios are not to be trusted.",
             rate);
    session->options->on_notice(session->options->user, notice);
}

/* The largest Y comes first, so that its place in host memory is fixed once. */
static void make_landing(const bench_session *session)
{
    const bench_shapes *shapes = session->options->shapes;
    size_t most = 0;
    for (size_t i = 0; i < shapes->count; i++) {
        size_t bytes = (size_t)(shapes->items[i].m * shapes->items[i].n) * sizeof(float);
        if (bytes > most) most = bytes;
    }
    if (session->backend->kind != LAC_DEVICE_KIND_CPU) session->backend->landing(most);
}

bench_status bench_run(const bench_options *options)
{
    bench_session session = {.options = options, .deadline = INFINITY, .stage_began = bench_seconds(), .turns = -1};
    char why[512];
    if (options->turns && (session.turns = bench_turns_open(options->turns, why, sizeof why)) < 0) {
        bench_say(&session, "%s", why);
        return BENCH_FAILURE;
    }
    const bench_shapes *shapes = options->shapes;
    session.cells_total = shapes->count * options->pattern_count * options->dtype_count;
    bench_status result = open_session(&session);
    if (!result) make_landing(&session);
    bench_stage_end(&session, BENCH_STAGE_OPEN);
    if (options->max_seconds > 0) session.deadline = bench_seconds() + options->max_seconds;
    show(&session, "");
    for (size_t i = 0; !result && i < shapes->count && !is_stopped(&session); i++)
        if (!is_done(shapes, i)) result = run_sizes(&session, shapes->items[i].n, shapes->items[i].k);
    uint64_t left = session.cells_total - session.cells_done;
    if (!result && left && bench_seconds() > session.deadline)
        bench_say(&session, "time is up: %llu of %llu problems were left out", (unsigned long long)left,
                  (unsigned long long)session.cells_total);
    warn_when_busy(&session);
    if (options->stages) tell_stages(&session);
    if (!result && session.wrong) result = BENCH_WRONG;
    if (!result && !session.rows && !(options->known && !left)) {
        bench_say(&session, "nothing was timed");
        result = BENCH_FAILURE;
    }
    close_session(&session);
    bench_turns_close(session.turns);
    return result;
}
