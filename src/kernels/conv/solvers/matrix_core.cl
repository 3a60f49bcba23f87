// Implicit GEMM on matrix cores for fp16 and bf16, with fp32 accumulation.
//
//   rows x columns = rows x depth * depth x columns, one such product for each group
//   F  rows: places of y (batch and space)   columns: K/groups    depth: taps x C/groups
//   B  rows: places of x of one class        columns: C/groups    depth: taps of the class x K/groups
//   W  rows: K/groups    columns: taps x C/groups    depth: places of y, split over blocks
//
//   B visits the stride_d x stride_h x stride_w classes of places of x one by one, since each is
//   reached by some taps (places of the filter) only. Of each tap the channels are rounded up to
//   chunks of 8, so that no chunk has two taps.
//
//                TILE_N               A block computes TILE_M x TILE_N in steps of TILE_K.
//             +--------------+        WAVES_M x WAVES_N waves each compute a part of it, as
//      TILE_K |      B       |        WAVE_M / MATRIX x WAVE_N / MATRIX products of matrix cores.
//             +--------------+
//    TILE_K                           Both tiles lie in local memory, STAGES of them: while one
//   +-----+   +------+-------+        is multiplied, the others are on their way. In a tile that
//   |     |   | wave | wave  |        is contiguous in channels a line is a row of A (column of B)
//   |  A  |   +------+-------+ TILE_M if channels are depth, and a place in depth if they are
//   |     |   | wave | wave  |        not; matrix.h has the order of chunks in it.
//   +-----+   +------+-------+
#include "../conv.h"
#ifndef NDIM
#define NDIM 2
#endif
#ifndef CHANNELS_LAST
#define CHANNELS_LAST 1
#endif
// Whether the chunks of A, B and the output are whole, contiguous and aligned.
#ifndef VECTOR_A
#define VECTOR_A 1
#endif
#ifndef VECTOR_B
#define VECTOR_B 1
#endif
#ifndef VECTOR_C
#define VECTOR_C 1
#endif
// Whether blocks leave sums of their share of depth, to be added up by a second kernel.
#ifndef PARTIAL
#define PARTIAL 0
#endif
// Whether all chunks of a step in depth are of one tap.
#ifndef ONE_TAP
#define ONE_TAP 0
#endif
// Whether places of x and y are the same: a filter of one place without stride or padding.
#ifndef POINTWISE
#define POINTWISE 0
#endif
#ifndef WAVE
#define WAVE 64
#endif
#ifndef TILE_M
#define TILE_M 64
#endif
#ifndef TILE_N
#define TILE_N 64
#endif
#ifndef TILE_K
#define TILE_K 32
#endif
#ifndef WAVES_M
#define WAVES_M 1
#endif
#ifndef WAVES_N
#define WAVES_N (THREADS / WAVE / WAVES_M)
#endif
#ifndef STAGES
#define STAGES 2
#endif
// Rows of tiles that blocks in a row share, so that they find the same B in the cache.
#ifndef BAND
#define BAND 4
#endif
#define WAVE_M (TILE_M / WAVES_M)
#define WAVE_N (TILE_N / WAVES_N)
// Whether the lines of a tile are places in depth, since rows (columns) are contiguous in memory.
#if WRW
#define A_BY_DEPTH 1
#else
#define A_BY_DEPTH 0
#endif
#if FORWARD
#define B_BY_DEPTH 0
#else
#define B_BY_DEPTH 1
#endif
#include "../../runtime/matrix.h"
#include "../../runtime/matrix_cuda.h"
#include "../../runtime/matrix_hip.h"

// A dimension of space. `source` is the size of the tensor that is gathered from (x, or y in B),
// `target` that of x. Row `r` reads `source` at r * step + start + tap * move.
typedef struct {
    int source, target, step, move, pad, dilation, stride, filter;
    // Every hop-th tap hits a class; `taps` of them, or one fewer.
    int hop, taps, rows;
    FastDivisor by_rows, by_taps, by_fewer_taps;
} Axis;

typedef struct {
    Axis d, h, w;
    int places;               // on the grid of rows, of all images
    int in_group, out_group;  // channels of a group, of x and of y
    int groups, classes, classes_h, classes_w;
    int chunks, steps_of_split;
    FastDivisor by_chunks;  // chunks of a tap
    int x_n, x_d, x_h, x_w, x_c, y_n, y_d, y_h, y_w, y_c, w_k, w_c, w_tap;
    float alpha, beta;
} Sizes;

// An axis for one class of places.
typedef struct {
    int start, first, taps;
    FastDivisor by_taps;
} View;

