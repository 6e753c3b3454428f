/* cell.c - one problem from weight to rows: opens the contenders, checks each, makes the copies that keep the cache cold,
 * has them timed, and fills in the rows. run.c calls it for every problem. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "parallel.h"

/* Beyond so many copies of a small problem, sweeping the cache is cheaper than another copy. */
#define MOST_COPIES 256
/* The rings that contenders of one problem may need: a layout each of the user's and of the peer's, two dtypes. */
#define MOST_RINGS 4

typedef struct cell {
    bench_problem *problem;
    bench_session *session;
    bench_contender *contenders; /* [count] */
    size_t count;
    bench_ring rings[MOST_RINGS];
    size_t ring_count;
    int sweep;
    char what[160];    /* "128,4096,4096 2:4 f32" */
    char watched[128]; /* what the GPU told of its clocks meanwhile; "" on a CPU */
} cell;

/* The library knows nothing of the baseline, whose process may have ended. */
static const char *trouble_of(const cell *all)
{
    return bench_child_is_gone(all->session->child) ? "the process that runs OpenBLAS ended" : lac_last_error();
}

static bench_status failure(const cell *all, const char *name, lac_status status)
{
    bench_say(all->session, "%s: %s: %s", all->what, name,
              status == LAC_STATUS_OUT_OF_MEMORY ? "out of memory" : trouble_of(all));
    return BENCH_FAILURE;
}

/* ---- who takes part */

static bench_status add_kernel(cell *all, const char *name, int precision)
{
    lac_status status = bench_contender_open_kernel(&all->contenders[all->count], all->problem, name, precision);
    if (!status) {
        all->count++;
        return BENCH_OK;
    }
    if (status != LAC_STATUS_UNSUPPORTED) return failure(all, name ? name : "the planner", status);
    bench_say(all->session, "%s: left out: %s", all->what, lac_last_error());
    return BENCH_OK;
}

/* Every kernel that applies, but for the oracle. */
static bench_status add_all_kernels(cell *all, int precision)
{
    lac_kernel_info info = {.size = sizeof info};
    for (size_t i = 0; !lac_kernel_probe(i, &info); i++) {
        if (info.device != all->session->info.kind || !strncmp(info.name, "ref_", 4)) continue;
        lac_status status = bench_contender_open_kernel(&all->contenders[all->count], all->problem, info.name, precision);
        if (!status)
            all->count++;
        else if (status != LAC_STATUS_UNSUPPORTED)
            return failure(all, info.name, status);
    }
    return BENCH_OK;
}

static size_t count_kernels(void)
{
    size_t count = 0;
    lac_kernel_info info = {.size = sizeof info};
    while (!lac_kernel_probe(count, &info)) count++;
    return count;
}

/* The vendor's libraries that use the sparsity, where they can do this problem. */
static bench_status add_vendors(cell *all)
{
    for (int i = 0; i < all->session->vendor_count; i++) {
        lac_status status = bench_vendor_open_sparse(&all->contenders[all->count], all->problem, i);
        if (!status)
            all->count++;
        else if (status != LAC_STATUS_UNSUPPORTED)
            bench_say(all->session, "%s: left out: %s cannot prepare it", all->what, all->session->vendors[i]->name);
    }
    return BENCH_OK;
}

static bench_status add_peer(cell *all, const bench_peer *peer)
{
    bench_turns_alone(all->session->turns); /* it may time its own ways to find the quickest */
    lac_status status = bench_contender_open_peer(&all->contenders[all->count], all->problem, peer);
    bench_turns_together(all->session->turns);
    if (!status)
        all->count++;
    else if (status == LAC_STATUS_UNSUPPORTED)
        bench_say(all->session, "%s: left out: peer:%s cannot do it", all->what, peer->name);
    else {
        /* Like one whose result is wrong: the others are timed all the same, and the exit status tells at the end. */
        bench_say(all->session, "%s: left out: peer:%s: prepare failed", all->what, peer->name);
        all->session->wrong++;
    }
    return BENCH_OK;
}

