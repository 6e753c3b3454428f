/* emulator_fault.h - a kernel with one fault, and the same kernel mended: the first must be told of, with the line and in these words, or
 * where hardware would silently go wrong its result must be; the second must run through, whatever order copies land in and warps run in.
 * For test_emulator_faults*.c. */
#ifndef TEST_EMULATOR_FAULT_H
#define TEST_EMULATOR_FAULT_H

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

#define WARP                                                                                                                   \
    {                                                                                                                          \
        .threads = 32                                                                                                          \
    }
#define GROUP                                                                                                                  \
    {                                                                                                                          \
        .threads = 128                                                                                                         \
    }
#define PAIR                                                                                                                   \
    {                                                                                                                          \
        .blocks = 2, .cluster = 2                                                                                              \
    }

/* A tensor of ROWS x 64 halves in `memory`, in boxes of 4 x 16. */
static inline emu_tensor_map tensor_of(const uint32_t *memory, uint32_t rows)
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
static inline int body_of(const fault *f, const char *choice, char *body, size_t size)
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
static inline bool run_choice(const fault *f, const char *choice, uint32_t *first, char *why, size_t why_size, int *marked)
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
static inline bool is_found(const fault *f)
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

static inline void check_all(const fault *faults, size_t count)
{
    int missed = 0;
    for (size_t i = 0; i < count; ++i) missed += !is_found(&faults[i]);
    assert_int_equal(missed, 0);
}

/* Lines that kernels have in common: an mbarrier at tile, a copy, and what became of it at tile+128. */
#define INIT            "mbarrier.init.shared::cta.b64 [tile], 1;\nfence.mbarrier_init.release.cluster;\n"
#define EXPECT          "mbarrier.arrive.expect_tx.shared::cta.b64 _, [tile], "
#define WAIT(l)         l ":\nmbarrier.try_wait.parity.shared::cta.b64 %p1, [tile], 0;\n@!%p1 bra " l ";\n"
#define BULK            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
#define TO_OUT          "ld.shared.u32 %r1, [tile+128];\nst.global.u32 [%d0], %r1;\n"
#define CLUSTER_BARRIER "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n"

#endif
