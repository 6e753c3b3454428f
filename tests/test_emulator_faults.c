/* test_emulator_faults.c - every check of the emulator can fail. A row is a kernel with one fault and the same kernel mended: the first
 * must be told of, with the line and in these words, or where hardware would silently go wrong its result must be; the second must run
 * through, whatever order copies land in and warps run in. */
#include "emulator_case.h"

enum { BYTES = 1032, WORDS = BYTES / 4, FIRST = 1000, ROWS = 8 };

/* In `text`, $ is where `wrong` or `right` stands, and # marks the line that the failure names. */
typedef struct fault {
    const char *name, *text, *wrong, *right;
    const char *says;      /* NULL: nothing is told, but the kernel's first word becomes `seen` */
    uint32_t seen, wanted; /* memory[0] behind the wrong and, if not 0, the right kernel; before, memory[i] is FIRST + i */
    bool always;           /* `seen` also where copies land at once */
    case_launch launch;
} fault;

/* A tensor of ROWS x 64 halves in `memory`, in boxes of 4 x 16. */
static emu_tensor_map tensor_of(const uint32_t *memory, uint32_t rows)
{
    return (emu_tensor_map){.magic = EMU_TENSOR_MAGIC,
                            .address = (uint64_t)(uintptr_t)memory,
                            .strides = {128},
                            .sizes = {64, rows},
                            .box = {16, 4},
                            .rank = 2,
                            .element_bytes = 2};
}

/* The kernel, and the line of its mark; 0: there is none. */
static int body_of(const fault *f, const char *choice, char *body, size_t size)
{
    int line = CASE_FIRST_LINE, marked = 0;
    size_t length = 0;
    for (const char *at = f->text; *at; ++at) {
        assert_true(length + strlen(choice) + 2 < size);
        if (*at == '#') {
            marked = line;
        } else if (*at == '$') {
            memcpy(body + length, choice, strlen(choice));
            length += strlen(choice);
            for (const char *c = choice; *c; ++c) line += *c == '\n';
        } else {
            body[length++] = *at;
            line += *at == '\n';
        }
    }
    body[length] = 0;
    return marked;
}

/* Whether it ran through; memory[0] is in *first then. */
static bool run_choice(const fault *f, const char *choice, uint32_t *first, char *why, size_t why_size, int *marked)
{
    char body[8192];
    uint32_t *memory = case_allocate(BYTES);
    case_launch launch = f->launch;
    for (uint32_t i = 0; i < WORDS; ++i) memory[i] = FIRST + i;
    *marked = body_of(f, choice, body, sizeof body);
    if (!launch.map.magic) launch.map = tensor_of(memory, ROWS);
    bool done = case_run(&launch, body, memory, why, why_size);
    *first = memory[0];
    case_free(memory);
    return done;
}

/* Whether the faulty kernel is found, in the orders that find it, and the mended one runs in all. */
static bool is_found(const fault *f)
{
    static const struct {
        const char *order;
        int seed;
    } orders[] = {{NULL, 1}, {"late", 7}, {"early", 1}, {"random", 1}, {"random", 2}, {"random", 3}};
    bool found = true;
    for (size_t i = 0; i < sizeof orders / sizeof *orders; ++i) {
        char why[1024] = "", line[32];
        uint32_t first = 0;
        int marked;
        case_order(orders[i].order, orders[i].seed);
        bool late = i < 2, early = i == 2, done = run_choice(f, f->wrong, &first, why, sizeof why, &marked), told = true;
        snprintf(line, sizeof line, "line %d (", marked);
        if (late && f->says) told = !done && strstr(why, f->says) && (!marked || strstr(why, line));
        if ((late || early) && !f->says) told = done && first == (late || f->always ? f->seen : f->wanted);
        if (!told) print_error("%s: memory is %#x, %s\n", f->name, first, done ? "nothing is wrong" : why);
        bool runs = run_choice(f, f->right, &first, why, sizeof why, &marked);
        bool mended = runs && (!f->wanted || first == f->wanted);
        if (!mended) print_error("%s, mended: memory is %#x, %s\n", f->name, first, runs ? "nothing is wrong" : why);
        found = found && told && mended;
    }
    case_order(NULL, 1);
    return found;
}

static void check_all(const fault *faults, size_t count)
{
    int missed = 0;
    for (size_t i = 0; i < count; ++i) missed += !is_found(&faults[i]);
    assert_int_equal(missed, 0);
}

