/* turn.c - launches kernels/turn.cu. */
#include "cuda/turn.h"

#include "cuda/kernels/turn_arguments.h"

enum { THREADS = 256 };

static void request(lac_cuda_request *request, bool token_major)
{
    lac_cuda_request_begin(request, "turn.cu", "lac_turn");
    lac_cuda_request_define(request, "LAC_X_TOKEN_MAJOR", token_major);
}

void lac_turn_request(const lac_problem *problem, lac_cuda_request *out)
{
    request(out, problem->options.x_layout == LAC_LAYOUT_TOKEN_MAJOR);
}

void lac_turn_request_rows(lac_cuda_request *out) { request(out, false); }

static lac_status launch(const lac_problem *problem, lac_cu_function program, lac_gpu_call *call, lac_turn_args args,
                         void *stream)
{
    int64_t across = lac_ceil_divide(call->k, LAC_TURN_SIDE), down = args.ld / LAC_TURN_SIDE;
    if (across * down == 0) return LAC_STATUS_OK; /* X is empty */
    lac_cuda_launch launch = {.function = program,
                              .grid = {(unsigned)(across * down), 1, 1},
                              .block = THREADS,
                              .early = lac_cuda_target_of(problem->device)->arch >= 90};
    return lac_cuda_launch_on(problem->device, &launch, stream, (void *[]){call, &args});
}

lac_status lac_turn_x(const lac_problem *problem, lac_cu_function program, const lac_gpu_call *call, void *to, void *stream)
{
    lac_gpu_call own = *call;
    return launch(problem, program, &own, (lac_turn_args){to, lac_turn_ld(problem)}, stream);
}

/* Token-major rows are to the kernel what feature-major ones are. */
lac_status lac_turn_rows(const lac_problem *problem, lac_cu_function program, const lac_gpu_call *call, void *to, void *stream)
{
    lac_gpu_call own = *call;
    own.m = call->k;
    own.k = call->m;
    return launch(problem, program, &own, (lac_turn_args){to, lac_turn_rows_ld(problem)}, stream);
}

bool lac_turn_boxes(const lac_problem *problem, const lac_gpu_call *call, const void *to, lac_cuda_boxes *boxes)
{
    int64_t k = problem->weight->k_in;
    boxes->data = call->x;
    boxes->dtype = problem->options.x_dtype;
    boxes->columns = problem->m;
    boxes->rows = k;
    boxes->ld = call->ldx;
    boxes->across = 64;
    if (problem->options.x_layout == LAC_LAYOUT_FEATURE_MAJOR && lac_cuda_boxes_suit(boxes) &&
        (!boxes->fold || k % boxes->fold == 0))
        return true;
    boxes->data = to;
    boxes->ld = lac_turn_ld(problem);
    return false;
}
