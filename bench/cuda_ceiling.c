/* cuda_ceiling.c - what a GPU does at most: fp32 FMAs from registers, tensor-core products from shared memory, bytes read
 * from device memory. backend_cuda.c calls it.
 *
 * The kernels are PTX, written out here and compiled by the driver: a few instructions over and over, for which no
 * compiler is worth asking. On compute capability 9.0 the tensor cores are fed by wgmma, from 8.0 on by mma.sync. */
#include "cuda_ceiling.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- text */

typedef struct text {
    char *bytes;
    size_t length, capacity;
    int failed;
} text;

static void put(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(text *t, const char *format, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (t->length + (size_t)length + 1 > t->capacity) {
        size_t capacity = 2 * t->capacity + sizeof line;
        char *bytes = realloc(t->bytes, capacity);
        t->failed = t->failed || !bytes;
        if (!bytes) return;
        t->bytes = bytes;
        t->capacity = capacity;
    }
    for (int i = 0; i <= length; i++) t->bytes[t->length + (size_t)i] = line[i];
    t->length += (size_t)length;
}

static void *compile(const bench_cuda_probe *probe, text *t, void **module)
{
    void *function = NULL;
    *module = NULL;
    if (t->failed || probe->driver->module_load(module, t->bytes) ||
        probe->driver->module_function(&function, *module, "probe")) {
        if (*module) probe->driver->module_unload(*module);
        *module = NULL;
        function = NULL;
    }
    free(t->bytes);
    return function;
}

/* ---- the kernels */

/* r4: the thread's number in the grid; d0: an address to write to, which never happens. */
static void put_head(text *t, const char *version, const char *target, const char *second)
{
    put(t, ".version %s\n.target %s\n.address_size 64\n", version, target);
    put(t, ".visible .entry probe(.param .u64 address, .param .%s amount)\n{\n", second);
    put(t, ".reg .pred %%p<4>;\n.reg .b32 %%r<16>;\n.reg .b64 %%d<8>;\n");
    put(t, "ld.param.u64 %%d0, [address];\ncvta.to.global.u64 %%d0, %%d0;\n");
    put(t, "mov.u32 %%r0, %%ctaid.x;\nmov.u32 %%r1, %%ntid.x;\nmov.u32 %%r2, %%tid.x;\nmov.u32 %%r3, %%nctaid.x;\n");
    put(t, "mad.lo.u32 %%r4, %%r0, %%r1, %%r2;\n");
}

/* r6 depends on all that was computed, so nothing can be left out; it has this value once in 2^32 times. */
static void put_tail(text *t)
{
    put(t, "setp.ne.u32 %%p1, %%r6, 0x5bd1e995;\n@%%p1 bra END;\nst.global.u32 [%%d0], %%r6;\nEND:\nret;\n}\n");
}

static void put_reader(text *t)
{
    put_head(t, "6.3", "sm_70", "u64");
    put(t, "ld.param.u64 %%d1, [amount];\nmul.wide.u32 %%d2, %%r4, 16;\nmul.lo.u32 %%r5, %%r3, %%r1;\n");
    put(t, "mul.wide.u32 %%d3, %%r5, 16;\nmov.u32 %%r6, 0;\nLOOP:\nsetp.ge.u64 %%p0, %%d2, %%d1;\n@%%p0 bra DONE;\n");
    put(t, "add.u64 %%d4, %%d0, %%d2;\nld.global.v4.u32 {%%r8, %%r9, %%r10, %%r11}, [%%d4];\n");
    for (int i = 8; i < 12; i++) put(t, "xor.b32 %%r6, %%r6, %%r%d;\n", i);
    put(t, "add.u64 %%d2, %%d2, %%d3;\nbra LOOP;\nDONE:\n");
    put_tail(t);
}

static void put_loop_head(text *t) { put(t, "ld.param.u32 %%r5, [amount];\nLOOP:\n"); }

static void put_loop_tail(text *t, int sums)
{
    put(t, "sub.u32 %%r5, %%r5, 1;\nsetp.ne.u32 %%p0, %%r5, 0;\n@%%p0 bra LOOP;\n");
    for (int i = 1; i < sums; i++) put(t, "add.f32 %%f0, %%f0, %%f%d;\n", i);
    put(t, "mov.b32 %%r6, %%f0;\n");
    put_tail(t);
}

/* Few wgmmas a round: the driver takes seconds over a loop of eight. */
enum { CHAINS = 16, UNROLL = 8, WGMMA_UNROLL = 2, WGMMA_SUMS = 128 };

static void put_ffma(text *t)
{
    put_head(t, "6.3", "sm_70", "u32");
    put(t, ".reg .f32 %%f<%d>;\ncvt.rn.f32.u32 %%f%d, %%r4;\nmov.f32 %%f%d, 0f3F7FFFF0;\n", CHAINS + 2, CHAINS, CHAINS + 1);
    for (int i = 0; i < CHAINS; i++) put(t, "add.f32 %%f%d, %%f%d, 0f%08X;\n", i, CHAINS, 0x3F800000u + (unsigned)i * 4096u);
    put_loop_head(t);
    for (int u = 0; u < UNROLL; u++)
        for (int i = 0; i < CHAINS; i++) put(t, "fma.rn.f32 %%f%d, %%f%d, %%f%d, %%f%d;\n", i, i, CHAINS + 1, CHAINS);
    put_loop_tail(t, CHAINS);
}

/* `products` of 16x8 outputs with 4 sums a thread each; k16 for f16, k8 for tf32. */
enum { MMA_PRODUCTS = 8 };

static void put_mma(text *t, int tf32)
{
    put_head(t, "7.0", "sm_80", "u32");
    put(t, ".reg .f32 %%f<%d>;\n.reg .b32 %%a<8>;\n", 4 * MMA_PRODUCTS);
    for (int i = 0; i < 6; i++) put(t, "add.u32 %%a%d, %%r4, 0x%08X;\n", i, tf32 ? 0x3F000000u : 0x38003400u + (unsigned)i);
    for (int i = 0; i < 4 * MMA_PRODUCTS; i++) put(t, "mov.f32 %%f%d, 0f00000000;\n", i);
    put_loop_head(t);
    for (int i = 0; i < 4 * MMA_PRODUCTS; i += 4) {
        put(t, "mma.sync.aligned.%s {%%f%d, %%f%d, %%f%d, %%f%d}, {%%a0, %%a1, %%a2, %%a3}, {%%a4, %%a5}, ",
            tf32 ? "m16n8k8.row.col.f32.tf32.tf32.f32" : "m16n8k16.row.col.f32.f16.f16.f32", i, i + 1, i + 2, i + 3);
        put(t, "{%%f%d, %%f%d, %%f%d, %%f%d};\n", i, i + 1, i + 2, i + 3);
    }
    put_loop_tail(t, 4 * MMA_PRODUCTS);
}

/* Both operands from the same 16 KiB of shared memory, in 8x16-byte core matrices without swizzle. */
static void put_wgmma(text *t, int tf32)
{
    put_head(t, "8.0", "sm_90a", "u32");
    put(t, ".reg .f32 %%f<%d>;\n.shared .align 128 .b8 operands[16384];\n", WGMMA_SUMS);
    put(t, "mov.u32 %%r7, operands;\nshl.b32 %%r8, %%r2, 6;\nadd.u32 %%r8, %%r8, %%r7;\n");
    for (int i = 0; i < 16; i++) {
        put(t, "add.u32 %%r9, %%r4, 0x%08X;\n", (tf32 ? 0x3F000000u : 0x38003400u) + (unsigned)i * 1021u);
        put(t, "st.shared.u32 [%%r8+%d], %%r9;\n", 4 * i);
    }
    put(t, "fence.proxy.async;\nbar.sync 0;\nshr.u32 %%r7, %%r7, 4;\ncvt.u64.u32 %%d1, %%r7;\n");
    put(t, "or.b64 %%d1, %%d1, 0x%llX;\n", (128ULL >> 4) << 16 | (256ULL >> 4) << 32);
    for (int i = 0; i < WGMMA_SUMS; i++) put(t, "mov.f32 %%f%d, 0f00000000;\n", i);
    put_loop_head(t);
    put(t, "wgmma.fence.sync.aligned;\n");
    for (int u = 0; u < WGMMA_UNROLL; u++) {
        put(t, "wgmma.mma_async.sync.aligned.%s {", tf32 ? "m64n256k8.f32.tf32.tf32" : "m64n256k16.f32.f16.f16");
        for (int i = 0; i < WGMMA_SUMS; i++) put(t, "%s%%f%d", i ? ", " : "", i);
        put(t, "}, %%d1, %%d1, 1, 1, 1%s;\n", tf32 ? "" : ", 0, 0");
    }
    put(t, "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n");
    put_loop_tail(t, WGMMA_SUMS);
}

/* ---- running */

void *bench_cuda_reader_open(const bench_cuda_probe *probe, void **module)
{
    text t = {0};
    put_reader(&t);
    return compile(probe, &t, module);
}

int bench_cuda_reader_run(const bench_cuda_probe *probe, void *reader, uint64_t address, size_t bytes)
{
    uint64_t amount = bytes / 16 * 16;
    void *parameters[] = {&address, &amount};
    return probe->driver->launch(reader, (unsigned)probe->multiprocessors * 8, 1, 1, 256, 1, 1, 0, probe->stream, parameters,
                                 NULL);
}

typedef struct timer {
    const bench_cuda_probe *probe;
    void *begin, *end;
    uint64_t block; /* device memory */
    size_t block_bytes;
} timer;

/* Seconds of one launch; 0 when something failed. */
static double time_launch(const timer *t, void *function, unsigned blocks, unsigned threads, void **parameters)
{
    const bench_cuda_driver *d = t->probe->driver;
    float milliseconds = 0;
    if (d->event_record(t->begin, t->probe->stream) ||
        d->launch(function, blocks, 1, 1, threads, 1, 1, 0, t->probe->stream, parameters, NULL) ||
        d->event_record(t->end, t->probe->stream) || d->stream_wait(t->probe->stream) ||
        d->event_elapsed(&milliseconds, t->begin, t->end))
        return 0;
    return 1e-3 * (double)milliseconds;
}

/* The best of a few launches of about 2 ms: `amount` is the work of one round of one thread block. */
static double time_rounds(const timer *t, text *source, unsigned blocks, unsigned threads, double amount)
{
    void *module;
    void *function = compile(t->probe, source, &module);
    if (!function) return 0;
    uint64_t address = t->block;
    uint32_t rounds = 200;
    void *parameters[] = {&address, &rounds};
    double best = 0;
    for (int i = 0; i < 6; i++) {
        double seconds = time_launch(t, function, blocks, threads, parameters);
        if (!(seconds > 0)) break;
        double rate = amount * rounds * blocks / seconds;
        if (seconds >= 1e-3 && rate > best) best = rate; /* shorter ones are not told exactly enough */
        if (seconds < 1e-3) rounds = (uint32_t)(rounds * 2e-3 / seconds) + 1;
    }
    t->probe->driver->module_unload(module);
    return best;
}

static double time_reading(const timer *t)
{
    void *module;
    void *reader = bench_cuda_reader_open(t->probe, &module);
    uint64_t address = t->block, bytes = t->block_bytes;
    void *parameters[] = {&address, &bytes};
    double best = 0;
    for (int i = 0; reader && i < 5; i++) {
        double seconds = time_launch(t, reader, (unsigned)t->probe->multiprocessors * 8, 256, parameters);
        if (seconds > 0 && (double)bytes / seconds > best) best = (double)bytes / seconds;
    }
    if (module) t->probe->driver->module_unload(module);
    return best;
}

static double time_ffma(const timer *t)
{
    text source = {0};
    put_ffma(&source);
    return time_rounds(t, &source, (unsigned)t->probe->multiprocessors * 4, 512, 2.0 * CHAINS * UNROLL * 512);
}

static double time_tensor(const timer *t, int tf32)
{
    text source = {0};
    unsigned blocks = (unsigned)t->probe->multiprocessors;
    int depth = tf32 ? 8 : 16;
    if (t->probe->arch == 90) {
        put_wgmma(&source, tf32);
        return time_rounds(t, &source, blocks, 256, 2.0 * WGMMA_UNROLL * 2 * 64 * 256 * depth);
    }
    if (t->probe->arch < 80) return 0;
    put_mma(&source, tf32);
    return time_rounds(t, &source, 2 * blocks, 512, 2.0 * MMA_PRODUCTS * 16 * 16 * 8 * depth);
}

int bench_cuda_ceiling_measure(const bench_cuda_probe *probe, int want_f16, int want_tf32, bench_ceiling *out, char *why,
                               size_t why_size)
{
    const bench_cuda_driver *d = probe->driver;
    timer t = {.probe = probe, .block_bytes = (size_t)1 << 30};
    int result;
    if (!(result = d->event_create(&t.begin, 0)) && !(result = d->event_create(&t.end, 0)) &&
        !(result = d->allocate(&t.block, t.block_bytes))) {
        out->flops = time_ffma(&t); /* the longest first: it wakes the clocks */
        if (want_f16) out->tensor_f16 = time_tensor(&t, 0);
        if (want_tf32) out->tensor_tf32 = time_tensor(&t, 1);
        out->memory_bytes = time_reading(&t);
        out->cache_bytes = out->memory_bytes;
        if (!(out->flops > 0) || !(out->memory_bytes > 0)) result = d->stream_wait(probe->stream);
    }
    if (result || !(out->flops > 0) || !(out->memory_bytes > 0))
        snprintf(why, why_size, "the kernels that measure the GPU's ceilings failed: %s",
                 result ? bench_cuda_error(d, result) : "the driver does not compile them");
    if (t.block) d->release(t.block);
    if (t.begin) d->event_destroy(t.begin);
    if (t.end) d->event_destroy(t.end);
    return result || !(out->flops > 0) || !(out->memory_bytes > 0);
}
