/* matrix_wgmma.c - the warpgroup matrix products of sm_90a, one warp's 16 of the 64 rows at a time: wgmma.mma_async, its sparse kind, and
 * fence, commit_group, wait_group. matrix.c takes them for parse.c; machine.c tells of warps that end.
 *
 * Hardware may read what a product multiplies at any time until a wait covers its group. Here it is read at once and remembered, and the
 * wait looks whether it is still the same: a stage that was given back too early is found whatever order threads run in. */
#include "matrix.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- operands in shared memory */

/* A matrix of rows (A's, or B's columns) x k, as its descriptor has it. A strip is 8 rows: `depth` chunks of 16 bytes, 8 k of a row each, row
 * by row; where it is turned, 8 rows of a k each. */
typedef struct view {
    uint32_t start, leading, stride;
    uint32_t span; /* bytes that swizzling goes round in; 16: none */
    int depth;     /* k that are stored */
    int first;     /* strip */
    int strips;
    bool turned;
} view;

static int chunks_of(const view *v) { return v->strips * v->depth; }

/* Where the chunks of a strip are. The span's swizzle is of absolute addresses, as the hardware has it. */
static void strip_addresses(const view *v, int strip, uint32_t *at)
{
    uint32_t n = (uint32_t)(v->first + strip), depth = (uint32_t)v->depth, wide = v->span / 16;
    uint32_t eight = wide == 1 ? v->leading : v->turned ? v->stride : 16; /* from 8 k to the next */
    uint32_t first = v->start + (v->turned && wide > 1 ? n / wide * v->leading + n % wide * 16 : n * v->stride), *to = at;
    if (v->turned) {
        for (uint32_t k = 0; k < depth; k++) *to++ = first + k / 8 * eight + k % 8 * v->span;
    } else {
        for (uint32_t row = 0; row < 8; row++)
            for (uint32_t k = 0; k < depth; k += 8) *to++ = first + row * v->span + k / 8 * eight;
    }
    for (uint32_t i = 0; i < depth; i++) at[i] ^= (at[i] >> 7 & (wide - 1)) << 4;
}

/* What the descriptor says, which all lanes have alike. */
static view view_of(emu_warp *warp, const emu_instruction *in, uint32_t slot, char name)
{
    static const uint32_t spans[4] = {16, 128, 64, 32};
    const uint64_t *lanes = emu_u64(warp, slot), d = lanes[0], fields = UINT64_C(0xc00e3fff3fff3fff);
    unsigned long long said = d;
    for (int lane = 1; lane < EMU_LANES; lane++)
        if (lanes[lane] != d) emu_fail(warp, in, lane, "the descriptor of %c is not lane 0's, 0x%llx", name, said);
    if (d & ~fields) emu_fail(warp, in, -1, "the descriptor of %c, 0x%llx, has bits beside its fields", name, said);
    if (d >> 49 & 7)
        emu_fail(warp, in, -1, "the descriptor of %c, 0x%llx, has a base offset, which is not emulated", name, said);
    view v = {.start = (uint32_t)(d & 0x3fff) << 4,
              .leading = (uint32_t)(d >> 16 & 0x3fff) << 4,
              .stride = (uint32_t)(d >> 32 & 0x3fff) << 4};
    v.span = spans[d >> 62];
    return v;
}

static const char *const names[2] = {"A of wgmma", "B of wgmma"};

static void view_copy(emu_warp *warp, const emu_instruction *in, const view *v, int which, unsigned char *to)
{
    if (v->strips && !v->turned && v->span != 16 && (uint32_t)v->depth * 2 > v->span)
        emu_fail(warp, in, -1, "%s: %d k do not fit into %u swizzled bytes", names[which], v->depth, v->span);
    for (int strip = 0; strip < v->strips; strip++) {
        uint32_t at[EMU_DEPTH];
        strip_addresses(v, strip, at);
        for (int i = 0; i < v->depth; i++, to += 16) {
            const unsigned char *chunk = emu_shared(warp, in, at[i], 16, names[which]);
            emu_check_fence(warp, in, warp->block, chunk, 16, names[which]);
            emu_race_check(warp, in, EMU_ANY_LANE, warp->block, chunk, 16, EMU_READS);
            emu_race_begin(warp, in, ~0u, warp->block, chunk, 16, EMU_READS);
            memcpy(to, chunk, 16);
        }
    }
}

