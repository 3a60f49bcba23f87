// Matrix cores: which element of a matrix each lane holds, and how tiles lie in local memory.
//
// A wave multiplies MATRIX_ROWS x MATRIX_DEPTH by MATRIX_DEPTH x MATRIX_COLUMNS elements at once.
// The families by the size of their waves:
//    32  mma.sync.m16n8k16 of NVIDIA (sm_80 on), two side by side, so that they make 16 columns
//   128  wgmma.m64nNk16 of NVIDIA's sm_90, on all N = WAVE_N columns that the four warps have
//    64  MFMA of AMD's CDNA: 16x16x16, or 32x32x8 with MATRIX 32
#ifndef WAVE
#define WAVE 64
#endif
#ifndef MATRIX
#define MATRIX 16
#endif
#define MATRIX_ROWS MATRIX
#if WAVE == 128
#define MATRIX_COLUMNS WAVE_N
#else
#define MATRIX_COLUMNS MATRIX
#endif

// RESULT_ROW, RESULT_COLUMN: where the i-th accumulator of a lane stands.
#if WAVE == 32
#define MATRIX_DEPTH 16
#define RESULT_ROW(lane, i) ((lane) / 4 + (i) % 4 / 2 * 8)
#define RESULT_COLUMN(lane, i) ((lane) % 4 * 2 + (i) % 2 + (i) / 4 * 8)
// Of four 8x8 matrices, ldmatrix takes the address of one 8-element line from each lane. ACROSS
// walks 16 lines of one chunk, then the next chunk; ALONG 8 lines of two chunks, then 8 more lines.
#define ACROSS_LINE(lane) ((lane) % 16)
#define ACROSS_CHUNK(lane) ((lane) / 16)
#define ALONG_LINE(lane) ((lane) % 8 + (lane) / 16 * 8)
#define ALONG_CHUNK(lane) ((lane) / 8 % 2)
#elif WAVE == 128
#define MATRIX_DEPTH 16
#define RESULT_ROW(lane, i) ((lane) / 32 * 16 + (lane) % 32 / 4 + (i) % 4 / 2 * 8)
#define RESULT_COLUMN(lane, i) ((lane) % 4 * 2 + (i) % 2 + (i) / 4 * 8)
#else
#define MATRIX_DEPTH (256 / MATRIX)
#define RESULT_ROW(lane, i) ((i) / 4 * 8 + (lane) / MATRIX * 4 + (i) % 4)
#define RESULT_COLUMN(lane, i) ((lane) % MATRIX)
// Row of A (or column of B) and place in depth of the i-th of a lane's 4 operands.
#define OPERAND_LINE(lane) ((lane) % MATRIX)
#define OPERAND_DEPTH(lane, i) ((lane) / MATRIX * 4 + (i))
#endif
#define RESULTS (MATRIX_ROWS * MATRIX_COLUMNS / WAVE)

// A tile is lines of 8-element chunks, in blocks that are 8 chunks wide (or as wide as a line, if
// that is less) and as high as the tile. In a block a line's chunks are exchanged by its number, so
// that the same chunk of 8 lines in a row stands in different banks; wgmma knows these orders as
// its swizzles of 128, 64 and 32 bytes. TILE_PLACE gives a chunk's first element.
#define BLOCK_CHUNKS(chunks) MIN(8, chunks)
#define SWIZZLE(line, width) ((line) / (8 / (width)) % (width))
#define TILE_PLACE(line, chunk, lines, chunks)                                            \
    ((((chunk) / BLOCK_CHUNKS(chunks) * (lines) + (line)) * BLOCK_CHUNKS(chunks) +        \
      ((chunk) % BLOCK_CHUNKS(chunks) ^ SWIZZLE(line, BLOCK_CHUNKS(chunks)))) *           \
     8)

#if WAVE == 128
// wgmma's description of a tile in shared memory, and the bytes from its start to another line or
// place in depth. By line: lines are rows of A, columns of B, and contiguous in depth.
typedef unsigned long description;
FUNCTION description describe(uint address, uint leading, uint stride, int width) {
    description order = width == 8 ? 1 : width == 4 ? 2 : 3;
    return (description)((address & 0x3ffffu) >> 4) | (description)(leading >> 4) << 16 |
           (description)(stride >> 4) << 32 | order << 62;
}
#define STEP_BY_LINE(line, depth, lines, chunks)                                                \
    (((depth) / 8 / BLOCK_CHUNKS(chunks) * (lines) + (line)) * BLOCK_CHUNKS(chunks) * 16 +      \
     (depth) / 8 % BLOCK_CHUNKS(chunks) * 16)
#define DESCRIBE_BY_LINE(tile, line, lines, chunks)                                             \
    describe(TILE_ADDRESS(tile) + STEP_BY_LINE(line, 0, lines, chunks), 16,                     \
             BLOCK_CHUNKS(chunks) * 128, BLOCK_CHUNKS(chunks))
// By depth: lines are places in depth, and contiguous in rows of A, columns of B.
#define STEP_BY_DEPTH(line, depth, lines, chunks) \
    (((line) / 8 / BLOCK_CHUNKS(chunks) * (lines) + (depth)) * BLOCK_CHUNKS(chunks) * 16)
#define DESCRIBE_BY_DEPTH(tile, line, lines, chunks)                                            \
    describe(TILE_ADDRESS(tile) + STEP_BY_DEPTH(line, 0, lines, chunks),                        \
             (lines) * BLOCK_CHUNKS(chunks) * 16, BLOCK_CHUNKS(chunks) * 128,                   \
             BLOCK_CHUNKS(chunks))
// What to add to a description for bytes.
#define DESCRIBED(bytes) ((description)((bytes) / 16))
#if A_BY_DEPTH
#define DESCRIBE_A DESCRIBE_BY_DEPTH
#define STEP_OF_A STEP_BY_DEPTH
#else
#define DESCRIBE_A DESCRIBE_BY_LINE
#define STEP_OF_A STEP_BY_LINE
#endif
#if B_BY_DEPTH
#define DESCRIBE_B DESCRIBE_BY_DEPTH
#define STEP_OF_B STEP_BY_DEPTH
#else
#define DESCRIBE_B DESCRIBE_BY_LINE
#define STEP_OF_B STEP_BY_LINE
#endif
#endif
