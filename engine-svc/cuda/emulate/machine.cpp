#include "machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <vector>

#include "fiber.h"
#include "memory.h"

namespace emu {
Here here;

namespace {
constexpr size_t ARENA = 1 << 20, SHARED_MAX = 227 << 10;
constexpr uint64_t MOST_SWITCHES = 400'000'000;
constexpr unsigned NOBODY = ~0u;

struct Copy { char* to; const char* from; int bytes; unsigned group; };
enum State : char { READY, AT_BARRIER, AT_COLLECTIVE, EXITED };

struct Fiber {
  Context context;
  char* stack;
  uint3 at;
  State state;
  int line;            // where it waits
  unsigned mask;       // what it waits for, at a collective
  WarpOp op;
  void* argument;
  unsigned group;      // of its next asynchronous copies
  std::vector<Copy> copies;
};

struct Machine {
  std::vector<Fiber> fibers;
  Context caller;
  unsigned threads, live, at_barrier, current;
  unsigned exists[32], ready[32], waiting[32];  // lanes by warp
  uint32_t block_epoch = 0, warp_epoch[32] = {};
  uint64_t launch = 0, seed, random, switches;
  void (*kernel)(const void*);
  const void* arguments;
  char *arena = nullptr, *dynamic;
  size_t static_bytes, dynamic_bytes;
  std::string error;
};
Machine m;
Shadow shadow(ARENA);

uint64_t next_random() {  // SplitMix64
  uint64_t z = m.random += 0x9E3779B97F4A7C15ull;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ z >> 27) * 0x94D049BB133111EBull;
  return z ^ z >> 31;
}

Context& context_of(unsigned thread) { return thread == NOBODY ? m.caller : m.fibers[thread].context; }

void resume(unsigned thread) {
  const unsigned from = m.current;
  m.current = thread;
  if (thread != NOBODY) here.thread = m.fibers[thread].at, here.index = thread;
  ++m.switches;
  switch_to(context_of(from), context_of(thread));
}

// The next thread that can run, looked for cyclically after the current one or from a random place.
unsigned pick() {
  const unsigned warps = (m.threads + 31) / 32, after = m.current == NOBODY ? m.threads - 1 : m.current;
  unsigned warp = after / 32, lane = after % 32 + 1;
  if (m.seed) {
    const uint64_t r = next_random();
    if ((r & 7) == 0 || !m.ready[warp]) warp = (r >> 8) % warps;
    lane = (r >> 40) % 32;
  }
  unsigned lanes = lane < 32 ? m.ready[warp] & (~0u << lane) : 0;
  for (unsigned tried = 0; !lanes && tried < warps; ++tried) lanes = m.ready[warp = (warp + 1) % warps];
  return lanes ? warp * 32 + __builtin_ctz(lanes) : NOBODY;
}

std::string who_waits() {  // "32 at __syncthreads line 80, 3 exited"
  std::vector<std::pair<std::string, int>> groups;
  for (unsigned i = 0; i < m.threads; ++i) {
    const Fiber& f = m.fibers[i];
    std::string what = f.state == EXITED ? "exited" : f.state == READY ? "able to run" : "";
    if (what.empty()) what = std::string(f.state == AT_BARRIER ? "at __syncthreads" : "at a warp operation") + " line " + std::to_string(f.line);
    auto group = std::find_if(groups.begin(), groups.end(), [&](auto& g) { return g.first == what; });
    if (group == groups.end()) groups.push_back({what, 1}); else ++group->second;
  }
  std::string text;
  for (auto& group : groups) text += (text.empty() ? "" : ", ") + std::to_string(group.second) + " " + group.first;
  return text;
}

[[noreturn]] void fail_with(const std::string& what) { fail(what.c_str()); }

void block_on(State state) {
  Fiber& f = m.fibers[m.current];
  f.state = state;
  m.ready[m.current / 32] &= ~(1u << m.current % 32);
  const unsigned next = pick();
  if (next == NOBODY) fail_with("deadlock: " + who_waits());
  resume(next);
}

void release_barrier() {
  int line = -1;
  for (unsigned i = 0; i < m.threads; ++i) {
    const Fiber& f = m.fibers[i];
    if (f.state != AT_BARRIER) continue;
    if (line >= 0 && line != f.line) fail_with("barrier divergence: " + who_waits());
    line = f.line;
  }
  if (m.live < m.threads) fail_with("barrier divergence: " + who_waits());
  for (unsigned i = 0; i < m.threads; ++i) m.fibers[i].state = READY;
  std::copy(m.exists, m.exists + 32, m.ready);
  m.at_barrier = 0;
  ++m.block_epoch;
}

void thread_main() {
  m.kernel(m.arguments);
  m.fibers[m.current].state = EXITED;
  m.ready[m.current / 32] &= ~(1u << m.current % 32);
  if (--m.live == 0) resume(NOBODY);
  if (m.at_barrier == m.live) release_barrier();
  const unsigned next = pick();
  if (next == NOBODY) fail_with("deadlock: " + who_waits());
  resume(next);
  __builtin_unreachable();
}

void on_fault(int signal_number, siginfo_t* info, void* context) {
  if (m.current == NOBODY) {  // not a kernel's
    signal(signal_number, SIG_DFL);
    return;
  }
  if (signal_number == SIGFPE) fail("integer division by zero");
#ifdef __x86_64__
  const bool write = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2;
#else
  const bool write = false;
#endif
  fail_with(describe(static_cast<char*>(info->si_addr), write));
}

void catch_faults() {
  static char stack[64 << 10];
  stack_t alternate{};
  alternate.ss_sp = stack;
  alternate.ss_size = sizeof stack;
  sigaltstack(&alternate, nullptr);
  struct sigaction action{};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  for (int s : {SIGSEGV, SIGBUS, SIGFPE}) sigaction(s, &action, nullptr);
}

void start_block(uint3 at) {
  here.block = at;
  m.live = m.threads;
  m.at_barrier = 0;
  ++m.block_epoch;
  memset(m.arena, 0xFF, m.static_bytes);
  memset(m.dynamic, 0xFF, m.dynamic_bytes);
  for (unsigned w = 0; w < 32; ++w) {
    const unsigned lanes = m.threads > w * 32 ? std::min(32u, m.threads - w * 32) : 0;
    m.waiting[w] = 0;
    m.exists[w] = m.ready[w] = lanes == 32 ? ~0u : (1u << lanes) - 1;
  }
  for (unsigned t = 0; t < m.threads; ++t) {
    Fiber& f = m.fibers[t];
    f.at = {t % here.block_dim.x, t / here.block_dim.x % here.block_dim.y, t / here.block_dim.x / here.block_dim.y};
    f.state = READY;
    f.group = 0;
    f.copies.clear();
    prepare(f.context, f.stack, thread_main);
  }
}

void finish(const Copy& copy) {
  touch(copy.to, 16, true);
  memcpy(copy.to, copy.from, copy.bytes);
  memset(copy.to + copy.bytes, 0, 16 - copy.bytes);
}

void run_blocks() {
  const uint64_t gx = here.grid_dim.x, gy = here.grid_dim.y, blocks = gx * gy * here.grid_dim.z;
  const uint64_t start = m.seed ? next_random() % blocks : 0;
  for (uint64_t b = 0; b < blocks && m.error.empty(); ++b) {
    uint64_t i = (start + b) % blocks;
    if (m.seed & 1) i = blocks - 1 - i;
    start_block({unsigned(i % gx), unsigned(i / gx % gy), unsigned(i / gx / gy)});
    m.current = NOBODY;
    resume(pick());  // comes back when the block has ended or failed
    m.current = NOBODY;
  }
}
}  // namespace