typedef struct {
    View d, h, w;
    int class_d, class_h, class_w, group;
    int rows, columns, depth;
} Block;

typedef struct {
    int n, d, h, w;
} Place;

typedef struct {
    int filter;      // place in the filter
    int channel;     // first of the chunk
    int d, h, w;     // what is added to a row's place
    int exists;
    int source, weights;  // what is added to offsets
} Tap;

// A chunk in memory: the offset of its first channel, and how many there are from there on.
typedef struct {
    int offset, count;
} Chunk;

// Where a row's taps start in the source.
typedef struct {
    int offset, d, h, w;
} Start;

#if BACKWARD
#define SOURCE(axis) s.y_##axis
#define SOURCE_CHANNELS s.out_group
#define WEIGHTS_STEP s.w_k
#else
#define SOURCE(axis) s.x_##axis
#define SOURCE_CHANNELS s.in_group
#define WEIGHTS_STEP s.w_c
#endif
#ifndef OPAQUE
#define OPAQUE(number)
#endif

FUNCTION View view_of(Axis a, int class_) {
    View v;
#if BACKWARD
    int shifted = class_ + a.pad, first = 0;
    while (first < a.hop && (shifted - first * a.dilation) % a.stride != 0) ++first;
    v.first = first;
    v.taps = first < MIN(a.hop, a.filter) ? CEIL_DIV(a.filter - first, a.hop) : 0;
    v.start = (shifted - first * a.dilation) / a.stride;
    v.by_taps = a.by_taps;
    if (v.taps != a.taps) v.by_taps = a.by_fewer_taps;
#else
    v.start = -a.pad;
    v.first = 0;
    v.taps = a.filter;
    v.by_taps = a.by_taps;
#endif
    return v;
}

FUNCTION Block block_of(Sizes s, int group, int class_) {
    Block b;
    b.group = group;
    b.class_w = class_ % s.classes_w;
    b.class_h = class_ / s.classes_w % s.classes_h;
    b.class_d = class_ / s.classes_w / s.classes_h;
    b.h = view_of(s.h, b.class_h);
    b.w = view_of(s.w, b.class_w);
    int taps = b.h.taps * b.w.taps;
#if NDIM == 3
    b.d = view_of(s.d, b.class_d);
    taps *= b.d.taps;
#endif
    int depth = taps * s.chunks * 8;
#if FORWARD
    b.rows = s.places, b.columns = s.out_group, b.depth = depth;
#elif BACKWARD
    b.rows = s.places, b.columns = s.in_group, b.depth = depth;
#else
    b.rows = s.out_group, b.columns = depth, b.depth = s.places;
#endif
    return b;
}

FUNCTION Place place_of(int index, Sizes s) {
    Place p;
    int rest = divide(index, s.w.by_rows);
    p.w = index - rest * s.w.rows;
    p.n = divide(rest, s.h.by_rows);
    p.h = rest - p.n * s.h.rows;
    p.d = 0;
#if NDIM == 3
    rest = p.n;
    p.n = divide(rest, s.d.by_rows);
    p.d = rest - p.n * s.d.rows;
#endif
    return p;
}

// Of the index-th chunk over taps and channels.
FUNCTION Tap tap_of(int index, Sizes s, Block b) {
    Tap t;
    int tap = divide(index, s.by_chunks);
    t.channel = (index - tap * s.chunks) * 8;
    int upper = divide(tap, b.w.by_taps);
    int w = tap - upper * b.w.taps, h = upper;
    t.filter = b.w.first + w * s.w.hop;
    t.w = w * s.w.move;
    t.d = 0;
#if NDIM == 3
    int d = divide(upper, b.h.by_taps);
    h = upper - d * b.h.taps;
    t.d = d * s.d.move;
    t.filter += (b.d.first + d * s.d.hop) * s.h.filter * s.w.filter;
    t.exists = d < b.d.taps;
#else
    t.exists = h < b.h.taps;
#endif
    t.filter += (b.h.first + h * s.h.hop) * s.w.filter;
    t.h = h * s.h.move;
    t.source = t.d * SOURCE(d) + t.h * SOURCE(h) + t.w * SOURCE(w) + t.channel * SOURCE(c);
    t.weights = t.filter * s.w_tap + t.channel * WEIGHTS_STEP;
    // Else both are spread over all that is added to them.
    OPAQUE(t.source);
    OPAQUE(t.weights);
    // Far enough outside that no row leads back.
    if (!t.exists) t.h = -0x20000000;
    return t;
}

