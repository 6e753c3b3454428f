/* plain.cu - the plain product: a thread for each element of Y, a row of W as columns and values. It takes every family,
 * dtype, layout and epilogue, any shape, and is meant to be seen to be right: the candidate that always applies.
 *
 * Preconditions: none beyond those of lac_gpu_call. Row r of `rows` has its values at values[rows[r].values ...] and reads
 * the inputs columns[rows[r].columns ...]; rows of a row group share their columns.
 * Threads: element i of Y is taken by thread i of the grid, and i + threads, and so on. Neighbouring threads take
 * neighbouring tokens when LAC_LANES_ARE_TOKENS (X feature-major: their loads are then adjacent), else neighbouring rows.
 * Shared memory: none. Bottleneck: load instructions, three for each product. */
#include "epilogue.cuh"

typedef struct lac_plain_row {
    i64 values, columns; /* where they begin   */
    int count;           /* of both            */
    int output;          /* the row's place in Y */
} lac_plain_row;

typedef struct lac_plain_weight {
    const lac_plain_row *rows; /* [row_count] */
    const u32 *columns;
    const float *values;
    int row_count;
} lac_plain_weight;

extern "C" __global__ void __launch_bounds__(256) lac_plain(const lac_gpu_call call, const lac_plain_weight weight)
{
    const typename lac_element<LAC_X_DTYPE>::type *x = (const typename lac_element<LAC_X_DTYPE>::type *)call.x;
    const i64 elements = (i64)call.m * weight.row_count;
    const i64 threads = (i64)gridDim.x * blockDim.x;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < elements; i += threads) {
#if LAC_LANES_ARE_TOKENS
        const int token = (int)(i % call.m), r = (int)(i / call.m);
#else
        const int token = (int)(i / weight.row_count), r = (int)(i % weight.row_count);
#endif
        const lac_plain_row row = weight.rows[r];
        float sum = 0.0f;
        for (int j = 0; j < row.count; ++j) {
            const i64 input = weight.columns[row.columns + j];
#if LAC_X_TOKEN_MAJOR
            const i64 at = (i64)token * call.ldx + input;
#else
            const i64 at = input * call.ldx + token;
#endif
            sum = fmaf(weight.values[row.values + j], lac_widen<LAC_X_DTYPE>(x[at]), sum);
        }
        lac_store(call, token, row.output, lac_finish(call, token, row.output, sum, lac_bias(call, row.output)));
    }
}
