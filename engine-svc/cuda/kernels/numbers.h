// The two 16-bit float formats, each as a set of conversions over raw bits. Kernels take one as `Number`:
// -DNUMBER=Bf16 or F16. Pairs lie in an `unsigned`, the first of them in the low half.
#pragma once
#include "device.h"

struct Bf16 {
  static DEVICE float widen(u16 bits) { return __uint_as_float(static_cast<unsigned>(bits) << 16); }
  static DEVICE float2 widen2(unsigned pair) {
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
  }
  static DEVICE u16 narrow(float value) {
#ifdef __CUDACC_RTC__
    u16 bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
#else
    const unsigned u = __float_as_uint(value);
    if (value != value) return 0x7fff;
    return static_cast<u16>((u + 0x7fff + (u >> 16 & 1)) >> 16);
#endif
  }
  static DEVICE unsigned narrow2(float low, float high) {
#ifdef __CUDACC_RTC__
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return narrow(low) | static_cast<unsigned>(narrow(high)) << 16;
#endif
  }
};

struct F16 {
  static DEVICE float widen(u16 bits) {
#ifdef __CUDACC_RTC__
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
#else
    _Float16 value;
    memcpy(&value, &bits, sizeof value);
    return static_cast<float>(value);
#endif
  }
  static DEVICE float2 widen2(unsigned pair) {
    return make_float2(widen(static_cast<u16>(pair)), widen(static_cast<u16>(pair >> 16)));
  }
  static DEVICE u16 narrow(float value) {
#ifdef __CUDACC_RTC__
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
#else
    const _Float16 half = static_cast<_Float16>(value);
    u16 bits;
    memcpy(&bits, &half, sizeof bits);
    return bits;
#endif
  }
  static DEVICE unsigned narrow2(float low, float high) {
#ifdef __CUDACC_RTC__
    unsigned pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return narrow(low) | static_cast<unsigned>(narrow(high)) << 16;
#endif
  }
};

typedef NUMBER Number;

DEVICE void widen8(const uint4& v, float (&f)[8]) {
  const unsigned pairs[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = Number::widen2(pairs[i]);
    f[2 * i] = pair.x;
    f[2 * i + 1] = pair.y;
  }
}