static bench_status gather(cell *all)
{
    const bench_options *options = all->session->options;
    /* Each --kernel may be 'all'. */
    all->contenders = calloc(BENCH_MOST_PRECISIONS * count_kernels() * (options->kernel_count + 1) + 2 + BENCH_MOST_VENDORS +
                                 BENCH_MOST_PEERS,
                             sizeof *all->contenders);
    if (!all->contenders) return failure(all, "contenders", LAC_STATUS_OUT_OF_MEMORY);
    lac_status status;
    if (all->session->child || all->session->vendor_count) {
        status = bench_contender_open_dense(&all->contenders[0], all->problem);
        if (status && status != LAC_STATUS_UNSUPPORTED) return failure(all, "the baseline", status);
        all->count = status ? 0 : 1;
    }
    bench_stage_end(all->session, BENCH_STAGE_DENSE);
    bench_status result = BENCH_OK;
    for (int how = 0; !result && how < all->problem->precision_count; how++) {
        if (!options->kernel_count) result = add_kernel(all, NULL, how);
        for (size_t i = 0; !result && i < options->kernel_count; i++)
            result = strcmp(options->kernels[i], "all") ? add_kernel(all, options->kernels[i], how) : add_all_kernels(all, how);
    }
    bench_stage_end(all->session, BENCH_STAGE_PLAN);
    if (!result) result = add_vendors(all);
    for (int i = 0; !result && i < all->session->peer_count; i++) result = add_peer(all, &all->session->peers[i]);
    bench_stage_end(all->session, BENCH_STAGE_PEER);
    return result;
}

/* ---- copies: enough that what a call needs is twice the last-level cache away */

typedef struct copy_plan {
    size_t slots;   /* of each ring     */
    size_t *copies; /* of each contender */
} copy_plan;

static double planned_bytes(const cell *all, const copy_plan *plan)
{
    double bytes = 0;
    for (size_t i = 0; i < all->count; i++) {
        const bench_contender *c = &all->contenders[i];
        /* A plan may hold a re-tiled copy beside its weight. */
        bytes += (double)plan->copies[i] * c->weight_bytes * (c->role == BENCH_ROLE_DENSE ? 1 : 2);
        bytes += (double)plan->slots * (bench_contender_bytes(c) - c->weight_bytes);
    }
    return bytes;
}

static void plan_copies(cell *all, copy_plan *plan)
{
    double wanted = 2 * (double)all->session->cache_bytes;
    plan->slots = 1;
    for (size_t i = 0; i < all->count; i++) plan->copies[i] = 1;
    if (all->session->options->warm) return;
    for (size_t i = 0; i < all->count; i++) {
        double bytes = bench_contender_bytes(&all->contenders[i]);
        /* A call that moves four caches by itself leaves nothing of what it began with. */
        double needed = bytes >= 2 * wanted ? 1 : ceil(wanted / bytes) + 1;
        if (needed > MOST_COPIES) all->sweep = 1;
        plan->copies[i] = needed > MOST_COPIES ? MOST_COPIES : (size_t)needed;
        if (plan->copies[i] > plan->slots) plan->slots = plan->copies[i];
    }
    while (planned_bytes(all, plan) > (double)all->session->memory_limit) {
        int smaller = plan->slots > 1;
        plan->slots = (plan->slots + 1) / 2;
        for (size_t i = 0; i < all->count; i++) {
            smaller = smaller || plan->copies[i] > 1;
            plan->copies[i] = (plan->copies[i] + 1) / 2;
        }
        all->sweep = 1;
        if (!smaller) return; /* one of each it must be */
    }
}

static bench_status make_rings(cell *all, size_t slots)
{
    for (size_t i = 0; i < all->count; i++) {
        bench_contender *c = &all->contenders[i];
        size_t r = 0;
        while (r < all->ring_count && (all->rings[r].dtype != c->dtype || all->rings[r].layout != c->layout)) r++;
        if (r == all->ring_count) {
            lac_status status = bench_ring_open(&all->rings[r], all->problem, c->dtype, c->layout, slots);
            if (status) return failure(all, "X and Y", status);
            all->ring_count++;
        }
        c->ring = &all->rings[r];
    }
    return BENCH_OK;
}

/* ---- right or wrong */

