/* format_case.h - what the tests of the format share: random patterns and matrices that obey them, and a second reader of
 * the format, written from docs/format.md alone, bit by bit. */
#ifndef LAC_TESTS_FORMAT_CASE_H
#define LAC_TESTS_FORMAT_CASE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/dtype.h"
#include "core/memory.h"
#include "format/mask.h"
#include "lacuna.h"

#define ASSERT_OK(call)                                                                                                        \
    do {                                                                                                                       \
        lac_status status_ = (call);                                                                                           \
        if (status_) fail_msg("%s: %s: %s", #call, lac_status_name(status_), lac_last_error());                                \
    } while (0)

/* Fails with this status, and the message has `words` in it. */
#define ASSERT_FAILS(call, wanted, words)                                                                                      \
    do {                                                                                                                       \
        lac_status status_ = (call);                                                                                           \
        if (status_ != (wanted)) fail_msg("%s: status %d (%s)", #call, (int)status_, lac_last_error());                        \
        if (!strstr(lac_last_error(), words)) fail_msg("%s: no '%s' in '%s'", #call, words, lac_last_error());                 \
    } while (0)

typedef struct case_rng {
    uint64_t state;
} case_rng;

static inline uint64_t case_next(case_rng *rng)
{
    uint64_t z = (rng->state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* 0 to limit - 1 */
static inline int64_t case_below(case_rng *rng, int64_t limit) { return (int64_t)(case_next(rng) % (uint64_t)limit); }

static inline int64_t case_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t case_ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }

static inline lac_pattern case_pattern(case_rng *rng)
{
    static const int32_t ms[] = {1, 2, 3, 4, 5, 7, 8, 16, 17, 32, 63, 64, 65, 128, 200, 256};
    static const double densities[] = {0.01, 0.125, 0.25, 0.333, 0.5, 0.75, 1.0};
    lac_pattern p = {.family = (lac_family)(1 + case_below(rng, 5)), .unit_n = 1, .unit_k = 1};
    int free_distribution = p.family == LAC_FAMILY_SHUFFLED || (p.family != LAC_FAMILY_VNM && case_below(rng, 4) == 0);
    if (p.family != LAC_FAMILY_ELEMENT) p.unit_n = (int32_t)(1 + case_below(rng, 12));
    if (p.family == LAC_FAMILY_BLOCK) p.unit_k = (int32_t)(1 + case_below(rng, case_below(rng, 8) ? 6 : 90));
    if (free_distribution) {
        p.density = densities[case_below(rng, 7)];
        return p;
    }
    do p.m = ms[case_below(rng, 16)];
    while (p.family == LAC_FAMILY_VNM && p.m < 4);
    p.n = (int32_t)(1 + case_below(rng, p.family == LAC_FAMILY_VNM ? 4 : p.m));
    return p;
}

/* Picks `count` of [0, length) at random: marks[i] = 1. */
static inline void case_pick(case_rng *rng, uint8_t *marks, int64_t length, int64_t count)
{
    memset(marks, 0, (size_t)length);
    for (int64_t left = length, i = 0; i < length; i++, left--) {
        if (case_below(rng, left) < count) marks[i] = 1, count--;
    }
}

/* The most units a row group of a free distribution keeps. */
static inline int64_t case_free_limit(const lac_pattern *p, int64_t units)
{
    int64_t most = (int64_t)floor(p->density * (double)units + 0.5);
    return case_min(most < 1 ? 1 : most, units);
}

/* keep[n][k] in stored order: a random choice that the pattern allows; exact: as many as it keeps (free: up to). */
static inline void case_keep(case_rng *rng, const lac_pattern *p, int64_t n, int64_t k, int exact, uint8_t *keep)
{
    int64_t un = case_min(p->unit_n, n), uk = case_min(p->unit_k, k);
    if (n) memset(keep, 0, (size_t)(n * k));
    if (!n || !k) return;
    int64_t units = case_ceil(k, uk);
    uint8_t *marks = malloc((size_t)units), *inner = malloc(4);
    for (int64_t r0 = 0; r0 < n; r0 += un) {
        int64_t r1 = case_min(r0 + un, n), step = p->m ? p->m : units;
        for (int64_t u0 = 0; u0 < units; u0 += step) {
            int64_t r = case_min(step, units - u0), vnm = p->family == LAC_FAMILY_VNM;
            int64_t allowed = !p->m ? case_free_limit(p, units) : case_min(vnm ? 4 : p->n, r);
            int64_t count = exact && p->m ? allowed : case_below(rng, allowed + 1);
            case_pick(rng, marks, r, count);
            for (int64_t row = r0; row < r1; row++) {
                int64_t inner_count = case_min(p->n, case_min(4, count));
                if (vnm) case_pick(rng, inner, case_min(4, count), exact ? inner_count : case_below(rng, inner_count + 1));
                for (int64_t i = 0, s = 0; i < r; i++) {
                    if (!marks[i]) continue;
                    if (vnm && !inner[s++]) continue;
                    for (int64_t c = (u0 + i) * uk; c < case_min(k, (u0 + i + 1) * uk); c++) keep[row * k + c] = 1;
                }
            }
        }
    }
    free(marks);
    free(inner);
}

static inline void case_shuffle(case_rng *rng, uint32_t *numbers, int64_t count)
{
    for (int64_t i = 0; i < count; i++) numbers[i] = (uint32_t)i;
    for (int64_t i = count - 1; i > 0; i--) {
        int64_t j = case_below(rng, i + 1);
        uint32_t t = numbers[i];
        numbers[i] = numbers[j];
        numbers[j] = t;
    }
}

/* ---- the second reader */

static inline uint32_t case_bits(const uint8_t *bytes, uint64_t start, int count)
{
    uint32_t value = 0;
    for (int i = 0; i < count; i++)
        value |= (uint32_t)((bytes[(start + (uint64_t)i) / 8] >> ((start + (uint64_t)i) % 8)) & 1) << i;
    return value;
}

static inline const uint8_t *case_part(const lac_weight *w, lac_part part, uint64_t *bytes)
{
    lac_span span;
    ASSERT_OK(lac_weight_get_part(w, part, &span));
    if (bytes) *bytes = span.bytes;
    return span.data;
}

static inline uint32_t case_u32(const uint8_t *bytes, int64_t i) { return case_bits(bytes + 4 * i, 0, 32); }

/* The bits of W[n_out][k_in] (4 bytes an element, whatever the dtype), by docs/format.md. The caller frees. */
static inline uint32_t *case_read(const lac_weight *w)
{
    lac_weight_info info = {.size = sizeof info};
    ASSERT_OK(lac_weight_get_info(w, &info));
    const uint8_t *values = case_part(w, LAC_PART_VALUES, NULL), *index = case_part(w, LAC_PART_INDEX, NULL);
    const uint8_t *positions = case_part(w, LAC_PART_POSITIONS, NULL), *counts = case_part(w, LAC_PART_COUNTS, NULL);
    const uint8_t *columns = case_part(w, LAC_PART_COLUMNS, NULL), *row_perm = case_part(w, LAC_PART_ROW_PERM, NULL);
    const uint8_t *col_perm = case_part(w, LAC_PART_COL_PERM, NULL);
    const lac_pattern *p = &info.pattern;
    uint32_t *dense = calloc((size_t)(info.n_out * info.k_in + 1), 4);
    if (!info.n || !info.k) return dense;
    int64_t un = case_min(p->unit_n, info.n), uk = case_min(p->unit_k, info.k), units = case_ceil(info.k, uk);
    int vnm = p->family == LAC_FAMILY_VNM, size = info.dtype == LAC_DTYPE_F32 ? 4 : 2, b = 0;
    int64_t index_n = vnm ? 4 : p->n;
    while (p->m && (1 << b) < p->m) b++;
    uint32_t *kept = malloc((size_t)units * 4);
    for (int64_t r0 = 0; r0 < info.n; r0 += un) {
        int64_t rows = case_min(un, info.n - r0), count = 0, slots = 0;
        if (!p->m) {
            count = slots = case_u32(counts, r0 / un);
            for (int64_t i = 0; i < count; i++) kept[i] = case_u32(columns, i);
            columns += 4 * count;
        } else {
            for (int64_t u0 = 0; u0 < units; u0 += p->m) {
                int64_t r = case_min(p->m, units - u0);
                for (int64_t u = 0; u < r && info.encoding != LAC_INDEX_ENCODING_PACKED; u++) {
                    if (info.encoding == LAC_INDEX_ENCODING_IMPLICIT || case_bits(index, (uint64_t)(u0 + u), 1))
                        kept[count++] = (uint32_t)(u0 + u);
                }
                for (int64_t e = 0; e < case_min(index_n, r) && info.encoding == LAC_INDEX_ENCODING_PACKED; e++, count++) {
                    kept[count] = (uint32_t)u0 + case_bits(index, (uint64_t)(count * b), b);
                }
                slots += case_min(p->n, r);
            }
            if (info.encoding == LAC_INDEX_ENCODING_PACKED) index += case_ceil(count * b, 8);
            if (info.encoding == LAC_INDEX_ENCODING_BITMASK) index += case_ceil(units, 8);
        }
        for (int64_t slot = 0; slot < slots; slot++) {
            for (int64_t c = 0; c < uk; c++) {
                for (int64_t row = 0; row < rows; row++, values += size) {
                    int64_t entry = slot;
                    if (vnm)
                        entry = slot / p->n * 4 +
                                (positions ? case_bits(positions, (uint64_t)(2 * (slot * rows + row)), 2) : slot % 4);
                    int64_t i = r0 + row, j = kept[entry] * uk + c;
                    uint32_t bits = case_bits(values, 0, 8 * size);
                    if (j >= info.k) {
                        assert_int_equal(bits, 0);
                        continue;
                    }
                    if (row_perm) i = case_u32(row_perm, i);
                    if (col_perm) j = case_u32(col_perm, j);
                    dense[i * info.k_in + j] = bits;
                }
            }
        }
        if (positions) positions += case_ceil(2 * slots * rows, 8);
    }
    free(kept);
    return dense;
}

/* ---- matrices and masks that obey a pattern */

static const lac_dtype case_storage[] = {LAC_DTYPE_F32, LAC_DTYPE_F16, LAC_DTYPE_BF16};

static inline lac_pattern parse(const char *text)
{
    lac_pattern pattern;
    ASSERT_OK(lac_pattern_parse(text, &pattern));
    return pattern;
}

/* A matrix with a border of canaries: `data` is [lines][ld]. */
typedef struct test_dense {
    lac_matrix view;
    size_t bytes;
} test_dense;

static inline test_dense make_dense(lac_dtype dtype, lac_layout layout, int64_t rows, int64_t cols, int64_t padding)
{
    int64_t lines = layout == LAC_LAYOUT_ROW_MAJOR ? rows : cols, length = layout == LAC_LAYOUT_ROW_MAJOR ? cols : rows;
    test_dense d = {.view = {NULL, dtype, layout, rows, cols, length + padding}};
    if (d.view.ld == 0) d.view.ld = 1;
    d.bytes = (size_t)(lines * d.view.ld) * lac_dtype_size(dtype);
    d.view.data = malloc(d.bytes + 1);
    memset(d.view.data, 0xa5, d.bytes);
    return d;
}

static inline int64_t at(const lac_matrix *m, int64_t r, int64_t c)
{
    return m->layout == LAC_LAYOUT_ROW_MAJOR ? r * m->ld + c : c * m->ld + r;
}

static inline uint64_t get_bits(const lac_matrix *m, int64_t r, int64_t c)
{
    uint64_t bits = 0;
    memcpy(&bits, (char *)m->data + (size_t)at(m, r, c) * lac_dtype_size(m->dtype), lac_dtype_size(m->dtype));
    return bits;
}

static inline void set_bits(const lac_matrix *m, int64_t r, int64_t c, uint64_t bits)
{
    memcpy((char *)m->data + (size_t)at(m, r, c) * lac_dtype_size(m->dtype), &bits, lac_dtype_size(m->dtype));
}

/* Any nonzero bits: NaNs with payloads, infinities and denormals among them. */
static inline uint64_t random_bits(case_rng *rng, lac_dtype dtype)
{
    uint64_t mask = dtype == LAC_DTYPE_F32 ? 0xffffffffu : 0xffffu, sign = dtype == LAC_DTYPE_F32 ? 0x80000000u : 0x8000u;
    uint64_t bits = 0;
    while (!(bits & mask & ~sign)) bits = case_next(rng);
    return bits & mask;
}

typedef struct test_case {
    lac_pattern pattern;
    int64_t n, k;
    test_dense dense;
    lac_mask *mask;
    char text[160];
} test_case;

/* A random matrix that obeys the pattern. `permuted`: under random permutations that only the mask knows. */
static inline test_case make_case_of(case_rng *rng, uint64_t seed, int permuted, lac_pattern of, int64_t n, int64_t k)
{
    test_case t = {.pattern = of, .n = n, .k = k};
    lac_dtype dtype = case_storage[case_below(rng, 3)];
    t.dense = make_dense(dtype, (lac_layout)case_below(rng, 2), t.n, t.k, case_below(rng, 3));
    char pattern[LAC_PATTERN_TEXT_SIZE];
    ASSERT_OK(lac_pattern_format(&t.pattern, pattern, sizeof pattern));
    snprintf(t.text, sizeof t.text, "seed %llu: %s, %lld x %lld, %s, layout %d%s", (unsigned long long)seed, pattern,
             (long long)t.n, (long long)t.k, lac_dtype_name(dtype), (int)t.dense.view.layout, permuted ? ", permuted" : "");
    int exact = permuted || case_below(rng, 2);
    uint8_t *keep = malloc((size_t)(t.n * t.k + 1));
    uint32_t *rows = malloc((size_t)(t.n + 1) * 4), *cols = malloc((size_t)(t.k + 1) * 4);
    case_keep(rng, &t.pattern, t.n, t.k, exact, keep);
    case_shuffle(rng, rows, t.n);
    case_shuffle(rng, cols, t.k);
    if (!permuted) {
        int move_rows = t.pattern.family == LAC_FAMILY_SHUFFLED;
        for (int64_t r = 0; r < t.n && !move_rows; r++) rows[r] = (uint32_t)r;
        for (int64_t c = 0; c < t.k; c++) cols[c] = (uint32_t)c;
    }
    for (int64_t r = 0; r < t.n; r++) {
        for (int64_t c = 0; c < t.k; c++) {
            set_bits(&t.dense.view, rows[r], cols[c], keep[r * t.k + c] ? random_bits(rng, dtype) : 0);
        }
    }
    if (permuted) {
        ASSERT_OK(lac_mask_create(t.n, t.k, &t.pattern, &t.mask));
        t.mask->row_perm = lac_allocate((uint64_t)t.n * 4);
        t.mask->col_perm = lac_allocate((uint64_t)t.k * 4);
        memcpy(t.mask->row_perm, rows, (size_t)t.n * 4);
        memcpy(t.mask->col_perm, cols, (size_t)t.k * 4);
        for (int64_t i = 0; i < t.n * t.k; i++) {
            if (keep[i]) lac_mask_set(t.mask, rows[i / t.k], cols[i % t.k]);
        }
    } else {
        lac_status status = lac_mask_from_matrix(&t.dense.view, &t.pattern, &t.mask);
        if (status) fail_msg("%s: %s", t.text, lac_last_error());
    }
    free(keep);
    free(rows);
    free(cols);
    return t;
}

/* A weight in 16 bits of small numbers where `keep` has them, and these numbers, for the caller to free: of case `number`, which is bf16 or
 * fp16, eighths or negative halves. */
static inline lac_weight *case_weight(case_rng *rng, const lac_pattern *p, int64_t n, int64_t k, int number,
                                      const uint8_t *keep, float **dense)
{
    lac_mask *mask = NULL;
    lac_weight *weight = NULL;
    float *values = malloc((size_t)(n * k) * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < n * k; i++)
        values[i] = keep[i] ? (float)(1 + case_below(rng, 250)) / (number % 2 ? 8.0f : -2.0f) : 0.0f;
    lac_matrix matrix = {.data = values, .dtype = LAC_DTYPE_F32, .rows = n, .cols = k};
    lac_compress_options options = {.size = sizeof options, .dtype = number % 3 ? LAC_DTYPE_F16 : LAC_DTYPE_BF16};
    ASSERT_OK(lac_mask_from_matrix(&matrix, p, &mask));
    ASSERT_OK(lac_weight_compress(&matrix, mask, &options, &weight));
    lac_mask_free(mask);
    *dense = values;
    return weight;
}

/* The same with a random pattern and shape. */
static inline test_case make_case(case_rng *rng, uint64_t seed, int permuted)
{
    lac_pattern pattern = case_pattern(rng);
    int64_t n = case_below(rng, 8) ? 1 + case_below(rng, 40) : case_below(rng, 3);
    int64_t k = case_below(rng, 8) ? 1 + case_below(rng, 150) : case_below(rng, 3);
    return make_case_of(rng, seed, permuted, pattern, n, k);
}

static inline void free_case(test_case *t)
{
    lac_mask_free(t->mask);
    free(t->dense.view.data);
}

#endif
