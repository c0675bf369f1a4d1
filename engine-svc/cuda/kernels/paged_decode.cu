// Attention of one query token per sequence over paged keys and values.
//
// Grid (any number of split columns, kv heads * head chunks, rows), 4 warps. The keys of a row are cut into splits
// at fixed token boundaries; a block takes every gridDim.x-th split. D/8 lanes (rounded up to a power of two) share
// one key, 8 dimensions each; each such group keeps its own online softmax, and groups meet once at the end. What a
// row gets depends on its own keys alone: not on the grid, not on its neighbours.
#include "kv.h"
#include "warp.h"

constexpr int D = HEAD_DIM, WARPS = 4, UNROLL = 2;
constexpr int LANES_PER_KEY = D <= 64 ? 8 : 16, KEYS_PER_WARP = 32 / LANES_PER_KEY;
constexpr int KEYS_PER_STEP = KEYS_PER_WARP * UNROLL;
constexpr float LOWEST = -1e30f;  // finite: an empty group minus an empty group is 0, not NaN

struct PagedDecodeArguments {
  u16* out;               // [rows][heads][D]
  const u16* queries;     // rows of [heads][D], query_stride elements apart
  Kv kv;
  const int* block_table;  // [rows][table_stride]; entries past the context are never read
  const int* context;      // [rows] keys to attend to; 0 for a padding row, whose output is zero
  float* partial_out;      // [rows][heads][splits][D], not yet divided by the sum
  float2* partial_softmax; // [rows][heads][splits]: largest score (base 2) and sum
  i64 query_stride;
  float scale_log2;        // softmax scale * log2(e)
  int heads, table_stride, blocks_per_split, splits;
  int reserved;
};
static_assert(sizeof(PagedDecodeArguments) == 104, "src/arguments.rs");

// One split of a row, for H of the query heads that share a kv head, by all threads of a block.
template <int H> DEVICE void decode_split(const PagedDecodeArguments& a, int split, Shared<float> sums,
                                          Shared<float2> softmax, Shared<int> blocks) {
  const int row = blockIdx.z, tid = threadIdx.x, warp = tid / 32, lane = tid % 32;
  const int group = a.heads / a.kv.kv_heads, chunks = (group + H - 1) / H;
  const int kv_head = blockIdx.y / chunks, first = blockIdx.y % chunks * H;  // of the group's heads
  const int span = a.blocks_per_split * BLOCK_TOKENS, context = max(a.context[row], 0);
  const int begin = split * span, end = min(context, begin + span);
  const int d = lane % LANES_PER_KEY * 8;
  const bool holds = d < D;  // 80 and 96 leave some lanes of a group idle

  const int count = (end - begin + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
  const int* table = a.block_table + static_cast<i64>(row) * a.table_stride + split * a.blocks_per_split;
  for (int i = tid; i < count; i += WARPS * 32) blocks[i] = table[i];

  float q[H][8], out[H][8], top[H], sum[H];
#pragma unroll
  for (int h = 0; h < H; ++h) {
    const int head = kv_head * group + min(first + h, group - 1);  // spare heads repeat the last
    uint4 bits = make_uint4(0, 0, 0, 0);
    if (holds) bits = load16(a.queries + row * a.query_stride + head * D + d);
    widen8(bits, q[h]);
    top[h] = LOWEST;
    sum[h] = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      q[h][i] *= a.scale_log2;
      out[h][i] = 0.0f;
    }
  }
  __syncthreads();

  const u16* keys = a.kv.layer;
  const u16* values = a.kv.layer + values_after_keys<D>(a.kv);
  for (int base = begin + warp * KEYS_PER_STEP; base < end; base += WARPS * KEYS_PER_STEP) {
    uint4 k[UNROLL], v[UNROLL];
    bool valid[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {  // all loads first
      const int key = base + u * KEYS_PER_WARP + lane / LANES_PER_KEY;
      valid[u] = key < end;
      k[u] = v[u] = make_uint4(0, 0, 0, 0);  // unused places may hold NaN
      if (valid[u] && holds) {
        const int block = blocks[(key - begin) / BLOCK_TOKENS];
        const i64 at = key_at<D>(a.kv, block, kv_head, key % BLOCK_TOKENS) + d;
        k[u] = load16(keys + at);
        v[u] = load16(values + at);
      }
    }
    float score[H][UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      float f[8];
      widen8(k[u], f);
#pragma unroll
      for (int h = 0; h < H; ++h) {
        float x = 0.0f;
#pragma unroll
        for (int i = 0; i < 8; ++i) x = fmaf(q[h][i], f[i], x);
#pragma unroll
        for (int o = LANES_PER_KEY / 2; o > 0; o >>= 1) x += __shfl_xor_sync(ALL_LANES, x, o);
        score[h][u] = valid[u] ? x : -infinity();
      }
    }
#pragma unroll
    for (int h = 0; h < H; ++h) {
      float higher = top[h];
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) higher = fmaxf(higher, score[h][u]);
      const float correction = exp2f(top[h] - higher);
      top[h] = higher;
      sum[h] *= correction;
#pragma unroll
      for (int i = 0; i < 8; ++i) out[h][i] *= correction;
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) sum[h] += score[h][u] = exp2f(score[h][u] - higher);
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      float f[8];
      widen8(v[u], f);
#pragma unroll
      for (int h = 0; h < H; ++h)
#pragma unroll
        for (int i = 0; i < 8; ++i) out[h][i] = fmaf(score[h][u], f[i], out[h][i]);
    }
  }