/* Calls it once on the first slot, whose Y held NaN before; what it wrote goes to `y`. Nonzero: the call failed. */
static int call_into(const cell *all, bench_contender *c, void *y)
{
    const bench_backend *backend = all->session->backend;
    backend->fill(c->ring->y[0], 0xff, c->ring->y_bytes);
    if (bench_contender_call_first(c)) return -1;
    backend->finish();
    backend->download(y, c->ring->y[0], c->ring->y_bytes);
    return backend->trouble() != NULL;
}

static uint64_t digest_of(const void *bytes, size_t count)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325), word;
    for (size_t i = 0; i < count; i += sizeof word) {
        word = 0;
        memcpy(&word, (const char *)bytes + i, count - i < sizeof word ? count - i : sizeof word);
        hash = (hash ^ word) * UINT64_C(0x100000001b3);
        hash ^= hash >> 29;
    }
    return hash;
}

/* Parts that do not depend on how many threads there are. */
enum { DIGEST_PARTS = 256 };

typedef struct digesting {
    const char *bytes;
    size_t count;
    uint64_t parts[DIGEST_PARTS];
} digesting;

static void digest_parts(void *user, int64_t begin, int64_t end)
{
    digesting *d = user;
    size_t each = d->count / DIGEST_PARTS + 1;
    for (int64_t i = begin; i < end; i++) {
        size_t at = (size_t)i * each, left = at < d->count ? d->count - at : 0;
        d->parts[i] = digest_of(d->bytes + (left ? at : 0), left < each ? left : each);
    }
}

static uint64_t digest(const void *bytes, size_t count)
{
    digesting d = {.bytes = bytes, .count = count};
    bench_parallel(DIGEST_PARTS, count > (size_t)1 << 20 ? 8 : DIGEST_PARTS, digest_parts, &d);
    return digest_of(d.parts, sizeof d.parts);
}

static void drop(cell *all, size_t index, const char *why)
{
    bench_contender *c = &all->contenders[index];
    bench_say(all->session, "WRONG: %s on %s: %s", c->name, all->what, why);
    all->session->wrong++;
    bench_contender_close(c);
    memmove(c, c + 1, (all->count - index - 1) * sizeof *c);
    memset(&all->contenders[--all->count], 0, sizeof *c);
}

static bench_status check_all(cell *all)
{
    for (size_t i = 0; i < all->count;) {
        bench_contender *c = &all->contenders[i];
        char why[256];
        void *y = all->session->backend->landing(c->ring->y_bytes);
        if (!y) return failure(all, c->name, LAC_STATUS_OUT_OF_MEMORY);
        int failed = call_into(all, c, y);
        bench_stage_end(all->session, BENCH_STAGE_CALL);
        if (failed) {
            const char *trouble = all->session->backend->trouble();
            if (trouble) { /* a GPU does not come back from that */
                bench_say(all->session, "%s: %s: %s", all->what, c->name, trouble);
                return BENCH_FAILURE;
            }
            int is_told =
                c->role == BENCH_ROLE_KERNEL || (c->role == BENCH_ROLE_DENSE && bench_child_is_gone(all->session->child));
            drop(all, i, is_told ? trouble_of(all) : "it says that it failed");
        } else if (!bench_check(c, y, why, sizeof why)) {
            drop(all, i, why);
        } else {
            c->digest = digest(y, c->ring->y_bytes);
            i++;
        }
        bench_stage_end(all->session, BENCH_STAGE_CHECK);
    }
    return BENCH_OK;
}

/* Lacuna promises the same bits every time: those of the first call must come back after thousands. */
static bench_status check_again(cell *all)
{
    for (size_t i = 0; i < all->count;) {
        bench_contender *c = &all->contenders[i];
        int differs = 0;
        if (c->role == BENCH_ROLE_KERNEL) {
            void *y = all->session->backend->landing(c->ring->y_bytes);
            if (!y) return failure(all, c->name, LAC_STATUS_OUT_OF_MEMORY);
            differs = call_into(all, c, y) || digest(y, c->ring->y_bytes) != c->digest;
        }
        if (differs)
            drop(all, i, "the same call gave other bits after the timing than before");
        else
            i++;
    }
    return BENCH_OK;
}

/* ---- rows */

