/* shards.c - checkpoints of several files: finds them in a folder or through an index.json, and maps each once. File
 * names come from a hostile index, so none may leave the folder. Called by file.c. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "io/file.h"
#include "io/text.h"

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length > tail && strcmp(text + length - tail, end) == 0;
}

/* folder + "/" + name, to be released; the folder is the first `folder_length` bytes of `folder`. */
static char *join_path(const char *folder, size_t folder_length, const char *name)
{
    size_t name_length = strlen(name);
    char *path = lac_allocate(folder_length + name_length + 2);
    if (!path) return NULL;
    memcpy(path, folder, folder_length);
    size_t at = folder_length;
    if (at > 0 && path[at - 1] != '/') path[at++] = '/';
    memcpy(path + at, name, name_length + 1);
    return path;
}

static lac_status check_file_name(const char *path, const char *tensor, const json_t *value)
{
    lac_short_text name, text;
    const char *file_name = json_string_value(value);
    if (!file_name)
        return lac_fail(LAC_STATUS_BAD_FILE, "%s: weight_map '%s' is %s, not a file name", path,
                        lac_text_shorten(tensor, &name), lac_json_describe(value, &text));
    if (file_name[0] == '\0' || strchr(file_name, '/') || strcmp(file_name, ".") == 0 || strcmp(file_name, "..") == 0)
        return lac_fail(LAC_STATUS_BAD_FILE, "%s: weight_map '%s' names the file %s; only files beside the index are allowed",
                        path, lac_text_shorten(tensor, &name), lac_json_describe(value, &text));
    return LAC_STATUS_OK;
}

/* One map call for each distinct file name; `numbers` gets each name's shard. Its order is that of first mention. */
static lac_status open_shards(const lac_map *map, json_t *weight_map, json_t *numbers, lac_file *file)
{
    const char *slash = strrchr(map->path, '/');
    size_t folder_length = slash ? (size_t)(slash - map->path) + 1 : 0;
    int64_t room = 0;
    const char *tensor;
    json_t *value;
    json_object_foreach(weight_map, tensor, value)
    {
        lac_status status = check_file_name(map->path, tensor, value);
        if (status != LAC_STATUS_OK) return status;
        const char *file_name = json_string_value(value);
        if (json_object_get(numbers, file_name)) continue;
        if (json_object_set_new(numbers, file_name, json_integer(file->shard_count)) != 0)
            return lac_fail_memory("the list of shards", strlen(file_name));
        void *grown = lac_file_reserve(file->shards, file->shard_count, &room, 1, sizeof *file->shards);
        if (!grown) return LAC_STATUS_OUT_OF_MEMORY;
        file->shards = grown;
        char *path = join_path(map->path, folder_length, file_name);
        if (!path) return lac_fail_memory("a path", folder_length + strlen(file_name) + 2);
        file->shards[file->shard_count] = (lac_shard){0};
        status = lac_map_open(path, &file->shards[file->shard_count].map);
        lac_release(path);
        if (status != LAC_STATUS_OK) return lac_fail_in(status, "%s", map->path);
        file->shard_count++;
        status = lac_safetensors_read(file, file->shard_count - 1);
        if (status != LAC_STATUS_OK) return status;
    }
    return LAC_STATUS_OK;
}

/* The header of a shard answers for what it holds. */
static lac_status check_weight_map(const lac_map *map, json_t *weight_map, const json_t *numbers, const lac_file *file)
{
    const char *tensor;
    json_t *value;
    lac_short_text name, text;
    json_object_foreach(weight_map, tensor, value)
    {
        int64_t shard = json_integer_value(json_object_get(numbers, json_string_value(value)));
        if (strcmp(tensor, "__metadata__") == 0 || !json_object_get(file->shards[shard].header, tensor))
            return lac_fail(LAC_STATUS_BAD_FILE, "%s: weight_map places tensor '%s' in %s, which holds no such tensor",
                            map->path, lac_text_shorten(tensor, &name), lac_json_describe(value, &text));
    }
    return LAC_STATUS_OK;
}