void fail(const char* what) {  // leaves the block where it stands: kernels own nothing that has to be destroyed
  char at[120];
  snprintf(at, sizeof at, " [block (%u,%u,%u) thread %u seed %llu]", here.block.x, here.block.y, here.block.z,
           here.index, static_cast<unsigned long long>(m.seed));
  m.error = std::string(what) + at;
  resume(NOBODY);
  __builtin_unreachable();
}

void yield() {
  if (m.switches > MOST_SWITCHES) fail("the kernel does not end");
  if (!m.seed) return;
  const unsigned next = pick();
  if (next != m.current) resume(next);
}

void barrier(int line) {
  m.fibers[m.current].line = line;
  if (++m.at_barrier < m.live) return block_on(AT_BARRIER);
  m.fibers[m.current].state = AT_BARRIER;
  release_barrier();
  yield();
}

void collective(unsigned mask, WarpOp op, void* argument, int line) {
  const unsigned warp = m.current / 32, lane = m.current % 32;
  mask &= m.exists[warp];
  if (!(mask >> lane & 1)) fail_with("a lane is not in its own mask, line " + std::to_string(line));
  Fiber& f = m.fibers[m.current];
  f.argument = argument, f.mask = mask, f.op = op, f.line = line;
  m.waiting[warp] |= 1u << lane;
  if ((m.waiting[warp] & mask) != mask) return block_on(AT_COLLECTIVE);
  void* arguments[32] = {};
  for (unsigned i = 0; i < 32; ++i) {
    if (!(mask >> i & 1)) continue;
    Fiber& other = m.fibers[warp * 32 + i];
    if (other.mask != mask || other.op != op || other.line != line)
      fail_with("warp operations differ, lines " + std::to_string(line) + " and " + std::to_string(other.line));
    arguments[i] = other.argument;
    other.state = READY;
  }
  if (op) op(arguments, mask);
  else if (mask == m.exists[warp]) ++m.warp_epoch[warp];  // only __syncwarp orders memory
  m.waiting[warp] &= ~mask;
  m.ready[warp] |= mask;
  yield();
}

