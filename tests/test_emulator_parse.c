/* test_emulator_parse.c - PTX as text becomes what was written: operands, scopes, constants, layouts of memory; registers that share a slot
 * never meet; and of a text that is broken a sentence is told, whatever it is broken by. */
#include "emulator_case.h"

#define HEAD ".version 8.0\n.target sm_90a\n.address_size 64\n"

static emu_module *parsed(const char *text)
{
    char why[512] = "";
    emu_module *module = emu_module_parse(text, why, sizeof why);
    if (!module) fail_msg("%s", why);
    return module;
}

/* The nth instruction of a function that has this opcode. */
static const emu_instruction *find(const emu_function *f, const char *opcode, int nth)
{
    for (int i = 0; i < f->length; ++i)
        if (!strcmp(f->code[i].opcode, opcode) && nth-- == 0) return &f->code[i];
    fail_msg("no %s", opcode);
    return NULL;
}

/* A constant as lanes read it. */
static uint64_t constant(const emu_function *f, const emu_operand *o, bool wide, int lane)
{
    uint32_t slot = emu_slot_of(o, wide);
    uint64_t value = 0;
    assert_true(slot & EMU_CONSTANT);
    memcpy(&value, f->constants + (size_t)(slot & ~EMU_CONSTANT) * EMU_SLOT + (wide ? 8 : 4) * (size_t)lane, wide ? 8 : 4);
    return value;
}

/* ---- what is declared, and where */

static const char module_text[] = HEAD
    "/* a\n comment */ .global .align 4 .u32 five = 5;\n.visible .const .align 2 .b8 bytes[5] = {1, 0x2U, -1};\n"
    ".global .u64 where[2] = {five, {7}};\n.weak .global .align 64 .f32 zero[3];\n.shared .align 4 .b8 first[6];\n"
    ".extern .shared .align 1024 .b8 dynamic[];\n"
    ".visible .entry one(\n .param .align 8 .b8 one_0[12],\n .param .u64 .ptr .global .align 1 one_1, .param .u8 one_2, .param "
    ".u32 one_3\n)\n"
    ".maxntid 64, 2, 1\n.minnctapersm 2\n.pragma \"x\";\n.explicitcluster\n{\n"
    ".reg .pred %p<3>; .reg .b32 %r<20>; .reg .b64 %d<9>, wide1; .reg .f32 %f<9>; .reg .pred p, q;\n"
    ".local .align 16 .b8 own[40]; .shared .align 16 .b8 second[8]; .loc 1 2 3\n .pragma \"nounroll\";\n"
    "mov.u32 %r1, %tid.x;\nmov.u32 %r2, %nctaid.z; // and another\n"
    "mov.u64 %d1, dynamic; mov.u64 %d2, one_1; mov.u64 %d3, own; mov.u64 %d4, second+4; mov.u64 %d5, five; mov.u64 %d6, "
    "first;\n"
    "add.s32 %r3, %r1, -5; add.s64 %d7, %d1, -5; mov.f32 %f1, 0f3F800000; mov.f64 wide1, 0d3FF0000000000000;\n"
    "mov.b32 %r4, 0x1FU; mov.b64 %d8, -8608480567731124087; mov.s64 %d8, 18446744073709551615;\n"
    "@!%p1 ld.param.u32 %r5, [one_3+4]; ld.global.v4.L2::128B.u32 {%r6, _, %r7, %r8}, [%d1+-4];\n"
    "st.global.v2.u32 [ %d1 + 16 ], {%r6, 7};\n shfl.sync.bfly.b32 %r10|%p1, %r9, %r1, 31, -1; and.pred q, p, !%p2;\n"
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%d1, {%r2, 3}], [dynamic+8];\n"
    "mbarrier.arrive.shared::cta.b64 _, [%r1];\nbar.sync 0; bar.warp.sync -1; vote.sync.any.pred p, q, %r1;\n"
    "barrier.cluster.arrive.aligned; wgmma.fence.sync.aligned; bar.red.or.pred p, 0, q;\n"
    "}\n.visible .entry two() { .shared .align 8 .b8 mine[24]; .reg .b64 %d<3>; mov.u64 %d1, mine; mov.u64 %d2, five; }";

