// Tiled matrix multiplication, C = A * B in the words of place.h. A block computes a tile of C; its
// operands pass through local memory, TILE_K deep, and a thread keeps THREAD_M x THREAD_N sums.
//
//                      TILE_N                      A thread's rows come in chunks of CHUNK, so that
//                 +--------------+                 it reads local memory by vectors:
//          TILE_K |  b_tile      |                   row(i) = ((i / CHUNK) * THREADS_M + thread_m)
//        TILE_K   +--------------+                            * CHUNK + i % CHUNK
//       +------+  +--------------+                 and its columns likewise.
//       |      |  | . . . .      |
// TILE_M|a_tile|  | . . .  THREAD_M x THREAD_N     Threads lie along N first, or along M where that
//       |      |  | . . . .      |                 is how C lies in memory (LANES_ALONG_M); 32 of
//       +------+  +--------------+                 them cover FAST_LANES there.
//
// Step s of the K loop with STAGES == 2: fetch the tiles of s + 1 from global memory into registers;
// decode the rows of s + 2 into `rows`; multiply the tiles of s; put the fetched ones into the other
// half of local memory; one barrier. With STAGES == 1: fetch the tiles of s straight into local
// memory, barrier, multiply, barrier.
//
// The grid: x counts tiles, y parts (groups, batches, classes), z shares of K. A share of K (SHARES
// above 0) stores its sums in fp32, apart (1) or added atomically (2), and split_k.cl finishes.
#ifndef TILE_M
#define TILE_M 64
#define TILE_N 64
#define TILE_K 8
#define THREAD_M 8
#define THREAD_N 8
#endif
// Passes over the rows of a thread: more than one where registers are few (processors).
#ifndef PASSES
#define PASSES 1
#endif
#ifndef CHUNK
#define CHUNK 4
#endif
#ifndef STAGES
#define STAGES 2
#endif
#ifndef UNROLL_K
#define UNROLL_K TILE_K
#endif
// Elements between rows of the tiles that lie in no tile, against bank conflicts.
#ifndef PAD
#define PAD 4
#endif
// Elements that a thread fetches at once, and whether neighbouring threads fetch along K.
#ifndef A_VECTOR
#define A_VECTOR 1
#endif
#ifndef B_VECTOR
#define B_VECTOR 1
#endif
#ifndef A_ALONG_K
#define A_ALONG_K 1
#endif
#ifndef B_ALONG_K
#define B_ALONG_K 0
#endif
#ifndef LANES_ALONG_M
#define LANES_ALONG_M 0
#endif
// Of 32 neighbouring threads, those along that axis.
#ifndef FAST_LANES
#define FAST_LANES 8
#endif
#define SLOW_LANES (32 / FAST_LANES)
#ifndef STORE_VECTOR
#define STORE_VECTOR 1
#endif
#ifndef SHARES
#define SHARES 0
#endif

#define THREADS_M (TILE_M / THREAD_M)
#define THREADS_N (TILE_N / THREAD_N)
#define PASS_M (THREAD_M / PASSES)
#define CHUNK_M MIN(CHUNK, PASS_M)
#define CHUNK_N MIN(CHUNK, THREAD_N)
#define A_PITCH (TILE_M + PAD)
#define B_PITCH (TILE_N + PAD)

// A thread's unit u of a fetch: A_VECTOR neighbours along K or along M, at a place of a line of
// units. Threads and lines divide each other, so that all but u is worked out once.
#define PLACE_IN_LINE(u, line)                                              \
    (int)((line) % THREADS == 0   ? THREAD + (u) % MAX(1, (line) / THREADS) * THREADS \
          : THREADS % (line) == 0 ? (uint)THREAD % (line)                             \
                                  : (uint)(THREAD + (u) * THREADS) % (line))
#define LINE(u, line)                                                                \
    (int)((line) % THREADS == 0   ? (u) / MAX(1, (line) / THREADS)                   \
          : THREADS % (line) == 0 ? (uint)THREAD / (line) + (u) * (THREADS / (line)) \
                                  : (uint)(THREAD + (u) * THREADS) / (line))
