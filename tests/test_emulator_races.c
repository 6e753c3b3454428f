/* test_emulator_races.c - accesses to shared memory that nothing orders are found (tests/emulator/races.c): each kernel has one, and runs
 * through when it is mended, whatever order copies land in and warps run in. */
#include "emulator_fault.h"

/* Two warps, of which %p1 is the second; an mbarrier at tile for one arrival. */
#define TWO                                                                                                                    \
    {                                                                                                                          \
        .threads = 64                                                                                                          \
    }
#define SECOND   "setp.ge.u32 %p1, %r0, 32;\nsetp.ne.u32 %p4, %r0, 0;\nsetp.ne.u32 %p5, %r0, 32;\n"
#define BARRIER  SECOND "@!%p4 mbarrier.init.shared::cta.b64 [tile], 1;\nfence.mbarrier_init.release.cluster;\nbar.sync 0;\n"
#define ARRIVE   "@!%p4 mbarrier.arrive.shared::cta.b64 _, [tile];\n"
#define FIRST_GO "@%p1 bra second;\n"
#define AWAIT    "again:\nmbarrier.try_wait.parity.shared::cta.b64 %p6, [tile], 0;\n@!%p6 bra again;\n"
#define META     "bar.warp.sync -1;\n"

/* Thread 0 refills tile+128 with 16 bytes, and tells the mbarrier at tile+8. */
#define REFILL                                                                                                                 \
    "mbarrier.arrive.expect_tx.shared::cta.b64 _, [tile+8], 16;\n" BULK "[tile+128], [%d0], 16, [tile+8];\n"                   \
    "filled:\nmbarrier.try_wait.parity.shared::cta.b64 %p6, [tile+8], 0;\n@!%p6 bra filled;\n"

static void between_warps(void **state)
{
    (void)state;
    static const fault faults[] = {
        {"a word read before it is known to be written",
         SECOND "@!%p4 st.shared.u32 [tile], 5;\n$@!%p5 ld.shared.u32 %r1, [tile];\n", "", "bar.sync 0;\n",
         .says = "reads 0x400 of block 0 of the cluster, which was written at line", .launch = TWO},
        {"a word written while it may be read", SECOND "@!%p4 ld.shared.u32 %r1, [tile];\n$@!%p5 st.shared.u32 [tile], 5;\n",
         "", "bar.sync 0;\n", .says = "which was read at line", .launch = TWO},
        {"two writes", SECOND "@!%p4 st.shared.u32 [tile+4], 5;\n$@!%p5 st.shared.u32 [tile+4], 6;\n", "", "bar.sync 0;\n",
         .says = "which was written at line", .launch = TWO},
        {"bytes that overlap", SECOND "@!%p4 st.shared.u16 [tile+2], 5;\n@!%p5 st.shared.u32 [tile+$], 6;\n", "0", "4",
         .says = "by lanes 0x1 of warp 0 of block 0", .launch = TWO},
        {"the last byte of a vector",
         SECOND "@!%p4 st.shared.u8 [tile+$], 5;\n@!%p5 ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [tile+16];\n", "31", "32",
         .says = "which was written", .launch = TWO},
        {"sums are ordered among themselves, and to nothing else",
         SECOND "red.shared.add.u32 [tile], 1;\n$@!%p5 ld.shared.u32 %r1, [tile];\n", "", "bar.sync 0;\n",
         .says = "which was added to at line", .launch = TWO},
        {"a barrier that the writer passes first", SECOND "$@!%p5 ld.shared.u32 %r1, [tile];\n",
         "bar.sync 0;\n@!%p4 st.shared.u32 [tile], 5;\n", "@!%p4 st.shared.u32 [tile], 5;\nbar.sync 0;\n", .says = "a race",
         .launch = TWO},
        {"a writer that arrives before he writes",
         SECOND FIRST_GO "$bra end;\nsecond:\nbar.sync 1, 64;\n@!%p5 ld.shared.u32 %r1, [tile];\nend:\n",
         "bar.arrive 1, 64;\n@!%p4 st.shared.u32 [tile], 5;\n", "@!%p4 st.shared.u32 [tile], 5;\nbar.arrive 1, 64;\n",
         .says = "a race", .launch = TWO}};
    check_all(faults, sizeof faults / sizeof *faults);
}

