/* test_emulator_faults_copies.c - every check of the emulator can fail, those of mbarriers and of copies that go on by themselves; the others
 * are in test_emulator_faults.c. */
#include "emulator_fault.h"

/* ---- mbarriers */

static void mbarriers(void **state)
{
    (void)state;
    static const fault faults[] = {
        {"used before it is made", "$\n# mbarrier.arrive.shared::cta.b64 _, [tile];", "", INIT, .says = "was not initialised"},
        {"waited for before it is made",
         "$\nmbarrier.arrive.shared::cta.b64 _, [tile];\n# mbarrier.test_wait.parity.shared.b64 "
         "%p1, [tile+8], 1;",
         INIT, INIT "mbarrier.init.shared.b64 [tile+8], 1;", .says = "was not initialised"},
        {"made for nobody", "# mbarrier.init.shared::cta.b64 [tile], $;", "0", "1", .says = "an mbarrier for 0 arrivals"},
        {"not aligned", "# mbarrier.init.shared::cta.b64 [tile+$], 1;", "4", "8", .says = "not aligned to 8 bytes"},
        {"outside of shared memory", "# mbarrier.init.shared::cta.b64 [tile+$], 1;", "4096", "4088",
         .says = "of shared memory"},
        {"too many arrive", "mbarrier.init.shared::cta.b64 [tile], 2;\n# mbarrier.arrive.shared::cta.b64 _, [tile], $;", "3",
         "2", .says = "3 arrive at an mbarrier where 2 of 2"},
        {"too few arrive",
         "mbarrier.init.shared::cta.b64 [tile], $;\nmbarrier.arrive.shared::cta.b64 _, [tile];\nwait:\n"
         "# mbarrier.try_wait.parity.shared::cta.b64 %p1, [tile], 0;\n@!%p1 bra wait;",
         "2", "1", .says = "all threads wait for ever"},
        {"the wrong phase",
         INIT "mbarrier.arrive.shared::cta.b64 _, [tile];\nwait:\n"
              "# mbarrier.try_wait.parity.shared::cta.b64 %p1, [tile], $;\n@!%p1 bra wait;",
         "1", "0", .says = "all threads wait for ever"},
        {"told of bytes before its making is fenced",
         "mbarrier.init.shared::cta.b64 [tile], 1;\n$" EXPECT "16;\n# " BULK
         "[tile+128], [%d0+16], 16, [tile];\n" WAIT("first"),
         "", "fence.mbarrier_init.release.cluster;\n", .says = "the mbarrier at"},
        {"bytes that never come",
         INIT EXPECT "$;\n" BULK "[tile+128], [%d0+16], 16, [tile];\nwait:\n"
                     "# mbarrier.try_wait.parity.shared::cta.b64 %p1, [tile], 0;\n@!%p1 bra wait;",
         "32", "16", .says = "all threads wait for ever"},
        {"bytes that nobody expects",
         INIT EXPECT "$;\n" BULK "[tile+128], [%d0+16], 32, [tile];\nwait:\n"
                     "# mbarrier.try_wait.parity.shared::cta.b64 %p1, [tile], 0;\n@!%p1 bra wait;",
         "16", "32", .says = "all threads wait for ever"}};
    check_all(faults, sizeof faults / sizeof *faults);
}

/* ---- copies that go on by themselves */

