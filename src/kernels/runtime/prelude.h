// What every kernel may use, whatever the backend. Written in what HIP C++, CUDA C++ and OpenCL C
// share: no templates, no references, an address-space word on every pointer (GLOBAL, LOCAL), LOCAL
// arrays only at kernel scope. Blocks are THREADS x 1 x 1.
#ifndef THREADS
#define THREADS 64
#endif
// Storage of tensors: 0 fp32, 1 fp16, 2 bf16; arithmetic is fp32. The 16-bit types stay in 16-bit
// integers in memory, since not every OpenCL has half arithmetic.
#ifndef DTYPE
#define DTYPE 0
#endif

#define TEXT_OF(words) #words
#define PRAGMA(words) _Pragma(TEXT_OF(words))
#define UNROLL _Pragma("unroll")
#define UNROLL_BY(times) PRAGMA(unroll times)
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))

// Local memory whose size may be beyond what static arrays have on some backends.
#ifndef DYNAMIC_LOCAL
#define DYNAMIC_LOCAL_SIZE(bytes)
#define DYNAMIC_LOCAL(type, name, bytes) LOCAL type name[(bytes) / sizeof(type)]
#endif

// Offsets that may pass 2**31.
typedef long wide;

FUNCTION float bfloat_to_float(ushort bits) { return BITS_TO_FLOAT((uint)bits << 16); }

// Rounds to nearest, ties to even; NaN stays NaN.
FUNCTION ushort float_to_bfloat(float value) {
    uint bits = FLOAT_TO_BITS(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (ushort)((bits >> 16) | 64u);
    return (ushort)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

#if DTYPE == 0
typedef float elem;
#define WIDEN(e) (e)
#define NARROW(f) (f)
#elif DTYPE == 1
typedef ushort elem;
#define WIDEN(e) half_to_float(e)
#define NARROW(f) float_to_half(f)
#else
typedef ushort elem;
#define WIDEN(e) bfloat_to_float(e)
#define NARROW(f) float_to_bfloat(f)
#endif

// From foretune.kernels.solver.fast_divisor; exact for 0 <= n < 2**31.
typedef struct {
    uint multiplier;
    int shift;
} FastDivisor;

FUNCTION int divide(int n, FastDivisor d) {
    return (int)((MUL_HIGH((uint)n, d.multiplier) + (uint)n) >> d.shift);
}

// The epilogue of every kernel: alpha * result + added + beta * old. Old content is read only where
// beta asks for it, so that an output without content (or with NaN) does no harm.
FUNCTION void store_scaled(
    GLOBAL elem* output, wide index, float result, float alpha, float beta, float added) {
    float value = FMA(alpha, result, added);
    if (beta != 0.0f) value = FMA(beta, WIDEN(output[index]), value);
    output[index] = NARROW(value);
}
