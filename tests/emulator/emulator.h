/* emulator.h - a GPU made of a CPU: a stand-in for libcuda that runs the PTX of Lacuna's kernels, thread by thread, so that every test of
 * tests/gpu runs on a machine without a GPU, for each architecture that kernels are compiled for. It is slow, checks every access, and
 * delays what hardware may delay. It tells nothing of speed. docs/emulator.md explains it.
 *
 *   nvrtc.c     the real NVRTC, asked for PTX where Lacuna asks for machine code
 *   driver*.c   cuMemAlloc, cuLaunchKernelEx, ...: what src/cuda/driver.h lists
 *   parse*.c    PTX as text -> instructions whose operands are places in a file of registers
 *   machine.c   grids, clusters, blocks, warps; who runs next; branches and divergence
 *   threads.c   barriers among threads, fences
 *   scalar*.c   arithmetic, logic, comparisons, conversions, lane exchange: one lane at a time
 *   memory.c    loads, stores and atomics; which addresses are whose
 *   engine.c    mbarriers, and how copies that go on by themselves land; cp.async
 *   bulk.c      bulk and tensor copies, st.async
 *   observe.c   fences that are missing; how often banks turn
 *   races.c     accesses to shared memory that nothing orders
 *   matrix*.c   ldmatrix, stmatrix, movmatrix, mma, mma.sp, wgmma, wgmma.sp
 */
#ifndef LAC_EMULATOR_H
#define LAC_EMULATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EMU_LANES = 32, EMU_SLOT = 4 * EMU_LANES, EMU_PARTS = 16, EMU_OPERANDS = 10, EMU_SLOTS = 10 };

typedef struct emu_warp emu_warp;
typedef struct emu_block emu_block;
typedef struct emu_instruction emu_instruction;

/* ---- programs (parse.c)
 *
 * A register of 32 bits or fewer (16-bit ones and predicates too, zero-extended; a predicate is 0 or 1) is uint32_t[32], one slot of the
 * file; one of 64 bits is uint64_t[32], two slots. A constant is there twice: as 32 bits in its slot, as 64 (sign-extended where it was
 * written with a minus, or as the bits of a double) in the two slots behind. EMU_CONSTANT marks its number: it is in the function's table. */
#define EMU_CONSTANT 0x80000000u
#define EMU_NONE     0x7fffffffu /* no slot: the sink '_' */

typedef enum emu_kind { EMU_REGISTER, EMU_IMMEDIATE, EMU_VECTOR, EMU_ADDRESS, EMU_TARGET, EMU_SINK } emu_kind;

typedef struct emu_operand {
    emu_kind kind;
    bool wide;         /* a register of 64 bits */
    bool negated;      /* !p as a source */
    bool is_predicate; /* a register of that kind */
    uint32_t slot;     /* REGISTER, IMMEDIATE; ADDRESS: of its base, or EMU_NONE */
    int64_t
        value; /* IMMEDIATE: as written, 0f... as the float's bits; ADDRESS: what is added, symbols included; TARGET: an instruction's number */
    uint32_t first; /* VECTOR: elements are function->element[first ...]; ADDRESS [a, {x, y}]: the coordinates are */
    uint32_t count; /* so many of them */
} emu_operand;

/* What a handler says: go on with the next instruction; wait, and come here again; or go on, but others first (the thread waits for someone). */
typedef enum emu_outcome { EMU_STEP, EMU_STALL, EMU_YIELD } emu_outcome;

/* Runs it for the lanes of `mask`, of which there is one at least. */
typedef emu_outcome emu_run(emu_warp *warp, const emu_instruction *in, uint32_t mask);

struct emu_instruction {
    char *opcode;          /* "ld.global.v4.u32" */
    char *part[EMU_PARTS]; /* "ld", "global", "v4", "u32"; "mma", "sp::ordered_metadata", ... */
    int parts;
    emu_operand operand[EMU_OPERANDS]; /* results first, as written; d|p of shfl are two */
    int operands;
    uint32_t guard; /* slot of its predicate, or EMU_NONE */
    bool guard_negated;
    int line;        /* in the PTX, from 1 */
    emu_run *run;    /* NULL for what machine.c does itself: bra, ret, exit */
    bool is_aligned; /* all lanes of the warp that are alive must have come here (a .sync or .aligned among its parts) */
    /* For whoever found `run`: slots and numbers worked out once. */
    uint32_t slot[EMU_SLOTS];
    int number[6];
};