lac_status lac_shards_from_index(const lac_map *map, lac_file *file)
{
    json_t *index = NULL;
    lac_status status = lac_json_parse(map->path, "index", (const char *)map->data, map->bytes, &index);
    if (status != LAC_STATUS_OK) return status;
    json_t *weight_map = json_object_get(index, "weight_map");
    json_t *numbers = json_object();
    lac_short_text text;
    if (!json_is_object(weight_map))
        status = lac_fail(LAC_STATUS_BAD_FILE, "%s: weight_map is %s, not an object", map->path,
                          weight_map ? lac_json_describe(weight_map, &text) : "missing");
    else if (!numbers)
        status = lac_fail_memory("the list of shards", 0);
    if (status == LAC_STATUS_OK) status = open_shards(map, weight_map, numbers, file);
    if (status == LAC_STATUS_OK) status = check_weight_map(map, weight_map, numbers, file);
    json_decref(numbers);
    json_decref(index);
    return status;
}

/* What a folder holds, by the names that matter. */
typedef struct lac_folder {
    bool has_model;              /* model.safetensors            */
    char *index, *other_index;   /* *.safetensors.index.json     */
    char *single, *other_single; /* *.safetensors                */
} lac_folder;

static lac_status remember(char **first, char **second, const char *name)
{
    char **slot = *first ? second : first;
    if (*slot) return LAC_STATUS_OK;
    *slot = lac_copy_text(name);
    return *slot ? LAC_STATUS_OK : lac_fail_memory("a file name", strlen(name) + 1);
}

static lac_status list_folder(const char *path, lac_folder *out)
{
    lac_error_text reason;
    DIR *folder = opendir(path);
    if (!folder) return lac_fail(LAC_STATUS_IO, "%s: cannot open the folder: %s", path, lac_error_describe(errno, &reason));
    lac_status status = LAC_STATUS_OK;
    struct dirent *entry;
    errno = 0;
    while (status == LAC_STATUS_OK && (entry = readdir(folder))) {
        if (strcmp(entry->d_name, "model.safetensors") == 0) out->has_model = true;
        if (ends_with(entry->d_name, ".safetensors.index.json"))
            status = remember(&out->index, &out->other_index, entry->d_name);
        else if (ends_with(entry->d_name, ".safetensors"))
            status = remember(&out->single, &out->other_single, entry->d_name);
        errno = 0;
    }
    if (status == LAC_STATUS_OK && errno != 0)
        status = lac_fail(LAC_STATUS_IO, "%s: cannot read the folder: %s", path, lac_error_describe(errno, &reason));
    closedir(folder);
    return status;
}

static lac_status choose(const char *path, const lac_folder *folder, const char **out)
{
    lac_short_text first, second;
    *out = folder->has_model ? "model.safetensors" : folder->index ? folder->index : folder->single;
    if (!*out)
        return lac_fail(LAC_STATUS_NOT_FOUND, "%s: the folder holds no *.safetensors and no *.safetensors.index.json", path);
    const char *rival = folder->has_model ? NULL : folder->index ? folder->other_index : folder->other_single;
    if (rival)
        return lac_fail(LAC_STATUS_BAD_FILE, "%s: the folder holds both '%s' and '%s'%s; name the one to open", path,
                        lac_text_shorten(*out, &first), lac_text_shorten(rival, &second),
                        folder->index ? "" : " and no *.safetensors.index.json");
    return LAC_STATUS_OK;
}

static lac_status open_chosen(const char *path, lac_file *file)
{
    lac_map map = {0};
    lac_status status = lac_map_open(path, &map);
    if (status != LAC_STATUS_OK) return status;
    if (ends_with(path, ".json")) {
        status = lac_shards_from_index(&map, file);
        lac_map_close(&map);
        return status;
    }
    file->shards = lac_allocate_zeroed(sizeof *file->shards);
    if (!file->shards) {
        lac_map_close(&map);
        return lac_fail_memory("a shard", sizeof *file->shards);
    }
    file->shards[0].map = map;
    file->shard_count = 1;
    return lac_safetensors_read(file, 0);
}

lac_status lac_shards_from_folder(const char *path, lac_file *file)
{
    lac_folder folder = {0};
    const char *name = NULL;
    lac_status status = list_folder(path, &folder);
    if (status == LAC_STATUS_OK) status = choose(path, &folder, &name);
    if (status == LAC_STATUS_OK) {
        char *chosen = join_path(path, strlen(path), name);
        status = chosen ? open_chosen(chosen, file) : lac_fail_memory("a path", strlen(path) + strlen(name) + 2);
        lac_release(chosen);
    }
    lac_release(folder.index);
    lac_release(folder.other_index);
    lac_release(folder.single);
    lac_release(folder.other_single);
    return status;
}
