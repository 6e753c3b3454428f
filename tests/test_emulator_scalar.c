/* test_emulator_scalar.c - what each lane of the emulator computes for itself, against results worked out by hand; what lanes tell each
 * other; and which lanes an instruction is for, where they went different ways. */
#include "emulator_case.h"

#include <math.h>

enum { LANES = 32, IN = 3 };

/* What a case's kernel works on: a, b and c of each lane, then its result. */
typedef struct numbers {
    uint64_t in[LANES][IN], out[LANES];
} numbers;

/* a, b, c, and the result. */
typedef struct sample {
    uint64_t in[IN], out;
} sample;

/* a is in %d1, %r1, %h1, %f1 and, as whether it is not 0, in %p1; b and c are in the registers of 2 and 3. The result, of any kind, is
 * number 9, of predicates 5. */
typedef struct operation {
    const char *text;
    const sample *samples;
    int count;
} operation;
#define OPERATION(text, ...)                                                                                                   \
    {                                                                                                                          \
        text, (const sample[]){__VA_ARGS__}, sizeof((const sample[]){__VA_ARGS__}) / sizeof(sample)                            \
    }
#define NAN_32 0x7fffffffu /* what arithmetic makes */

static const operation integers[] = {
    OPERATION("shl.b32 %r9, %r1, %r2", {{1, 31, 0}, 0x80000000}, {{1, 32, 0}, 0}, {{1, 0xffffffff, 0}, 0},
              {{~0u, 4, 0}, 0xfffffff0}),
    OPERATION("shl.b64 %d9, %d1, %r2", {{1, 63, 0}, 1ull << 63}, {{1, 64, 0}, 0}, {{3, 32, 0}, 3ull << 32}),
    OPERATION("shl.b16 %h9, %h1, %r2", {{0x8001, 1, 0}, 2}, {{1, 16, 0}, 0}),
    OPERATION("shr.u32 %r9, %r1, %r2", {{0x80000000, 31, 0}, 1}, {{~0u, 32, 0}, 0}),
    OPERATION("shr.s32 %r9, %r1, %r2", {{0x80000000, 31, 0}, ~0u}, {{0x80000000, 200, 0}, ~0u}, {{0x40000000, 99, 0}, 0},
              {{0x80000000, 4, 0}, 0xf8000000}),
    OPERATION("shr.s64 %d9, %d1, %r2", {{1ull << 63, 64, 0}, ~0ull}, {{1ull << 63, 62, 0}, ~1ull}),
    OPERATION("shr.s16 %h9, %h1, %r2", {{0x8000, 15, 0}, 0xffff}, {{0x8000, 3, 0}, 0xf000}, {{0x7000, 40, 0}, 0}),
    OPERATION("div.s32 %r9, %r1, %r2", {{0x80000000, ~0u, 0}, 0x80000000}, {{7, 0, 0}, ~0u}, {{-7u, 2, 0}, -3u}),
    OPERATION("rem.s32 %r9, %r1, %r2", {{0x80000000, ~0u, 0}, 0}, {{7, 0, 0}, ~0u}, {{-7u, 2, 0}, -1u}, {{7, -2u, 0}, 1}),
    OPERATION("div.u32 %r9, %r1, %r2", {{~0u, 2, 0}, 0x7fffffff}, {{5, 0, 0}, ~0u}),
    OPERATION("div.s64 %d9, %d1, %d2", {{1ull << 63, ~0ull, 0}, 1ull << 63}, {{-9ull, 4, 0}, -2ull}, {{1, 0, 0}, ~0ull}),
    OPERATION("rem.u64 %d9, %d1, %d2", {{~0ull, 10, 0}, 5}, {{1, 0, 0}, ~0ull}),
    OPERATION("add.s32 %r9, %r1, -5", {{3, 0, 0}, -2u}, {{0x80000000, 0, 0}, 0x7ffffffb}),
    OPERATION("sub.s16 %h9, %h1, %h2", {{0, 1, 0}, 0xffff}, {{0x8000, 1, 0}, 0x7fff}),
    OPERATION("mul.hi.s32 %r9, %r1, %r2", {{~0u, 1, 0}, ~0u}, {{0x80000000, 0x80000000, 0}, 0x40000000}),
    OPERATION("mul.hi.u32 %r9, %r1, %r2", {{~0u, ~0u, 0}, ~1u}, {{65536, 65535, 0}, 0}),
    OPERATION("mul.hi.u64 %d9, %d1, %d2", {{~0ull, ~0ull, 0}, ~1ull}, {{1ull << 63, 6, 0}, 3}),
    OPERATION("mul.wide.s32 %d9, %r1, %r2", {{-2u, 3, 0}, -6ull}, {{0x80000000, 0x80000000, 0}, 1ull << 62}),
    OPERATION("mul.wide.u32 %d9, %r1, -4", {{~0u, 0, 0}, 0xfffffffb00000004}),
    OPERATION("mad.wide.s16 %r9, %h1, %h2, %r3", {{-2u, 3, 10}, 4}, {{0x8000, 2, 1}, -65535u}),
    OPERATION("mad.lo.s32 %r9, %r1, %r2, %r3", {{65536, 65536, 7}, 7}, {{-3u, 5, 1}, -14u}),
    OPERATION("min.s32 %r9, %r1, %r2", {{~0u, 1, 0}, ~0u}, {{0x7fffffff, 0x80000000, 0}, 0x80000000}),
    OPERATION("max.u32 %r9, %r1, %r2", {{~0u, 1, 0}, ~0u}, {{0x7fffffff, 0x80000000, 0}, 0x80000000}),
    OPERATION("abs.s32 %r9, %r1", {{0x80000000, 0, 0}, 0x80000000}, {{-5u, 0, 0}, 5}),
    OPERATION("neg.s16 %h9, %h1", {{1, 0, 0}, 0xffff}, {{0x8000, 0, 0}, 0x8000}),
    OPERATION("bfe.u32 %r9, %r1, %r2, %r3", {{0x12345678, 4, 8}, 0x67}, {{0x12345678, 28, 8}, 1}, {{~0u, 3, 0}, 0},
              {{~0u, 40, 8}, 0}),
    OPERATION("bfe.s32 %r9, %r1, %r2, %r3", {{0xf0, 4, 4}, ~0u}, {{0x80000000, 40, 8}, ~0u}, {{0x70000000, 28, 8}, 7},
              {{~0u, 3, 0}, 0}),
    OPERATION("bfi.b32 %r9, %r1, %r2, %r3, 8", {{0xab, 0x11223344, 8}, 0x1122ab44}, {{0xff, 5, 32}, 5},
              {{0xab, 0, 28}, 0xb0000000}, {{0xff, 5, 300}, 5}),
    OPERATION("bfi.b64 %d9, %d1, %d2, 60, %r3", {{~0ull, 1, 8}, 0xf000000000000001}, {{~0ull, 1, 0}, 1},
              {{0xff, 0, 2}, 3ull << 60}),
    OPERATION("bfind.u32 %r9, %r1", {{0, 0, 0}, ~0u}, {{1, 0, 0}, 0}, {{0x80000000, 0, 0}, 31}),
    OPERATION("bfind.s32 %r9, %r1", {{~0u, 0, 0}, ~0u}, {{0, 0, 0}, ~0u}, {{~1u, 0, 0}, 0}, {{0x80000000, 0, 0}, 30}),
    OPERATION("bfind.shiftamt.u32 %r9, %r1", {{1, 0, 0}, 31}, {{0, 0, 0}, ~0u}, {{0x80000000, 0, 0}, 0}),
    OPERATION("bfind.u64 %r9, %d1", {{1ull << 40, 0, 0}, 40}, {{0, 0, 0}, ~0u}),
    OPERATION("clz.b32 %r9, %r1", {{0, 0, 0}, 32}, {{1, 0, 0}, 31}, {{~0u, 0, 0}, 0}),
    OPERATION("popc.b64 %r9, %d1", {{~0ull, 0, 0}, 64}, {{0, 0, 0}, 0}, {{0x8000000000000001, 0, 0}, 2}),
    OPERATION("brev.b32 %r9, %r1", {{1, 0, 0}, 0x80000000}, {{0x0000f00d, 0, 0}, 0xb00f0000}),
    OPERATION("prmt.b32 %r9, %r1, %r2, %r3", {{0x44332211, 0x88776655, 0x7531}, 0x88664422},
              {{0x44332211, 0x88776655, 0xf8}, 0x1111ff00}),
    OPERATION("prmt.b32.f4e %r9, %r1, %r2, %r3", {{0x44332211, 0x88776655, 1}, 0x55443322},
              {{0x44332211, 0x88776655, 7}, 0x77665544}),
    OPERATION("prmt.b32.b4e %r9, %r1, %r2, %r3", {{0x44332211, 0x88776655, 1}, 0x77881122},
              {{0x44332211, 0x88776655, 3}, 0x11223344}),
    OPERATION("prmt.b32.rc8 %r9, %r1, %r2, %r3", {{0x44332211, 0, 2}, 0x33333333}),
    OPERATION("prmt.b32.ecl %r9, %r1, %r2, %r3", {{0x44332211, 0, 2}, 0x44333333}),
    OPERATION("prmt.b32.ecr %r9, %r1, %r2, %r3", {{0x44332211, 0, 1}, 0x22222211}),
    OPERATION("prmt.b32.rc16 %r9, %r1, %r2, %r3", {{0x44332211, 0, 1}, 0x44334433}),
    OPERATION("shf.l.wrap.b32 %r9, %r1, %r2, %r3", {{0xf0000000, 1, 4}, 0x1f}, {{0xf0000000, 1, 36}, 0x1f}, {{7, 9, 0}, 9}),
    OPERATION("shf.l.clamp.b32 %r9, %r1, %r2, %r3", {{0xf0000000, 1, 4}, 0x1f}, {{0xf0000000, 1, 36}, 0xf0000000},
              {{7, 9, 32}, 7}),
    OPERATION("shf.r.wrap.b32 %r9, %r1, %r2, %r3", {{0xf0, 0xabc, 4}, 0xc000000f}, {{0xf0, 0xabc, 36}, 0xc000000f},
              {{7, 9, 32}, 7}),
    OPERATION("shf.r.clamp.b32 %r9, %r1, %r2, %r3", {{0xf0, 0xabc, 4}, 0xc000000f}, {{0xf0, 0xabc, 36}, 0xabc},
              {{7, 9, 32}, 9}),
    OPERATION("lop3.b32 %r9, %r1, %r2, %r3, 0xca", {{0xff00ff00, 0x12345678, 0x9abcdef0}, 0x12bc56f0}),
    OPERATION("dp4a.s32.s32 %r9, %r1, %r2, %r3", {{0xff02fe80, 0xff020304, 10}, -503u}),
    OPERATION("dp4a.s32.u32 %r9, %r1, %r2, %r3", {{0xff02fe80, 0xff020304, 10}, -759u}),
    OPERATION("dp4a.u32.s32 %r9, %r1, %r2, %r3", {{0xff02fe80, 0xff020304, 10}, 1033}),
    OPERATION("dp4a.u32.u32 %r9, %r1, %r2, %r3", {{0xff02fe80, 0xff020304, 10}, 66313}),
    OPERATION("selp.b32 %r9, %r1, %r2, !%p3", {{1, 2, 3}, 2}, {{1, 2, 0}, 1}),
    OPERATION("selp.b64 %d9, -1, %d2, %p3", {{0, 2, 3}, ~0ull}, {{0, 2, 0}, 2}),
    OPERATION("setp.lt.s32 %p5, %r1, %r2", {{~0u, 1, 0}, 1}, {{1, 1, 0}, 0}),
    OPERATION("setp.lo.u32 %p5, %r1, %r2", {{~0u, 1, 0}, 0}, {{0, 1, 0}, 1}),
    OPERATION("setp.ge.s64 %p5, %d1, -1", {{~0ull, 0, 0}, 1}, {{~1ull, 0, 0}, 0}),
    OPERATION("setp.eq.b16 %p5, %h1, -1", {{0x1ffff, 0, 0}, 1}, {{0xfffe, 0, 0}, 0}),
    OPERATION("setp.lt.and.s32 %p5|%p4, %r1, %r2, !%p3", {{0, 1, 0}, 1}, {{0, 1, 1}, 0}, {{1, 0, 0}, 0}),
    OPERATION("setp.lt.xor.s32 %p4|%p5, %r1, %r2, %p3", {{0, 1, 0}, 0}, {{0, 1, 1}, 1}, {{1, 0, 1}, 0}),
    OPERATION("xor.pred %p5, %p1, !%p2", {{1, 1, 0}, 1}, {{1, 0, 0}, 0}, {{0, 0, 0}, 1}),
    OPERATION("cvt.s32.s8 %r9, %r1", {{0x180, 0, 0}, 0xffffff80}, {{0x7f, 0, 0}, 0x7f}),
    OPERATION("cvt.s64.s32 %d9, %r1", {{0x80000000, 0, 0}, 0xffffffff80000000}),
    OPERATION("cvt.u64.u32 %d9, %r1", {{0x80000000, 0, 0}, 0x80000000}),
    OPERATION("cvt.u16.u32 %h9, %r1", {{0x12345, 0, 0}, 0x2345}),
    OPERATION("cvt.sat.u8.s32 %h9, %r1", {{-5u, 0, 0}, 0}, {{300, 0, 0}, 255}, {{77, 0, 0}, 77}),
    OPERATION("cvt.sat.s16.s32 %h9, %r1", {{-99999u, 0, 0}, 0x8000}, {{40000, 0, 0}, 0x7fff}),
    OPERATION("mov.b64 %d9, {%r1, %r2}", {{1, 2, 0}, 0x200000001}),
    OPERATION("mov.b32 %r9, {%h1, -2}", {{0x12345, 0, 0}, 0xfffe2345}),
    OPERATION("mov.b32 {_, %h9}, %r1", {{0x12345678, 0, 0}, 0x1234}),
    OPERATION("mov.b64 {%h8, %h7, %h6, %h9}, %d1", {{0x123456789abcdef0, 0, 0}, 0x1234})};