FUNCTION Start start_of(int index, Sizes s, Block b) {
    Place p = place_of(index, s);
    Start at;
    at.d = 0;
#if NDIM == 3
    at.d = p.d * s.d.step + b.d.start;
#endif
    at.h = p.h * s.h.step + b.h.start;
    at.w = p.w * s.w.step + b.w.start;
    at.offset = p.n * SOURCE(n) + at.d * SOURCE(d) + at.h * SOURCE(h) + at.w * SOURCE(w) +
                b.group * SOURCE_CHANNELS * SOURCE(c);
    if (index >= s.places) at.h = -0x40000000;
    return at;
}

FUNCTION Chunk source_chunk(Start at, Tap t, int vector, Sizes s) {
    Chunk c;
    int inside = (uint)(at.h + t.h) < (uint)s.h.source && (uint)(at.w + t.w) < (uint)s.w.source;
#if NDIM == 3
    inside = inside && (uint)(at.d + t.d) < (uint)s.d.source;
#endif
    c.offset = at.offset + t.source;
    c.count = inside ? (vector ? 8 : SOURCE_CHANNELS - t.channel) : 0;
    return c;
}

// Where the output has a row; negative if it hasn't.
FUNCTION wide output_row(int row, Sizes s, Block b) {
#if WRW
    return row < b.rows ? (wide)(b.group * s.out_group + row) * s.w_k : -1;
#else
    if (row >= b.rows) return -1;
#if FORWARD && VECTOR_C
    return (wide)row * s.y_w + b.group * s.out_group;
#else
    Place p = place_of(row, s);
#if FORWARD
    return (wide)p.n * s.y_n + p.d * s.y_d + p.h * s.y_h + p.w * s.y_w + b.group * s.out_group * s.y_c;
#else
    int d = p.d * s.d.stride + b.class_d, h = p.h * s.h.stride + b.class_h;
    int w = p.w * s.w.stride + b.class_w;
    if (d >= s.d.target || h >= s.h.target || w >= s.w.target) return -1;
    return (wide)p.n * s.x_n + d * s.x_d + h * s.x_h + w * s.x_w + b.group * s.in_group * s.x_c;
#endif
#endif
#endif
}

// Where, from the start of its row, the output has a chunk of columns.
FUNCTION Chunk output_chunk(int column, Sizes s, Block b) {
    Chunk c;
#if FORWARD
    c.offset = column * s.y_c;
    c.count = s.out_group - column;
#elif BACKWARD
    c.offset = column * s.x_c;
    c.count = s.in_group - column;
#else
    Tap t = tap_of(column / 8, s, b);
    c.offset = t.filter * s.w_tap + t.channel * s.w_c;
    c.count = t.exists ? s.in_group - t.channel : 0;
#endif
    return c;
}

#if FORWARD
#define OUTPUT_STEP s.y_c
#elif BACKWARD
#define OUTPUT_STEP s.x_c
#else
#define OUTPUT_STEP s.w_c
#endif

FUNCTION uint narrow_pair(float low, float high) { return NARROW(low) | (uint)NARROW(high) << 16; }
FUNCTION float scaled_low(uint old, float beta, float value) {
    return FMA(beta, WIDEN((ushort)(old & 0xffffu)), value);
}
FUNCTION float scaled_high(uint old, float beta, float value) {
    return FMA(beta, WIDEN((ushort)(old >> 16)), value);
}

