/* test_emulator_matrix.c - the emulator's matrix instructions against plain loops over whole matrices, and wgmma.sp against a GPU's own
 * results. A kernel takes registers and shared memory as the test has laid them out, runs one instruction, and gives registers back. */
#include "emulator_case.h"

#include <math.h>

#include "wgmma_golden.h"

enum { WARPS = 4, LANES = 32, REGISTERS = 9, MOST_D = 128, SHARED = 80 << 10, FIRST = EMU_SHARED_FIRST };

/* What kernels read and write: registers %r20 on and %f0 on of each warp, and shared memory. */
typedef struct frame {
    uint32_t in[WARPS][REGISTERS][LANES];
    float d[WARPS][MOST_D][LANES];
    unsigned char shared[SHARED];
} frame;

/* Places among %r20 and its followers. */
enum { A0 = 0, B0 = 4, PLACES = 8 };

typedef struct text {
    char at[CASE_TEXT / 2];
    size_t length;
} text;

static void __attribute__((format(printf, 2, 3))) put(text *t, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int more = vsnprintf(t->at + t->length, sizeof t->at - t->length, format, arguments);
    va_end(arguments);
    t->length += (size_t)more;
    assert_true(t->length < sizeof t->at);
}

/* {%f0, %f1, ...} */
static void put_vector(text *t, char kind, int first, int count)
{
    for (int i = 0; i < count; ++i) put(t, "%s%%%c%d", i ? ", " : "{", kind, first + i);
    put(t, "}");
}

/* Runs `middle` between loads of everything and stores of `d` registers, of kind 'f' from %f0 or 'r' from %r40 on. */
static void run_middle(frame *f, int warps, int d, char kind, uint32_t shared, const char *middle)
{
    static text t;
    int step = warps * LANES * 16, first = kind == 'f' ? 0 : 40;
    t.length = 0;
    put(&t, "mov.u32 %%r1, %%laneid;\nmov.u32 %%r2, %%warpid;\nmul.wide.u32 %%d1, %%r1, 4;\nadd.s64 %%d1, %%d1, %%d0;\n");
    put(&t, "mul.wide.u32 %%d2, %%r2, %zu;\nadd.s64 %%d2, %%d2, %%d1;\n", sizeof f->in[0]);
    put(&t, "mul.wide.u32 %%d3, %%r2, %zu;\nadd.s64 %%d3, %%d3, %%d1;\n", sizeof f->d[0]);
    put(&t, "mul.wide.u32 %%d4, %%r0, 16;\nadd.s64 %%d4, %%d4, %%d0;\nshl.b32 %%r3, %%r0, 4;\ncopy:\n");
    put(&t, "ld.global.v4.u32 {%%r4, %%r5, %%r6, %%r7}, [%%d4+%zu];\n", offsetof(frame, shared));
    put(&t, "st.shared.v4.u32 [%%r3+%d], {%%r4, %%r5, %%r6, %%r7};\nadd.s64 %%d4, %%d4, %d;\nadd.u32 %%r3, %%r3, %d;\n", FIRST,
        step, step);
    put(&t, "setp.lt.u32 %%p1, %%r3, %u;\n@%%p1 bra copy;\nfence.proxy.async;\nbar.sync 0;\n", shared);
    for (int i = 0; i < REGISTERS; ++i) put(&t, "ld.global.u32 %%r%d, [%%d2+%d];\n", 20 + i, 4 * LANES * i);
    for (int i = 0; i < d; ++i)
        put(&t, "ld.global.b32 %%%c%d, [%%d3+%zu];\n", kind, first + i, offsetof(frame, d) + 4u * LANES * (unsigned)i);
    put(&t, "%s\n", middle);
    for (int i = 0; i < d; ++i)
        put(&t, "st.global.b32 [%%d3+%zu], %%%c%d;\n", offsetof(frame, d) + 4u * LANES * (unsigned)i, kind, first + i);
    case_must_run(&(case_launch){.threads = (uint32_t)warps * LANES, .dynamic_shared = SHARED - 4096}, t.at, f);
}

/* ---- numbers */

static uint64_t seed;
static uint32_t any(void)
{
    seed += UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 */
    uint64_t z = (seed ^ seed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)(z >> 32);
}
static int below(int count) { return (int)(any() % (uint32_t)count); }

