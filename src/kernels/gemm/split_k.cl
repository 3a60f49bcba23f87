// Finishing what shares of K left in the workspace, each a whole output in fp32 laid out as the
// output is: thread t of the grid sums the elements t, t + T, ... over the shares.
//
//   share 0  [ . . . x . . . ]
//   share 1  [ . . . x . . . ]  -> output[x] = alpha * sum + bias[channel of x] + beta * output[x]
//   share 2  [ . . . x . . . ]
typedef struct {
    int size, shares, channels;
    FastDivisor by_inner, by_channels;  // elements inside a channel, channels
    float alpha, beta;
} ShareSum;

KERNEL clear_sums(GLOBAL float* RESTRICT sums, const ShareSum s) {
    for (int i = BLOCK_X * THREADS + THREAD; i < s.size; i += BLOCKS_X * THREADS) sums[i] = 0.0f;
}

KERNEL sum_shares(
    GLOBAL const float* RESTRICT sums, GLOBAL elem* RESTRICT output, GLOBAL const elem* RESTRICT bias,
    const ShareSum s) {
    for (int i = BLOCK_X * THREADS + THREAD; i < s.size; i += BLOCKS_X * THREADS) {
        float sum = 0.0f;
        for (int share = 0; share < s.shares; ++share) sum += sums[(wide)share * s.size + i];
        float added = 0.0f;
        if (bias) {
            int outer = divide(i, s.by_inner);
            added = WIDEN(bias[outer - divide(outer, s.by_channels) * s.channels]);
        }
        store_scaled(output, i, sum, s.alpha, s.beta, added);
    }
}
