/* checkpoint.c - lac_checkpoint_prune: a whole checkpoint from dense to compressed, one tensor at a time. The first pass decides
 * what happens to each tensor and declares it to the writer, the second does it in the same order. While one tensor is pruned,
 * the next is read (ahead.c) and the one before is written (behind.c): never more than one of each is in memory. A tensor counts
 * as done, for the journal and the caller, once its bytes are written. Called by users and by `lacuna prune`. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/dtype.h"
#include "core/memory.h"
#include "core/pattern.h"
#include "core/status.h"
#include "format/reorder.h"
#include "lacuna.h"
#include "prune/ahead.h"
#include "prune/behind.h"
#include "prune/checkpoint.h"
#include "prune/inputs.h"
#include "prune/layer.h"
#include "prune/links.h"
#include "prune/permute.h"
#include "prune/resume.h"

/* What is to be written of a tensor: a weight, or bytes. */
typedef struct product {
    lac_weight *weight; /* or NULL */
    const void *data;   /* the block, or the file's own */
    uint64_t bytes;
    void *block; /* or NULL */
} product;

/* The tensor that is written while the next one is worked on. */
typedef struct pending {
    bool is; /* there is one */
    product product;
    lac_layer_report report;
    lac_resume_source source;
    uint64_t bytes; /* of the input */
} pending;

typedef struct checkpoint {
    lac_checkpoint_options options;
    lac_prune_options prune;
    lac_compress_options compress;
    lac_file *file, *inputs; /* inputs: NULL without a calibration */
    lac_writer *writer;
    lac_links *links;     /* NULL: no layer's inputs are moved by the layers before it */
    lac_journal *journal; /* NULL: this run cannot be resumed */
    lac_ahead ahead;
    lac_behind behind;
    pending pending;
    bool working;             /* nothing more comes from an earlier run */
    int64_t finished;         /* tensors that were pruned, by this run or an earlier one */
    int64_t tensors, weights; /* of the input */
    uint64_t bytes_done, bytes_total;
} checkpoint;

/* The order that a tensor's rows take because it is a producer, and its columns because it is a consumer; NULL: their own. */
typedef struct order {
    const uint32_t *rows, *cols;
} order;

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static lac_status get_tensor(const checkpoint *c, int64_t index, lac_tensor_info *tensor)
{
    *tensor = (lac_tensor_info){.size = sizeof *tensor};
    return lac_file_get_tensor(c->file, index, tensor);
}

/* What may be reordered under this pattern, and stored so. With one pattern for all, one that knows no such order is refused in pruning. */
static uint32_t permute_for(const checkpoint *c, int64_t index, const lac_pattern *pattern)
{
    uint32_t wanted = c->prune.permute & (lac_links_consumes(c->links, index) ? ~LAC_PERMUTE_COLUMNS : ~0u);
    return c->options.allocation ? wanted & lac_permute_possible(pattern) : wanted;
}

static lac_status declare_pruned(const checkpoint *c, int64_t index, const lac_tensor_info *tensor, const lac_pattern *pattern)
{
    const lac_compress_options *o = &c->compress;
    uint32_t permute = permute_for(c, index, pattern);
    lac_weight_info info = {.size = sizeof info, .pattern = *pattern, .n = tensor->shape[0], .k = tensor->shape[1]};
    info.dtype = o->dtype != LAC_DTYPE_NONE ? o->dtype : tensor->dtype == LAC_DTYPE_F64 ? LAC_DTYPE_F32 : tensor->dtype;
    info.encoding = o->encoding;
    info.has_row_perm = pattern->family == LAC_FAMILY_SHUFFLED || permute & LAC_PERMUTE_ROWS;
    info.has_col_perm = (permute & LAC_PERMUTE_COLUMNS) != 0;
    lac_status status = lac_weight_measure(&info, NULL);
    if (status == LAC_STATUS_OK) status = lac_writer_declare_weight(c->writer, tensor->name, &info, NULL);
    return status;
}

/* A weight that is compressed already goes over with the sizes it has, which only the weight itself tells. */
static lac_status declare_carried(checkpoint *c, int64_t index)
{
    const char *name = NULL;
    lac_weight *weight = NULL;
    lac_weight_info info = {.size = sizeof info};
    lac_status status = lac_file_get_weight(c->file, index, &name, &info);
    if (status != LAC_STATUS_OK) return status;
    status = lac_file_load_weight(c->file, name, &weight);
    if (status == LAC_STATUS_OK) status = lac_writer_declare_weight(c->writer, name, &info, weight);
    lac_weight_free(weight);
    c->bytes_total += info.value_bytes + info.index_bytes;
    return status == LAC_STATUS_OK ? status : lac_fail_in(status, "%s", name);
}

