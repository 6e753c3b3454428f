/* test_emulator_races_global.c - accesses to global memory that nothing orders are found (tests/emulator/races_global.c, races_flag.c), and
 * so are flags, fences and mbarriers of too small a scope, and proxy fences that are missing: each kernel has one such fault, and is told of
 * in every order; mended it runs through in every order. */
#include "emulator_fault.h"

/* Two warps of a block, or two blocks of a warp that are a cluster or none; %p1 is whether a thread is of the second of the two, %p4 that
 * it is not the first's first thread, %p5 that it is not the second's. Data are at %d0+64, a flag at %d0 that is FIRST at the start. */
#define WARPS                                                                                                                  \
    {                                                                                                                          \
        .threads = 64                                                                                                          \
    }
#define BLOCKS                                                                                                                 \
    {                                                                                                                          \
        .threads = 32, .blocks = 2                                                                                             \
    }
#define CLUSTER                                                                                                                \
    {                                                                                                                          \
        .threads = 32, .blocks = 2, .cluster = 2                                                                               \
    }
#define SECOND_WARP  "setp.ge.u32 %p1, %r0, 32;\nsetp.ne.u32 %p4, %r0, 0;\nsetp.ne.u32 %p5, %r0, 32;\n"
#define SECOND_BLOCK "mov.u32 %r9, %ctaid.x;\nshl.b32 %r8, %r9, 5;\nadd.u32 %r0, %r0, %r8;\n" SECOND_WARP

#define FIRST_GO  "@%p1 bra second;\n"
#define WRITE     "@!%p4 st.global.u32 [%d0+64], 5;\n"
#define READ      "@!%p5 ld.global.u32 %r1, [%d0+64];\n"
#define FLAG      "1000" /* before the first thread adds 1 */
#define ADD(how)  "@!%p4 red." how ".global.add.u32 [%d0], 1;\n"
#define POLL(how) "@%p5 bra end;\nagain:\nld." how ".global.u32 %r2, [%d0];\nsetp.eq.u32 %p6, %r2, " FLAG ";\n@%p6 bra again;\n"
#define META      "bar.warp.sync -1;\n"

/* Told of in every order, with these words; and nothing is, in any, once it is mended. */
static bool is_found_in_every_order(const fault *f)
{
    static const struct {
        const char *order;
        int seed;
    } orders[] = {{NULL, 1}, {"late", 7}, {"early", 1}, {"random", 1}, {"random", 2}, {"random", 3}, {"random", 4}};
    bool all = true;
    for (size_t i = 0; i < sizeof orders / sizeof *orders; ++i) {
        char wrong[1024] = "", right[1024] = "";
        uint32_t first = 0;
        int marked;
        case_order(orders[i].order, orders[i].seed);
        bool told = !run_choice(f, f->wrong, &first, wrong, sizeof wrong, &marked) && strstr(wrong, f->says);
        bool mended = run_choice(f, f->right, &first, right, sizeof right, &marked);
        if (!told) print_error("%s, %s %d: %s\n", f->name, orders[i].order ? orders[i].order : "", orders[i].seed, wrong);
        if (!mended)
            print_error("%s, mended, %s %d: %s\n", f->name, orders[i].order ? orders[i].order : "", orders[i].seed, right);
        all = all && told && mended;
    }
    case_order(NULL, 1);
    return all;
}

static void check_in_every_order(const fault *faults, size_t count)
{
    int missed = 0;
    for (size_t i = 0; i < count; ++i) missed += !is_found_in_every_order(&faults[i]);
    assert_int_equal(missed, 0);
}
#define CHECK_ALL(faults) check_in_every_order(faults, sizeof(faults) / sizeof *(faults))

