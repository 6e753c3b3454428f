/* choose.c - the planner's choice: asks every kernel of the registry whether it applies and what it costs, and keeps the
 * cheapest, prepared. Dense kernels are candidates like any other. Where the model holds several for nearly as fast, a device that
 * can remember times them against each other, once for a problem. plan.c calls it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/dtype.h"
#include "core/kernel.h"
#include "core/status.h"
#include "format/weight.h"

enum { MOST_CANDIDATES = 64, MOST_RIVALS = 3, KEY_SIZE = 512 }; /* no device has as many kernels */
static const double CLOSE = 1.15; /* of the cheapest by the model, which is no surer than this                   */
static const double SAFE = 1.5;   /* the same for dense: that a plan is never slower must not rest on a model      */
/* A sparse one that takes the cheaper one's place needs less than this of its time, and so many seconds less: races of short works have
 * erred by that. Dense needs only be the quicker: never to be slower than that is the promise. */
static const double QUICKER = 0.99, SURE = 1e-6;

/* Of X and Y, which a race makes for itself: where they are more, nobody expects a plan to make them. */
static const double MOST_OPERAND_BYTES = 2147483648.0;

typedef struct candidate {
    const lac_kernel *kernel;
    double seconds; /* by the model */
} candidate;

void lac_kernel_release(const lac_kernel *kernel, void *state)
{
    if (kernel->release) kernel->release(state);
}

lac_status lac_kernel_prepare(const lac_kernel *kernel, const lac_problem *problem, void **state)
{
    lac_problem own = *problem;
    own.kernel = kernel;
    *state = NULL;
    return kernel->prepare && !problem->options.predict_only ? kernel->prepare(&own, state) : LAC_STATUS_OK;
}

static bool is_candidate(const lac_kernel *kernel, lac_problem *problem)
{
    problem->kernel = kernel;
    return kernel->info.device == problem->device->info.kind && kernel->applies(problem);
}

/* ---- by name */

static lac_status choose_by_name(lac_plan *plan, const char *name)
{
    const lac_kernel *kernel;
    for (size_t i = 0; (kernel = lac_registry_kernel(i)); ++i)
        if (!strcmp(kernel->info.name, name)) break;
    if (!kernel) return lac_fail(LAC_STATUS_NOT_FOUND, "options->kernel is '%.60s'; there is no such kernel", name);
    if (!is_candidate(kernel, &plan->problem)) {
        char pattern[LAC_PATTERN_TEXT_SIZE] = "";
        lac_pattern_format(&plan->problem.weight->pattern, pattern, sizeof pattern);
        return lac_fail(LAC_STATUS_UNSUPPORTED,
                        "options->kernel is '%s', which does not apply to pattern %s with %s weights on %s", name, pattern,
                        lac_dtype_name(plan->problem.weight->dtype), plan->problem.device->info.name);
    }
    if (kernel->info.is_dense && plan->problem.options.no_dense)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options->kernel is '%s', which is dense, but options->no_dense is 1",
                        name);
    lac_status status = kernel->available ? kernel->available(&plan->problem) : LAC_STATUS_OK;
    if (status) return lac_fail_in(status, "options->kernel is '%s'", name);
    plan->kernel = kernel; /* and plan->problem.kernel, since it was asked last */
    plan->info.forced = 1;
    plan->info.candidates = 1;
    return lac_kernel_prepare(kernel, &plan->problem, &plan->state);
}

/* ---- by the model */

/* Every kernel that may be picked, the cheapest first, and of two that cost the same the registry's first. */
static int list_candidates(lac_problem *problem, candidate list[MOST_CANDIDATES])
{
    int count = 0;
    const lac_kernel *kernel;
    for (size_t i = 0; (kernel = lac_registry_kernel(i)) && count < MOST_CANDIDATES; ++i) {
        if (kernel->oracle || (problem->options.no_dense && kernel->info.is_dense) || !is_candidate(kernel, problem)) continue;
        candidate made = {kernel, kernel->cost(problem).seconds};
        int at = count++;
        for (; at > 0 && list[at - 1].seconds > made.seconds; --at) list[at] = list[at - 1];
        list[at] = made;
    }
    return count;
}

/* Whether the machine has what the kernel needs. Where it has not, and it would be the cheapest, the plan says so. */
static lac_status ask_available(lac_plan *plan, const lac_kernel *kernel, bool cheapest, bool *available)
{
    plan->problem.kernel = kernel;
    lac_status status = kernel->available ? kernel->available(&plan->problem) : LAC_STATUS_OK;
    *available = !status;
    if (status != LAC_STATUS_UNSUPPORTED) return status;
    if (cheapest) snprintf(plan->note, sizeof plan->note, "%s is not offered: %.200s", kernel->info.name, lac_last_error());
    return LAC_STATUS_OK;
}

