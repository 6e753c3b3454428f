/* device.c - finding and opening devices through the backends of the registry. */
#include "core/device.h"

#include <stdio.h>
#include <string.h>

#include "core/kernel.h"
#include "core/memory.h"
#include "core/status.h"

/* The index-th device over all backends, and the backend it belongs to. */
static lac_status find_device(size_t index, lac_device_info *info, const lac_device_ops **ops)
{
    const lac_device_ops *const *all;
    size_t count = lac_registry_device_ops(&all);
    size_t left = index;
    for (size_t i = 0; i < count; ++i) {
        for (size_t j = 0;; ++j) {
            memset(info, 0, sizeof *info);
            info->size = sizeof *info;
            lac_status status = all[i]->probe(j, info);
            if (status == LAC_STATUS_NOT_FOUND) break;
            if (status) return status;
            if (left-- == 0) return *ops = all[i], LAC_STATUS_OK;
        }
    }
    return lac_fail(LAC_STATUS_NOT_FOUND, "index is %zu; there are fewer devices", index);
}

lac_status lac_device_probe(size_t index, lac_device_info *info)
{
    if (!info) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "info is NULL");
    lac_device_info found;
    const lac_device_ops *ops;
    lac_status status = find_device(index, &found, &ops);
    return status ? status : lac_write_struct("info", info, &found, sizeof found);
}

/* "auto" takes the last usable kind, for the kinds are numbered from slow to fast; the first device of that kind. Only the
 * backends that a name may belong to are asked: who wants the CPU need not wait for a GPU's driver to wake up. */
static lac_status choose_device(const char *name, lac_device_info *best, const lac_device_ops **best_ops)
{
    bool any = !strcmp(name, "auto");
    const lac_device_ops *const *all;
    size_t count = lac_registry_device_ops(&all);
    *best_ops = NULL;
    for (size_t i = 0; i < count; ++i) {
        if (!any && strncmp(name, all[i]->prefix, strlen(all[i]->prefix)) != 0) continue;
        for (size_t j = 0;; ++j) {
            lac_device_info candidate = {.size = sizeof candidate};
            lac_status status = all[i]->probe(j, &candidate);
            if (status == LAC_STATUS_NOT_FOUND) break;
            if (status) return status;
            bool wanted = any ? candidate.available && (!*best_ops || candidate.kind > best->kind)
                              : !*best_ops && !strcmp(name, candidate.name);
            if (!wanted) continue;
            *best = candidate;
            *best_ops = all[i];
        }
    }
    return LAC_STATUS_OK;
}

/* The first thing that a backend of devices with such names looked for and did not find; "" when it lacks nothing. */
static void note_lack(const char *name, char *buffer, size_t size)
{
    const lac_device_ops *const *all;
    size_t count = lac_registry_device_ops(&all);
    *buffer = '\0';
    for (size_t i = 0; i < count; ++i) {
        if (!all[i]->component || strncmp(name, all[i]->prefix, strlen(all[i]->prefix)) != 0) continue;
        lac_component_info info = {.size = sizeof info};
        for (size_t j = 0; !all[i]->component(j, &info); ++j) {
            if (!info.available) {
                snprintf(buffer, size, "%s", info.note);
                return;
            }
            info = (lac_component_info){.size = sizeof info};
        }
    }
}

/* A device that is not here, by a backend that knows it. */
static lac_status open_absent(const char *name, lac_device **out)
{
    const lac_device_ops *const *all;
    size_t count = lac_registry_device_ops(&all);
    for (size_t i = 0; i < count; ++i) {
        if (!all[i]->open_absent) continue;
        lac_status status = all[i]->open_absent(name, out);
        if (status != LAC_STATUS_NOT_FOUND) return status;
    }
    char lacks[256];
    note_lack(name, lacks, sizeof lacks);
    if (*lacks) return lac_fail(LAC_STATUS_NOT_FOUND, "name is '%.40s'; no such device here: %s", name, lacks);
    return lac_fail(LAC_STATUS_NOT_FOUND, "name is '%.40s'; no such device here (try auto or cpu, or see lacuna devices)",
                    name);
}