static void between_lanes(void **state)
{
    (void)state;
    static const fault faults[] = {
        {"a lane reads what another wrote",
         SECOND "@!%p4 st.shared.u32 [tile], 5;\nsetp.eq.u32 %p6, %r0, 1;\n$@%p6 ld.shared.u32 %r1, [tile];\n", "", META,
         .says = "by lanes 0x1 of warp 0", .launch = WARP},
        {"two lanes write", "and.b32 %r1, %r0, $;\nshl.b32 %r1, %r1, 2;\nadd.u32 %r1, %r1, tile;\nst.shared.u32 [%r1], %r0;\n",
         "15", "31", .says = "a race", .launch = WARP},
        {"rows of a matrix that other lanes wrote",
         "shl.b32 %r1, %r0, 4;\nadd.u32 %r1, %r1, tile;\nst.shared.v4.u32 [%r1], {%r0, %r0, %r0, %r0};\n$"
         "xor.b32 %r2, %r1, 16;\nldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r2, %r3, %r4, %r5}, [%r2];\n",
         "", META, .says = "ldmatrix", .launch = WARP},
        {"what a lane has waited for, the others have not",
         BARRIER FIRST_GO "@!%p4 st.shared.u32 [tile+64], 5;\n" ARRIVE "bra end;\nsecond:\n@%p5 bra met;\n" AWAIT
                          "met:\n$ld.shared.u32 %r1, [tile+64];\nend:\n",
         "", META, .says = "a race", .launch = TWO}};
    check_all(faults, sizeof faults / sizeof *faults);
}

static void mbarriers(void **state)
{
    (void)state;
    static const fault faults[] = {
        {"one that others do not know to be made",
         SECOND "@!%p4 mbarrier.init.shared::cta.b64 [tile], 1;\n$@!%p5 mbarrier.arrive.shared::cta.b64 _, [tile];\n", "",
         "bar.sync 0;\n", .says = "which was written", .launch = TWO},
        {"not waited for",
         BARRIER FIRST_GO "@!%p4 st.shared.u32 [tile+64], 5;\n" ARRIVE
                          "bra end;\nsecond:\n$ld.shared.u32 %r1, [tile+64];\nend:\n",
         "", AWAIT, .says = "a race", .launch = TWO},
        {"arrived at too early", BARRIER FIRST_GO "$bra end;\nsecond:\n" AWAIT "ld.shared.u32 %r1, [tile+64];\nend:\n",
         ARRIVE "@!%p4 st.shared.u32 [tile+64], 5;\n", "@!%p4 st.shared.u32 [tile+64], 5;\n" ARRIVE, .says = "a race",
         .launch = TWO},
        {"one lane arrives for its warp",
         BARRIER FIRST_GO "ld.shared.u32 %r1, [tile+64];\n$" ARRIVE "bra end;\nsecond:\n" AWAIT
                          "@!%p5 st.shared.u32 [tile+64], 5;\nend:\n",
         "", META, .says = "which was read", .launch = TWO}};
    check_all(faults, sizeof faults / sizeof *faults);
}

/* The first warp uses tile+128, the second one's first thread refills it. */
#define STAGE                                                                                                                  \
    SECOND "@!%p4 mbarrier.init.shared::cta.b64 [tile], 1;\n@!%p4 mbarrier.init.shared::cta.b64 [tile+8], 1;\n"                \
           "fence.mbarrier_init.release.cluster;\nbar.sync 0;\n"