static bool is_close(const candidate *list, int i, double share) { return list[i].seconds <= share * list[0].seconds; }

/* Adds a candidate to those kept at the head of the list, where the machine has what it needs. */
static lac_status keep(lac_plan *plan, candidate *list, int i, int *kept)
{
    bool available;
    lac_status status = ask_available(plan, list[i].kernel, *kept == 0, &available);
    if (status) return status;
    if (available)
        list[(*kept)++] = list[i];
    else
        --plan->info.candidates;
    return LAC_STATUS_OK;
}

static bool has_dense(const candidate *list, int count)
{
    for (int i = 0; i < count; ++i)
        if (list[i].kernel->info.is_dense) return true;
    return false;
}

/* Of the list, in its order, `most` that are there and close to the cheapest by the model, or all where everything is measured. And
 * where there may be rivals at all a dense one, if it is not far. */
static lac_status keep_rivals(lac_plan *plan, candidate *list, int count, int most, int *kept)
{
    bool all = plan->problem.options.measure;
    lac_status status = LAC_STATUS_OK;
    int i = 0;
    for (*kept = 0; i < count && *kept < most && (all || !*kept || is_close(list, i, CLOSE)) && !status; ++i)
        status = keep(plan, list, i, kept);
    for (; i < count && most > 1 && !has_dense(list, *kept) && is_close(list, i, SAFE) && !status; ++i)
        if (list[i].kernel->info.is_dense) status = keep(plan, list, i, kept);
    return status;
}

/* ---- by timing */

/* The two on the bed; the first stays unless the other one is quicker. *first is left prepared in *state. */
static lac_status challenge(const lac_test_bed *bed, const lac_kernel *other, const lac_kernel **first, void **state,
                            double *seconds)
{
    void *prepared;
    lac_status status = lac_kernel_prepare(other, bed->problem, &prepared);
    if (status) return status;
    lac_entrant entrants[2] = {{*first, *state, 0.0}, {other, prepared, 0.0}};
    status = lac_test_bed_race(bed, entrants, 2);
    bool dense = other->info.is_dense, surely = !dense && !bed->problem->options.measure;
    double limit = (dense ? 1.0 : QUICKER) * entrants[0].seconds - (surely ? SURE : 0.0);
    bool wins = !status && entrants[1].seconds < limit;
    if (!status) *seconds = entrants[wins].seconds;
    lac_kernel_release(wins ? *first : other, wins ? *state : prepared);
    if (wins) {
        *first = other;
        *state = prepared;
    }
    return status;
}

/* The quickest of the rivals, prepared. *complete: all of them ran. Where timing was not asked for, a rival that cannot be prepared
 * or run (there is no memory for both, no compiler for its program) is none: the plan has a kernel without it. */
static lac_status time_rivals(lac_plan *plan, const candidate *rivals, int count, bool *complete)
{
    const lac_problem *problem = &plan->problem;
    lac_test_bed bed;
    *complete = false;
    lac_status status = lac_kernel_prepare(rivals[0].kernel, problem, &plan->state);
    if (status) return status;
    plan->kernel = rivals[0].kernel;
    if ((status = lac_test_bed_make(problem, &bed))) {
        lac_log(LAC_LOG_LEVEL_INFO, "%d kernels are not timed: %s", count, lac_last_error());
    } else {
        *complete = true;
        for (int i = 1; i < count; ++i) {
            status = challenge(&bed, rivals[i].kernel, &plan->kernel, &plan->state, &plan->info.measured_seconds);
            if (!status) continue;
            *complete = false;
            lac_log(LAC_LOG_LEVEL_INFO, "%s is not timed: %s", rivals[i].kernel->info.name, lac_last_error());
            if (problem->options.measure) break;
        }
        lac_test_bed_release(&bed);
    }
    return problem->options.measure ? status : LAC_STATUS_OK;
}

/* Everything that the times depend on but the device, whose own affair that is; a line for each rival. The model's own times are in it:
 * a kernel that is cut otherwise costs otherwise. */
static void write_key(const lac_problem *problem, const candidate *rivals, int count, char key[KEY_SIZE])
{
    const lac_plan_options *o = &problem->options;
    const lac_weight *w = problem->weight;
    char pattern[LAC_PATTERN_TEXT_SIZE] = "";
    lac_pattern_format(&w->pattern, pattern, sizeof pattern);
    int used =
        snprintf(key, KEY_SIZE,
                 "sizes %" PRId64 " %" PRId64 " %" PRId64 "\npattern %s, %d, %" PRId64 " kept, permuted %d %d\nx %d %d, y %d "
                 "%d, bias %d %d, c %d %d, activation %d, precision %d\n",
                 problem->m, w->n_out, w->k_in, pattern, (int)w->dtype, w->kept, w->part[LAC_PART_ROW_PERM].data != NULL,
                 w->part[LAC_PART_COL_PERM].data != NULL, (int)o->x_dtype, (int)o->x_layout, (int)o->y_dtype, (int)o->y_layout,
                 o->has_bias, (int)o->bias_dtype, o->has_residual, (int)o->c_dtype, (int)o->activation, (int)o->precision);
    for (int i = 0; i < count && used < KEY_SIZE; ++i)
        used +=
            snprintf(key + used, KEY_SIZE - (size_t)used, "rival %s %.3g\n", rivals[i].kernel->info.name, rivals[i].seconds);
}