/* A strip of the copy as [k][8 rows]. */
static void strip_read(const view *v, const unsigned char *copy, int strip, bool bf16, double (*out)[8])
{
    copy += 16 * strip * v->depth;
    for (int i = 0; i < v->depth; i++, copy += 16) {
        if (v->turned) {
            emu_halves(copy, bf16, out[i]);
            continue;
        }
        double eight[8];
        int row = i / (v->depth / 8), k = i % (v->depth / 8) * 8;
        emu_halves(copy, bf16, eight);
        for (int j = 0; j < 8; j++) out[k + j][row] = eight[j];
    }
}

/* ---- products under way */

enum { HELD = 5, PLACES = 4 }; /* registers: A's, and the metadata */

typedef struct product {
    const emu_instruction *in;
    uint64_t group;
    struct product *next;
    view view[2]; /* A, B; A in registers has no strips */
    uint32_t slot[HELD];
    uint32_t held[HELD][EMU_LANES];
    unsigned char *copy[2];
    unsigned char bytes[];
} product;

/* A register of D until its product is waited for: it is all ones in the meantime. */
typedef struct sum {
    uint32_t slot;
    uint64_t group; /* of the last product that adds to it */
    int line;       /* of that */
    float value[EMU_LANES];
} sum;

struct emu_products {
    product *first, **end;
    uint64_t committed; /* groups; the open one has this number */
    bool fenced;
    sum *sum;
    size_t sums, room;
    uint32_t *sum_of; /* of each slot: its number in sum, plus 1 */
};

static emu_products *products_of(emu_warp *warp, const emu_instruction *in)
{
    if (warp->products) return warp->products;
    warp->products = calloc(1, sizeof *warp->products);
    if (!warp->products) emu_fail(warp, in, -1, "no memory for the products of a warp");
    warp->products->end = &warp->products->first;
    warp->products->sum_of = calloc(warp->block->grid->function->slots + 1, sizeof *warp->products->sum_of);
    if (!warp->products->sum_of) emu_fail(warp, in, -1, "no memory for the products of a warp");
    return warp->products;
}

enum { WIDTH, FLAGS, SELECTOR, SIGN };                                          /* a wgmma's numbers */
enum { BF16 = 1, SPARSE = 2, TURNED_A = 4, TURNED_B = 8, ADDS_WHERE_NOT = 16 }; /* FLAGS */
enum { SLOT_A, SLOT_B, SLOT_PLACES, SLOT_ADDS };                                /* A's: EMU_NONE where it is in registers */

/* In the list before anything is read, for emu_matrix_free to find where that fails. */
static product *product_begin(emu_warp *warp, const emu_instruction *in)
{
    emu_products *all = products_of(warp, in);
    view views[2] = {{0}, view_of(warp, in, in->slot[SLOT_B], 'B')};
    if (!all->fenced) emu_fail(warp, in, -1, "no wgmma.fence came before it");
    if (in->slot[SLOT_A] != EMU_NONE) {
        views[0] = view_of(warp, in, in->slot[SLOT_A], 'A');
        views[0].first = warp->index % 4 * 2;
        views[0].strips = 2;
    }
    views[0].turned = in->number[FLAGS] & TURNED_A;
    views[0].depth = 16;
    views[1].turned = in->number[FLAGS] & TURNED_B;
    views[1].depth = in->number[FLAGS] & SPARSE ? 32 : 16;
    views[1].strips = in->number[WIDTH] / 8;
    product *p = malloc(sizeof *p + 16 * (size_t)(chunks_of(&views[0]) + chunks_of(&views[1])));
    if (!p) emu_fail(warp, in, -1, "no memory for a product");
    *p = (product){.in = in, .group = all->committed, .view = {views[0], views[1]}};
    p->copy[0] = p->bytes;
    p->copy[1] = p->bytes + 16 * chunks_of(&views[0]);
    *all->end = p;
    all->end = &p->next;
    return p;
}

