/* test_emulator_faults.c - every check of the emulator can fail, those of addresses, of threads and of matrix products; the others are in
 * test_emulator_faults_copies.c. */
#include "emulator_fault.h"

/* ---- which addresses are whose */

static void addresses(void **state)
{
    (void)state;
    static const fault faults[] = {
        {"reads behind a block", "# ld.global.u32 %r1, [%d0+$];", "1032", "1028", .says = "reads 4 bytes of global memory"},
        {"reads before a block", "# ld.global.u32 %r1, [%d0+$];", "-4", "0", .says = "reads 4 bytes of global memory"},
        {"writes behind a block", "# st.global.u32 [%d0+$], %r0;", "1032", "1028", .says = "writes 4 bytes of global memory"},
        {"writes before a block", "# st.global.u16 [%d0+$], %r0;", "-2", "0", .says = "writes 2 bytes of global memory"},
        {"adds behind a block", "# red.global.add.u32 [%d0+$], 1;", "1032", "0", .says = "adds to 4 bytes of global",
         .wanted = FIRST + 1},
        {"half of a vector is behind", "# ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d0+$];", "1024", "1008",
         .says = "reads 16 bytes"},
        {"the last lane reads behind", "mul.wide.u32 %d1, %r0, 4;\nadd.s64 %d1, %d1, %d0;\n# ld.global.u32 %r1, [%d1+$];",
         "908", "904", .says = "reads 4 bytes of global memory", .launch = WARP},
        {"no address at all", "mov.u64 %d1, $;\n# ld.global.u32 %r1, [%d1];", "0", "variable",
         .says = "reads 4 bytes of global memory"},
        {"an address that was never made", "$\n# ld.global.u32 %r1, [%d1+1];", "", "add.s64 %d1, %d0, -1;",
         .says = "reads 4 bytes"},
        {"reads behind a variable", "# ld.global.u32 %r1, [variable+$];", "12", "8", .says = "reads 4 bytes of global memory"},
        {"reads behind shared memory", "# ld.shared.u32 %r1, [tile+$];", "4096", "4092", .says = "which ends at 0x1400"},
        {"reads before shared memory", "# ld.shared.u32 %r1, [tile+$];", "-4", "0", .says = "reads 4 bytes of shared memory"},
        {"writes behind shared memory", "# st.shared.v2.u32 [tile+$], {%r0, %r0};", "4096", "4088",
         .says = "writes 8 bytes of shared"},
        {"reads behind the parameters", "# ld.param.u32 %r1, [map+$];", "128", "124",
         .says = "reads 4 bytes at 192 of 192 of param"},
        {"writes parameters", "mov.b64 %d2, $;\n# st.u32 [%d2], %r0;", "map", "%d0", .says = "which are read only"},
        {"reads behind local memory", ".local .align 4 .b8 own[16];\n# ld.local.u32 %r1, [own+$];", "16", "12",
         .says = "local memory"},
        {"is not aligned to 4", "# ld.global.u32 %r1, [%d0+$];", "2", "4", .says = "not aligned"},
        {"is not aligned to a vector", "# st.global.v2.u32 [%d0+$], {%r0, %r0};", "4", "8", .says = "writes 8 bytes at"},
        {"is not aligned in shared memory", "# ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [tile+$];", "8", "16",
         .says = "not aligned"},
        {"shared memory of no block", "# ld.shared::cluster.u32 %r1, [tile+$];", "0x03000000", "0x01000000",
         .says = "shared memory of block 2 of a cluster of 1"},
        {"mapa of a rank that is not there", "mov.u32 %r1, tile;\n# mapa.shared::cluster.u32 %r2, %r1, $;", "2", "1",
         .says = "block 2 of a cluster of 2", .launch = PAIR},
        {"a row that is not aligned",
         "shl.b32 %r1, %r0, 4;\nadd.u32 %r1, %r1, $;\n"
         "# ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r2, %r3, %r4, %r5}, [%r1];",
         "tile+8", "tile", .says = "not aligned to 16 bytes", .launch = WARP},
        {"a row that is outside",
         "shl.b32 %r1, %r0, 4;\nadd.u32 %r1, %r1, $;\n"
         "# stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r1], {%r1, %r1, %r1, %r1};",
         "tile+3600", "tile+3584", .says = "row of a matrix 16 bytes of shared memory at 0x1400", .launch = WARP},
        {"shared memory that nobody wrote", "$\nld.shared.u32 %r1, [tile];\nst.global.u32 [%d0], %r1;", "",
         "st.shared.u32 [tile], 5;", .seen = 0xffffffff, .wanted = 5, .always = true},
        {"a register that nobody wrote", "$\nst.global.u32 [%d0], %r9;", "", "mov.b32 %r9, 5;", .seen = 0xffffffff, .wanted = 5,
         .always = true}};
    check_all(faults, sizeof faults / sizeof *faults);
}

