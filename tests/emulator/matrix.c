/* matrix.c - the matrix instructions of one warp: ldmatrix, stmatrix, movmatrix, mma and mma.sp; and what halves are as floats. parse.c asks
 * it for handlers, matrix_wgmma.c for products, scalar.c for conversions. Fragments as in the PTX ISA, with g = lane / 4 and t = lane % 4. */
#include "matrix.h"

#include <stdio.h>
#include <string.h>

/* ---- halves */

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Where exponents begin: 2^-14 is the least normal half. */
#define LEAST_NORMAL 0x38800000u
#define REBIAS       0x38000000u /* (127 - 15) << 23 */
#define NAN_HALF     0x7fffu     /* the only NaN that conversions of the hardware make */

float emu_from_f16(uint16_t bits)
{
    uint32_t magnitude = (bits & 0x7fffu) << 13, sign = (bits & 0x8000u) << 16;
    if (magnitude < 0x00800000u) /* the fraction as if of the least normal number, less that number: exact */
        return float_of(bits_of(float_of(magnitude + LEAST_NORMAL) - float_of(LEAST_NORMAL)) | sign);
    return float_of((magnitude + REBIAS + (magnitude >= 0x0f800000u ? REBIAS : 0)) | sign);
}

uint16_t emu_to_f16(float value)
{
    uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffffu, sign = bits >> 16 & 0x8000u;
    if (magnitude > 0x7f800000u) return NAN_HALF;
    if (magnitude >= 0x477ff000u)
        return (uint16_t)(sign | 0x7c00u); /* 65,520: the first that is nearer to infinity, or as near */
    if (magnitude < LEAST_NORMAL)          /* beside 0.5 a float's last bit is 2^-24, a half's least */
        return (uint16_t)(sign | (bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f)));
    uint32_t odd = magnitude >> 13 & 1;
    return (uint16_t)(sign | (magnitude - REBIAS + 0xfffu + odd) >> 13);
}

