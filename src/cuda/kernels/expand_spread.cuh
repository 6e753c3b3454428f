/* expand_spread.cuh - an element-wise weight's way from its words in memory to rows of zeros and values, in registers. Used by
 * expand.cu and expand_ring.cu.
 *
 * A piece of W is 64 outputs x 64 inputs. Thread t of 128 has 32 neighbouring inputs of one row: inputs 32 (t / 64) ... of row t % 64. In
 * memory they are LAC_WORDS words of it: the kept values, then a word that tells which are kept. A run of LAC_RUN inputs (8,
 * 16 or 32) has LAC_PER places for values, its own in ascending order from the first on. LAC_BOTH_ENDS: those of its first half from the first place
 * on, those of its second half up to the last place.
 *
 *   bit 8 (2 (p & 1) + e) + 7 - p / 2 of the last word: element e (0, 1) of pair p (0 - 15) of the 32 inputs is kept
 *
 * so that a shift and a byte permutation that copies signs make a pair's mask of 16 bits each. Values wait in a queue of registers; a
 * pair takes the first word of the queue, spread by its mask, and moves the queue on by 0, 16 or 32 bits. To start at inputs 8, 16
 * and 24 the queue is moved on by as many values as bits are set before.
 *
 * With both ends there are two queues. From the front it is as above; from the back, pairs in falling order take the last word and move the
 * queue back. That halves how far a queue has to move: expand_ring.cu takes it. expand.cu was slower with it on an H200 (4:8 by 40%), though it
 * has fewer instructions; why is not known. */
#ifndef LAC_CUDA_KERNELS_EXPAND_SPREAD_CUH
#define LAC_CUDA_KERNELS_EXPAND_SPREAD_CUH

#include "numbers.cuh"
#include "stream_load.cuh"

#define LAC_WORDS ((32 / LAC_RUN * LAC_PER + 1) / 2 + 1)
#define LAC_VALUES (LAC_WORDS - 1) /* words of values */
#define LAC_W_PIECE (LAC_WORDS * 512)

__device__ __forceinline__ u32 lac_permute(u32 low, u32 high, u32 selector)
{
    u32 result;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(low), "r"(high), "r"(selector));
    return result;
}