static void copies(void **state)
{
    (void)state;
    static const fault faults[] = {
        {"a stage refilled while it may be read",
         STAGE FIRST_GO "@!%p4 ld.shared.u32 %r1, [tile+128];\n" ARRIVE "bra end;\nsecond:\n@%p5 bra end;\n$" REFILL "end:\n",
         "", AWAIT, .says = "by the copy engine", .launch = TWO},
        {"a stage given back before wgmma has read it",
         "mov.pred %p3, 0;\nmov.b32 %r10, 0;\nmov.b64 %d2, 0x1000080048;\n" /* B at tile+128, 16 x 8 */
         "setp.lt.u32 %p1, %r0, 64;\nshl.b32 %r1, %r0, 2;\nadd.u32 %r1, %r1, tile+128;\n@%p1 st.shared.u32 [%r1], 0;\n"
         "fence.proxy.async;\n" STAGE "setp.ge.u32 %p1, %r0, 128;\nsetp.ne.u32 %p5, %r0, 128;\n" FIRST_GO
         "wgmma.fence.sync.aligned;\nwgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, "
         "{%r10, %r10, %r10, %r10}, %d2, %p3, 1, 1, 0;\nwgmma.commit_group.sync.aligned;\n$bra end;\nsecond:\n@%p5 bra "
         "end;\n" AWAIT REFILL "end:\n",
         "@!%p4 mbarrier.arrive.shared::cta.b64 _, [tile];\nwgmma.wait_group.sync.aligned 0;\n",
         "wgmma.wait_group.sync.aligned 0;\nbar.sync 1, 128;\n@!%p4 mbarrier.arrive.shared::cta.b64 _, [tile];\n",
         .says = "which was read", .launch = {.threads = 160}},
        {"cp.async waited for behind the barrier",
         SECOND "@!%p4 cp.async.ca.shared.global [tile+128], [%d0+16], 4;\ncp.async.commit_group;\n$"
                "@!%p5 ld.shared.u32 %r1, [tile+128];\n",
         "bar.sync 0;\ncp.async.wait_group 0;\n", "cp.async.wait_group 0;\nbar.sync 0;\n", .says = "a race", .launch = TWO},
        {"cp.async into what may be read",
         SECOND "@!%p4 ld.shared.u32 %r1, [tile+128];\n$@!%p5 cp.async.ca.shared.global [tile+128], [%d0+16], 4;\n"
                "cp.async.wait_all;\n",
         "", "bar.sync 0;\n", .says = "which was read", .launch = TWO},
        {"a box overwritten while it is stored",
         STAGE FIRST_GO "@%p4 bra end;\nst.shared.u32 [tile+128], 0;\nfence.proxy.async;\n"
                        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [map, {0, 0}], [tile+128];\n"
                        "cp.async.bulk.commit_group;\n$bra end;\nsecond:\n@%p5 bra end;\n" AWAIT
                        "st.shared.u32 [tile+128], 5;\nend:\n",
         ARRIVE "cp.async.bulk.wait_group.read 0;\n", "cp.async.bulk.wait_group.read 0;\n" ARRIVE, .says = "a race",
         .launch = TWO},
        {"another block's shared memory",
         "mov.u32 %r1, %cluster_ctarank;\nmov.u32 %r2, tile;\nsetp.ne.u32 %p1, %r1, 0;\nmapa.shared::cluster.u32 %r3, %r2, "
         "1;\n" CLUSTER_BARRIER "@!%p1 st.shared::cluster.u32 [%r3], 7;\nbarrier.cluster.arrive$.aligned;\n"
         "barrier.cluster.wait.aligned;\n@%p1 ld.shared.u32 %r4, [tile];\n",
         ".relaxed", "", .says = "which was written", .launch = PAIR}};
    check_all(faults, sizeof faults / sizeof *faults);
}

