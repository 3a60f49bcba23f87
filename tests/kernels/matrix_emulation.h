// Matrix cores played by work-items of OpenCL, from the vendors' documented layouts and not from
// those that the kernels use. Stands where matrix_cuda.h (WAVE 32) or matrix_hip.h (WAVE 64) do,
// so that whole kernels can be run without such a device.
typedef uint4 chunk;
typedef __local ushort* tile_pointer;
typedef struct {
    float v[RESULTS];
} accumulator;
#define TILE_POINTER(array) ((__local ushort*)(array))
#define TILE_OFFSET(tile, elements) ((tile) + (elements))
#define WAVE_BARRIER() barrier(CLK_LOCAL_MEM_FENCE)
// What the lanes exchange needs room, at kernel scope.
#undef DYNAMIC_LOCAL
#define DYNAMIC_LOCAL(type, name, bytes)          \
    __local type name[(bytes) / sizeof(type)];    \
    __local ushort lanes[THREADS * 16]

static chunk make_chunk(uint a, uint b, uint c, uint d) { return (uint4)(a, b, c, d); }

static void store_chunk(tile_pointer tile, int place, chunk value) {
    *(__local chunk*)(tile + place) = value;
}

#if WAVE < 64 || WAVE == 128
#define HAS_ASYNC_COPY 1
static void copy_async(tile_pointer tile, int place, __global const ushort* from, int exists) {
    store_chunk(tile, place, exists ? *(__global const chunk*)from : (uint4)(0));
}
#define COMMIT_COPIES()
#define WAIT_COPIES(left)
#define SHOW_COPIES()
#endif

#if WAVE == 32
typedef uint4 fragment;
// ldmatrix: matrix i comes from the addresses of lanes 8i to 8i + 7. A lane gets elements 2(l % 4)
// and the next of its row l / 4; transposed, of its column.
#define LDMATRIX(ADDRESS)                                            \
    uint r[4];                                                       \
    for (int i = 0; i < 4; ++i) {                                    \
        int from = i * 8 + lane / 4;                                 \
        r[i] = tile[ADDRESS(from) + lane % 4 * 2] |                  \
               (uint)tile[ADDRESS(from) + lane % 4 * 2 + 1] << 16;   \
    }                                                                \
    return (uint4)(r[0], r[1], r[2], r[3])
#define LDMATRIX_TRANS(ADDRESS)                                      \
    uint r[4];                                                       \
    for (int i = 0; i < 4; ++i) {                                    \
        int from = i * 8 + lane % 4 * 2;                             \
        r[i] = tile[ADDRESS(from) + lane / 4] |                      \
               (uint)tile[ADDRESS(from + 1) + lane / 4] << 16;       \
    }                                                                \
    return (uint4)(r[0], r[1], r[2], r[3])

static fragment load_a_by_row(tile_pointer tile, int row, int depth, int lines, int chunks, int lane) {
#define AT(l) TILE_PLACE(row + ACROSS_LINE(l), depth / 8 ^ ACROSS_CHUNK(l), lines, chunks)
    LDMATRIX(AT);
#undef AT
}
static fragment load_b_by_column(tile_pointer tile, int column, int depth, int lines, int chunks, int lane) {
#define AT(l) TILE_PLACE(column + ALONG_LINE(l), depth / 8 ^ ALONG_CHUNK(l), lines, chunks)
    LDMATRIX(AT);
#undef AT
}
static fragment load_a_by_depth(tile_pointer tile, int row, int depth, int lines, int chunks, int lane) {
#define AT(l) TILE_PLACE(depth + ALONG_LINE(l), row / 8 ^ ALONG_CHUNK(l), lines, chunks)
    LDMATRIX_TRANS(AT);
#undef AT
}
static fragment load_b_by_depth(tile_pointer tile, int column, int depth, int lines, int chunks, int lane) {
#define AT(l) TILE_PLACE(depth + ACROSS_LINE(l), column / 8 ^ ACROSS_CHUNK(l), lines, chunks)
    LDMATRIX_TRANS(AT);
#undef AT
}

