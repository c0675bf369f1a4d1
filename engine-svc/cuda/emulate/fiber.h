// A switch between two stacks. x86-64 saves the callee-saved registers by hand; elsewhere ucontext does.
#pragma once
#include <string.h>
#include <ucontext.h>

namespace emu {
constexpr size_t STACK = 64 << 10;

struct Context {
  void* sp = nullptr;
  ucontext_t* other = nullptr;
};

#ifdef __x86_64__
extern "C" void emu_switch(void** save, void* load);
asm(".text\n.type emu_switch,@function\nemu_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
    ".size emu_switch,.-emu_switch\n");

inline void prepare(Context& context, char* stack, void (*entry)()) {
  void** top = reinterpret_cast<void**>(stack + STACK) - 8;  // six registers, the entry, and what keeps it aligned
  memset(top, 0, 64);
  top[6] = reinterpret_cast<void*>(entry);
  context.sp = top;
}
inline void switch_to(Context& from, Context& to) { emu_switch(&from.sp, to.sp); }
#else
inline void prepare(Context& context, char* stack, void (*entry)()) {
  if (!context.other) context.other = new ucontext_t;
  getcontext(context.other);
  context.other->uc_stack.ss_sp = stack;
  context.other->uc_stack.ss_size = STACK;
  context.other->uc_link = nullptr;
  makecontext(context.other, entry, 0);
}
inline void switch_to(Context& from, Context& to) {
  if (!from.other) from.other = new ucontext_t;
  swapcontext(from.other, to.other);
}
#endif
}  // namespace emu