static void declarations(void **state)
{
    (void)state;
    emu_module *m = parsed(module_text);
    const emu_function *one = &m->function[0], *two = &m->function[1];
    static const uint32_t offsets[] = {0, 16, 24, 28}, sizes[] = {12, 8, 1, 4};
    assert_int_equal(m->functions, 2);
    assert_int_equal(m->target, 90);
    assert_string_equal(one->name, "one");
    assert_int_equal(one->params, 4);
    assert_memory_equal(one->param_offset, offsets, sizeof offsets);
    assert_memory_equal(one->param_size, sizes, sizeof sizes);
    assert_int_equal(one->param_bytes, 32);
    assert_int_equal(one->most_threads, 128);
    assert_int_equal(one->local_bytes, 40);
    assert_int_equal(one->shared_bytes, 1024); /* 6 bytes, 8 at 16, and dynamic ones from the next 1024 on */
    assert_int_equal(two->shared_bytes, 32);   /* 6 bytes, 24 at 8 */
    assert_int_equal(two->params, 0);
    assert_int_equal(m->variables, 4);
    assert_true(one->variables == 4 && one->variable == m->variable && two->variable == m->variable);
    static const unsigned char bytes[] = {1, 2, 255, 0, 0};
    uint64_t where[] = {(uint64_t)(uintptr_t)m->variable[0].data, 7};
    assert_int_equal(*(uint32_t *)m->variable[0].data, 5);
    assert_memory_equal(m->variable[1].data, bytes, sizeof bytes);
    assert_memory_equal(m->variable[2].data, where, sizeof where);
    assert_int_equal((uintptr_t)m->variable[3].data % 64, 0);
    assert_int_equal(m->variable[3].bytes, 12);
    static const struct {
        int nth;
        int64_t value;
    } addresses[] = {{0, 2048}, {1, (int64_t)EMU_PARAM_BASE + 16}, {2, (int64_t)EMU_LOCAL_BASE}, {3, 1044}, {5, 1024}};
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; ++i)
        assert_int_equal(find(one, "mov.u64", addresses[i].nth)->operand[1].value, addresses[i].value);
    assert_int_equal(find(one, "mov.u64", 4)->operand[1].value, where[0]);
    assert_int_equal(find(two, "mov.u64", 0)->operand[1].value, 1032);
    emu_module_free(m);
}