/* A times B plus D, as halves' bits; kept: whether A has it. */
typedef struct product {
    bool bf16, sparse;
    int k, n;
    uint16_t a[64][32], b[32][256];
    bool kept[64][32];
    float d[64][256];
} product;

static double value_of(const product *p, uint16_t bits)
{
    int fraction_bits = p->bf16 ? 7 : 10, bias = p->bf16 ? 127 : 15, exponent = (bits & 0x7fff) >> fraction_bits;
    double fraction = bits & ((1 << fraction_bits) - 1), one = 1 << fraction_bits, value;
    if (exponent == 2 * bias + 1)
        value = fraction != 0 ? NAN : INFINITY;
    else
        value = exponent ? ldexp(one + fraction, exponent - bias - fraction_bits) : ldexp(fraction, 1 - bias - fraction_bits);
    return bits & 0x8000 ? -value : value;
}

/* Numbers whose products and sums are exact in double; of wild ones a few are none. */
static uint16_t any_half(bool bf16, bool wild)
{
    static const uint16_t odd[2][6] = {{0x7c00, 0xfc00, 0x7e00, 0, 1, 0x8003}, {0x7f80, 0xff80, 0x7fc0, 0, 0x8000, 0x3f81}};
    if (wild && below(60) == 0) return odd[bf16][below(6)];
    uint16_t exponent = (uint16_t)((bf16 ? 127 : 15) - 3 + below(6));
    return (uint16_t)(below(2) << 15 | exponent << (bf16 ? 7 : 10) | below(bf16 ? 128 : 1024));
}

static void fill(product *p, bool wild)
{
    for (int r = 0; r < 64; ++r) {
        for (int k = 0; k < 32; ++k) p->a[r][k] = any_half(p->bf16, wild), p->kept[r][k] = !p->sparse;
        for (int k = 0; p->sparse && k < 32; k += 4) {
            int one = below(4), other = (one + 1 + below(3)) % 4;
            p->kept[r][k + one] = p->kept[r][k + other] = true;
        }
        for (int n = 0; n < 256; ++n) p->d[r][n] = (float)(below(4001) - 2000) / 64.0f;
    }
    for (int k = 0; k < 32; ++k)
        for (int n = 0; n < 256; ++n) p->b[k][n] = any_half(p->bf16, wild);
}

static float wanted_of(const product *p, int row, int column, bool adds, int sign)
{
    double sum = 0;
    for (int k = 0; k < p->k; ++k)
        if (p->kept[row][k]) sum += value_of(p, p->a[row][k]) * value_of(p, p->b[k][column]);
    return (float)(sign * sum + (adds ? p->d[row][column] : 0));
}
static bool is_same(float a, float b) { return (isnan(a) && isnan(b)) || a == b; }

/* What stands at place i of a row of A as it is stored. */
static uint16_t stored(const product *p, int row, int i)
{
    for (int k = 0; k < 32; ++k)
        if (p->kept[row][k] && i-- == 0) return p->a[row][k];
    return 0;
}
/* The 16 bits of places of 16 k. */
static uint32_t places(const product *p, int row, int sixteen)
{
    uint32_t bits = 0;
    for (int k = 16 * sixteen, at = 0; k < 16 * sixteen + 16; ++k)
        if (p->kept[row][k]) bits |= (uint32_t)(k % 4) << 2 * at++;
    return bits;
}

/* Registers of a warp whose first row is `row`: A, and the places, which `selector` says the lanes of. */
static void fill_left(frame *f, const product *p, int warp, int row, int kept, int selector)
{
    for (int lane = 0; lane < LANES; ++lane) {
        int g = lane / 4, t = lane % 4, lanes = kept / 8; /* of four: so many bring places */
        for (int i = 0; i < kept / 4; ++i) {
            int r = row + g + i % 2 * 8, c = 2 * t + i / 2 * 8;
            f->in[warp][A0 + i][lane] = stored(p, r, c) | (uint32_t)stored(p, r, c + 1) << 16;
        }
        f->in[warp][PLACES][lane] = 0; /* which would be an error */
        if (p->sparse && t / lanes == selector)
            f->in[warp][PLACES][lane] = places(p, row + g, t % lanes) | places(p, row + g + 8, t % lanes) << 16;
    }
}

/* Register i of a lane is this element of D. */
static int row_of(int warp, int lane, int i) { return warp * 16 + lane / 4 + (i & 2 ? 8 : 0); }
static int column_of(int lane, int i) { return i / 4 * 8 + lane % 4 * 2 + (i & 1); }

