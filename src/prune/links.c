/* links.c - which layers make the inputs of which. A text "CONSUMER=PRODUCER,PRODUCER" names tensors; a * in it stands for anything, the same in
 * the consumer and its producers. Consumers that share a producer form a set with one order. Orders are searched for when they are first
 * needed, and only they are kept. Called by checkpoint.c. */
#include "prune/links.h"

#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "prune/checkpoint.h"
#include "prune/permute.h"

enum { STARS_MOST = 8, NAME_MOST = 1024 };

/* What is known of a tensor; the sets are trees whose root is their first tensor. */
typedef struct linked {
    int64_t set;     /* as a consumer: a tensor nearer to the root, or itself; -1: it is none  */
    int64_t rows_of; /* as a producer: a consumer in the set whose order its rows take; -1     */
    int64_t decides; /* of a root: the consumer whose order it is, or -1: there is none         */
    uint32_t *order; /* of a root: [k]; NULL: not yet known, or as it is                        */
    bool known, searching;
} linked;

struct lac_links {
    const lac_file *file;
    linked *tensors; /* [count] */
    int64_t count;
};

/* What each * of a glob stood for. */
typedef struct capture {
    const char *text[STARS_MOST];
    size_t length[STARS_MOST];
    int count;
} capture;

/* Matches from here on, the shortest text for the first * first. */
static bool match(const char *glob, size_t length, const char *name, capture *found)
{
    if (length == 0) return *name == '\0';
    if (*glob != '*') return *glob == *name && match(glob + 1, length - 1, name + 1, found);
    int star = found->count++;
    for (size_t taken = 0;; taken++) {
        found->text[star] = name, found->length[star] = taken;
        if (match(glob + 1, length - 1, name + taken, found)) return true;
        if (name[taken] == '\0') break;
    }
    found->count--;
    return false;
}

static int count_stars(const char *text, size_t length)
{
    int stars = 0;
    for (size_t i = 0; i < length; i++) stars += text[i] == '*';
    return stars;
}

/* The glob with each * replaced by what it stood for in the consumer's name. */
static bool expand(const char *glob, size_t length, const capture *found, char *name)
{
    size_t used = 0;
    int star = 0;
    for (size_t i = 0; i < length; i++) {
        const char *piece = glob[i] == '*' ? found->text[star] : glob + i;
        size_t bytes = glob[i] == '*' ? found->length[star] : 1;
        star += glob[i] == '*';
        if (used + bytes >= NAME_MOST) return false;
        memcpy(name + used, piece, bytes);
        used += bytes;
    }
    name[used] = '\0';
    return true;
}

static int64_t root_of(const lac_links *links, int64_t index)
{
    while (links->tensors[index].set != index) index = links->tensors[index].set;
    return index;
}

/* Two sets become one. */
static int64_t join(lac_links *links, int64_t a, int64_t b)
{
    a = root_of(links, a), b = root_of(links, b);
    int64_t first = a < b ? a : b;
    links->tensors[a].set = links->tensors[b].set = first;
    return first;
}

static lac_status get_tensor(const lac_links *links, int64_t index, lac_tensor_info *tensor)
{
    *tensor = (lac_tensor_info){.size = sizeof *tensor};
    return lac_file_get_tensor(links->file, index, tensor);
}

/* The number of the tensor `name`, or -1. */
static lac_status find_tensor(const lac_links *links, const char *name, int64_t *index)
{
    *index = -1;
    for (int64_t i = 0; i < links->count; i++) {
        lac_tensor_info tensor;
        lac_status status = get_tensor(links, i, &tensor);
        if (status != LAC_STATUS_OK) return status;
        if (strcmp(tensor.name, name) == 0) *index = i;
    }
    return LAC_STATUS_OK;
}

/* Elements that are whole bytes can be moved. */
static bool is_movable(const lac_tensor_info *tensor)
{
    uint64_t elements = 1;
    for (int i = 0; i < tensor->rank; i++) elements *= (uint64_t)tensor->shape[i];
    return elements == 0 || tensor->bytes % elements == 0;
}