// alpha * sums + bias + beta * old, for a chunk of columns of a row.
FUNCTION void store_sums(GLOBAL elem* output, GLOBAL const elem* bias, int row, int column, Chunk c,
                         vec4 low, vec4 high, Sizes s, Block b) {
    wide start = output_row(row, s, b);
    if (start < 0 || c.count <= 0) return;
    start += c.offset;
    float v[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    UNROLL
    for (int i = 0; i < 8; ++i) v[i] *= s.alpha;
#if FORWARD
    if (bias) {
        UNROLL
        for (int i = 0; i < 8; ++i)
            if (VECTOR_C || i < c.count)
                v[i] += WIDEN(bias[b.group * s.out_group + column + i]);
    }
#endif
#if VECTOR_C
    GLOBAL chunk* place = (GLOBAL chunk*)(output + start);
    if (s.beta != 0.0f) {
        chunk old = *place;
        v[0] = scaled_low(old.x, s.beta, v[0]), v[1] = scaled_high(old.x, s.beta, v[1]);
        v[2] = scaled_low(old.y, s.beta, v[2]), v[3] = scaled_high(old.y, s.beta, v[3]);
        v[4] = scaled_low(old.z, s.beta, v[4]), v[5] = scaled_high(old.z, s.beta, v[5]);
        v[6] = scaled_low(old.w, s.beta, v[6]), v[7] = scaled_high(old.w, s.beta, v[7]);
    }
    *place = make_chunk(narrow_pair(v[0], v[1]), narrow_pair(v[2], v[3]), narrow_pair(v[4], v[5]),
                        narrow_pair(v[6], v[7]));
#else
    UNROLL
    for (int i = 0; i < 8; ++i)
        if (i < c.count)
            store_scaled(output, start + (wide)i * OUTPUT_STEP, v[i], 1.0f, s.beta, 0.0f);
#endif
}

#if PARTIAL != 2

#define PRODUCTS_M (WAVE_M / MATRIX_ROWS)
#define PRODUCTS_N (WAVE_N / MATRIX_COLUMNS)
// Lines of tiles, and chunks of a line.
#if A_BY_DEPTH
#define A_LINES TILE_K
#define A_CHUNKS (TILE_M / 8)
#else
#define A_LINES TILE_M
#define A_CHUNKS (TILE_K / 8)
#endif
#if B_BY_DEPTH
#define B_LINES TILE_K
#define B_CHUNKS (TILE_N / 8)
#else
#define B_LINES TILE_N
#define B_CHUNKS (TILE_K / 8)
#endif
#define A_SIZE (TILE_M * TILE_K)
#define B_SIZE (TILE_N * TILE_K)
#define A_LOADS CEIL_DIV(A_SIZE / 8, THREADS)
#define B_LOADS CEIL_DIV(B_SIZE / 8, THREADS)
// Neighbouring threads load what lies side by side: chunks of a line if channels are contiguous,
// else one chunk of neighbouring lines.
#if CHANNELS_LAST
#define LINE_OF(index, lines, chunks) ((index) / (chunks))
#define CHUNK_OF(index, lines, chunks) (THREAD % (chunks))
#else
#define LINE_OF(index, lines, chunks) ((index) % (lines))
#define CHUNK_OF(index, lines, chunks) ((index) / (lines))
#endif
#define A_LINE(i) LINE_OF(THREAD + (i) * THREADS, A_LINES, A_CHUNKS)
#define A_CHUNK(i) CHUNK_OF(THREAD + (i) * THREADS, A_LINES, A_CHUNKS)
#define B_LINE(i) LINE_OF(THREAD + (i) * THREADS, B_LINES, B_CHUNKS)
#define B_CHUNK(i) CHUNK_OF(THREAD + (i) * THREADS, B_LINES, B_CHUNKS)
#define A_HAS(i) ((A_SIZE / 8) % THREADS == 0 || THREAD + (i) * THREADS < A_SIZE / 8)
#define B_HAS(i) ((B_SIZE / 8) % THREADS == 0 || THREAD + (i) * THREADS < B_SIZE / 8)

#if HAS_ASYNC_COPY && VECTOR_A && VECTOR_B
#define ASYNC 1
#else
#define ASYNC 0
#endif
// Sums pass through local memory on their way out, a row of products of each wave at a time. Rows
// are padded, so that they start in different banks.
#define SUMS_STRIDE (WAVE_N + 4)
#define SUMS_BYTES (WAVES_M * WAVES_N * MATRIX_ROWS * SUMS_STRIDE * 4)
#define LOCAL_BYTES MAX(STAGES * (A_SIZE + B_SIZE) * 2, SUMS_BYTES)
DYNAMIC_LOCAL_SIZE(LOCAL_BYTES)

#if BACKWARD
#define A_STEP s.y_c
#define B_STEP s.w_c
#elif FORWARD
#define A_STEP s.x_c
#define B_STEP s.w_c
#else
#define A_STEP s.y_c
#define B_STEP s.x_c
#endif

// What stays the same in all steps, of each chunk that a thread loads.
typedef struct {
    Start a[A_LOADS], b[B_LOADS];
    Tap tap[B_LOADS];
} Starts;
typedef struct {
    chunk a[A_LOADS], b[B_LOADS];
} Fetched;

// Rows and columns behind the last may hold anything, since they are never stored: there the last
// chunk is loaded again.
#define CLAMP(channel, channels, vector) ((vector) ? MIN(channel, (channels) - 8) : (channel))

FUNCTION Starts all_starts(int row, int column, Sizes s, Block b) {
    Starts all;
    UNROLL
    for (int i = 0; i < A_LOADS; ++i) {
#if WRW
        int filter = CLAMP(row + A_CHUNK(i) * 8, s.out_group, VECTOR_A);
        all.a[i].offset = (b.group * s.out_group + filter) * s.y_c + VECTOR_A * A_LINE(i) * s.y_w;
        all.a[i].w = s.out_group - filter;
#else
        all.a[i] = start_of(row + A_LINE(i), s, b);
        all.a[i].offset += ONE_TAP * A_CHUNK(i) * 8 * SOURCE(c);
#endif
    }
    UNROLL
    for (int i = 0; i < B_LOADS; ++i) {
#if FORWARD
        int filter = b.group * s.out_group + MIN(column + B_LINE(i), s.out_group - 1);
        all.b[i].offset = filter * s.w_k + ONE_TAP * B_CHUNK(i) * 8 * s.w_c;
#elif BACKWARD
        int filter = b.group * s.out_group + (ONE_TAP ? B_LINE(i) : B_LINE(i) % 8);
        int channel = CLAMP(column + B_CHUNK(i) * 8, s.in_group, VECTOR_B);
        all.b[i].offset = filter * s.w_k + channel * s.w_c;
        all.b[i].w = s.in_group - channel;
#elif POINTWISE && VECTOR_B
        all.b[i].offset = b.group * s.in_group + CLAMP(column + B_CHUNK(i) * 8, s.in_group, 1) +
                          B_LINE(i) * s.x_w;
#else
        all.tap[i] = tap_of(column / 8 + B_CHUNK(i), s, b);
#endif
    }
    return all;
}

// The tap of the chunk that stands `ahead` chunks behind the first of a step.
FUNCTION Tap tap_in_step(int depth, int ahead, Sizes s, Block b) {
    return tap_of(depth / 8 + (ONE_TAP ? 0 : ahead), s, b);
}

// `tap` is that of the thread's first chunk of A, often that of all.
FUNCTION Chunk a_chunk(int i, int depth, Tap tap, Starts starts, Sizes s, Block b) {
#if WRW
    Chunk c;
    int place = depth + A_LINE(i);
    c.offset = starts.a[i].offset;
#if VECTOR_A
    c.offset += depth * s.y_w;
#else
    Place p = place_of(place, s);
    c.offset += p.n * s.y_n + p.d * s.y_d + p.h * s.y_h + p.w * s.y_w;
#endif
    c.count = place < s.places ? (VECTOR_A ? 8 : starts.a[i].w) : 0;
    return c;
#else
    if (!CHANNELS_LAST) tap = tap_in_step(depth, A_CHUNK(i), s, b);
    return source_chunk(starts.a[i], tap, VECTOR_A, s);
#endif
}

FUNCTION Chunk b_chunk(int i, int depth, Tap tap, Starts starts, Sizes s, Block b) {
#if WRW && POINTWISE && VECTOR_B
    Chunk c;
    c.offset = starts.b[i].offset + depth * s.x_w;
    c.count = depth + B_LINE(i) < s.places ? 8 : 0;
    return c;
#elif WRW
    return source_chunk(start_of(depth + B_LINE(i), s, b), starts.tap[i], VECTOR_B, s);
#else
    Chunk c;
#if FORWARD
    if (!CHANNELS_LAST) tap = tap_in_step(depth, B_CHUNK(i), s, b);
    c.count = tap.exists ? (VECTOR_B ? 8 : s.in_group - tap.channel) : 0;
#else
    if (!ONE_TAP) tap = tap_in_step(depth, B_LINE(i) / 8, s, b);
    int exists = tap.exists && (ONE_TAP || tap.channel + B_LINE(i) % 8 < s.out_group);
    c.count = exists ? (VECTOR_B ? 8 : starts.b[i].w) : 0;
#endif
    c.offset = starts.b[i].offset + tap.weights;
    return c;
#endif
}

FUNCTION uint element_at(GLOBAL const elem* from, Chunk c, int i, int step) {
    return i < c.count ? from[(wide)c.offset + (wide)i * step] : 0;
}

FUNCTION chunk fetch_chunk(GLOBAL const elem* from, Chunk c, int vector, int step) {
    if (vector) return c.count > 0 ? *(GLOBAL const chunk*)(from + c.offset) : make_chunk(0, 0, 0, 0);
    uint e[8];
    UNROLL
    for (int i = 0; i < 8; ++i) e[i] = element_at(from, c, i, step);
    return make_chunk(e[0] | e[1] << 16, e[2] | e[3] << 16, e[4] | e[5] << 16, e[6] | e[7] << 16);
}

#define STAGE(slot) TILE_OFFSET(tiles, (slot) * (A_SIZE + B_SIZE))
#define A_PLACE(i) TILE_PLACE(A_LINE(i), A_CHUNK(i), A_LINES, A_CHUNKS)
#define B_PLACE(i) (A_SIZE + TILE_PLACE(B_LINE(i), B_CHUNK(i), B_LINES, B_CHUNKS))

#if ASYNC
FUNCTION void copy_tiles(GLOBAL const elem* a, GLOBAL const elem* b_, tile_pointer stage, int depth,
                         Starts starts, Sizes s, Block b) {
    Tap tap = tap_in_step(depth, A_CHUNK(0), s, b);
    UNROLL
    for (int i = 0; i < A_LOADS; ++i) {
        Chunk c = a_chunk(i, depth, tap, starts, s, b);
        if (A_HAS(i)) copy_async(stage, A_PLACE(i), a + (uint)c.offset, c.count > 0);
    }
    UNROLL
    for (int i = 0; i < B_LOADS; ++i) {
        Chunk c = b_chunk(i, depth, tap, starts, s, b);
        if (B_HAS(i)) copy_async(stage, B_PLACE(i), b_ + (uint)c.offset, c.count > 0);
    }
}
#else
FUNCTION Fetched fetch_tiles(GLOBAL const elem* a, GLOBAL const elem* b_, int depth, Starts starts,
                             Sizes s, Block b) {
    Fetched f;
    Tap tap = tap_in_step(depth, A_CHUNK(0), s, b);
    UNROLL
    for (int i = 0; i < A_LOADS; ++i)
        f.a[i] = fetch_chunk(a, a_chunk(i, depth, tap, starts, s, b), VECTOR_A, A_STEP);
    UNROLL
    for (int i = 0; i < B_LOADS; ++i)
        f.b[i] = fetch_chunk(b_, b_chunk(i, depth, tap, starts, s, b), VECTOR_B, B_STEP);
    return f;
}

FUNCTION void store_tiles(tile_pointer stage, Fetched f) {
    UNROLL
    for (int i = 0; i < A_LOADS; ++i)
        if (A_HAS(i)) store_chunk(stage, A_PLACE(i), f.a[i]);
    UNROLL
    for (int i = 0; i < B_LOADS; ++i)
        if (B_HAS(i)) store_chunk(stage, B_PLACE(i), f.b[i]);
}
#endif

// Multiplies the tiles of a stage into the sums.
#if WAVE == 128
#define MULTIPLY_TILES(stage)                                                                    \
    START_PRODUCTS();                                                                            \
    UNROLL                                                                                       \
    for (int k = 0; k < TILE_K; k += MATRIX_DEPTH)                                               \
        UNROLL                                                                                   \
        for (int i = 0; i < PRODUCTS_M; ++i)                                                     \
            MULTIPLY_ASYNC(                                                                      \
                sums[i][0],                                                                      \
                a_tiles + DESCRIBED(stage + STEP_OF_A(i * MATRIX_ROWS, k, A_LINES, A_CHUNKS)),   \
                b_tiles + DESCRIBED(stage + STEP_OF_B(0, k, B_LINES, B_CHUNKS)));                \
    COMMIT_PRODUCTS();
#else
#if A_BY_DEPTH
#define LOAD_A load_a_by_depth
#else
#define LOAD_A load_a_by_row
#endif
#if B_BY_DEPTH
#define LOAD_B load_b_by_depth
#else
#define LOAD_B load_b_by_column
#endif
#define MULTIPLY_TILES(stage)                                                                    \
    UNROLL                                                                                       \
    for (int k = 0; k < TILE_K; k += MATRIX_DEPTH) {                                             \
        fragment a_part[PRODUCTS_M], b_part[PRODUCTS_N];                                         \
        UNROLL                                                                                   \
        for (int i = 0; i < PRODUCTS_M; ++i)                                                     \
            a_part[i] = LOAD_A(stage, wave_row + i * MATRIX_ROWS, k, A_LINES, A_CHUNKS, lane);   \
        UNROLL                                                                                   \
        for (int j = 0; j < PRODUCTS_N; ++j)                                                     \
            b_part[j] = LOAD_B(TILE_OFFSET(stage, A_SIZE), wave_column + j * MATRIX_COLUMNS, k,  \
                               B_LINES, B_CHUNKS, lane);                                         \
        UNROLL                                                                                   \
        for (int i = 0; i < PRODUCTS_M; ++i)                                                     \
            UNROLL                                                                               \
            for (int j = 0; j < PRODUCTS_N; ++j)                                                 \
                sums[i][j] = multiply_matrices(a_part[i], b_part[j], sums[i][j]);                \
    }
#endif
// Stages that are filled while one is multiplied; wgmma multiplies two at a time.
#define AHEAD (WAVE == 128 ? STAGES - 2 : STAGES - 1)
// A place in depth behind all there are.
#define NOWHERE 0x3fffff00

KERNEL conv_matrix_core(GLOBAL const elem* RESTRICT source, GLOBAL const elem* RESTRICT other,
                        GLOBAL elem* RESTRICT output, GLOBAL const elem* RESTRICT bias,
                        GLOBAL float* RESTRICT partial, const Sizes s) {
    DYNAMIC_LOCAL(chunk, local_memory, LOCAL_BYTES);
    int split = BLOCK_Z / s.classes;
    Block b = block_of(s, BLOCK_Y, BLOCK_Z % s.classes);
    int tiles_m = CEIL_DIV(b.rows, TILE_M), tiles_n = CEIL_DIV(b.columns, TILE_N);
    int band = BLOCK_X / (BAND * tiles_n), in_band = BLOCK_X % (BAND * tiles_n);
    int band_rows = MIN(BAND, tiles_m - band * BAND);
    int row = (band * BAND + in_band % band_rows) * TILE_M, column = in_band / band_rows * TILE_N;

    int first = split * s.steps_of_split;
    int steps = MIN(CEIL_DIV(b.depth, TILE_K) - first, s.steps_of_split);
    int lane = THREAD % WAVE, wave = THREAD / WAVE;
    int wave_row = wave / WAVES_N * WAVE_M, wave_column = wave % WAVES_N * WAVE_N;
    tile_pointer tiles = TILE_POINTER(local_memory);
#if WRW
    GLOBAL const elem* a = other;
    GLOBAL const elem* b_ = source;
#else
    GLOBAL const elem* a = source;
    GLOBAL const elem* b_ = other;
#endif
    Starts starts = all_starts(row, column, s, b);
    accumulator sums[PRODUCTS_M][PRODUCTS_N];
    UNROLL
    for (int i = 0; i < PRODUCTS_M; ++i)
        UNROLL
        for (int j = 0; j < PRODUCTS_N; ++j)
            UNROLL
            for (int r = 0; r < RESULTS; ++r) sums[i][j].v[r] = 0.0f;

#if ASYNC
#if WAVE == 128
    // wave_row and wave_column are multiples of what a descriptor steps over as a whole.
    description a_tiles = DESCRIBE_A(tiles, wave_row, A_LINES, A_CHUNKS);
    description b_tiles = DESCRIBE_B(TILE_OFFSET(tiles, A_SIZE), wave_column, B_LINES, B_CHUNKS);
#endif
    UNROLL
    for (int ahead = 0; ahead < AHEAD; ++ahead) {
        int depth = ahead < steps ? (first + ahead) * TILE_K : NOWHERE;
        copy_tiles(a, b_, STAGE(ahead), depth, starts, s, b);
        COMMIT_COPIES();
    }
    int slot = 0, free_slot = AHEAD;
    for (int step = 0; step < steps; ++step) {
        int depth = step + AHEAD < steps ? (first + step + AHEAD) * TILE_K : NOWHERE;
        WAIT_COPIES(AHEAD - 1);
        SHOW_COPIES();
        BARRIER();
#if WAVE == 128
        int stage = slot * (A_SIZE + B_SIZE) * 2;
        MULTIPLY_TILES(stage)
        copy_tiles(a, b_, STAGE(free_slot), depth, starts, s, b);
        COMMIT_COPIES();
        WAIT_PRODUCTS(1);
#else
        copy_tiles(a, b_, STAGE(free_slot), depth, starts, s, b);
        COMMIT_COPIES();
        tile_pointer stage = STAGE(slot);
        MULTIPLY_TILES(stage)
#endif
        slot = slot + 1 == STAGES ? 0 : slot + 1;
        free_slot = free_slot + 1 == STAGES ? 0 : free_slot + 1;
    }
#if WAVE == 128
    WAIT_PRODUCTS(0);
    UNROLL
    for (int i = 0; i < PRODUCTS_M; ++i) HOLD_SUMS(sums[i][0]);
#endif
    WAIT_COPIES(0);
#else
    if (steps > 0)
        store_tiles(STAGE(0), fetch_tiles(a, b_, first * TILE_K, starts, s, b));
    BARRIER();
    for (int step = 0; step < steps; ++step) {
        Fetched next;
        int more = step + 1 < steps;
        if (more) next = fetch_tiles(a, b_, (first + step + 1) * TILE_K, starts, s, b);
        tile_pointer stage = STAGE(step % STAGES);
        MULTIPLY_TILES(stage)
#if STAGES == 1
        BARRIER();
#endif
        if (more) store_tiles(STAGE((step + 1) % STAGES), next);
        BARRIER();
    }
#endif
    BARRIER();

    LOCAL_POINTER float* mine = (LOCAL_POINTER float*)local_memory + wave * (MATRIX_ROWS * SUMS_STRIDE);
    UNROLL
    for (int i = 0; i < PRODUCTS_M; ++i) {
        UNROLL
        for (int j = 0; j < PRODUCTS_N; ++j)
            UNROLL
            for (int r = 0; r < RESULTS; ++r)
                mine[RESULT_ROW(lane, r) * SUMS_STRIDE + j * MATRIX_COLUMNS + RESULT_COLUMN(lane, r)] =
                    sums[i][j].v[r];
        WAVE_BARRIER();
        UNROLL_BY(4)
        for (int e = 0; e < CEIL_DIV(MATRIX_ROWS * WAVE_N / 8, WAVE); ++e) {
#if CHANNELS_LAST
            int line = (e * WAVE + lane) / (WAVE_N / 8), at = lane % (WAVE_N / 8);
#else
            int line = (e * WAVE + lane) % MATRIX_ROWS, at = (e * WAVE + lane) / MATRIX_ROWS;
#endif
            if (MATRIX_ROWS * WAVE_N / 8 % WAVE != 0 && e * WAVE + lane >= MATRIX_ROWS * WAVE_N / 8) break;
            LOCAL_POINTER const vec4* from = (LOCAL_POINTER const vec4*)(mine + line * SUMS_STRIDE + at * 8);
            int to_row = row + wave_row + i * MATRIX_ROWS + line, to_column = column + wave_column + at * 8;
#if PARTIAL
            if (to_row < b.rows && to_column < b.columns) {
                int chunks = CEIL_DIV(b.columns, 8);
                wide product = (wide)BLOCK_Z * s.groups + b.group;
                GLOBAL vec4* to = (GLOBAL vec4*)partial + ((product * b.rows + to_row) * chunks + to_column / 8) * 2;
                to[0] = from[0];
                to[1] = from[1];
            }
#else
            store_sums(output, bias, to_row, to_column, output_chunk(to_column, s, b), from[0], from[1], s, b);
#endif
        }
        WAVE_BARRIER();
    }
}

#else

// Adds up what the blocks of a split left. SHARES threads take every so many of the parts of a chunk
// of columns of a row; the first adds up theirs, always in the same order.
#ifndef SHARES
#define SHARES 1
#endif
#define SUM_CHUNKS (THREADS / SHARES)

FUNCTION vec4 add(vec4 a, vec4 b) {
    a.x += b.x, a.y += b.y, a.z += b.z, a.w += b.w;
    return a;
}

KERNEL conv_matrix_core_sum(GLOBAL const float* RESTRICT partial, GLOBAL elem* RESTRICT output,
                            GLOBAL const elem* RESTRICT bias, const Sizes s, int splits) {
#if SHARES > 1
    LOCAL vec4 shared[THREADS * 2];
#endif
    Block b = block_of(s, BLOCK_Y, BLOCK_Z);
    int chunks = CEIL_DIV(b.columns, 8);
    int index = BLOCK_X * SUM_CHUNKS + THREAD % SUM_CHUNKS, share = THREAD / SUM_CHUNKS;
    int row = index / chunks, column = index % chunks * 8;
    wide size = (wide)b.rows * chunks * 2, all = size * s.classes * s.groups;
    GLOBAL const vec4* from = (GLOBAL const vec4*)partial +
                              ((wide)BLOCK_Z * s.groups + b.group) * size + (wide)index * 2;
    vec4 low, high;
    low.x = low.y = low.z = low.w = 0.0f;
    high = low;
    if (row < b.rows) {
        UNROLL_BY(4)
        for (int i = share; i < splits; i += SHARES) {
            low = add(low, from[i * all]);
            high = add(high, from[i * all + 1]);
        }
    }
#if SHARES > 1
    shared[THREAD * 2] = low;
    shared[THREAD * 2 + 1] = high;
    BARRIER();
    if (share > 0) return;
    UNROLL
    for (int i = 1; i < SHARES; ++i) {
        low = add(low, shared[(i * SUM_CHUNKS + THREAD) * 2]);
        high = add(high, shared[(i * SUM_CHUNKS + THREAD) * 2 + 1]);
    }
#endif
    if (row < b.rows)
        store_sums(output, bias, row, column, output_chunk(column, s, b), low, high, s, b);
}
#endif