/* ---- which addresses are whose */

static void addresses(void **state)
{
    (void)state;
    static const fault faults[] = {
        {"reads behind a block", "# ld.global.u32 %r1, [%d0+$];", "1032", "1028", .says = "reads 4 bytes of global memory"},
        {"reads before a block", "# ld.global.u32 %r1, [%d0+$];", "-4", "0", .says = "reads 4 bytes of global memory"},
        {"writes behind a block", "# st.global.u32 [%d0+$], %r0;", "1032", "1028", .says = "writes 4 bytes of global memory"},
        {"writes before a block", "# st.global.u16 [%d0+$], %r0;", "-2", "0", .says = "writes 2 bytes of global memory"},
        {"adds behind a block", "# red.global.add.u32 [%d0+$], 1;", "1032", "0", .says = "adds to 4 bytes of global", .wanted = FIRST + 1},
        {"half of a vector is behind", "# ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d0+$];", "1024", "1008", .says = "reads 16 bytes"},
        {"the last lane reads behind", "mul.wide.u32 %d1, %r0, 4;\nadd.s64 %d1, %d1, %d0;\n# ld.global.u32 %r1, [%d1+$];", "908", "904", .says = "reads 4 bytes of global memory", .launch = {.threads = 32}},
        {"no address at all", "mov.u64 %d1, $;\n# ld.global.u32 %r1, [%d1];", "0", "variable", .says = "reads 4 bytes of global memory"},
        {"an address that was never made", "$\n# ld.global.u32 %r1, [%d1+1];", "", "add.s64 %d1, %d0, -1;", .says = "reads 4 bytes"},
        {"reads behind a variable", "# ld.global.u32 %r1, [variable+$];", "12", "8", .says = "reads 4 bytes of global memory"},
        {"reads behind shared memory", "# ld.shared.u32 %r1, [tile+$];", "4096", "4092", .says = "which ends at 0x1400"},
        {"reads before shared memory", "# ld.shared.u32 %r1, [tile+$];", "-4", "0", .says = "reads 4 bytes of shared memory"},
        {"writes behind shared memory", "# st.shared.v2.u32 [tile+$], {%r0, %r0};", "4096", "4088", .says = "writes 8 bytes of shared"},
        {"reads behind the parameters", "# ld.param.u32 %r1, [map+$];", "128", "124", .says = "reads 4 bytes at 192 of 192 of param"},
        {"reads behind local memory", ".local .align 4 .b8 own[16];\n# ld.local.u32 %r1, [own+$];", "16", "12", .says = "local memory"},
        {"is not aligned to 4", "# ld.global.u32 %r1, [%d0+$];", "2", "4", .says = "not aligned"},
        {"is not aligned to a vector", "# st.global.v2.u32 [%d0+$], {%r0, %r0};", "4", "8", .says = "writes 8 bytes at"},
        {"is not aligned in shared memory", "# ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [tile+$];", "8", "16", .says = "not aligned"},
        {"shared memory of no block", "# ld.shared::cluster.u32 %r1, [tile+$];", "0x03000000", "0x01000000", .says = "shared memory of block 2 of a cluster of 1"},
        {"mapa of a rank that is not there", "mov.u32 %r1, tile;\n# mapa.shared::cluster.u32 %r2, %r1, $;", "2", "1", .says = "block 2 of a cluster of 2", .launch = {.blocks = 2, .cluster = 2}},
        {"a row that is not aligned", "shl.b32 %r1, %r0, 4;\nadd.u32 %r1, %r1, $;\n"
         "# ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r2, %r3, %r4, %r5}, [%r1];", "tile+8", "tile", .says = "not aligned to 16 bytes", .launch = {.threads = 32}},
        {"a row that is outside", "shl.b32 %r1, %r0, 4;\nadd.u32 %r1, %r1, $;\n"
         "# stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r1], {%r1, %r1, %r1, %r1};", "tile+3600", "tile+3584", .says = "row of a matrix 16 bytes of shared memory at 0x1400", .launch = {.threads = 32}},
        {"shared memory that nobody wrote", "$\nld.shared.u32 %r1, [tile];\nst.global.u32 [%d0], %r1;", "", "st.shared.u32 [tile], 5;", .seen = 0xffffffff, .wanted = 5, .always = true},
        {"a register that nobody wrote", "$\nst.global.u32 [%d0], %r9;", "", "mov.b32 %r9, 5;", .seen = 0xffffffff, .wanted = 5, .always = true}};
    check_all(faults, sizeof faults / sizeof *faults);
}

