// Which token follows, on the device, so that a graph of a forward needs no host. Grid (rows), 512 threads.
//
// The choice is that of engine-svc/src/sample: cut to the top_k most likely, then to the smallest set of at least
// top_p, then to those of at least min_p times the most likely; among what is left the noise of (seed, position)
// inverts the distribution function. Nothing is sorted: tokens are put in order by a 64-bit rank, and each of the
// three questions "which is the first rank whose running count, or mass, exceeds a target" is answered by descending
// that rank byte by byte over histograms, from the first byte that ranks of such a vocabulary use. Masses are 40-bit
// fixed-point integers, so that sums do not depend on the order in which threads add; a token less likely than 2^-40 of
// the best has none.
#include "warp.h"

constexpr int THREADS = 512, BINS = 256;
constexpr float MASS_ONE = 1099511627776.0f;  // 2^40
constexpr int FEW = 4;  // lanes that may as well add by themselves

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
  const float* logits;          // [rows][stride]
  const RowSampling* sampling;  // [rows]
  int* tokens;                  // [rows]
  int vocabulary;               // at most 2^24
  int stride;                   // at least the vocabulary; what is beyond is not read
};
static_assert(sizeof(SampleArguments) == 32, "src/arguments.rs");

// Grows with the logit; NaN is below all. -0 counts as 0.
DEVICE unsigned order_of(float logit) {
  if (logit != logit) return 0;
  const unsigned bits = __float_as_uint(logit + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// Ranks of the ids of a vocabulary: greater is earlier, by id alone or by logit and then by id.
struct Ranks {
  int first;  // the rank of id 0; a multiple of BINS less 1, so that 32 neighbours differ in the last byte only
  int bits;   // of a rank by id, whole bytes

  DEVICE explicit Ranks(int vocabulary)
      : first((vocabulary + BINS - 1) / BINS * BINS - 1), bits(first < 1 << 8 ? 8 : first < 1 << 16 ? 16 : 24) {}
  DEVICE u64 by_id(int id) const { return first - id; }
  DEVICE u64 by_logit(float logit, int id) const { return static_cast<u64>(order_of(logit)) << bits | by_id(id); }
  DEVICE int id(u64 rank) const { return first - static_cast<int>(rank & ((1u << bits) - 1)); }
};

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
  Ranks ranks;
  float top, temperature, least;  // the largest logit; tokens with odds below `least` have no mass
  bool by_logit;
  u64 last;  // tokens ranked after this one are out

  DEVICE u64 rank(float logit, int id) const { return by_logit ? ranks.by_logit(logit, id) : ranks.by_id(id); }
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
  Shared<unsigned> low, high;  // BINS sums in halves: of 32 bits an addition to shared memory is one instruction
  Shared<u64> warps;           // what each warp has found
  Shared<u64> result;          // 2

  DEVICE u64 bin(int i) const {
    const unsigned l = low[i], h = high[i];
    return static_cast<u64>(h) << 32 | l;
  }
  DEVICE void clear(int i) const {
    low[i] = 0;
    high[i] = 0;
  }
  DEVICE void add(int bin, u64 amount) const {
    const unsigned l = static_cast<unsigned>(amount), before = atomicAdd(unchecked(low + bin), l);
    const unsigned h = static_cast<unsigned>(amount >> 32) + (before + l < l);
    if (h) atomicAdd(unchecked(high + bin), h);
  }
};

// Each lane of a warp adds `amount` to its bin. Additions to one bin wait for one another, and ranks agree in their
// first bytes: what many lanes have for one bin is summed first, until the rest is spread out.
DEVICE void add_all(const Scratch& s, int bin, u64 amount) {
  const int lane = threadIdx.x % 32;
  unsigned left = __ballot_sync(ALL_LANES, amount != 0);
  while (left) {
    const int leader = __ffs(left) - 1, its_bin = __shfl_sync(ALL_LANES, bin, leader);
    const bool with_it = amount != 0 && bin == its_bin;
    const unsigned together = __ballot_sync(ALL_LANES, with_it);
    if (__popc(together) < FEW) break;
    // An amount has 41 bits at most, so that the sums of its lower 20 and of the rest have less than 32.
    const unsigned low = __reduce_add_sync(ALL_LANES, with_it ? static_cast<unsigned>(amount) & 0xfffffu : 0);
    const unsigned high = __reduce_add_sync(ALL_LANES, with_it ? static_cast<unsigned>(amount >> 20) : 0);
    if (lane == leader) s.add(bin, (static_cast<u64>(high) << 20) + low);
    left &= ~together;
  }
  if (left >> lane & 1) s.add(bin, amount);
}

// In every thread, the sum over the tokens in play.
template <class Measure> DEVICE u64 total(const Row& row, Scratch& s) {
  u64 sum = 0;
  for (int id = threadIdx.x; id < row.vocabulary; id += THREADS) {
    const float logit = row.logits[id];
    if (row.rank(logit, id) >= row.last) sum += Measure::of(row, logit);
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) sum += __shfl_xor_sync(ALL_LANES, sum, offset);
  __syncthreads();  // whoever still reads the scratch of before
  if (threadIdx.x % 32 == 0) s.warps[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0;
  for (int warp = 0; warp < THREADS / 32; ++warp) sum += s.warps[warp];
  return sum;
}

// In every thread, the rank of the first token at which the running sum exceeds `target`, which is below the sum over
// the tokens in play: those out of play come after it and need no test.
template <class Measure> DEVICE u64 first_beyond(const Row& row, u64 target, Scratch& s) {
  u64 prefix = 0;
  for (int shift = row.ranks.bits + (row.by_logit ? 32 : 0) - 8; shift >= 0; shift -= 8) {
    for (int i = threadIdx.x; i < BINS; i += THREADS) s.clear(i);
    __syncthreads();
    for (int first = 0; first < row.vocabulary; first += THREADS) {  // all lanes of a warp go together
      const int id = first + threadIdx.x;
      const float logit = id < row.vocabulary ? row.logits[id] : 0.0f;
      const u64 rank = row.rank(logit, id);
      const bool counts = id < row.vocabulary && rank >> shift >> 8 == prefix;
      add_all(s, static_cast<int>(rank >> shift & 255), counts ? Measure::of(row, logit) : 0);
    }
    __syncthreads();
    if (threadIdx.x < 32) {  // a lane sums 8 neighbouring bins, the greatest ranks first
      const int lane = threadIdx.x;
      u64 own = 0;
      for (int i = 0; i < 8; ++i) own += s.bin(255 - lane * 8 - i);
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
          const u64 amount = s.bin(bin);
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
DEVICE u64 best_rank(const float* logits, int vocabulary, const Ranks& ranks, Scratch& s) {
  u64 best = 0;
  for (int id = threadIdx.x; id < vocabulary; id += THREADS) best = max(best, ranks.by_logit(logits[id], id));
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) best = max(best, __shfl_xor_sync(ALL_LANES, best, offset));
  if (threadIdx.x % 32 == 0) s.warps[threadIdx.x / 32] = best;
  __syncthreads();
  for (int warp = 0; warp < THREADS / 32; ++warp) best = max(best, static_cast<u64>(s.warps[warp]));
  return best;
}

DEVICE int choose(const float* logits, int vocabulary, const RowSampling& sampling, Scratch& s) {
  const Ranks ranks(vocabulary);
  const u64 greatest = best_rank(logits, vocabulary, ranks, s);
  const int best = ranks.id(greatest);
  // Nothing above negative infinity: token 0, as the engine's own choice.
  if (greatest >> ranks.bits <= order_of(-infinity())) return 0;
  const float top = logits[best];
  if (sampling.temperature == 0.0f || top == infinity()) return best;

  const bool cuts = sampling.top_k != 0 || sampling.top_p < 1.0f;
  Row row{logits, vocabulary, ranks, top, sampling.temperature, 0.0f, cuts, 0};
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
  return ranks.id(first_beyond<Masses>(row, min(static_cast<u64>(target), sum - 1), s));
}

KERNEL(512, 2, sample, SampleArguments) {
  SHARED(unsigned, low, BINS);
  SHARED(unsigned, high, BINS);
  SHARED(u64, warps, THREADS / 32);
  SHARED(u64, result, 2);
  Scratch scratch{low, high, warps, result};
  const int row = blockIdx.x;
  const int token = choose(a.logits + static_cast<i64>(row) * a.stride, a.vocabulary, a.sampling[row], scratch);
  if (threadIdx.x == 0) a.tokens[row] = token;
}
