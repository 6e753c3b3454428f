/* checkpoint_options.c - the options of a run over a checkpoint: read, checked, put to tensors, and described for the journal. Called by checkpoint.c and
 * allocate.c. */
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "core/dtype.h"
#include "core/kernel.h"
#include "core/pattern.h"
#include "core/status.h"
#include "io/text.h"
#include "prune/checkpoint.h"

static lac_status check_globs(const char *name, const char *const *globs, size_t count)
{
    if (count > 0 && !globs)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: %s is NULL but its count is %zu", name, count);
    for (size_t i = 0; i < count; i++) {
        if (!globs[i]) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: %s[%zu] is NULL", name, i);
        if (!lac_text_is_utf8(globs[i]))
            return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: %s[%zu] is not UTF-8, as all names of tensors are", name, i);
    }
    return LAC_STATUS_OK;
}

lac_status lac_checkpoint_read_options(const lac_checkpoint_options *options, bool patterned, lac_checkpoint_options *out,
                                       lac_prune_options *prune, lac_compress_options *compress)
{
    if (!options) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options is NULL; a pattern must be said");
    lac_checkpoint_options o;
    lac_status status = lac_read_struct("options", options, &o, sizeof o);
    if (status != LAC_STATUS_OK) return status;
    if (patterned && !o.pattern && !o.allocation) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: pattern is NULL");
    if (patterned && o.pattern && o.allocation)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: pattern and allocation are both given");
    if (patterned && o.pattern) status = lac_pattern_validate(o.pattern);
    if (status == LAC_STATUS_OK) status = check_globs("include", o.include, o.include_count);
    if (status == LAC_STATUS_OK) status = check_globs("exclude", o.exclude, o.exclude_count);
    if (status == LAC_STATUS_OK) status = check_globs("producers", o.producers, o.producer_count);
    if (status != LAC_STATUS_OK) return status;
    if (o.keep_dense != 0 && o.keep_dense != 1)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: keep_dense is %d; it must be 0 or 1", (int)o.keep_dense);
    status = lac_read_struct("options->prune", o.prune, prune, sizeof *prune);
    if (status == LAC_STATUS_OK) status = lac_read_struct("options->compress", o.compress, compress, sizeof *compress);
    if (status != LAC_STATUS_OK) return status;
    prune->size = sizeof *prune, compress->size = sizeof *compress;
    if (o.resume < LAC_RESUME_NO || o.resume > LAC_RESUME_RESTART)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: resume is %d, which is none of lac_resume", (int)o.resume);
    bool calibrated = prune->method >= LAC_METHOD_WANDA;
    if (calibrated != (o.calibration != NULL))
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: calibration is %s, but the method %s",
                        calibrated ? "NULL" : "given",
                        calibrated ? "judges weights by what it holds" : "looks at the weights alone");
    if (prune->calibration)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                        "options: prune->calibration is given; a checkpoint's layers have one each, from a file");
    *out = o;
    return LAC_STATUS_OK;
}

static bool matches(const char *name, const char *const *globs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (fnmatch(globs[i], name, 0) == 0) return true;
    return false;
}

const char *lac_checkpoint_reason_to_copy(const lac_checkpoint_options *o, const lac_tensor_info *tensor)
{
    if (tensor->rank != 2) return "not a matrix";
    if (!lac_dtype_is_input(tensor->dtype)) return "not of a floating type";
    if (tensor->shape[0] > LAC_MAX_DIMENSION || tensor->shape[1] > LAC_MAX_DIMENSION) return "too large";
    if (o->include_count > 0 && !matches(tensor->name, o->include, o->include_count)) return "not included";
    if (matches(tensor->name, o->exclude, o->exclude_count)) return "excluded";
    return "";
}

const char *lac_checkpoint_decide(const lac_checkpoint_options *o, const lac_tensor_info *tensor, lac_pattern *pattern)
{
    const char *reason = lac_checkpoint_reason_to_copy(o, tensor);
    if (*reason) return reason;
    if (o->pattern) {
        *pattern = *o->pattern;
        return "";
    }
    const lac_choice_info *choice = lac_allocation_find(o->allocation, tensor->name);
    if (!choice) return "not in the allocation";
    if (!choice->pruned) return "stays dense";
    *pattern = choice->pattern;
    return "";
}

static json_t *describe_globs(const char *const *globs, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count && list; i++)
        if (json_array_append_new(list, json_string(globs[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static json_t *describe_patterns(const lac_pattern *patterns, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count && list; i++) {
        char text[LAC_PATTERN_TEXT_SIZE] = "";
        if (lac_pattern_format(&patterns[i], text, sizeof text) != LAC_STATUS_OK ||
            json_array_append_new(list, json_string(text)) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* The pattern, or that of each layer. */
static json_t *describe_choice(const lac_checkpoint_options *o)
{
    char text[LAC_PATTERN_TEXT_SIZE] = "";
    if (o->pattern) return lac_pattern_format(o->pattern, text, sizeof text) == LAC_STATUS_OK ? json_string(text) : NULL;
    json_t *all = json_object();
    lac_choice_info layer = {.size = sizeof layer};
    for (int64_t i = 0; all && lac_allocation_get_layer(o->allocation, i, &layer) == LAC_STATUS_OK; i++) {
        if (!layer.pruned)
            snprintf(text, sizeof text, "dense");
        else if (lac_pattern_format(&layer.pattern, text, sizeof text) != LAC_STATUS_OK)
            text[0] = '\0';
        if (json_object_set_new(all, layer.name, json_string(text)) != 0) {
            json_decref(all);
            return NULL;
        }
    }
    return all;
}

/* Not the threads: the result is the same. A GPU sums otherwise. */
json_t *lac_checkpoint_describe(const lac_checkpoint_options *o, const lac_prune_options *p, const lac_compress_options *c)
{
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:i,s:i,s:f,s:i,s:i,s:i,s:b,s:s,s:i,s:i,s:i}", "pattern", describe_choice(o),
                     "schedule", describe_patterns(p->schedule, p->schedule_count), "include",
                     describe_globs(o->include, o->include_count), "exclude", describe_globs(o->exclude, o->exclude_count),
                     "producers", describe_globs(o->producers, o->producer_count), "method", (int)p->method, "score",
                     (int)p->score, "damping", p->damping, "permute", (int)p->permute, "permute_rounds", (int)p->permute_rounds,
                     "transposable", (int)p->transposable, "gpu", p->device && p->device->info.kind == LAC_DEVICE_KIND_CUDA,
                     "dtype", lac_dtype_name(c->dtype), "encoding", (int)c->encoding, "overflow", (int)c->overflow,
                     "keep_dense", (int)o->keep_dense);
}

lac_status lac_checkpoint_open_inputs(const lac_checkpoint_options *options, lac_file **out)
{
    lac_status status = options->calibration ? lac_file_open(options->calibration, out) : LAC_STATUS_OK;
    return status == LAC_STATUS_OK ? status : lac_fail_in(status, "calibration");
}