/* ---- warps and barriers among threads */

static void threads(void **state)
{
    (void)state;
    static const fault faults[] = {
        {"a barrier for parts of warps", "# bar.sync 1, $;", "48", "64", .says = "48 threads, which are no whole warps",
         .launch = {.threads = 64}},
        {"a barrier for more than there are", "# bar.sync 1, $;", "96", "64", .says = "all threads wait for ever",
         .launch = {.threads = 64}},
        {"a barrier that warps count differently", "setp.lt.u32 %p1, %r0, 32;\nselp.u32 %r1, 64, $, %p1;\n# bar.sync 1, %r1;",
         "32", "64", .says = "has 64 threads where 32 are to come", .launch = {.threads = 64}},
        {"a barrier with a count that some have left", "setp.ge.u32 %p1, %r0, 32;\n@%p1 ret;\n# bar.sync 0$;", ", 64", "",
         .says = "all threads wait for ever", .launch = {.threads = 64}},
        {"a barrier too many", "bar.sync $, 32;", "16", "15", .says = "there are 16", .launch = WARP},
        {"a barrier that a warp is not told of", "setp.lt.u32 %p1, %r0, 32;\n@%p1 bra end;\n# bar.sync 2, $;\nend:", "64", "32",
         .says = "block 0 warp 1 at line", .launch = {.threads = 64}},
        {"lanes that part and never meet",
         "setp.lt.u32 %p1, %r0, 16;\n@%p1 bra other;\n# bar.sync 0;\nbra end;\nother:\n$\nend:", "bar.sync 0;", "",
         .says = "others of the warp wait elsewhere", .launch = WARP},
        {"lanes that are gone", "setp.lt.u32 %p1, %r0, 16;\n$\n# movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r0;", "@%p1 ret;",
         "", .says = "it is the whole warp's, and lanes 0xffff0000 alone", .launch = WARP},
        {"members that never come",
         "setp.lt.u32 %p1, %r0, 16;\n@!%p1 bra other;\n# shfl.sync.bfly.b32 %r1, %r0, 1, 31, $;\n"
         "bra end;\nother:\nbar.warp.sync 0xffff0000;\n@%p1 bra other;\nvote.sync.any.pred %p2, %p1, 0xffff0000;\nend:\n"
         "bar.warp.sync -1;",
         "-1", "0xffff", .says = "all threads wait for ever", .launch = WARP},
        {"lanes that bar.warp.sync waits for",
         "setp.eq.u32 %p1, %r0, 0;\n@%p1 bra first;\n# bar.warp.sync -1;\nbra end;\nfirst:\n"
         "bar.warp.sync $;\nend:",
         "-1", "1", .says = "in parts", .launch = WARP},
        {"a lane that is no member", "# vote.sync.any.pred %p1, %p1, $;", "2", "1", .says = "not among its own members"},
        {"members that disagree", "setp.eq.u32 %p1, %r0, 1;\nselp.b32 %r1, $, 3, %p1;\n# redux.sync.add.u32 %r2, %r0, %r1;",
         "2", "3", .says = "its members are", .launch = {.threads = 2}},
        {"a cluster's barrier without arriving", "$\n# barrier.cluster.wait.aligned;", "", "barrier.cluster.arrive.aligned;",
         .says = "has not arrived", .launch = WARP},
        {"a cluster's barrier arrived at twice",
         "barrier.cluster.arrive.aligned;\n$\n# barrier.cluster.arrive.aligned;\n"
         "barrier.cluster.wait.aligned;",
         "", "barrier.cluster.wait.aligned;", .says = "and has not waited", .launch = {.threads = 64}},
        {"shared memory of a block that has ended",
         "mov.u32 %r1, %cluster_ctarank;\nmov.u32 %r2, tile;\n"
         "st.shared.u32 [tile], %r1;\n" CLUSTER_BARRIER "setp.eq.u32 %p1, %r1, 1;\n@%p1 bra end;\n"
         "mapa.shared::cluster.u32 %r3, %r2, 1;\n# ld.shared::cluster.u32 %r4, [%r3];\nst.global.u32 [%d0], %r4;\nend:\n$",
         "", CLUSTER_BARRIER, .says = "which has ended", .wanted = 1, .launch = {.threads = 32, .blocks = 2, .cluster = 2}},
        {"shared memory of a block that has not begun",
         "mov.u32 %r1, %cluster_ctarank;\nmov.u32 %r2, tile;\nst.shared.u32 [tile], 1;\nsetp.eq.u32 %p1, %r1, 1;\n$\n@%p1 bra "
         "end;\n"
         "mapa.shared::cluster.u32 %r3, %r2, 1;\n# ld.shared::cluster.u32 %r4, [%r3];\nst.global.u32 [%d0], "
         "%r4;\nend:\n" CLUSTER_BARRIER,
         "", CLUSTER_BARRIER, .says = "which has not begun", .wanted = 1, .launch = {.threads = 32, .blocks = 2, .cluster = 2}},
        {"a block of the cluster that is gone",
         "mov.u32 %r1, %cluster_ctarank;\nsetp.eq.u32 %p1, %r1, 1;\n@%p1 bra end;\n"
         "# bar.sync 3, $;\nend:",
         "64", "32", .says = "block 0 warp 0 at", .launch = {.threads = 32, .blocks = 2, .cluster = 2}}};
    check_all(faults, sizeof faults / sizeof *faults);
}

