/* launch.c - from a caller's arguments to a kernel on his stream, in a microsecond or two. Nothing here allocates or waits, so a stream
 * that is being captured into a graph takes it as it is. */
#include <stdint.h>

#include "core/status.h"
#include "cuda/state.h"
#include "format/weight.h"

/* ---- the caller's pointers */

static lac_status check_pointer(const lac_cuda_state *state, const char *name, const void *pointer)
{
    if (!pointer) return LAC_STATUS_OK; /* core has refused those that may not be */
    unsigned type = 0, managed = 0;
    int ordinal = -1;
    int attributes[] = {LAC_CU_POINTER_MEMORY_TYPE, LAC_CU_POINTER_IS_MANAGED, LAC_CU_POINTER_ORDINAL};
    void *values[] = {&type, &managed, &ordinal};
    int result = state->driver->cuPointerGetAttributes(3, attributes, values, (lac_cu_pointer)(uintptr_t)pointer);
    if (result) return lac_fail_in(lac_cuda_check(result, name), "args");
    if (managed) return LAC_STATUS_OK; /* goes wherever it is used */
    if (type != LAC_CU_MEMORY_TYPE_DEVICE)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "args->%s is %p, which is %s memory; it must be memory of cuda:%d", name,
                        pointer, type ? "the host's" : "no GPU's: the host's", state->ordinal);
    if (ordinal != state->ordinal)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "args->%s is %p, which is memory of cuda:%d; the plan is for cuda:%d",
                        name, pointer, ordinal, state->ordinal);
    return LAC_STATUS_OK;
}

lac_status lac_cuda_call_make(const lac_problem *problem, const lac_call *call, lac_gpu_call *out)
{
    const lac_cuda_state *state = lac_cuda_state_of(problem->device);
    if (!state->driver)
        return lac_fail(LAC_STATUS_DEVICE, "the plan is for %s, a target to compile for without a GPU",
                        problem->device->info.name);
    const void *x = problem->weight->k_in ? call->x : NULL; /* an empty one is not read, and may begin where memory ends */
    lac_status status;
    if ((status = check_pointer(state, "x", x)) || (status = check_pointer(state, "y", call->y)) ||
        (status = check_pointer(state, "c", call->c)) || (status = check_pointer(state, "bias", call->bias)) ||
        (status = check_pointer(state, "workspace", call->workspace)))
        return status;
    *out = (lac_gpu_call){.x = call->x,
                          .bias = call->bias,
                          .c = call->c,
                          .y = call->y,
                          .workspace = call->workspace,
                          .ldx = call->ldx,
                          .ldy = call->ldy,
                          .ldc = call->ldc,
                          .alpha = call->alpha,
                          .beta = call->beta,
                          .m = (int)problem->m,
                          .n = (int)problem->weight->n_out,
                          .k = (int)problem->weight->k_in};
    return LAC_STATUS_OK;
}

/* ---- launching */

lac_status lac_cuda_launch_on(const lac_device *device, const lac_cuda_launch *launch, void *stream, void **parameters)
{
    bool entered;
    lac_status status = lac_cuda_enter(device, "launch", &entered);
    if (status) return status;
    lac_cu_launch_attribute attributes[3];
    unsigned count = 0;
    if (launch->cluster > 1)
        attributes[count++] =
            (lac_cu_launch_attribute){.id = LAC_CU_ATTRIBUTE_CLUSTER, .value.cluster = {launch->cluster, 1, 1}};
    if (launch->together) attributes[count++] = (lac_cu_launch_attribute){.id = LAC_CU_ATTRIBUTE_TOGETHER, .value.together = 1};
    if (launch->early) attributes[count++] = (lac_cu_launch_attribute){.id = LAC_CU_ATTRIBUTE_EARLY, .value.early = 1};
    lac_cu_launch_config config = {.grid_x = launch->grid[0],
                                   .grid_y = launch->grid[1],
                                   .grid_z = launch->grid[2],
                                   .block_x = launch->block,
                                   .block_y = 1,
                                   .block_z = 1,
                                   .shared_bytes = launch->shared_bytes,
                                   .stream = stream,
                                   .attributes = attributes,
                                   .attribute_count = count};
    status = lac_cuda_check(lac_cuda_state_of(device)->driver->cuLaunchKernelEx(&config, launch->function, parameters, NULL),
                            "launch");
    lac_cuda_leave(device, entered);
    return status;
}

bool lac_cuda_boxes_suit(const lac_cuda_boxes *boxes)
{
    int64_t most_ld = (INT64_C(1) << 39) / (boxes->fold ? boxes->fold : 1); /* strides have fewer than 2^40 bytes */
    return (uintptr_t)boxes->data % 16 == 0 && boxes->ld % 8 == 0 && boxes->ld < most_ld && boxes->columns > 0 &&
           boxes->rows > 0;
}

bool lac_cuda_boxes_suit_stores(const lac_cuda_boxes *boxes) { return lac_cuda_boxes_suit(boxes) && boxes->columns % 8 == 0; }

lac_cuda_boxes lac_cuda_boxes_of_y(const lac_problem *problem, const lac_gpu_call *call)
{
    bool token_major = problem->options.y_layout == LAC_LAYOUT_TOKEN_MAJOR;
    int64_t m = problem->m, n = problem->weight->n_out;
    return (lac_cuda_boxes){.data = call->y,
                            .dtype = problem->options.y_dtype,
                            .columns = token_major ? n : m,
                            .rows = token_major ? m : n,
                            .ld = call->ldy,
                            .across = 64,
                            .down = 64};
}

/* The driver encodes it on the host alone, but wants a context all the same. */
lac_status lac_cuda_tensor_map_make(const lac_device *device, const lac_cuda_boxes *boxes, lac_cuda_tensor_map *out)
{
    enum { FLOAT16 = 6, BFLOAT16 = 9, NO_INTERLEAVE = 0, SWIZZLE_64 = 2, SWIZZLE_128 = 3, PROMOTE_256 = 3, FILL_ZEROS = 0 };
    const lac_cuda_driver *driver = lac_cuda_state_of(device)->driver;
    uint64_t fold = boxes->fold ? boxes->fold : 1, ld = (uint64_t)boxes->ld * 2;
    uint64_t sizes[3] = {(uint64_t)boxes->columns, ((uint64_t)boxes->rows + fold - 1) / fold, fold},
             strides[2] = {fold * ld, ld};
    unsigned box[3] = {boxes->across, boxes->down, boxes->fold}, steps[3] = {1, 1, 1}, rank = boxes->fold ? 3 : 2;
    int swizzle =
        boxes->across * 2 <= 64 ? SWIZZLE_64 : SWIZZLE_128; /* that of a line of so many bytes: lac_swizzle of stages so wide */
    bool entered;
    lac_status status = lac_cuda_enter(device, "tensor map", &entered);
    if (status) return status;
    if (!driver->cuTensorMapEncodeTiled)
        status = lac_fail(LAC_STATUS_DEVICE, "the driver is too old for tensor copies: it has no cuTensorMapEncodeTiled");
    else
        status = lac_cuda_check(driver->cuTensorMapEncodeTiled(out, boxes->dtype == LAC_DTYPE_BF16 ? BFLOAT16 : FLOAT16, rank,
                                                               (void *)(uintptr_t)boxes->data, sizes, strides, box, steps,
                                                               NO_INTERLEAVE, swizzle, PROMOTE_256, FILL_ZEROS),
                                "tensor map");
    lac_cuda_leave(device, entered);
    return status;
}
