// Largest difference between an output and what it should be. Thread t of the grid looks at the
// elements t, t + T, t + 2T, ... (T threads in all) and writes the largest difference and the largest
// expected magnitude among them to worst[2t] and worst[2t + 1]. What is no number counts as 3e38.
typedef struct {
    wide count;
} CheckSizes;

KERNEL largest_difference(
    GLOBAL const elem* RESTRICT output, GLOBAL const float* RESTRICT expected,
    GLOBAL float* RESTRICT worst, const CheckSizes sizes) {
    int thread = BLOCK_X * THREADS + THREAD;
    float largest = 0.0f, magnitude = 0.0f;
    for (wide i = thread; i < sizes.count; i += (wide)BLOCKS_X * THREADS) {
        float wanted = expected[i], difference = WIDEN(output[i]) - wanted;
        difference = difference < 0.0f ? -difference : difference;
        wanted = wanted < 0.0f ? -wanted : wanted;
        // NaN fails the first comparison and the second.
        if (!(difference <= largest)) largest = difference < 3e38f ? difference : 3e38f;
        magnitude = MAX(magnitude, wanted);
    }
    worst[2 * thread] = largest;
    worst[2 * thread + 1] = magnitude;
}
