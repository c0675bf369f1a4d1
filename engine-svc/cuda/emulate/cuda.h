// What CUDA C++ gives a kernel, on the CPU. Kernels include it through kernels/device.h alone.
#pragma once
#include <math.h>
#include <string.h>

#include "machine.h"

struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

#define threadIdx (emu::here.thread)
#define blockIdx (emu::here.block)
#define blockDim (emu::here.block_dim)
#define gridDim (emu::here.grid_dim)

template <class T> T min(T a, T b) { return b < a ? b : a; }
template <class T> T max(T a, T b) { return a < b ? b : a; }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
template <class To, class From> To emu_bits(From from) { To to; memcpy(&to, &from, sizeof to); return to; }
inline float __uint_as_float(unsigned bits) { return emu_bits<float>(bits); }
inline unsigned __float_as_uint(float value) { return emu_bits<unsigned>(value); }
inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }

// The line tells two barriers apart: threads must meet at the same one.
#define EMU_LINE int line = __builtin_LINE()
inline void __syncthreads(EMU_LINE) { emu::barrier(line); }
inline void __syncwarp(unsigned mask = ~0u, EMU_LINE) { emu::collective(mask, nullptr, nullptr, line); }

struct EmuShuffle { uint64_t value, got; int source; };
inline void emu_shuffle(void** lanes, unsigned mask) {
  for (int i = 0; i < 32; ++i) {
    if (!(mask >> i & 1)) continue;
    auto* own = static_cast<EmuShuffle*>(lanes[i]);
    const bool there = mask >> own->source & 1;
    own->got = there ? static_cast<EmuShuffle*>(lanes[own->source])->value : ~0ull;
  }
}
template <class T> T emu_shuffle_from(unsigned mask, T value, int source, int line) {
  static_assert(sizeof(T) <= 8, "a shuffle moves up to 8 bytes");
  EmuShuffle own{0, 0, source & 31};
  memcpy(&own.value, &value, sizeof value);
  emu::collective(mask, emu_shuffle, &own, line);
  memcpy(&value, &own.got, sizeof value);
  return value;
}
template <class T> T __shfl_sync(unsigned mask, T value, int source, EMU_LINE) {
  return emu_shuffle_from(mask, value, source, line);
}
template <class T> T __shfl_xor_sync(unsigned mask, T value, int bits, EMU_LINE) {
  return emu_shuffle_from(mask, value, int(emu::here.index % 32) ^ bits, line);
}
template <class T> T __shfl_up_sync(unsigned mask, T value, int by, EMU_LINE) {
  const int lane = emu::here.index % 32;
  return emu_shuffle_from(mask, value, lane >= by ? lane - by : lane, line);
}

struct EmuVote { unsigned value, got; };
inline void emu_ballot(void** lanes, unsigned mask) {
  unsigned votes = 0;
  for (int i = 0; i < 32; ++i)
    if (mask >> i & 1 && static_cast<EmuVote*>(lanes[i])->value) votes |= 1u << i;
  for (int i = 0; i < 32; ++i)
    if (mask >> i & 1) static_cast<EmuVote*>(lanes[i])->got = votes;
}
inline void emu_reduce_add(void** lanes, unsigned mask) {
  unsigned sum = 0;
  for (int i = 0; i < 32; ++i)
    if (mask >> i & 1) sum += static_cast<EmuVote*>(lanes[i])->value;
  for (int i = 0; i < 32; ++i)
    if (mask >> i & 1) static_cast<EmuVote*>(lanes[i])->got = sum;
}
inline unsigned emu_vote(unsigned mask, unsigned value, emu::WarpOp op, int line) {
  EmuVote own{value, 0};
  emu::collective(mask, op, &own, line);
  return own.got;
}
inline unsigned __ballot_sync(unsigned mask, int vote, EMU_LINE) { return emu_vote(mask, vote, emu_ballot, line); }
inline unsigned __reduce_add_sync(unsigned mask, unsigned value, EMU_LINE) {
  return emu_vote(mask, value, emu_reduce_add, line);
}

template <class T> T atomicAdd(T* at, T value) {
  emu::yield();
  const T old = *at;
  *at = old + value;
  return old;
}

// A pointer into shared memory whose every access is checked for a missing barrier. What is reached through a raw
// pointer escapes the check; write `float x = s[i]`, not `auto`.
template <class T> class EmuShared {
 public:
  class Reference {
   public:
    explicit Reference(T* at) : at_(at) {}
    operator T() const { emu::touch(at_, sizeof(T), false); return *at_; }
    Reference& operator=(T value) { emu::touch(at_, sizeof(T), true); *at_ = value; return *this; }
    Reference& operator=(const Reference& other) { return *this = static_cast<T>(other); }
   private:
    T* at_;
  };
  EmuShared(T* at) : at_(at) {}
  Reference operator[](long i) const { return Reference(at_ + i); }
  EmuShared operator+(long i) const { return at_ + i; }
  T* unchecked() const { return at_; }
 private:
  T* at_;
};
