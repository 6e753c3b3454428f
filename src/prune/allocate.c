/* allocate.c - lac_checkpoint_allocate: which pattern each layer of a checkpoint gets, within a budget. Every layer is pruned to every pattern once, for what that loses, and the planner
 * says how long its kernel takes; knapsack.c then chooses. One layer is in memory at a time, and of each only numbers stay. Called by users and by
 * `lacuna prune --budget`. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/memory.h"
#include "core/pattern.h"
#include "core/status.h"
#include "prune/checkpoint.h"
#include "prune/knapsack.h"
#include "prune/layer.h"
#include "prune/permute.h"

typedef struct allocation_layer {
    char *name;
    lac_choice_info *options; /* [options]: dense, then each pattern */
    int32_t chosen;
} allocation_layer;

struct lac_allocation {
    allocation_layer *layers; /* [count] */
    int64_t count, room;
    int64_t options; /* of each layer */
    double loss_bound;
};

/* A run of lac_checkpoint_allocate. */
typedef struct run {
    lac_checkpoint_options checkpoint;
    lac_prune_options prune;
    lac_compress_options compress;
    lac_allocate_options options;
    lac_plan_options plan;
    lac_file *file, *inputs;
    int64_t tensors;
    lac_allocation *made;
} run;

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static lac_status read_options(const lac_allocate_options *given, lac_allocate_options *out, lac_plan_options *plan)
{
    lac_allocate_options o;
    if (!given) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options is NULL; a budget and patterns must be said");
    lac_status status = lac_read_struct("options", given, &o, sizeof o);
    if (status != LAC_STATUS_OK) return status;
    if (!o.patterns || o.pattern_count == 0 || o.pattern_count > 1000)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: patterns is %p with pattern_count %zu; 1 to 1000 are needed",
                        (const void *)o.patterns, o.pattern_count);
    for (size_t i = 0; i < o.pattern_count; i++)
        if ((status = lac_pattern_validate(&o.patterns[i])) != LAC_STATUS_OK)
            return lac_fail_in(status, "options: patterns[%zu]", i);
    if (o.budget != LAC_BUDGET_SPEEDUP && o.budget != LAC_BUDGET_DENSITY)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: budget is %d, which is none of lac_budget", (int)o.budget);
    bool speedup = o.budget == LAC_BUDGET_SPEEDUP;
    if (!(o.amount > 0) || o.amount > (speedup ? 1e6 : 1))
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: amount is %g; a %s must be positive%s", o.amount,
                        speedup ? "speedup" : "density", speedup ? "" : " and at most 1");
    if (speedup && !o.device)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: device is NULL; a speedup is predicted for one");
    if (o.m < 0 || o.m > LAC_MAX_DIMENSION)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: m is %lld; it must be 0 (for 1) to %d", (long long)o.m,
                        LAC_MAX_DIMENSION);
    if ((status = lac_read_struct("options->plan", o.plan, plan, sizeof *plan)) != LAC_STATUS_OK) return status;
    if (o.m == 0) o.m = 1;
    plan->size = sizeof *plan;
    plan->predict_only = 1;
    *out = o;
    return LAC_STATUS_OK;
}

/* ---------------------------------------------------------------- one layer */

static lac_status predict(const run *r, const lac_weight *weight, const char *kernel, double *seconds)
{
    lac_plan *plan = NULL;
    lac_plan_info info = {.size = sizeof info};
    lac_plan_options options = r->plan;
    if (kernel) options.kernel = kernel;
    lac_status status = lac_plan_create(r->options.device, weight, r->options.m, &options, &plan);
    if (status == LAC_STATUS_OK) status = lac_plan_get_info(plan, &info);
    if (status == LAC_STATUS_OK) *seconds = info.predicted_seconds;
    lac_plan_free(plan);
    return status;
}

/* A GPU's kernels for long vectors, with every vector kept: at times the fastest way there is to multiply by a dense W. */
static lac_status predict_full(const run *r, const lac_matrix *dense, double *seconds)
{
    static const lac_pattern full = {.family = LAC_FAMILY_VECTOR, .unit_n = 128, .unit_k = 1, .n = 32, .m = 32};
    lac_prune_options options = {.size = sizeof options, .threads = r->prune.threads};
    lac_mask *mask = NULL;
    lac_weight *weight = NULL;
    lac_status status = lac_prune(dense, &full, &options, &mask);
    if (status == LAC_STATUS_OK) status = lac_weight_compress(dense, mask, &r->compress, &weight);
    if (status == LAC_STATUS_OK) status = predict(r, weight, NULL, seconds);
    lac_mask_free(mask);
    lac_weight_free(weight);
    return status;
}

