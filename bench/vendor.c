/* vendor.c - makes contenders of the vendor's libraries: opens those that are there, finds the quickest dense way to do a
 * problem, and holds a copy of the weight for each handle. run.c, cell.c and contender.c call it. */
#include "vendor.h"

#include <stdlib.h>
#include <string.h>

#include "harness.h"

static const bench_backend *backend; /* of the session */

int bench_cuda_dtype(lac_dtype dtype)
{
    return dtype == LAC_DTYPE_F16 ? BENCH_CUDA_F16 : dtype == LAC_DTYPE_BF16 ? BENCH_CUDA_BF16 : BENCH_CUDA_F32;
}

void *bench_vendor_allocate(size_t bytes) { return backend->allocate(bytes); }
void bench_vendor_free(void *block)
{
    if (block) backend->release(block, 0);
}
void bench_vendor_upload(void *to, const void *from, size_t bytes) { backend->upload(to, from, bytes); }

int bench_vendor_wait(void)
{
    backend->finish();
    return backend->trouble() != NULL;
}

/* ---- opening and closing */

static const bench_vendor *const known[BENCH_MOST_VENDORS] = {&bench_vendor_cublas, &bench_vendor_cublaslt,
                                                              &bench_vendor_cusparselt, &bench_vendor_cusparse};

/* The best dense way for a problem, which is the same for all patterns. */
struct bench_choice {
    bench_vendor_problem problem;
    const bench_vendor *vendor;
    int way;
};

/* Libraries are large, and opening them takes a while: none without a use. */
static int is_wanted(const bench_session *session, const bench_vendor *vendor)
{
    const bench_options *o = session->options;
    int in_f32 = 0, in_16_bits = 0, in_tf32 = 0;
    for (int i = 0; i < session->precision_count; i++) in_tf32 = in_tf32 || session->precisions[i] == LAC_PRECISION_TF32;
    for (size_t i = 0; i < o->dtype_count; i++) {
        in_f32 = in_f32 || o->dtypes[i] == LAC_DTYPE_F32;
        in_16_bits = in_16_bits || o->dtypes[i] != LAC_DTYPE_F32;
    }
    if (vendor == &bench_vendor_cusparse) return o->baseline == BENCH_BASELINE_ALL;
    if (vendor == &bench_vendor_cusparselt) return in_16_bits || (in_f32 && in_tf32);
    return 1;
}

void bench_vendors_open(bench_session *session, char *info, size_t info_size)
{
    backend = session->backend;
    info[0] = 0;
    for (int i = 0; i < BENCH_MOST_VENDORS; i++) {
        if (!is_wanted(session, known[i])) continue;
        const char *why = known[i]->open(session->backend->stream);
        if (why) {
            bench_say(session, "no %s: %s", known[i]->name, why);
            known[i]->close();
            continue;
        }
        session->vendors[session->vendor_count++] = known[i];
        size_t length = strlen(info);
        snprintf(info + length, info_size - length, "%s%s", length ? "; " : "", known[i]->info());
    }
}

void bench_vendors_close(bench_session *session)
{
    while (session->vendor_count > 0) session->vendors[--session->vendor_count]->close();
    free(session->choices);
    session->choices = NULL;
    session->choice_count = 0;
}

/* ---- handles */

typedef struct vendor_handle {
    void *w;   /* [n][k] or [k][n] in device memory */
    int owned; /* 0: it is the layer's */
    void *state;
} vendor_handle;

static bench_vendor_problem describe(const bench_problem *p)
{
    return (bench_vendor_problem){p->m, p->n, p->k, p->dtype, p->layout, p->precisions[0], p->w};
}

static size_t weight_bytes(const bench_problem *p) { return (size_t)(p->n * p->k) * lac_dtype_size(p->dtype); }