static void operands(void **state)
{
    (void)state;
    emu_module *m = parsed(module_text);
    const emu_function *f = &m->function[0];
    const emu_instruction *in = find(f, "mov.u32", 0);
    assert_true(in->operand[1].kind == EMU_REGISTER && in->operand[1].slot == f->special[EMU_TID_X] && !in->operand[0].wide);
    assert_true(f->special[EMU_NCTAID_Z] != EMU_NONE && f->special[EMU_LANE] == EMU_NONE && in->guard == EMU_NONE && in->run);
    /* One constant is read as 32 and as 64 bits. */
    const emu_operand *narrow = &find(f, "add.s32", 0)->operand[2], *wide = &find(f, "add.s64", 0)->operand[2];
    assert_int_equal(narrow->slot, wide->slot);
    assert_int_equal(constant(f, narrow, false, 7), (uint32_t)-5);
    assert_int_equal(constant(f, wide, true, 31), (uint64_t)-5);
    assert_int_equal(constant(f, &find(f, "mov.f32", 0)->operand[1], false, 3), 0x3f800000);
    assert_int_equal(constant(f, &find(f, "mov.f64", 0)->operand[1], true, 3), 0x3ff0000000000000);
    assert_int_equal(find(f, "mov.b32", 0)->operand[1].value, 31);
    assert_int_equal(find(f, "mov.b64", 0)->operand[1].value, -8608480567731124087);
    assert_int_equal(find(f, "mov.s64", 0)->operand[1].value, -1);
    in = find(f, "ld.param.u32", 0);
    assert_true(in->guard != EMU_NONE && in->guard_negated && in->operand[1].kind == EMU_ADDRESS &&
                in->operand[1].slot == EMU_NONE);
    assert_int_equal(in->operand[1].value, (int64_t)EMU_PARAM_BASE + 32);
    in = find(f, "ld.global.v4.L2::128B.u32", 0);
    const emu_operand *element = f->element + in->operand[0].first;
    assert_true(in->parts == 5 && !strcmp(in->part[3], "L2::128B") && in->operand[0].kind == EMU_VECTOR &&
                in->operand[0].count == 4);
    assert_true(element[1].kind == EMU_SINK && element[1].slot == EMU_NONE && in->operand[1].value == -4 &&
                in->operand[1].wide);
    uint32_t loaded = element[0].slot;
    in = find(f, "st.global.v2.u32", 0);
    element = f->element + in->operand[1].first;
    assert_true(in->operand[0].value == 16 && element[0].slot == loaded && element[1].kind == EMU_IMMEDIATE);
    assert_int_equal(constant(f, &element[1], false, 2), 7);
    in = find(f, "shfl.sync.bfly.b32", 0);
    assert_true(in->operands == 6 && in->operand[1].is_predicate && !in->operand[0].is_predicate);
    in = find(f, "and.pred", 0);
    assert_true(in->operand[2].negated && !in->operand[1].negated);
    in = find(f, "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes", 0);
    assert_true(in->operands == 3 && in->operand[1].kind == EMU_ADDRESS && in->operand[1].count == 2 &&
                in->operand[2].value == 2056);
    assert_true(emu_has_part(in, "mbarrier::complete_tx::bytes") && !emu_has_part(in, "bytes"));
    assert_int_equal(find(f, "mbarrier.arrive.shared::cta.b64", 0)->operand[0].kind, EMU_SINK);
    static const char *const aligned[] = {"bar.sync", "barrier.cluster.arrive.aligned", "wgmma.fence.sync.aligned",
                                          "bar.red.or.pred"};
    static const char *const masked[] = {"bar.warp.sync", "vote.sync.any.pred", "shfl.sync.bfly.b32"};
    for (size_t i = 0; i < sizeof aligned / sizeof *aligned; ++i) assert_true(find(f, aligned[i], 0)->is_aligned);
    for (size_t i = 0; i < sizeof masked / sizeof *masked; ++i) assert_false(find(f, masked[i], 0)->is_aligned);
    assert_true(!strcmp(f->code[f->length - 1].opcode, "ret") && !f->code[f->length - 1].run);
    emu_module_free(m);
}

/* Names of an inner scope hide those outside, labels too; a range does not hide a name. */
static void scopes(void **state)
{
    (void)state;
    emu_module *m =
        parsed(HEAD ".entry s(){ .reg .pred %p1; .reg .b32 %r<4>; .reg .b64 x;\n mov.u32 %r1, 1; mov.u32 %r2, %r1;\nagain:\n"
                    "{ .reg .b32 %r1; .reg .b32 x; mov.b32 %r1, 2; mov.b32 x, %r1; again: @%p1 bra again; bra done; "
                    "add.u32 %r2, x, %r1; done: }\n{ .reg .pred p; mov.pred p, 0; @!p bra again; bra.uni done; ready: done: }\n"
                    "mov.u64 x, 5; add.u32 %r1, %r2, %r1; bra end; end: }");
    const emu_function *f = m->function;
    static const int targets[] = {4, 7, 2, 13};
    for (int i = 0; i < 4; ++i) assert_int_equal(find(f, "bra", i)->operand[0].value, targets[i]);
    assert_int_equal(find(f, "bra.uni", 0)->operand[0].value, 10);
    assert_int_equal(f->length, 14);
    uint32_t outer = f->code[0].operand[0].slot;
    assert_true(f->code[2].operand[0].slot != outer && f->code[11].operand[2].slot == outer);
    assert_true(!f->code[3].operand[0].wide && f->code[10].operand[0].wide);
    emu_module_free(m);
    m = parsed(HEAD ".section .debug_str {\n.b8 1\n{}\n}\n.file 1 \"a.cu\"\n.entry a(){ret;}");
    assert_int_equal(m->function[0].code[0].line, 9);
    emu_module_free(m);
}

