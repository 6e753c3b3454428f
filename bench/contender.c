/* contender.c - the three kinds of contenders behind one face: Lacuna's kernels, OpenBLAS, a peer. cell.c makes them,
 * timing.c calls them.
 *
 * A contender owns `copies` handles. Each holds a copy of the weight of its own, so that calls on handle after handle find
 * no weight in the cache. */
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "parallel.h"
#include "turns.h"

static const double CLOSE = 1.2; /* of a prediction: no less than what the planner holds for close */

/* ---- X and Y */

lac_status bench_ring_open(bench_ring *ring, const bench_problem *problem, lac_dtype dtype, lac_layout layout, size_t count)
{
    const bench_backend *backend = problem->session->backend;
    size_t size = lac_dtype_size(dtype);
    *ring = (bench_ring){.dtype = dtype, .layout = layout};
    ring->x_bytes = (size_t)(problem->m * problem->k) * size;
    ring->y_bytes = (size_t)(problem->m * problem->n) * size;
    ring->x = calloc(count, sizeof *ring->x);
    ring->y = calloc(count, sizeof *ring->y);
    void *image = malloc(ring->x_bytes);
    int failed = !ring->x || !ring->y || !image;
    if (!failed) bench_image_fill(image, dtype, layout, problem->x, problem->m, problem->k);
    for (; !failed && ring->count < count; ring->count++) {
        void *x = ring->x[ring->count] = backend->allocate(ring->x_bytes);
        void *y = ring->y[ring->count] = backend->allocate(ring->y_bytes);
        failed = !x || !y;
        if (failed) {
            if (x) backend->release(x, ring->x_bytes);
            if (y) backend->release(y, ring->y_bytes);
            break;
        }
        if (ring->count)
            backend->copy(x, ring->x[0], ring->x_bytes);
        else
            backend->upload(x, image, ring->x_bytes);
        if (backend->kind != LAC_DEVICE_KIND_CPU) continue;
        /* Any numbers will do for Y, but its pages must be there before the clock runs. */
        for (size_t at = 0; at < ring->y_bytes; at += ring->x_bytes) {
            size_t left = ring->y_bytes - at;
            backend->upload((char *)y + at, image, left < ring->x_bytes ? left : ring->x_bytes);
        }
    }
    free(image);
    if (failed) bench_ring_close(ring, problem->session);
    return failed ? LAC_STATUS_OUT_OF_MEMORY : LAC_STATUS_OK;
}

void bench_ring_close(bench_ring *ring, const bench_session *session)
{
    for (size_t i = 0; i < ring->count; i++) {
        session->backend->release(ring->x[i], ring->x_bytes);
        session->backend->release(ring->y[i], ring->y_bytes);
    }
    free(ring->x);
    free(ring->y);
    *ring = (bench_ring){0};
}

/* ---- handles */

/* The baseline of a CPU lives in the child; here is only its name. */
static int is_remote(const bench_contender *c)
{
    return c->role == BENCH_ROLE_DENSE && !c->vendor && c->problem->session->child;
}

static lac_status clone_weight(const lac_weight *weight, lac_weight **out)
{
    lac_weight_info info = {.size = sizeof info};
    lac_span parts[LAC_PART_COUNT];
    lac_status status = lac_weight_get_info(weight, &info);
    for (int i = 0; !status && i < LAC_PART_COUNT; i++) status = lac_weight_get_part(weight, (lac_part)i, &parts[i]);
    return status ? status : lac_weight_from_parts(&info, parts, out);
}

/* What a plan with these options would be; 0 where there can be none. */
static double predict(const bench_contender *c, lac_plan_options options, lac_plan_info *info)
{
    const bench_problem *p = c->problem;
    lac_plan *plan = NULL;
    options.predict_only = 1;
    info->size = sizeof *info;
    int made = !lac_plan_create(p->session->device, p->weight, p->m, &options, &plan) && !lac_plan_get_info(plan, info);
    lac_plan_free(plan);
    return made ? info->predicted_seconds : 0.0;
}