static void fill_rates(bench_row *row, const bench_contender *c, const bench_session *session)
{
    const bench_problem *p = c->problem;
    double products = (double)p->m * (double)p->n * (double)p->k;
    double kept = (double)p->m * (double)p->weight_info.kept;
    double activations = (double)lac_dtype_size(p->dtype) * (double)p->m * (double)(p->n + p->k);
    double least_bytes = activations + (double)(p->weight_info.value_bytes + p->weight_info.index_bytes);
    int in_cache = session->options->warm && least_bytes <= (double)session->cache_bytes;
    double rate = in_cache ? session->ceiling.cache_bytes : session->ceiling.memory_bytes;
    double compute_seconds = 2 * kept / bench_ceiling_flops(&session->ceiling, p->dtype, p->precisions[c->precision]);
    double move_seconds = least_bytes / rate;
    row->tflops_dense_equivalent = 2e-12 * products / c->median;
    row->tflops_real = 2e-12 * kept / c->median;
    row->gbytes_per_s = 1e-9 * (activations + c->weight_bytes) / c->median;
    double ceiling = compute_seconds > move_seconds ? compute_seconds : move_seconds;
    /* The model knows the kernel's own bound; it takes operands to be outside the caches. */
    if (c->role == BENCH_ROLE_KERNEL && !session->options->warm && c->plan.ceiling_seconds > 0)
        ceiling = c->plan.ceiling_seconds;
    row->ceiling_us = 1e6 * ceiling;
    row->share_of_ceiling = row->ceiling_us / row->time_us;
}

/* The levels of the performance model, for whoever fits its constants. */
static void fill_levels(bench_row *row, const bench_contender *c)
{
    lac_level_info level = {.size = sizeof level};
    size_t length = 0;
    if (c->role != BENCH_ROLE_KERNEL) return;
    for (size_t i = 0; length < sizeof row->levels && !lac_plan_explain(c->handles[0], i, &level); i++)
        length += (size_t)snprintf(row->levels + length, sizeof row->levels - length, "%s%s=%.4g", i ? " " : "", level.name,
                                   1e6 * level.seconds);
}

static void hand_out(cell *all, const bench_contender *c, const bench_contender *dense)
{
    static const char *const precisions[] = {"default", "strict", "fast", "tf32"};
    bench_session *session = all->session;
    const bench_problem *p = all->problem;
    bench_row row = {.density = lac_pattern_density(&p->pattern),
                     .threads = session->threads,
                     .m = p->m,
                     .n = p->n,
                     .k = p->k,
                     .time_us = 1e6 * c->median,
                     .spread = c->spread,
                     .dense_us = dense ? 1e6 * dense->median : (double)NAN,
                     .speedup = dense ? dense->median / c->median : (double)NAN,
                     .max_error = c->max_error,
                     .error_bound = c->error_bound,
                     .predicted_us = c->role == BENCH_ROLE_KERNEL ? 1e6 * c->plan.predicted_seconds : (double)NAN,
                     .is_dense = c->plan.is_dense,
                     .runs = c->runs,
                     .dense_spread = dense ? dense->spread : (double)NAN};
    snprintf(row.device, sizeof row.device, "%s", session->info.name);
    snprintf(row.kernel, sizeof row.kernel, "%s", c->name);
    snprintf(row.dtype, sizeof row.dtype, "%s", lac_dtype_name(p->dtype));
    snprintf(row.precision, sizeof row.precision, "%s", precisions[p->precisions[c->precision]]);
    snprintf(row.pattern, sizeof row.pattern, "%s", p->pattern_text);
    snprintf(row.layout, sizeof row.layout, "%s", c->layout == LAC_LAYOUT_TOKEN_MAJOR ? "token" : "feature");
    snprintf(row.dense_name, sizeof row.dense_name, "%.63s", dense ? dense->name : "");
    snprintf(row.cache, sizeof row.cache, "%s", session->options->warm ? "warm" : "cold");
    snprintf(row.commit, sizeof row.commit, "%s", bench_machine_commit());
    snprintf(row.device_info, sizeof row.device_info, "%s", session->device_info);
    if (session->info.kind != LAC_DEVICE_KIND_CPU) {
        size_t length = strlen(row.device_info);
        double peak = bench_ceiling_flops(&session->ceiling, p->dtype, p->precisions[c->precision]);
        snprintf(row.device_info + length, sizeof row.device_info - length, ";%s peak_gflops=%.0f", all->watched, peak / 1e9);
    }
    snprintf(row.name, sizeof row.name, "%s", p->shape->name);
    snprintf(row.bound, sizeof row.bound, "%s", c->role == BENCH_ROLE_KERNEL && c->plan.bound ? c->plan.bound : "");
    fill_rates(&row, c, session);
    fill_levels(&row, c);
    session->rows++;
    if (session->options->on_row) session->options->on_row(session->options->user, &row);
}

