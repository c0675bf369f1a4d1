// The element-wise part of the feed-forward block. Grid (any), 256 threads, 8 elements at a time.
#include "numbers.h"

constexpr int THREADS = 256;

struct ActivationArguments {
  const u16* in;  // silu_mul: [rows][gate, up]; gelu: [rows][width]
  u16* out;       // [rows][width]; gelu: may be `in`
  i64 rows;
  int width;  // a multiple of 8
  int reserved;
};
static_assert(sizeof(ActivationArguments) == 32, "src/arguments.rs");

DEVICE uint4 narrow8(const float (&f)[8]) {
  return make_uint4(Number::narrow2(f[0], f[1]), Number::narrow2(f[2], f[3]), Number::narrow2(f[4], f[5]),
                    Number::narrow2(f[6], f[7]));
}

DEVICE void store16(u16* to, const uint4& v) { *reinterpret_cast<uint4*>(to) = v; }

KERNEL(256, 4, silu_mul, ActivationArguments) {
  const int per_row = a.width / 8;
  const i64 step = static_cast<i64>(gridDim.x) * THREADS;
  for (i64 i = static_cast<i64>(blockIdx.x) * THREADS + threadIdx.x; i < a.rows * per_row; i += step) {
    const i64 row = i / per_row;
    const u16* gate = a.in + row * 2 * a.width + i % per_row * 8;
    float g[8], u[8];
    widen8(load16(gate), g);
    widen8(load16(gate + a.width), u);
#pragma unroll
    for (int k = 0; k < 8; ++k) g[k] = g[k] / (1.0f + expf(-g[k])) * u[k];
    store16(a.out + i * 8, narrow8(g));
  }
}

struct Tanh {
  static DEVICE float gelu(float x) {
    const float inner = 0.7978845608f * (x + 0.044715f * x * x * x);  // sqrt(2 / pi)
    return 0.5f * x * (1.0f + tanhf(inner));
  }
};

struct Erf {
  static DEVICE float gelu(float x) { return 0.5f * x * (1.0f + erff(x * 0.7071067812f)); }  // sqrt(1 / 2)
};

template <class Form> DEVICE void gelu(const ActivationArguments& a) {
  const i64 step = static_cast<i64>(gridDim.x) * THREADS, count = a.rows * (a.width / 8);
  for (i64 i = static_cast<i64>(blockIdx.x) * THREADS + threadIdx.x; i < count; i += step) {
    const uint4 bits = *reinterpret_cast<const uint4*>(a.in + i * 8);  // not load16: out may be in
    float x[8];
    widen8(bits, x);
#pragma unroll
    for (int k = 0; k < 8; ++k) x[k] = Form::gelu(x[k]);
    store16(a.out + i * 8, narrow8(x));
  }
}

KERNEL(256, 4, gelu_tanh, ActivationArguments) { gelu<Tanh>(a); }
KERNEL(256, 4, gelu_erf, ActivationArguments) { gelu<Erf>(a); }
