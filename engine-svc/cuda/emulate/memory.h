// Guarded memory and the record of accesses to shared memory.
#pragma once
#include <signal.h>

#include <string>
#include <vector>

#include "machine.h"

namespace emu {
constexpr size_t PAGE = 4096, GUARD = 1 << 20;

// [guard][data][guard]; `p` holds `bytes`, as close to one guard as alignment to 16 allows.
struct Region {
  char *map, *p;
  size_t len, bytes;
  std::string name;
};

Region& allocate(size_t bytes, const char* name, bool low);
void release(char* p);
// Where `at` lies, if in or around a region: "out-of-bounds write of 'q' at byte 96 of 64".
std::string describe(const char* at, bool write);
// The first buffer with a byte written between it and its guards; empty when there is none.
std::string stray_write();

// Which accesses to a shared word are ordered with which: threads meet at block barriers, lanes at warp barriers.
class Shadow {
 public:
  explicit Shadow(size_t bytes) : words_(bytes / 4) {}
  // Empty, or "write after read by thread 3".
  std::string access(size_t offset, size_t bytes, bool write, int thread, uint32_t block_epoch, uint32_t warp_epoch);

 private:
  struct Access { uint32_t block_epoch, warp_epoch; int thread; };
  struct Word { Access write, reads[2]; };
  std::vector<Word> words_;
};
}  // namespace emu
