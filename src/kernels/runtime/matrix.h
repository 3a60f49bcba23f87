// Matrix cores: which element of a matrix each lane holds, and how tiles lie in local memory.
//
// A wave multiplies MATRIX_ROWS x MATRIX_DEPTH by MATRIX_DEPTH x MATRIX_COLUMNS elements at once.
// The two families by the size of their waves:
//   32  mma.sync.m16n8k16 of NVIDIA (sm_80 on), two side by side, so that they make 16 columns
//   64  MFMA of AMD's CDNA: 16x16x16, or 32x32x8 with MATRIX 32
#ifndef WAVE
#define WAVE 64
#endif
#ifndef MATRIX
#define MATRIX 16
#endif
#define MATRIX_ROWS MATRIX
#define MATRIX_COLUMNS MATRIX

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
#else
#define MATRIX_DEPTH (256 / MATRIX)
#define RESULT_ROW(lane, i) ((i) / 4 * 8 + (lane) / MATRIX * 4 + (i) % 4)
#define RESULT_COLUMN(lane, i) ((lane) % MATRIX)
// Row of A (or column of B) and place in depth of the i-th of a lane's 4 operands.
#define OPERAND_LINE(lane) ((lane) % MATRIX)
#define OPERAND_DEPTH(lane, i) ((lane) / MATRIX * 4 + (i))
#endif
#define RESULTS (MATRIX_ROWS * MATRIX_COLUMNS / WAVE)

// A tile is lines of 8-element chunks. A line's chunks are exchanged by its number, so that the
// same chunk of 8 lines in a row stands in different banks. Gives the chunk's first element.
#define SWIZZLE(line, chunks) \
    ((chunks) >= 8 ? (line) & 7 : ((line) / (8 / (chunks))) & ((chunks) - 1))
#define TILE_PLACE(line, chunk, chunks) \
    (((line) * (chunks) + ((chunk) ^ SWIZZLE(line, chunks))) * 8)
