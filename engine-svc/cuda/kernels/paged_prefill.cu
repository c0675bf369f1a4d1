// Attention of the prompt rows of many sequences over paged keys and values, on tensor cores.
//
// Grid (tiles, heads), 4 warps of 16 query rows. A tile is up to 64 neighbouring rows of one sequence. Keys come in
// tiles of 64 at absolute positions 0, 64, …, so that a row is summed in the same order whatever chunk it came in
// and whoever its neighbours are. Copies of the next keys and values run while the tensor cores work.
#include "kv.h"
#include "warp.h"

constexpr int D = HEAD_DIM, WARPS = 4, ROWS = 16 * WARPS, KEYS = 64;
constexpr int STRIDE = D + 8;  // of a row in shared memory: ldmatrix finds its eight rows in eight banks
constexpr float LOWEST = -1e30f;

// Rows of one sequence that a block takes; as many keys as positions up to the last row.
struct PrefillTile {
  int first_row;       // in queries and out
  int rows;            // 1 to 64; 0: a padding tile
  int first_position;  // of first_row in its sequence
  int sequence;        // row of the block table
};
static_assert(sizeof(PrefillTile) == 16, "src/arguments.rs");

struct PagedPrefillArguments {
  u16* out;            // [rows][heads][D]
  const u16* queries;  // rows of [heads][D], query_stride elements apart
  Kv kv;
  const int* block_table;  // [sequences][table_stride]
  const PrefillTile* tiles;
  i64 query_stride;
  float scale_log2;  // softmax scale * log2(e)
  int heads, table_stride, reserved;
};
static_assert(sizeof(PagedPrefillArguments) == 80, "src/arguments.rs");

// Starts copying KEYS rows of keys or values from position `first` on; zeros from `end` on.
DEVICE void fetch(Shared<u16> to, const u16* from, const Kv& kv, const int* table, int kv_head, int first, int end) {
  for (int i = threadIdx.x; i < KEYS * D / 8; i += WARPS * 32) {
    const int row = i / (D / 8), d = i % (D / 8) * 8, key = first + row;
    const bool valid = key < end;
    const int block = valid ? table[key / BLOCK_TOKENS] : 0;
    const i64 at = valid ? key_at<D>(kv, block, kv_head, key % BLOCK_TOKENS) + d : 0;
    copy_async(unchecked(to + (row * STRIDE + d)), from + at, valid ? 16 : 0);
  }
}