#define A_UNITS (TILE_K * TILE_M / A_VECTOR / THREADS)
#define B_UNITS (TILE_K * TILE_N / B_VECTOR / THREADS)
#if A_ALONG_K
#define A_K(u) (PLACE_IN_LINE(u, TILE_K / A_VECTOR) * A_VECTOR)
#define A_M(u) LINE(u, TILE_K / A_VECTOR)
#define A_ROWS A_UNITS
#else
#define A_K(u) LINE(u, TILE_M / A_VECTOR)
#define A_M(u) (PLACE_IN_LINE(u, TILE_M / A_VECTOR) * A_VECTOR)
#define A_ROWS MAX(1, TILE_M / A_VECTOR / THREADS)
#endif
#if B_ALONG_K
#define B_K(u) (PLACE_IN_LINE(u, TILE_K / B_VECTOR) * B_VECTOR)
#define B_N(u) LINE(u, TILE_K / B_VECTOR)
#define B_COLUMNS B_UNITS
#else
#define B_K(u) LINE(u, TILE_N / B_VECTOR)
#define B_N(u) (PLACE_IN_LINE(u, TILE_N / B_VECTOR) * B_VECTOR)
#define B_COLUMNS MAX(1, TILE_N / B_VECTOR / THREADS)
#endif
// What lies in registers has to be unrolled. On processors a thread's sums are too many for that:
// they lie in local memory, those of neighbouring threads side by side.
#if CHUNK == 1
#define UNROLL_OVER_TILE
#define SUM(i, j) sums[((i) * THREAD_N + (j)) * THREADS + THREAD]
#else
#define UNROLL_OVER_TILE UNROLL
#define SUM(i, j) sums[i][j]
#endif

#if DTYPE == 0
typedef vec4 elem4;
#elif BACKEND_HIP
typedef ushort elem4 __attribute__((ext_vector_type(4)));
#else
typedef ushort4 elem4;
#endif

#if SHARES
typedef float result;
#else
typedef elem result;
#endif

typedef struct {
    FastDivisor by_tiles;  // tiles along the axis that neighbouring blocks lie along
    int tiles;
    int m_first;           // 1 if that axis is M
    int shares;
    int size;              // elements of C
    int c_first;           // elements before C in its tensor, or before the shares
    float alpha, beta;
} Tiling;

FUNCTION void widen4(elem4 four, float* values) {
    values[0] = WIDEN(four.x);
    values[1] = WIDEN(four.y);
    values[2] = WIDEN(four.z);
    values[3] = WIDEN(four.w);
}

FUNCTION bool is_inside(Place row, Place column, View v) {
#if CHECKED
    bool inside = (uint)(row.h + column.h) < (uint)v.in_h && (uint)(row.w + column.w) < (uint)v.in_w;
#if NDIM == 3
    inside = inside && (uint)(row.d + column.d) < (uint)v.in_d;
#endif
    return inside;
#else
    return (row.other | column.other) >= 0;
#endif
}

FUNCTION void fetch_a(GLOBAL const elem* a, int at, int other, float* values) {
    UNROLL for (int i = 0; i < A_VECTOR; ++i) values[i] = 0.0f;
    if ((other | at) < 0) return;
#if A_VECTOR == 4
    widen4(*(GLOBAL const elem4*)(a + (at + other)), values);
#else
    values[0] = WIDEN(a[at + other]);
#endif
}

FUNCTION void fetch_b(GLOBAL const elem* b, Place row, Place column, View v, float* values) {
    UNROLL for (int i = 0; i < B_VECTOR; ++i) values[i] = 0.0f;
    if (!is_inside(row, column, v)) return;
#if B_VECTOR == 4
    widen4(*(GLOBAL const elem4*)(b + (row.offset + column.offset)), values);
#else
    values[0] = WIDEN(b[row.offset + column.offset]);
#endif
}

FUNCTION void store(GLOBAL result* c, int index, float sum, Tiling t, float added) {
#if SHARES == 0
    store_scaled(c, index, sum, t.alpha, t.beta, added);
#elif SHARES == 1
    c[index] = sum;
#else
    atomic_add_float(c + index, sum);
#endif
}

