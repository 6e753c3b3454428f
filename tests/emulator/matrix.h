/* matrix.h - what matrix.c and matrix_wgmma.c share: 16 rows of A times 8 columns of B, which every matrix instruction is made of. Sums are
 * doubles: products of halves are exact in them, so that the result is rounded once. */
#ifndef LAC_EMULATOR_MATRIX_H
#define LAC_EMULATOR_MATRIX_H

#include "observe.h"

enum { EMU_ROWS = 16, EMU_COLUMNS = 8, EMU_KEPT = 16, EMU_DEPTH = 32 };

/* 16 rows of A: what is stored of each, and which k that is. What a sparse A does not store is not there, rather than zero: nothing
 * becomes NaN beside it. */
typedef struct emu_left {
    int count; /* stored of a row */
    double value[EMU_ROWS][EMU_KEPT];
    uint8_t at[EMU_ROWS][EMU_KEPT];
} emu_left;

/* 8 columns of B, aligned for vectors. */
typedef struct emu_right {
    _Alignas(16) double value[EMU_DEPTH][EMU_COLUMNS];
} emu_right;

/* C and D of a product in the order of their registers: [2h + i][4g + t] is row g + 8h, column 2t + i. */
typedef float emu_strip[4][EMU_LANES];

/* A out of registers, the fragment of mma: lane 4g + t has in a[2j + h] the stored 8j + 2t and 8j + 2t + 1 of row g + 8h. */
void emu_left_fragment(const uint32_t *const a[], int registers, bool bf16, emu_left *left);
/* Every k is stored. */
void emu_left_dense(emu_left *left);
/* Two of every four k are, which ones is in `places` of some lanes. Fails where these are none that an instruction may have; `ordered`:
 * where they do not ascend. */
void emu_left_sparse(emu_warp *warp, const emu_instruction *in, const uint32_t *places, int selector, bool ordered,
                     emu_left *left);

/* out = sign * a * b + add; add may be NULL, or out. */
void emu_strip_multiply(const emu_left *left, const emu_right *right, double sign, const emu_strip add, emu_strip out);

/* 8 halves in a row. */
void emu_halves(const unsigned char *bytes, bool bf16, double out[8]);

/* Element i of a {vector}, or a register by itself. */
static inline uint32_t emu_element(const emu_warp *warp, const emu_operand *operand, int i)
{
    return operand->kind == EMU_VECTOR ? warp->block->grid->function->element[operand->first + (uint32_t)i].slot
                                       : operand->slot;
}

/* f16 or bf16, given for both operands. */
bool emu_halves_type(const char *a, const char *b, bool *bf16);
/* All matrix instructions are the whole warp's. */
void emu_whole_warp(emu_warp *warp, const emu_instruction *in, uint32_t mask);

/* matrix_wgmma.c */
bool emu_wgmma_take(emu_instruction *in);

#endif