/* ---- warps and barriers among threads */

#define CLUSTER_BARRIER "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n"

static void threads(void **state)
{
    (void)state;
    static const fault faults[] = {
        {"a barrier for parts of warps", "# bar.sync 1, $;", "48", "64", .says = "48 threads, which are no whole warps", .launch = {.threads = 64}},
        {"a barrier for more than there are", "# bar.sync 1, $;", "96", "64", .says = "all threads wait for ever", .launch = {.threads = 64}},
        {"a barrier that warps count differently", "setp.lt.u32 %p1, %r0, 32;\nselp.u32 %r1, 64, $, %p1;\n# bar.sync 1, %r1;", "32", "64", .says = "has 64 threads where 32 are to come", .launch = {.threads = 64}},
        {"a barrier too many", "bar.sync $, 32;", "16", "15", .says = "there are 16", .launch = {.threads = 32}},
        {"a barrier that a warp is not told of", "setp.lt.u32 %p1, %r0, 32;\n@%p1 bra end;\n# bar.sync 2, $;\nend:", "64", "32", .says = "block 0 warp 1 at line", .launch = {.threads = 64}},
        {"lanes that part and never meet", "setp.lt.u32 %p1, %r0, 16;\n@%p1 bra other;\n# bar.sync 0;\nbra end;\nother:\n$\nend:", "bar.sync 0;", "", .says = "block 0 warp 0 in parts", .launch = {.threads = 32}},
        {"lanes that are gone", "setp.lt.u32 %p1, %r0, 16;\n$\n# movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r0;", "@%p1 ret;", "", .says = "it is the whole warp's, and lanes 0xffff0000 alone", .launch = {.threads = 32}},
        {"members that never come", "setp.lt.u32 %p1, %r0, 16;\n@!%p1 bra other;\n# shfl.sync.bfly.b32 %r1, %r0, 1, 31, $;\n"
         "bra end;\nother:\nbar.warp.sync 0xffff0000;\n@%p1 bra other;\nvote.sync.any.pred %p2, %p1, 0xffff0000;\nend:\n"
         "bar.warp.sync -1;", "-1", "0xffff", .says = "all threads wait for ever", .launch = {.threads = 32}},
        {"lanes that bar.warp.sync waits for", "setp.eq.u32 %p1, %r0, 0;\n@%p1 bra first;\n# bar.warp.sync -1;\nbra end;\nfirst:\n"
         "bar.warp.sync $;\nend:", "-1", "1", .says = "in parts", .launch = {.threads = 32}},
        {"a lane that is no member", "# vote.sync.any.pred %p1, %p1, $;", "2", "1", .says = "not among its own members"},
        {"members that disagree", "setp.eq.u32 %p1, %r0, 1;\nselp.b32 %r1, $, 3, %p1;\n# redux.sync.add.u32 %r2, %r0, %r1;", "2", "3", .says = "its members are", .launch = {.threads = 2}},
        {"a cluster's barrier without arriving", "$\n# barrier.cluster.wait.aligned;", "", "barrier.cluster.arrive.aligned;", .says = "has not arrived", .launch = {.threads = 32}},
        {"a cluster's barrier arrived at twice", "barrier.cluster.arrive.aligned;\n$\n# barrier.cluster.arrive.aligned;\n"
         "barrier.cluster.wait.aligned;", "", "barrier.cluster.wait.aligned;", .says = "and has not waited", .launch = {.threads = 64}},
        {"shared memory of a block that has ended", "mov.u32 %r1, %cluster_ctarank;\nmov.u32 %r2, tile;\n"
         "st.shared.u32 [tile], %r1;\n" CLUSTER_BARRIER "setp.eq.u32 %p1, %r1, 1;\n@%p1 bra end;\n"
         "mapa.shared::cluster.u32 %r3, %r2, 1;\n# ld.shared::cluster.u32 %r4, [%r3];\nst.global.u32 [%d0], %r4;\nend:\n$", "", CLUSTER_BARRIER, .says = "which has ended", .wanted = 1, .launch = {.threads = 32, .blocks = 2, .cluster = 2}},
        {"a block of the cluster that is gone", "mov.u32 %r1, %cluster_ctarank;\nsetp.eq.u32 %p1, %r1, 1;\n@%p1 bra end;\n"
         "# bar.sync 3, $;\nend:", "64", "32", .says = "block 0 warp 0 at", .launch = {.threads = 32, .blocks = 2, .cluster = 2}}};
    check_all(faults, sizeof faults / sizeof *faults);
}