static void copies(void **state)
{
    (void)state;
    static const fault faults[] = {
        {"cp.async read too early",
         "st.shared.u32 [tile+128], 3;\n"
         "cp.async.ca.shared.global [tile+128], [%d0+16], 4;\ncp.async.commit_group;\n$\n" TO_OUT,
         "", "cp.async.wait_group 0;", .seen = 0xffffffff, .wanted = FIRST + 4},
        {"cp.async waited for too little",
         "cp.async.ca.shared.global [tile+128], [%d0+16], 4;\ncp.async.commit_group;\n"
         "cp.async.wait_group $;\n" TO_OUT,
         "1", "0", .seen = 0xffffffff, .wanted = FIRST + 4},
        {"cp.async in no group", "cp.async.cg.shared.global [tile+128], [%d0+16], 16;\n$\ncp.async.wait_group 0;\n" TO_OUT, "",
         "cp.async.commit_group;", .seen = 0xffffffff, .wanted = FIRST + 4},
        {"cp.async of another thread, whose barrier is not waited for",
         "setp.ne.u32 %p2, %r0, 0;\n@%p2 bra made;\n"
         "mbarrier.init.shared::cta.b64 [tile], 32;\nmade:\nbar.sync 0;\nshl.b32 %r2, %r0, 2;\nadd.u32 %r2, %r2, tile+128;\n"
         "setp.ge.u32 %p2, %r0, 32;\n@%p2 bra taker;\ncp.async.ca.shared.global [%r2], [%d0+16], 4;\n"
         "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [tile];\nbra end;\ntaker:\n$\nend:\nbar.sync 0;\n@!%p2 bra "
         "last;\n" TO_OUT "last:\n" WAIT("all"),
         "", WAIT("first"), .seen = 0xffffffff, .wanted = FIRST + 4, .launch = {.threads = 64}},
        {"cp.async of less than it copies",
         "mov.b32 %r2, $;\n# cp.async.cg.shared.global [tile+128], [%d0+16], 16, %r2;\n"
         "cp.async.wait_all;\n" TO_OUT,
         "8", "16", .says = "it reads 8 of 16 bytes, which is not emulated", .wanted = FIRST + 4},
        {"cp.async that is not aligned", "# cp.async.cg.shared.global [tile], [%d0+$], 16;", "4", "16",
         .says = "not both aligned"},
        {"cp.async from outside", "# cp.async.ca.shared.global [tile], [%d0+$], 8;", "1032", "1024",
         .says = "copies from 8 bytes of global"},
        {"cp.async to outside", "# cp.async.ca.shared.global [tile+$], [%d0], 8;", "4096", "4088",
         .says = "copies to 8 bytes of shared"},
        {"a bulk copy read too early", INIT EXPECT "16;\n" BULK "[tile+128], [%d0+16], 16, [tile];\n$\n" TO_OUT WAIT("last"),
         "", WAIT("first"), .seen = 0xffffffff, .wanted = FIRST + 4},
        {"a bulk copy whose source changes",
         INIT EXPECT "16;\n" BULK "[tile+128], [%d0+16], 16, [tile];\n$\n"
                     "st.global.u32 [%d0+16], 7;\n" WAIT("last") TO_OUT,
         "", WAIT("first"), .seen = 7, .wanted = FIRST + 4},
        {"a bulk copy of odd bytes", INIT EXPECT "16;\n# " BULK "[tile+128], [%d0], $, [tile];\n" WAIT("last"), "8", "16",
         .says = "the count of bytes is 0x8, no multiple of 16"},
        {"a bulk copy to a place that is not aligned", INIT EXPECT "16;\n# " BULK "[tile+$], [%d0], 16, [tile];\n" WAIT("last"),
         "136", "128", .says = "the destination is 0x488, no multiple of 16"},
        {"a bulk copy from a place that is not aligned",
         INIT EXPECT "16;\n# " BULK "[tile+128], [%d0+$], 16, [tile];\n" WAIT("last"), "8", "16", .says = "the source is"},
        {"a bulk copy from behind a block", INIT EXPECT "32;\n# " BULK "[tile+128], [%d0+$], 32, [tile];\n" WAIT("last"),
         "1008", "992", .says = "copies from 32 bytes of global memory"},
        {"a bulk copy to behind shared memory", INIT EXPECT "32;\n# " BULK "[tile+$], [%d0], 32, [tile];\n" WAIT("last"),
         "4080", "4064", .says = "copies to 32 bytes of shared memory"},
        {"a bulk copy that tells a barrier nobody made",
         INIT EXPECT "16;\n# " BULK "[tile+128], [%d0], 16, [tile+$];\n" WAIT("last"), "8", "0", .says = "was not initialised"},
        {"a copy under way at the end", INIT EXPECT "16;\n# " BULK "[tile+128], [%d0], 16, [tile];\n$", "", WAIT("last"),
         .says = "a copy was under way when the last block of its cluster ended"},
        {"a copy to a block that is not there",
         INIT "mbarrier.arrive.expect_tx.shared::cta.b64 _, [tile], 16;\n" CLUSTER_BARRIER
              "mov.u32 %r2, %cluster_ctarank;\nmov.b16 %h1, $;\nsetp.ne.u32 %p2, %r2, 0;\n@%p2 bra taken;\n"
              "# cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [tile+128], [%d0], 16, "
              "[tile], "
              "%h1;\ntaken:\n" WAIT("last") CLUSTER_BARRIER,
         "7", "3", .says = "blocks 0x7 of a cluster of 2", .launch = PAIR},
        {"bytes here, their barrier there",
         INIT "mov.u32 %r2, tile;\nmapa.shared::cluster.u32 %r2, %r2, 1;\n"
              "mov.u32 %r3, %cluster_ctarank;\n" CLUSTER_BARRIER "setp.ne.u32 %p2, %r3, 0;\n@%p2 bra taken;\n" EXPECT
              "16;\n# " BULK "[tile+128], [%d0], 16, [$];\n" WAIT("last") "taken:\n" CLUSTER_BARRIER,
         "%r2", "tile", .says = "another's mbarrier is told", .launch = PAIR},
        {"a bulk copy out of what is not fenced",
         INIT EXPECT
         "16;\nst.shared.u32 [tile+256], 7;\n$# "
         "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [tile+128], [tile+256], 16, [tile];\n" WAIT(
             "last") TO_OUT,
         "", "fence.proxy.async;\n", .says = "what is copied at 0x500 was written by warp 0", .wanted = 7},
        {"words sent to a block that has ended",
         INIT CLUSTER_BARRIER
         "mov.u32 %r2, %cluster_ctarank;\nsetp.ne.u32 %p2, %r2, 0;\n@%p2 bra taker;\nmov.u32 %r3, tile;\n"
         "mapa.shared::cluster.u32 %r3, %r3, 1;\n# st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%r3+128], "
         "{%r0, %r0}, [%r3];\n" CLUSTER_BARRIER "nanosleep.u32 9;\nnanosleep.u32 9;\nbra end;\ntaker:\n" EXPECT
         "8;\n" CLUSTER_BARRIER "$end:",
         "", WAIT("first"), .says = "it lands in block 1 of the grid, which has ended", .launch = PAIR},
        {"sent words that are not aligned",
         INIT EXPECT "8;\n# st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 "
                     "[tile+$], {%r0, %r0}, [tile];\n" WAIT("last"),
         "132", "136", .says = "the destination is 0x484, no multiple of 8"}};
    check_all(faults, sizeof faults / sizeof *faults);
}

