// NVIDIA's matrix cores by inline PTX: mma.sync, ldmatrix and cp.async. See matrix.h for layouts.
#if BACKEND_CUDA
typedef uint4 chunk;     // 8 elements
typedef uint4 fragment;  // A: 16 rows x 16 deep; B: 16 deep x 16 columns
typedef struct {
    float v[RESULTS];
} accumulator;
typedef uint tile_pointer;  // in shared memory, in bytes
#define TILE_POINTER(array) ((uint)__cvta_generic_to_shared(array))
#define TILE_OFFSET(tile, elements) ((tile) + 2 * (elements))
#define WAVE_BARRIER() __syncwarp()

FUNCTION chunk make_chunk(uint a, uint b, uint c, uint d) {
    chunk made;
    made.x = a, made.y = b, made.z = c, made.w = d;
    return made;
}

FUNCTION void store_chunk(tile_pointer tile, int place, chunk value) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(tile + 2 * place), "r"(value.x),
                 "r"(value.y), "r"(value.z), "r"(value.w)
                 : "memory");
}

#define HAS_ASYNC_COPY 1
// Copies a chunk without passing through registers; zeros if `exists` is 0.
FUNCTION void copy_async(tile_pointer tile, int place, const void* from, int exists) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(tile + 2 * place),
                 "l"(from), "r"(exists ? 16 : 0)
                 : "memory");
}
#define COMMIT_COPIES() asm volatile("cp.async.commit_group;" ::: "memory")
#define WAIT_COPIES(left) asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory")

FUNCTION fragment load_matrices(uint address) {
    fragment f;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(f.x), "=r"(f.y), "=r"(f.z), "=r"(f.w)
                 : "r"(address)
                 : "memory");
    return f;
}

FUNCTION fragment load_transposed(uint address) {
    fragment f;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(f.x), "=r"(f.y), "=r"(f.z), "=r"(f.w)
                 : "r"(address)
                 : "memory");
    return f;
}

// From tiles whose lines are rows of A, columns of B (depth is contiguous) ...
FUNCTION fragment load_a_by_row(tile_pointer tile, int row, int depth, int chunks, int lane) {
    return load_matrices(
        tile + 2 * TILE_PLACE(row + ACROSS_LINE(lane), depth / 8 ^ ACROSS_CHUNK(lane), chunks));
}
FUNCTION fragment load_b_by_column(tile_pointer tile, int column, int depth, int chunks, int lane) {
    return load_matrices(
        tile + 2 * TILE_PLACE(column + ALONG_LINE(lane), depth / 8 ^ ALONG_CHUNK(lane), chunks));
}
// ... and from those whose lines are places in depth.
FUNCTION fragment load_a_by_depth(tile_pointer tile, int row, int depth, int chunks, int lane) {
    return load_transposed(
        tile + 2 * TILE_PLACE(depth + ALONG_LINE(lane), row / 8 ^ ALONG_CHUNK(lane), chunks));
}
FUNCTION fragment load_b_by_depth(tile_pointer tile, int column, int depth, int chunks, int lane) {
    return load_transposed(
        tile + 2 * TILE_PLACE(depth + ACROSS_LINE(lane), column / 8 ^ ACROSS_CHUNK(lane), chunks));
}

#if DTYPE == 2
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
#else
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
#endif
FUNCTION accumulator multiply_matrices(fragment a, fragment b, accumulator c) {
    asm(MMA "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c.v[0]), "+f"(c.v[1]), "+f"(c.v[2]), "+f"(c.v[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y));
    asm(MMA "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c.v[4]), "+f"(c.v[5]), "+f"(c.v[6]), "+f"(c.v[7])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.z), "r"(b.w));
    return c;
}
#endif