static void within_a_block(void **state)
{
    (void)state;
    static const fault faults[] = {
        {"a word read before it is known to be written", SECOND_WARP WRITE "$" READ, "", "bar.sync 0;\n",
         .says = "a race in global memory", .launch = WARPS},
        {"two writes", SECOND_WARP WRITE "$@!%p5 st.global.u32 [%d0+64], 6;\n", "", "bar.sync 0;\n", .says = "a race in global",
         .launch = WARPS},
        {"a lane reads what another wrote", SECOND_WARP WRITE "setp.eq.u32 %p6, %r0, 1;\n$@%p6 ld.global.u32 %r1, [%d0+64];\n",
         "", META, .says = "by lanes 0x1 of warp 0 of block 0", .launch = WARP},
        {"bytes that overlap", SECOND_WARP "@!%p4 st.global.u16 [%d0+66], 5;\n@!%p5 st.global.u32 [%d0+$], 6;\n", "64", "68",
         .says = "which was written", .launch = WARPS},
        {"the last byte of a vector",
         SECOND_WARP "@!%p4 st.global.u8 [%d0+$], 5;\n@!%p5 ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d0+64];\n", "79", "80",
         .says = "which was written", .launch = WARPS},
        {"a sum, and a read that is not strong", SECOND_WARP "red.global.add.u32 [%d0+64], 1;\n$", READ,
         "@!%p5 ld.relaxed.gpu.global.u32 %r1, [%d0+64];\n", .says = "which was added to", .launch = WARPS},
        {"volatile on one side alone", SECOND_WARP "@!%p4 st.volatile.global.u32 [%d0+64], 5;\n$", READ,
         "@!%p5 ld.volatile.global.u32 %r1, [%d0+64];\n", .says = "which was written", .launch = WARPS},
        {"cp.async of what is not known to be written",
         SECOND_WARP WRITE "$@!%p5 cp.async.ca.shared.global [tile], [%d0+64], 4;\ncp.async.wait_all;\n", "", "bar.sync 0;\n",
         .says = "cp.async", .launch = WARPS},
        {"an mbarrier that is not waited for",
         SECOND_WARP "@!%p4 mbarrier.init.shared::cta.b64 [tile], 1;\nbar.sync 0;\n" FIRST_GO WRITE
                     "@!%p4 mbarrier.arrive.shared::cta.b64 _, [tile];\nbra end;\nsecond:\n$" READ "end:\n",
         "", "again:\nmbarrier.try_wait.parity.shared::cta.b64 %p6, [tile], 0;\n@!%p6 bra again;\n", .says = "a race in global",
         .launch = WARPS},
        {"a flag in shared memory, not acquired",
         SECOND_WARP "@!%p4 st.shared.u32 [tile], 0;\nbar.sync 0;\n" FIRST_GO WRITE
                     "@!%p4 st.release.cta.shared::cta.u32 [tile], 1;\nbra end;\nsecond:\n@%p5 bra end;\nagain:\n"
                     "ld.$.cta.shared::cta.u32 %r2, [tile];\nsetp.eq.u32 %p6, %r2, 0;\n@%p6 bra again;\n" READ "end:\n",
         "relaxed", "acquire", .says = "a race in global", .launch = WARPS},
        {"a flag in shared memory, not released",
         SECOND_WARP "@!%p4 st.shared.u32 [tile], 0;\nbar.sync 0;\n" FIRST_GO WRITE
                     "@!%p4 st.$.cta.shared::cta.u32 [tile], 1;\nbra end;\nsecond:\n@%p5 bra end;\nagain:\n"
                     "ld.acquire.cta.shared::cta.u32 %r2, [tile];\nsetp.eq.u32 %p6, %r2, 0;\n@%p6 bra again;\n" READ "end:\n",
         "relaxed", "release", .says = "a race in global", .launch = WARPS},
        {"read by ld.global.nc what the launch has written",
         SECOND_WARP WRITE "bar.sync 0;\n@!%p5 ld.global$.u32 %r1, [%d0+64];\n", ".nc", "", .says = "ld.global.nc",
         .launch = WARPS}};
    CHECK_ALL(faults);
}