uint16_t emu_to_bf16(float value)
{
    uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return NAN_HALF;
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

typedef uint16_t eight_halves __attribute__((vector_size(16)));
typedef uint32_t eight_words __attribute__((vector_size(32)));
typedef float eight_floats __attribute__((vector_size(32)));
typedef double two_doubles __attribute__((vector_size(16), may_alias));

/* emu_from_f16 for all of them at once: B's of a wgmma are thousands. */
void emu_halves(const unsigned char *bytes, bool bf16, double out[8])
{
    eight_halves halves;
    memcpy(&halves, bytes, sizeof halves);
    eight_words words = __builtin_convertvector(halves, eight_words);
    if (bf16) {
        words <<= 16;
    } else {
        eight_words magnitude = (words & 0x7fffu) << 13, sign = (words & 0x8000u) << 16;
        eight_words special = (eight_words)(magnitude >= 0x0f800000u), small = (eight_words)(magnitude < 0x00800000u);
        eight_words least = magnitude - magnitude + LEAST_NORMAL;
        eight_floats less = (eight_floats)(magnitude + LEAST_NORMAL) - (eight_floats)least;
        words = (small & (eight_words)less) | (~small & (magnitude + REBIAS + (special & REBIAS))) | sign;
    }
    float floats[8];
    memcpy(floats, &words, sizeof floats);
    for (int i = 0; i < 8; i++) out[i] = floats[i];
}

bool emu_halves_type(const char *a, const char *b, bool *bf16)
{
    *bf16 = strcmp(a, "bf16") == 0;
    return (*bf16 || strcmp(a, "f16") == 0) && strcmp(a, b) == 0;
}

/* The halves of a register: [2 * lane], [2 * lane + 1]. */
static void register_halves(const uint32_t *words, bool bf16, double out[2 * EMU_LANES])
{
    for (int i = 0; i < 2 * EMU_LANES; i += 8) emu_halves((const unsigned char *)words + 2 * i, bf16, out + i);
}

/* ---- products */

void emu_left_fragment(const uint32_t *const a[], int registers, bool bf16, emu_left *left)
{
    left->count = registers * 4;
    for (int i = 0; i < registers; i++) {
        double halves[2 * EMU_LANES]; /* four lanes' are 8 of a row */
        register_halves(a[i], bf16, halves);
        for (int g = 0; g < 8; g++) memcpy(&left->value[g + i % 2 * 8][i / 2 * 8], halves + 8 * g, 8 * sizeof *halves);
    }
}

void emu_left_dense(emu_left *left)
{
    for (int row = 0; row < EMU_ROWS; row++)
        for (int i = 0; i < left->count; i++) left->at[row][i] = (uint8_t)i;
}

void emu_left_sparse(emu_warp *warp, const emu_instruction *in, const uint32_t *places, int selector, bool ordered,
                     emu_left *left)
{
    /* Of each four lanes so many bring words, 16 k each: of row g in the low half, of row g + 8 in the high one. */
    int lanes = left->count / 8;
    for (int row = 0; row < EMU_ROWS; row++)
        for (int four = 0; four < left->count / 2; four++) {
            int lane = row % 8 * 4 + selector * lanes + four / 4;
            uint32_t nibble = places[lane] >> (row / 8 * 16 + four % 4 * 4), first = nibble & 3, second = nibble >> 2 & 3;
            if (first == second || (ordered && first > second))
                emu_fail(warp, in, lane,
                         "metadata 0x%08x: row %d keeps positions %u and %u of the k from %d on, which do not ascend",
                         places[lane], row, first, second, four * 4);
            left->at[row][2 * four] = (uint8_t)((uint32_t)four * 4 + first);
            left->at[row][2 * four + 1] = (uint8_t)((uint32_t)four * 4 + second);
        }
}

/* As the tensor cores have it: one NaN alone. */
static float rounded(double sum) { return sum == sum ? (float)sum : float_of(0x7fffffffu); }

/* A lane's columns 2t and 2t + 1 of a row. */
static inline void put_pair(two_doubles sum, int h, int lane, const emu_strip add, emu_strip out)
{
    out[2 * h][lane] = rounded(add ? sum[0] + add[2 * h][lane] : sum[0]);
    out[2 * h + 1][lane] = rounded(add ? sum[1] + add[2 * h + 1][lane] : sum[1]);
}

/* Four pairs of columns by name, where a loop over them would keep sums in memory. */
void emu_strip_multiply(const emu_left *left, const emu_right *right, double sign, const emu_strip add, emu_strip out)
{
    for (int row = 0; row < EMU_ROWS; row++) {
        two_doubles sum0 = {0}, sum1 = {0}, sum2 = {0}, sum3 = {0};
        for (int i = 0; i < left->count; i++) {
            const two_doubles *b = (const two_doubles *)right->value[left->at[row][i]];
            double a = left->value[row][i];
            sum0 += a * b[0];
            sum1 += a * b[1];
            sum2 += a * b[2];
            sum3 += a * b[3];
        }
        int h = row / 8, lane = row % 8 * 4;
        put_pair(sign * sum0, h, lane, add, out);
        put_pair(sign * sum1, h, lane + 1, add, out);
        put_pair(sign * sum2, h, lane + 2, add, out);
        put_pair(sign * sum3, h, lane + 3, add, out);
    }
}

void emu_whole_warp(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    if (mask != UINT32_MAX) emu_fail(warp, in, -1, "it is the whole warp's, and lanes 0x%08x alone are here", mask);
}

/* ---- ldmatrix, stmatrix, movmatrix: 8 x 8 halves, a word a lane */

typedef uint16_t matrix[8][8];

/* Lane 4g + t has elements 2t and 2t + 1 of row g; turned: elements g of rows 2t and 2t + 1. */
static uint32_t word_of(matrix m, int lane, bool turned)
{
    int g = lane / 4, t = lane % 4;
    return turned ? m[2 * t][g] | (uint32_t)m[2 * t + 1][g] << 16 : m[g][2 * t] | (uint32_t)m[g][2 * t + 1] << 16;
}

static void put_word(matrix m, int lane, bool turned, uint32_t word)
{
    int g = lane / 4, t = lane % 4;
    *(turned ? &m[2 * t][g] : &m[g][2 * t]) = (uint16_t)word;
    *(turned ? &m[2 * t + 1][g] : &m[g][2 * t + 1]) = (uint16_t)(word >> 16);
}

/* The row that a lane tells the address of. */
static unsigned char *row_of(emu_warp *warp, const emu_instruction *in, const emu_operand *operand, int lane)
{
    uint64_t address = emu_address(warp, operand, lane);
    if (address % 16) emu_fail(warp, in, lane, "the row at 0x%llx is not aligned to 16 bytes", (unsigned long long)address);
    return emu_shared(warp, in, address, 16, "row of a matrix");
}

static void count_rows(emu_warp *warp, const emu_instruction *in, const emu_operand *operand, bool writes)
{
    uint64_t address[EMU_LANES];
    if (!warp->block->grid->counting) return;
    for (int lane = 0; lane < EMU_LANES; lane++) address[lane] = emu_address(warp, operand, lane);
    emu_count_shared(warp->block->grid, address, in->number[0] == 4 ? ~0u : (1u << in->number[0] * 8) - 1, 16, writes);
}

/* number: matrices, turned. All rows are read before any register is written: one may be an address. */
static emu_outcome run_ldmatrix(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    matrix m[4];
    emu_whole_warp(warp, in, mask);
    count_rows(warp, in, &in->operand[1], false);
    for (int lane = 0; lane < in->number[0] * 8; lane++) {
        const unsigned char *row = row_of(warp, in, &in->operand[1], lane);
        emu_race_check(warp, in, lane, warp->block, row, 16, EMU_READS);
        emu_race_note(warp, in, ~0u, warp->block, row, 16, EMU_READS); /* every lane gets a part of it */
        memcpy(m[lane / 8][lane % 8], row, 16);
    }
    for (int i = 0; i < in->number[0]; i++) {
        uint32_t *to = emu_u32(warp, emu_element(warp, &in->operand[0], i));
        for (int lane = 0; lane < EMU_LANES; lane++) to[lane] = word_of(m[i], lane, in->number[1]);
    }
    return EMU_STEP;
}

static emu_outcome run_stmatrix(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    matrix m[4];
    emu_whole_warp(warp, in, mask);
    for (int i = 0; i < in->number[0]; i++) {
        const uint32_t *from = emu_u32(warp, emu_element(warp, &in->operand[1], i));
        for (int lane = 0; lane < EMU_LANES; lane++) put_word(m[i], lane, in->number[1], from[lane]);
    }
    count_rows(warp, in, &in->operand[0], true);
    for (int lane = 0; lane < in->number[0] * 8; lane++) {
        unsigned char *row = row_of(warp, in, &in->operand[0], lane);
        memcpy(row, m[lane / 8][lane % 8], 16);
        emu_saw_write(warp, warp->block, row, 16);
        emu_race_check(warp, in, lane, warp->block, row, 16, EMU_WRITES);
        emu_race_note(warp, in, ~0u, warp->block, row, 16, EMU_WRITES);
    }
    return EMU_STEP;
}

static emu_outcome run_movmatrix(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    matrix m;
    emu_whole_warp(warp, in, mask);
    const uint32_t *from = emu_u32(warp, in->operand[1].slot);
    for (int lane = 0; lane < EMU_LANES; lane++) put_word(m, lane, false, from[lane]);
    uint32_t *to = emu_u32(warp, in->operand[0].slot);
    for (int lane = 0; lane < EMU_LANES; lane++) to[lane] = word_of(m, lane, true);
    return EMU_STEP;
}

static bool take_move(emu_instruction *in)
{
    if (strcmp(in->opcode, "movmatrix.sync.aligned.m8n8.trans.b16") == 0) {
        if (in->operands == 2) in->run = run_movmatrix;
        return in->operands == 2;
    }
    bool loads = strcmp(in->part[0], "ldmatrix") == 0;
    if ((!loads && strcmp(in->part[0], "stmatrix") != 0) || in->operands != 2) return false;
    if (!emu_has_part(in, "m8n8") || !emu_has_part(in, "b16")) return false;
    if (!emu_has_part(in, "shared") && !emu_has_part(in, "shared::cta")) return false;
    const emu_operand *vector = &in->operand[loads ? 0 : 1], *address = &in->operand[loads ? 1 : 0];
    in->number[0] = emu_has_part(in, "x4") ? 4 : emu_has_part(in, "x2") ? 2 : 1;
    in->number[1] = emu_has_part(in, "trans");
    if (address->kind != EMU_ADDRESS || (vector->kind == EMU_VECTOR ? (int)vector->count : 1) != in->number[0]) return false;
    in->run = loads ? run_ldmatrix : run_stmatrix;
    return true;
}

/* ---- mma */

enum { BF16, SPARSE, ORDERED, SELECTOR }; /* an mma's numbers */

static emu_outcome run_mma(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    warp->block->grid->counts.products++;
    const emu_operand *d = &in->operand[0], *a = &in->operand[1], *b = &in->operand[2], *c = &in->operand[3];
    const uint32_t *fragment[4];
    bool bf16 = in->number[BF16];
    emu_left left;
    emu_right right;
    emu_strip strip;
    emu_whole_warp(warp, in, mask);
    for (int i = 0; i < (int)a->count; i++) fragment[i] = emu_u32(warp, emu_element(warp, a, i));
    emu_left_fragment(fragment, (int)a->count, bf16, &left);
    if (in->number[SPARSE])
        emu_left_sparse(warp, in, emu_u32(warp, in->slot[0]), in->number[SELECTOR], in->number[ORDERED], &left);
    else
        emu_left_dense(&left);
    for (int i = 0; i < (int)b->count; i++) { /* b[i]: k 8i + 2t and 8i + 2t + 1 of column g */
        double halves[2 * EMU_LANES];
        register_halves(emu_u32(warp, emu_element(warp, b, i)), bf16, halves);
        for (int g = 0; g < 8; g++)
            for (int k = 0; k < 8; k++) right.value[8 * i + k][g] = halves[8 * g + k];
    }
    for (int i = 0; i < 4; i++) memcpy(strip[i], emu_f32(warp, emu_element(warp, c, i)), sizeof strip[i]);
    emu_strip_multiply(&left, &right, 1, (const float(*)[EMU_LANES])strip, strip);
    for (int i = 0; i < 4; i++) memcpy(emu_f32(warp, emu_element(warp, d, i)), strip[i], sizeof strip[i]);
    return EMU_STEP;
}

/* Where the depth begins in an opcode of one of these kinds; NULL: none of them. */
static const char *after(const char *opcode, const char *prefix)
{
    size_t length = strlen(prefix);
    return strncmp(opcode, prefix, length) == 0 ? opcode + length : NULL;
}

static bool take_mma(emu_instruction *in)
{
    const char *dense = after(in->opcode, "mma.sync.aligned.m16n8k"), *sparse = after(in->opcode, "mma.sp.sync.aligned.m16n8k");
    const char *ordered = after(in->opcode, "mma.sp::ordered_metadata.sync.aligned.m16n8k"), *shape = dense    ? dense
                                                                                                      : sparse ? sparse
                                                                                                               : ordered;
    int depth, end = 0;
    char a[8], b[8];
    bool bf16;
    if (!shape || sscanf(shape, "%d.row.col.f32.%7[a-z0-9].%7[a-z0-9].f32%n", &depth, a, b, &end) != 3) return false;
    if (!end || shape[end] || !emu_halves_type(a, b, &bf16)) return false;
    int stored = dense ? depth : depth / 2;
    const emu_operand *operand = in->operand;
    if ((stored != 8 && stored != 16) || in->operands != (dense ? 4 : 6)) return false;
    const int counts[4] = {4, stored / 4, depth / 8, 4};
    for (int i = 0; i < 4; i++)
        if ((int)operand[i].count != counts[i] || operand[i].kind != EMU_VECTOR) return false;
    in->number[BF16] = bf16;
    in->number[SPARSE] = !dense;
    in->number[ORDERED] = ordered != NULL;
    if (!dense) {
        in->number[SELECTOR] = (int)operand[5].value;
        in->slot[0] = emu_slot_of(&operand[4], false);
        if (operand[5].kind != EMU_IMMEDIATE || operand[5].value < 0 || operand[5].value >= 32 / stored) return false;
    }
    in->run = run_mma;
    return true;
}

bool emu_matrix_take(const emu_function *function, emu_instruction *in)
{
    (void)function; /* vectors' elements are looked up as it runs: there are too many for in->slot */
    return take_mma(in) || take_move(in) || emu_wgmma_take(in);
}
