// Finishing what shares of K left in the workspace, each a whole output in fp32 laid out as the
// output is: thread t of the grid sums the elements t, t + T, ... over the shares.
//
//   share 0  [ . . . x . . . ]
//   share 1  [ . . . x . . . ]  -> output[x] = alpha * sum + bias[channel of x] + beta * output[x]
//   share 2  [ . . . x . . . ]
typedef struct {
    int size, shares, channels;
    int sums_first, c_first;            // elements before the shares, before the output
    FastDivisor by_inner, by_channels;  // elements inside a channel, channels
    float alpha, beta;
} ShareSum;

KERNEL clear_sums(GLOBAL float* RESTRICT sums, const ShareSum s) {
    for (int i = BLOCK_X * THREADS + THREAD; i < s.size; i += BLOCKS_X * THREADS) sums[s.sums_first + i] = 0.0f;
}

KERNEL sum_shares(
    GLOBAL const float* RESTRICT sums, GLOBAL elem* RESTRICT output, GLOBAL const elem* RESTRICT bias,
    const ShareSum s) {
    for (int i = BLOCK_X * THREADS + THREAD; i < s.size; i += BLOCKS_X * THREADS) {
        GLOBAL const float* own = sums + (s.sums_first + i);
        float sum = 0.0f;
        for (int share = 0; share < s.shares; ++share) sum += own[(wide)share * s.size];
        float added = 0.0f;
        if (bias) {
            int outer = divide(s.c_first + i, s.by_inner);
            added = WIDEN(bias[outer - divide(outer, s.by_channels) * s.channels]);
        }
        store_scaled(output, s.c_first + i, sum, s.alpha, s.beta, added);
    }
}