static const lac_kernel *find_rival(const candidate *rivals, int count, const lac_timed_pick *pick)
{
    for (int i = 0; i < count; ++i)
        if (!strncmp(rivals[i].kernel->info.name, pick->kernel, sizeof pick->kernel)) return rivals[i].kernel;
    return NULL;
}

/* Takes what is remembered; NOT_FOUND where nothing is, or nothing of these rivals. */
static lac_status take_known(lac_plan *plan, const candidate *rivals, int count, const lac_timed_pick *pick)
{
    const lac_kernel *kernel = find_rival(rivals, count, pick);
    if (!kernel) return LAC_STATUS_NOT_FOUND;
    plan->kernel = kernel;
    plan->info.measured_seconds = pick->seconds;
    return lac_kernel_prepare(kernel, &plan->problem, &plan->state);
}

/* Once for a problem: who plans it again, or at the same time, gets the same kernel. */
static lac_status recall_or_time(lac_plan *plan, const candidate *rivals, int count)
{
    const lac_device *device = plan->problem.device;
    char key[KEY_SIZE];
    lac_timed_pick pick;
    bool complete;
    write_key(&plan->problem, rivals, count, key);
    lac_status status = device->ops->recall(device, key, &pick);
    if (!status) status = take_known(plan, rivals, count, &pick);
    if (status != LAC_STATUS_NOT_FOUND) return status;
    if ((status = time_rivals(plan, rivals, count, &complete)) || !complete) return status;
    memset(&pick, 0, sizeof pick);
    snprintf(pick.kernel, sizeof pick.kernel, "%s", plan->kernel->info.name);
    pick.seconds = plan->info.measured_seconds;
    if ((status = device->ops->remember(device, key, &pick)) || !strcmp(pick.kernel, plan->kernel->info.name)) return status;
    const lac_kernel *own = plan->kernel;
    void *state = plan->state;
    status = take_known(plan, rivals, count, &pick);
    if (status == LAC_STATUS_NOT_FOUND) return LAC_STATUS_OK; /* not a name of ours: it keeps its own */
    lac_kernel_release(own, state);
    return status;
}

/* ---- choosing */

static lac_status fail_without(const lac_problem *problem)
{
    char pattern[LAC_PATTERN_TEXT_SIZE] = "";
    lac_pattern_format(&problem->weight->pattern, pattern, sizeof pattern);
    return lac_fail(LAC_STATUS_UNSUPPORTED, "no kernel on %s applies to pattern %s, weights %s, x %s, y %s, precision %d",
                    problem->device->info.name, pattern, lac_dtype_name(problem->weight->dtype),
                    lac_dtype_name(problem->options.x_dtype), lac_dtype_name(problem->options.y_dtype),
                    (int)problem->options.precision);
}

/* Whether plans for the problem may time what the model is not sure of. */
static bool may_race(const lac_problem *problem)
{
    const lac_plan_options *o = &problem->options;
    double x = (double)problem->weight->k_in * (double)lac_dtype_size(o->x_dtype),
           y = (double)problem->weight->n_out * (double)lac_dtype_size(o->y_dtype);
    return problem->device->ops->recall && !o->no_timing && problem->m > 0 &&
           (double)problem->m * (x + y) <= MOST_OPERAND_BYTES;
}

static lac_status choose_best(lac_plan *plan)
{
    lac_problem *problem = &plan->problem;
    candidate list[MOST_CANDIDATES];
    int rivals, count = plan->info.candidates = list_candidates(problem, list);
    int most = problem->options.measure ? count : may_race(problem) ? MOST_RIVALS : 1;
    bool complete;
    lac_status status = keep_rivals(plan, list, count, most, &rivals);
    if (status) return status;
    if (!rivals) return fail_without(problem);
    plan->info.rivals = rivals - 1;
    if (problem->options.measure) {
        status = time_rivals(plan, list, rivals, &complete);
    } else if (rivals > 1 && !problem->options.predict_only) {
        status = recall_or_time(plan, list, rivals);
    } else {
        plan->kernel = list[0].kernel;
        status = lac_kernel_prepare(plan->kernel, problem, &plan->state);
    }
    problem->kernel = plan->kernel;
    return status;
}

lac_status lac_plan_choose(lac_plan *plan, const char *forced)
{
    return forced ? choose_by_name(plan, forced) : choose_best(plan);
}