/* ---- boxes of tensors */

#define LOAD_BOX  "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
#define STORE_BOX "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group "
#define STORED    "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;\n"

static void boxes(void **state)
{
    (void)state;
    static const fault faults[] = {
        {"begins within 16 bytes", INIT EXPECT "128;\n# " LOAD_BOX "[tile+128], [map, {$, 0}], [tile];\n" WAIT("last") TO_OUT,
         "4", "8", .says = "a box from element 4 on, within 16 bytes", .wanted = FIRST + 4},
        {"is stored within 16 bytes", "# " STORE_BOX "[map, {$, 0}], [tile+128];\n" STORED, "4", "8",
         .says = "within 16 bytes"},
        {"has too many coordinates", INIT EXPECT "128;\n# " LOAD_BOX "[tile+128], [map, {0, 0$}], [tile];\n" WAIT("last"),
         ", 0", "", .says = "3 coordinates for a tensor of 2 dimensions"},
        {"is no tensor's", INIT EXPECT "128;\n# " LOAD_BOX "[tile+128], [$, {0, 0}], [tile];\n" WAIT("last"), "%d0", "map",
         .says = "no tensor map at"},
        {"has a map that is not aligned", INIT EXPECT "128;\n# " LOAD_BOX "[tile+128], [map+$, {0, 0}], [tile];\n" WAIT("last"),
         "32", "0", .says = "not aligned to 64 bytes"},
        {"goes to a place that is not aligned",
         INIT EXPECT "128;\n# " LOAD_BOX "[tile+$], [map, {0, 0}], [tile];\n" WAIT("last"), "192", "128",
         .says = "no multiple of 128"},
        {"ends behind shared memory", INIT EXPECT "128;\n# " LOAD_BOX "[tile+$], [map, {0, 0}], [tile];\n" WAIT("last"), "4096",
         "3968", .says = "copies to 128 bytes of shared memory"},
        {"brings more than is expected",
         INIT EXPECT "$;\n" LOAD_BOX "[tile+128], [map, {0, 0}], [tile];\nwait:\n"
                     "# mbarrier.try_wait.parity.shared.b64 %p1, [tile], 0;\n@!%p1 bra wait;",
         "64", "128", .says = "all threads wait for ever"},
        {"is read too early", INIT EXPECT "128;\n" LOAD_BOX "[tile+128], [map, {0, 1}], [tile];\n$\n" TO_OUT WAIT("last"), "",
         WAIT("first"), .seen = 0xffffffff, .wanted = FIRST + 32},
        {"is overwritten before it is stored",
         "st.shared.u32 [tile+128], 7;\nfence.proxy.async;\n" STORE_BOX "[map, {0, 0}], [tile+128];\n"
         "cp.async.bulk.commit_group;\n$st.shared.u32 [tile+128], 9;\n" STORED,
         "", "cp.async.bulk.wait_group.read 0;\n", .seen = 9, .wanted = 7},
        {"is written and not fenced", "st.shared.u32 [tile+128], 7;\n$# " STORE_BOX "[map, {0, 0}], [tile+128];\n" STORED, "",
         "fence.proxy.async;\n", .says = "with no fence.proxy.async", .wanted = 7},
        {"is fenced before it is written", "$# " STORE_BOX "[map, {0, 0}], [tile+128];\n" STORED,
         "fence.proxy.async;\nst.shared.u32 [tile+128], 7;\n", "st.shared.u32 [tile+128], 7;\nfence.proxy.async;\n",
         .says = "with no fence.proxy.async", .wanted = 7},
        {"comes by cp.async and is not fenced",
         "cp.async.cg.shared.global [tile+128], [%d0+16], 16;\ncp.async.wait_all;\n$# " STORE_BOX
         "[map, {0, 0}], [tile+128];\n" STORED,
         "", "fence.proxy.async;\n", .says = "with no fence", .wanted = FIRST + 4},
        {"comes by stmatrix and is not fenced",
         "shl.b32 %r1, %r0, 4;\nadd.u32 %r1, %r1, tile+128;\n"
         "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r1], {%r0, %r0, %r0, %r0};\n$setp.ne.u32 %p1, %r0, 0;\n@%p1 "
         "ret;\n# " STORE_BOX "[map, {0, 0}], [tile+128];\n" STORED,
         "", "fence.proxy.async;\n", .says = "with no fence", .launch = WARP},
        {"is written behind what came by itself", INIT EXPECT "16;\n$# " STORE_BOX "[map, {0, 0}], [tile+128];\n" STORED,
         BULK "[tile+128], [%d0+16], 16, [tile];\n" WAIT("first") "st.shared.u32 [tile+128], 7;\n",
         "st.shared.u32 [tile+128], 7;\n" BULK "[tile+128], [%d0+16], 16, [tile];\n" WAIT("first"), .says = "with no fence",
         .wanted = FIRST + 4},
        {"is stored from a place that is not aligned", "# " STORE_BOX "[map, {0, 0}], [tile+$];\n" STORED, "192", "128",
         .says = "the source is 0x4c0, no multiple of 128"},
        {"is stored in no group",
         "st.shared.u32 [tile+128], 7;\nfence.proxy.async;\n# " STORE_BOX "[map, {0, 0}], [tile+128];\n$"
         "cp.async.bulk.wait_group.read 0;\n",
         "", "cp.async.bulk.commit_group;\n", .says = "the thread ended before its box was read", .wanted = 7},
        {"is being stored when its thread ends",
         "st.shared.u32 [tile+128], 7;\nfence.proxy.async;\n# " STORE_BOX "[map, {0, 0}], [tile+128];\n"
         "cp.async.bulk.commit_group;\n$",
         "", "cp.async.bulk.wait_group.read 0;\n", .says = "the thread ended before its box was read", .wanted = 7}};
    check_all(faults, sizeof faults / sizeof *faults);
}