static const operation floats[] = {
    OPERATION("add.f32 %f9, %f1, %f2", {{0x3f800000, 0x33800000, 0}, 0x3f800000}, {{0x3f800001, 0x33800000, 0}, 0x3f800002},
              {{0x7f800001, 0, 0}, NAN_32}, {{0x7f800000, 0xff800000, 0}, NAN_32}),
    OPERATION("min.f32 %f9, %f1, %f2", {{NAN_32, 0x3f800000, 0}, 0x3f800000}, {{0x3f800000, 0xffc12345, 0}, 0x3f800000},
              {{0x7fc00000, 0x7fc00000, 0}, NAN_32}, {{0x80000000, 0, 0}, 0x80000000}, {{0, 0x80000000, 0}, 0x80000000}),
    OPERATION("max.f32 %f9, %f1, %f2", {{NAN_32, 0xff800000, 0}, 0xff800000}, {{0x80000000, 0, 0}, 0}, {{0, 0x80000000, 0}, 0}),
    OPERATION("fma.rn.f32 %f9, %f1, %f2, %f3", {{0x3f800800, 0x3f800800, 0xbf801000}, 0x33800000},
              {{0x3f800000, 0x3f800000, 0xbf800000}, 0}),
    OPERATION("fma.rm.f32 %f9, %f1, %f2, %f3", {{0x3f800000, 0x3f800000, 0x30800000}, 0x3f800000},
              {{0x3f800000, 0x3f800000, 0xb0800000}, 0x3f7fffff}, {{0x3f800000, 0x3f800000, 0xbf800000}, 0x80000000}),
    OPERATION("fma.rp.f32 %f9, %f1, %f2, %f3", {{0x3f800000, 0x3f800000, 0x30800000}, 0x3f800001},
              {{0x3f800000, 0x3f800000, 0xb0800000}, 0x3f800000}),
    OPERATION("fma.rz.f32 %f9, %f1, %f2, %f3", {{0xbf800000, 0x3f800000, 0xb0800000}, 0xbf800000},
              {{0xbf800000, 0x3f800000, 0x30800000}, 0xbf7fffff}),
    OPERATION("add.ftz.f32 %f9, %f1, %f2", {{0x007fffff, 0x80000000, 0}, 0}, {{0x80000001, 0x80000000, 0}, 0x80000000}),
    OPERATION("add.sat.f32 %f9, %f1, %f2", {{0x40000000, 0x40000000, 0}, 0x3f800000}, {{0xbf800000, 0, 0}, 0},
              {{NAN_32, 0, 0}, 0}),
    OPERATION("copysign.f32 %f9, %f1, %f2", {{0x80000000, 0x40000000, 0}, 0xc0000000},
              {{0x3f800000, 0xc0000000, 0}, 0x40000000}),
    OPERATION("neg.f32 %f9, %f1", {{0x7fc12345, 0, 0}, 0xffc12345}, {{0, 0, 0}, 0x80000000}),
    OPERATION("abs.f32 %f9, %f1", {{0xffc12345, 0, 0}, 0x7fc12345}),
    OPERATION("div.rn.f32 %f9, %f1, %f2", {{0x3f800000, 0x40400000, 0}, 0x3eaaaaab}, {{0x3f800000, 0x80000000, 0}, 0xff800000}),
    OPERATION("sqrt.rn.f32 %f9, %f1", {{0x40000000, 0, 0}, 0x3fb504f3}, {{0xbf800000, 0, 0}, NAN_32}),
    OPERATION("ex2.approx.f32 %f9, %f1", {{0x40400000, 0, 0}, 0x41000000}, {{0xff800000, 0, 0}, 0}),
    OPERATION("lg2.approx.f32 %f9, %f1", {{0x41000000, 0, 0}, 0x40400000}, {{0, 0, 0}, 0xff800000}),
    OPERATION("rcp.approx.ftz.f32 %f9, %f1", {{0x40800000, 0, 0}, 0x3e800000}, {{0x80000001, 0, 0}, 0xff800000}),
    OPERATION("fma.rn.f64 %d9, %d1, %d2, %d3",
              {{0x3ff0000000000001, 0x3ff0000000000001, 0xbff0000000000002}, 0x3970000000000000}),
    OPERATION("setp.lt.f32 %p5, %f1, %f2", {{NAN_32, 0, 0}, 0}, {{0x80000000, 0, 0}, 0}, {{0xbf800000, 0, 0}, 1}),
    OPERATION("setp.ltu.f32 %p5, %f1, %f2", {{NAN_32, 0, 0}, 1}, {{0, 0x80000000, 0}, 0}),
    OPERATION("setp.ne.f32 %p5, %f1, %f2", {{NAN_32, 0, 0}, 0}, {{0, 0x80000000, 0}, 0}, {{1, 0, 0}, 1}),
    OPERATION("setp.neu.f32 %p5, %f1, %f2", {{NAN_32, 0, 0}, 1}, {{0, 0x80000000, 0}, 0}),
    OPERATION("setp.num.f32 %p5, %f1, %f2", {{NAN_32, 0, 0}, 0}, {{0x7f800000, 0, 0}, 1}),
    OPERATION("setp.nan.f64 %p5, %d1, %d2", {{0x7ff8000000000000, 0, 0}, 1}, {{0x7ff0000000000000, 0, 0}, 0}),
    OPERATION("cvt.rn.f16.f32 %h9, %f1", {{0x3f801000, 0, 0}, 0x3c00}, {{0x3f803000, 0, 0}, 0x3c02},
              {{0x477fefff, 0, 0}, 0x7bff}, {{0x477ff000, 0, 0}, 0x7c00}, {{0x33000000, 0, 0}, 0}, {{0x33000001, 0, 0}, 1},
              {{0xb3c00000, 0, 0}, 0x8002}, {{0xffc00000, 0, 0}, 0x7fff}),
    OPERATION("cvt.rn.bf16.f32 %h9, %f1", {{0x3f808000, 0, 0}, 0x3f80}, {{0x3f818000, 0, 0}, 0x3f82},
              {{0x3f808001, 0, 0}, 0x3f81}, {{0x7f7fffff, 0, 0}, 0x7f80}, {{0x7f800001, 0, 0}, 0x7fff}),
    OPERATION("cvt.rn.f16x2.f32 %r9, %f1, %f2", {{0x3f800000, 0x40000000, 0}, 0x3c004000}),
    OPERATION("cvt.rn.bf16x2.f32 %r9, %f1, %f2", {{0x3f800000, 0x40000000, 0}, 0x3f804000}),
    OPERATION("cvt.f32.f16 %f9, %h1", {{1, 0, 0}, 0x33800000}, {{0xfc00, 0, 0}, 0xff800000}, {{0x83ff, 0, 0}, 0xb87fc000}),
    OPERATION("cvt.rni.s32.f32 %r9, %f1", {{0x40200000, 0, 0}, 2}, {{0x40600000, 0, 0}, 4}, {{0xc0200000, 0, 0}, -2u},
              {{NAN_32, 0, 0}, 0}, {{0x501502f9, 0, 0}, 0x7fffffff}, {{0xff800000, 0, 0}, 0x80000000}),
    OPERATION("cvt.rzi.s32.f32 %r9, %f1", {{0xbff33333, 0, 0}, -1u}),
    OPERATION("cvt.rmi.s32.f32 %r9, %f1", {{0xbf8ccccd, 0, 0}, -2u}),
    OPERATION("cvt.rpi.s32.f32 %r9, %f1", {{0x3f8ccccd, 0, 0}, 2}),
    OPERATION("cvt.rzi.u32.f32 %r9, %f1", {{0xbf800000, 0, 0}, 0}, {{0x4f951560, 0, 0}, ~0u}),
    OPERATION("cvt.rn.f32.s32 %f9, %r1", {{16777217, 0, 0}, 0x4b800000}, {{16777219, 0, 0}, 0x4b800002},
              {{~0u, 0, 0}, 0xbf800000}),
    OPERATION("cvt.rz.f32.s32 %f9, %r1", {{16777219, 0, 0}, 0x4b800001}),
    OPERATION("fma.rn.f16x2 %r9, %r1, %r2, %r3", {{0x3c033c00, 0x3c034000, 0xbc063c00}, 0x00904200}),
    OPERATION("add.f16x2 %r9, %r1, %r2", {{0x7bff3c00, 0x7bff3c00, 0}, 0x7c004000}),
    OPERATION("mul.f16 %h9, %h1, %h2", {{0x0001, 0x3800, 0}, 0}, {{0x0003, 0x3800, 0}, 2})};