/* ---- mbarriers */

#define INIT    "mbarrier.init.shared::cta.b64 [tile], 1;\n"
#define EXPECT  "mbarrier.arrive.expect_tx.shared::cta.b64 _, [tile], "
#define WAIT(l) l ":\nmbarrier.try_wait.parity.shared::cta.b64 %p1, [tile], 0;\n@!%p1 bra " l ";\n"
#define BULK    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
#define TO_OUT  "ld.shared.u32 %r1, [tile+128];\nst.global.u32 [%d0], %r1;\n"

static void mbarriers(void **state)
{
    (void)state;
    static const fault faults[] = {
        {"used before it is made", "$\n# mbarrier.arrive.shared::cta.b64 _, [tile];", "", INIT, .says = "was not initialised"},
        {"waited for before it is made", "$\nmbarrier.arrive.shared::cta.b64 _, [tile];\n# mbarrier.test_wait.parity.shared.b64 "
         "%p1, [tile+8], 1;", INIT, INIT "mbarrier.init.shared.b64 [tile+8], 1;", .says = "was not initialised"},
        {"made for nobody", "# mbarrier.init.shared::cta.b64 [tile], $;", "0", "1", .says = "an mbarrier for 0 arrivals"},
        {"not aligned", "# mbarrier.init.shared::cta.b64 [tile+$], 1;", "4", "8", .says = "not aligned to 8 bytes"},
        {"outside of shared memory", "# mbarrier.init.shared::cta.b64 [tile+$], 1;", "4096", "4088", .says = "of shared memory"},
        {"too many arrive", "mbarrier.init.shared::cta.b64 [tile], 2;\n# mbarrier.arrive.shared::cta.b64 _, [tile], $;", "3", "2", .says = "3 arrive at an mbarrier where 2 of 2"},
        {"too few arrive", "mbarrier.init.shared::cta.b64 [tile], $;\nmbarrier.arrive.shared::cta.b64 _, [tile];\nwait:\n"
         "# mbarrier.try_wait.parity.shared::cta.b64 %p1, [tile], 0;\n@!%p1 bra wait;", "2", "1", .says = "all threads wait for ever"},
        {"the wrong phase", INIT "mbarrier.arrive.shared::cta.b64 _, [tile];\nwait:\n"
         "# mbarrier.try_wait.parity.shared::cta.b64 %p1, [tile], $;\n@!%p1 bra wait;", "1", "0", .says = "all threads wait for ever"},
        {"bytes that never come", INIT EXPECT "$;\n" BULK "[tile+128], [%d0+16], 16, [tile];\nwait:\n"
         "# mbarrier.try_wait.parity.shared::cta.b64 %p1, [tile], 0;\n@!%p1 bra wait;", "32", "16", .says = "all threads wait for ever"},
        {"bytes that nobody expects", INIT EXPECT "$;\n" BULK "[tile+128], [%d0+16], 32, [tile];\nwait:\n"
         "# mbarrier.try_wait.parity.shared::cta.b64 %p1, [tile], 0;\n@!%p1 bra wait;", "16", "32", .says = "all threads wait for ever"}};
    check_all(faults, sizeof faults / sizeof *faults);
}

/* ---- copies that go on by themselves */

