/* choose.c - the planner's choice: asks every kernel of the registry whether it applies and what it costs, and keeps the
 * cheapest, prepared. Dense kernels are candidates like any other. Where the model holds several for nearly as fast, a device that
 * can remember times them against each other, once for a problem. One that cannot be prepared, for a reason of its own, is passed over:
 * the choice is made again without it. plan.c calls it. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/dtype.h"
#include "core/kernel.h"
#include "core/status.h"
#include "format/weight.h"

enum { MOST_CANDIDATES = 64, MOST_RIVALS = 3, KEY_SIZE = 512, REASON_SIZE = 768 }; /* no device has as many kernels */
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

/* A choice on its way. */
typedef struct choice {
    lac_plan *plan;
    candidate list[MOST_CANDIDATES]; /* what may still be picked, the cheapest first */
    int count;
    candidate rivals[MOST_CANDIDATES]; /* of these, what is chosen from; likewise */
    int rival_count;
    const lac_kernel *refused; /* the one for which choosing has to begin anew: it could not be prepared */
    int passed_over;           /* so many could not be */
    lac_status first_status;   /* of the first, which was the cheapest */
    char first_reason[REASON_SIZE];
} choice;

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

/* ---- kernels that cannot be had */

/* Adds to what the plan tells of kernels that it would rather have had. */
__attribute__((format(printf, 2, 3))) static void add_note(lac_plan *plan, const char *format, ...)
{
    size_t used = strlen(plan->note);
    if (used) used += (size_t)snprintf(plan->note + used, sizeof plan->note - used, "; ");
    if (used >= sizeof plan->note) return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(plan->note + used, sizeof plan->note - used, format, arguments);
    va_end(arguments);
    for (char *at = plan->note; (at = strchr(at, '\n'));) *at = ' '; /* a compiler says more than a line */
}

/* Whether the device still hands out memory, as one that is lost does not. Waiting for it instead would wait for everybody's work. */
static bool is_alive(const lac_device *device)
{
    void *block = NULL;
    lac_status status = lac_device_allocate(device, 1, &block);
    if (!status) lac_device_release(device, block);
    return !status || (status == LAC_STATUS_OUT_OF_MEMORY && !lac_error_is_host_memory());
}

/* Whether the failure is the kernel's own: a compiler that refuses its program, memory of the device that does not hold its copy of the
 * weight. Nobody's own are the host's memory, a device that is lost, a caller's mistake, a defect of ours. The message stays. */
static bool is_its_own(const lac_device *device, lac_status status)
{
    if (status == LAC_STATUS_OUT_OF_MEMORY) return !lac_error_is_host_memory();
    if (status != LAC_STATUS_DEVICE) return status == LAC_STATUS_UNSUPPORTED;
    char message[REASON_SIZE];
    snprintf(message, sizeof message, "%s", lac_last_error());
    bool alive = is_alive(device);
    lac_fail(status, "%s", message);
    return alive;
}

static void drop(choice *c, const lac_kernel *kernel)
{
    int kept = 0;
    for (int i = 0; i < c->count; ++i)
        if (c->list[i].kernel != kernel) c->list[kept++] = c->list[i];
    c->plan->info.candidates -= c->count - kept;
    c->count = kept;
}

/* Goes on without a kernel that could not be prepared. Never quietly: what is left may be slower, or dense. */
static void pass_over(choice *c, const lac_kernel *kernel, lac_status status)
{
    const char *reason = lac_last_error();
    lac_log(LAC_LOG_LEVEL_WARNING, "%s could not be prepared, and the plan goes on without it: %s", kernel->info.name, reason);
    drop(c, kernel);
    if (c->passed_over++) return;
    c->first_status = status;
    snprintf(c->first_reason, sizeof c->first_reason, "%s could not be prepared: %s", kernel->info.name, reason);
    add_note(c->plan, "%.220s", c->first_reason);
}

/* Nothing is left: what was wrong with the one that should have been picked. */
static lac_status fail_with_all(const choice *c)
{
    if (c->passed_over == 1) return lac_fail(c->first_status, "%s", c->first_reason);
    return lac_fail(c->first_status, "%s; nor could any of the %d others that apply", c->first_reason, c->passed_over - 1);
}

/* Makes the kernel the plan's, or `refused`. */
static lac_status prepare(choice *c, const lac_kernel *kernel)
{
    lac_plan *plan = c->plan;
    lac_status status = lac_kernel_prepare(kernel, &plan->problem, &plan->state);
    plan->kernel = status ? NULL : kernel;
    if (status && is_its_own(plan->problem.device, status)) c->refused = kernel;
    return status;
}

/* ---- by the model */

