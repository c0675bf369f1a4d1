// Where a key or value lies: the one place that says so on the device. The engine's side is src/kv.rs.
//
// A block holds 16 tokens of every layer in one run, so that it is copied at once:
//   [layer][keys, values][kv head][16 tokens][head dimension], 16-bit numbers.
// The 16 tokens of a head are neighbours: a warp reads whole 128-byte lines, and rows are what ldmatrix wants.
#pragma once
#include "device.h"

constexpr int BLOCK_TOKENS = 16;
static_assert(HEAD_DIM % 16 == 0 && HEAD_DIM <= 128, "no kernels for this head dimension");

struct Kv {
  u16* layer;        // this layer's part of block 0
  i64 block_stride;  // elements from a block to the next
  int kv_heads;
  int reserved;
};
static_assert(sizeof(Kv) == 24, "src/arguments.rs");

template <int D> DEVICE i64 key_at(const Kv& kv, int block, int kv_head, int place) {
  return block * kv.block_stride + (kv_head * BLOCK_TOKENS + place) * D;
}
template <int D> DEVICE i64 values_after_keys(const Kv& kv) {
  return static_cast<i64>(kv.kv_heads) * BLOCK_TOKENS * D;
}