/* ---- one operation, by all lanes and by some */

static const char load_all[] = "mul.wide.u32 %d10, %r0, 24;\nadd.s64 %d10, %d10, %d0;\n"
                               "mul.wide.u32 %d11, %r0, 8;\nadd.s64 %d11, %d11, %d0;\n"
                               "ld.global.u64 %d1, [%d10];\nld.global.u64 %d2, [%d10+8];\nld.global.u64 %d3, [%d10+16];\n"
                               "cvt.u32.u64 %r1, %d1;\ncvt.u32.u64 %r2, %d2;\ncvt.u32.u64 %r3, %d3;\n"
                               "cvt.u16.u64 %h1, %d1;\ncvt.u16.u64 %h2, %d2;\ncvt.u16.u64 %h3, %d3;\n"
                               "mov.b32 %f1, %r1;\nmov.b32 %f2, %r2;\nmov.b32 %f3, %r3;\n"
                               "setp.ne.u64 %p1, %d1, 0;\nsetp.ne.u64 %p2, %d2, 0;\nsetp.ne.u64 %p3, %d3, 0;\n";

/* Stores the register of a kind that the result is in; before, it has its own sign of not being written. */
static const struct {
    char kind;
    const char *before, *after;
    uint64_t untouched;
} kinds[] = {{'r', "mov.b32 %r9, 0x5eed5eed;", "cvt.u64.u32 %d12, %r9;", 0x5eed5eed},
             {'f', "mov.b32 %f9, 0x5eed5eed;", "mov.b32 %r10, %f9;\ncvt.u64.u32 %d12, %r10;", 0x5eed5eed},
             {'d', "mov.b64 %d9, 0x5eed5eed;", "mov.b64 %d12, %d9;", 0x5eed5eed},
             {'h', "mov.b16 %h9, 0x5eed;", "cvt.u64.u16 %d12, %h9;", 0x5eed},
             {'p', "mov.pred %p5, %p4;", "selp.u64 %d12, 1, 0, %p5;", 0}};

