/* registry.c - the one file that decides which backends exist. A backend is a lac_device_ops and a table of kernels;
 * adding one is a line in each list. */
#include "core/kernel.h"
#include "core/status.h"
#include "cpu/backend.h"
#include "cuda/backend.h"
#include "ref/backend.h"

static const lac_device_ops *const device_ops[] = {&lac_cpu_device_ops, &lac_cuda_device_ops};

size_t lac_registry_device_ops(const lac_device_ops *const **out)
{
    *out = device_ops;
    return sizeof device_ops / sizeof *device_ops;
}

const lac_kernel *lac_registry_kernel(size_t index)
{
    const struct {
        const lac_kernel *kernels;
        size_t count;
    } tables[] = {{lac_cpu_kernels, lac_cpu_kernel_count},
                  {lac_cuda_kernels, lac_cuda_kernel_count},
                  {lac_ref_kernels, lac_ref_kernel_count}};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; ++i) {
        if (index < tables[i].count) return &tables[i].kernels[index];
        index -= tables[i].count;
    }
    return NULL;
}

lac_status lac_kernel_probe(size_t index, lac_kernel_info *info)
{
    if (!info) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "info is NULL");
    const lac_kernel *kernel = lac_registry_kernel(index);
    if (!kernel) return lac_fail(LAC_STATUS_NOT_FOUND, "index is %zu; there are fewer kernels", index);
    return lac_write_struct("info", info, &kernel->info, sizeof kernel->info);
}