static lac_status declare_metadata(const checkpoint *c)
{
    for (int64_t i = 0;; i++) {
        const char *key = NULL, *value = NULL;
        lac_status status = lac_file_get_metadata(c->file, i, &key, &value);
        if (status == LAC_STATUS_NOT_FOUND) return LAC_STATUS_OK;
        /* The key `lacuna` lists the weights of a container: the writer makes its own. */
        if (status == LAC_STATUS_OK && strcmp(key, "lacuna") != 0) status = lac_writer_set_metadata(c->writer, key, value);
        if (status != LAC_STATUS_OK) return status;
    }
}

static lac_status declare_all(checkpoint *c)
{
    lac_status status = declare_metadata(c);
    for (int64_t i = 0; i < c->tensors && status == LAC_STATUS_OK; i++) {
        lac_tensor_info tensor;
        lac_pattern pattern;
        status = get_tensor(c, i, &tensor);
        if (status != LAC_STATUS_OK) return status;
        if (*lac_checkpoint_decide(&c->options, &tensor, &pattern) || c->options.keep_dense)
            status = lac_writer_declare_tensor(c->writer, &tensor);
        else
            status = declare_pruned(c, i, &tensor, &pattern);
        if (status != LAC_STATUS_OK) return lac_fail_in(status, "%s", tensor.name);
        c->bytes_total += tensor.bytes;
    }
    for (int64_t i = 0; i < c->weights && status == LAC_STATUS_OK; i++) status = declare_carried(c, i);
    return status;
}

/* What becomes of the pruned matrix: compressed, or dense with zeros. */
static lac_status make_pruned(const checkpoint *c, const lac_layer_result *result, lac_layer_report *report, product *out)
{
    if (!c->options.keep_dense) {
        lac_weight_info info = {.size = sizeof info};
        lac_status status = lac_weight_compress(&result->values, result->mask, &c->compress, &out->weight);
        if (status == LAC_STATUS_OK) status = lac_weight_get_info(out->weight, &info);
        report->stored_bytes = info.value_bytes + info.index_bytes;
        return status;
    }
    lac_matrix masked = result->values;
    out->data = masked.data = out->block = lac_allocate(report->dense_bytes);
    if (!out->block) return lac_fail_memory("a copy of the tensor", report->dense_bytes);
    if (report->dense_bytes > 0) memcpy(masked.data, result->values.data, report->dense_bytes);
    return lac_mask_apply(result->mask, &masked);
}

/* Whether an order of rows must be there while the tensor is pruned: where its rows are not searched for one, and then only renumbered. */
static bool settles_rows(uint32_t permute, const lac_pattern *pattern)
{
    return !(permute & LAC_PERMUTE_ROWS) && pattern->family != LAC_FAMILY_SHUFFLED;
}

static lac_status prune_tensor(const checkpoint *c, const lac_tensor_info *tensor, const order *to, lac_layer_report *report,
                               product *out)
{
    lac_layer layer;
    lac_layer_result result;
    lac_prune_options options = c->prune;
    options.permute = permute_for(c, report->index, &report->pattern);
    bool settled = settles_rows(options.permute, &report->pattern);
    lac_status status = lac_layer_open(tensor, c->inputs, &options, &layer);
    if (status != LAC_STATUS_OK) return status;
    layer.rows = settled ? to->rows : NULL;
    layer.cols = report->pattern.family == LAC_FAMILY_SHUFFLED ? NULL : to->cols;
    status = lac_layer_prune(&layer, &report->pattern, &result);
    if (status == LAC_STATUS_OK) {
        report->energy_kept = result.energy_kept, report->output_error = result.output_error;
        report->loss_rise = result.loss_rise;
        if (to->rows || to->cols) status = lac_layer_move(&result, to->rows, to->cols, !settled);
        if (status == LAC_STATUS_OK) status = make_pruned(c, &result, report, out);
        lac_layer_release(&result);
    }
    lac_layer_close(&layer);
    return status;
}