static char kind_of(const char *text)
{
    const char *first = strchr(text, '%');
    while (strncmp(first + 2, "9", 1) != 0 && strncmp(first, "%p5", 3) != 0) first = strchr(first + 1, '%');
    return first[1];
}

static int misses_of(const operation *op, numbers *n, uint32_t mask)
{
    char body[4096];
    size_t kind = 0;
    int misses = 0;
    while (kinds[kind].kind != kind_of(op->text)) ++kind;
    snprintf(body, sizeof body,
             "%smov.b32 %%r11, 1;\nshl.b32 %%r11, %%r11, %%r0;\nand.b32 %%r11, %%r11, %u;\nsetp.ne.u32 %%p6, %%r11, 0;\n"
             "mov.pred %%p4, 0;\n%s\n@%%p6 %s;\n%s\nst.global.u64 [%%d11+768], %%d12;\n",
             load_all, mask, kinds[kind].before, op->text, kinds[kind].after);
    for (int lane = 0; lane < LANES; ++lane) memcpy(n->in[lane], op->samples[lane % op->count].in, sizeof n->in[lane]);
    case_must_run(&(case_launch){.threads = LANES}, body, n);
    for (int lane = 0; lane < LANES; ++lane) {
        const sample *s = &op->samples[lane % op->count];
        uint64_t wanted = mask >> lane & 1 ? s->out : kinds[kind].untouched;
        if (n->out[lane] == wanted) continue;
        if (!misses++)
            print_error("%s: of %#llx, %#llx, %#llx it is %#llx, not %#llx\n", op->text, (unsigned long long)s->in[0],
                        (unsigned long long)s->in[1], (unsigned long long)s->in[2], (unsigned long long)n->out[lane],
                        (unsigned long long)wanted);
    }
    return misses;
}