static void copies(void **state)
{
    (void)state;
    static const fault faults[] = {
        {"cp.async read too early", "cp.async.ca.shared.global [tile+128], [%d0+16], 4;\ncp.async.commit_group;\n$\n" TO_OUT, "", "cp.async.wait_group 0;", .seen = 0xffffffff, .wanted = FIRST + 4},
        {"cp.async waited for too little", "cp.async.ca.shared.global [tile+128], [%d0+16], 4;\ncp.async.commit_group;\n"
         "cp.async.wait_group $;\n" TO_OUT, "1", "0", .seen = 0xffffffff, .wanted = FIRST + 4},
        {"cp.async in no group", "cp.async.cg.shared.global [tile+128], [%d0+16], 16;\n$\ncp.async.wait_group 0;\n" TO_OUT, "", "cp.async.commit_group;", .seen = 0xffffffff, .wanted = FIRST + 4},
        {"cp.async of another thread, whose barrier is not waited for", "setp.ne.u32 %p2, %r0, 0;\n@%p2 bra made;\n"
         "mbarrier.init.shared::cta.b64 [tile], 32;\nmade:\nbar.sync 0;\nshl.b32 %r2, %r0, 2;\nadd.u32 %r2, %r2, tile+128;\n"
         "setp.ge.u32 %p2, %r0, 32;\n@%p2 bra taker;\ncp.async.ca.shared.global [%r2], [%d0+16], 4;\n"
         "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [tile];\nbra end;\ntaker:\n$\nend:\nbar.sync 0;\n@!%p2 bra last;\n" TO_OUT
         "last:\n" WAIT("all"), "", WAIT("first"), .seen = 0xffffffff, .wanted = FIRST + 4, .launch = {.threads = 64}},
        {"cp.async that is not aligned", "# cp.async.cg.shared.global [tile], [%d0+$], 16;", "4", "16", .says = "not both aligned"},
        {"cp.async from outside", "# cp.async.ca.shared.global [tile], [%d0+$], 8;", "1032", "1024", .says = "copies from 8 bytes of global"},
        {"cp.async to outside", "# cp.async.ca.shared.global [tile+$], [%d0], 8;", "4096", "4088", .says = "copies to 8 bytes of shared"},
        {"a bulk copy read too early", INIT EXPECT "16;\n" BULK "[tile+128], [%d0+16], 16, [tile];\n$\n" TO_OUT WAIT("last"), "", WAIT("first"), .seen = 0xffffffff, .wanted = FIRST + 4},
        {"a bulk copy whose source changes", INIT EXPECT "16;\n" BULK "[tile+128], [%d0+16], 16, [tile];\n$\n"
         "st.global.u32 [%d0+16], 7;\n" WAIT("last") TO_OUT, "", WAIT("first"), .seen = 7, .wanted = FIRST + 4},
        {"a bulk copy of odd bytes", INIT EXPECT "16;\n# " BULK "[tile+128], [%d0], $, [tile];\n" WAIT("last"), "8", "16", .says = "the count of bytes is 0x8, no multiple of 16"},
        {"a bulk copy to a place that is not aligned", INIT EXPECT "16;\n# " BULK "[tile+$], [%d0], 16, [tile];\n" WAIT("last"), "136", "128", .says = "the destination is 0x488, no multiple of 16"},
        {"a bulk copy from a place that is not aligned", INIT EXPECT "16;\n# " BULK "[tile+128], [%d0+$], 16, [tile];\n"
         WAIT("last"), "8", "16", .says = "the source is"},
        {"a bulk copy from behind a block", INIT EXPECT "32;\n# " BULK "[tile+128], [%d0+$], 32, [tile];\n" WAIT("last"), "1008", "992", .says = "copies from 32 bytes of global memory"},
        {"a bulk copy to behind shared memory", INIT EXPECT "32;\n# " BULK "[tile+$], [%d0], 32, [tile];\n" WAIT("last"), "4080", "4064", .says = "copies to 32 bytes of shared memory"},
        {"a bulk copy that tells a barrier nobody made", INIT EXPECT "16;\n# " BULK "[tile+128], [%d0], 16, [tile+$];\n"
         WAIT("last"), "8", "0", .says = "was not initialised"},
        {"a copy under way at the end", INIT EXPECT "16;\n# " BULK "[tile+128], [%d0], 16, [tile];\n$", "", WAIT("last"), .says = "a copy was under way when the last block of its cluster ended"},
        {"a copy to a block that is not there", INIT "mbarrier.arrive.expect_tx.shared::cta.b64 _, [tile], 16;\n" CLUSTER_BARRIER
         "mov.u32 %r2, %cluster_ctarank;\nmov.b16 %h1, $;\nsetp.ne.u32 %p2, %r2, 0;\n@%p2 bra taken;\n"
         "# cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [tile+128], [%d0], 16, [tile], "
         "%h1;\ntaken:\n" WAIT("last") CLUSTER_BARRIER, "7", "3", .says = "blocks 0x7 of a cluster of 2", .launch = {.blocks = 2, .cluster = 2}},
        {"bytes here, their barrier there", INIT "mov.u32 %r2, tile;\nmapa.shared::cluster.u32 %r2, %r2, 1;\n"
         "mov.u32 %r3, %cluster_ctarank;\n" CLUSTER_BARRIER "setp.ne.u32 %p2, %r3, 0;\n@%p2 bra taken;\n" EXPECT "16;\n# " BULK
         "[tile+128], [%d0], 16, [$];\n" WAIT("last") "taken:\n" CLUSTER_BARRIER, "%r2", "tile", .says = "another's mbarrier is told", .launch = {.blocks = 2, .cluster = 2}},
        {"sent words that are not aligned", INIT EXPECT "8;\n# st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 "
         "[tile+$], {%r0, %r0}, [tile];\n" WAIT("last"), "132", "136", .says = "the destination is 0x484, no multiple of 8"}};
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
        {"begins within 16 bytes", INIT EXPECT "128;\n# " LOAD_BOX "[tile+128], [map, {$, 0}], [tile];\n" WAIT("last") TO_OUT, "4", "8", .says = "a box from element 4 on, within 16 bytes", .wanted = FIRST + 4},
        {"is stored within 16 bytes", "# " STORE_BOX "[map, {$, 0}], [tile+128];\n" STORED, "4", "8", .says = "within 16 bytes"},
        {"has too many coordinates", INIT EXPECT "128;\n# " LOAD_BOX "[tile+128], [map, {0, 0$}], [tile];\n" WAIT("last"), ", 0", "", .says = "3 coordinates for a tensor of 2 dimensions"},
        {"is no tensor's", INIT EXPECT "128;\n# " LOAD_BOX "[tile+128], [$, {0, 0}], [tile];\n" WAIT("last"), "%d0", "map", .says = "no tensor map at"},
        {"has a map that is not aligned", INIT EXPECT "128;\n# " LOAD_BOX "[tile+128], [map+$, {0, 0}], [tile];\n" WAIT("last"), "32", "0", .says = "not aligned to 64 bytes"},
        {"goes to a place that is not aligned", INIT EXPECT "128;\n# " LOAD_BOX "[tile+$], [map, {0, 0}], [tile];\n" WAIT("last"), "192", "128", .says = "no multiple of 128"},
        {"ends behind shared memory", INIT EXPECT "128;\n# " LOAD_BOX "[tile+$], [map, {0, 0}], [tile];\n" WAIT("last"), "4096", "3968", .says = "copies to 128 bytes of shared memory"},
        {"brings more than is expected", INIT EXPECT "$;\n" LOAD_BOX "[tile+128], [map, {0, 0}], [tile];\nwait:\n"
         "# mbarrier.try_wait.parity.shared.b64 %p1, [tile], 0;\n@!%p1 bra wait;", "64", "128", .says = "all threads wait for ever"},
        {"is read too early", INIT EXPECT "128;\n" LOAD_BOX "[tile+128], [map, {0, 1}], [tile];\n$\n" TO_OUT WAIT("last"), "", WAIT("first"), .seen = 0xffffffff, .wanted = FIRST + 32},
        {"is overwritten before it is stored", "st.shared.u32 [tile+128], 7;\n" STORE_BOX "[map, {0, 0}], [tile+128];\n"
         "cp.async.bulk.commit_group;\n$st.shared.u32 [tile+128], 9;\n" STORED, "", "cp.async.bulk.wait_group.read 0;\n", .seen = 9, .wanted = 7},
        {"is stored in no group", "st.shared.u32 [tile+128], 7;\n" STORE_BOX "[map, {0, 0}], [tile+128];\n$"
         "cp.async.bulk.wait_group.read 0;\nst.shared.u32 [tile+128], 9;\n", "", "cp.async.bulk.commit_group;\n", .seen = 9, .wanted = 7}};
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
                if (rows > ROWS) assert_non_null(strstr(why, stores ? "stores 16 bytes of global" : "brings 16 bytes of global"));
            }
    case_order(NULL, 1);
    case_free(memory);
}

