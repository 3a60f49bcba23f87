// AMD's matrix cores by the compiler's MFMA builtins. See matrix.h for layouts.
#if BACKEND_HIP
typedef uint chunk __attribute__((ext_vector_type(4)));     // 8 elements
typedef uint fragment __attribute__((ext_vector_type(2)));  // a lane's 4 operands
typedef _Float16 half_pack __attribute__((ext_vector_type(4)));
typedef short short_pair __attribute__((ext_vector_type(2)));
typedef short short_pack __attribute__((ext_vector_type(4)));
typedef float result_pack __attribute__((ext_vector_type(RESULTS)));
typedef struct {
    result_pack v;
} accumulator;
typedef elem* tile_pointer;
#define TILE_POINTER(array) ((elem*)(array))
#define TILE_OFFSET(tile, elements) ((tile) + (elements))
// A wave runs in lock step; only the compiler has to keep the order.
#define WAVE_BARRIER()                                          \
    do {                                                        \
        __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");  \
        __builtin_amdgcn_wave_barrier();                        \
        __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");  \
    } while (0)

FUNCTION chunk make_chunk(uint a, uint b, uint c, uint d) { return chunk{a, b, c, d}; }

FUNCTION void store_chunk(tile_pointer tile, int place, chunk value) {
    *(chunk*)(tile + place) = value;
}

FUNCTION fragment load_line(tile_pointer tile, int line, int depth, int lines, int chunks) {
    return *(const fragment*)(tile + TILE_PLACE(line, depth / 8, lines, chunks) + depth % 8);
}

FUNCTION fragment load_across(tile_pointer tile, int line, int depth, int lines, int chunks) {
    uint e[4];
    UNROLL
    for (int i = 0; i < 4; ++i)
        e[i] = tile[TILE_PLACE(depth + i, line / 8, lines, chunks) + line % 8];
    return fragment{e[0] | e[1] << 16, e[2] | e[3] << 16};
}

// From tiles whose lines are rows of A, columns of B (depth is contiguous) ...
#define load_a_by_row(tile, row, depth, lines, chunks, lane) \
    load_line(tile, (row) + OPERAND_LINE(lane), (depth) + OPERAND_DEPTH(lane, 0), lines, chunks)
#define load_b_by_column load_a_by_row
// ... and from those whose lines are places in depth.
#define load_a_by_depth(tile, row, depth, lines, chunks, lane) \
    load_across(tile, (row) + OPERAND_LINE(lane), (depth) + OPERAND_DEPTH(lane, 0), lines, chunks)
#define load_b_by_depth load_a_by_depth

FUNCTION accumulator multiply_matrices(fragment a, fragment b, accumulator c) {
#if DTYPE == 2 && defined(__gfx908__)
    // Half as deep: two of them. Operands of A and B are paired alike, and their order in depth
    // doesn't matter to the sum.
#if MATRIX == 16
#define MULTIPLY_PAIRS __builtin_amdgcn_mfma_f32_16x16x8bf16
#else
#define MULTIPLY_PAIRS __builtin_amdgcn_mfma_f32_32x32x4bf16
#endif
#define PAIR(word) __builtin_bit_cast(short_pair, word)
    c.v = MULTIPLY_PAIRS(PAIR(a.x), PAIR(b.x), c.v, 0, 0, 0);
    c.v = MULTIPLY_PAIRS(PAIR(a.y), PAIR(b.y), c.v, 0, 0, 0);
#elif DTYPE == 2
#if MATRIX == 16
#define MULTIPLY_PACKS __builtin_amdgcn_mfma_f32_16x16x16bf16_1k
#else
#define MULTIPLY_PACKS __builtin_amdgcn_mfma_f32_32x32x8bf16_1k
#endif
#define PACK(words) __builtin_bit_cast(short_pack, words)
    c.v = MULTIPLY_PACKS(PACK(a), PACK(b), c.v, 0, 0, 0);
#else
#if MATRIX == 16
#define MULTIPLY_PACKS __builtin_amdgcn_mfma_f32_16x16x16f16
#else
#define MULTIPLY_PACKS __builtin_amdgcn_mfma_f32_32x32x8f16
#endif
#define PACK(words) __builtin_bit_cast(half_pack, words)
    c.v = MULTIPLY_PACKS(PACK(a), PACK(b), c.v, 0, 0, 0);
#endif
    return c;
}
#endif
