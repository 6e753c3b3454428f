/* file.h - an open file inside: its shards, their tensors, and the weights that some of them make up. */
#ifndef LAC_IO_FILE_H
#define LAC_IO_FILE_H

#include <jansson.h>
#include <stdbool.h>

#include "io/map.h"
#include "io/types.h"
#include "lacuna.h"

/* The longest header that safetensors allows. */
#define LAC_HEADER_LIMIT UINT64_C(100000000)
/* Tensors of this name and a number fill gaps in containers; readers pass over them. */
#define LAC_PAD_PREFIX "lacuna:pad:"
/* The key of __metadata__ that holds a container's record. */
#define LAC_RECORD_KEY "lacuna"

typedef struct lac_tensor {
    const char *name; /* in the shard's header */
    const lac_type *type;
    int32_t rank;
    int64_t shape[LAC_MAX_RANK];
    uint64_t offset; /* from the first byte after the header */
    uint64_t bytes;
    const uint8_t *data; /* [bytes], not aligned */
    int64_t shard;
    bool hidden; /* padding, or a part of a weight */
} lac_tensor;

typedef struct lac_shard {
    lac_map map;
    json_t *header; /* owns the names and the metadata; NULL when not safetensors       */
    json_t *record; /* the container's record, or NULL                                  */
} lac_shard;

typedef struct lac_stored_weight {
    const char *name; /* in the shard's record                             */
    int64_t shard;
    lac_weight_info info;
    lac_span part[LAC_PART_COUNT]; /* where they lie in the file, not aligned */
} lac_stored_weight;

struct lac_file {
    lac_file_format format;
    lac_shard *shards;
    int64_t shard_count;
    lac_tensor *tensors; /* shard by shard, in the order of their bytes       */
    int64_t tensor_count, tensor_room;
    lac_tensor **by_name; /* [tensor_count] sorted by name, then shard         */
    lac_tensor **visible; /* [visible_count] those that are not hidden         */
    int64_t visible_count;
    lac_stored_weight *weights; /* in the order of the records                       */
    int64_t weight_count, weight_room;
    lac_stored_weight **weights_by_name; /* [weight_count]                          */
    const char *(*metadata)[2];          /* [metadata_count] key and value          */
    int64_t metadata_count;
    void *converted;        /* npy in Fortran order: the same array in C order   */
    int64_t mask_n, mask_k; /* smtx                                              */
    int64_t mask_kept;
    uint64_t mask_offsets_at; /* where the row offsets begin in the text */
    uint64_t mask_columns_at; /* where the column numbers begin in the text        */
};

/* `block` with room for `count` more elements, moved if need be; NULL, with `block` as it was, when there is no memory. */
void *lac_file_reserve(void *block, int64_t used, int64_t *room, int64_t count, size_t element);

/* safetensors.c: appends the tensors of shard `index`, which is mapped. */
lac_status lac_safetensors_read(lac_file *file, int64_t index);
/* shards.c: fills in file->shards from a folder or from the index.json that is mapped in `map`. */
lac_status lac_shards_from_folder(const char *path, lac_file *file);
lac_status lac_shards_from_index(const lac_map *map, lac_file *file);
/* container.c: reads the records of all shards and hides the tensors that they name. */
lac_status lac_container_read(lac_file *file);
/* The safetensors type of a part of a weight with values of `dtype`, and the names of encodings in records. */
const lac_type *lac_container_part_type(lac_part part, lac_dtype dtype);
const char *lac_container_encoding_name(lac_index_encoding encoding); /* NULL when there is none */
/* smtx.c */
lac_status lac_smtx_load(const lac_file *file, lac_mask **out);
/* npy.c, smtx.c: read shard 0, which is mapped. */
lac_status lac_npy_read(lac_file *file);
lac_status lac_smtx_read(lac_file *file);

/* The tensor of that name in that shard, hidden or not; NULL when there is none. */
lac_tensor *lac_file_lookup(const lac_file *file, const char *name, int64_t shard);
/* The weight of that name; NULL when there is none. */
lac_stored_weight *lac_file_lookup_weight(const lac_file *file, const char *name);
/* The visible tensor of that name; NULL when there is none. */
lac_tensor *lac_file_lookup_visible(const lac_file *file, const char *name);

#endif
