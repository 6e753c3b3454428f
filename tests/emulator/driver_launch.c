/* driver_launch.c - what kernels are launched with: grids, attributes, parameters, and the tensor maps among these. All that the driver
 * would refuse is refused here, since the tests run on nothing else; what is left, driver_stream.c runs or captures. */
#include <stdlib.h>
#include <string.h>

#include "driver.h"

/* ---- launches */

typedef struct launch_attribute { /* CUlaunchAttribute: 72 bytes */
    int id;
    char pad[4];
    union {
        char bytes[64];
        unsigned cluster[3];
        int flag;
    } value;
} launch_attribute;

typedef struct launch_config { /* CUlaunchConfig */
    unsigned grid[3], block[3], shared_bytes;
    void *stream;
    launch_attribute *attributes;
    unsigned attribute_count;
} launch_config;

enum { ATTRIBUTE_IGNORED = 0, ATTRIBUTE_COOPERATIVE = 2, ATTRIBUTE_CLUSTER = 4, ATTRIBUTE_SERIALIZATION = 6, MOST_CLUSTER = 8 };

static int read_attributes(const launch_config *config, const char *name, emu_launch *launch)
{
    int capability = emu_driver_device()->capability;
    for (unsigned i = 0; i < config->attribute_count; ++i) {
        const launch_attribute *a = &config->attributes[i];
        if (a->id == ATTRIBUTE_IGNORED) continue;
        if (a->id == ATTRIBUTE_COOPERATIVE) {
            launch->together = a->value.flag;
        } else if (a->id == ATTRIBUTE_CLUSTER) {
            const unsigned *cluster = a->value.cluster;
            if (capability < 90) return emu_driver_refuse(NOT_SUPPORTED, "%s: sm_%d has no clusters", name, capability);
            if (!cluster[0] || cluster[0] > MOST_CLUSTER || cluster[1] != 1 || cluster[2] != 1)
                return emu_driver_refuse(INVALID_CLUSTER_SIZE, "%s: a cluster of %u x %u x %u blocks", name, cluster[0],
                                         cluster[1], cluster[2]);
            if (config->grid[0] % cluster[0])
                return emu_driver_refuse(INVALID_VALUE, "%s: %u blocks are no whole clusters of %u", name, config->grid[0],
                                         cluster[0]);
            launch->cluster = cluster[0];
        } else if (a->id != ATTRIBUTE_SERIALIZATION) {
            return emu_driver_refuse(NOT_SUPPORTED, "%s: the launch has attribute %d, unknown to the emulator", name, a->id);
        } else if (a->value.flag && capability < 90) {
            return emu_driver_refuse(NOT_SUPPORTED, "%s: kernels of sm_%d cannot begin early", name, capability);
        } else {
            launch->early = a->value.flag;
        }
    }
    return OK;
}

/* As strict as the driver: what is too much there fails here too. Under emu_driver_objects. */
static int check_launch(const launch_config *config, const emu_handle *function, emu_launch *launch)
{
    static const unsigned most_grid[3] = {0x7fffffff, 65535, 65535}, most_block[3] = {1024, 1024, 64};
    const emu_function *code = function->code;
    *launch = (emu_launch){.function = code, .cluster = 1, .dynamic_shared = config->shared_bytes};
    uint64_t blocks = 1, threads = 1, most = code->most_threads ? (uint64_t)code->most_threads : 1024;
    for (int i = 0; i < 3; ++i) {
        unsigned grid = config->grid[i], block = config->block[i];
        if (!grid || grid > most_grid[i] || !block || block > most_block[i])
            return emu_driver_refuse(INVALID_VALUE, "%s: a grid of %u blocks, blocks of %u threads, along %c", code->name, grid,
                                     block, "xyz"[i]);
        blocks *= launch->grid[i] = grid;
        threads *= launch->block[i] = block;
    }
    if (threads > most)
        return emu_driver_refuse(INVALID_VALUE, "%s: blocks of %llu threads, of which %llu may be", code->name,
                                 (unsigned long long)threads, (unsigned long long)most);
    if (config->shared_bytes > (unsigned)function->dynamic_shared)
        return emu_driver_refuse(INVALID_VALUE, "%s: it asks for %u bytes of dynamic shared memory and may have %d", code->name,
                                 config->shared_bytes, function->dynamic_shared);
    int result = read_attributes(config, code->name, launch);
    if (result || !launch->together) return result;
    uint64_t room = (uint64_t)emu_driver_blocks_that_fit(code, threads, config->shared_bytes) *
                    (uint64_t)emu_driver_device()->multiprocessors;
    if (blocks > room)
        return emu_driver_refuse(COOPERATIVE_TOO_LARGE, "%s: %llu blocks together, and there is room for %llu", code->name,
                                 (unsigned long long)blocks, (unsigned long long)room);
    return OK;
}

/* The buffer of all parameters that `extra` may name; NULL: it names none, or one too small. */
static const unsigned char *find_buffer(void **extra, size_t least)
{
    enum { END = 0, BUFFER = 1, SIZE = 2 };
    const unsigned char *buffer = NULL;
    size_t bytes = 0;
    for (; extra && (uintptr_t)*extra != END; extra += 2) {
        if ((uintptr_t)*extra == BUFFER)
            buffer = extra[1];
        else if ((uintptr_t)*extra == SIZE)
            bytes = *(const size_t *)extra[1];
        else
            return NULL;
    }
    return bytes >= least ? buffer : NULL;
}