/* W in device memory, uploaded once for all m of its layer. NULL: there is no memory. */
static void *weight_of(const bench_problem *p, int transposed)
{
    bench_layer *layer = p->layer;
    size_t bytes = weight_bytes(p);
    if (layer->dense_dtype != p->dtype) bench_vendor_forget_layer(layer);
    layer->dense_dtype = p->dtype;
    if (layer->dense[transposed]) return layer->dense[transposed];
    int as_it_is = !transposed && p->dtype == LAC_DTYPE_F32;
    void *image = as_it_is ? NULL : malloc(bytes), *w = backend->allocate(bytes);
    if (w && (image || as_it_is)) {
        if (image)
            bench_image_fill(image, p->dtype, transposed ? LAC_LAYOUT_COLUMN_MAJOR : LAC_LAYOUT_ROW_MAJOR, p->w, p->n, p->k);
        backend->upload(w, as_it_is ? (const void *)p->w : image, bytes);
        layer->dense[transposed] = w;
    } else {
        bench_vendor_free(w);
        w = NULL;
    }
    free(image);
    return w;
}

void bench_vendor_forget_layer(bench_layer *layer)
{
    for (int i = 0; i < 2; i++) {
        bench_vendor_free(layer->dense[i]);
        layer->dense[i] = NULL;
    }
}

lac_status bench_vendor_copy(bench_contender *c, void **out)
{
    const bench_problem *p = c->problem;
    bench_vendor_problem problem = describe(p);
    vendor_handle *made = calloc(1, sizeof *made);
    if (!made) return LAC_STATUS_OUT_OF_MEMORY;
    made->owned = c->copies > 0;
    if (!c->copies) {
        made->w = weight_of(p, c->vendor->wants_transposed(&problem, c->way));
    } else if ((made->w = backend->allocate(weight_bytes(p)))) {
        backend->copy(made->w, ((const vendor_handle *)c->handles[0])->w, weight_bytes(p));
        backend->finish();
    }
    if (made->w) made->state = c->vendor->prepare(&problem, c->way, made->w);
    if (!made->state) {
        lac_status status = made->w ? LAC_STATUS_DEVICE : LAC_STATUS_OUT_OF_MEMORY;
        if (made->owned) bench_vendor_free(made->w);
        free(made);
        return status;
    }
    *out = made;
    return LAC_STATUS_OK;
}

int bench_vendor_call(const bench_contender *c, void *handle, const void *x, void *y)
{
    return c->vendor->run(((vendor_handle *)handle)->state, x, y);
}

void bench_vendor_release(const bench_contender *c, void *handle)
{
    vendor_handle *held = handle;
    if (!held) return;
    c->vendor->release(held->state);
    if (held->owned) bench_vendor_free(held->w);
    free(held);
}

/* ---- choosing */

/* Against calls of so many seconds, loading their kernels is little, and a first call tells enough. */
#define LONG_CALL      2e-3
#define VERY_LONG_CALL 5e-3

/* Seconds of a call that finds nothing in L2, the best of three, or of fewer when it is far from those to beat or takes long;
 * 0: it cannot do it. */
static double try_way(const bench_session *session, const bench_vendor *vendor, void *handle, const bench_ring *ring,
                      double to_beat)
{
    double best = 0;
    for (int i = 0; i < (best > LONG_CALL ? 2 : 4) && !(best > 1.2 * to_beat && to_beat > 0); i++) {
        backend->sweep((size_t)(2 * session->cache_bytes));
        backend->mark(0);
        if (vendor->run(handle, ring->x[0], ring->y[0])) return 0;
        backend->mark(1);
        backend->finish();
        double seconds = backend->elapsed(0, 1);
        double hopeless = (seconds > VERY_LONG_CALL ? 1.15 : 1.5) * to_beat;
        if (i == 0 && to_beat > 0 && seconds > LONG_CALL && seconds > hopeless) return seconds;
        if (i == 1 || (i > 1 && seconds < best)) best = seconds; /* the first call loads the kernel */
    }
    return best;
}