/* ---- products */

/* B, 16 x 8 of zeros, is at tile+1024; A in registers. Thread 0 has an mbarrier. */
#define ZEROS                                                                                                                  \
    "shl.b32 %r1, %r0, 2;\nadd.u32 %r1, %r1, tile+1024;\nst.shared.u32 [%r1], 0;\nsetp.ne.u32 %p2, %r0, 0;\n@%p2 bra "         \
    "zero;\n" INIT "zero:\nmov.pred %p3, 0;\nmov.b32 %r10, 0;\nmov.b64 %d2, 0x1000080080;\nfence.proxy.async;\nbar.sync 0;\n"
#define FENCE "wgmma.fence.sync.aligned;\n"
#define PRODUCT                                                                                                                \
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, {%r10, %r10, %r10, %r10}, %d2, %p3, 1, 1, 0;\n"
#define PLACED                                                                                                                 \
    "mov.b32 %r11, 0x44444444;\nwgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%f0, %f1, %f2, %f3}, {%r10, %r10, "      \
    "%r10, "                                                                                                                   \
    "%r10}, %d2, %r11, 0, %p3, 1, 1, 0;\n"
#define COMMIT "wgmma.commit_group.sync.aligned;\n"
#define DONE   "wgmma.wait_group.sync.aligned 0;\n"
#define REFILL "@%p2 bra filled;\n" EXPECT "16;\n" BULK "[tile+1024], [%d0], 16, [tile];\nfilled:\n"
#define SPARSE(ordered)                                                                                                        \
    "mov.b32 %r10, 0;\n# mma.sp" ordered ".sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, "               \
    "{%r10, %r10, %r10, %r10}, {%r10, %r10, %r10, %r10}, {%f0, %f1, %f2, %f3}, %r11, 0;\n"

