// The first rows of the residual stream. Grid (rows), 256 threads.
//
// A decode forward may start before the host has seen the tokens of the one before: `sources` then says in which
// of its rows a token was sampled, and the token never leaves the device.
#include "numbers.h"

constexpr int THREADS = 256;

struct EmbedArguments {
  float* x;                    // [rows][width]
  const u16* token_table;      // [vocabulary][width]
  const u16* position_table;   // [context][width]; null where positions enter by rotation
  const int* tokens;           // [rows]
  const int* sources;          // [rows] row of `sampled` that has the token; below 0: it is in `tokens`
  const int* sampled;          // tokens of the forward before
  const int* positions;        // [rows]
  int width;                   // even
  int reserved;
};
static_assert(sizeof(EmbedArguments) == 64, "src/arguments.rs");

KERNEL(256, 4, embed, EmbedArguments) {
  const int row = blockIdx.x, source = a.sources[row];
  const i64 token = source < 0 ? a.tokens[row] : a.sampled[source];
  const unsigned* embedding = reinterpret_cast<const unsigned*>(a.token_table + token * a.width);
  const unsigned* position =
      reinterpret_cast<const unsigned*>(a.position_table ? a.position_table + static_cast<i64>(a.positions[row]) * a.width : nullptr);
  float2* x = reinterpret_cast<float2*>(a.x + static_cast<i64>(row) * a.width);
  for (int i = threadIdx.x; i < a.width / 2; i += THREADS) {
    float2 v = Number::widen2(embedding[i]);
    if (position) {
      const float2 p = Number::widen2(position[i]);
      v = make_float2(v.x + p.x, v.y + p.y);
    }
    x[i] = v;
  }
}
