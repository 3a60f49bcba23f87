// Naive matrix multiplication: thread t of the grid computes the elements t, t + T, t + 2T, ... of C
// (T threads in all), each as a row of A times a column of B, read through strides.
//
//   C[batch][m][n] = sum over k of A[batch][m][k] * B[batch][k][n]
typedef struct {
    wide batch, row, column;
} MatrixStrides;

typedef struct {
    MatrixStrides a, b, c;
} GemmStrides;

typedef struct {
    int m, n, k, batch;
    float alpha, beta;
} GemmSizes;

KERNEL gemm_naive(
    GLOBAL const elem* RESTRICT a, GLOBAL const elem* RESTRICT b, GLOBAL elem* RESTRICT c,
    const GemmSizes s, const GemmStrides at) {
    wide size = (wide)s.batch * s.m * s.n, step = (wide)BLOCKS_X * THREADS;
    for (wide index = (wide)BLOCK_X * THREADS + THREAD; index < size; index += step) {
        wide n = index % s.n, m = index / s.n % s.m, batch = index / s.n / s.m;
        wide row = batch * at.a.batch + m * at.a.row, column = batch * at.b.batch + n * at.b.column;
        float sum = 0.0f;
        for (int first = 0; first < s.k; first += 256) {
            // Parts are summed apart: one sum of millions of terms would lose digits.
            float part = 0.0f;
            int last = MIN(s.k, first + 256);
            for (int k = first; k < last; ++k)
                part = FMA(WIDEN(a[row + k * at.a.column]), WIDEN(b[column + k * at.b.row]), part);
            sum += part;
        }
        wide place = batch * at.c.batch + m * at.c.row + n * at.c.column;
        store_scaled(c, place, sum, s.alpha, s.beta, 0.0f);
    }
}