static void between_blocks(void **state)
{
    (void)state;
    static const fault faults[] = {
        {"two blocks write a word", SECOND_BLOCK "@!%p4 st.global.u32 [%d0+64], 5;\n@!%p5 st.global.u32 [%d0+$], 5;\n", "64",
         "68", .says = "a race in global", .launch = BLOCKS},
        {"a block reads what another writes", SECOND_BLOCK WRITE "@!%p5 ld.global.u32 %r1, [%d0+$];\n", "64", "68",
         .says = "a race in global", .launch = BLOCKS},
        {"sums, and a store that is none", SECOND_BLOCK "@!%p4 red.global.add.u32 [%d0+64], 1;\n$",
         "@!%p5 st.global.u32 [%d0+64], 1;\n", "@!%p5 red.global.add.u32 [%d0+64], 1;\n", .says = "a race in global",
         .launch = BLOCKS},
        {"sums for the block alone", SECOND_BLOCK "red.relaxed.$.global.add.u32 [%d0+64], 1;\n", "cta", "gpu",
         .says = "which was added to", .launch = BLOCKS},
        {"sums for the cluster alone", SECOND_BLOCK "red.relaxed.$.global.add.u32 [%d0+64], 1;\n", "cluster", "gpu",
         .says = "which was added to", .launch = BLOCKS},
        {"sums for the block, in a cluster", SECOND_BLOCK "red.relaxed.$.global.add.u32 [%d0+64], 1;\n", "cta", "cluster",
         .says = "which was added to", .launch = CLUSTER},
        {"a barrier of the block does not reach the other", SECOND_BLOCK WRITE "$" READ, "bar.sync 0;\n", CLUSTER_BARRIER,
         .says = "a race in global", .launch = CLUSTER},
        {"a barrier of the cluster that orders nothing",
         SECOND_BLOCK WRITE "barrier.cluster.arrive$.aligned;\nbarrier.cluster.wait.aligned;\n" READ, ".relaxed", "",
         .says = "a race in global", .launch = CLUSTER},
        {"and one behind a fence of too small a scope",
         SECOND_BLOCK WRITE "fence.acq_rel.$;\nbarrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;\n" READ,
         "cta", "cluster", .says = "a race in global", .launch = CLUSTER}};
    CHECK_ALL(faults);
}

/* The first block writes and adds to the flag, the second waits for that and reads. */
#define BY_FLAG(add, poll) SECOND_BLOCK FIRST_GO WRITE add "bra end;\nsecond:\n" poll READ "end:\n"