typedef struct emu_function {
    char *name;
    emu_instruction *code;
    int length;
    emu_operand *element;     /* of vectors */
    uint32_t slots;           /* of a warp's file of registers */
    unsigned char *constants; /* EMU_SLOT bytes each */
    uint32_t param_bytes;     /* all parameters */
    uint32_t *param_offset;   /* of each */
    uint32_t *param_size;
    int params;
    uint32_t shared_bytes;               /* of static shared memory */
    uint32_t local_bytes;                /* of a thread */
    uint32_t special[16];                /* slots of emu_special, EMU_NONE where it is not read */
    int most_threads;                    /* .maxntid; 0: not said */
    const struct emu_variable *variable; /* the module's */
    int variables;
} emu_function;

typedef struct emu_variable { /* .global of a module */
    void *data;
    size_t bytes;
} emu_variable;

typedef enum emu_special {
    EMU_TID_X,
    EMU_TID_Y,
    EMU_TID_Z,
    EMU_NTID_X,
    EMU_NTID_Y,
    EMU_NTID_Z,
    EMU_CTAID_X,
    EMU_CTAID_Y,
    EMU_CTAID_Z,
    EMU_NCTAID_X,
    EMU_NCTAID_Y,
    EMU_NCTAID_Z,
    EMU_CLUSTER_RANK,
    EMU_CLUSTER_SIZE,
    EMU_LANE,
    EMU_WARP
} emu_special;

typedef struct emu_module {
    emu_function *function;
    int functions;
    int target; /* 90 for sm_90a */
    char *text; /* a copy, which names point into */
    emu_variable *variable;
    int variables;
} emu_module;

/* NULL, and a sentence in `why`, for what is not understood; every instruction has its handler then. */
emu_module *emu_module_parse(const char *ptx, char *why, size_t why_size);
void emu_module_free(emu_module *module);

/* Each looks whether an instruction is one of its own, and sets run, slot and number. False: not mine. `function` for vectors' elements. */
bool emu_scalar_take(const emu_function *function, emu_instruction *in);
bool emu_memory_take(const emu_function *function, emu_instruction *in);
bool emu_engine_take(const emu_function *function, emu_instruction *in);
bool emu_matrix_take(const emu_function *function, emu_instruction *in);
bool emu_threads_take(const emu_function *function, emu_instruction *in);

/* The slot of an operand that is a register or a constant, to be read as 32 or 64 bits. */
static inline uint32_t emu_slot_of(const emu_operand *operand, bool wide)
{
    return operand->kind == EMU_IMMEDIATE && wide ? operand->slot + 1 : operand->slot;
}
/* Whether an instruction has this word among its parts. */
bool emu_has_part(const emu_instruction *in, const char *part);

/* ---- memory
 *
 * Global addresses are the process's own, of blocks that the driver handed out or of a module's variables. Shared memory has addresses of
 * its own, from EMU_SHARED_FIRST on as on the hardware; the top byte of one is 0 for the own block's, else a rank in the cluster plus 1. */
#define EMU_SHARED_FIRST 1024u
#define EMU_PARAM_BASE   UINT64_C(0x7100000000000000)
#define EMU_LOCAL_BASE   UINT64_C(0x7200000000000000)

/* Where the bytes are. Fails the launch where any of them is nobody's; `what` is for the message. */
unsigned char *emu_shared(emu_warp *warp, const emu_instruction *in, uint64_t address, size_t bytes, const char *what);
unsigned char *emu_global(emu_warp *warp, const emu_instruction *in, uint64_t address, size_t bytes, const char *what);
/* Also for addresses of parameters: tensor maps are there. */
const unsigned char *emu_generic(emu_warp *warp, const emu_instruction *in, uint64_t address, size_t bytes, const char *what);
/* The block of the cluster that a shared address speaks of, and the address without that. */
emu_block *emu_shared_owner(emu_warp *warp, const emu_instruction *in, uint64_t *address);

/* The driver's blocks of memory: whether all bytes lie in one of them. driver.c */
bool emu_allocated(uint64_t address, size_t bytes);
/* Whether a kernel, or the caller's upload, has written to the block of memory that the byte lies in; that one does. */
bool emu_kernel_wrote(uint64_t address);
void emu_kernel_writes(uint64_t address);