/* Compiles what a plan may time against each other, so that nobody else has to wait for that. Whether it works shows later. */
static void compile_rivals(const bench_contender *c, lac_plan_options options, double seconds)
{
    const bench_problem *p = c->problem;
    lac_kernel_info kernel = {.size = sizeof kernel};
    for (size_t i = 0; !lac_kernel_probe(i, &kernel); ++i) {
        lac_plan_info info;
        lac_plan *plan = NULL;
        options.kernel = kernel.name;
        double other = kernel.device == p->session->backend->kind ? predict(c, options, &info) : 0.0;
        if (other <= 0.0 || other > CLOSE * seconds) continue;
        options.no_timing = 1;
        lac_plan_create(p->session->device, p->weight, p->m, &options, &plan);
        lac_plan_free(plan);
        options.no_timing = 0;
    }
}

/* Whether the first plan of a contender times kernels or the vendor's algorithms, which wants the GPU for itself. */
static int times_itself(const bench_contender *c, const lac_plan_options *options)
{
    lac_plan_info info;
    if (c->problem->session->backend->kind == LAC_DEVICE_KIND_CPU || c->copies) return 0;
    double seconds = predict(c, *options, &info);
    if (seconds <= 0.0 || (!info.is_dense && !info.rivals)) return 0;
    if (info.rivals && c->problem->session->turns >= 0) compile_rivals(c, *options, seconds);
    return 1;
}

static lac_status make_plan(bench_contender *c, const char *kernel, lac_weight **weight, void **plan)
{
    const bench_problem *p = c->problem;
    lac_plan_options options = {.size = sizeof options,
                                .x_layout = c->layout,
                                .y_layout = c->layout,
                                .x_dtype = c->dtype,
                                .y_dtype = c->dtype,
                                .precision = p->precisions[c->precision],
                                .kernel = kernel,
                                .threads = p->session->threads};
    /* A GPU's plan has a copy of its own in any case. */
    int shares = p->session->backend->kind != LAC_DEVICE_KIND_CPU;
    lac_status status = shares ? LAC_STATUS_OK : clone_weight(p->weight, weight);
    lac_plan *made = NULL;
    const lac_weight *from = shares ? p->weight : *weight;
    int alone = !status && times_itself(c, &options);
    if (alone) bench_turns_alone(p->session->turns);
    if (!status && (status = lac_plan_create(p->session->device, from, p->m, &options, &made))) {
        lac_weight_free(*weight);
        *weight = NULL;
    }
    if (alone) bench_turns_together(p->session->turns);
    *plan = made;
    return status;
}

static lac_status make_dense(bench_contender *c, void **out)
{
    const bench_backend *backend = c->problem->session->backend;
    size_t bytes = (size_t)(c->problem->n * c->problem->k) * sizeof(float);
    *out = backend->allocate(bytes);
    if (!*out) return LAC_STATUS_OUT_OF_MEMORY;
    backend->upload(*out, bench_openblas_wants_transposed(c->way) ? c->transposed : c->problem->w, bytes);
    return LAC_STATUS_OK;
}

static lac_peer_problem peer_problem(const bench_problem *p)
{
    return (lac_peer_problem){.size = sizeof(lac_peer_problem),
                              .m = p->m,
                              .n = p->n,
                              .k = p->k,
                              .dtype = p->dtype,
                              .layout = p->layout,
                              .precision = p->precisions[0],
                              .pattern = p->pattern,
                              .device = p->session->info.kind,
                              .threads = p->session->threads};
}

static lac_status make_peer(const bench_contender *c, void **out)
{
    const bench_problem *p = c->problem;
    lac_peer_problem problem = peer_problem(p);
    const void *w = p->w;
    void *narrow = NULL;
    if (p->dtype != LAC_DTYPE_F32) {
        w = narrow = malloc((size_t)(p->n * p->k) * lac_dtype_size(p->dtype));
        if (!narrow) return LAC_STATUS_OUT_OF_MEMORY;
        bench_image_fill(narrow, p->dtype, LAC_LAYOUT_ROW_MAJOR, p->w, p->n, p->k);
    }
    *out = c->peer->prepare(&problem, w);
    free(narrow);
    return *out ? LAC_STATUS_OK : LAC_STATUS_DEVICE;
}