#if STORE_VECTOR == 4
#if SHARES
typedef vec4 result4;
#else
typedef elem4 result4;
#endif

FUNCTION void store4(GLOBAL result* c, int index, const float* sums, Tiling t, const float* added) {
    GLOBAL result4* place = (GLOBAL result4*)(c + index);
    result4 four;
#if SHARES == 2
    UNROLL for (int i = 0; i < 4; ++i) atomic_add_float(c + index + i, sums[i]);
#elif SHARES == 1
    four.x = sums[0];
    four.y = sums[1];
    four.z = sums[2];
    four.w = sums[3];
    *place = four;
#else
    float values[4], old[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (t.beta != 0.0f) widen4(*place, old);
    UNROLL for (int i = 0; i < 4; ++i) {
        values[i] = FMA(t.alpha, sums[i], added[i]);
        if (t.beta != 0.0f) values[i] = FMA(t.beta, old[i], values[i]);
    }
    four.x = NARROW(values[0]);
    four.y = NARROW(values[1]);
    four.z = NARROW(values[2]);
    four.w = NARROW(values[3]);
    *place = four;
#endif
}
#endif

KERNEL tiled_gemm(
    GLOBAL const elem* RESTRICT a, GLOBAL const elem* RESTRICT b, GLOBAL result* RESTRICT c,
    GLOBAL const elem* RESTRICT bias, const Geometry geometry, const Tiling tiling) {
    LOCAL vec4 a_memory[STAGES * TILE_K * A_PITCH / 4];
    LOCAL vec4 b_memory[STAGES * TILE_K * B_PITCH / 4];
    LOCAL_POINTER float* a_tile = (LOCAL_POINTER float*)a_memory;
    LOCAL_POINTER float* b_tile = (LOCAL_POINTER float*)b_memory;
    LOCAL Place rows[2 * TILE_K];

    const View v = view_of(geometry, BLOCK_Y);
    int slow = divide(BLOCK_X, tiling.by_tiles), fast = BLOCK_X - slow * tiling.tiles;
    int first_m = (tiling.m_first ? fast : slow) * TILE_M;
    int first_n = (tiling.m_first ? slow : fast) * TILE_N;
    // Parts may differ in size, the grid is that of the largest.
    if (first_m >= v.m || first_n >= v.n) return;

    int steps = CEIL_DIV(v.k, TILE_K), share = CEIL_DIV(steps, tiling.shares);
    int first = BLOCK_Z * share, last = MIN(steps, first + share);

    // Groups of 32 lie as FAST_LANES x 32 / FAST_LANES: near square, they read fewest different words.
#if LANES_ALONG_M
    int fast_lane = THREAD % FAST_LANES + THREAD / 32 % (THREADS_M / FAST_LANES) * FAST_LANES;
    int slow_lane = THREAD / 32 / (THREADS_M / FAST_LANES) * SLOW_LANES + THREAD % 32 / FAST_LANES;
    int thread_m = fast_lane, thread_n = slow_lane;
#elif THREADS_M > 1
    int fast_lane = THREAD % FAST_LANES + THREAD / 32 % (THREADS_N / FAST_LANES) * FAST_LANES;
    int slow_lane = THREAD / 32 / (THREADS_N / FAST_LANES) * SLOW_LANES + THREAD % 32 / FAST_LANES;
    int thread_m = slow_lane, thread_n = fast_lane;
#else
    const int thread_m = 0, thread_n = THREAD;
#endif

    int a_at[A_ROWS];
    UNROLL_OVER_TILE for (int u = 0; u < A_ROWS; ++u) {
        int m = first_m + A_M(u);
        a_at[u] = m < v.m ? v.a_first + m * v.a_m : -1;
    }
    Place b_at[B_COLUMNS];
    UNROLL_OVER_TILE for (int u = 0; u < B_COLUMNS; ++u) {
        int n = first_n + B_N(u);
        b_at[u] = n < v.n ? column_place(geometry, v, n) : nowhere();
        b_at[u].offset += v.b_first;
    }

#if CHUNK == 1
    LOCAL float sums[TILE_M * TILE_N];
#else
    float sums[THREAD_M][THREAD_N];
#endif
    UNROLL_OVER_TILE for (int i = 0; i < THREAD_M; ++i)
        UNROLL for (int j = 0; j < THREAD_N; ++j) SUM(i, j) = 0.0f;
#if STAGES == 2
    float a_next[A_UNITS * A_VECTOR], b_next[B_UNITS * B_VECTOR];
#endif

#define DECODE_ROWS(step)                                                               \
    UNROLL_BY(1)                                                                        \
    for (int i = THREAD; i < TILE_K; i += THREADS) {                                    \
        int k = (step) * TILE_K + i;                                                    \
        rows[((step) & 1) * TILE_K + i] = k < v.k ? row_place(geometry, v, k) : nowhere(); \
    }
#define PUT_A(stage, u, values)               \
    UNROLL for (int i = 0; i < A_VECTOR; ++i) \
        a_tile[((stage) + A_K(u) + i * A_ALONG_K) * A_PITCH + A_M(u) + i * !A_ALONG_K] = (values)[i];
#define PUT_B(stage, u, values)               \
    UNROLL for (int i = 0; i < B_VECTOR; ++i) \
        b_tile[((stage) + B_K(u) + i * B_ALONG_K) * B_PITCH + B_N(u) + i * !B_ALONG_K] = (values)[i];

    if (first < last) {
        DECODE_ROWS(first)
    }
    BARRIER();
    for (int step = STAGES == 2 ? first - 1 : first; step < last; ++step) {
#if STAGES == 2
        bool is_more = step + 1 < last;
        if (is_more) {
            int next = ((step + 1) & 1) * TILE_K;
            UNROLL for (int u = 0; u < A_UNITS; ++u)
                fetch_a(a, a_at[u % A_ROWS], rows[next + A_K(u)].other, a_next + A_VECTOR * u);
            UNROLL for (int u = 0; u < B_UNITS; ++u)
                fetch_b(b, rows[next + B_K(u)], b_at[u % B_COLUMNS], v, b_next + B_VECTOR * u);
        }
        if (step + 2 < last) {
            DECODE_ROWS(step + 2)
        }
#else
        int now = (step & 1) * TILE_K;
        UNROLL_OVER_TILE for (int u = 0; u < A_UNITS; ++u) {
            float values[A_VECTOR];
            fetch_a(a, a_at[u % A_ROWS], rows[now + A_K(u)].other, values);
            PUT_A(0, u, values)
        }
        UNROLL_OVER_TILE for (int u = 0; u < B_UNITS; ++u) {
            float values[B_VECTOR];
            fetch_b(b, rows[now + B_K(u)], b_at[u % B_COLUMNS], v, values);
            PUT_B(0, u, values)
        }
        if (step + 1 < last) {
            DECODE_ROWS(step + 1)
        }
        BARRIER();
#endif
        if (step >= first) {
            int stage = STAGES == 2 ? (step & 1) * TILE_K : 0;
#if PASSES > 1
            for (int pass = 0; pass < PASSES; ++pass) {
#else
            {
                const int pass = 0;
#endif
                // A copy that no compiler takes for memory inside the loop.
                float part[PASS_M][THREAD_N];
                UNROLL for (int i = 0; i < PASS_M; ++i)
                    UNROLL for (int j = 0; j < THREAD_N; ++j)
                        part[i][j] = SUM(pass * PASS_M + i, j);
                UNROLL_BY(UNROLL_K)
                for (int k = 0; k < TILE_K; ++k) {
                    float left[PASS_M], right[THREAD_N];
                    UNROLL for (int i = 0; i < PASS_M / CHUNK_M; ++i) {
                        int m = ((pass * (PASS_M / CHUNK_M) + i) * THREADS_M + thread_m) * CHUNK_M;
#if CHUNK == 4
                        vec4 four = *(LOCAL_POINTER const vec4*)(a_tile + (stage + k) * A_PITCH + m);
                        left[4 * i] = four.x;
                        left[4 * i + 1] = four.y;
                        left[4 * i + 2] = four.z;
                        left[4 * i + 3] = four.w;
#else
                        left[i] = a_tile[(stage + k) * A_PITCH + m];
#endif
                    }
                    UNROLL for (int j = 0; j < THREAD_N / CHUNK_N; ++j) {
                        int n = (j * THREADS_N + thread_n) * CHUNK_N;
#if CHUNK == 4
                        vec4 four = *(LOCAL_POINTER const vec4*)(b_tile + (stage + k) * B_PITCH + n);
                        right[4 * j] = four.x;
                        right[4 * j + 1] = four.y;
                        right[4 * j + 2] = four.z;
                        right[4 * j + 3] = four.w;
#else
                        right[j] = b_tile[(stage + k) * B_PITCH + n];
#endif
                    }
                    UNROLL for (int i = 0; i < PASS_M; ++i)
                        UNROLL for (int j = 0; j < THREAD_N; ++j)
                            part[i][j] = FMA(left[i], right[j], part[i][j]);
                }
                UNROLL for (int i = 0; i < PASS_M; ++i)
                    UNROLL for (int j = 0; j < THREAD_N; ++j)
                        SUM(pass * PASS_M + i, j) = part[i][j];
            }
        }
#if STAGES == 2
        if (is_more) {
            int next = ((step + 1) & 1) * TILE_K;
            UNROLL for (int u = 0; u < A_UNITS; ++u) {
                PUT_A(next, u, a_next + A_VECTOR * u)
            }
            UNROLL for (int u = 0; u < B_UNITS; ++u) {
                PUT_B(next, u, b_next + B_VECTOR * u)
            }
        }
#endif
        BARRIER();
    }

    c += tiling.c_first;
#if SHARES == 1
    c += (wide)BLOCK_Z * tiling.size;
#endif
#if SHARES
    const int has_bias = 0;
#else
    const int has_bias = bias != 0;
#endif
#define SUM_M(i) (first_m + (((i) / CHUNK_M) * THREADS_M + thread_m) * CHUNK_M + (i) % CHUNK_M)
#define SUM_N(j) (first_n + (((j) / CHUNK_N) * THREADS_N + thread_n) * CHUNK_N + (j) % CHUNK_N)
#if STORE_VECTOR == 4 && LANES_ALONG_M
    UNROLL for (int j = 0; j < THREAD_N; ++j) {
        int n = SUM_N(j);
        if (n >= v.n) continue;
        int place = v.c_first + column_place(geometry, v, n).other;
        UNROLL for (int i = 0; i < THREAD_M; i += 4) {
            int m = SUM_M(i);
            float values[4], added[4];
            UNROLL for (int e = 0; e < 4; ++e) {
                values[e] = sums[i + e][j];
                added[e] = has_bias && m < v.m ? WIDEN(bias[v.bias_first + m + e]) : 0.0f;
            }
            if (m < v.m) store4(c, place + m, values, tiling, added);
        }
    }
#elif STORE_VECTOR == 4
    UNROLL for (int j = 0; j < THREAD_N; j += 4) {
        int n = SUM_N(j);
        if (n >= v.n) continue;
        int place = v.c_first + column_place(geometry, v, n).other;
        UNROLL for (int i = 0; i < THREAD_M; ++i) {
            int m = SUM_M(i);
            if (m >= v.m) continue;
            float both = has_bias ? WIDEN(bias[v.bias_first + m]) : 0.0f;
            float added[4] = {both, both, both, both};
            store4(c, place + m * v.c_m, &sums[i][j], tiling, added);
        }
    }
#else
    UNROLL for (int j = 0; j < THREAD_N; ++j) {
        int n = SUM_N(j);
        if (n >= v.n) continue;
        int place = v.c_first + column_place(geometry, v, n).other;
        UNROLL_OVER_TILE for (int i = 0; i < THREAD_M; ++i) {
            int m = SUM_M(i);
            if (m >= v.m) continue;
            float added = has_bias ? WIDEN(bias[v.bias_first + m]) : 0.0f;
            store(c, place + m * v.c_m, SUM(i, j), tiling, added);
        }
    }
#endif
}
