// Which token follows, on the device, so that a graph of a forward needs no host. Grid (rows), 512 threads.
//
// The choice is that of engine-svc/src/sample: cut to the top_k most likely, then to the smallest set of at least
// top_p, then to those of at least min_p times the most likely; among what is left the noise of (seed, position)
// inverts the distribution function. Nothing is sorted: tokens are put in order by a 64-bit rank, and each of the
// three questions "which is the first rank whose running count, or mass, exceeds a target" is answered by descending
// that rank byte by byte over histograms. Masses are 40-bit fixed-point integers, so that sums do not depend on the
// order in which threads add; a token less likely than 2^-40 of the best has none.
#include "warp.h"

constexpr int THREADS = 512, BINS = 256;
constexpr int ID_BITS = 24;
constexpr float MASS_ONE = 1099511627776.0f;  // 2^40

struct RowSampling {
  float temperature;  // 0: the most likely token, always
  float top_p;
  float min_p;
  unsigned top_k;     // 0: all
  u64 seed;
  unsigned position;  // absolute, of the token to be chosen
  unsigned reserved;
};
static_assert(sizeof(RowSampling) == 32, "src/arguments.rs");

struct SampleArguments {
  const float* logits;          // [rows][vocabulary]
  const RowSampling* sampling;  // [rows]
  int* tokens;                  // [rows]
  int vocabulary;               // at most 2^24
  int reserved;
};
static_assert(sizeof(SampleArguments) == 32, "src/arguments.rs");