static void check_operations(const operation *operations, size_t count)
{
    numbers *n = case_allocate(sizeof *n);
    int misses = 0;
    for (size_t i = 0; i < count; ++i)
        misses += misses_of(&operations[i], n, UINT32_MAX) + misses_of(&operations[i], n, 0x9e3779b9);
    case_free(n);
    assert_int_equal(misses, 0);
}

static void integers_are_right(void **state)
{
    (void)state;
    _Static_assert(offsetof(numbers, out) == 768, "where kernels store");
    check_operations(integers, sizeof integers / sizeof *integers);
}
static void floats_are_right(void **state)
{
    (void)state;
    check_operations(floats, sizeof floats / sizeof *floats);
}

/* Every number in the middle of two neighbours goes to the even one, and the next float on either side to the nearer. */
static double value_of(uint32_t half, int fraction_bits)
{
    int exponent = (int)(half >> fraction_bits), bias = fraction_bits == 10 ? 15 : 127;
    double fraction = half & ((1u << fraction_bits) - 1), one = 1u << fraction_bits;
    return exponent ? ldexp(one + fraction, exponent - bias - fraction_bits) : ldexp(fraction, 1 - bias - fraction_bits);
}

static void halves_are_rounded_to_even(void **state)
{
    (void)state;
    enum { ALL = 0x7f80 * 3 };
    static const char *const types[] = {"f16", "bf16"};
    struct {
        float in[ALL];
        uint16_t out[ALL];
    } *n = case_allocate(sizeof *n);
    for (int bf16 = 0; bf16 < 2; ++bf16) {
        uint32_t count = bf16 ? 0x7f7f : 0x7bff; /* the last finite one has no neighbour of its kind */
        char body[1024];
        for (uint32_t half = 0; half < count; ++half) {
            float middle = (float)((value_of(half, bf16 ? 7 : 10) + value_of(half + 1, bf16 ? 7 : 10)) / 2);
            n->in[3 * half] = nextafterf(middle, 0);
            n->in[3 * half + 1] = middle;
            n->in[3 * half + 2] = nextafterf(middle, INFINITY);
        }
        snprintf(body, sizeof body,
                 "mov.u32 %%r1, %%ctaid.x;\nmad.lo.s32 %%r1, %%r1, 768, %%r0;\nsetp.ge.u32 %%p1, %%r1, %u;\n@%%p1 ret;\n"
                 "mul.wide.u32 %%d1, %%r1, 4;\nadd.s64 %%d1, %%d1, %%d0;\nld.global.f32 %%f1, [%%d1];\n"
                 "cvt.rn.%s.f32 %%h1, %%f1;\nmul.wide.u32 %%d2, %%r1, 2;\nadd.s64 %%d2, %%d2, %%d0;\n"
                 "st.global.u16 [%%d2+%zu], %%h1;\n",
                 3 * count, types[bf16], sizeof n->in);
        case_must_run(&(case_launch){.threads = 768, .blocks = 3 * count / 768 + 1}, body, n);
        for (uint32_t half = 0; half < count; ++half) {
            const uint16_t *got = &n->out[3 * half];
            if (got[0] != half || got[1] != half + (half & 1) || got[2] != half + 1)
                fail_msg("%s: round %#x: %#x %#x %#x", types[bf16], half, got[0], got[1], got[2]);
        }
    }
    case_free(n);
}