/* Every kernel that may be picked, the cheapest first, and of two that cost the same the registry's first. */
static void list_candidates(choice *c)
{
    lac_problem *problem = &c->plan->problem;
    const lac_kernel *kernel;
    c->count = 0;
    for (size_t i = 0; (kernel = lac_registry_kernel(i)) && c->count < MOST_CANDIDATES; ++i) {
        if (kernel->oracle || (problem->options.no_dense && kernel->info.is_dense) || !is_candidate(kernel, problem)) continue;
        candidate made = {kernel, kernel->cost(problem).seconds};
        int at = c->count++;
        for (; at > 0 && c->list[at - 1].seconds > made.seconds; --at) c->list[at] = c->list[at - 1];
        c->list[at] = made;
    }
    c->plan->info.candidates = c->count;
}

/* Whether the i-th is not far from the cheapest that can be had. */
static bool is_close(const choice *c, int i, double share) { return c->list[i].seconds <= share * c->list[0].seconds; }

/* Adds the i-th of the list to the rivals, or drops it from the list where the machine has not what it needs. Where it would have been
 * the cheapest, the plan says so. */
static lac_status keep(choice *c, int i)
{
    lac_plan *plan = c->plan;
    const lac_kernel *kernel = plan->problem.kernel = c->list[i].kernel;
    lac_status status = kernel->available ? kernel->available(&plan->problem) : LAC_STATUS_OK;
    if (!status) {
        c->rivals[c->rival_count++] = c->list[i];
    } else if (status == LAC_STATUS_UNSUPPORTED) {
        if (!c->rival_count) add_note(plan, "%s is not offered: %.200s", kernel->info.name, lac_last_error());
        drop(c, kernel);
        status = LAC_STATUS_OK;
    } else if (is_its_own(plan->problem.device, status)) {
        pass_over(c, kernel, status);
        status = LAC_STATUS_OK;
    }
    return status;
}

static bool has_dense(const choice *c)
{
    for (int i = 0; i < c->rival_count; ++i)
        if (c->rivals[i].kernel->info.is_dense) return true;
    return false;
}

/* Of the list, in its order, `most` that are there and close to the cheapest by the model, or all where everything is measured. And
 * where there may be rivals at all a dense one, if it is not far. */
static lac_status keep_rivals(choice *c, int most)
{
    bool all = c->plan->problem.options.measure;
    lac_status status = LAC_STATUS_OK;
    int i = 0, before; /* what is dropped makes room for the next */
    for (c->rival_count = 0; i < c->count && c->rival_count < most && (all || !i || is_close(c, i, CLOSE)) && !status;
         i += c->count == before) {
        before = c->count;
        status = keep(c, i);
    }
    for (; i < c->count && most > 1 && !has_dense(c) && is_close(c, i, SAFE) && !status; i += c->count == before) {
        before = c->count;
        if (c->list[i].kernel->info.is_dense) status = keep(c, i);
    }
    return status;
}

/* ---- by timing */

/* The plan's kernel against another one that is prepared, which is the plan's if it is quicker; the loser is released. */
static lac_status challenge(lac_plan *plan, const lac_test_bed *bed, const lac_kernel *other, void *state)
{
    lac_entrant entrants[2] = {{plan->kernel, plan->state, 0.0}, {other, state, 0.0}};
    lac_status status = lac_test_bed_race(bed, entrants, 2);
    bool dense = other->info.is_dense, surely = !dense && !bed->problem->options.measure;
    double limit = (dense ? 1.0 : QUICKER) * entrants[0].seconds - (surely ? SURE : 0.0);
    bool wins = !status && entrants[1].seconds < limit;
    if (!status) plan->info.measured_seconds = entrants[wins].seconds;
    lac_kernel_release(wins ? plan->kernel : other, wins ? plan->state : state);
    if (wins) {
        plan->kernel = other;
        plan->state = state;
    }
    return status;
}

/* The quickest of the rivals, prepared. *complete: all of them ran. Where timing was not asked for, a rival that cannot be prepared
 * or run (there is no memory for both, no compiler for its program) is none: the plan has a kernel without it. Where it was, one that
 * cannot be prepared is passed over, and whatever else goes wrong is a failure. */