/* ---- registers that share slots */

enum { NARROW = 14, WIDE = 4, PREDICATES = 4, LENGTH = 60, LANES = 32, KEPT = 3, FUEL = 6 };

typedef struct step { /* of a random program */
    enum { ADD, MULTIPLY, SELECT, COMPARE, WIDEN, SHORTEN, FORWARD, BACK, STEPS } kind;
    int to, a, b, p, guard; /* registers; a guard of -1: none */
    bool negated;
    int target;
} step;

static uint64_t seed;
static int below(int count)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int)((seed >> 33) % (uint64_t)count);
}

static void make_program(step *program)
{
    for (int i = 0; i < LENGTH; ++i) {
        step *s = &program[i];
        *s = (step){.kind = below(STEPS), .a = below(NARROW), .b = below(NARROW), .p = below(PREDICATES), .guard = -1};
        s->to = below(s->kind == COMPARE ? PREDICATES : s->kind == WIDEN ? WIDE : NARROW);
        if (s->kind == SHORTEN) s->a = below(WIDE);
        if (s->kind >= FORWARD || below(4) == 0) s->guard = below(PREDICATES), s->negated = below(2);
        s->target = s->kind == BACK ? below(i + 1) : i + 1 + below(LENGTH - i);
    }
}

/* Registers of 32 bits are %r100 on, the lane's fuel %r90: a jump back takes one of it, and is not taken where there is no more. */
static void write_step(const step *s, int number, char *to, size_t size)
{
    char guard[16] = "";
    if (s->guard >= 0) snprintf(guard, sizeof guard, "@%s%%p%d", s->negated ? "!" : "", s->guard);
    int d = 100 + s->to, a = 100 + s->a, b = 100 + s->b;
    switch (s->kind) {
    case ADD:
        snprintf(to, size, "%s add.u32 %%r%d, %%r%d, %%r%d;\n", guard, d, a, b);
        break;
    case MULTIPLY:
        snprintf(to, size, "%s mul.lo.u32 %%r%d, %%r%d, %%r%d;\n", guard, d, a, b);
        break;
    case SELECT:
        snprintf(to, size, "%s selp.b32 %%r%d, %%r%d, %%r%d, %%p%d;\n", guard, d, a, b, s->p);
        break;
    case COMPARE:
        snprintf(to, size, "%s setp.lt.s32 %%p%d, %%r%d, %%r%d;\n", guard, s->to, a, b);
        break;
    case WIDEN:
        snprintf(to, size, "%s mul.wide.u32 %%d%d, %%r%d, %%r%d;\n", guard, 1 + s->to, a, b);
        break;
    case SHORTEN:
        snprintf(to, size, "%s cvt.u32.u64 %%r%d, %%d%d;\n", guard, d, 1 + s->a);
        break;
    case FORWARD:
        snprintf(to, size, "%s bra L%d;\n", guard, s->target);
        break;
    default:
        snprintf(to, size, "%s sub.s32 %%r90, %%r90, 1;\nsetp.lt.s32 %%p6, %%r90, 0;\n@%%p6 bra N%d;\n%s bra L%d;\nN%d:\n",
                 guard, number, guard, s->target, number);
    }
}

