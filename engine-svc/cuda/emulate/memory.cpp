#include "memory.h"

#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <list>

namespace emu {
static std::list<Region> regions;

Region& allocate(size_t bytes, const char* name, bool low) {
  const size_t data = (std::max<size_t>(bytes, 1) + PAGE - 1) / PAGE * PAGE, len = data + 2 * GUARD;
  void* map = mmap(nullptr, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) abort();
  char* start = static_cast<char*>(map) + GUARD;
  mprotect(start, data, PROT_READ | PROT_WRITE);
  memset(start, 0xFF, data);
  const size_t slack = low ? 0 : (data - bytes) & ~size_t(15);
  regions.push_back({static_cast<char*>(map), start + slack, len, bytes, name});
  return regions.back();
}

static std::list<Region>::iterator region_of(const char* p) {
  return std::find_if(regions.begin(), regions.end(), [&](const Region& r) { return r.p == p; });
}

void release(char* p) {
  auto region = region_of(p);
  munmap(region->map, region->len);
  regions.erase(region);
}

std::string describe(const char* at, bool write) {
  for (const Region& r : regions) {
    if (at < r.map || at >= r.map + r.len) continue;
    const bool inside = at >= r.p && at < r.p + r.bytes;
    const std::string how = inside ? "write to read-only" : write ? "out-of-bounds write of" : "out-of-bounds read of";
    return how + " '" + r.name + "' at byte " + std::to_string(at - r.p) + " of " + std::to_string(r.bytes);
  }
  return write ? "write to a bad address" : "read of a bad address";
}

std::string stray_write() {
  for (const Region& r : regions) {
    const char *begin = r.map + GUARD, *end = r.map + r.len - GUARD;
    const auto touched = [](char c) { return c != '\xFF'; };
    if (std::any_of(begin, const_cast<const char*>(r.p), touched)) return "stray write before '" + r.name + "'";
    if (std::any_of(const_cast<const char*>(r.p + r.bytes), end, touched)) return "stray write after '" + r.name + "'";
  }
  return {};
}

std::string Shadow::access(size_t offset, size_t bytes, bool write, int thread, uint32_t block_epoch,
                           uint32_t warp_epoch) {
  const Access now{block_epoch, warp_epoch, thread};
  const auto unordered = [&](const Access& a) {
    const bool same_warp = a.thread / 32 == thread / 32;
    return a.block_epoch == block_epoch && a.thread != thread && !(same_warp && a.warp_epoch != warp_epoch);
  };
  for (size_t i = offset / 4; i <= (offset + bytes - 1) / 4; ++i) {
    Word& word = words_[i];
    const Access* other = nullptr;
    if (unordered(word.write)) other = &word.write;
    for (const Access& read : word.reads)
      if (write && !other && unordered(read)) other = &read;
    if (other) {
      return std::string(write ? "write after " : "read after ") + (other == &word.write ? "write" : "read") +
             " by thread " + std::to_string(other->thread);
    }
    if (write) {
      word.write = now;
    } else {
      if (word.reads[0].thread != thread) word.reads[1] = word.reads[0];
      word.reads[0] = now;
    }
  }
  return {};
}
}  // namespace emu

extern "C" {
void* emu_alloc(size_t bytes, const char* name, int low) { return emu::allocate(bytes, name, low != 0).p; }
void emu_free(void* memory) { emu::release(static_cast<char*>(memory)); }
void emu_protect(void* memory) {
  const emu::Region& r = *emu::region_of(static_cast<char*>(memory));
  mprotect(r.map + emu::GUARD, r.len - 2 * emu::GUARD, PROT_READ);
}
}