KERNEL(128, 2, paged_prefill, PagedPrefillArguments) {
  SHARED(u16, keys, KEYS * STRIDE);  // and before that, the queries
  SHARED(u16, values, KEYS * STRIDE);
  const PrefillTile tile = a.tiles[blockIdx.x];
  if (tile.rows == 0) return;
  const int head = blockIdx.y, kv_head = head / (a.heads / a.kv.kv_heads);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, end = tile.first_position + tile.rows;
  const int* table = a.block_table + static_cast<i64>(tile.sequence) * a.table_stride;
  const u16* all_values = a.kv.layer + values_after_keys<D>(a.kv);
  const bool works = warp * 16 < tile.rows;
  const int last = min(tile.first_position + warp * 16 + 15, end - 1);  // position that this warp sees

  for (int i = threadIdx.x; i < ROWS * D / 8; i += WARPS * 32) {
    const int row = i / (D / 8), d = i % (D / 8) * 8;
    const bool valid = row < tile.rows;
    const i64 at = (tile.first_row + (valid ? row : 0)) * a.query_stride + head * D + d;
    copy_async(unchecked(keys + (row * STRIDE + d)), a.queries + at, valid ? 16 : 0);
  }
  copy_commit();
  copy_wait<0>();
  __syncthreads();
  unsigned q[D / 16][4];
#pragma unroll
  for (int k = 0; k < D / 16; ++k)
    load_matrices(q[k], unchecked(keys + ((warp * 16 + lane % 16) * STRIDE + k * 16 + lane / 16 * 8)));
  __syncthreads();

  float out[D / 8][4] = {}, top[2] = {LOWEST, LOWEST}, sum[2] = {};
  fetch(keys, a.kv.layer, a.kv, table, kv_head, 0, end);
  copy_commit();
  for (int first = 0; first < end; first += KEYS) {
    const bool sees = works && first <= last;  // else every key of the tile is masked: nothing would change
    fetch(values, all_values, a.kv, table, kv_head, first, end);
    copy_commit();
    copy_wait<1>();  // the keys
    __syncthreads();
    float score[KEYS / 8][4] = {};
    if (sees) {
#pragma unroll
      for (int k = 0; k < D / 16; ++k) {
#pragma unroll
        for (int n = 0; n < KEYS / 8; n += 2) {  // matrices: keys 0-7, dims +0 and +8; keys 8-15, the same
          unsigned b[4];
          const int key = n * 8 + lane / 16 * 8 + lane % 8, d = k * 16 + lane / 8 % 2 * 8;
          load_matrices(b, unchecked(keys + (key * STRIDE + d)));
          mma_16x8x16(score[n], q[k], b[0], b[1]);
          mma_16x8x16(score[n + 1], q[k], b[2], b[3]);
        }
      }
    }
    __syncthreads();
    if (first + KEYS < end) fetch(keys, a.kv.layer, a.kv, table, kv_head, first + KEYS, end);
    copy_commit();

    unsigned p[KEYS / 16][4];
    if (sees) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {  // rows lane / 4 and lane / 4 + 8
        const int position = tile.first_position + warp * 16 + lane / 4 + 8 * half;
        float higher = top[half];
#pragma unroll
        for (int n = 0; n < KEYS / 8; ++n) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            float& s = score[n][2 * half + i];
            const int key = first + n * 8 + 2 * (lane % 4) + i;
            s = key <= position ? s * a.scale_log2 : -infinity();
            higher = fmaxf(higher, s);
          }
        }
        higher = fmaxf(higher, __shfl_xor_sync(ALL_LANES, higher, 1));
        higher = fmaxf(higher, __shfl_xor_sync(ALL_LANES, higher, 2));
        const float correction = exp2f(top[half] - higher);
        top[half] = higher;
        sum[half] *= correction;
#pragma unroll
        for (int n = 0; n < D / 8; ++n) {
          out[n][2 * half] *= correction;
          out[n][2 * half + 1] *= correction;
        }
#pragma unroll
        for (int n = 0; n < KEYS / 8; ++n) {
          const float low = exp2f(score[n][2 * half] - higher), high = exp2f(score[n][2 * half + 1] - higher);
          sum[half] += low + high;
          p[n / 2][half + n % 2 * 2] = Number::narrow2(low, high);
        }
      }
    }
    copy_wait<1>();  // the values
    __syncthreads();
    if (sees) {
#pragma unroll
      for (int k = 0; k < KEYS / 16; ++k) {
#pragma unroll
        for (int n = 0; n < D / 8; n += 2) {  // matrices: dims 0-7, keys +0 and +8; dims 8-15, the same
          unsigned b[4];
          const int key = k * 16 + lane % 16, d = n * 8 + lane / 16 * 8;
          load_matrices_transposed(b, unchecked(values + (key * STRIDE + d)));
          mma_16x8x16(out[n], p[k], b[0], b[1]);
          mma_16x8x16(out[n + 1], p[k], b[2], b[3]);
        }
      }
    }
    __syncthreads();
  }
  if (!works) return;

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float total = sum[half];
    total += __shfl_xor_sync(ALL_LANES, total, 1);
    total += __shfl_xor_sync(ALL_LANES, total, 2);
    const int row = warp * 16 + lane / 4 + 8 * half;
    if (row >= tile.rows) continue;
    u16* to = a.out + (static_cast<i64>(tile.first_row + row) * a.heads + head) * D + 2 * (lane % 4);
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      *reinterpret_cast<unsigned*>(to + n * 8) =
          Number::narrow2(out[n][2 * half] / total, out[n][2 * half + 1] / total);
    }
  }
}