/* With copies of all parameters: the caller's are his again when the call returns. */
static emu_work *make_launch(const emu_launch *launch, void **parameters, const unsigned char *buffer)
{
    const emu_function *code = launch->function;
    size_t pointers = (size_t)code->params * sizeof(void *);
    emu_work *work = calloc(1, sizeof *work + pointers + code->param_bytes);
    if (!work) return NULL;
    unsigned char *bytes = (unsigned char *)work->params + pointers;
    work->kind = EMU_LAUNCH;
    work->launch = *launch;
    work->launch.params = work->params;
    for (int i = 0; i < code->params; ++i) {
        work->params[i] = bytes + code->param_offset[i];
        memcpy(work->params[i], parameters ? parameters[i] : buffer + code->param_offset[i], code->param_size[i]);
    }
    return work;
}

EXPORT int cuLaunchKernelEx(const launch_config *config, void *handle, void **parameters, void **extra)
{
    int result = emu_driver_enter();
    if (result) return result;
    if (!config || (parameters && extra)) return INVALID_VALUE;
    emu_launch launch = {0};
    emu_work *work = NULL;
    pthread_mutex_lock(&emu_driver_objects);
    const emu_handle *function = emu_driver_function(handle);
    result = function ? check_launch(config, function, &launch) : INVALID_HANDLE;
    if (!result) {
        const unsigned char *buffer = find_buffer(extra, function->code->param_bytes);
        if (function->code->params && !parameters && !buffer)
            result = emu_driver_refuse(INVALID_VALUE, "%s: it is launched without its parameters", function->code->name);
        else if (!(work = make_launch(&launch, parameters, buffer)))
            result = OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&emu_driver_objects);
    return result ? result : emu_driver_submit(config->stream, work);
}

EXPORT int cuLaunchKernel(void *handle, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                          unsigned block_z, unsigned shared_bytes, void *stream_handle, void **parameters, void **extra)
{
    launch_config config = {.grid = {grid_x, grid_y, grid_z},
                            .block = {block_x, block_y, block_z},
                            .shared_bytes = shared_bytes,
                            .stream = stream_handle};
    return cuLaunchKernelEx(&config, handle, parameters, extra);
}

/* ---- tensor maps */

/* Bytes of an element by CUtensorMapDataType; the packed ones of 4 and 6 bits are not there. */
static const uint8_t element_bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
enum { FIRST_FLOAT = 6, MOST_RANK = 5, MAP_BYTES = 128, MAP_ALIGNMENT = 64 };

/* What the manual says of cuTensorMapEncodeTiled, and what of it the emulator can do. NULL: nothing is wrong. */
static const char *fault_of(unsigned bytes, unsigned rank, const uint64_t *sizes, const uint64_t *strides, const unsigned *box,
                            const unsigned *steps, int swizzle)
{
    static const unsigned spans[] = {0, 32, 64, 128};
    for (unsigned i = 0; i < rank; ++i) {
        if (!sizes[i] || sizes[i] > UINT64_C(1) << 32) return "a size that is not 1 to 2^32";
        if (!box[i] || box[i] > 256) return "a box that is not 1 to 256 long";
        if (!steps[i] || steps[i] > 8) return "an element's stride that is not 1 to 8";
        if (i && steps[i] != 1)
            return "an element's stride that is not 1, of which the emulator has none"; /* the first has no meaning */
        if (i + 1 < rank && (strides[i] % 16 || strides[i] >= UINT64_C(1) << 40))
            return "a stride that is no multiple of 16 below 2^40";
    }
    if (box[0] * bytes % 16) return "lines of a box that are no multiple of 16 bytes";
    if (swizzle && box[0] * bytes > spans[swizzle]) return "lines of a box that are longer than what is swizzled";
    return NULL;
}

EXPORT int cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *address, const uint64_t *sizes,
                                  const uint64_t *strides, const unsigned *box, const unsigned *steps, int interleave,
                                  int swizzle, int promotion, int fill)
{
    static const char what[] = "cuTensorMapEncodeTiled";
    int result = emu_driver_enter();
    if (result) return result;
    if (emu_driver_device()->capability < 90) return emu_driver_refuse(NOT_SUPPORTED, "%s: only sm_90 and later have it", what);
    if (!map || (uintptr_t)map % MAP_ALIGNMENT || !sizes || !box || !steps || (rank > 1 && !strides))
        return emu_driver_refuse(INVALID_VALUE, "%s: a pointer is missing, or the map is not at a multiple of 64", what);
    if (type < 0 || type >= (int)sizeof element_bytes || rank < 1 || rank > MOST_RANK || (uintptr_t)address % 16)
        return emu_driver_refuse(INVALID_VALUE, "%s: type %d, %u dimensions, address %p", what, type, rank, address);
    if (interleave || swizzle < 0 || swizzle > 3 || promotion < 0 || promotion > 3 || fill < 0 || fill > (type >= FIRST_FLOAT))
        return emu_driver_refuse(INVALID_VALUE, "%s: interleave %d, swizzle %d, promotion %d, fill %d", what, interleave,
                                 swizzle, promotion, fill);
    const char *fault = fault_of(element_bytes[type], rank, sizes, strides, box, steps, swizzle);
    if (fault) return emu_driver_refuse(INVALID_VALUE, "%s: %s", what, fault);
    emu_tensor_map made = {.magic = EMU_TENSOR_MAGIC,
                           .address = (uint64_t)(uintptr_t)address,
                           .rank = (uint8_t)rank,
                           .element_bytes = element_bytes[type],
                           .swizzle = (uint8_t)swizzle,
                           .fill = (uint8_t)fill};
    for (unsigned i = 0; i < rank; ++i) {
        made.sizes[i] = sizes[i] > UINT32_MAX ? UINT32_MAX : (uint32_t)sizes[i]; /* no coordinate gets that far */
        made.box[i] = (uint16_t)box[i];
        if (i + 1 < rank) made.strides[i] = strides[i];
    }
    memset(map, 0, MAP_BYTES);
    memcpy(map, &made, sizeof made);
    return OK;
}
