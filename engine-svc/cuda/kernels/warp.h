// What a warp does together: sums, tensor-core products, asynchronous copies. Each PTX instruction is one function
// with its scalar twin for the CPU beside it. Layouts as in the PTX manual, "Matrix Fragments for mma.m16n8k16".
#pragma once
#include "numbers.h"

// The sum over a warp, in every lane, added in an order that does not depend on timing.
DEVICE float warp_sum(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) x += __shfl_xor_sync(ALL_LANES, x, offset);
  return x;
}

// The sum over a block of WARPS whole warps, in every thread. `partial` holds WARPS floats that nothing else uses
// until the next barrier.
template <int WARPS> DEVICE float block_sum(float x, Shared<float> partial) {
  x = warp_sum(x);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = 0.0f;
#pragma unroll
  for (int warp = 0; warp < WARPS; ++warp) sum += partial[warp];
  return sum;
}

// d[16x8] += a[16x16] * b[16x8]. With g = lane / 4, t = lane % 4:
// a[i]: row g + 8 * (i & 1), columns 2t + 8 * (i >> 1) + {0, 1};  b[i]: rows 2t + 8i + {0, 1}, column g;
// d[i]: row g + 8 * (i >> 1), column 2t + (i & 1).
DEVICE void mma_16x8x16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1);

#ifdef __CUDACC_RTC__
#define MMA_16X8X16(type)                                                                                       \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "     \
               "{%8,%9}, {%0,%1,%2,%3};"                                                                        \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                 \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
template <class T> DEVICE void mma_of(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1);
template <> DEVICE void mma_of<Bf16>(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  MMA_16X8X16("bf16");
}
template <> DEVICE void mma_of<F16>(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  MMA_16X8X16("f16");
}
DEVICE void mma_16x8x16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) { mma_of<Number>(d, a, b0, b1); }
#else
struct MmaLane { float* d; const unsigned* a; unsigned b[2]; };
inline void mma_lanes(void** lanes, unsigned mask) {
  if (mask != ALL_LANES) emu::fail("mma needs a whole warp");
  float A[16][16], B[16][8];
  for (int l = 0; l < 32; ++l) {
    const MmaLane& lane = *static_cast<MmaLane*>(lanes[l]);
    const int g = l / 4, t = l % 4;
    for (int i = 0; i < 4; ++i) {
      const float2 pair = Number::widen2(lane.a[i]);
      const int row = g + 8 * (i & 1), column = 2 * t + 8 * (i >> 1);
      A[row][column] = pair.x, A[row][column + 1] = pair.y;
    }
    for (int i = 0; i < 2; ++i) {
      const float2 pair = Number::widen2(lane.b[i]);
      B[2 * t + 8 * i][g] = pair.x, B[2 * t + 8 * i + 1][g] = pair.y;
    }
  }
  for (int l = 0; l < 32; ++l) {
    for (int i = 0; i < 4; ++i) {
      const int row = l / 4 + 8 * (i >> 1), column = 2 * (l % 4) + (i & 1);
      float& d = static_cast<MmaLane*>(lanes[l])->d[i];
      for (int k = 0; k < 16; ++k) d += A[row][k] * B[k][column];
    }
  }
}
inline void mma_16x8x16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  MmaLane lane{d, a, {b0, b1}};
  emu::collective(ALL_LANES, mma_lanes, &lane, __LINE__);
}
#endif

// Four 8x8 matrices of 16-bit elements from shared memory; lane l names row l % 8 of matrix l / 8. Lane 4g + t gets
// elements 2t and 2t + 1 of row g of each; transposed, of column g.
#ifdef __CUDACC_RTC__
DEVICE void load_matrices(unsigned (&r)[4], const u16* row) {
  const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
DEVICE void load_matrices_transposed(unsigned (&r)[4], const u16* row) {
  const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
#else
struct MatrixLane { unsigned* r; const u16* row; };
inline const u16* matrix_row(void** lanes, int matrix, int row) {
  return static_cast<MatrixLane*>(lanes[matrix * 8 + row])->row;
}
inline void matrix_lanes(void** lanes, unsigned) {
  for (int l = 0; l < 32; ++l)
    for (int i = 0; i < 4; ++i)
      memcpy(&static_cast<MatrixLane*>(lanes[l])->r[i], matrix_row(lanes, i, l / 4) + 2 * (l % 4), 4);
}
inline void matrix_lanes_transposed(void** lanes, unsigned) {
  for (int l = 0; l < 32; ++l)
    for (int i = 0; i < 4; ++i) {
      const unsigned low = matrix_row(lanes, i, 2 * (l % 4))[l / 4], high = matrix_row(lanes, i, 2 * (l % 4) + 1)[l / 4];
      static_cast<MatrixLane*>(lanes[l])->r[i] = low | high << 16;
    }
}
inline void emu_load_matrices(unsigned (&r)[4], const u16* row, emu::WarpOp op) {
  if (reinterpret_cast<uintptr_t>(row) & 15) emu::fail("misaligned ldmatrix row");
  emu::touch(row, 16, false);
  MatrixLane lane{r, row};
  emu::collective(ALL_LANES, op, &lane, __LINE__);
}
inline void load_matrices(unsigned (&r)[4], const u16* row) { emu_load_matrices(r, row, matrix_lanes); }
inline void load_matrices_transposed(unsigned (&r)[4], const u16* row) {
  emu_load_matrices(r, row, matrix_lanes_transposed);
}
#endif

// Starts a copy of `bytes` (0 to 16) from global to shared memory, zero-filled to 16.
DEVICE void copy_async(u16* to, const u16* from, int bytes) {
#ifdef __CUDACC_RTC__
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :: "r"(static_cast<unsigned>(__cvta_generic_to_shared(to))), "l"(from), "r"(bytes) : "memory");
#else
  if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) & 15) emu::fail("misaligned cp.async");
  emu::copy_async(to, from, bytes);
#endif
}
// Ends a group of copies.
DEVICE void copy_commit() {
#ifdef __CUDACC_RTC__
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  emu::copy_commit();
#endif
}
// Waits until at most PENDING of this thread's groups are under way. Others see the copies after a barrier.
template <int PENDING> DEVICE void copy_wait() {
#ifdef __CUDACC_RTC__
  asm volatile("cp.async.wait_group %0;" :: "n"(PENDING) : "memory");
#else
  emu::copy_wait(PENDING);
#endif
}