/* A tensor that its map makes longer than its block is. */
static void tensors_longer_than_their_memory(void **state)
{
    (void)state;
    static const char load[] = INIT EXPECT "128;\n" LOAD_BOX "[tile+128], [map, {48, 5}], [tile];\n" WAIT("last"),
                      store[] = STORE_BOX "[map, {48, 5}], [tile+128];\n" STORED;
    uint32_t *memory = case_allocate(BYTES);
    for (int stores = 0; stores < 2; ++stores)
        for (int early = 0; early < 2; ++early)
            for (uint32_t rows = ROWS; rows <= ROWS + 1; ++rows) {
                char why[1024] = "";
                case_launch launch = {.map = tensor_of(memory, rows)};
                case_order(early ? "early" : NULL, 1);
                assert_int_equal(case_run(&launch, stores ? store : load, memory, why, sizeof why), rows == ROWS);
                if (rows > ROWS)
                    assert_non_null(strstr(why, stores ? "stores 16 bytes of global" : "brings 16 bytes of global"));
            }
    case_order(NULL, 1);
    case_free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(mbarriers), cmocka_unit_test(copies), cmocka_unit_test(boxes),
                                       cmocka_unit_test(tensors_longer_than_their_memory)};
    return cmocka_run_group_tests(tests, case_open, case_close);
}