static lac_status check_producer(const char *text, const lac_tensor_info *consumer, const lac_tensor_info *producer)
{
    if (producer->rank < 1 || producer->shape[0] != consumer->shape[1])
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                        "options: producers '%s': the producer '%s' has %lld rows, but the consumer '%s' has %lld inputs", text,
                        producer->name, producer->rank < 1 ? 0LL : (long long)producer->shape[0], consumer->name,
                        (long long)consumer->shape[1]);
    if (!is_movable(producer))
        return lac_fail(LAC_STATUS_UNSUPPORTED,
                        "options: producers '%s': the elements of the producer '%s', %s, are no whole bytes", text,
                        producer->name, producer->type);
    return LAC_STATUS_OK;
}

static lac_status add_producer(lac_links *links, const char *text, int64_t consumer, int64_t index)
{
    lac_tensor_info makes, takes;
    lac_status status = get_tensor(links, index, &makes);
    if (status == LAC_STATUS_OK) status = get_tensor(links, consumer, &takes);
    if (status == LAC_STATUS_OK) status = check_producer(text, &takes, &makes);
    if (status != LAC_STATUS_OK) return status;
    linked *producer = &links->tensors[index];
    producer->rows_of = producer->rows_of < 0 ? consumer : join(links, producer->rows_of, consumer);
    return LAC_STATUS_OK;
}

/* The producer itself, and its bias when it has one. */
static lac_status add_named(lac_links *links, const char *text, int64_t consumer, char *name)
{
    int64_t index = -1;
    lac_status status = find_tensor(links, name, &index);
    if (status != LAC_STATUS_OK) return status;
    if (index < 0)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: producers '%s': the input has no dense tensor '%s'", text, name);
    status = add_producer(links, text, consumer, index);
    size_t length = strlen(name), ending = strlen(".weight");
    if (status != LAC_STATUS_OK || length <= ending || strcmp(name + length - ending, ".weight") != 0) return status;
    memcpy(name + length - ending, ".bias", sizeof ".bias");
    status = find_tensor(links, name, &index);
    return status == LAC_STATUS_OK && index >= 0 ? add_producer(links, text, consumer, index) : status;
}

/* The producers of one consumer: a list with commas. */
static lac_status add_list(lac_links *links, const char *text, const char *list, int64_t consumer, const capture *found)
{
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        char name[NAME_MOST];
        size_t length = strcspn(at, ",");
        if (length == 0) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: producers '%s': a producer is empty", text);
        if (count_stars(at, length) > found->count)
            return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                            "options: producers '%s': the producer '%.*s' has more * than the consumer", text, (int)length, at);
        if (!expand(at, length, found, name))
            return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: producers '%s': a name is longer than %d bytes", text,
                            NAME_MOST - 1);
        lac_status status = add_named(links, text, consumer, name);
        if (status != LAC_STATUS_OK) return status;
    }
    return LAC_STATUS_OK;
}

static lac_status add_link(lac_links *links, const char *text)
{
    const char *equals = strchr(text, '=');
    if (!equals || equals == text)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: producers '%s': it must be CONSUMER=PRODUCER[,PRODUCER...]",
                        text);
    size_t length = (size_t)(equals - text);
    if (count_stars(text, length) > STARS_MOST)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: producers '%s': more than %d *", text, STARS_MOST);
    int64_t matched = 0;
    for (int64_t i = 0; i < links->count; i++) {
        lac_tensor_info tensor;
        capture found = {0};
        lac_status status = get_tensor(links, i, &tensor);
        if (status != LAC_STATUS_OK) return status;
        if (!match(text, length, tensor.name, &found)) continue;
        if (tensor.rank < 2 || !is_movable(&tensor))
            return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                            "options: producers '%s': the consumer '%s' has rank %d and type %s; a matrix is needed", text,
                            tensor.name, (int)tensor.rank, tensor.type);
        if (links->tensors[i].set < 0) links->tensors[i].set = i;
        status = add_list(links, text, equals + 1, i, &found);
        if (status != LAC_STATUS_OK) return status;
        matched++;
    }
    if (matched == 0)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: producers '%s': the input has no dense tensor '%.*s'", text,
                        (int)length, text);
    return LAC_STATUS_OK;
}

/* Who decides in each set. */
static lac_status choose_deciders(lac_links *links, const lac_checkpoint_options *options)
{
    for (int64_t i = 0; i < links->count; i++) {
        if (links->tensors[i].set < 0) continue;
        lac_tensor_info tensor;
        lac_pattern pattern;
        lac_status status = get_tensor(links, i, &tensor);
        if (status != LAC_STATUS_OK) return status;
        if (*lac_checkpoint_decide(options, &tensor, &pattern)) continue;
        linked *root = &links->tensors[root_of(links, i)];
        if (root->decides < 0 && lac_permute_possible(&pattern) & LAC_PERMUTE_COLUMNS) root->decides = i;
    }
    return LAC_STATUS_OK;
}