/* ---- all of it */

static bench_status copy_all(cell *all, const copy_plan *plan)
{
    for (size_t i = 0; i < all->count; i++) {
        bench_contender *c = &all->contenders[i];
        /* The slots were counted when there were more contenders to share the memory with. */
        size_t copies = plan->copies[i] < c->ring->count ? plan->copies[i] : c->ring->count;
        lac_status status = bench_contender_copy(c, copies);
        if (status) return failure(all, c->name, status);
    }
    return BENCH_OK;
}

/* Rows need a contender besides the baseline. */
static int has_runner(const cell *all)
{
    return all->count > 0 && (all->count > 1 || all->contenders[0].role != BENCH_ROLE_DENSE);
}

static bench_status run_contenders(cell *all)
{
    copy_plan plan = {.copies = calloc(all->count + 1, sizeof *plan.copies)};
    if (!plan.copies) return failure(all, "copies", LAC_STATUS_OUT_OF_MEMORY);
    plan_copies(all, &plan);
    bench_status status = make_rings(all, plan.slots);
    bench_stage_end(all->session, BENCH_STAGE_BUFFERS);
    if (!status) status = check_all(all);
    bench_stage_end(all->session, BENCH_STAGE_CHECK);
    if (!status && has_runner(all)) {
        plan_copies(all, &plan); /* again: some may have been dropped */
        status = copy_all(all, &plan);
    }
    bench_stage_end(all->session, BENCH_STAGE_PLAN);
    free(plan.copies);
    if (status || !has_runner(all)) return status;
    bench_turns_alone(all->session->turns);
    int failed = bench_time(all->session, all->contenders, all->count, all->sweep, all->what);
    bench_turns_together(all->session->turns);
    if (failed) {
        if (all->session->options->should_stop && all->session->options->should_stop(all->session->options->user))
            return BENCH_FAILURE;
        const char *trouble = all->session->backend->trouble();
        bench_say(all->session, "%s: a call failed while it was timed: %s", all->what, trouble ? trouble : trouble_of(all));
        return BENCH_FAILURE;
    }
    bench_stage_end(all->session, BENCH_STAGE_TIME);
    for (size_t i = 0; i < all->count; i++)
        if (all->contenders[i].count < BENCH_FEWEST_SAMPLES) all->problem->is_cut = 1;
    if (all->problem->is_cut) return BENCH_OK;
    if (all->session->backend->watched) all->session->backend->watched(all->watched, sizeof all->watched);
    if ((status = check_again(all))) return status;
    bench_stage_end(all->session, BENCH_STAGE_CHECK);
    const bench_contender *dense = all->contenders[0].role == BENCH_ROLE_DENSE ? &all->contenders[0] : NULL;
    for (size_t i = 0; i < all->count; i++)
        if (all->contenders[i].role != BENCH_ROLE_DENSE) hand_out(all, &all->contenders[i], dense);
    return BENCH_OK;
}

bench_status bench_cell_run(bench_problem *problem)
{
    cell all = {.problem = problem, .session = problem->session};
    snprintf(all.what, sizeof all.what, "%lld,%lld,%lld %s %s", (long long)problem->m, (long long)problem->n,
             (long long)problem->k, problem->pattern_text, lac_dtype_name(problem->dtype));
    bench_status status = gather(&all);
    if (!status && has_runner(&all)) status = run_contenders(&all);
    for (size_t i = 0; i < all.count; i++) bench_contender_close(&all.contenders[i]);
    free(all.contenders);
    for (size_t r = 0; r < all.ring_count; r++) bench_ring_close(&all.rings[r], all.session);
    bench_stage_end(all.session, BENCH_STAGE_BUFFERS);
    return status;
}