/* The low word of (high, low) moved on by `bits`, 0 to 32. */
__device__ __forceinline__ u32 lac_move_on(u32 low, u32 high, u32 bits)
{
    u32 result;
    asm("shf.r.clamp.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(low), "r"(high), "r"(bits));
    return result;
}

#if LAC_BOTH_ENDS

#define LAC_HALF_PAIRS (LAC_RUN / 4) /* pairs of half a run ...                */
#define LAC_HALF_MOST (LAC_PER < LAC_RUN / 2 ? LAC_PER : LAC_RUN / 2) /* ... and the values that it may have */
#define LAC_QUEUE ((LAC_HALF_MOST + 1) / 2)                           /* words of a queue       */

/* The high word moved back. */
__device__ __forceinline__ u32 lac_move_back(u32 low, u32 high, u32 bits)
{
    u32 result;
    asm("shf.l.clamp.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(low), "r"(high), "r"(bits));
    return result;
}

/* Two values from place `place` on, of which one may lie outside; then it is of no meaning. */
__device__ __forceinline__ u32 lac_two_values(const u32 (&word)[LAC_WORDS], int place)
{
    if (place < -1) return 0;
    if (place == -1) return word[0] << 16;
    const u32 low = place / 2 < LAC_VALUES ? word[place / 2] : 0, high = place / 2 + 1 < LAC_VALUES ? word[place / 2 + 1] : 0;
    return place & 1 ? lac_permute(low, high, 0x5432) : low;
}

/* Signs of two bytes, each twice: which elements of a pair are kept. */
__device__ __forceinline__ u32 lac_pair_mask(u32 kept, int pair) { return lac_permute(kept << (pair >> 1), 0, pair & 1 ? 0xbbaa : 0x9988); }

/* 16 for each kept element. */
__device__ __forceinline__ u32 lac_pair_bits(u32 mask) { return (u32)__dp4a((int)mask, 0x00f000f0, 0); }

/* Half a run: LAC_HALF_PAIRS pairs from `pair` on, whose values begin at `place`. */
__device__ __forceinline__ void lac_spread_front(u32 (&out)[16], const u32 (&word)[LAC_WORDS], int place, int pair)
{
    u32 queue[LAC_QUEUE];
#pragma unroll
    for (int i = 0; i < LAC_QUEUE; i++) queue[i] = lac_two_values(word, place + 2 * i);
#pragma unroll
    for (int i = 0; i < LAC_HALF_PAIRS; i++) {
        const u32 mask = lac_pair_mask(word[LAC_VALUES], pair + i), bits = lac_pair_bits(mask);
        /* The second element is the second value where the first element is kept, else the first. */
        out[pair + i] = lac_permute(queue[0], 0, (mask & 0x2200) | 0x1010) & mask;
#pragma unroll
        for (int j = 0; j < LAC_QUEUE; j++)
            if (j < LAC_HALF_PAIRS - 1 - i) queue[j] = lac_move_on(queue[j], j + 1 < LAC_QUEUE ? queue[j + 1] : 0, bits);
    }
}

/* Half a run: LAC_HALF_PAIRS pairs down from `pair`, whose last two values stand at `place`. */
__device__ __forceinline__ void lac_spread_back(u32 (&out)[16], const u32 (&word)[LAC_WORDS], int place, int pair)
{
    u32 queue[LAC_QUEUE]; /* the last word first */
#pragma unroll
    for (int i = 0; i < LAC_QUEUE; i++) queue[i] = lac_two_values(word, place - 2 * i);
#pragma unroll
    for (int i = 0; i < LAC_HALF_PAIRS; i++) {
        const u32 mask = lac_pair_mask(word[LAC_VALUES], pair - i), bits = lac_pair_bits(mask);
        /* The first element is the last value but one where the second element is kept (a byte of the mask is -1), else the last. */
        out[pair - i] = lac_permute(queue[0], 0, (u32)__dp4a((int)mask, 0x00220000, 0x3232)) & mask;
#pragma unroll
        for (int j = 0; j < LAC_QUEUE; j++)
            if (j < LAC_HALF_PAIRS - 1 - i) queue[j] = lac_move_back(j + 1 < LAC_QUEUE ? queue[j + 1] : 0, queue[j], bits);
    }
}

/* The 32 inputs that a thread has, as 16 pairs. */
__device__ __forceinline__ void lac_spread_32(u32 (&out)[16], const u32 (&word)[LAC_WORDS])
{
#pragma unroll
    for (int run = 0; run < 32 / LAC_RUN; run++) {
        lac_spread_front(out, word, run * LAC_PER, run * LAC_RUN / 2);
        lac_spread_back(out, word, (run + 1) * LAC_PER - 2, (run + 1) * LAC_RUN / 2 - 1);
    }
}

#else

/* The queue without its first `count` values, 0 to `most`. What lies behind the values that there are is of no meaning. */
template <int most, int words> __device__ __forceinline__ void lac_queue_drop(u32 (&queue)[words], int count)
{
    if (most > 2) {
        enum { STEP = most / 4 * 2 > 0 ? most / 4 * 2 : 2, REST = most - STEP > STEP - 1 ? most - STEP : STEP - 1 };
        const bool far = count >= STEP;
#pragma unroll
        for (int i = 0; i + STEP / 2 < words; i++) queue[i] = far ? queue[i + STEP / 2] : queue[i];
        lac_queue_drop<(most > 2 ? REST : 2), words>(queue, far ? count - STEP : count);
    } else {
#pragma unroll
        for (int i = 0; i < words; i++) queue[i] = lac_move_on(queue[i], i + 1 < words ? queue[i + 1] : 0, 16 * count);
    }
}

/* `words` words of the values from number `first` on. */
template <int first, int words> __device__ __forceinline__ void lac_queue_begin(u32 (&queue)[words], const u32 (&word)[LAC_WORDS])
{
#pragma unroll
    for (int i = 0; i < words; i++) {
        const int at = first / 2 + i;
        const u32 low = at < LAC_VALUES ? word[at < LAC_VALUES ? at : 0] : 0;
        const u32 high = at + 1 < LAC_VALUES ? word[at + 1 < LAC_VALUES ? at + 1 : 0] : 0;
        queue[i] = first & 1 ? lac_permute(low, high, 0x5432) : low;
    }
}

/* Pairs `pair` to `pair` + 3 out of the queue. */
template <int pair, int words> __device__ __forceinline__ void lac_spread_8(u32 (&out)[16], u32 (&queue)[words], u32 kept)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int p = pair + i;
        const u32 mask = lac_permute(kept << (p >> 1), 0, p & 1 ? 0xbbaa : 0x9988); /* signs of two bytes, each twice */
        /* The second element is the second value where the first element is kept, else the first. */
        out[p] = lac_permute(queue[0], 0, (mask & 0x2200) | 0x1010) & mask;
        const int bits = __dp4a((int)mask, 0x00f000f0, 0); /* 16 for each kept one */
#pragma unroll
        for (int j = 0; j < words && j < 3 - i; j++) queue[j] = lac_move_on(queue[j], j + 1 < words ? queue[j + 1] : 0, bits);
    }
}