// PTX's fragments of m16n8k16, b0 to b3 twice for 16 columns.
#define A_AT(row, k) ((row) % 8 * 4 + (k) % 8 / 2) * 16 + (k) % 2 + (row) / 8 * 2 + (k) / 8 * 4
#define B_AT(k, n) ((n) % 8 * 4 + (k) % 8 / 2) * 16 + 8 + (k) % 2 + (k) / 8 * 2 + (n) / 8 * 4
#define D_ROW(lane, i) ((lane) / 4 + ((i) % 4 < 2 ? 0 : 8))
#define D_COLUMN(lane, i) ((lane) % 4 * 2 + ((i) & 1) + ((i) < 4 ? 0 : 8))
#define K_DEPTH 16
static void share(__local ushort* mine, fragment a, fragment b) {
    *(__local uint4*)mine = a;
    *(__local uint4*)(mine + 8) = b;
}
#elif WAVE == 64
typedef uint2 fragment;
static fragment load_line(tile_pointer tile, int line, int depth, int lines, int chunks) {
    return *(__local const fragment*)(tile + TILE_PLACE(line, depth / 8, lines, chunks) + depth % 8);
}
static fragment load_across(tile_pointer tile, int line, int depth, int lines, int chunks) {
    uint e[4];
    for (int i = 0; i < 4; ++i) e[i] = tile[TILE_PLACE(depth + i, line / 8, lines, chunks) + line % 8];
    return (uint2)(e[0] | e[1] << 16, e[2] | e[3] << 16);
}
#define load_a_by_row(tile, row, depth, lines, chunks, lane) \
    load_line(tile, (row) + OPERAND_LINE(lane), (depth) + OPERAND_DEPTH(lane, 0), lines, chunks)
#define load_b_by_column load_a_by_row
#define load_a_by_depth(tile, row, depth, lines, chunks, lane) \
    load_across(tile, (row) + OPERAND_LINE(lane), (depth) + OPERAND_DEPTH(lane, 0), lines, chunks)
#define load_b_by_depth load_a_by_depth

// AMD's instruction manuals: v_mfma_f32_16x16x16f16 and v_mfma_f32_32x32x8f16.
#define K_DEPTH (MATRIX == 16 ? 16 : 8)
#define A_AT(row, k) ((row) + MATRIX * ((k) / 4)) * 16 + (k) % 4
#define B_AT(k, n) ((n) + MATRIX * ((k) / 4)) * 16 + 8 + (k) % 4
#define D_ROW(lane, i) \
    (MATRIX == 16 ? 4 * ((lane) / 16) + (i) : 8 * ((i) / 4) + 4 * ((lane) / 32) + (i) % 4)
#define D_COLUMN(lane, i) ((lane) % MATRIX)
static void share(__local ushort* mine, fragment a, fragment b) {
    *(__local uint2*)mine = a;
    *(__local uint2*)(mine + 8) = b;
}
#endif

#if WAVE == 128
// wgmma reads tiles in one of PTX's canonical layouts, that of the description. Of an element at
// `line` (row of A, column of B) and place k in depth, gives where it stands.
static int described_place(ulong description, int line, int k, int by_depth) {
    int start = (int)(description & 0x3fff) << 4, leading = (int)(description >> 16 & 0x3fff) << 4;
    int stride = (int)(description >> 32 & 0x3fff) << 4, order = (int)(description >> 62);
    int width = order == 1 ? 128 : order == 2 ? 64 : 32;
    int place = by_depth ? start + line / (width / 2) * leading + k / 8 * stride + k % 8 * width +
                               line % (width / 2) * 2
                         : start + line / 8 * stride + line % 8 * width + k * 2;
    return (place ^ (place >> 3 & (width - 16))) / 2;
}
static accumulator multiply_described(accumulator c, ulong a, ulong b, __local const ushort* tiles) {
    int lane = THREAD % 128;
    for (int i = 0; i < RESULTS; ++i) {
        int row = lane / 32 * 16 + lane % 32 / 4 + (i & 2) * 4;
        int column = i / 4 * 8 + lane % 4 * 2 + (i & 1);
        for (int k = 0; k < 16; ++k)
            c.v[i] += WIDEN(tiles[described_place(a, row, k, A_BY_DEPTH)]) *
                      WIDEN(tiles[described_place(b, column, k, B_BY_DEPTH)]);
    }
    return c;
}
#define TILE_ADDRESS(tile) ((uint)((tile) - tiles) * 2)
#define MULTIPLY_ASYNC(sums, a, b) sums = multiply_described(sums, a, b, tiles)
#define START_PRODUCTS()
#define COMMIT_PRODUCTS()
#define WAIT_PRODUCTS(left)
#define HOLD_SUMS(sums)
#else
static accumulator multiply_shared(fragment a, fragment b, accumulator c, __local ushort* lanes) {
    share(lanes + THREAD * 16, a, b);
    barrier(CLK_LOCAL_MEM_FENCE);
    int lane = THREAD % WAVE;
    __local const ushort* wave = lanes + (THREAD - lane) * 16;
    for (int i = 0; i < RESULTS; ++i)
        for (int k = 0; k < K_DEPTH; ++k)
            c.v[i] += WIDEN(wave[A_AT(D_ROW(lane, i), k)]) * WIDEN(wave[B_AT(k, D_COLUMN(lane, i))]);
    barrier(CLK_LOCAL_MEM_FENCE);
    return c;
}
#define multiply_matrices(a, b, c) multiply_shared(a, b, c, lanes)
#endif