/* Copies a tensor with its first two dimensions in another order. */
static lac_status copy_moved(const lac_tensor_info *tensor, const order *to, product *out)
{
    int64_t n = tensor->shape[0], k = tensor->rank > 1 ? tensor->shape[1] : 1;
    out->data = out->block = lac_allocate(tensor->bytes);
    if (!out->block) return lac_fail_memory("a copy of the tensor", tensor->bytes);
    if (tensor->bytes > 0)
        lac_reorder_elements(tensor->data, n, k, tensor->bytes / (uint64_t)n / (uint64_t)k, to->rows, to->cols, out->block);
    return LAC_STATUS_OK;
}

/* Finishes a report and shows it; CANCELLED when the caller wants no more. */
static lac_status tell(checkpoint *c, lac_layer_report *report, uint64_t bytes)
{
    report->size = sizeof *report;
    report->total = c->tensors + c->weights;
    c->bytes_done += bytes;
    report->bytes_done = c->bytes_done;
    report->bytes_total = c->bytes_total;
    if (c->options.on_layer && c->options.on_layer(c->options.user, report) != 0)
        return lac_fail(LAC_STATUS_CANCELLED, "cancelled by the caller after %s, tensor %lld of %lld", report->name,
                        (long long)report->index + 1, (long long)report->total);
    return LAC_STATUS_OK;
}

static void release_product(product *made)
{
    lac_weight_free(made->weight);
    lac_release(made->block);
    *made = (product){0};
}

/* Waits until the tensor that is being written is, notes that it is done and tells the caller. */
static lac_status settle(checkpoint *c)
{
    pending *p = &c->pending;
    if (!p->is) return LAC_STATUS_OK;
    p->is = false;
    lac_status status = lac_behind_end(&c->behind);
    release_product(&p->product);
    if (status == LAC_STATUS_OK && c->journal && p->report.index < c->tensors)
        status = lac_resume_note(c->journal, c->writer, &p->source, &p->report);
    if (status != LAC_STATUS_OK) return lac_fail_in(status, "%s", p->report.name);
    c->finished += p->report.pruned;
    return tell(c, &p->report, p->bytes);
}

/* Settles the last tensor, also when a later one failed: whatever failed first is the failure. */
static lac_status settle_last(checkpoint *c, lac_status status)
{
    char message[LAC_BEHIND_MESSAGE] = "";
    if (status != LAC_STATUS_OK) snprintf(message, sizeof message, "%s", lac_last_error());
    lac_status earlier = settle(c);
    if (earlier != LAC_STATUS_OK || status == LAC_STATUS_OK) return earlier;
    return lac_fail(status, "%s", message);
}

/* Begins to write, once the tensor before is written. Takes the product. */
static lac_status hand_over(checkpoint *c, product *made, const lac_layer_report *report, const lac_resume_source *source,
                            uint64_t bytes)
{
    lac_status status = settle(c);
    if (status == LAC_STATUS_OK && c->journal) status = lac_resume_prepare(c->journal, c->writer);
    if (status != LAC_STATUS_OK) {
        release_product(made);
        return status;
    }
    c->working = true;
    c->pending = (pending){.is = true, .product = *made, .report = *report, .source = *source, .bytes = bytes};
    lac_behind_begin(&c->behind, c->writer, report->name, made->weight, made->data, made->bytes);
    return LAC_STATUS_OK;
}

static lac_status make(const checkpoint *c, const lac_tensor_info *tensor, const order *to, lac_layer_report *report,
                       product *out)
{
    *out = (product){.data = tensor->data, .bytes = tensor->bytes};
    lac_status status = report->pruned         ? prune_tensor(c, tensor, to, report, out)
                        : to->rows || to->cols ? copy_moved(tensor, to, out)
                                               : LAC_STATUS_OK;
    if (status != LAC_STATUS_OK) release_product(out);
    return status;
}

/* What a tensor is made of, for the journal; `digest` is its own. */
static lac_status look_at(const checkpoint *c, const lac_tensor_info *tensor, uint64_t digest, bool pruned,
                          lac_resume_source *source)
{
    lac_tensor_info samples = {.size = sizeof samples};
    bool sampled = pruned && c->inputs && tensor->shape[0] > 0 && tensor->shape[1] > 0;
    lac_status status = sampled ? lac_inputs_find(c->inputs, tensor->name, c->prune.method, &samples) : LAC_STATUS_OK;
    if (status == LAC_STATUS_OK) *source = lac_resume_look(digest, sampled ? &samples : NULL);
    return status;
}