/* ---- what lanes tell each other */

/* Runs a body whose lanes leave their result in %r9. */
static void run_lanes(uint32_t lanes, const char *body, uint32_t *out)
{
    char text[8192];
    snprintf(text, sizeof text, "%s\nmul.wide.u32 %%d1, %%r0, 4;\nadd.s64 %%d1, %%d1, %%d0;\nst.global.u32 [%%d1], %%r9;\n",
             body);
    case_must_run(&(case_launch){.threads = lanes}, text, out);
}

static void shuffles(void **state)
{
    (void)state;
    static const char *const modes[] = {"up", "down", "bfly", "idx"};
    static const int steps[] = {0, 1, 3, 8, 17, 31};
    uint32_t *out = case_allocate(4 * LANES);
    for (int mode = 0; mode < 4; ++mode)
        for (int width = 4; width <= LANES; width *= 2)
            for (size_t i = 0; i < sizeof steps / sizeof *steps; ++i) {
                int step = steps[i];
                char body[512];
                snprintf(
                    body, sizeof body,
                    "mul.lo.u32 %%r1, %%r0, 7;\nshfl.sync.%s.b32 %%r9|%%p1, %%r1, %d, %d, -1;\n@%%p1 add.u32 %%r9, %%r9, 1000;",
                    modes[mode], step, (LANES - width) << 8 | (mode == 0 ? 0 : 31));
                run_lanes(LANES, body, out);
                for (int lane = 0; lane < LANES; ++lane) { /* as CUDA's __shfl_sync has it, which counts in widths */
                    int first = lane / width * width, last = first + width - 1;
                    int from = mode == 0   ? lane - step
                               : mode == 1 ? lane + step
                               : mode == 2 ? lane ^ step
                                           : first + step % width;
                    bool inside = mode == 0 ? from >= first : from <= last;
                    if (out[lane] != (uint32_t)(inside ? 7 * from + 1000 : 7 * lane))
                        fail_msg("%s: lane %d: %u", body, lane, out[lane]);
                }
            }
    case_free(out);
}