/* The fastest kernel that ignores the sparsity. */
static lac_status predict_dense(const run *r, const lac_matrix *dense, const lac_weight *weight, double *seconds)
{
    lac_kernel_info kernel = {.size = sizeof kernel};
    lac_device_info device = {.size = sizeof device};
    lac_status status = lac_device_get_info(r->options.device, &device);
    double least = -1;
    if (status == LAC_STATUS_OK && device.kind == LAC_DEVICE_KIND_CUDA) status = predict_full(r, dense, &least);
    for (size_t i = 0; status == LAC_STATUS_OK && lac_kernel_probe(i, &kernel) == LAC_STATUS_OK; i++) {
        double one = 0;
        if (!kernel.is_dense || kernel.device != device.kind) continue;
        lac_status tried = predict(r, weight, kernel.name, &one);
        if (tried == LAC_STATUS_OK && (least < 0 || one < least)) least = one;
        if (tried != LAC_STATUS_OK && tried != LAC_STATUS_UNSUPPORTED) status = tried;
    }
    if (status == LAC_STATUS_OK && least < 0)
        status = lac_fail(LAC_STATUS_UNSUPPORTED, "options: device %s has no dense kernel for it, so no speedup can be told",
                          device.name);
    *seconds = least;
    return status;
}

static lac_status measure_option(const run *r, lac_layer *layer, const lac_pattern *pattern, lac_choice_info *dense,
                                 lac_choice_info *out)
{
    lac_layer_result result;
    lac_weight *weight = NULL;
    lac_mask_info mask = {.size = sizeof mask};
    layer->options.permute = r->prune.permute & lac_permute_possible(pattern);
    lac_status status = lac_layer_prune(layer, pattern, &result);
    if (status != LAC_STATUS_OK) return status;
    status = lac_mask_get_info(result.mask, &mask);
    if (status == LAC_STATUS_OK && r->options.device)
        status = lac_weight_compress(&result.values, result.mask, &r->compress, &weight);
    lac_layer_release(&result);
    if (weight && dense->dense_seconds < 0) {
        status = predict_dense(r, &layer->dense, weight, &dense->dense_seconds);
        dense->seconds = dense->dense_seconds;
    }
    *out =
        (lac_choice_info){.size = sizeof *out, .name = dense->name, .n = dense->n, .k = dense->k, .pruned = 1, .seconds = -1};
    out->pattern = *pattern;
    out->dense_seconds = dense->dense_seconds;
    out->loss = isnan(result.loss) ? 1 : result.loss > 0 ? result.loss : 0; /* unknown, as where squares overflow: all of it */
    out->density = dense->n > 0 && dense->k > 0 ? (double)mask.kept / (double)dense->n / (double)dense->k : 1;
    if (status == LAC_STATUS_OK && weight) status = predict(r, weight, NULL, &out->seconds);
    lac_weight_free(weight);
    return status;
}

static lac_status add_layer(lac_allocation *a, const char *name, allocation_layer **out)
{
    if (a->count == a->room) {
        int64_t room = a->room ? 2 * a->room : 64;
        void *grown = lac_grow(a->layers, (uint64_t)a->count * sizeof *a->layers, (uint64_t)room * sizeof *a->layers);
        if (!grown) return lac_fail_memory("layers", (uint64_t)room * sizeof *a->layers);
        a->layers = grown, a->room = room;
    }
    allocation_layer *layer = &a->layers[a->count];
    *layer = (allocation_layer){.name = lac_copy_text(name)};
    layer->options = lac_allocate_zeroed((uint64_t)a->options * sizeof *layer->options);
    a->count++; /* so that it is freed with the others */
    if (!layer->name || !layer->options)
        return lac_fail_memory("a layer's choices", (uint64_t)a->options * sizeof *layer->options);
    *out = layer;
    return LAC_STATUS_OK;
}

static lac_status measure_layer(const run *r, const lac_tensor_info *tensor)
{
    allocation_layer *one = NULL;
    lac_layer layer;
    lac_status status = add_layer(r->made, tensor->name, &one);
    if (status != LAC_STATUS_OK) return status;
    lac_choice_info *dense = one->options;
    *dense = (lac_choice_info){.size = sizeof *dense, .name = one->name, .n = tensor->shape[0], .k = tensor->shape[1]};
    dense->density = 1, dense->seconds = dense->dense_seconds = -1;
    status = lac_layer_open(tensor, r->inputs, &r->prune, &layer);
    if (status != LAC_STATUS_OK) return status;
    for (size_t i = 0; i < r->options.pattern_count && status == LAC_STATUS_OK; i++)
        status = measure_option(r, &layer, &r->options.patterns[i], dense, &one->options[i + 1]);
    lac_layer_close(&layer);
    return status;
}