#define LAC_MOST(inputs) (LAC_PER < (inputs) ? LAC_PER : (inputs)) /* values of so many neighbours of a run */
#define LAC_LEAST(a, b) ((a) < (b) ? (a) : (b))

/* 16 inputs from pair `pair` on. Their values begin the queue of `words` words; runs of 8 begin at places known before. */
template <int pair, int words>
__device__ __forceinline__ void lac_spread_16(u32 (&out)[16], const u32 (&queue)[words], const u32 (&word)[LAC_WORDS])
{
    enum { SHORT = LAC_LEAST(words, (LAC_MOST(8) + 1) / 2) };
    const u32 kept = word[LAC_VALUES];
    u32 low[SHORT];
#pragma unroll
    for (int i = 0; i < SHORT; i++) low[i] = queue[i];
    lac_spread_8<pair>(out, low, kept);
#if LAC_RUN == 8
    u32 second[SHORT];
    lac_queue_begin<(pair / 4 + 1) * LAC_PER>(second, word);
    lac_spread_8<pair + 4>(out, second, kept);
#else
    u32 high[words];
#pragma unroll
    for (int i = 0; i < words; i++) high[i] = queue[i];
    lac_queue_drop<LAC_MOST(8)>(high, __popc(kept & (pair ? 0x0c0c0c0cu : 0xc0c0c0c0u)));
    lac_spread_8<pair + 4>(out, high, kept);
#endif
}

/* The 32 inputs that a thread has, as 16 pairs. */
__device__ __forceinline__ void lac_spread_32(u32 (&out)[16], const u32 (&word)[LAC_WORDS])
{
    enum { LONG = LAC_LEAST(LAC_VALUES, (LAC_MOST(16) + 1) / 2) };
    u32 low[LONG], high[LONG];
    lac_queue_begin<0>(low, word);
    lac_spread_16<0>(out, low, word);
#if LAC_RUN <= 16
    lac_queue_begin<16 / LAC_RUN * LAC_PER>(high, word);
#else
    u32 all[LAC_VALUES];
    lac_queue_begin<0>(all, word);
    lac_queue_drop<LAC_MOST(16)>(all, __popc(word[LAC_VALUES] & 0xf0f0f0f0u));
#pragma unroll
    for (int i = 0; i < LONG; i++) high[i] = all[i];
#endif
    lac_spread_16<8>(out, high, word);
}

#endif

/* What thread `thread` has of a piece: sections of 16, 8 and 4 bytes for each thread. */
__device__ __forceinline__ void lac_words_load(u32 (&word)[LAC_WORDS], const u8 *piece, u32 thread)
{
#pragma unroll
    for (int j = 0; j + 4 <= LAC_WORDS; j += 4) {
        const uint4 v = lac_stream_16(piece + j * 512 + thread * 16);
        word[j] = v.x, word[j + 1] = v.y, word[j + 2] = v.z, word[j + 3] = v.w;
    }
    if (LAC_WORDS & 2) {
        const uint2 v = lac_stream_8(piece + LAC_WORDS / 4 * 2048 + thread * 8);
        word[LAC_WORDS & ~3] = v.x, word[(LAC_WORDS & ~3) + 1] = v.y;
    }
    if (LAC_WORDS & 1) word[LAC_WORDS - 1] = lac_stream_4(piece + LAC_WORDS / 2 * 1024 + thread * 4);
}

#endif