lac_status lac_device_open(const char *name, lac_device **out)
{
    if (!name) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "name is NULL");
    if (!out) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "out is NULL");
    lac_device_info best;
    const lac_device_ops *best_ops;
    lac_status status = choose_device(name, &best, &best_ops);
    if (status) return status;
    if (!best_ops) return open_absent(name, out);
    if (!best.available) return lac_fail(LAC_STATUS_DEVICE, "name is '%s'; it cannot be used: %s", best.name, best.note);

    lac_device *device = lac_allocate_zeroed(sizeof *device);
    if (!device) return lac_fail_memory("device", sizeof *device);
    atomic_init(&device->holders, 1);
    device->info = best;
    device->ops = best_ops;
    if (best_ops->open && (status = best_ops->open(&best, &device->state))) {
        lac_release(device);
        return status;
    }
    *out = device;
    return LAC_STATUS_OK;
}

lac_status lac_device_get_info(const lac_device *device, lac_device_info *info)
{
    if (!device) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "device is NULL");
    return lac_write_struct("info", info, &device->info, sizeof device->info);
}

lac_device *lac_device_retain(const lac_device *device)
{
    lac_device *holder = (lac_device *)device; /* the count is the one thing that changes in it */
    atomic_fetch_add_explicit(&holder->holders, 1, memory_order_relaxed);
    return holder;
}

void lac_device_close(lac_device *device)
{
    if (!device || atomic_fetch_sub_explicit(&device->holders, 1, memory_order_acq_rel) != 1) return;
    if (device->ops->close) device->ops->close(device->state);
    lac_release(device);
}

/* ---- memory of the device */

lac_status lac_device_allocate(const lac_device *device, uint64_t bytes, void **out)
{
    if (!device) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "device is NULL");
    if (!out) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "out is NULL");
    if (device->ops->allocate) return device->ops->allocate(device, "block", bytes, out);
    void *block = lac_allocate(bytes);
    if (!block) return lac_fail_memory("block", bytes);
    *out = block;
    return LAC_STATUS_OK;
}

void lac_device_release(const lac_device *device, void *block)
{
    if (!device || !block) return;
    if (device->ops->release)
        device->ops->release(device, block);
    else
        lac_release(block);
}

static lac_status check_copy(const lac_device *device, const void *to, const void *from, uint64_t bytes)
{
    if (!device) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "device is NULL");
    if (!to && bytes) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "to is NULL");
    if (!from && bytes) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "from is NULL");
    return LAC_STATUS_OK;
}

lac_status lac_device_upload(const lac_device *device, void *to, const void *from, uint64_t bytes)
{
    lac_status status = check_copy(device, to, from, bytes);
    if (status || !bytes) return status;
    if (device->ops->upload) return device->ops->upload(device, to, from, bytes);
    memcpy(to, from, bytes);
    return LAC_STATUS_OK;
}

lac_status lac_device_download(const lac_device *device, void *to, const void *from, uint64_t bytes)
{
    lac_status status = check_copy(device, to, from, bytes);
    if (status || !bytes) return status;
    if (device->ops->download) return device->ops->download(device, to, from, bytes);
    memcpy(to, from, bytes);
    return LAC_STATUS_OK;
}

lac_status lac_device_synchronize(const lac_device *device)
{
    if (!device) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "device is NULL");
    return device->ops->synchronize ? device->ops->synchronize(device) : LAC_STATUS_OK;
}

lac_status lac_component_probe(size_t index, lac_component_info *info)
{
    if (!info) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "info is NULL");
    const lac_device_ops *const *all;
    size_t count = lac_registry_device_ops(&all);
    size_t left = index;
    for (size_t i = 0; i < count; ++i) {
        for (size_t j = 0; all[i]->component; ++j) {
            lac_component_info found;
            memset(&found, 0, sizeof found);
            found.size = sizeof found;
            lac_status status = all[i]->component(j, &found);
            if (status == LAC_STATUS_NOT_FOUND) break;
            if (status) return status;
            if (left-- == 0) return lac_write_struct("info", info, &found, sizeof found);
        }
    }
    return lac_fail(LAC_STATUS_NOT_FOUND, "index is %zu; there are fewer components", index);
}