static void write_program(const step *program, const int *kept, char *text, size_t size)
{
    size_t at = (size_t)snprintf(text, size, "mov.u32 %%r100, %%r0;\nmov.b32 %%r90, %d;\n", FUEL);
    for (int i = 0; i < LENGTH; ++i) {
        at += (size_t)snprintf(text + at, size - at, "L%d:\n", i);
        write_step(&program[i], i, text + at, size - at);
        at += strlen(text + at);
        assert_true(at < size - 512);
    }
    at += (size_t)snprintf(text + at, size - at, "L%d:\nmul.wide.u32 %%d8, %%r0, %d;\nadd.s64 %%d8, %%d8, %%d0;\n", LENGTH,
                           4 * KEPT);
    for (int i = 0; i < KEPT; ++i)
        at += (size_t)snprintf(text + at, size - at, "st.global.u32 [%%d8+%d], %%r%d;\n", 4 * i, 100 + kept[i]);
}

/* The same, with a place for every register. What was never written is all ones. */
static void interpret(const step *program, uint32_t lane, const int *kept, uint32_t *out)
{
    uint32_t r[NARROW];
    uint64_t d[WIDE];
    bool p[PREDICATES] = {true, true, true, true};
    int fuel = FUEL;
    memset(r, 0xff, sizeof r);
    memset(d, 0xff, sizeof d);
    r[0] = lane;
    for (int i = 0; i < LENGTH;) {
        const step *s = &program[i++];
        bool holds = s->guard < 0 || p[s->guard] != s->negated;
        if (s->kind == BACK && holds) --fuel;
        if (!holds || (s->kind == BACK && fuel < 0)) continue;
        switch (s->kind) {
        case ADD:
            r[s->to] = r[s->a] + r[s->b];
            break;
        case MULTIPLY:
            r[s->to] = r[s->a] * r[s->b];
            break;
        case SELECT:
            r[s->to] = p[s->p] ? r[s->a] : r[s->b];
            break;
        case COMPARE:
            p[s->to] = (int32_t)r[s->a] < (int32_t)r[s->b];
            break;
        case WIDEN:
            d[s->to] = (uint64_t)r[s->a] * r[s->b];
            break;
        case SHORTEN:
            r[s->to] = (uint32_t)d[s->a];
            break;
        default:
            i = s->target;
        }
    }
    for (int i = 0; i < KEPT; ++i) out[i] = r[kept[i]];
}

static void slots_are_never_shared_wrongly(void **state)
{
    (void)state;
    static char text[CASE_TEXT / 2];
    uint32_t(*out)[KEPT] = case_allocate(LANES * sizeof *out), wanted[KEPT];
    for (int trial = 0; trial < 400; ++trial) {
        step program[LENGTH];
        int kept[KEPT];
        seed = (uint64_t)trial;
        make_program(program);
        for (int i = 0; i < KEPT; ++i) kept[i] = below(NARROW);
        write_program(program, kept, text, sizeof text);
        case_must_run(&(case_launch){.threads = LANES}, text, out);
        for (uint32_t lane = 0; lane < LANES; ++lane) {
            interpret(program, lane, kept, wanted);
            if (memcmp(out[lane], wanted, sizeof wanted) != 0) fail_msg("program %d, lane %u:\n%s", trial, lane, text);
        }
    }
    case_free(out);
}

