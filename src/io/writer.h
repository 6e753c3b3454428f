/* writer.h - a safetensors writer inside: what was declared, and where it will lie. */
#ifndef LAC_IO_WRITER_H
#define LAC_IO_WRITER_H

#include <jansson.h>
#include <stdbool.h>

#include "io/output.h"
#include "io/types.h"
#include "lacuna.h"

/* Tensors of a container begin at multiples of this. */
enum { LAC_CONTAINER_ALIGNMENT = 64 };

/* A tensor to be written: the caller's own, or a part of a weight. */
typedef struct lac_item {
    char *name; /* in the file: "NAME:values" for a part */
    const lac_type *type;
    int32_t rank;
    int64_t shape[LAC_MAX_RANK];
    uint64_t bytes;
    uint64_t padding; /* bytes of the pad tensor before it; 0: none          */
    uint64_t offset;  /* after the header; known when the header is written  */
    int64_t weight;   /* the weight it is a part of, or -1                   */
    lac_part part;
} lac_item;

typedef struct lac_declared_weight {
    char *name;
    lac_weight_info info;
    int64_t first_item, item_count;
} lac_declared_weight;

typedef enum lac_writer_state {
    LAC_WRITER_DECLARING = 0,
    LAC_WRITER_WRITING, /* the header is out              */
    LAC_WRITER_BROKEN,  /* the system refused a write     */
    LAC_WRITER_COMMITTED
} lac_writer_state;

struct lac_writer {
    lac_output output;
    lac_writer_state state;
    lac_item *items; /* in the order of declaration */
    int64_t item_count, item_room;
    lac_declared_weight *weights;
    int64_t weight_count, weight_room;
    json_t *names;    /* every name that is taken: an item's number, or -1 - a weight's. Parts are items or -1 - weight */
    json_t *metadata; /* key to string */
    int64_t next;     /* the item that is to be written next */
};

/* A writer whose temporary file, "<path>.partial", outlives the process unless it is committed. */
lac_status lac_writer_open_partial(const char *path, lac_writer **out);
/* Ends the declarations and writes the header, whose digest is then the output's. */
lac_status lac_writer_begin(lac_writer *writer);
/* What comes next, the tensor or weight `name`, counts as written when the partial file has these very bytes. */
lac_status lac_writer_pass(lac_writer *writer, const char *name, uint64_t digest, bool *passed);
/* layout.c: places the items, and makes the header with its 8 bytes of length; *out is to be released. */
lac_status lac_writer_lay_out(lac_writer *writer, char **out, uint64_t *bytes);

#endif
