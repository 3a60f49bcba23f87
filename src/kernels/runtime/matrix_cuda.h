// NVIDIA's matrix cores by inline PTX: wgmma, or mma.sync and ldmatrix; cp.async. See matrix.h for layouts.
#if BACKEND_CUDA
typedef uint4 chunk;  // 8 elements
typedef struct {
    float v[RESULTS];
} accumulator;
typedef uint tile_pointer;  // in shared memory, in bytes
#define TILE_POINTER(array) ((uint)__cvta_generic_to_shared(array))
#define TILE_ADDRESS(tile) (tile)
#define TILE_OFFSET(tile, elements) ((tile) + 2 * (elements))
#if WAVE == 128
#define WAVE_BARRIER() asm volatile("bar.sync %0, 128;" ::"r"(1 + THREAD / 128) : "memory")
#else
#define WAVE_BARRIER() __syncwarp()
#endif

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

// Keeps the compiler from taking a sum apart.
#define OPAQUE(number) asm("" : "+r"(number))

#define HAS_ASYNC_COPY 1
// Copies a chunk without passing through registers; zeros if `exists` is 0.
FUNCTION void copy_async(tile_pointer tile, int place, const void* from, int exists) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(tile + 2 * place),
                 "l"(from), "r"(exists ? 16 : 0)
                 : "memory");
}
#define COMMIT_COPIES() asm volatile("cp.async.commit_group;" ::: "memory")
#define WAIT_COPIES(left) asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory")

#if WAVE == 128
// The operands of a multiplication: its accumulators and their numbers.
#define SUMS_8(v, i)                                                                             \
    "+f"(v[i]), "+f"(v[(i) + 1]), "+f"(v[(i) + 2]), "+f"(v[(i) + 3]), "+f"(v[(i) + 4]),          \
        "+f"(v[(i) + 5]), "+f"(v[(i) + 6]), "+f"(v[(i) + 7])
#define SUMS_16(v, i) SUMS_8(v, i), SUMS_8(v, (i) + 8)
#define SUMS_32(v, i) SUMS_16(v, i), SUMS_16(v, (i) + 16)
#define SUMS_64(v, i) SUMS_32(v, i), SUMS_32(v, (i) + 32)
#define NUMBERS_16 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define NUMBERS_32 NUMBERS_16 \
    ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NUMBERS_64 NUMBERS_32 \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
    ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NUMBERS_128 NUMBERS_64 \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79" \
    ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95" \
    ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111" \
    ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#if WAVE_N == 32
#define ALL_SUMS(v) SUMS_16(v, 0)
#define OPERANDS "n32k16", "{" NUMBERS_16 "}, %16, %17"
#elif WAVE_N == 64
#define ALL_SUMS(v) SUMS_32(v, 0)
#define OPERANDS "n64k16", "{" NUMBERS_32 "}, %32, %33"
#elif WAVE_N == 128
#define ALL_SUMS(v) SUMS_64(v, 0)
#define OPERANDS "n128k16", "{" NUMBERS_64 "}, %64, %65"
#else
#define ALL_SUMS(v) SUMS_64(v, 0), SUMS_64(v, 64)
#define OPERANDS "n256k16", "{" NUMBERS_128 "}, %128, %129"
#endif
#if DTYPE == 2
#define TYPES ".f32.bf16.bf16 "
#else
#define TYPES ".f32.f16.f16 "
#endif
#define TEXT(number) TEXT_OF(number)
#define WGMMA_(shape, operands) \
    "wgmma.mma_async.sync.aligned.m64" shape TYPES operands ", 1, 1, 1, " TEXT(A_BY_DEPTH) ", " TEXT(B_BY_DEPTH) ";"
#define WGMMA(operands) WGMMA_(operands)

// Starts sums += A * B.
#define MULTIPLY_ASYNC(sums, a, b) asm volatile(WGMMA(OPERANDS) : ALL_SUMS((sums).v) : "l"(a), "l"(b))
#define START_PRODUCTS() asm volatile("wgmma.fence.sync.aligned;" ::: "memory")
#define COMMIT_PRODUCTS() asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory")
#define WAIT_PRODUCTS(left) asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory")
// Nothing reads the sums before this.
#define HOLD_SUMS(sums) asm volatile("" : ALL_SUMS((sums).v)::"memory")
// Makes copied tiles visible to wgmma, which reads past the ordinary path.
#define SHOW_COPIES() asm volatile("fence.proxy.async.shared::cta;" ::: "memory")

#else
typedef uint4 fragment;  // A: 16 rows x 16 deep; B: 16 deep x 16 columns
#define SHOW_COPIES()

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
FUNCTION fragment load_a_by_row(tile_pointer tile, int row, int depth, int lines, int chunks, int lane) {
    return load_matrices(
        tile + 2 * TILE_PLACE(row + ACROSS_LINE(lane), depth / 8 ^ ACROSS_CHUNK(lane), lines, chunks));
}
FUNCTION fragment load_b_by_column(tile_pointer tile, int column, int depth, int lines, int chunks, int lane) {
    return load_matrices(
        tile + 2 * TILE_PLACE(column + ALONG_LINE(lane), depth / 8 ^ ALONG_CHUNK(lane), lines, chunks));
}
// ... and from those whose lines are places in depth.
FUNCTION fragment load_a_by_depth(tile_pointer tile, int row, int depth, int lines, int chunks, int lane) {
    return load_transposed(
        tile + 2 * TILE_PLACE(depth + ALONG_LINE(lane), row / 8 ^ ALONG_CHUNK(lane), lines, chunks));
}
FUNCTION fragment load_b_by_depth(tile_pointer tile, int column, int depth, int lines, int chunks, int lane) {
    return load_transposed(
        tile + 2 * TILE_PLACE(depth + ACROSS_LINE(lane), column / 8 ^ ACROSS_CHUNK(lane), lines, chunks));
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
#endif