/* Plans [begin, end) of a contender; one that fails stays NULL. */
static void make_plans(void *user, int64_t begin, int64_t end)
{
    bench_contender *c = user;
    for (int64_t i = begin; i < end; i++)
        if (make_plan(c, c->name, &c->weights[c->copies + (size_t)i], &c->handles[c->copies + (size_t)i])) return;
}

/* Re-tiling and sending a weight is the host's work, and some of it by one core: several plans at a time. */
static void make_plans_at_once(bench_contender *c, size_t copies)
{
    enum { AT_ONCE = 4 };
    const int64_t wanted = (int64_t)(copies - c->copies);
    for (size_t i = c->copies; i < copies; i++) {
        c->handles[i] = NULL;
        c->weights[i] = NULL;
    }
    bench_parallel(wanted, (wanted + AT_ONCE - 1) / AT_ONCE, make_plans, c);
    size_t kept = c->copies;
    for (size_t i = c->copies; i < copies; i++) /* those that failed are tried again by the caller, who tells why */
        if (c->handles[i]) c->handles[kept++] = c->handles[i];
    c->copies = kept;
}

lac_status bench_contender_copy(bench_contender *c, size_t copies)
{
    if (is_remote(c)) {
        lac_status copied = bench_child_copy(c->problem->session->child, copies, c->ring ? c->ring->count : 1);
        if (!copied) c->copies = copies;
        return copied;
    }
    void **handles = realloc(c->handles, copies * sizeof *handles);
    if (handles) c->handles = handles;
    lac_weight **weights = realloc(c->weights, copies * sizeof *weights);
    if (weights) c->weights = weights;
    if (!handles || !weights) return LAC_STATUS_OUT_OF_MEMORY;
    lac_status status = LAC_STATUS_OK;
    if (c->role == BENCH_ROLE_KERNEL && c->problem->session->backend->kind != LAC_DEVICE_KIND_CPU && copies > c->copies)
        make_plans_at_once(c, copies);
    while (!status && c->copies < copies) {
        void **handle = &handles[c->copies];
        lac_weight **weight = &weights[c->copies];
        *handle = NULL;
        *weight = NULL;
        if (c->vendor)
            status = bench_vendor_copy(c, handle);
        else if (c->role == BENCH_ROLE_KERNEL)
            status = make_plan(c, c->name, weight, handle);
        else if (c->role == BENCH_ROLE_DENSE)
            status = make_dense(c, handle);
        else
            status = make_peer(c, handle);
        if (!status) c->copies++;
    }
    return status;
}

static void release_handles(bench_contender *c)
{
    const bench_session *session = c->problem->session;
    if (is_remote(c)) {
        bench_child_close_dense(session->child);
        c->copies = c->next = 0;
        return;
    }
    for (size_t i = 0; i < c->copies; i++) {
        if (c->vendor)
            bench_vendor_release(c, c->handles[i]);
        else if (c->role == BENCH_ROLE_KERNEL)
            lac_plan_free(c->handles[i]);
        else if (c->role == BENCH_ROLE_DENSE)
            session->backend->release(c->handles[i], (size_t)(c->problem->n * c->problem->k) * sizeof(float));
        else
            c->peer->release(c->handles[i]);
        lac_weight_free(c->weights[i]);
    }
    c->copies = 0;
    c->next = 0;
}

/* ---- opening */