/* Prunes a consumer for the order of its columns alone: it is pruned in that order when its turn comes. */
static lac_status search_order(const checkpoint *c, const lac_tensor_info *tensor, int64_t index, const uint32_t *rows,
                               uint32_t *perm)
{
    lac_layer layer;
    lac_layer_result result;
    lac_pattern pattern;
    lac_prune_options options = c->prune;
    lac_checkpoint_decide(&c->options, tensor, &pattern);
    options.permute = permute_for(c, index, &pattern) | LAC_PERMUTE_COLUMNS;
    lac_status status = lac_layer_open(tensor, c->inputs, &options, &layer);
    if (status != LAC_STATUS_OK) return status;
    layer.rows = settles_rows(options.permute, &pattern) ? rows : NULL;
    status = lac_layer_prune(&layer, &pattern, &result);
    if (status == LAC_STATUS_OK) {
        memcpy(perm, result.mask->col_perm, (size_t)tensor->shape[1] * sizeof *perm);
        lac_layer_release(&result);
    }
    lac_layer_close(&layer);
    return status;
}

/* lac_links_search: the order that an earlier run found, or a new one. */
static lac_status find_order(void *user, int64_t index, const uint32_t *rows, uint32_t *perm)
{
    const checkpoint *c = user;
    lac_tensor_info tensor;
    lac_resume_source source = {0};
    bool passed = false;
    lac_status status = get_tensor(c, index, &tensor);
    if (status == LAC_STATUS_OK && c->journal) {
        status = look_at(c, &tensor, lac_resume_digest(&tensor), true, &source);
        if (status == LAC_STATUS_OK)
            status = lac_resume_pass_order(c->journal, c->writer, &source, tensor.name, tensor.shape[1], perm, &passed);
    }
    if (status == LAC_STATUS_OK && !passed) status = search_order(c, &tensor, index, rows, perm);
    if (status == LAC_STATUS_OK && c->journal && !passed)
        status = lac_resume_note_order(c->journal, c->writer, &source, tensor.name, tensor.shape[1], perm);
    return status == LAC_STATUS_OK ? status : lac_fail_in(status, "%s", tensor.name);
}

/* The next tensor is read while this one is worked on. */
static void read_ahead(checkpoint *c, int64_t index)
{
    lac_tensor_info tensor;
    if (index < c->tensors && get_tensor(c, index, &tensor) == LAC_STATUS_OK)
        lac_ahead_begin(&c->ahead, tensor.data, tensor.bytes);
}

static lac_status write_tensor(checkpoint *c, int64_t index)
{
    double start = seconds_now();
    lac_tensor_info tensor;
    lac_status status = get_tensor(c, index, &tensor);
    if (status != LAC_STATUS_OK) return status;
    lac_ahead_end(&c->ahead);
    uint64_t digest = c->journal ? lac_ahead_digest(&c->ahead, tensor.data, tensor.bytes) : 0;
    read_ahead(c, index + 1);
    lac_layer_report report = {.name = tensor.name, .index = index, .energy_kept = 1.0, .output_error = -1, .loss_rise = -1};
    report.reason = lac_checkpoint_decide(&c->options, &tensor, &report.pattern);
    report.pruned = *report.reason == '\0';
    report.dense_bytes = report.stored_bytes = tensor.bytes;
    if (tensor.rank == 2) report.n = tensor.shape[0], report.k = tensor.shape[1];
    order to = {0};
    if (c->links) status = settle(c); /* an order that is found goes into the journal, behind the tensors before */
    if (status == LAC_STATUS_OK) status = lac_links_find(c->links, index, find_order, c, &to.rows, &to.cols);
    if (status != LAC_STATUS_OK) return status;
    report.moved = (to.rows ? LAC_PERMUTE_ROWS : 0) | (to.cols ? LAC_PERMUTE_COLUMNS : 0);
    bool passed = false;
    lac_resume_source source = {0};
    if (c->journal) status = look_at(c, &tensor, digest, report.pruned, &source);
    if (status == LAC_STATUS_OK && c->journal && !c->working)
        status = lac_resume_pass(c->journal, c->writer, &source, &report, &passed);
    if (status == LAC_STATUS_OK && passed) {
        c->finished += report.pruned;
        return tell(c, &report, tensor.bytes);
    }
    product made = {0};
    if (status == LAC_STATUS_OK) status = make(c, &tensor, &to, &report, &made);
    if (status != LAC_STATUS_OK) return lac_fail_in(status, "%s", tensor.name);
    report.seconds = seconds_now() - start;
    return hand_over(c, &made, &report, &source, tensor.bytes);
}