static void product_read(emu_warp *warp, const emu_instruction *in, product *p)
{
    for (int which = 0; which < 2; which++) view_copy(warp, in, &p->view[which], which, p->copy[which]);
    for (int i = 0; i < HELD; i++) {
        p->slot[i] = i == PLACES                         ? in->slot[SLOT_PLACES]
                     : in->operand[1].kind == EMU_VECTOR ? emu_element(warp, &in->operand[1], i)
                                                         : EMU_NONE;
        if (p->slot[i] != EMU_NONE) memcpy(p->held[i], emu_u32(warp, p->slot[i]), sizeof p->held[i]);
    }
}

/* Both fail where anything that a product has read is not the same any more; `in` is who waits. */
static void check_shared(emu_warp *warp, const emu_instruction *in, const product *p, int which)
{
    const view *v = &p->view[which];
    const unsigned char *then = p->copy[which];
    for (int strip = 0; strip < v->strips; strip++) {
        uint32_t at[EMU_DEPTH];
        strip_addresses(v, strip, at);
        for (int i = 0; i < v->depth; i++, then += 16) {
            const unsigned char *now = emu_shared(warp, in, at[i], 16, names[which]);
            emu_race_note(warp, p->in, ~0u, warp->block, now, 16, EMU_READS);
            if (memcmp(now, then, 16) == 0) continue;
            uint32_t byte = 0;
            while (now[byte] == then[byte]) byte++;
            emu_fail(warp, in, -1, "%c of the wgmma at line %d was overwritten before wgmma.wait_group: shared address 0x%x",
                     "AB"[which], p -> in -> line, at[i] + byte);
        }
    }
}

static void check_held(emu_warp *warp, const emu_instruction *in, const product *p)
{
    for (int i = 0; i < HELD; i++) {
        const uint32_t *now = p->slot[i] == EMU_NONE ? p->held[i] : emu_u32(warp, p->slot[i]);
        for (int lane = 0; lane < EMU_LANES; lane++) {
            if (now[lane] == p->held[i][lane]) continue;
            if (i == PLACES)
                emu_fail(warp, in, lane, "the metadata of the wgmma at line %d was overwritten before wgmma.wait_group",
                         p->in->line);
            emu_fail(warp, in, lane, "A of the wgmma at line %d was overwritten before wgmma.wait_group: register %d",
                     p->in->line, i);
        }
    }
}

/* The register's value as products will have left it; the register itself tells nothing until they are waited for. */
static sum *sum_of(emu_warp *warp, const emu_instruction *in, uint32_t slot)
{
    emu_products *all = warp->products;
    if (!all->sum_of[slot]) {
        if (all->sums == all->room) {
            size_t room = all->room ? 2 * all->room : 64;
            sum *more = realloc(all->sum, room * sizeof *more);
            if (!more) emu_fail(warp, in, -1, "no memory for the products of a warp");
            all->sum = more;
            all->room = room;
        }
        all->sum[all->sums] = (sum){.slot = slot};
        memcpy(all->sum[all->sums].value, emu_f32(warp, slot), sizeof all->sum->value);
        all->sum_of[slot] = (uint32_t)++all->sums;
    }
    sum *s = &all->sum[all->sum_of[slot] - 1];
    s->group = all->committed;
    s->line = in->line;
    return s;
}

static void hide_sum(emu_warp *warp, const sum *s)
{
    if (warp->block->grid->order == EMU_EARLY)
        memcpy(emu_f32(warp, s->slot), s->value, sizeof s->value);
    else
        memset(emu_f32(warp, s->slot), 0xff, sizeof s->value);
}

/* Those whose last product is in a group before `group` are in their registers from now on. */
static void show_sums(emu_warp *warp, const emu_instruction *in, uint64_t group)
{
    emu_products *all = warp->products;
    for (size_t i = 0; i < all->sums;) {
        sum *s = &all->sum[i];
        if (s->group >= group) {
            ++i;
            continue;
        }
        const uint32_t *now = emu_u32(warp, s->slot);
        for (int lane = 0; lane < EMU_LANES && warp->block->grid->order != EMU_EARLY; lane++)
            if (now[lane] != UINT32_MAX)
                emu_fail(warp, in, lane, "D of the wgmma at line %d was written before wgmma.wait_group", s->line);
        memcpy(emu_f32(warp, s->slot), s->value, sizeof s->value);
        all->sum_of[s->slot] = 0;
        if (i != --all->sums) {
            *s = all->sum[all->sums];
            all->sum_of[s->slot] = (uint32_t)i + 1;
        }
    }
}