/* In two groups, lanes below 12 and the others; %r1 is the lane's own, (lane * 5) & 31 less 9. */
static void votes_and_sums(void **state)
{
    (void)state;
    static const char *const texts[] = {"redux.sync.add.s32 %r9, %r1, %r2;",
                                        "redux.sync.min.s32 %r9, %r1, %r2;",
                                        "redux.sync.max.u32 %r9, %r1, %r2;",
                                        "redux.sync.and.b32 %r9, %r1, %r2;",
                                        "redux.sync.or.b32 %r9, %r1, %r2;",
                                        "redux.sync.xor.b32 %r9, %r1, %r2;",
                                        "vote.sync.ballot.b32 %r9, %p1, %r2;",
                                        "vote.sync.all.pred %p2, %p1, %r2;\nselp.u32 %r9, 1, 0, %p2;",
                                        "vote.sync.any.pred %p2, !%p1, %r2;\nselp.u32 %r9, 1, 0, %p2;",
                                        "vote.sync.uni.pred %p2, %p1, %r2;\nselp.u32 %r9, 1, 0, %p2;",
                                        "match.any.sync.b32 %r9, %r3, %r2;"};
    uint32_t *out = case_allocate(4 * LANES);
    for (size_t t = 0; t < sizeof texts / sizeof *texts; ++t)
        for (int apart = 0; apart < 2; ++apart) { /* whether the groups come there by different ways */
            char body[1024];
            snprintf(
                body, sizeof body,
                "mad.lo.u32 %%r1, %%r0, 5, 0;\nand.b32 %%r1, %%r1, 31;\nsub.u32 %%r1, %%r1, 9;\nand.b32 %%r3, %%r0, 3;\n"
                "setp.lt.u32 %%p3, %%r0, 12;\nselp.b32 %%r2, 0xfff, 0xfffff000, %%p3;\nsetp.lt.s32 %%p1, %%r1, 20;\n%s\n%s\n"
                "bra end;\nother:\n%s\nend:",
                apart ? "@%p3 bra other;" : "", texts[t], texts[t]);
            run_lanes(LANES, body, out);
            for (int lane = 0; lane < LANES; ++lane) {
                int from = lane < 12 ? 0 : 12, to = lane < 12 ? 12 : LANES;
                uint32_t sum = 0, least = ~0u, most = 0, all = ~0u, any = 0, odd = 0, votes = 0, same = 0;
                for (int l = from; l < to; ++l) {
                    uint32_t own = (uint32_t)((l * 5 & 31) - 9);
                    sum += own, most = own > most ? own : most, all &= own, any |= own, odd ^= own;
                    if ((int32_t)own < (int32_t)least || l == from) least = own;
                    votes |= (uint32_t)((int32_t)own < 20) << l;
                    same |= (uint32_t)(l % 4 == lane % 4) << l;
                }
                uint32_t whole = lane < 12 ? 0xfff : 0xfffff000;
                const uint32_t wanted[] = {
                    sum, least, most, all, any, odd, votes, votes == whole, votes != whole, votes == whole || !votes, same};
                if (out[lane] != wanted[t]) fail_msg("%s: lane %d: %#x, not %#x", texts[t], lane, out[lane], wanted[t]);
            }
        }
    case_free(out);
}

/* ---- lanes that go different ways */

#define NESTED                                                                                                                 \
    "mov.u32 %r9, %r0;\nsetp.lt.u32 %p1, %r0, 16;\nand.b32 %r1, %r0, 1;\nsetp.eq.u32 %p2, %r1, 1;\nand.b32 %r1, %r0, 2;\n"     \
    "setp.eq.u32 %p3, %r1, 2;\n@%p1 bra low;\n@%p3 bra high_two;\nmov.b32 %r9, 7;\nbra high_end;\nhigh_two:\n"                 \
    "mul.lo.u32 %r9, %r9, 3;\nhigh_end:\nbra end;\nlow:\n@!%p2 bra even;\nadd.u32 %r9, %r9, 100;\nbra end;\neven:\n"           \
    "add.u32 %r9, %r9, 200;\nend:\n"

static uint32_t nested(uint32_t lane)
{
    if (lane < 16) return lane & 1 ? lane + 100 : lane + 200;
    return lane & 2 ? lane * 3 : 7;
}
static uint32_t all_meet(uint32_t lane) { return (void)lane, UINT32_MAX; }
static uint32_t triangle(uint32_t lane) { return lane * (lane + 1) / 2; }
static uint32_t loops(uint32_t lane) { return lane * (lane % 3); }
static uint32_t gone(uint32_t lane) { return lane >= 20 ? 0xeeeeeeee : 0xfffffu; }
static uint32_t written(uint32_t lane) { return lane >= 8 ? 5 : lane == 3 ? 1 : 2; }
static uint32_t kept(uint32_t lane) { return lane & 1 ? 40 + lane : 3; }
static uint32_t sums(uint32_t lane) { return lane < 16 ? 120 : 376; }

