/* links.h - which layers make the inputs of which: the options' producers put to the tensors of a file. A consumer's columns may then stand in another order at no
 * cost, because the rows of its producers do. Used by checkpoint.c. */
#ifndef LAC_PRUNE_LINKS_H
#define LAC_PRUNE_LINKS_H

#include <stdbool.h>

#include "lacuna.h"

typedef struct lac_links lac_links;

/* Finds the tensors that options->producers name, and checks that they fit each other. Consumers that share a producer share an
 * order: the first of them that is pruned to a pattern which gains by one decides. *out is NULL when there are no producers. */
lac_status lac_links_make(const lac_checkpoint_options *options, const lac_file *file, lac_links **out);
void lac_links_free(lac_links *links);

/* Whether tensor `index` is a consumer: no order of its columns is stored with it. NULL links are fine here and below. */
bool lac_links_consumes(const lac_links *links, int64_t index);

/* Finds the order for the columns of tensor `index`, whose rows stand in the order `rows` (NULL: their own): perm [k]. */
typedef lac_status (*lac_links_search)(void *user, int64_t index, const uint32_t *rows, uint32_t *perm);

/* The orders for the rows and columns of tensor `index`, NULL where it stays as it is; they live as long as the links. Searches for what is not yet known. */
lac_status lac_links_find(lac_links *links, int64_t index, lac_links_search search, void *user, const uint32_t **rows,
                          const uint32_t **columns);

#endif