static emu_outcome run_fence(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    emu_whole_warp(warp, in, mask);
    products_of(warp, in)->fenced = true;
    return EMU_STEP;
}

static emu_outcome run_commit(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    emu_whole_warp(warp, in, mask);
    products_of(warp, in)->committed++;
    return EMU_STEP;
}

static emu_outcome run_wait(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    emu_whole_warp(warp, in, mask);
    emu_products *all = products_of(warp, in);
    while (all->first && all->first->group + (uint64_t)in->number[0] < all->committed) {
        product *p = all->first;
        for (int which = 0; which < 2; which++) check_shared(warp, in, p, which);
        check_held(warp, in, p);
        all->first = p->next;
        if (!all->first) all->end = &all->first;
        free(p);
    }
    uint64_t left = (uint64_t)in->number[0];
    show_sums(warp, in, all->committed > left ? all->committed - left : 0);
    return EMU_STEP;
}

void emu_matrix_end_warp(emu_warp *warp)
{
    const product *p = warp->products ? warp->products->first : NULL;
    if (!p) return;
    emu_fail(warp, p->in, -1, "the warp ended without waiting for it: its group was %s",
             p->group < warp->products->committed ? "committed, and no wgmma.wait_group covers it" : "never committed");
}

void emu_matrix_free(emu_warp *warp)
{
    if (!warp->products) return;
    for (product *p = warp->products->first, *next; p; p = next) {
        next = p->next;
        free(p);
    }
    free(warp->products->sum);
    free(warp->products->sum_of);
    free(warp->products);
    warp->products = NULL;
}

/* ---- the product */

static void left_read(emu_warp *warp, const emu_instruction *in, const product *p, emu_left *left)
{
    bool bf16 = in->number[FLAGS] & BF16;
    const uint32_t *const fragment[4] = {p->held[0], p->held[1], p->held[2], p->held[3]};
    if (p->view[0].strips == 0) {
        emu_left_fragment(fragment, 4, bf16, left);
    } else {
        left->count = EMU_KEPT;
        for (int strip = 0; strip < 2; strip++) {
            double rows[EMU_KEPT][8];
            strip_read(&p->view[0], p->copy[0], strip, bf16, rows);
            for (int row = 0; row < 8; row++)
                for (int k = 0; k < EMU_KEPT; k++) left->value[strip * 8 + row][k] = rows[k][row];
        }
    }
    if (in->number[FLAGS] & SPARSE)
        emu_left_sparse(warp, in, p->held[PLACES], in->number[SELECTOR], true, left);
    else
        emu_left_dense(left);
}

/* Whether D is added to. */
static bool adds(emu_warp *warp, const emu_instruction *in)
{
    const uint32_t *lanes = emu_u32(warp, in->slot[SLOT_ADDS]);
    for (int lane = 1; lane < EMU_LANES; lane++)
        if (lanes[lane] != lanes[0]) emu_fail(warp, in, lane, "the predicate of D is not lane 0's");
    return (lanes[0] != 0) != ((in->number[FLAGS] & ADDS_WHERE_NOT) != 0);
}

static emu_outcome run_product(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    warp->block->grid->counts.products++;
    emu_left left;
    emu_right right;
    emu_whole_warp(warp, in, mask);
    if (warp->index / 4 * 4 + 4 > warp->block->warps)
        emu_fail(warp, in, -1, "warp %d of %d: its warpgroup is not whole", warp->index, warp->block->warps);
    bool add = adds(warp, in);
    product *p = product_begin(warp, in);
    product_read(warp, in, p);
    left_read(warp, in, p, &left);
    for (int strip = 0; strip < p->view[1].strips; strip++) {
        emu_strip total;
        strip_read(&p->view[1], p->copy[1], strip, in->number[FLAGS] & BF16, right.value);
        for (int i = 0; i < 4; i++)
            memcpy(total[i], sum_of(warp, in, emu_element(warp, &in->operand[0], 4 * strip + i))->value, sizeof total[i]);
        emu_strip_multiply(&left, &right, in->number[SIGN], add ? (const float(*)[EMU_LANES])total : NULL, total);
        for (int i = 0; i < 4; i++) {
            sum *s = sum_of(warp, in, emu_element(warp, &in->operand[0], 4 * strip + i));
            memcpy(s->value, total[i], sizeof total[i]);
            hide_sum(warp, s);
        }
    }
    return EMU_STEP;
}

