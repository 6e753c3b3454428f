/* device.c - finding and opening devices through the backends of the registry. */
#include "core/device.h"

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

/* "auto" takes the last usable kind, for the kinds are numbered from slow to fast; the first device of that kind. */
static bool is_wanted(const char *name, const lac_device_info *candidate, const lac_device_info *best)
{
    if (strcmp(name, "auto")) return !best && !strcmp(name, candidate->name);
    return candidate->available && (!best || candidate->kind > best->kind);
}

lac_status lac_device_open(const char *name, lac_device **out)
{
    if (!name) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "name is NULL");
    if (!out) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "out is NULL");
    lac_device_info candidate, best = {0};
    const lac_device_ops *ops, *best_ops = NULL;
    lac_status status;
    for (size_t i = 0; !(status = find_device(i, &candidate, &ops)); ++i) {
        if (!is_wanted(name, &candidate, best_ops ? &best : NULL)) continue;
        best = candidate;
        best_ops = ops;
    }
    if (status != LAC_STATUS_NOT_FOUND) return status;
    if (!best_ops) return lac_fail(LAC_STATUS_NOT_FOUND, "name is '%.40s'; no such device here (try auto or cpu)", name);
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