#pragma unroll
  for (int h = 0; h < H; ++h) {  // the groups of one warp
#pragma unroll
    for (int o = LANES_PER_KEY; o < 32; o <<= 1) {
      const float higher = fmaxf(top[h], __shfl_xor_sync(ALL_LANES, top[h], o));
      const float correction = exp2f(top[h] - higher);
      top[h] = higher;
      sum[h] *= correction;
      sum[h] += __shfl_xor_sync(ALL_LANES, sum[h], o);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        out[h][i] *= correction;
        out[h][i] += __shfl_xor_sync(ALL_LANES, out[h][i], o);
      }
    }
    if (lane < LANES_PER_KEY && holds) {
      if (d == 0) softmax[warp * H + h] = make_float2(top[h], sum[h]);
#pragma unroll
      for (int i = 0; i < 8; ++i) sums[(warp * H + h) * D + d + i] = out[h][i];
    }
  }
  __syncthreads();

  for (int i = tid; i < H * D; i += WARPS * 32) {  // the warps
    const int h = i / D, head = kv_head * group + first + h;
    if (first + h >= group) break;
    float higher = LOWEST, total = 0.0f, o = 0.0f;
    for (int w = 0; w < WARPS; ++w) {
      const float2 part = softmax[w * H + h];
      higher = fmaxf(higher, part.x);
    }
    for (int w = 0; w < WARPS; ++w) {
      const float2 part = softmax[w * H + h];
      const float correction = exp2f(part.x - higher);
      total = fmaf(part.y, correction, total);
      o = fmaf(sums[(w * H + h) * D + i % D], correction, o);
    }
    const i64 out_row = static_cast<i64>(row) * a.heads + head;
    if (context <= span) {  // the only split
      a.out[out_row * D + i % D] = Number::narrow(total > 0.0f ? o / total : 0.0f);
    } else {
      a.partial_out[(out_row * a.splits + split) * D + i % D] = o;
      if (i % D == 0) a.partial_softmax[out_row * a.splits + split] = make_float2(higher, total);
    }
  }
}

// Dynamic shared memory: [WARPS][H][D] floats, [WARPS][H] pairs of floats, blocks_per_split ints.
template <int H> DEVICE void decode(const PagedDecodeArguments& a) {
  DYNAMIC_SHARED(shared);
  float* sums = reinterpret_cast<float*>(shared);
  float2* softmax = reinterpret_cast<float2*>(sums + WARPS * H * D);
  int* blocks = reinterpret_cast<int*>(softmax + WARPS * H);
  const int span = a.blocks_per_split * BLOCK_TOKENS, context = max(a.context[blockIdx.z], 0);
  for (int split = blockIdx.x; split == 0 || split * span < context; split += gridDim.x)
    decode_split<H>(a, split, sums, softmax, blocks);
}

KERNEL(128, 4, paged_decode_1, PagedDecodeArguments) { decode<1>(a); }
KERNEL(128, 4, paged_decode_2, PagedDecodeArguments) { decode<2>(a); }
KERNEL(128, 4, paged_decode_4, PagedDecodeArguments) { decode<4>(a); }

// Grid (heads, rows), D threads: joins the splits of a row that has more than one.
KERNEL(HEAD_DIM, 1, paged_decode_join, PagedDecodeArguments) {
  const int row = blockIdx.y, d = threadIdx.x, span = a.blocks_per_split * BLOCK_TOKENS;
  const int context = a.context[row];
  if (context <= span) return;
  const i64 out_row = static_cast<i64>(row) * a.heads + blockIdx.x;
  const int splits = (context + span - 1) / span;
  const float2* softmax = a.partial_softmax + out_row * a.splits;
  float higher = LOWEST, total = 0.0f, out = 0.0f;
  for (int s = 0; s < splits; ++s) higher = fmaxf(higher, softmax[s].x);
  for (int s = 0; s < splits; ++s) {
    const float correction = exp2f(softmax[s].x - higher);
    total = fmaf(softmax[s].y, correction, total);
    out = fmaf(a.partial_out[(out_row * a.splits + s) * D + d], correction, out);
  }
  a.out[out_row * D + d] = Number::narrow(out / total);
}