// Grows with the logit; NaN is below all. -0 counts as 0.
DEVICE unsigned order_of(float logit) {
  if (logit != logit) return 0;
  const unsigned bits = __float_as_uint(logit + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// Greater is earlier: by logit, then by id; or by id alone.
DEVICE u64 rank_of(float logit, int id, bool by_logit) {
  const u64 rank = (1u << ID_BITS) - 1 - id;
  return by_logit ? static_cast<u64>(order_of(logit)) << ID_BITS | rank : rank;
}
constexpr int RANK_BITS_BY_LOGIT = 32 + ID_BITS, RANK_BITS_BY_ID = ID_BITS;

DEVICE int id_of(u64 rank) { return static_cast<int>((1u << ID_BITS) - 1 - (rank & ((1u << ID_BITS) - 1))); }

// SplitMix64's finalizer (Steele et al. 2014), and what engine-svc/src/sample/noise.rs makes of it.
DEVICE u64 mixed(u64 x) {
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ x >> 27) * 0x94D049BB133111EBull;
  return x ^ x >> 31;
}
DEVICE double uniform(u64 seed, unsigned position) {
  const u64 bits = mixed(mixed(seed ^ 0xD1B54A32D192ED03ull) + position * 0x9E3779B97F4A7C15ull);
  return static_cast<double>(bits >> 11) * (1.0 / 9007199254740992.0);  // 2^-53
}

// One row of logits and the tokens of it that are still in play.
struct Row {
  const float* logits;
  int vocabulary;
  float top, temperature, least;  // the largest logit; tokens with odds below `least` have no mass
  bool by_logit;
  u64 last;  // tokens ranked after this one are out

  DEVICE u64 mass(float logit) const {
    const float odds = expf((logit - top) / temperature);
    return odds >= least ? static_cast<u64>(odds * MASS_ONE) : 0;  // NaN compares false
  }
};

// What a token adds to a running sum.
struct Counts { static DEVICE u64 of(const Row&, float) { return 1; } };
struct Masses { static DEVICE u64 of(const Row& row, float logit) { return row.mass(logit); } };

// Scratch of a block.
struct Scratch {
  Shared<u64> bins;    // BINS
  Shared<u64> result;  // 2
};

// In every thread, the sum over the tokens in play.
template <class Measure> DEVICE u64 total(const Row& row, Scratch& s) {
  u64 sum = 0;
  for (int id = threadIdx.x; id < row.vocabulary; id += THREADS) {
    const float logit = row.logits[id];
    if (rank_of(logit, id, row.by_logit) >= row.last) sum += Measure::of(row, logit);
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) sum += __shfl_xor_sync(ALL_LANES, sum, offset);
  __syncthreads();  // whoever still reads the scratch of before
  if (threadIdx.x % 32 == 0) s.bins[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0;
  for (int warp = 0; warp < THREADS / 32; ++warp) sum += s.bins[warp];
  return sum;
}

// In every thread, the rank of the first token at which the running sum exceeds `target`, which is below the sum over
// the tokens in play: those out of play come after it and need no test.
template <class Measure> DEVICE u64 first_beyond(const Row& row, u64 target, Scratch& s) {
  u64 prefix = 0;
  for (int shift = (row.by_logit ? RANK_BITS_BY_LOGIT : RANK_BITS_BY_ID) - 8; shift >= 0; shift -= 8) {
    __syncthreads();
    for (int i = threadIdx.x; i < BINS; i += THREADS) s.bins[i] = 0;
    __syncthreads();
    for (int id = threadIdx.x; id < row.vocabulary; id += THREADS) {
      const float logit = row.logits[id];
      const u64 rank = rank_of(logit, id, row.by_logit);
      if (rank >> shift >> 8 != prefix) continue;
      const u64 amount = Measure::of(row, logit);
      if (amount) atomicAdd(unchecked(s.bins + (rank >> shift & 255)), amount);
    }
    __syncthreads();
    if (threadIdx.x < 32) {  // a lane sums 8 neighbouring bins, the greatest ranks first
      const int lane = threadIdx.x;
      u64 own = 0;
      for (int i = 0; i < 8; ++i) own += s.bins[255 - lane * 8 - i];
      u64 upto = own;
#pragma unroll
      for (int by = 1; by < 32; by <<= 1) {
        const u64 before = __shfl_up_sync(ALL_LANES, upto, by);
        if (lane >= by) upto += before;
      }
      u64 before = upto - own;
      if (before <= target && target < upto) {  // one lane
        int bin = 255 - lane * 8;
        while (true) {
          const u64 amount = s.bins[bin];
          if (before + amount > target) break;
          before += amount;
          --bin;
        }
        s.result[0] = prefix << 8 | bin;
        s.result[1] = target - before;
      }
    }
    __syncthreads();
    prefix = s.result[0];
    target = s.result[1];
  }
  return prefix;
}

// In every thread, the greatest rank of the row.
DEVICE u64 best_rank(const float* logits, int vocabulary, Scratch& s) {
  u64 best = 0;
  for (int id = threadIdx.x; id < vocabulary; id += THREADS) best = max(best, rank_of(logits[id], id, true));
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) best = max(best, __shfl_xor_sync(ALL_LANES, best, offset));
  if (threadIdx.x % 32 == 0) s.bins[threadIdx.x / 32] = best;
  __syncthreads();
  for (int warp = 0; warp < THREADS / 32; ++warp) best = max(best, static_cast<u64>(s.bins[warp]));
  return best;
}

DEVICE int choose(const float* logits, int vocabulary, const RowSampling& sampling, Scratch& s) {
  const u64 greatest = best_rank(logits, vocabulary, s);
  const int best = id_of(greatest);
  // Nothing above negative infinity: token 0, as the engine's own choice.
  if (greatest >> ID_BITS <= order_of(-infinity())) return 0;
  const float top = logits[best];
  if (sampling.temperature == 0.0f || top == infinity()) return best;

  const bool cuts = sampling.top_k != 0 || sampling.top_p < 1.0f;
  Row row{logits, vocabulary, top, sampling.temperature, 0.0f, cuts, 0};
  if (sampling.top_k != 0 && sampling.top_k < static_cast<unsigned>(vocabulary))
    row.last = first_beyond<Counts>(row, sampling.top_k - 1, s);
  if (sampling.top_p < 1.0f) {
    // The running sum that reaches top_p exceeds the last integer below it.
    const double share = static_cast<double>(sampling.top_p) * static_cast<double>(total<Masses>(row, s));
    const u64 target = static_cast<u64>(ceil(share));
    row.last = first_beyond<Masses>(row, target > 0 ? target - 1 : 0, s);
  }
  row.least = sampling.min_p;
  const u64 sum = total<Masses>(row, s);
  const double target = uniform(sampling.seed, sampling.position) * static_cast<double>(sum);
  return id_of(first_beyond<Masses>(row, min(static_cast<u64>(target), sum - 1), s));
}

KERNEL(512, 2, sample, SampleArguments) {
  SHARED(u64, bins, BINS);
  SHARED(u64, result, 2);
  Scratch scratch{bins, result};
  const int row = blockIdx.x;
  const int token = choose(a.logits + static_cast<i64>(row) * a.vocabulary, a.vocabulary, a.sampling[row], scratch);
  if (threadIdx.x == 0) a.tokens[row] = token;
}