/* What goes on by itself is known to nobody before it is waited for, whatever else has been waited for. */
static void under_way(void **state)
{
    (void)state;
    static const fault faults[] = {
        {"another copy's mbarrier waited for",
         STAGE FIRST_GO
         "@%p4 bra end;\n"
         "mbarrier.arrive.expect_tx.shared::cta.b64 _, [tile], 16;\n" BULK "[tile+128], [%d0], 16, [tile];\n"
         "mbarrier.arrive.expect_tx.shared::cta.b64 _, [tile+8], 16;\n" BULK "[tile+256], [%d0], 16, [tile+8];\n" AWAIT
         "both:\nmbarrier.try_wait.parity.shared::cta.b64 %p6, [tile+8], 0;\n@!%p6 bra both;\n"
         "bra end;\nsecond:\nfilled:\nmbarrier.try_wait.parity.shared::cta.b64 %p6, [tile+$], 0;\n@!%p6 bra filled;\n"
         "ld.shared.u32 %r1, [tile+128];\nend:\n",
         "8", "0", .says = "by the copy engine", .launch = TWO},
        {"cp.async waited for when others have read",
         SECOND "@!%p4 cp.async.ca.shared.global [tile+128], [%d0+16], 4;\ncp.async.commit_group;\n$"
                "@!%p5 ld.shared.u32 %r1, [tile+128];\nbar.sync 0;\ncp.async.wait_group 0;\n",
         "bar.sync 0;\n", "cp.async.wait_group 0;\nbar.sync 0;\n", .says = "a race", .launch = TWO},
        {"cp.async that tells an mbarrier, which is not waited for",
         BARRIER "@!%p4 cp.async.ca.shared.global [tile+128], [%d0+16], 4;\n"
                 "@!%p4 cp.async.mbarrier.arrive.noinc.shared::cta.b64 [tile];\nbar.sync 0;\n"
                 "@!%p1 bra end;\n$ld.shared.u32 %r1, [tile+128];\nend:\n",
         "", AWAIT, .says = "a race", .launch = TWO},
        {"a box overwritten behind a barrier that nobody waited before",
         STAGE FIRST_GO "@%p4 bra end;\nst.shared.u32 [tile+128], 0;\nfence.proxy.async;\n"
                        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [map, {0, 0}], [tile+128];\n"
                        "cp.async.bulk.commit_group;\n$"
                        "back:\nmbarrier.try_wait.parity.shared::cta.b64 %p6, [tile+8], 0;\n@!%p6 bra back;\n"
                        "cp.async.bulk.wait_group.read 0;\nbra end;\nsecond:\n@%p5 bra end;\n" AWAIT
                        "st.shared.u32 [tile+128], 5;\nmbarrier.arrive.shared::cta.b64 _, [tile+8];\nend:\n",
         ARRIVE, "cp.async.bulk.wait_group.read 0;\n" ARRIVE, .says = "a race", .launch = TWO},
        {"what another block is sent, overwritten meanwhile",
         "mov.u32 %r1, %cluster_ctarank;\nmov.u32 %r2, tile;\nsetp.ne.u32 %p1, %r1, 0;\nmapa.shared::cluster.u32 %r3, %r2, 1;\n"
         "add.u32 %r5, %r3, 128;\nmapa.shared::cluster.u32 %r6, %r2, 0;\nmbarrier.init.shared::cta.b64 [tile], 1;\n"
         "mbarrier.init.shared::cta.b64 [tile+8], 1;\nfence.mbarrier_init.release.cluster;\n"
         "st.shared.v4.u32 [tile+256], {%r1, %r1, %r1, %r1};\nfence.proxy.async;\n" CLUSTER_BARRIER "@%p1 bra second;\n"
         "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r5], [tile+256], 16, [%r3];\n$"
         "st.shared.u32 [tile+256], 5;\nbra end;\nsecond:\nmbarrier.arrive.expect_tx.shared::cta.b64 _, [tile], 16;\n" AWAIT
         "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r6+8];\nend:\n" CLUSTER_BARRIER,
         "", "remote:\nmbarrier.try_wait.parity.shared::cta.b64 %p6, [tile+8], 0;\n@!%p6 bra remote;\n",
         .says = "which was read", .launch = PAIR},
    };
    check_all(faults, sizeof faults / sizeof *faults);
}

/* ---- launches that may begin before the kernel before has ended */

#define EARLY                                                                                                                  \
    {                                                                                                                          \
        .threads = 32, .early = true                                                                                           \
    }
#define GRID_WAIT "griddepcontrol.wait;\n"

static void early_launches(void **state)
{
    (void)state;
    static const fault faults[] = {
        {"a write before the kernel before has ended", "setp.eq.u32 %p1, %r0, 0;\n$@%p1 st.global.u32 [%d0], 5;\n" GRID_WAIT,
         "", GRID_WAIT, .says = "it writes", .launch = EARLY},
        {"one lane waits and another writes",
         "setp.eq.u32 %p1, %r0, 0;\nsetp.eq.u32 %p2, %r0, 1;\n@%p1 " GRID_WAIT "$@%p2 red.global.add.u32 [%d0], 5;\n", "", META,
         .says = "it writes", .wanted = FIRST + 5, .launch = EARLY},
        {"a block that never waits", "ld.global.u32 %r1, [%d0];\n$", "", GRID_WAIT,
         .says = "has ended with no griddepcontrol.wait", .launch = EARLY}};
    check_all(faults, sizeof faults / sizeof *faults);
}