static void lanes_go_different_ways(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        uint32_t (*wanted)(uint32_t lane);
    } cases[] = {
        {NESTED, nested},
        {NESTED "activemask.b32 %r9;", all_meet},
        /* as many turns as the lane's number */
        {"mov.b32 %r9, 0;\nmov.b32 %r1, 0;\nagain:\nsetp.ge.u32 %p1, %r1, %r0;\n@%p1 bra end;\nadd.u32 %r1, %r1, 1;\n"
         "add.u32 %r9, %r9, %r1;\nbra again;\nend:",
         triangle},
        /* a loop in a loop, both of the lane's own length */
        {"mov.b32 %r9, 0;\nmov.b32 %r1, 0;\nrem.u32 %r3, %r0, 3;\nouter:\nsetp.ge.u32 %p1, %r1, %r0;\n@%p1 bra end;\n"
         "mov.b32 %r2, 0;\ninner:\nsetp.ge.u32 %p2, %r2, %r3;\n@%p2 bra next;\nadd.u32 %r9, %r9, 1;\nadd.u32 %r2, %r2, 1;\n"
         "bra inner;\nnext:\nadd.u32 %r1, %r1, 1;\nbra outer;\nend:",
         loops},
        /* the last twelve return; nobody waits for them */
        {"setp.ge.u32 %p1, %r0, 20;\n@%p1 ret;\nbar.sync 0;\nmov.pred %p2, 1;\nvote.sync.ballot.b32 %r9, %p2, -1;", gone},
        /* a predicate that most lanes never wrote is not asked of them */
        {"mov.b32 %r9, 5;\nsetp.ge.u32 %p1, %r0, 8;\n@%p1 bra end;\nsetp.eq.u32 %p2, %r0, 3;\n@%p2 mov.b32 %r9, 1;\n"
         "@!%p2 mov.b32 %r9, 2;\nend:",
         written},
        /* what a lane has written stays its own, though others reuse registers elsewhere */
        {"and.b32 %r1, %r0, 1;\nsetp.eq.u32 %p1, %r1, 1;\n@%p1 bra odd;\nmov.b32 %r2, 1;\nadd.u32 %r3, %r2, 2;\nmov.b32 %r9, "
         "%r3;\n"
         "bra end;\nodd:\nmov.b32 %r4, 40;\nadd.u32 %r9, %r4, %r0;\nend:",
         kept},
        /* halves that came apart exchange among themselves */
        {"setp.lt.u32 %p1, %r0, 16;\n@%p1 bra low;\nredux.sync.add.u32 %r9, %r0, 0xffff0000;\nbra end;\nlow:\n"
         "redux.sync.add.u32 %r9, %r0, 0xffff;\nend:\nbar.warp.sync -1;",
         sums}};
    uint32_t *out = case_allocate(4 * LANES);
    static const char *const orders[] = {NULL, "early", "random"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i)
        for (size_t o = 0; o < 3; ++o) {
            memset(out, 0xee, 4 * LANES);
            case_order(orders[o], 5);
            run_lanes(LANES, cases[i].body, out);
            for (uint32_t lane = 0; lane < LANES; ++lane)
                if (out[lane] != cases[i].wanted(lane)) fail_msg("case %zu, lane %u: %u", i, lane, out[lane]);
        }
    case_order(NULL, 1);
    case_free(out);
}

/* A block whose last warp is not whole; sums by way of shared memory and bar.red. */
static void blocks_of_odd_sizes(void **state)
{
    (void)state;
    static const char body[] =
        "shl.b32 %r1, %r0, 2;\nadd.u32 %r1, %r1, tile;\nmov.u32 %r2, %warpid;\nmov.u32 %r3, %laneid;\n"
        "mad.lo.u32 %r2, %r2, 32, %r3;\nst.shared.u32 [%r1], %r2;\nsetp.eq.u32 %p1, %r0, 39;\n"
        "bar.red.or.pred %p2, 0, %p1;\nmov.u32 %r4, %ntid.x;\nsub.u32 %r4, %r4, %r0;\nshl.b32 %r4, %r4, 2;\n"
        "add.u32 %r4, %r4, tile+-4;\nld.shared.u32 %r9, [%r4];\n@%p2 add.u32 %r9, %r9, 1000;";
    uint32_t *out = case_allocate(4 * 40);
    run_lanes(40, body, out);
    for (uint32_t i = 0; i < 40; ++i) assert_int_equal(out[i], 1000 + 39 - i);
    case_free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_are_right), cmocka_unit_test(floats_are_right), cmocka_unit_test(halves_are_rounded_to_even),
        cmocka_unit_test(shuffles),           cmocka_unit_test(votes_and_sums),   cmocka_unit_test(lanes_go_different_ways),
        cmocka_unit_test(blocks_of_odd_sizes)};
    return cmocka_run_group_tests(tests, case_open, case_close);
}
