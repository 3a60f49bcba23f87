// OpenCL C's words for what kernels need. See prelude.h for what follows from them.
#define KERNEL __kernel __attribute__((reqd_work_group_size(THREADS, 1, 1))) void
#define FUNCTION static inline
#define GLOBAL __global
#define LOCAL __local
#define LOCAL_POINTER __local
#define RESTRICT restrict
#define BARRIER() barrier(CLK_LOCAL_MEM_FENCE)
#define THREAD ((int)get_local_id(0))
#define BLOCK_X ((int)get_group_id(0))
#define BLOCK_Y ((int)get_group_id(1))
#define BLOCK_Z ((int)get_group_id(2))
#define BLOCKS_X ((int)get_num_groups(0))
#define FMA(a, b, c) fma(a, b, c)
#define MUL_HIGH(a, b) mul_hi((uint)(a), (uint)(b))
#define BITS_TO_FLOAT(bits) as_float((uint)(bits))
#define FLOAT_TO_BITS(value) as_uint((float)(value))

typedef float4 vec4;

FUNCTION float half_to_float(ushort bits) {
#ifdef cl_khr_fp16
    return convert_float(as_half(bits));
#else
    return vload_half(0, (const half*)&bits);
#endif
}

FUNCTION ushort float_to_half(float value) {
    ushort bits;
    vstore_half_rte(value, 0, (half*)&bits);
    return bits;
}

FUNCTION void atomic_add_float(GLOBAL float* address, float value) {
    volatile GLOBAL uint* word = (volatile GLOBAL uint*)address;
    uint seen = *word, assumed;
    do {
        assumed = seen;
        seen = atomic_cmpxchg(word, assumed, as_uint(as_float(assumed) + value));
    } while (seen != assumed);
}