/* How many slots there are: of registers that never hold something together one, but never an operand's and a result's. */
static void slots_are_shared(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        uint32_t slots;
    } cases[] = {
        {".reg .b32 a, c; .reg .b64 w, v;\nmov.b32 c, 3; st.global.u32 [c], c; mov.b32 a, 4; st.global.u32 [a], a; mov.b64 v, "
         "1; "
         "st.global.u64 [v], v; mov.b64 w, 1; st.global.u64 [w], w;",
         3},
        {".reg .b32 a, b;\nmov.b32 a, 3; add.u32 b, a, a; st.global.u32 [b], b;", 2},
        /* a result with a guard leaves what was there; the guard and it live from the start */
        {".reg .pred p; .reg .b32 a, c;\nmov.b32 c, 3; st.global.u32 [c], c; @p mov.b32 a, 4; st.global.u32 [a], a;", 3},
        /* what a loop reads lives through it, though it stands before what else is written there */
        {".reg .pred p; .reg .b32 b, c;\nmov.b32 b, 1; L: nanosleep.u32 b; mov.b32 c, 3; st.global.u32 [c], c; @p bra L;", 3},
        /* what wgmma reads shares with nobody */
        {".reg .pred p; .reg .b32 a, c; .reg .b64 d; .reg .f32 f<4>;\nmov.b32 c, 3; st.global.u32 [c], c; mov.b32 a, 0; "
         "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {f0, f1, f2, f3}, {a, a, a, a}, d, p, 1, 1, 0;",
         9}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        char text[1024];
        snprintf(text, sizeof text, "%s.entry s() { %s }", HEAD, cases[i].body);
        emu_module *m = parsed(text);
        assert_int_equal(m->function[0].slots, cases[i].slots);
        emu_module_free(m);
    }
}

/* ---- texts that are broken */

#define BODY(text) HEAD ".entry a() {\n.reg .b32 x;\n" text "\n}"