/* ---- tensor maps: what cuTensorMapEncodeTiled leaves in its 128 bytes (driver.c) for engine.c. */
typedef struct emu_tensor_map {
    uint64_t magic; /* EMU_TENSOR_MAGIC */
    uint64_t address;
    uint64_t strides[4]; /* bytes, from the second dimension on */
    uint32_t sizes[5];   /* elements, innermost first */
    uint16_t box[5];
    uint8_t rank, element_bytes, swizzle, fill; /* swizzle: 0 none, 1 to 3 for 32, 64 and 128 bytes */
} emu_tensor_map;
#define EMU_TENSOR_MAGIC UINT64_C(0x70616d2d75636c)
_Static_assert(sizeof(emu_tensor_map) <= 128, "it is what the driver's map has room for");

/* ---- running (machine.c) */
typedef struct emu_pending emu_pending; /* engine.c's: a copy under way */
typedef struct emu_copies emu_copies;   /* and those of a warp that it waits for itself */

typedef struct emu_group { /* lanes that stand at one instruction */
    uint32_t mask;
    int at;
    bool stalled; /* it came back with EMU_STALL since anybody else did anything */
    bool behind;  /* it stalls by chance */
} emu_group;

typedef struct emu_products emu_products; /* matrix.c's: wgmma under way */

struct emu_warp {
    emu_block *block;
    int index; /* in the block */
    unsigned char *registers;
    unsigned char *local; /* local_bytes of each lane */
    uint32_t alive;       /* lanes that have not returned */
    emu_group group[EMU_LANES];
    int groups;
    emu_products *products; /* NULL: none yet */
    emu_copies *copies;     /* NULL: none yet */
    int barrier_waiting;    /* 1 + number of the barrier that it has arrived at and waits for; 0: none */
    uint32_t barrier_phase;
    int asking;      /* 1 + the lane whose access is looked up; 0: the whole warp's */
    uint32_t fenced; /* block->writes when it last executed fence.proxy.async */
    bool cluster_arrived;
    uint32_t cluster_phase;
    struct emu_past *past[EMU_LANES]; /* what each lane knows to have happened (races.c); NULL: nothing */
    uint32_t tick;                    /* goes on whenever a lane tells others what it has done */
    struct emu_fences *fences;        /* races_flag.c's; NULL: it has executed none */
    struct {
        uint32_t lanes, tick;
    } exchanged[EMU_LANES]; /* with whom each lane has last exchanged registers, and when (races_past.c) */
};

typedef struct emu_write { /* the last ordinary write to 16 bytes of shared memory; number 0: none, or the copy engine's */
    uint32_t number;
    uint16_t warp, rank;
} emu_write;

struct emu_block {
    struct emu_grid *grid;
    struct emu_cluster *cluster;
    uint32_t rank; /* in the cluster */
    uint32_t id[3];
    unsigned char *shared; /* grid->shared_bytes from EMU_SHARED_FIRST on */
    emu_write *write;      /* of each 16 bytes */
    uint32_t writes;       /* so far */
    emu_warp *warp;
    int warps, running; /* of them */
    int held;           /* a warp that goes on only when no other can, or -1 */
    bool begun;         /* a warp has run: only then may others of the cluster touch its shared memory */
    bool waited;        /* a thread has waited for the end of the kernel before (griddepcontrol.wait) */
    struct {
        uint32_t arrived, phase, any, result;
        bool counted;                    /* those who arrived said how many there are to be */
        struct emu_past *coming, *ended; /* what those of this phase, and of the one before, have told (races.c) */
    } barrier[16];
    struct emu_races *races; /* NULL: nobody asks for races */
};

typedef struct emu_cluster {
    struct emu_grid *grid;
    emu_block *block;
    uint32_t blocks;
    uint32_t number;           /* in the grid */
    int running;               /* blocks */
    uint32_t arrived, phase;   /* warps at barrier.cluster */
    uint32_t arrived_and_gone; /* of these: they have ended without waiting */
    struct emu_past *coming, *ended;
    struct emu_pasts *pasts; /* the launch's; NULL: nobody asks for races */
    struct emu_flags *flags; /* in its shared memory (races_flag.c); NULL: none */
    struct emu_cluster *next;
} emu_cluster;

/* How soon copies land and how warps take turns: EMULATOR_ORDER=early (copies land at once, warps in order), late (copies land when nobody
 * can go on without them, in any order; the default) or random (each as chance has it). */
typedef enum emu_order { EMU_EARLY, EMU_LATE, EMU_RANDOM } emu_order;

/* Whether races are looked for: EMULATOR_RACES=1, or strict (races_past.c). */
typedef enum emu_races_kind { EMU_RACES_NONE, EMU_RACES_LAX, EMU_RACES_STRICT } emu_races_kind;