lac_status lac_links_make(const lac_checkpoint_options *options, const lac_file *file, lac_links **out)
{
    lac_file_info info = {.size = sizeof info};
    *out = NULL;
    if (options->producer_count == 0) return LAC_STATUS_OK;
    if (options->pattern && !(lac_permute_possible(options->pattern) & LAC_PERMUTE_COLUMNS))
        return lac_fail(LAC_STATUS_UNSUPPORTED,
                        "options: producers '%s': the pattern has no groups of single inputs for columns to move between",
                        options->producers[0]);
    lac_status status = lac_file_get_info(file, &info);
    if (status != LAC_STATUS_OK) return status;
    lac_links *links = lac_allocate_zeroed(sizeof *links);
    uint64_t bytes = (uint64_t)info.tensors * sizeof *links->tensors;
    if (!links || !(links->tensors = lac_allocate(bytes))) {
        lac_links_free(links);
        return lac_fail_memory("the producers", bytes);
    }
    links->file = file, links->count = info.tensors;
    for (int64_t i = 0; i < links->count; i++) links->tensors[i] = (linked){.set = -1, .rows_of = -1, .decides = -1};
    for (size_t i = 0; i < options->producer_count && status == LAC_STATUS_OK; i++)
        status = add_link(links, options->producers[i]);
    if (status == LAC_STATUS_OK) status = choose_deciders(links, options);
    if (status != LAC_STATUS_OK) {
        lac_links_free(links);
        return status;
    }
    *out = links;
    return LAC_STATUS_OK;
}

void lac_links_free(lac_links *links)
{
    if (!links) return;
    for (int64_t i = 0; i < links->count; i++) lac_release(links->tensors[i].order);
    lac_release(links->tensors);
    lac_release(links);
}

bool lac_links_consumes(const lac_links *links, int64_t index) { return links && links->tensors[index].set >= 0; }

/* The order of the set that `consumer` is in. That of the decider's own rows comes first, since vectors of rows are pruned in it. */
static lac_status find_order(lac_links *links, int64_t consumer, lac_links_search search, void *user, const uint32_t **out)
{
    linked *root = &links->tensors[root_of(links, consumer)];
    lac_tensor_info tensor;
    const uint32_t *rows = NULL;
    *out = root->order;
    if (root->known) return LAC_STATUS_OK;
    if (root->decides < 0) {
        root->known = true;
        return LAC_STATUS_OK;
    }
    lac_status status = get_tensor(links, root->decides, &tensor);
    if (status != LAC_STATUS_OK) return status;
    if (root->searching)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                        "options: producers: '%s' makes its own inputs, through others or by itself", tensor.name);
    root->searching = true;
    int64_t rows_of = links->tensors[root->decides].rows_of;
    if (rows_of >= 0) status = find_order(links, rows_of, search, user, &rows);
    root->searching = false;
    if (status != LAC_STATUS_OK) return status;
    uint64_t bytes = (uint64_t)tensor.shape[1] * sizeof *root->order;
    uint32_t *order = lac_allocate(bytes);
    if (!order) return lac_fail_memory("an order of inputs", bytes);
    status = search(user, root->decides, rows, order);
    bool moves = false;
    for (int64_t i = 0; status == LAC_STATUS_OK && i < tensor.shape[1]; i++) moves |= order[i] != i;
    if (!moves) {
        lac_release(order);
        order = NULL;
    }
    root->known = status == LAC_STATUS_OK;
    *out = root->order = order;
    return status;
}

lac_status lac_links_find(lac_links *links, int64_t index, lac_links_search search, void *user, const uint32_t **rows,
                          const uint32_t **columns)
{
    *rows = *columns = NULL;
    if (!links) return LAC_STATUS_OK;
    const linked *tensor = &links->tensors[index];
    lac_status status = tensor->rows_of >= 0 ? find_order(links, tensor->rows_of, search, user, rows) : LAC_STATUS_OK;
    if (status == LAC_STATUS_OK && tensor->set >= 0) status = find_order(links, index, search, user, columns);
    return status;
}
