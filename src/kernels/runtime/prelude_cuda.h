// CUDA C++'s words for what kernels need, without any header. See prelude.h for what follows.
#define BACKEND_CUDA 1
#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS)
#define FUNCTION static __device__ __forceinline__
#define GLOBAL
#define LOCAL __shared__
#define LOCAL_POINTER
// More local memory than a static array may have: at file scope its bytes, which the backend finds
// in the binary and tells the driver, and the array at kernel scope.
#define DYNAMIC_LOCAL_SIZE(bytes) extern "C" __constant__ int dynamic_local_bytes = (bytes);
#define DYNAMIC_LOCAL(type, name, bytes) extern LOCAL __align__(1024) type name[]
#define RESTRICT __restrict__
#define BARRIER() __syncthreads()
#define THREAD ((int)threadIdx.x)
#define BLOCK_X ((int)blockIdx.x)
#define BLOCK_Y ((int)blockIdx.y)
#define BLOCK_Z ((int)blockIdx.z)
#define BLOCKS_X ((int)gridDim.x)
#define FMA(a, b, c) fmaf(a, b, c)
#define MUL_HIGH(a, b) __umulhi(a, b)
#define BITS_TO_FLOAT(bits) __uint_as_float(bits)
#define FLOAT_TO_BITS(value) __float_as_uint(value)

typedef unsigned int uint;
typedef unsigned short ushort;
typedef float4 vec4;

FUNCTION float half_to_float(ushort bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

FUNCTION ushort float_to_half(float value) {
    ushort bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

FUNCTION void atomic_add_float(float* address, float value) { atomicAdd(address, value); }
