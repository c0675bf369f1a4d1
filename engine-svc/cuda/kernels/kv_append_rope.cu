// Rotary position embedding of queries and keys, and the way of keys and values into the pool, in one pass.
//
// Grid (rows), 256 threads, two neighbouring elements each. Queries are rotated where they lie; keys and values are
// only read there.
#include "kv.h"
#include "numbers.h"

constexpr int D = HEAD_DIM, THREADS = 256;

enum Pairing : int {
  NONE = 0,        // no rotation
  HALVES = 1,      // element i with i + pairs, as in Hugging Face checkpoints
  INTERLEAVED = 2  // element 2i with 2i + 1, as in GGUF files of the llama architecture
};

struct KvAppendRopeArguments {
  u16* qkv;  // [rows][queries, keys, values]
  Kv kv;
  const int* slots;      // [rows] place in the pool: block * 16 + place in the block
  const int* positions;  // [rows]
  const float* angles;   // [positions][pairs cosines, pairs sines]
  int heads;
  int pairs;  // rotated pairs of a head, even; elements beyond them stay as they are
  int pairing;
  int reserved;
};
static_assert(sizeof(KvAppendRopeArguments) == 72, "src/arguments.rs");

DEVICE float2 rotated(float2 v, float cosine, float sine) {
  return make_float2(v.x * cosine - v.y * sine, v.y * cosine + v.x * sine);
}

// Writes the rotation of `from`, a head, to `to`: elements 2j and 2j + 1, and with HALVES their partners.
DEVICE void rotate(const KvAppendRopeArguments& a, const float* cosines, const u16* from, u16* to, int j) {
  const unsigned* in = reinterpret_cast<const unsigned*>(from);
  unsigned* out = reinterpret_cast<unsigned*>(to);
  const float* sines = cosines + a.pairs;
  const bool turns = a.pairing != NONE && j < a.pairs;
  if (!turns) {
    out[j] = in[j];
  } else if (a.pairing == INTERLEAVED) {
    const float2 v = rotated(Number::widen2(in[j]), cosines[j], sines[j]);
    out[j] = Number::narrow2(v.x, v.y);
  } else if (j < a.pairs / 2) {
    const int partner = j + a.pairs / 2;
    const float2 low = Number::widen2(in[j]), high = Number::widen2(in[partner]);
    const float2 even = rotated(make_float2(low.x, high.x), cosines[2 * j], sines[2 * j]);
    const float2 odd = rotated(make_float2(low.y, high.y), cosines[2 * j + 1], sines[2 * j + 1]);
    out[j] = Number::narrow2(even.x, odd.x);
    out[partner] = Number::narrow2(even.y, odd.y);
  }
}

KERNEL(256, 4, kv_append_rope, KvAppendRopeArguments) {
  const int row = blockIdx.x, heads = a.heads, kv_heads = a.kv.kv_heads;
  u16* qkv = a.qkv + static_cast<i64>(row) * (heads + 2 * kv_heads) * D;
  const float* cosines = a.angles + static_cast<i64>(a.positions[row]) * 2 * a.pairs;
  const int block = a.slots[row] / BLOCK_TOKENS, place = a.slots[row] % BLOCK_TOKENS;
  const int begin = a.pairing == NONE ? heads * (D / 2) : 0;
  for (int i = begin + threadIdx.x; i < (heads + 2 * kv_heads) * (D / 2); i += THREADS) {
    const int head = i / (D / 2), j = i % (D / 2);
    u16* from = qkv + head * D;
    if (head < heads) {
      rotate(a, cosines, from, from, j);
    } else if (head < heads + kv_heads) {
      rotate(a, cosines, from, a.kv.layer + key_at<D>(a.kv, block, head - heads, place), j);
    } else {
      const i64 at = key_at<D>(a.kv, block, head - heads - kv_heads, place) + values_after_keys<D>(a.kv);
      reinterpret_cast<unsigned*>(a.kv.layer + at)[j] = reinterpret_cast<const unsigned*>(from)[j];
    }
  }
}