static lac_status tell(const run *r, const lac_tensor_info *tensor, int64_t index, double start)
{
    lac_layer_report report = {.size = sizeof report, .name = tensor->name, .reason = "measured", .index = index};
    report.n = tensor->shape[0], report.k = tensor->shape[1];
    report.dense_bytes = report.stored_bytes = tensor->bytes;
    report.energy_kept = 1, report.output_error = report.loss_rise = -1;
    report.total = r->tensors, report.seconds = seconds_now() - start;
    report.bytes_done = (uint64_t)index + 1, report.bytes_total = (uint64_t)r->tensors;
    if (r->checkpoint.on_layer && r->checkpoint.on_layer(r->checkpoint.user, &report) != 0)
        return lac_fail(LAC_STATUS_CANCELLED, "cancelled by the caller after %s", tensor->name);
    return LAC_STATUS_OK;
}

static lac_status measure_all(const run *r)
{
    for (int64_t i = 0; i < r->tensors; i++) {
        double start = seconds_now();
        lac_tensor_info tensor = {.size = sizeof tensor};
        lac_status status = lac_file_get_tensor(r->file, i, &tensor);
        if (status != LAC_STATUS_OK) return status;
        if (*lac_checkpoint_reason_to_copy(&r->checkpoint, &tensor)) continue;
        status = measure_layer(r, &tensor);
        if (status != LAC_STATUS_OK) return lac_fail_in(status, "%s", tensor.name);
        status = tell(r, &tensor, i, start);
        if (status != LAC_STATUS_OK) return status;
    }
    if (r->made->count == 0) return lac_fail(LAC_STATUS_NOT_FOUND, "in: no tensor of it is one to prune");
    return LAC_STATUS_OK;
}

/* ---------------------------------------------------------------- the choice */

static double cost_of(const run *r, const lac_choice_info *choice)
{
    if (r->options.budget == LAC_BUDGET_SPEEDUP) return choice->seconds;
    return choice->density * (double)choice->n * (double)choice->k;
}

static lac_status refuse(const run *r, double dense, double least)
{
    bool speedup = r->options.budget == LAC_BUDGET_SPEEDUP;
    return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: no choice of the %zu patterns reaches a %s of %g; the %s is %.4g",
                    r->options.pattern_count, speedup ? "speedup" : "density", r->options.amount, speedup ? "most" : "least",
                    speedup ? dense / least : least / dense);
}

static lac_status solve(const run *r, lac_option *options, const lac_option **layers, int32_t *counts, int32_t *chosen)
{
    lac_allocation *a = r->made;
    double dense = 0;
    for (int64_t l = 0; l < a->count; l++) {
        lac_option *to = options + l * a->options;
        for (int64_t o = 0; o < a->options; o++) {
            const lac_choice_info *choice = &a->layers[l].options[o];
            to[o] = (lac_option){.cost = cost_of(r, choice), .loss = choice->loss};
        }
        layers[l] = to, counts[l] = (int32_t)a->options;
        dense += to->cost;
    }
    lac_knapsack problem = {.layers = a->count, .counts = counts, .options = layers};
    problem.budget = r->options.budget == LAC_BUDGET_SPEEDUP ? dense / r->options.amount : dense * r->options.amount;
    double least = lac_knapsack_least_cost(&problem);
    if (least > problem.budget * (1 + 1e-12)) return refuse(r, dense, least);
    lac_status status = lac_knapsack_solve(&problem, chosen, &a->loss_bound);
    for (int64_t l = 0; l < a->count && status == LAC_STATUS_OK; l++) a->layers[l].chosen = chosen[l];
    return status;
}

static lac_status choose(const run *r)
{
    uint64_t layers = (uint64_t)r->made->count, bytes = layers * (uint64_t)r->made->options * sizeof(lac_option);
    lac_option *options = lac_allocate(bytes);
    const lac_option **lists = lac_allocate(layers * sizeof *lists);
    int32_t *counts = lac_allocate(2 * layers * sizeof *counts);
    lac_status status = LAC_STATUS_OK;
    if (!options || !lists || !counts)
        status = lac_fail_memory("the choices", bytes);
    else
        status = solve(r, options, lists, counts, counts + layers);
    lac_release(options);
    lac_release(lists);
    lac_release(counts);
    return status;
}