/* ---- products */

/* B, 16 x 8 of zeros, is at tile+1024; A in registers. Thread 0 has an mbarrier. */
#define ZEROS                                                                                                                  \
    "shl.b32 %r1, %r0, 2;\nadd.u32 %r1, %r1, tile+1024;\nst.shared.u32 [%r1], 0;\nsetp.ne.u32 %p2, %r0, 0;\n@%p2 bra zero;\n"  \
    INIT "zero:\nmov.pred %p3, 0;\nmov.b32 %r10, 0;\nmov.b64 %d2, 0x1000080080;\nbar.sync 0;\n"
#define FENCE   "wgmma.fence.sync.aligned;\n"
#define PRODUCT                                                                                                                \
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, {%r10, %r10, %r10, %r10}, %d2, %p3, 1, 1, 0;\n"
#define COMMIT "wgmma.commit_group.sync.aligned;\n"
#define DONE   "wgmma.wait_group.sync.aligned 0;\n"
#define REFILL "@%p2 bra filled;\n" EXPECT "16;\n" BULK "[tile+1024], [%d0], 16, [tile];\nfilled:\n"
#define SPARSE(ordered)                                                                                                        \
    "mov.b32 %r10, 0;\n# mma.sp" ordered ".sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, "              \
    "{%r10, %r10, %r10, %r10}, {%r10, %r10, %r10, %r10}, {%f0, %f1, %f2, %f3}, %r11, 0;\n"