static void fill_d(frame *f, const product *p, int warps)
{
    for (int w = 0; w < warps; ++w)
        for (int i = 0; i < p->n / 2; ++i)
            for (int lane = 0; lane < LANES; ++lane) f->d[w][i][lane] = p->d[row_of(w, lane, i)][column_of(lane, i)];
}
static void check_d(const frame *f, const product *p, int warps, bool adds, int sign, const char *what)
{
    for (int w = 0; w < warps; ++w)
        for (int i = 0; i < p->n / 2; ++i)
            for (int lane = 0; lane < LANES; ++lane) {
                float wanted = wanted_of(p, row_of(w, lane, i), column_of(lane, i), adds, sign), got = f->d[w][i][lane];
                if (!is_same(got, wanted))
                    fail_msg("%s: warp %d, lane %d, register %d: %g, not %g", what, w, lane, i, got, wanted);
            }
}

/* ---- moves */

static void matrices_are_moved(void **state)
{
    (void)state;
    frame *f = case_allocate(sizeof *f);
    for (int count = 1; count <= 4; count *= 2)
        for (int turned = 0; turned < 2; ++turned) {
            static text t;
            uint16_t m[4][8][8];
            seed = (uint64_t)(2 * count + turned);
            for (int i = 0; i < 256; ++i) m[i / 64][i / 8 % 8][i % 8] = (uint16_t)any();
            for (int lane = 0; lane < LANES;
                 ++lane) { /* rows in no order; the address of a lane whose row is not wanted is nonsense */
                int at = 16 * (lane * 7 % 32);
                f->in[0][A0][lane] = lane < 8 * count ? (uint32_t)(FIRST + at) : 3;
                f->in[0][A0 + 1][lane] = (uint32_t)(FIRST + at + 2048);
                memcpy(f->shared + at, m[lane / 8][lane % 8], 16);
            }
            t.length = 0;
            put(&t, "ldmatrix.sync.aligned.m8n8.x%d%s.shared.b16 ", count, turned ? ".trans" : "");
            put_vector(&t, 'r', 40, count);
            put(&t, ", [%%r20];\nstmatrix.sync.aligned.m8n8.x%d%s.shared.b16 [%%r20+2048], ", count, turned ? ".trans" : "");
            put_vector(&t, 'r', 40, count);
            put(&t, ";\nld.shared.v4.u32 {%%r44, %%r45, %%r46, %%r47}, [%%r21];\n"
                    "movmatrix.sync.aligned.m8n8.trans.b16 %%r48, %%r40;");
            run_middle(f, 1, 9, 'r', 4096, t.at);
            for (int lane = 0; lane < LANES; ++lane) {
                int g = lane / 4, t2 = lane % 4 * 2;
                uint16_t got[2], back[8], across[2];
                for (int i = 0; i < count; ++i) {
                    memcpy(got, &f->d[0][i][lane], 4);
                    for (int h = 0; h < 2; ++h) assert_int_equal(got[h], turned ? m[i][t2 + h][g] : m[i][g][t2 + h]);
                }
                memcpy(across, &f->d[0][8][lane], 4);
                for (int h = 0; h < 2; ++h) assert_int_equal(across[h], turned ? m[0][g][t2 + h] : m[0][t2 + h][g]);
                if (lane >= 8 * count) continue;
                for (int i = 0; i < 4; ++i) memcpy(back + 2 * i, &f->d[0][4 + i][lane], 4);
                assert_memory_equal(back, m[lane / 8][lane % 8], 16);
            }
        }
    case_free(f);
}

/* ---- mma and mma.sp */