char* static_shared(SharedSite& site, size_t bytes) {
  if (site.launch != m.launch) {
    site = {m.launch, m.arena + m.static_bytes};
    m.static_bytes += (bytes + 31) / 16 * 16;
    memset(site.at, 0xFF, bytes);
  }
  return site.at;
}

char* dynamic_shared() { return m.dynamic; }

void touch(const void* at, size_t bytes, bool write) {
  const size_t offset = static_cast<const char*>(at) - m.arena;
  if (offset >= ARENA) return;  // the access itself faults
  const std::string race =
      shadow.access(offset, bytes, write, m.current, m.block_epoch, m.warp_epoch[m.current / 32]);
  if (!race.empty()) fail_with("shared-memory race: " + race + ", no barrier between");
}

void copy_async(void* to, const void* from, int bytes) {
  Fiber& f = m.fibers[m.current];
  const Copy copy{static_cast<char*>(to), static_cast<const char*>(from), bytes, f.group};
  if (m.seed & 1) finish(copy); else f.copies.push_back(copy);
}

void copy_commit() { ++m.fibers[m.current].group; }

void copy_wait(unsigned pending_groups) {
  Fiber& f = m.fibers[m.current];
  size_t done = 0;
  for (; done < f.copies.size() && f.copies[done].group + pending_groups < f.group; ++done) finish(f.copies[done]);
  f.copies.erase(f.copies.begin(), f.copies.begin() + done);
}
}  // namespace emu

extern "C" const char* emu_launch(void (*kernel)(const void*), const void* arguments, const unsigned grid[3],
                                  const unsigned block[3], size_t dynamic_shared_bytes, uint64_t seed) {
  using namespace emu;
  catch_faults();
  m.current = NOBODY;
  if (!m.arena) m.arena = allocate(ARENA, "shared memory", true).p;
  here.grid_dim = {grid[0], grid[1], grid[2]};
  here.block_dim = {block[0], block[1], block[2]};
  m.threads = block[0] * block[1] * block[2];
  const bool grid_fits = grid[0] && grid[1] && grid[2] && grid[1] <= 65535 && grid[2] <= 65535;
  if (!m.threads || m.threads > 1024 || block[2] > 64 || !grid_fits) return "bad launch shape";
  if (dynamic_shared_bytes > SHARED_MAX) return "too much dynamic shared memory";
  while (m.fibers.size() < m.threads) {
    Fiber fiber{};
    fiber.stack = allocate(STACK, "thread stack", false).p;
    m.fibers.push_back(fiber);
  }
  m.kernel = kernel, m.arguments = arguments;
  m.seed = m.random = seed;
  m.switches = 0;
  m.static_bytes = 0;
  m.dynamic_bytes = (dynamic_shared_bytes + 15) / 16 * 16;
  m.dynamic = m.arena + ARENA - m.dynamic_bytes;
  ++m.launch;
  m.error.clear();
  run_blocks();
  if (m.error.empty()) m.error = stray_write();
  return m.error.empty() ? nullptr : m.error.c_str();
}
