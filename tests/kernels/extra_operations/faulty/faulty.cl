// y = 2x, one element a thread, and what else KIND says.
#ifndef KIND
#define KIND 0
#endif
#define CRASHES (KIND == 1)
#define HANGS (KIND == 2)
#define IS_WRONG (KIND == 3)
#define SPOILS_INPUT (KIND == 4)
#define IS_SLOW (KIND == 5)
#define IS_NO_KERNEL (KIND == 6)

typedef struct {
    wide count;
} Sizes;

KERNEL faulty(GLOBAL elem* x, GLOBAL elem* y, const Sizes s) {
    int i = BLOCK_X * THREADS + THREAD;
    if (i >= s.count) return;
    float value = 2.0f * WIDEN(x[i]);
#if CRASHES
    y[(wide)1 << 44] = NARROW(value);
#elif HANGS
    while (((volatile GLOBAL elem*)y)[i] != NARROW(-12345.0f)) {
    }
#elif IS_WRONG
    value = 3.0f * WIDEN(x[i]);
#elif IS_SLOW
    for (int turn = 0; turn < 10000; ++turn) value = FMA(value, 1.0f + 1e-9f * (value > 1e30f), 0.0f);
#elif IS_NO_KERNEL
    this is no kernel
#endif
    y[i] = NARROW(value);
#if SPOILS_INPUT
    x[i] = NARROW(0.0f);
#endif
}