lac_status lac_checkpoint_allocate(const char *in, const lac_checkpoint_options *checkpoint,
                                   const lac_allocate_options *options, lac_allocation **out)
{
    run r = {0};
    lac_file_info info = {.size = sizeof info};
    if (!in) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "in is NULL");
    if (!out) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "out is NULL");
    lac_status status = read_options(options, &r.options, &r.plan);
    if (status == LAC_STATUS_OK) status = lac_checkpoint_read_options(checkpoint, false, &r.checkpoint, &r.prune, &r.compress);
    if (status != LAC_STATUS_OK) return status;
    r.made = lac_allocate_zeroed(sizeof *r.made);
    if (!r.made) return lac_fail_memory("an allocation", sizeof *r.made);
    r.made->options = (int64_t)r.options.pattern_count + 1;
    status = lac_file_open(in, &r.file);
    if (status == LAC_STATUS_OK) status = lac_file_get_info(r.file, &info);
    if (status == LAC_STATUS_OK) status = lac_checkpoint_open_inputs(&r.checkpoint, &r.inputs);
    r.tensors = info.tensors;
    if (status == LAC_STATUS_OK) status = measure_all(&r);
    if (status == LAC_STATUS_OK) status = choose(&r);
    lac_file_close(r.inputs);
    lac_file_close(r.file);
    if (status != LAC_STATUS_OK) {
        lac_allocation_free(r.made);
        return status;
    }
    *out = r.made;
    return LAC_STATUS_OK;
}

/* ---------------------------------------------------------------- what was chosen */

lac_status lac_allocation_get_info(const lac_allocation *a, lac_allocation_info *info)
{
    if (!a) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "allocation is NULL");
    if (!info) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "info is NULL");
    lac_allocation_info filled = {.size = info->size, .layers = a->count, .loss_bound = a->loss_bound};
    double kept = 0, all = 0;
    for (int64_t l = 0; l < a->count; l++) {
        const lac_choice_info *choice = &a->layers[l].options[a->layers[l].chosen];
        double elements = (double)choice->n * (double)choice->k;
        filled.pruned += choice->pruned;
        filled.loss += choice->loss;
        filled.seconds += choice->seconds;
        filled.dense_seconds += choice->dense_seconds;
        kept += choice->density * elements;
        all += elements;
    }
    filled.density = all > 0 ? kept / all : 1;
    if (filled.dense_seconds < 0) filled.seconds = filled.dense_seconds = -1;
    return lac_write_struct("info", info, &filled, sizeof filled);
}

static lac_status get_option(const lac_allocation *a, int64_t index, int64_t option, bool chosen, lac_choice_info *info)
{
    if (!a) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "allocation is NULL");
    if (!info) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "info is NULL");
    if (index < 0 || index >= a->count)
        return lac_fail(LAC_STATUS_NOT_FOUND, "index is %lld; the allocation has %lld layers", (long long)index,
                        (long long)a->count);
    if (chosen) option = a->layers[index].chosen;
    if (option < 0 || option >= a->options)
        return lac_fail(LAC_STATUS_NOT_FOUND, "option is %lld; a layer has %lld", (long long)option, (long long)a->options);
    lac_choice_info filled = a->layers[index].options[option];
    filled.size = info->size;
    return lac_write_struct("info", info, &filled, sizeof filled);
}

lac_status lac_allocation_get_layer(const lac_allocation *allocation, int64_t index, lac_choice_info *info)
{
    return get_option(allocation, index, 0, true, info);
}

lac_status lac_allocation_get_option(const lac_allocation *allocation, int64_t index, int64_t option, lac_choice_info *info)
{
    return get_option(allocation, index, option, false, info);
}

const lac_choice_info *lac_allocation_find(const lac_allocation *a, const char *name)
{
    for (int64_t l = 0; l < a->count; l++)
        if (strcmp(a->layers[l].name, name) == 0) return &a->layers[l].options[a->layers[l].chosen];
    return NULL;
}

void lac_allocation_free(lac_allocation *a)
{
    if (!a) return;
    for (int64_t l = 0; l < a->count; l++) {
        lac_release(a->layers[l].name);
        lac_release(a->layers[l].options);
    }
    lac_release(a->layers);
    lac_release(a);
}