static void flags(void **state)
{
    (void)state;
    static const fault faults[] = {
        {"not released", BY_FLAG(ADD("$.gpu"), POLL("acquire.gpu")), "relaxed", "release", .says = "a race in global",
         .launch = BLOCKS},
        {"not acquired", BY_FLAG(ADD("release.gpu"), POLL("$.gpu")), "relaxed", "acquire", .says = "a race in global",
         .launch = BLOCKS},
        {"released to the block alone", BY_FLAG(ADD("release.$"), POLL("acquire.gpu")), "cta", "gpu",
         .says = "a race in global", .launch = BLOCKS},
        {"released to the cluster alone", BY_FLAG(ADD("release.$"), POLL("acquire.gpu")), "cluster", "gpu",
         .says = "a race in global", .launch = BLOCKS},
        {"acquired from the block alone", BY_FLAG(ADD("release.gpu"), POLL("acquire.$")), "cta", "gpu",
         .says = "a race in global", .launch = BLOCKS},
        {"released to the block alone, in a cluster", BY_FLAG(ADD("release.$"), POLL("acquire.cluster")), "cta", "cluster",
         .says = "a race in global", .launch = CLUSTER},
        {"released too early", SECOND_BLOCK FIRST_GO "$bra end;\nsecond:\n" POLL("acquire.gpu") READ "end:\n",
         ADD("release.gpu") WRITE, WRITE ADD("release.gpu"), .says = "a race in global", .launch = BLOCKS},
        {"one lane tells of what another wrote",
         SECOND_BLOCK FIRST_GO "setp.eq.u32 %p6, %r0, 1;\n@%p6 st.global.u32 [%d0+64], 5;\n$" ADD(
             "release.gpu") "bra end;\nsecond:\n" POLL("acquire.gpu") READ "end:\n",
         "", META, .says = "by lanes 0x2 of warp 0 of block 0", .launch = BLOCKS},
        {"what one lane has acquired, another reads",
         SECOND_BLOCK FIRST_GO WRITE ADD(
             "release.gpu") "bra end;\nsecond:\n@%p5 bra met;\nagain:\nld.acquire.gpu.global.u32 %r2, [%d0];\n"
                            "setp.eq.u32 %p6, %r2, " FLAG ";\n@%p6 bra again;\nmet:\n$ld.global.u32 %r1, [%d0+64];\nend:\n",
         "", META, .says = "a race in global", .launch = BLOCKS},
        {"a store that begins anew, over a release",
         SECOND_BLOCK FIRST_GO WRITE "@!%p4 st.release.gpu.global.u32 [%d0], 7;\n$bra end;\nsecond:\n@%p5 bra end;\nagain:\n"
                                     "ld.acquire.gpu.global.u32 %r2, [%d0];\nsetp.ne.u32 %p6, %r2, 8;\n@%p6 bra again;\n" READ
                                     "end:\n",
         "@!%p4 st.relaxed.gpu.global.u32 [%d0], 8;\n", "@!%p4 red.relaxed.gpu.global.add.u32 [%d0], 1;\n",
         .says = "a race in global", .launch = BLOCKS},
        {"read before the flag, written behind it",
         SECOND_BLOCK FIRST_GO "@!%p4 ld.global.u32 %r1, [%d0+64];\n" ADD("$.gpu") "bra end;\nsecond:\n" POLL(
             "acquire.gpu") "st.global.u32 [%d0+64], 5;\nend:\n",
         "relaxed", "release", .says = "which was read", .launch = BLOCKS}};
    CHECK_ALL(faults);
}

static void fences(void **state)
{
    (void)state;
    static const fault faults[] = {
        {"none before a relaxed sum", BY_FLAG("$" ADD("relaxed.gpu"), POLL("acquire.gpu")), "", "@!%p4 fence.acq_rel.gpu;\n",
         .says = "a race in global", .launch = BLOCKS},
        {"behind it", BY_FLAG("$", POLL("acquire.gpu")), ADD("relaxed.gpu") "fence.acq_rel.gpu;\n",
         "fence.acq_rel.gpu;\n" ADD("relaxed.gpu"), .says = "a race in global", .launch = BLOCKS},
        {"before the write",
         SECOND_BLOCK FIRST_GO "$" ADD("relaxed.gpu") "bra end;\nsecond:\n" POLL("acquire.gpu") READ "end:\n",
         "fence.acq_rel.gpu;\n" WRITE, WRITE "fence.acq_rel.gpu;\n", .says = "a race in global", .launch = BLOCKS},
        {"of the block alone", BY_FLAG("fence.acq_rel.$;\n" ADD("relaxed.gpu"), POLL("acquire.gpu")), "cta", "gpu",
         .says = "a race in global", .launch = BLOCKS},
        {"an old one of the block alone", BY_FLAG("membar.$;\n" ADD("relaxed.gpu"), POLL("acquire.gpu")), "cta", "gl",
         .says = "a race in global", .launch = BLOCKS},
        {"none behind a relaxed read", BY_FLAG(ADD("release.gpu"), POLL("relaxed.gpu") "$"), "", "fence.acq_rel.gpu;\n",
         .says = "a race in global", .launch = BLOCKS},
        {"of the block alone, behind a relaxed read", BY_FLAG(ADD("release.gpu"), POLL("relaxed.gpu") "fence.sc.$;\n"), "cta",
         "gpu", .says = "a race in global", .launch = BLOCKS},
        {"none by the lane that tells",
         SECOND_BLOCK FIRST_GO "setp.eq.u32 %p6, %r0, 1;\n@%p6 st.global.u32 [%d0+64], 5;\n$" ADD(
             "relaxed.gpu") "bra end;\nsecond:\n" POLL("acquire.gpu") READ "end:\n",
         "fence.acq_rel.gpu;\n" META, META "fence.acq_rel.gpu;\n", .says = "a race in global", .launch = BLOCKS}};
    CHECK_ALL(faults);
}