static void products_of_a_warp(void **state)
{
    (void)state;
    static product p;
    frame *f = case_allocate(sizeof *f);
    for (int trial = 0; trial < 64; ++trial) {
        static text t;
        static const int depths[] = {8, 16, 16, 32};
        const char *type = trial & 4 ? "bf16" : "f16", *kind = trial & 8 ? "sp::ordered_metadata." : "sp.";
        seed = (uint64_t)trial;
        p.bf16 = trial & 4;
        p.sparse = trial & 2;
        p.k = depths[trial & 3];
        p.n = 8;
        int kept = p.sparse ? p.k / 2 : p.k, selector = below(32 / kept);
        fill(&p, trial >= 32);
        fill_left(f, &p, 0, 0, kept, selector);
        fill_d(f, &p, 1);
        for (int lane = 0; lane < LANES; ++lane)
            for (int i = 0; i < p.k / 8; ++i)
                f->in[0][B0 + i][lane] = p.b[8 * i + lane % 4 * 2][lane / 4] | (uint32_t)p.b[8 * i + lane % 4 * 2 + 1][lane / 4]
                                                                                   << 16;
        t.length = 0;
        put(&t, "mma.%ssync.aligned.m16n8k%d.row.col.f32.%s.%s.f32 {%%f0, %%f1, %%f2, %%f3}, ", p.sparse ? kind : "", p.k, type,
            type);
        put_vector(&t, 'r', 20 + A0, kept / 4);
        put(&t, ", ");
        put_vector(&t, 'r', 20 + B0, p.k / 8);
        put(&t, ", {%%f0, %%f1, %%f2, %%f3}");
        if (p.sparse) put(&t, ", %%r%d, %d", 20 + PLACES, selector);
        put(&t, ";");
        run_middle(f, 1, 4, 'f', 16, t.at);
        check_d(f, &p, 1, true, 1, t.at);
    }
    case_free(f);
}

/* ---- wgmma */

/* How a matrix of rows (A's, or B's columns) by k lies: 8 x 8 by themselves, or rows of k or of mn in swizzled spans, as wgmma_tile.cuh
 * draws them; and what its descriptor says of that. */
enum { PLAIN, K128, K64, K32, MN128, MN64, MN32, MN_PLAIN, LAYOUTS };

static uint32_t place_of(int layout, int mn, int k, int depth, int extent)
{
    int chunk = k / 8, turned = mn / 8, at;
    switch (layout) {
    case PLAIN:
        at = turned * (depth / 8) * 128 + chunk * 128 + mn % 8 * 16;
        break;
    case K128:
        at = mn * 128 + (chunk ^ (mn & 7)) * 16;
        break;
    case K64:
        at = mn * 64 + (chunk ^ (mn >> 1 & 3)) * 16;
        break;
    case K32:
        at = mn * 32 + (chunk ^ (mn >> 2 & 1)) * 16;
        break;
    case MN128:
        at = mn / 64 * 64 * 128 + k * 128 + (turned % 8 ^ (k & 7)) * 16;
        break;
    case MN64:
        at = mn / 32 * 64 * 64 + k * 64 + (turned % 4 ^ (k >> 1 & 3)) * 16;
        break;
    case MN32:
        at = mn / 16 * 64 * 32 + k * 32 + (turned % 2 ^ (k >> 2 & 1)) * 16;
        break;
    default:
        at = chunk * (extent / 8) * 128 + turned * 128 + k % 8 * 16;
        break;
    }
    return (uint32_t)(at + (layout >= MN128 ? mn : k) % 8 * 2);
}

static uint64_t descriptor_of(int layout, uint32_t base, int depth, int extent)
{
    const uint64_t fields[LAYOUTS][3] = {{128, (uint64_t)depth * 16, 0},
                                         {16, 1024, 1},
                                         {16, 512, 2},
                                         {16, 256, 3},
                                         {8192, 1024, 1},
                                         {4096, 512, 2},
                                         {2048, 256, 3},
                                         {(uint64_t)extent * 16, 128, 0}};
    return base >> 4 | fields[layout][0] >> 4 << 16 | fields[layout][1] >> 4 << 32 | fields[layout][2] << 62;
}

static void put_half(frame *f, uint32_t address, uint16_t half) { memcpy(f->shared + address - FIRST, &half, 2); }

/* The text of one wgmma between its fence and its wait; `a` NULL: in registers. */
static const char *wgmma_text(const product *p, const uint64_t *a, uint64_t b, int selector, bool adds, int sign, bool turned_a,
                              bool turned_b)
{
    static text t;
    const char *type = p->bf16 ? "bf16" : "f16";
    t.length = 0;
    put(&t, "mov.pred %%p2, %d;\nmov.b64 %%d5, %lld;\nmov.b64 %%d6, %lld;\nwgmma.fence.sync.aligned;\n", adds,
        a ? (long long)*a : 0, (long long)b);
    put(&t, "wgmma.mma_async.%ssync.aligned.m64n%dk%d.f32.%s.%s ", p->sparse ? "sp." : "", p->n, p->k, type, type);
    put_vector(&t, 'f', 0, p->n / 2);
    put(&t, ", %s, %%d6, ", a ? "%d5" : "{%r20, %r21, %r22, %r23}");
    if (p->sparse) put(&t, "%%r28, %d, ", selector);
    put(&t, "%%p2, %d, 1, ", sign);
    if (a) put(&t, "%d, ", turned_a);
    put(&t, "%d;\nwgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;", turned_b);
    return t.at;
}