static lac_status write_carried(checkpoint *c, int64_t index)
{
    double start = seconds_now();
    lac_layer_report report = {
        .reason = "compressed already", .index = c->tensors + index, .energy_kept = 1.0, .output_error = -1, .loss_rise = -1};
    product made = {0};
    lac_resume_source source = {0};
    lac_weight_info info = {.size = sizeof info};
    lac_status status = lac_file_get_weight(c->file, index, &report.name, &info);
    if (status != LAC_STATUS_OK) return status;
    status = lac_file_load_weight(c->file, report.name, &made.weight);
    if (status != LAC_STATUS_OK) return lac_fail_in(status, "%s", report.name);
    report.n = info.n;
    report.k = info.k;
    report.dense_bytes = info.dense_bytes;
    report.stored_bytes = info.value_bytes + info.index_bytes;
    report.seconds = seconds_now() - start;
    return hand_over(c, &made, &report, &source, report.stored_bytes);
}

static lac_status open_both(checkpoint *c, const char *in, const char *out)
{
    lac_file_info info = {.size = sizeof info};
    lac_status status = lac_file_open(in, &c->file);
    if (status == LAC_STATUS_OK) status = lac_file_get_info(c->file, &info);
    if (status != LAC_STATUS_OK) return status;
    if (info.masks > 0) return lac_fail(LAC_STATUS_UNSUPPORTED, "in: %s holds a mask, which has no weights to prune", in);
    c->tensors = info.tensors;
    c->weights = info.weights;
    status = lac_checkpoint_open_inputs(&c->options, &c->inputs);
    if (status == LAC_STATUS_OK) status = lac_links_make(&c->options, c->file, &c->links);
    if (status != LAC_STATUS_OK) return status;
    if (c->options.resume == LAC_RESUME_NO) return lac_writer_open(out, &c->writer);
    /* What a run leaves stands beside the file, not beside a link to it: the rename ends in the same folder. */
    char *real = NULL;
    status = lac_output_follow(out, &real);
    if (status == LAC_STATUS_OK)
        status = lac_resume_open(real, c->options.resume, lac_checkpoint_describe(&c->options, &c->prune, &c->compress),
                                 &c->journal);
    if (status == LAC_STATUS_OK) status = lac_writer_open_partial(real, &c->writer);
    lac_release(real);
    return status;
}

/* Closes everything. A run that did not end well leaves what it pruned, and one that was refused what it found. */
static void close_all(checkpoint *c, lac_status status)
{
    lac_ahead_end(&c->ahead);
    bool stays = c->journal && status != LAC_STATUS_OK && (c->finished > 0 || lac_journal_next(c->journal));
    if (c->journal && c->writer && !stays) c->writer->output.stays = false;
    lac_writer_free(c->writer);
    lac_journal_close(c->journal, !stays);
    lac_links_free(c->links);
    lac_file_close(c->inputs);
    lac_file_close(c->file);
}

lac_status lac_checkpoint_prune(const char *in, const char *out, const lac_checkpoint_options *options)
{
    checkpoint c = {0};
    if (!in) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "in is NULL");
    if (!out) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "out is NULL");
    lac_status status = lac_checkpoint_read_options(options, true, &c.options, &c.prune, &c.compress);
    if (status != LAC_STATUS_OK) return status;
    status = open_both(&c, in, out);
    if (status == LAC_STATUS_OK) status = declare_all(&c);
    if (status == LAC_STATUS_OK) status = c.journal ? lac_resume_begin(c.journal, c.writer) : lac_writer_begin(c.writer);
    for (int64_t i = 0; i < c.tensors && status == LAC_STATUS_OK; i++) status = write_tensor(&c, i);
    for (int64_t i = 0; i < c.weights && status == LAC_STATUS_OK; i++) status = write_carried(&c, i);
    status = settle_last(&c, status);
    if (status == LAC_STATUS_OK) status = lac_writer_commit(c.writer);
    close_all(&c, status);
    return status;
}