/* ---- the copy engine: an mbarrier at tile of the second block, or of the only one, which it fills tile+128 for */
#define OWN_BARRIER                                                                                                            \
    "mov.u32 %r7, %tid.x;\nsetp.eq.u32 %p7, %r7, 0;\n@%p7 mbarrier.init.shared::cta.b64 [tile], 1;\n"                          \
    "fence.mbarrier_init.release.cluster;\nbar.sync 0;\n"
#define FILL                                                                                                                   \
    "mbarrier.arrive.expect_tx.shared::cta.b64 _, [tile], 16;\n" BULK "[tile+128], [%d0+64], 16, [tile];\n"                    \
    "filled:\nmbarrier.try_wait.parity.shared::cta.b64 %p6, [tile], 0;\n@!%p6 bra filled;\n"
#define FILL_BOX                                                                                                               \
    "mbarrier.arrive.expect_tx.shared::cta.b64 _, [tile], 128;\n"                                                              \
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [tile+128], [map, {0, 0}], [tile];\n"    \
    "filled:\nmbarrier.try_wait.parity.shared::cta.b64 %p6, [tile], 0;\n@!%p6 bra filled;\n"

static void proxies(void **state)
{
    (void)state;
    static const fault faults[] = {
        {"a bulk copy of what the thread itself wrote", OWN_BARRIER "st.global.u32 [%d0+64], 5;\n$" FILL, "",
         "fence.proxy.async;\n", .says = "no fence.proxy.async"},
        {"a fence before the write", OWN_BARRIER "$" FILL, "fence.proxy.async;\nst.global.u32 [%d0+64], 5;\n",
         "st.global.u32 [%d0+64], 5;\nfence.proxy.async;\n", .says = "no fence.proxy.async"},
        {"a fence of shared memory", OWN_BARRIER "st.global.u32 [%d0+64], 5;\nfence.proxy.async.$;\n" FILL, "shared::cta",
         "global", .says = "no fence.proxy.async"},
        {"a fence of global memory, before a box is stored",
         "st.shared.u32 [tile+128], 0;\nfence.proxy.async$;\n"
         "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [map, {0, 0}], [tile+128];\n"
         "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\n",
         ".global", ".shared::cta", .says = "no fence.proxy.async"},
        {"a box of what the thread itself wrote", OWN_BARRIER "st.global.u32 [%d0+128], 5;\n$" FILL_BOX, "",
         "fence.proxy.async;\n", .says = "no fence.proxy.async"},
        {"a box beside it", OWN_BARRIER "st.global.u32 [%d0+$], 5;\n" FILL_BOX, "128", "160", .says = "no fence.proxy.async"},
        {"none on the way from block to block, by flags",
         SECOND_BLOCK OWN_BARRIER FIRST_GO WRITE ADD("release.gpu") "bra end;\nsecond:\n" POLL("acquire.gpu") "$" FILL "end:\n",
         "", "fence.proxy.async.global;\n", .says = "no fence.proxy.async", .launch = BLOCKS},
        {"or with who writes",
         SECOND_BLOCK OWN_BARRIER FIRST_GO WRITE "$" ADD("release.gpu") "bra end;\nsecond:\n" POLL("acquire.gpu") FILL "end:\n",
         "", "fence.proxy.async.global;\n", .says = "no fence.proxy.async", .launch = BLOCKS},
        {"behind the release", SECOND_BLOCK OWN_BARRIER FIRST_GO WRITE "$bra end;\nsecond:\n" POLL("acquire.gpu") FILL "end:\n",
         ADD("release.gpu") "fence.proxy.async.global;\n", "fence.proxy.async.global;\n" ADD("release.gpu"),
         .says = "no fence.proxy.async", .launch = BLOCKS},
        {"a fence is no barrier of the warp",
         SECOND_WARP WRITE "fence.proxy.async;\nsetp.eq.u32 %p6, %r0, 1;\n$@%p6 ld.global.u32 %r1, [%d0+64];\n", "", META,
         .says = "nothing orders", .launch = WARP},
        {"a fence alone orders nothing",
         SECOND_BLOCK OWN_BARRIER FIRST_GO WRITE "fence.proxy.async;\n" ADD("$.gpu") "bra end;\nsecond:\n" POLL("acquire.gpu")
             FILL "end:\n",
         "relaxed", "release", .says = "nothing orders", .launch = BLOCKS}};
    CHECK_ALL(faults);
}