typedef struct emu_counts {
    uint64_t shared_loads, load_turns, load_turns_least, shared_stores, store_turns, store_turns_least;
    uint64_t global_bytes, global_sectors, async_bytes, products;
} emu_counts;

typedef struct emu_grid {
    const emu_function *function;
    unsigned char *params;
    uint32_t grid[3], block[3], cluster;
    uint32_t shared_bytes; /* static and dynamic */
    emu_pending *engine;   /* copies under way, engine.c's */
    int engine_count;
    uint64_t instructions; /* run so far, by warps */
    uint64_t random;       /* state of emu_random */
    emu_order order;
    bool counting;
    emu_counts counts;
    emu_races_kind races;
    struct emu_pasts *pasts;     /* races_past.c's */
    struct emu_globals *globals; /* who accesses global memory (races_global.c); NULL: nobody asks */
    struct emu_flags *flags;     /* in global memory */
    bool early;                  /* it may begin before the kernel before it has ended */
    uint64_t wrote;              /* the 256 bytes that were written to last */
    char why[1024];              /* the first failure */
} emu_grid;

typedef struct emu_launch {
    const emu_function *function;
    uint32_t grid[3], block[3], cluster; /* blocks of a cluster, along x */
    uint32_t dynamic_shared;
    bool together; /* all blocks at once */
    bool early;    /* before the kernel before it has ended */
    void **params; /* of each parameter, its bytes */
} emu_launch;

/* Runs it to its end. False: it failed, and `why` says where and of what. One at a time in a thread; threads may run launches side by side. */
bool emu_run_launch(const emu_launch *launch, char *why, size_t why_size);

/* Ends the launch: the instruction, its line, the block and thread are said besides. lane < 0: the warp's. */
_Noreturn void emu_fail(emu_warp *warp, const emu_instruction *in, int lane, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Registers of a warp: lanes of a slot that emu_slot_of gave. */
static inline void *emu_lanes(const emu_warp *warp, uint32_t slot)
{
    unsigned char *base = slot & EMU_CONSTANT ? warp->block->grid->function->constants : warp->registers;
    return base + (size_t)(slot & ~EMU_CONSTANT) * EMU_SLOT;
}
static inline uint32_t *emu_u32(const emu_warp *warp, uint32_t slot) { return emu_lanes(warp, slot); }
static inline float *emu_f32(const emu_warp *warp, uint32_t slot) { return emu_lanes(warp, slot); }
static inline uint64_t *emu_u64(const emu_warp *warp, uint32_t slot) { return emu_lanes(warp, slot); }

/* What an [address] operand is for a lane. in->slot[s] is its base's slot or EMU_NONE; `wide` whether that is of 64 bits. */
static inline uint64_t emu_address(const emu_warp *warp, const emu_operand *operand, int lane)
{
    uint64_t base = operand->slot == EMU_NONE ? 0
                    : operand->wide           ? emu_u64(warp, operand->slot)[lane]
                                              : emu_u32(warp, operand->slot)[lane];
    return operand->slot != EMU_NONE && !operand->wide ? (uint32_t)(base + (uint64_t)operand->value)
                                                       : base + (uint64_t)operand->value;
}

/* 64 random bits of the launch: fixed by EMULATOR_SEED. */
uint64_t emu_random(emu_grid *grid);

/* ---- what the parts ask of each other */

/* threads.c: barriers wait for one warp fewer. */
void emu_threads_end_warp(emu_warp *warp);
/* engine.c: one copy under way lands (any of those that may). False: there is none. machine.c calls it when all threads wait. */
bool emu_engine_advance(emu_grid *grid);
/* A warp has ended: whatever it started and did not wait for lands. All blocks of a cluster have: so does what was under way to them. */
void emu_engine_end_warp(emu_warp *warp);
void emu_engine_end_cluster(emu_cluster *cluster);
void emu_engine_free_warp(emu_warp *warp);
void emu_engine_free(emu_grid *grid);
/* matrix.c: products of a warp that ended without waiting are an error; and freeing. */
void emu_matrix_end_warp(emu_warp *warp);
void emu_matrix_free(emu_warp *warp);

/* fp16 and bf16 (matrix.c). */
float emu_from_f16(uint16_t bits);
uint16_t emu_to_f16(float value); /* to nearest, ties to even */
static inline float emu_from_bf16(uint16_t bits)
{
    union {
        uint32_t u;
        float f;
    } v = {.u = (uint32_t)bits << 16};
    return v.f;
}
uint16_t emu_to_bf16(float value);

#endif