static void products_of_a_warpgroup(void **state)
{
    (void)state;
    static product p;
    frame *f = case_allocate(sizeof *f);
    const uint32_t at_a = FIRST + 1024, at_b = FIRST + (12 << 10);
    for (int trial = 0; trial < 96; ++trial) {
        seed = (uint64_t)trial;
        p.bf16 = below(2);
        p.sparse = below(2);
        p.k = p.sparse ? 32 : 16;
        p.n = 8 + 8 * below(32);
        bool held = below(3) == 0, adds = below(3);
        int layout_a = trial % LAYOUTS, layout_b = trial / LAYOUTS % LAYOUTS, selector = below(2), sign = below(4) ? 1 : -1;
        if (p.k == 32 && layout_b == K32) layout_b = K64; /* k has no room */
        fill(&p, trial % 4 == 3);
        for (int i = 0; i < SHARED; i += 4) memcpy(f->shared + i, &(uint32_t){any()}, 4);
        for (int w = 0; w < WARPS; ++w) fill_left(f, &p, w, 16 * w, 16, selector);
        for (int r = 0; r < 64; ++r)
            for (int i = 0; i < 16; ++i) put_half(f, at_a + place_of(layout_a, r, i, 16, 64), stored(&p, r, i));
        for (int k = 0; k < p.k; ++k)
            for (int n = 0; n < p.n; ++n) put_half(f, at_b + place_of(layout_b, n, k, p.k, p.n), p.b[k][n]);
        fill_d(f, &p, WARPS);
        uint64_t a = descriptor_of(layout_a, at_a, 16, 64), b = descriptor_of(layout_b, at_b, p.k, p.n);
        const char *middle = wgmma_text(&p, held ? NULL : &a, b, selector, adds, sign, layout_a >= MN128, layout_b >= MN128);
        run_middle(f, WARPS, p.n / 2, 'f', SHARED, middle);
        check_d(f, &p, WARPS, adds, sign, middle);
    }
    case_free(f);
}

/* A all ones, B the identity: the product has a one where the places picked. */
static void places_pick_what_a_gpu_picked(void **state)
{
    (void)state;
    static product p;
    const uint16_t one = 0x3c00;
    const uint32_t at_a = FIRST + 1024, at_b = FIRST + (12 << 10);
    frame *f = case_allocate(sizeof *f);
    p.sparse = true;
    p.k = 32;
    p.n = 64;
    memset(f->shared, 0, sizeof f->shared);
    for (int r = 0; r < 64; ++r)
        for (int i = 0; i < 16; ++i) put_half(f, at_a + place_of(K64, r, i, 16, 64), one);
    for (int k = 0; k < 32; ++k) put_half(f, at_b + place_of(MN128, k, k, 32, 64), one);
    for (int selector = 0; selector < 2; ++selector) {
        uint64_t a = descriptor_of(K64, at_a, 16, 64), b = descriptor_of(MN128, at_b, 32, 64);
        for (int thread = 0; thread < 128; ++thread)
            f->in[thread / LANES][PLACES][thread % LANES] = wgmma_golden[selector].words[thread];
        run_middle(f, WARPS, 32, 'f', SHARED, wgmma_text(&p, &a, b, selector, false, 1, false, true));
        for (int w = 0; w < WARPS; ++w)
            for (int i = 0; i < 32; ++i)
                for (int lane = 0; lane < LANES; ++lane) {
                    int column = column_of(lane, i);
                    bool picked = column < 32 && wgmma_golden[selector].picked[row_of(w, lane, i)] >> column & 1;
                    assert_true(f->d[w][i][lane] == (picked ? 1.0f : 0.0f));
                }
    }
    case_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(matrices_are_moved), cmocka_unit_test(products_of_a_warp),
                                       cmocka_unit_test(products_of_a_warpgroup),
                                       cmocka_unit_test(places_pick_what_a_gpu_picked)};
    return cmocka_run_group_tests(tests, case_open, case_close);
}