static lac_status search(const bench_problem *p, struct bench_choice *choice)
{
    const bench_session *session = p->session;
    bench_ring ring;
    void *weights[2] = {weight_of(p, 0), weight_of(p, 1)};
    lac_status status = weights[0] && weights[1] ? bench_ring_open(&ring, p, p->dtype, p->layout, 1) : LAC_STATUS_OUT_OF_MEMORY;
    double best = 0;
    bench_turns_alone(session->turns);
    for (int v = 0; !status && v < session->vendor_count; v++) {
        const bench_vendor *vendor = session->vendors[v];
        int ways = vendor->is_dense ? vendor->count_ways(&choice->problem) : 0;
        for (int way = 0; way < ways; way++) {
            void *handle = vendor->prepare(&choice->problem, way, weights[vendor->wants_transposed(&choice->problem, way)]);
            double seconds = handle ? try_way(session, vendor, handle, &ring, best) : 0;
            if (handle) vendor->release(handle);
            if (seconds > 0 && (!choice->vendor || seconds < best)) {
                best = seconds;
                choice->vendor = vendor;
                choice->way = way;
            }
        }
    }
    bench_turns_together(session->turns);
    if (!status) bench_ring_close(&ring, session);
    return status ? status : choice->vendor ? LAC_STATUS_OK : LAC_STATUS_UNSUPPORTED;
}

static int is_same(const bench_vendor_problem *a, const bench_vendor_problem *b)
{
    return a->m == b->m && a->n == b->n && a->k == b->k && a->dtype == b->dtype && a->layout == b->layout &&
           a->precision == b->precision;
}

static lac_status choose(const bench_problem *p, struct bench_choice *out)
{
    bench_session *session = p->session;
    *out = (struct bench_choice){.problem = describe(p)};
    for (size_t i = 0; i < session->choice_count; i++)
        if (is_same(&session->choices[i].problem, &out->problem)) {
            *out = session->choices[i];
            return LAC_STATUS_OK;
        }
    lac_status status = search(p, out);
    if (status) return status;
    struct bench_choice *choices = realloc(session->choices, (session->choice_count + 1) * sizeof *choices);
    if (!choices) return LAC_STATUS_OUT_OF_MEMORY;
    session->choices = choices;
    choices[session->choice_count] = *out;
    choices[session->choice_count++].problem.w = NULL; /* it goes with its pattern */
    return LAC_STATUS_OK;
}

static lac_status start(bench_contender *c, const bench_problem *problem, const bench_vendor *vendor, int way)
{
    bench_vendor_problem asked = describe(problem);
    char name[64];
    c->vendor = vendor;
    c->way = way;
    vendor->name_way(&asked, way, name, sizeof name);
    snprintf(c->name, sizeof c->name, "%s%s", vendor->is_dense ? "" : "peer:", name);
    lac_status status = bench_contender_copy(c, 1);
    if (status) bench_contender_close(c);
    return status;
}

lac_status bench_vendor_open_dense(bench_contender *c, const bench_problem *problem)
{
    struct bench_choice choice;
    lac_status status = choose(problem, &choice);
    if (status) return status;
    *c = (bench_contender){
        .role = BENCH_ROLE_DENSE, .problem = problem, .dtype = problem->dtype, .layout = problem->layout, .plan.is_dense = 1};
    c->weight_bytes = (double)weight_bytes(problem);
    return start(c, problem, choice.vendor, choice.way);
}

lac_status bench_vendor_open_sparse(bench_contender *c, const bench_problem *problem, int index)
{
    const bench_vendor *vendor = problem->session->vendors[index];
    bench_vendor_problem asked = describe(problem);
    if (vendor->is_dense || !vendor->count_ways(&asked)) return LAC_STATUS_UNSUPPORTED;
    *c = (bench_contender){.role = BENCH_ROLE_PEER, .problem = problem, .dtype = problem->dtype, .layout = problem->layout};
    c->weight_bytes = (double)(problem->weight_info.value_bytes + problem->weight_info.index_bytes);
    return start(c, problem, vendor, 0);
}