lac_status bench_contender_open_kernel(bench_contender *c, const bench_problem *problem, const char *kernel, int precision)
{
    *c = (bench_contender){.role = BENCH_ROLE_KERNEL,
                           .problem = problem,
                           .dtype = problem->dtype,
                           .layout = problem->layout,
                           .precision = precision};
    c->handles = calloc(1, sizeof *c->handles);
    c->weights = calloc(1, sizeof *c->weights);
    lac_status status =
        c->handles && c->weights ? make_plan(c, kernel, &c->weights[0], &c->handles[0]) : LAC_STATUS_OUT_OF_MEMORY;
    if (!status) {
        c->copies = 1;
        c->plan.size = sizeof c->plan;
        status = lac_plan_get_info(c->handles[0], &c->plan);
    }
    if (!status) {
        snprintf(c->name, sizeof c->name, "%s", c->plan.kernel);
        const lac_weight_info *w = &problem->weight_info;
        c->weight_bytes = c->plan.is_dense ? (double)w->dense_bytes : (double)(w->value_bytes + w->index_bytes);
        if (c->plan.workspace_bytes) {
            c->workspace = problem->session->backend->allocate(c->plan.workspace_bytes);
            if (!c->workspace) status = LAC_STATUS_OUT_OF_MEMORY;
        }
    }
    if (status) bench_contender_close(c);
    return status;
}

static void transpose(const float *from /* [n][k] */, float *to /* [k][n] */, int64_t n, int64_t k)
{
    enum { TILE = 32 };
    for (int64_t i = 0; i < n; i += TILE)
        for (int64_t j = 0; j < k; j += TILE)
            for (int64_t jj = j; jj < j + TILE && jj < k; jj++)
                for (int64_t ii = i; ii < i + TILE && ii < n; ii++) to[jj * n + ii] = from[ii * k + jj];
}

/* Both ways of OpenBLAS, a few calls each in turns; the quicker one becomes the baseline. */
static lac_status choose_way(bench_contender *c)
{
    const bench_problem *p = c->problem;
    bench_ring ring;
    double best[BENCH_OPENBLAS_WAYS] = {0}, spent = 0;
    void *weights[BENCH_OPENBLAS_WAYS] = {NULL};
    size_t bytes = (size_t)(p->n * p->k) * sizeof(float);
    lac_status status = bench_ring_open(&ring, p, c->dtype, c->layout, 1);
    if (status) return status;
    for (int way = 0; !status && way < BENCH_OPENBLAS_WAYS; way++) {
        c->way = way;
        status = make_dense(c, &weights[way]);
    }
    for (int round = 0; !status && round < 5 && spent < 0.3; round++)
        for (int way = 0; way < BENCH_OPENBLAS_WAYS; way++) {
            double begin = bench_seconds();
            bench_openblas_multiply(p->session->blas, way, c->layout, p->m, p->n, p->k, ring.x[0], weights[way], ring.y[0]);
            double seconds = bench_seconds() - begin;
            if (round == 0 || seconds < best[way]) best[way] = seconds;
            spent += seconds;
        }
    c->way = best[1] < best[0];
    for (int way = 0; way < BENCH_OPENBLAS_WAYS; way++)
        if (weights[way]) p->session->backend->release(weights[way], bytes);
    bench_ring_close(&ring, p->session);
    return status;
}

lac_status bench_contender_open_dense(bench_contender *c, const bench_problem *problem)
{
    if (problem->session->vendor_count) return bench_vendor_open_dense(c, problem);
    *c = (bench_contender){
        .role = BENCH_ROLE_DENSE, .problem = problem, .dtype = LAC_DTYPE_F32, .layout = problem->layout, .plan.is_dense = 1};
    size_t bytes = (size_t)(problem->n * problem->k) * sizeof(float);
    c->weight_bytes = (double)bytes;
    if (is_remote(c)) {
        lac_status opened = bench_child_open_dense(problem->session->child, problem, c);
        c->copies = 1;
        if (opened) bench_contender_close(c);
        return opened;
    }
    c->transposed = malloc(bytes);
    if (!c->transposed) return LAC_STATUS_OUT_OF_MEMORY;
    transpose(problem->w, c->transposed, problem->n, problem->k);
    lac_status status = choose_way(c);
    /* 16-bit weights and activations are widened for it beforehand: OpenBLAS has no such product on every machine. */
    snprintf(c->name, sizeof c->name, "%s%s", bench_openblas_way_name(c->way, problem->m, problem->layout),
             problem->dtype == LAC_DTYPE_F32 ? "" : "_widened");
    if (!status) status = bench_contender_copy(c, 1);
    if (status) bench_contender_close(c);
    return status;
}