#define STORE_BOX                                                                                                              \
    "@!%p4 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [map, {0, 0}], [tile+128];\n"                            \
    "@!%p4 cp.async.bulk.commit_group;\n"

static void copies(void **state)
{
    (void)state;
    static const fault faults[] = {
        {"what a bulk copy reads, overwritten before the mbarrier is told",
         SECOND_WARP
         "@!%p4 mbarrier.init.shared::cta.b64 [tile], 1;\nfence.mbarrier_init.release.cluster;\nbar.sync 0;\n@%p4 bra "
         "on;\nmbarrier.arrive.expect_tx.shared::cta.b64 _, [tile], 16;\n" BULK
         "[tile+128], [%d0+64], 16, [tile];\non:\nbar.sync 0;\n$@!%p5 st.global.u32 [%d0+64], 5;\n"
         "@!%p1 bra end;\n@%p5 bra end;\nlast:\nmbarrier.try_wait.parity.shared::cta.b64 %p6, [tile], 0;\n@!%p6 bra "
         "last;\nend:\n",
         "", "filled:\nmbarrier.try_wait.parity.shared::cta.b64 %p6, [tile], 0;\n@!%p6 bra filled;\n",
         .says = "by the copy engine for block 0", .launch = WARPS},
        {"a slot given back to another block before it was read",
         SECOND_BLOCK OWN_BARRIER FIRST_GO
         "@%p4 bra end;\nmbarrier.arrive.expect_tx.shared::cta.b64 _, [tile], 16;\n" BULK
         "[tile+128], [%d0+64], 16, [tile];\n$bra end;\nsecond:\n" POLL("acquire.gpu") "st.global.u32 [%d0+64], 5;\nend:\n",
         ADD("release.gpu") "filled:\nmbarrier.try_wait.parity.shared::cta.b64 %p6, [tile], 0;\n@!%p6 bra filled;\n",
         "filled:\nmbarrier.try_wait.parity.shared::cta.b64 %p6, [tile], 0;\n@!%p6 bra filled;\n" ADD("release.gpu"),
         .says = "by the copy engine for block 0", .launch = BLOCKS},
        {"a box is stored where another block writes",
         SECOND_BLOCK "@!%p4 st.shared.u32 [tile+128], 0;\nfence.proxy.async;\n" STORE_BOX "@!%p4 cp.async.bulk.wait_group 0;\n"
                      "@!%p5 st.global.u32 [%d0+$], 5;\n",
         "128", "160", .says = "a race in global", .launch = BLOCKS},
        {"a box of the thread itself, which reads it by a copy",
         OWN_BARRIER "st.shared.u32 [tile+128], 0;\nfence.proxy.async;\n"
                     "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [map, {0, 0}], [tile+128];\n"
                     "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group$ 0;\n" FILL_BOX,
         ".read", "", .says = "nothing orders"},
        {"a box that was read, and not yet written",
         SECOND_WARP "@!%p4 st.shared.u32 [tile+128], 0;\nfence.proxy.async;\n" STORE_BOX
                     "@!%p4 cp.async.bulk.wait_group$ 0;\nbar.sync 0;\n@!%p5 ld.global.u32 %r1, [%d0+128];\n"
                     "@!%p4 cp.async.bulk.wait_group 0;\n",
         ".read", "", .says = "which was written", .launch = WARPS}};
    CHECK_ALL(faults);
}

