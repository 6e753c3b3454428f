/* memory.c - a GPU's memory: for the dataflows' re-tiled weights, for measuring, and for lac_device_allocate. */
#include <inttypes.h>

#include "core/status.h"
#include "cuda/state.h"

lac_status lac_cuda_enter(const lac_device *device, const char *what, bool *entered)
{
    const lac_cuda_state *state = lac_cuda_state_of(device);
    const lac_cuda_driver *driver = state->driver;
    *entered = false;
    if (!driver)
        return lac_fail(LAC_STATUS_DEVICE, "%s: the device is %s, a target to compile for without a GPU", what,
                        device->info.name);
    lac_cu_context current = NULL;
    if (driver->cuCtxGetCurrent(&current) == LAC_CU_OK && current == state->context) return LAC_STATUS_OK;
    lac_status status = lac_cuda_check(driver->cuCtxPushCurrent(state->context), what);
    *entered = !status;
    return status;
}

void lac_cuda_leave(const lac_device *device, bool entered)
{
    lac_cu_context popped;
    if (entered) lac_cuda_state_of(device)->driver->cuCtxPopCurrent(&popped);
}

int lac_cuda_relax_capture(const lac_cuda_driver *driver)
{
    int mode = LAC_CU_CAPTURE_RELAXED;
    if (driver->cuThreadExchangeStreamCaptureMode) driver->cuThreadExchangeStreamCaptureMode(&mode);
    return mode;
}

void lac_cuda_restore_capture(const lac_cuda_driver *driver, int mode)
{
    if (driver->cuThreadExchangeStreamCaptureMode) driver->cuThreadExchangeStreamCaptureMode(&mode);
}

lac_status lac_cuda_allocate(const lac_device *device, const char *what, uint64_t bytes, lac_cu_pointer *out)
{
    const lac_cuda_driver *driver = lac_cuda_state_of(device)->driver;
    bool entered;
    lac_status status = lac_cuda_enter(device, what, &entered);
    if (status) return status;
    lac_cu_pointer pointer = 0;
    int mode = lac_cuda_relax_capture(driver);
    int result = driver->cuMemAlloc(&pointer, bytes ? bytes : 1);
    lac_cuda_restore_capture(driver, mode);
    lac_cuda_leave(device, entered);
    if (result) {
        status = lac_cuda_check(result, what);
        return lac_fail_in(status, "%" PRIu64 " bytes on %s", bytes, device->info.name);
    }
    *out = pointer;
    return LAC_STATUS_OK;
}

lac_status lac_cuda_upload(const lac_device *device, const char *what, const void *host, uint64_t bytes, lac_cu_pointer *out)
{
    const lac_cuda_state *state = lac_cuda_state_of(device);
    lac_cu_pointer pointer = 0;
    lac_status status = lac_cuda_allocate(device, what, bytes, &pointer);
    if (status) return status;
    bool entered;
    if (!(status = lac_cuda_enter(device, what, &entered))) {
        int mode = lac_cuda_relax_capture(state->driver);
        if (bytes) status = lac_cuda_check(state->driver->cuMemcpyHtoDAsync(pointer, host, bytes, state->copies), what);
        if (!status) status = lac_cuda_check(state->driver->cuStreamSynchronize(state->copies), what);
        lac_cuda_restore_capture(state->driver, mode);
        lac_cuda_leave(device, entered);
    }
    if (status) {
        lac_cuda_free(device, pointer);
        return status;
    }
    *out = pointer;
    return LAC_STATUS_OK;
}

void lac_cuda_free(const lac_device *device, lac_cu_pointer pointer)
{
    bool entered;
    if (!pointer || lac_cuda_enter(device, "free", &entered)) return;
    const lac_cuda_driver *driver = lac_cuda_state_of(device)->driver;
    int mode = lac_cuda_relax_capture(driver);
    driver->cuMemFree(pointer);
    lac_cuda_restore_capture(driver, mode);
    lac_cuda_leave(device, entered);
}

/* ---- for core/device.c */

static lac_cu_pointer address_of(const void *block) { return (lac_cu_pointer)(uintptr_t)block; }

lac_status lac_cuda_block_allocate(const lac_device *device, const char *what, uint64_t bytes, void **out)
{
    lac_cu_pointer pointer = 0;
    lac_status status = lac_cuda_allocate(device, what, bytes, &pointer);
    if (!status) *out = (void *)(uintptr_t)pointer;
    return status;
}

void lac_cuda_block_release(const lac_device *device, void *block) { lac_cuda_free(device, address_of(block)); }

lac_status lac_cuda_block_upload(const lac_device *device, void *to, const void *from, uint64_t bytes)
{
    const lac_cuda_driver *driver = lac_cuda_state_of(device)->driver;
    bool entered;
    lac_status status = lac_cuda_enter(device, "upload", &entered);
    if (status) return status;
    status = lac_cuda_check(driver->cuMemcpyHtoD(address_of(to), from, bytes), "upload");
    /* The driver may return once it has the bytes; whoever uses another stream must find them in place. */
    if (!status) status = lac_cuda_check(driver->cuStreamSynchronize(NULL), "upload");
    lac_cuda_leave(device, entered);
    return status;
}

lac_status lac_cuda_block_download(const lac_device *device, void *to, const void *from, uint64_t bytes)
{
    bool entered;
    lac_status status = lac_cuda_enter(device, "download", &entered);
    if (status) return status;
    status = lac_cuda_check(lac_cuda_state_of(device)->driver->cuMemcpyDtoH(to, address_of(from), bytes), "download");
    lac_cuda_leave(device, entered);
    return status;
}

lac_status lac_cuda_synchronize(const lac_device *device)
{
    bool entered;
    lac_status status = lac_cuda_enter(device, "synchronize", &entered);
    if (status) return status;
    status = lac_cuda_check(lac_cuda_state_of(device)->driver->cuCtxSynchronize(), "synchronize");
    lac_cuda_leave(device, entered);
    return status;
}