static void products(void **state)
{
    (void)state;
    static const fault faults[] = {
        {"no fence", ZEROS "$# " PRODUCT COMMIT DONE, "", FENCE, .says = "no wgmma.fence came before it", .launch = {.threads = 128}},
        {"never committed", ZEROS FENCE "# " PRODUCT "$" DONE, "", COMMIT, .says = "never committed", .launch = {.threads = 128}},
        {"never waited for", ZEROS FENCE "# " PRODUCT COMMIT "$", "", DONE, .says = "ended without waiting", .launch = {.threads = 128}},
        {"waited for too little", ZEROS FENCE "# " PRODUCT COMMIT "wgmma.wait_group.sync.aligned $;", "1", "0", .says = "no wgmma.wait_group covers it", .launch = {.threads = 128}},
        {"a copy into what is still read", ZEROS FENCE PRODUCT COMMIT "$" REFILL "# " DONE WAIT("last"), "", DONE "bar.sync 0;\n", .says = "overwritten before wgmma.wait_group: shared address 0x800", .launch = {.threads = 128}},
        {"a store into what is still read", ZEROS FENCE PRODUCT COMMIT "$st.shared.u32 [tile+1032], 1;\n# " DONE, "", DONE "bar.sync 0;\n", .says = "B of the wgmma at line 16 was overwritten", .launch = {.threads = 128}},
        {"a register that is still read", ZEROS FENCE PRODUCT COMMIT "$mov.b32 %r10, 1;\n# " DONE, "", DONE, .says = "A of the wgmma at line 16 was overwritten", .launch = {.threads = 128}},
        {"a descriptor of what is not there", ZEROS FENCE "mov.b64 %d2, $;\n# " PRODUCT COMMIT DONE, "0x1000080140", "0x1000080130", .says = "B of wgmma 16 bytes of shared memory at 0x1400", .launch = {.threads = 128}},
        {"a descriptor with odd bits", ZEROS FENCE "mov.b64 %d2, $;\n# " PRODUCT COMMIT DONE, "0x1000084080", "0x1000080080", .says = "has bits beside its fields", .launch = {.threads = 128}},
        {"a descriptor that lanes disagree on", ZEROS FENCE "cvt.u64.u32 %d3, %r0;\nadd.s64 %d2, %d2, $;\n# " PRODUCT COMMIT DONE, "%d3", "0", .says = "is not lane 0's", .launch = {.threads = 128}},
        {"an A of which lanes are gone", ZEROS "setp.eq.u32 %p4, %r0, 5;\n$" FENCE PRODUCT COMMIT DONE, "@%p4 ret;\n", "", .says = "it is the whole warp's", .launch = {.threads = 128}},
        {"places that do not ascend", "mov.b32 %r11, $;\n" SPARSE("::ordered_metadata"), "0x44444414", "0x444444e4", .says = "row 0 keeps positions 1 and 0 of the k from 4 on, which do not ascend", .launch = {.threads = 32}},
        {"a place that is kept twice", "mov.b32 %r11, $;\n" SPARSE(""), "0x44445444", "0x44441444", .says = "keeps positions 1 and 1", .launch = {.threads = 32}}};
    check_all(faults, sizeof faults / sizeof *faults);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(addresses),
                                       cmocka_unit_test(threads),
                                       cmocka_unit_test(mbarriers),
                                       cmocka_unit_test(copies),
                                       cmocka_unit_test(boxes),
                                       cmocka_unit_test(tensors_longer_than_their_memory),
                                       cmocka_unit_test(products)};
    return cmocka_run_group_tests(tests, case_open, case_close);
}
