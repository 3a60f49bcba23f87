// HIP C++'s words for what kernels need, by the compiler's own builtins, so that HIPRTC and a bare
// clang take the same text. See prelude.h for what follows from them.
#define BACKEND_HIP 1
#define KERNEL \
    extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(1, THREADS))) void
#define FUNCTION static inline __attribute__((device)) __attribute__((always_inline))
#define GLOBAL
#define LOCAL __attribute__((shared))
#define LOCAL_POINTER
#define RESTRICT __restrict__
#define BARRIER()                                              \
    do {                                                       \
        __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"); \
        __builtin_amdgcn_s_barrier();                          \
        __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup"); \
    } while (0)
#define THREAD ((int)__builtin_amdgcn_workitem_id_x())
#define BLOCK_X ((int)__builtin_amdgcn_workgroup_id_x())
#define BLOCK_Y ((int)__builtin_amdgcn_workgroup_id_y())
#define BLOCK_Z ((int)__builtin_amdgcn_workgroup_id_z())
// Blocks in x: the grid's threads stand at byte 12 of the dispatch packet.
#define BLOCKS_X \
    ((int)(((const __attribute__((address_space(4))) uint*)__builtin_amdgcn_dispatch_ptr())[3] / THREADS))
#define FMA(a, b, c) __builtin_fmaf(a, b, c)
#define MUL_HIGH(a, b) ((uint)(((unsigned long)(uint)(a) * (uint)(b)) >> 32))
#define BITS_TO_FLOAT(bits) __builtin_bit_cast(float, (uint)(bits))
#define FLOAT_TO_BITS(value) __builtin_bit_cast(uint, (float)(value))

typedef unsigned int uint;
typedef unsigned short ushort;
typedef float vec4 __attribute__((ext_vector_type(4)));

FUNCTION float half_to_float(ushort bits) { return (float)__builtin_bit_cast(_Float16, bits); }

FUNCTION ushort float_to_half(float value) {
    return __builtin_bit_cast(ushort, (_Float16)value);
}

FUNCTION void atomic_add_float(float* address, float value) {
    __hip_atomic_fetch_add(address, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
