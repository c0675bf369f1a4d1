// Norms of rows, fused with the residual add before them.
//
// Grid (rows), 256 threads. Each thread owns the same elements in every pass, so that what it wrote to x is what it
// reads again. The residual stream is 32-bit; what comes from and goes to the multiplications is 16-bit.
#include "warp.h"

constexpr int THREADS = 256;

struct NormArguments {
  float* x;            // [rows][width] residual stream
  const u16* delta;    // [rows][width] added to x, which is written back; null: nothing is added
  const float* scale;  // [width]
  const float* bias;   // [width]; null: none
  const int* rows;     // which row of x and delta each row of out is of; null: the same
  u16* out;            // [rows][width]
  int width;           // a multiple of 4
  float epsilon;
};
static_assert(sizeof(NormArguments) == 56, "src/arguments.rs");

// x += delta over the row; returns this thread's share of the sum of x, or of its squares.
template <bool SQUARES> DEVICE float add_delta(const NormArguments& a, float4* x, const uint2* delta) {
  float sum = 0.0f;
  for (int i = threadIdx.x; i < a.width / 4; i += THREADS) {
    float4 v = x[i];
    if (a.delta) {
      const uint2 bits = delta[i];
      const float2 low = Number::widen2(bits.x), high = Number::widen2(bits.y);
      v = make_float4(v.x + low.x, v.y + low.y, v.z + high.x, v.w + high.y);
      x[i] = v;
    }
    sum += SQUARES ? v.x * v.x + v.y * v.y + (v.z * v.z + v.w * v.w) : v.x + v.y + (v.z + v.w);
  }
  return sum;
}

// out = (x - mean) * factor * scale + bias.
DEVICE void write_scaled(const NormArguments& a, const float4* x, uint2* out, float mean, float factor) {
  const float4* scale = reinterpret_cast<const float4*>(a.scale);
  const float4* bias = reinterpret_cast<const float4*>(a.bias);
  for (int i = threadIdx.x; i < a.width / 4; i += THREADS) {
    const float4 v = x[i], s = scale[i];
    float4 b = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (a.bias) b = bias[i];
    out[i] = make_uint2(
        Number::narrow2(fmaf((v.x - mean) * factor, s.x, b.x), fmaf((v.y - mean) * factor, s.y, b.y)),
        Number::narrow2(fmaf((v.z - mean) * factor, s.z, b.z), fmaf((v.w - mean) * factor, s.w, b.w)));
  }
}

// Zhang and Sennrich 2019.
KERNEL(256, 4, rms_norm, NormArguments) {
  SHARED(float, partial, THREADS / 32);
  const i64 row = a.rows ? a.rows[blockIdx.x] : static_cast<int>(blockIdx.x);
  float4* x = reinterpret_cast<float4*>(a.x + row * a.width);
  const uint2* delta = reinterpret_cast<const uint2*>(a.delta ? a.delta + row * a.width : nullptr);
  const float squares = block_sum<THREADS / 32>(add_delta<true>(a, x, delta), partial);
  uint2* out = reinterpret_cast<uint2*>(a.out + static_cast<i64>(blockIdx.x) * a.width);
  write_scaled(a, x, out, 0.0f, rsqrtf(squares / a.width + a.epsilon));
}

// Ba et al. 2016. The variance is taken around the mean, not as a difference of large sums.
KERNEL(256, 4, layer_norm, NormArguments) {
  SHARED(float, partial, 2 * (THREADS / 32));
  const i64 row = a.rows ? a.rows[blockIdx.x] : static_cast<int>(blockIdx.x);
  float4* x = reinterpret_cast<float4*>(a.x + row * a.width);
  const uint2* delta = reinterpret_cast<const uint2*>(a.delta ? a.delta + row * a.width : nullptr);
  const float mean = block_sum<THREADS / 32>(add_delta<false>(a, x, delta), partial) / a.width;
  float squares = 0.0f;
  for (int i = threadIdx.x; i < a.width / 4; i += THREADS) {
    const float4 v = x[i];
    const float dx = v.x - mean, dy = v.y - mean, dz = v.z - mean, dw = v.w - mean;
    squares += dx * dx + dy * dy + (dz * dz + dw * dw);
  }
  squares = block_sum<THREADS / 32>(squares, partial + THREADS / 32);
  uint2* out = reinterpret_cast<uint2*>(a.out + static_cast<i64>(blockIdx.x) * a.width);
  write_scaled(a, x, out, mean, rsqrtf(squares / a.width + a.epsilon));
}

struct HeadNormArguments {
  u16* rows;           // normalized in place
  const float* scale;  // [dim]
  i64 stride;          // elements from a row to the next
  int first;           // column of the first head
  int heads;
  int dim;  // of a head, even
  float epsilon;
};
static_assert(sizeof(HeadNormArguments) == 40, "src/arguments.rs");

// Grid (rows, heads / 4 rounded up), 4 warps: RMS norm of each head of each row, a warp a head.
KERNEL(128, 4, head_norm, HeadNormArguments) {
  const int head = blockIdx.y * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (head >= a.heads) return;
  unsigned* x = reinterpret_cast<unsigned*>(a.rows + blockIdx.x * a.stride + a.first + head * a.dim);
  float squares = 0.0f;
  for (int i = lane; i < a.dim / 2; i += 32) {
    const float2 v = Number::widen2(x[i]);
    squares += v.x * v.x + v.y * v.y;
  }
  const float factor = rsqrtf(warp_sum(squares) / a.dim + a.epsilon);
  for (int i = lane; i < a.dim / 2; i += 32) {
    const float2 v = Number::widen2(x[i]);
    x[i] = Number::narrow2(v.x * factor * a.scale[2 * i], v.y * factor * a.scale[2 * i + 1]);
  }
}
