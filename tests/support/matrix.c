/* matrix.c - see matrix.h. */
#include "support/matrix.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CANARY = 0xa5, GUARD = 64 };

static void *must_allocate(size_t bytes)
{
    void *block = aligned_alloc(64, (bytes + 64) / 64 * 64);
    if (!block) {
        fprintf(stderr, "test support: no memory for %zu bytes\n", bytes);
        exit(2);
    }
    return block;
}

static size_t element_size(lac_dtype dtype) { return dtype == LAC_DTYPE_F64 ? 8 : dtype == LAC_DTYPE_F32 ? 4 : 2; }

static int64_t element_at(const lac_matrix *view, int64_t row, int64_t col)
{
    return view->layout == LAC_LAYOUT_ROW_MAJOR ? row * view->ld + col : col * view->ld + row;
}

test_matrix test_matrix_make(int64_t rows, int64_t cols, lac_dtype dtype, lac_layout layout, int64_t padding, int64_t offset)
{
    size_t size = element_size(dtype);
    int64_t lines = layout == LAC_LAYOUT_ROW_MAJOR ? rows : cols;
    int64_t length = layout == LAC_LAYOUT_ROW_MAJOR ? cols : rows;
    test_matrix matrix = {.view = {.dtype = dtype, .layout = layout, .rows = rows, .cols = cols, .ld = length + padding}};
    matrix.bytes = 2 * GUARD + (size_t)(lines * (length + padding) + offset) * size;
    matrix.block = must_allocate(matrix.bytes);
    matrix.is_element = must_allocate(matrix.bytes);
    memset(matrix.block, CANARY, matrix.bytes);
    memset(matrix.is_element, 0, matrix.bytes);
    size_t begin = GUARD + (size_t)offset * size;
    matrix.view.data = matrix.block + begin;
    for (int64_t line = 0; line < lines; line++) {
        memset(matrix.is_element + begin + (size_t)(line * matrix.view.ld) * size, 1, (size_t)length * size);
    }
    return matrix;
}

test_matrix test_matrix_random(test_random *random, int64_t rows, int64_t cols, lac_dtype dtype)
{
    lac_layout layout = test_random_chance(random, 30) ? LAC_LAYOUT_COLUMN_MAJOR : LAC_LAYOUT_ROW_MAJOR;
    int64_t padding = test_random_chance(random, 40) ? test_random_between(random, 1, 9) : 0;
    int64_t offset = test_random_chance(random, 40) ? test_random_between(random, 1, 7) : 0;
    return test_matrix_make(rows, cols, dtype, layout, padding, offset);
}

void test_matrix_free(test_matrix *matrix)
{
    free(matrix->block);
    free(matrix->is_element);
    memset(matrix, 0, sizeof *matrix);
}

bool test_matrix_intact(const test_matrix *matrix)
{
    for (size_t i = 0; i < matrix->bytes; i++) {
        if (!matrix->is_element[i] && matrix->block[i] != CANARY) {
            fprintf(stderr, "byte %zu of %zu beside the matrix was written\n", i, matrix->bytes);
            return false;
        }
    }
    return true;
}

unsigned char *test_matrix_snapshot(const test_matrix *matrix)
{
    unsigned char *copy = must_allocate(matrix->bytes);
    memcpy(copy, matrix->block, matrix->bytes);
    return copy;
}

bool test_matrix_unchanged(const test_matrix *matrix, const unsigned char *snapshot)
{
    return memcmp(matrix->block, snapshot, matrix->bytes) == 0;
}

/* Formats narrower than double: `bits` of fraction, exponent of the smallest normal, largest finite value. */
typedef struct narrow {
    int fraction, smallest_exponent, exponent_bits;
} narrow;

static narrow narrow_of(lac_dtype dtype)
{
    return dtype == LAC_DTYPE_F16    ? (narrow){10, -14, 5}
           : dtype == LAC_DTYPE_BF16 ? (narrow){7, -126, 8}
                                     : (narrow){23, -126, 8};
}