static void broken_texts_are_told_of(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {{"", "line 1: a text without '.target'"},
                 {HEAD ".func f(){}", "line 4: '.func' is not supported"},
                 {HEAD ".entry a(){", "line 4: the text ends in a function"},
                 {HEAD "ret;", "line 4: '.' is missing before 'ret;'"},
                 {HEAD "/* \n\n", "line 4: a comment without an end"},
                 {HEAD ".pragma \"abc", "line 4: the end of a string is missing"},
                 {HEAD ".section .debug { 1 ", "line 4: a section without an end"},
                 {".version 8\n.target x\n", "line 2: 'sm_' and a number is missing"},
                 {BODY("bra nowhere;"), "line 6: no label is called 'nowhere'"},
                 {BODY("{ inner: ret; }\nbra inner;"), "line 7: no label is called 'inner'"},
                 {BODY("y: y: ret;"), "line 6: 'y' is declared twice"},
                 {BODY(".reg .b64 x;"), "line 6: 'x' is declared twice"},
                 {BODY("mov.b32 %r1, 5;"), "line 6: nobody knows the name '%r1'"},
                 {BODY(".reg .b32 %r<3>;\nmov.b32 %r3, 1;"), "line 7: nobody knows the name '%r3'"},
                 {BODY(".reg .b32 %r<3>; mov.b32 %r01, 1;"), "line 6: nobody knows the name '%r01'"},
                 {BODY(".reg .b32 %r<2000000>;"), "line 6: a number of registers of 2000000"},
                 {BODY(".reg .b32 %r<1000000>, %q<1000000>;"), "line 6: more than 1048576 registers"},
                 {BODY(".reg .b128 y;"), "line 6: nobody knows registers of '.b128'"},
                 {BODY("mov.b32 x 5;"), "line 6: ';' is missing before '5;'"},
                 {BODY("call.uni (x), f, (y);"), "line 6: a name is missing before '(x)"},
                 {BODY("mov..b32;"), "line 6: 'mov..b32' has an empty part"},
                 {BODY("a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a;"), "has more than 16 parts"},
                 {BODY("a 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1;"), "line 6: 'a' has more than 10 operands"},
                 {BODY("@x ret;"), "line 6: a guard that is no predicate"},
                 {BODY("mov.b32 x, 0f12;"), "line 6: a float's digits is missing"},
                 {BODY("mov.b32 x, 99999999999999999999999;"), "line 6: a number that is understood is missing"},
                 {BODY("mov.b32 x, 12ab;"), "line 6: a number that is understood is missing"},
                 {BODY("mov.b32 x, 1.5;"), "line 6: ';' is missing"},
                 {BODY("y: mov.b32 y, 1;"), "line 6: the label 'y' is no operand here"},
                 {BODY("bra;"), "line 6: 'bra' has one label"},
                 {BODY("ld.b32 x, [x;"), "line 6: ']' is missing"},
                 {BODY(".func;"), "line 6: nobody knows '.func' in a function"},
                 {BODY("frobnicate.u32 x, x;"), "line 6: nobody knows 'frobnicate.u32 x, x;'"},
                 {BODY("add.s32 x, x;"), "line 6: nobody knows 'add.s32 x, x;'"},
                 {BODY("mov.b64 x, 1;"), "line 6: nobody knows"},
                 {BODY("ld.global.v4.u32 {x, x}, [x];"), "line 6: nobody knows"},
                 {BODY("cp.async.ca.shared.global [x], [x], 0;"), "line 6: nobody knows"},
                 {BODY(".reg .pred p; cp.async.cg.shared.global [x], [x], 16, !p;"), "line 6: nobody knows"},
                 {HEAD ".global .align 3 .u32 x;", "line 4: an alignment of 3"},
                 {HEAD ".global .u32 x[2] = {1, 2, 3};", "line 4: 'x' is given too many values"},
                 {HEAD ".global .b8 x[100000000][100000000];", "line 4: 'x' has too many bytes"},
                 {HEAD ".extern .global .u32 x;", "line 4: 'x' is defined elsewhere"},
                 {HEAD ".global .u32 x = y;", "line 4: no variable is called 'y'"},
                 {HEAD ".global .u32 x = };", "is missing"},
                 {HEAD ".entry a(.param .b8 x[]) {}", "line 4: a parameter without a size"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        char why[512] = "", little[4];
        emu_module *module = emu_module_parse(cases[i].text, why, sizeof why);
        if (module || !strstr(why, cases[i].says)) fail_msg("'%s' says '%s', not '%s'", cases[i].text, why, cases[i].says);
        assert_null(emu_module_parse(cases[i].text, little, sizeof little));
        assert_null(emu_module_parse(cases[i].text, NULL, 0));
    }
    char deep[256] = HEAD ".entry a()", why[512] = "";
    memset(deep + strlen(deep), '{', 100);
    assert_null(emu_module_parse(deep, why, sizeof why));
    assert_non_null(strstr(why, "line 4: more than 64 scopes"));
}

/* A text cut off anywhere, or with bytes changed, is understood or told of. */
static void texts_may_be_anything(void **state)
{
    (void)state;
    static const char bytes[] = " \n.,;:{}[]<>()%@!|+-=_\"/*0x9frapbu$\\\xff";
    char text[sizeof module_text], why[512];
    int understood = 0;
    for (size_t length = 0; length < sizeof module_text; ++length) {
        memcpy(text, module_text, length);
        text[length] = 0;
        strcpy(why, "");
        emu_module *module = emu_module_parse(text, why, sizeof why);
        assert_true(module || !strncmp(why, "line ", 5));
        understood += module != NULL;
        emu_module_free(module);
    }
    assert_true(understood > 2 && understood < 1000);
    for (int trial = 0; trial < 3000; ++trial) {
        seed = (uint64_t)trial;
        memcpy(text, module_text, sizeof text);
        for (int i = 0; i <= trial % 4; ++i) text[below((int)sizeof text - 1)] = bytes[below((int)sizeof bytes - 1)];
        strcpy(why, "");
        emu_module *module = emu_module_parse(text, why, sizeof why);
        assert_true(module || !strncmp(why, "line ", 5));
        emu_module_free(module);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(declarations),
                                       cmocka_unit_test(operands),
                                       cmocka_unit_test(scopes),
                                       cmocka_unit_test(slots_are_never_shared_wrongly),
                                       cmocka_unit_test(slots_are_shared),
                                       cmocka_unit_test(broken_texts_are_told_of),
                                       cmocka_unit_test(texts_may_be_anything)};
    return cmocka_run_group_tests(tests, case_open, case_close);
}