static lac_status time_rivals(choice *c, bool *complete)
{
    lac_plan *plan = c->plan;
    const lac_problem *problem = &plan->problem;
    bool asked = problem->options.measure;
    lac_test_bed bed;
    *complete = false;
    lac_status status = prepare(c, c->rivals[0].kernel);
    if (status) return status;
    if ((status = lac_test_bed_make(problem, &bed))) {
        lac_log(LAC_LOG_LEVEL_INFO, "%d kernels are not timed: %s", c->rival_count, lac_last_error());
        return asked ? status : LAC_STATUS_OK;
    }
    *complete = true;
    for (int i = 1; i < c->rival_count && !(asked && status); ++i) {
        const lac_kernel *other = c->rivals[i].kernel;
        void *state;
        status = lac_kernel_prepare(other, problem, &state);
        if (status && asked && is_its_own(problem->device, status)) {
            pass_over(c, other, status);
            --plan->info.rivals;
            status = LAC_STATUS_OK;
            continue;
        }
        if (!status) status = challenge(plan, &bed, other, state);
        if (!status) continue;
        *complete = false;
        lac_log(LAC_LOG_LEVEL_INFO, "%s is not timed: %s", other->info.name, lac_last_error());
    }
    lac_test_bed_release(&bed);
    return asked ? status : LAC_STATUS_OK;
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

static const lac_kernel *find_rival(const choice *c, const lac_timed_pick *pick)
{
    for (int i = 0; i < c->rival_count; ++i)
        if (!strncmp(c->rivals[i].kernel->info.name, pick->kernel, sizeof pick->kernel)) return c->rivals[i].kernel;
    return NULL;
}

/* Takes what is remembered; NOT_FOUND where nothing is, or nothing of these rivals. */
static lac_status take_known(choice *c, const lac_timed_pick *pick)
{
    const lac_kernel *kernel = find_rival(c, pick);
    if (!kernel) return LAC_STATUS_NOT_FOUND;
    lac_status status = prepare(c, kernel);
    if (!status) c->plan->info.measured_seconds = pick->seconds;
    return status;
}

/* The plan's kernel is prepared, but somebody else has found another one to be the quickest: it takes that one's place. Where that is
 * none of ours, or cannot be prepared beside it, it stays. */
static lac_status take_theirs(choice *c, const lac_timed_pick *pick)
{
    lac_plan *plan = c->plan;
    const lac_kernel *theirs = find_rival(c, pick);
    void *state;
    lac_status status = theirs ? lac_kernel_prepare(theirs, &plan->problem, &state) : LAC_STATUS_OK;
    if (!theirs || (status && is_its_own(plan->problem.device, status))) return LAC_STATUS_OK;
    if (status) return status;
    lac_kernel_release(plan->kernel, plan->state);
    plan->kernel = theirs;
    plan->state = state;
    plan->info.measured_seconds = pick->seconds;
    return LAC_STATUS_OK;
}

/* Once for a problem: who plans it again, or at the same time, gets the same kernel. */
static lac_status recall_or_time(choice *c)
{
    lac_plan *plan = c->plan;
    const lac_device *device = plan->problem.device;
    char key[KEY_SIZE];
    lac_timed_pick pick;
    bool complete;
    write_key(&plan->problem, c->rivals, c->rival_count, key);
    lac_status status = device->ops->recall(device, key, &pick);
    if (!status) status = take_known(c, &pick);
    if (status != LAC_STATUS_NOT_FOUND) return status;
    if ((status = time_rivals(c, &complete)) || !complete) return status;
    memset(&pick, 0, sizeof pick);
    snprintf(pick.kernel, sizeof pick.kernel, "%s", plan->kernel->info.name);
    pick.seconds = plan->info.measured_seconds;
    status = device->ops->remember(device, key, &pick);
    return status || !strcmp(pick.kernel, plan->kernel->info.name) ? status : take_theirs(c, &pick);
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

/* Of what the list still has. */
static lac_status choose_again(choice *c)
{
    lac_plan *plan = c->plan;
    const lac_plan_options *o = &plan->problem.options;
    bool complete;
    c->refused = NULL;
    lac_status status = keep_rivals(c, o->measure ? c->count : may_race(&plan->problem) ? MOST_RIVALS : 1);
    if (status) return status;
    if (!c->rival_count) return c->passed_over ? fail_with_all(c) : fail_without(&plan->problem);
    plan->info.rivals = c->rival_count - 1;
    if (o->measure) return time_rivals(c, &complete);
    if (c->rival_count > 1 && !o->predict_only) return recall_or_time(c);
    return prepare(c, c->rivals[0].kernel);
}

static lac_status choose_best(lac_plan *plan)
{
    choice c = {.plan = plan};
    lac_status status;
    list_candidates(&c);
    while ((status = choose_again(&c)) && c.refused) pass_over(&c, c.refused, status);
    if (!status && c.passed_over > 1) add_note(plan, "nor could %d more", c.passed_over - 1);
    plan->problem.kernel = plan->kernel;
    return status;
}

lac_status lac_plan_choose(lac_plan *plan, const char *forced)
{
    return forced ? choose_by_name(plan, forced) : choose_best(plan);
}