static void products(void **state)
{
    (void)state;
    static const fault faults[] = {
        {"no fence", ZEROS "$# " PRODUCT COMMIT DONE, "", FENCE, .says = "no wgmma.fence came before it", .launch = GROUP},
        {"never committed", ZEROS FENCE "# " PRODUCT "$" DONE, "", COMMIT, .says = "never committed", .launch = GROUP},
        {"never waited for", ZEROS FENCE "# " PRODUCT COMMIT "$", "", DONE, .says = "ended without waiting", .launch = GROUP},
        {"waited for too little", ZEROS FENCE "# " PRODUCT COMMIT "wgmma.wait_group.sync.aligned $;", "1", "0",
         .says = "no wgmma.wait_group covers it", .launch = GROUP},
        {"a copy into what is still read", ZEROS FENCE PRODUCT COMMIT "$" REFILL "# " DONE WAIT("last"), "",
         DONE "bar.sync 0;\n", .says = "overwritten before wgmma.wait_group: shared address 0x800", .launch = GROUP},
        {"a store into what is still read", ZEROS FENCE PRODUCT COMMIT "$st.shared.u32 [tile+1032], 1;\n# " DONE, "",
         DONE "bar.sync 0;\n", .says = "B of the wgmma at line 18 was overwritten", .launch = GROUP},
        {"a register that is still read", ZEROS FENCE PRODUCT COMMIT "$mov.b32 %r10, 1;\n# " DONE, "", DONE,
         .says = "A of the wgmma at line 18 was overwritten", .launch = GROUP},
        {"a sum that is read too early", ZEROS FENCE PRODUCT COMMIT "$st.global.f32 [%d0], %f0;\n" DONE, "", DONE,
         .seen = 0xffffffff, .launch = GROUP},
        {"a sum that is written too early", ZEROS FENCE PRODUCT COMMIT "$mov.f32 %f0, 0f3F800000;\n# " DONE, "", DONE,
         .says = "D of the wgmma at line 18 was written", .launch = GROUP},
        {"B that is not fenced", ZEROS "st.shared.u32 [%r1], 0;\n$bar.sync 0;\n" FENCE "# " PRODUCT COMMIT DONE, "",
         "fence.proxy.async;\n", .says = "with no fence.proxy.async", .launch = GROUP},
        {"a descriptor of what is not there", ZEROS FENCE "mov.b64 %d2, $;\n# " PRODUCT COMMIT DONE, "0x1000080140",
         "0x1000080130", .says = "B of wgmma 16 bytes of shared memory at 0x1400", .launch = GROUP},
        {"a descriptor with odd bits", ZEROS FENCE "mov.b64 %d2, $;\n# " PRODUCT COMMIT DONE, "0x1000084080", "0x1000080080",
         .says = "has bits beside its fields", .launch = GROUP},
        {"a descriptor with a base offset", ZEROS FENCE "mov.b64 %d2, $;\n# " PRODUCT COMMIT DONE, "0x2001000080080",
         "0x1000080080", .says = "has a base offset", .launch = GROUP},
        {"a predicate that lanes disagree on", ZEROS FENCE "$# " PRODUCT COMMIT DONE, "setp.eq.u32 %p3, %r0, 5;\n", "",
         .says = "the predicate of D is not lane 0's", .launch = GROUP},
        {"places that are still read", ZEROS FENCE PLACED COMMIT "$mov.b32 %r11, 0;\n# " DONE, "", DONE,
         .says = "the metadata of the wgmma at line 19 was overwritten", .launch = GROUP},
        {"k that is longer than its span", ZEROS FENCE "mov.b64 %d2, $;\n" PLACED COMMIT DONE, "0xc000001000080080",
         "0x2000080080", .says = "32 k do not fit into 32 swizzled bytes", .launch = GROUP},
        {"a descriptor that lanes disagree on",
         ZEROS FENCE "cvt.u64.u32 %d3, %r0;\nadd.s64 %d2, %d2, $;\n# " PRODUCT COMMIT DONE, "%d3", "0",
         .says = "is not lane 0's", .launch = GROUP},
        {"an A of which lanes are gone", ZEROS "setp.eq.u32 %p4, %r0, 5;\n$" FENCE PRODUCT COMMIT DONE, "@%p4 ret;\n", "",
         .says = "it is the whole warp's", .launch = GROUP},
        {"places that do not ascend", "mov.b32 %r11, $;\n" SPARSE("::ordered_metadata"), "0x44444414", "0x444444e4",
         .says = "row 0 keeps positions 1 and 0 of the k from 4 on, which do not ascend", .launch = WARP},
        {"a place that is kept twice", "mov.b32 %r11, $;\n" SPARSE(""), "0x44445444", "0x44441444",
         .says = "keeps positions 1 and 1", .launch = WARP}};
    check_all(faults, sizeof faults / sizeof *faults);
}

/* What all lanes of a warp, or all warps of a group, do together, some of them do not do alone. */
static void whole_warps_and_groups(void **state)
{
    (void)state;
    static const char *const instructions[] = {
        FENCE,
        PRODUCT,
        COMMIT,
        DONE,
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [tile];\n",
        "stmatrix.sync.aligned.m8n8.x1.shared.b16 [tile], {%r10};\n",
        "movmatrix.sync.aligned.m8n8.trans.b16 %r2, %r10;\n",
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r10, %r10}, {%r10}, {%f0, %f1, %f2, %f3};\n"};
    const int count = sizeof instructions / sizeof *instructions;
    uint32_t *memory = case_allocate(BYTES);
    for (int guarded = -1; guarded <= count; ++guarded) { /* none of them, each in turn, none of a group that is not whole */
        char body[4096] = ZEROS "setp.ne.u32 %p4, %r0, 5;\n", why[1024] = "";
        for (int i = 0; i < count; ++i) {
            if (i == guarded) strcat(body, "@%p4 ");
            strcat(body, instructions[i]);
        }
        bool done = case_run(&(case_launch){.threads = guarded < count ? 128 : 96}, body, memory, why, sizeof why);
        assert_int_equal(done, guarded < 0);
        if (!done) assert_non_null(strstr(why, guarded < count ? "it is the whole warp's" : "its warpgroup is not whole"));
    }
    case_free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(addresses), cmocka_unit_test(threads), cmocka_unit_test(products),
                                       cmocka_unit_test(whole_warps_and_groups)};
    return cmocka_run_group_tests(tests, case_open, case_close);
}