/* ---- taking */

/* An operand that is a number, between these; -2: it is none. */
static int number_of(const emu_operand *operand, int least, int most)
{
    return operand->kind == EMU_IMMEDIATE && operand->value >= least && operand->value <= most ? (int)operand->value : -2;
}

/* D, A, B, and if sparse metadata and its selector; p, scales of A and B, then whether A is turned if it has a descriptor, whether B is. */
static bool take_product(emu_instruction *in, bool sparse, const char *shape)
{
    int width, depth, end = 0, at = 3;
    char a[8], b[8];
    bool bf16, held = in->operand[1].kind == EMU_VECTOR;
    if (sscanf(shape, "m64n%dk%d.f32.%7[a-z0-9].%7[a-z0-9]%n", &width, &depth, a, b, &end) != 4 || shape[end]) return false;
    if (!emu_halves_type(a, b, &bf16) || depth != (sparse ? 32 : 16) || width < 8 || width > 256 || width % 8) return false;
    const emu_operand *operand = in->operand;
    if (in->operands != 8 + 2 * sparse - held || operand[0].kind != EMU_VECTOR || (int)operand[0].count != width / 2)
        return false;
    if (held && operand[1].count != 4) return false;
    in->number[WIDTH] = width;
    in->slot[SLOT_A] = held ? EMU_NONE : emu_slot_of(&operand[1], true);
    in->slot[SLOT_B] = emu_slot_of(&operand[2], true);
    in->slot[SLOT_PLACES] = EMU_NONE;
    in->number[SELECTOR] = 0;
    if (sparse) {
        in->slot[SLOT_PLACES] = emu_slot_of(&operand[at++], false);
        in->number[SELECTOR] = number_of(&operand[at++], 0, 1);
    }
    in->slot[SLOT_ADDS] = emu_slot_of(&operand[at], false);
    bool not = operand[at++].negated;
    int scale_a = number_of(&operand[at], -1, 1), scale_b = number_of(&operand[at + 1], -1, 1);
    int turned_a = held ? 0 : number_of(&operand[at + 2], 0, 1), turned_b = number_of(&operand[at + 3 - held], 0, 1);
    in->number[SIGN] = scale_a * scale_b;
    if (abs(scale_a) != 1 || abs(scale_b) != 1 || turned_a < 0 || turned_b < 0 || in->number[SELECTOR] < 0) return false;
    in->number[FLAGS] = (bf16 ? BF16 : 0) | (sparse ? SPARSE : 0) | (turned_a ? TURNED_A : 0) | (turned_b ? TURNED_B : 0) |
                        (not ? ADDS_WHERE_NOT : 0);
    in->run = run_product;
    return true;
}

bool emu_wgmma_take(emu_instruction *in)
{
    static const char dense[] = "wgmma.mma_async.sync.aligned.", sparse[] = "wgmma.mma_async.sp.sync.aligned.";
    if (strncmp(in->opcode, dense, sizeof dense - 1) == 0) return take_product(in, false, in->opcode + sizeof dense - 1);
    if (strncmp(in->opcode, sparse, sizeof sparse - 1) == 0) return take_product(in, true, in->opcode + sizeof sparse - 1);
    if (strcmp(in->opcode, "wgmma.wait_group.sync.aligned") == 0) {
        if (in->operands != 1 || number_of(&in->operand[0], 0, 7) < 0) return false;
        in->number[0] = (int)in->operand[0].value;
        in->run = run_wait;
        return true;
    }
    emu_run *run = strcmp(in->opcode, "wgmma.fence.sync.aligned") == 0          ? run_fence
                   : strcmp(in->opcode, "wgmma.commit_group.sync.aligned") == 0 ? run_commit
                                                                                : NULL;
    if (run && in->operands == 0) in->run = run;
    return run && in->operands == 0;
}