/* What was uploaded may be read at once, like a plan's weight; what a kernel wrote may not. */
static void reading_what_a_kernel_wrote(void **state)
{
    (void)state;
    static const char *const reads[] = {"ld.global.u32 %r1, [%d0];\n",
                                        "cp.async.ca.shared.global [tile], [%d0], 4;\ncp.async.wait_all;\n"};
    uint32_t *memory = case_allocate(BYTES);
    for (int written = 0; written < 2; ++written) {
        for (int how = 0; how < 2; ++how) {
            char why[1024] = "", body[256];
            case_launch early = {.early = true};
            snprintf(body, sizeof body, "%s%s", reads[how], GRID_WAIT);
            assert_int_equal(case_run(&early, body, memory, why, sizeof why), !written);
            if (written) assert_non_null(strstr(why, "reads what a kernel wrote, or the caller"));
            snprintf(body, sizeof body, "%s%s", GRID_WAIT, reads[how]);
            case_must_run(&early, body, memory);
        }
        case_must_run(NULL, "st.global.u32 [%d0+64], 5;\n", memory);
    }
    case_free(memory);
}

int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes);
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream);
int cuStreamSynchronize(void *stream);

/* X of a caller, who uploads it by the plain call, may be a kernel's result another time; what the library itself uploads is not. */
static void reading_what_a_caller_uploaded(void **state)
{
    (void)state;
    static const char body[] = "ld.global.u32 %r1, [%d0];\n" GRID_WAIT;
    for (int by_caller = 0; by_caller < 2; ++by_caller) {
        char why[1024] = "";
        const uint32_t words[] = {1, 2, 3, 4};
        uint32_t *memory = case_allocate(sizeof words);
        case_launch early = {.early = true};
        assert_int_equal(by_caller ? cuMemcpyHtoD_v2((uint64_t)(uintptr_t)memory, words, sizeof words)
                                   : cuMemcpyHtoDAsync_v2((uint64_t)(uintptr_t)memory, words, sizeof words, NULL),
                         0);
        assert_int_equal(cuStreamSynchronize(NULL), 0);
        assert_int_equal(case_run(&early, body, memory, why, sizeof why), !by_caller);
        if (by_caller) assert_non_null(strstr(why, "reads what a kernel wrote, or the caller"));
        case_free(memory);
    }
}

/* Lanes that came together at an instruction of the whole warp: in order on hardware, which issues a warp's accesses one behind the other,
 * and not by the manual. */
static void strictness(void **state)
{
    (void)state;
    static const char body[] = SECOND "@!%p4 st.shared.u32 [tile], 5;\nmovmatrix.sync.aligned.m8n8.trans.b16 %r2, %r0;\n"
                                      "ld.shared.u32 %r1, [tile];\n";
    static const char *const kinds[] = {"0", "1", "strict"};
    uint32_t *memory = case_allocate(BYTES);
    for (int kind = 0; kind < 3; ++kind) {
        char why[1024] = "";
        case_launch launch = WARP;
        setenv("EMULATOR_RACES", kinds[kind], 1);
        assert_int_equal(case_run(&launch, body, memory, why, sizeof why), kind < 2);
        assert_int_equal(strstr(why, "a race") != NULL, kind == 2);
    }
    case_free(memory);
}

static int look_for_races(void **state)
{
    (void)state;
    return setenv("EMULATOR_RACES", "strict", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup(between_warps, look_for_races),
                                       cmocka_unit_test_setup(between_lanes, look_for_races),
                                       cmocka_unit_test_setup(mbarriers, look_for_races),
                                       cmocka_unit_test_setup(copies, look_for_races),
                                       cmocka_unit_test_setup(under_way, look_for_races),
                                       cmocka_unit_test_setup(early_launches, look_for_races),
                                       cmocka_unit_test_setup(reading_what_a_kernel_wrote, look_for_races),
                                       cmocka_unit_test_setup(reading_what_a_caller_uploaded, look_for_races),
                                       cmocka_unit_test(strictness)};
    return cmocka_run_group_tests(tests, case_open, case_close);
}