lac_status bench_contender_open_peer(bench_contender *c, const bench_problem *problem, const bench_peer *peer)
{
    *c = (bench_contender){.role = BENCH_ROLE_PEER, .problem = problem, .dtype = problem->dtype};
    lac_peer_problem asked = peer_problem(problem);
    int layout = peer->layout(&asked);
    c->peer = peer;
    c->y_is_token = layout == LAC_PEER_LAYOUT_FEATURE_TO_TOKEN;
    if (c->y_is_token) layout = LAC_LAYOUT_FEATURE_MAJOR;
    if (layout != LAC_LAYOUT_TOKEN_MAJOR && layout != LAC_LAYOUT_FEATURE_MAJOR) return LAC_STATUS_UNSUPPORTED;
    c->layout = (lac_layout)layout;
    snprintf(c->name, sizeof c->name, "peer:%s", peer->name);
    c->weight_bytes = (double)(problem->weight_info.value_bytes + problem->weight_info.index_bytes);
    lac_status status = bench_contender_copy(c, 1);
    if (status) bench_contender_close(c);
    return status;
}

void bench_contender_close(bench_contender *c)
{
    if (!c->problem) return;
    if (c->recording) c->problem->session->backend->forget(c->recording);
    release_handles(c);
    if (c->workspace) c->problem->session->backend->release(c->workspace, c->plan.workspace_bytes);
    free(c->transposed);
    free(c->handles);
    free(c->weights);
    free(c->samples);
    *c = (bench_contender){0};
}

double bench_contender_bytes(const bench_contender *c)
{
    const bench_problem *p = c->problem;
    return (double)lac_dtype_size(c->dtype) * ((double)p->m * (double)p->k + (double)p->m * (double)p->n) + c->weight_bytes;
}

/* ---- calling */

static int call(bench_contender *c, size_t copy, size_t slot)
{
    const bench_problem *p = c->problem;
    const bench_session *session = p->session;
    const void *x = c->ring->x[slot];
    void *y = c->ring->y[slot], *handle = c->handles[copy];
    if (c->vendor) return bench_vendor_call(c, handle, x, y);
    if (c->role == BENCH_ROLE_PEER) return c->peer->run(handle, x, y, session->backend->stream);
    if (c->role == BENCH_ROLE_DENSE) {
        bench_openblas_multiply(session->blas, c->way, c->layout, p->m, p->n, p->k, x, handle, y);
        return 0;
    }
    lac_execute_args args = {.size = sizeof args,
                             .x = x,
                             .y = y,
                             .stream = session->backend->stream,
                             .workspace = c->workspace,
                             .workspace_bytes = c->plan.workspace_bytes};
    return lac_plan_execute(handle, &args) != LAC_STATUS_OK;
}

int bench_contender_call(bench_contender *c)
{
    if (is_remote(c)) return bench_child_call(c->problem->session->child);
    size_t copy = c->next, slot = c->ring->next;
    c->next = (copy + 1) % c->copies;
    c->ring->next = (slot + 1) % c->ring->count;
    return call(c, copy, slot);
}

int bench_contender_call_first(bench_contender *c)
{
    if (is_remote(c)) return bench_child_call_first(c->problem->session->child, c->ring->y[0], c->ring->y_bytes);
    return call(c, 0, 0);
}

/* The rotation begins anew with each replay. So that no copy comes round too early, the slots in use are a multiple of the
 * copies; where a sweep is what keeps them cold, each is cold but once, and few copies are few calls. */
void bench_contender_record(bench_contender *c, int sweep)
{
    enum { LEAST_CALLS = 16 };
    const bench_backend *backend = c->problem->session->backend;
    size_t rotation = c->ring->count / c->copies * c->copies;
    size_t calls = sweep ? c->copies : rotation * ((LEAST_CALLS + rotation - 1) / rotation);
    int failed = 0;
    if (backend->record_begin()) return;
    for (size_t i = 0; !failed && i < calls; i++) failed = call(c, i % c->copies, i % rotation);
    c->recording = backend->record_end();
    if (failed && c->recording) {
        backend->forget(c->recording);
        c->recording = NULL;
    }
    if (c->recording) c->recorded = (int)calls;
}