/* ---- mbarriers of another block */
#define PEER              SECOND_BLOCK "mov.u32 %r2, tile;\nmapa.shared::cluster.u32 %r3, %r2, 1;\n" OWN_BARRIER CLUSTER_BARRIER FIRST_GO
#define ARRIVE_FAR(scope) "@!%p4 mbarrier.arrive" scope ".shared::cluster.b64 _, [%r3];\n"
#define AWAIT(scope)      "again:\nmbarrier.try_wait.parity" scope ".shared::cta.b64 %p6, [tile], 0;\n@!%p6 bra again;\n"

#define FILLED "filled:\nmbarrier.try_wait.parity.shared::cta.b64 %p6, [tile], 0;\n@!%p6 bra filled;\n"

static void scopes_of_mbarriers(void **state)
{
    (void)state;
    static const fault faults[] = {
        {"told to the own block alone",
         PEER WRITE ARRIVE_FAR("$") "bra end;\nsecond:\n" AWAIT(".acquire.cluster") READ "end:\n" CLUSTER_BARRIER, "",
         ".release.cluster", .says = "a race in global", .launch = CLUSTER},
        {"heard from the own block alone",
         PEER WRITE ARRIVE_FAR(".release.cluster") "bra end;\nsecond:\n" AWAIT("$") READ "end:\n" CLUSTER_BARRIER, "",
         ".acquire.cluster", .says = "a race in global", .launch = CLUSTER},
        {"what is in the other's shared memory",
         PEER "@!%p4 st.shared::cluster.u32 [%r3+64], 5;\n" ARRIVE_FAR("$") "bra end;\nsecond:\n" AWAIT(
             ".acquire.cluster") "@!%p5 ld.shared.u32 %r1, [tile+64];\nend:\n" CLUSTER_BARRIER,
         "", ".release.cluster", .says = "a race: ", .launch = CLUSTER},
        /* Nor does what the copy engine has brought. */
        {"a stage that another block overwrites",
         PEER "@%p4 bra end;\nmbarrier.arrive.expect_tx.shared::cta.b64 _, [tile], 16;\n" BULK
              "[tile+128], [%d0+64], 16, [tile];\n$bra end;\nsecond:\nmapa.shared::cluster.u32 %r6, %r2, 0;\n" AWAIT(
                  "") "@!%p5 st.shared::cluster.u32 [%r6+128], 5;\nend:\nbar.warp.sync -1;\n" CLUSTER_BARRIER,
         ARRIVE_FAR("") FILLED, FILLED ARRIVE_FAR(""), .says = "by the copy engine for block 0", .launch = CLUSTER},
        /* What was read needs no more than the arrival: a stage that is given back. */
        {"what was read, before and behind the arrival",
         PEER "$bra end;\nsecond:\n" AWAIT("") "@!%p5 st.global.u32 [%d0+64], 5;\nend:\n" CLUSTER_BARRIER,
         ARRIVE_FAR("") "@!%p4 ld.global.u32 %r1, [%d0+64];\n", "@!%p4 ld.global.u32 %r1, [%d0+64];\n" ARRIVE_FAR(""),
         .says = "a race in global", .launch = CLUSTER}};
    CHECK_ALL(faults);
}

/* Launches of a stream are in order; EMULATOR_RACES says whether global memory is looked at. */
static void launches_and_kinds(void **state)
{
    (void)state;
    static const char race[] = SECOND_BLOCK "@!%p4 st.global.u32 [%d0+64], 5;\n@!%p5 st.global.u32 [%d0+64], 6;\n";
    static const struct {
        const char *races;
        bool runs;
    } kinds[] = {{"0", true}, {"shared", true}, {"1", false}, {"strict", false}};
    uint32_t *memory = case_allocate(BYTES);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; ++i) {
        char why[1024] = "";
        case_launch blocks = BLOCKS, one = WARP;
        setenv("EMULATOR_RACES", kinds[i].races, 1);
        assert_int_equal(case_run(&blocks, race, memory, why, sizeof why), kinds[i].runs);
        case_must_run(&one, SECOND_WARP WRITE, memory);
        case_must_run(&one, "ld.global.nc.u32 %r1, [%d0+64];\n", memory);
    }
    case_free(memory);
}