double test_decode(lac_dtype dtype, uint64_t bits)
{
    if (dtype == LAC_DTYPE_F64) {
        double value;
        memcpy(&value, &bits, sizeof value);
        return value;
    }
    narrow f = narrow_of(dtype);
    uint64_t fraction = bits & ((UINT64_C(1) << f.fraction) - 1);
    uint64_t field = (bits >> f.fraction) & ((UINT64_C(1) << f.exponent_bits) - 1);
    double sign = (bits >> (f.fraction + f.exponent_bits)) & 1 ? -1.0 : 1.0;
    if (field == (UINT64_C(1) << f.exponent_bits) - 1) return fraction ? copysign(NAN, sign) : sign * INFINITY;
    if (field == 0) return sign * ldexp((double)fraction, f.smallest_exponent - f.fraction);
    double significand = (double)(fraction | UINT64_C(1) << f.fraction);
    return sign * ldexp(significand, f.smallest_exponent - f.fraction + (int)field - 1);
}

uint64_t test_encode(lac_dtype dtype, double value)
{
    if (dtype == LAC_DTYPE_F64) {
        uint64_t bits;
        memcpy(&bits, &value, sizeof bits);
        return bits;
    }
    narrow f = narrow_of(dtype);
    uint64_t sign = (uint64_t)(signbit(value) != 0) << (f.fraction + f.exponent_bits);
    uint64_t infinity = ((UINT64_C(1) << f.exponent_bits) - 1) << f.fraction;
    if (isnan(value)) return sign | infinity | UINT64_C(1) << (f.fraction - 1);
    double magnitude = fabs(value);
    if (isinf(magnitude)) return sign | infinity;
    int exponent = f.smallest_exponent;
    if (magnitude > 0 && ilogb(magnitude) > exponent) exponent = ilogb(magnitude);
    /* Scaling by a power of two is exact here (a double's own subnormals round to zero in either case), and rint rounds
     * halves to even. A carry into the next binade comes out right because the fields are adjacent. */
    uint64_t steps = (uint64_t)rint(ldexp(magnitude, f.fraction - exponent));
    uint64_t bits = ((uint64_t)(exponent - f.smallest_exponent) << f.fraction) + steps;
    return sign | (bits > infinity || exponent > -f.smallest_exponent + 1 ? infinity : bits);
}

double test_rounded(lac_dtype dtype, double value) { return test_decode(dtype, test_encode(dtype, value)); }

double test_matrix_get(const test_matrix *matrix, int64_t row, int64_t col)
{
    size_t size = element_size(matrix->view.dtype);
    uint64_t bits = 0;
    memcpy(&bits, (const char *)matrix->view.data + (size_t)element_at(&matrix->view, row, col) * size, size);
    return test_decode(matrix->view.dtype, bits);
}

void test_matrix_set(const test_matrix *matrix, int64_t row, int64_t col, double value)
{
    size_t size = element_size(matrix->view.dtype);
    uint64_t bits = test_encode(matrix->view.dtype, value);
    memcpy((char *)matrix->view.data + (size_t)element_at(&matrix->view, row, col) * size, &bits, size);
}

static double smallest(lac_dtype dtype) { return dtype == LAC_DTYPE_F64 ? 0x1p-1074 : test_decode(dtype, 1); }

static double draw(test_random *random, test_fill fill, lac_dtype dtype)
{
    double sign = test_random_chance(random, 50) ? -1.0 : 1.0;
    switch (fill) {
    case TEST_FILL_GAUSSIAN:
        return test_random_gaussian(random);
    case TEST_FILL_INTEGER:
        return (double)test_random_between(random, -8, 8);
    case TEST_FILL_HEAVY_TAIL:
        return sign * exp2(-12 + 27.9 * test_random_unit(random));
    case TEST_FILL_SPARSE:
        return test_random_chance(random, 60) ? sign * 0.0 : test_random_gaussian(random);
    case TEST_FILL_DENORMAL:
        if (test_random_chance(random, 20)) return sign * 0.0;
        if (test_random_chance(random, 20)) return test_random_gaussian(random);
        return sign * smallest(dtype) * (double)test_random_between(random, 1, 200);
    case TEST_FILL_TIES:
        return sign * (double)test_random_pick(random, 1, 1, 2, 3);
    case TEST_FILL_NONFINITE:
        if (test_random_chance(random, 10)) return sign * INFINITY;
        if (test_random_chance(random, 10)) return copysign(NAN, sign);
        return test_random_gaussian(random);
    }
    return 0;
}

void test_matrix_fill(test_random *random, const test_matrix *matrix, test_fill fill)
{
    for (int64_t row = 0; row < matrix->view.rows; row++) {
        for (int64_t col = 0; col < matrix->view.cols; col++) {
            test_matrix_set(matrix, row, col, draw(random, fill, matrix->view.dtype));
        }
    }
}
