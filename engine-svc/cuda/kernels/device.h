// The one seam between the GPU (NVRTC) and the CPU (emulate/). Kernels use no header of either but this and those
// beside it, which also means that the engine ships no CUDA headers.
//
// A kernel takes one struct by value, named `a`; src/arguments.rs has the same structs.
#pragma once

#ifdef __CUDACC_RTC__
#define DEVICE __device__ __forceinline__
#define KERNEL(threads, blocks_per_sm, name, Arguments) \
  extern "C" __global__ void __launch_bounds__(threads, blocks_per_sm) name(const __grid_constant__ Arguments a)
#define DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#define SHARED(T, name, count) __shared__ __align__(16) T name[count]
template <class T> using Shared = T*;
template <class T> DEVICE T* unchecked(T* p) { return p; }
#else
#include "cuda.h"
#define DEVICE inline
#define KERNEL(threads, blocks_per_sm, name, Arguments) extern "C" void name(const Arguments& a)
#define DYNAMIC_SHARED(name) unsigned char* name = reinterpret_cast<unsigned char*>(emu::dynamic_shared())
#define SHARED(T, name, count)       \
  static emu::SharedSite name##Site; \
  Shared<T> name(reinterpret_cast<T*>(emu::static_shared(name##Site, (count) * sizeof(T))))
template <class T> using Shared = EmuShared<T>;
template <class T> T* unchecked(EmuShared<T> p) { return p.unchecked(); }
#endif

typedef unsigned short u16;
typedef unsigned long long u64;
typedef long long i64;

constexpr unsigned ALL_LANES = 0xffffffffu;

DEVICE float infinity() { return __uint_as_float(0x7f800000u); }

// 16 bytes of global memory that nobody writes meanwhile.
DEVICE uint4 load16(const u16* at) {
#ifdef __CUDACC_RTC__
  return __ldg(reinterpret_cast<const uint4*>(at));
#else
  if (reinterpret_cast<uintptr_t>(at) & 15) emu::fail("misaligned 16-byte load");
  return *reinterpret_cast<const uint4*>(at);
#endif
}