/* Many readers of the same bytes: not all are kept, and one that nothing orders is told of all the same. */
static void many_readers(void **state)
{
    (void)state;
    static const fault faults[] = {
        {"read by every thread of 8 warps",
         "ld.global.u32 %r1, [%d0+64];\n$setp.eq.u32 %p1, %r0, 200;\n@%p1 st.global.u32 [%d0+64], 5;\n", "", "bar.sync 0;\n",
         .says = "which was read", .launch = {.threads = 256}},
        {"read by all of 20 warps, and by one of them again",
         "ld.global.u32 %r1, [%d0+64];\nbar.sync 0;\nsetp.eq.u32 %p1, %r0, 64;\n@%p1 ld.global.u32 %r1, [%d0+64];\n$"
         "setp.eq.u32 %p2, %r0, 300;\n@%p2 st.global.u32 [%d0+64], 5;\n",
         "", "bar.sync 0;\n", .says = "a race in global", .launch = {.threads = 640}},
        {"read by 40 blocks",
         "ld.global.u32 %r1, [%d0+$];\nmov.u32 %r9, %ctaid.x;\nsetp.eq.u32 %p1, %r9, 39;\n@%p1 st.global.u32 [%d0+64], 5;\n",
         "64", "68", .says = "which was read", .launch = {.threads = 1, .blocks = 40}}};
    CHECK_ALL(faults);
}

/* Lanes that exchange registers know what the others had read, by how the hardware works, and not what they had written. */
static void exchanges(void **state)
{
    (void)state;
    static const fault faults[] = {
        {"read behind the exchange",
         SECOND_WARP "setp.eq.u32 %p6, %r0, 1;\nmov.u32 %r1, 0;\n$@%p6 st.global.u32 [%d0+64], %r2;\n",
         "shfl.sync.idx.b32 %r2, %r1, 0, 31, -1;\n@!%p4 ld.global.u32 %r1, [%d0+64];\n",
         "@!%p4 ld.global.u32 %r1, [%d0+64];\nshfl.sync.idx.b32 %r2, %r1, 0, 31, -1;\n", .says = "which was read",
         .launch = WARP},
        {"written before it",
         SECOND_WARP WRITE "setp.eq.u32 %p6, %r0, 1;\nmov.u32 %r1, 0;\n$@%p6 ld.global.u32 %r1, [%d0+64];\n",
         "shfl.sync.idx.b32 %r2, %r1, 0, 31, -1;\n", META, .says = "which was written", .launch = WARP}};
    setenv("EMULATOR_RACES", "1", 1);
    CHECK_ALL(faults);
    char why[1024] = "", body[1024];
    uint32_t *memory = case_allocate(BYTES);
    case_launch launch = WARP;
    body_of(&faults[0], faults[0].right, body, sizeof body);
    setenv("EMULATOR_RACES", "strict", 1);
    assert_false(case_run(&launch, body, memory, why, sizeof why));
    assert_non_null(strstr(why, "which was read"));
    case_free(memory);
}

static int look_for_races(void **state)
{
    (void)state;
    return setenv("EMULATOR_RACES", "strict", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup(within_a_block, look_for_races),
                                       cmocka_unit_test_setup(between_blocks, look_for_races),
                                       cmocka_unit_test_setup(flags, look_for_races),
                                       cmocka_unit_test_setup(fences, look_for_races),
                                       cmocka_unit_test_setup(proxies, look_for_races),
                                       cmocka_unit_test_setup(copies, look_for_races),
                                       cmocka_unit_test_setup(scopes_of_mbarriers, look_for_races),
                                       cmocka_unit_test_setup(many_readers, look_for_races),
                                       cmocka_unit_test(exchanges),
                                       cmocka_unit_test(launches_and_kinds)};
    return cmocka_run_group_tests(tests, case_open, case_close);
}
