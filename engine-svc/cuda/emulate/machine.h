// The machine that executes CUDA kernels on the CPU: what kernels see of it, and what tests see of it.
//
// One block runs at a time; each of its threads is a fiber that gives way only at a barrier, a warp collective or
// an atomic. Seed 0 goes in thread order, other seeds shuffle threads and turn the order of the blocks.
//
// Reported as errors: barrier divergence, warp operations that do not match, deadlock, access out of bounds (guard
// pages), writes to read-only inputs, misaligned vectors, unordered accesses to shared memory whatever the schedule
// (see Shared in cuda.h), a kernel that never ends although it keeps synchronising. Uninitialised shared memory is
// poisoned. Not modelled: weak memory order, races in global memory, bank conflicts, registers, speed, approximate
// arithmetic, the tensor cores' own order of summation.
#pragma once
#include <stddef.h>
#include <stdint.h>

struct uint3 { unsigned x, y, z; };

namespace emu {
// Coordinates of the running thread and the shape of its launch.
struct Here {
  uint3 thread, block, block_dim, grid_dim;
  unsigned index;  // of the thread in its block
};
extern Here here;

// Called once for all lanes that met, with each lane's argument.
using WarpOp = void (*)(void** lane_arguments, unsigned mask);

void barrier(int line);
void collective(unsigned mask, WarpOp op, void* argument, int line);
// Other threads may run here; seed 0 does not let them.
void yield();
[[noreturn]] void fail(const char* what);

// Shared memory of the running block.
struct SharedSite { uint64_t launch; char* at; };
char* static_shared(SharedSite& site, size_t bytes);
char* dynamic_shared();
// Notes an access to shared memory and fails when another thread's is not ordered with it.
void touch(const void* at, size_t bytes, bool write);

// cp.async: the copy happens at the latest moment allowed (in the wait), with odd seeds at once.
void copy_async(void* to, const void* from, int bytes);
void copy_commit();
void copy_wait(unsigned pending_groups);
}  // namespace emu

// For tests. One launch at a time in a process.
extern "C" {
// Device memory between guard areas, every byte 0xFF. `low` puts it against the lower guard instead of the upper.
void* emu_alloc(size_t bytes, const char* name, int low);
void emu_free(void* memory);
// From now on a write is an error.
void emu_protect(void* memory);
// Null when the kernel ran well; else what went wrong and where, valid until the next launch.
const char* emu_launch(void (*kernel)(const void*), const void* arguments, const unsigned grid[3],
                       const unsigned block[3], size_t dynamic_shared_bytes, uint64_t seed);
}
