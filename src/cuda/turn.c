/* turn.c - launches kernels/turn.cu. */
#include "cuda/turn.h"

#include "cuda/kernels/turn_arguments.h"
#include "cuda/runtime.h"

enum { THREADS = 256 };

void lac_turn_request(const lac_problem *problem, lac_cuda_request *request)
{
    lac_cuda_request_begin(request, "turn.cu", "lac_turn");
    lac_cuda_request_define(request, "LAC_X_TOKEN_MAJOR", problem->options.x_layout == LAC_LAYOUT_TOKEN_MAJOR);
}

lac_status lac_turn_x(const lac_problem *problem, lac_cu_function program, const lac_gpu_call *call, void *to, void *stream)
{
    lac_gpu_call own = *call;
    lac_turn_args args = {to, lac_turn_ld(problem)};
    int64_t across = lac_ceil_divide(problem->weight->k_in, LAC_TURN_SIDE), down = args.ld / LAC_TURN_SIDE;
    if (across == 0) return LAC_STATUS_OK; /* X has no inputs */
    lac_cuda_launch launch = {.function = program,
                              .grid = {(unsigned)(across * down), 1, 1},
                              .block = THREADS,
                              .early = lac_cuda_target_of(problem->device)->arch >= 90};
    return lac_cuda_launch_on(problem->device, &launch, stream, (void *[]){&own, &args});
}
