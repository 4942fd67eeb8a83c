// Reads the memory of another process of the same user (process_vm_readv), without its help. A
// system may forbid that: yama's ptrace_scope, another name space of processes, seccomp.
#pragma once
#include <cstddef>
#include <cstdint>

namespace trireme::comm {

// A process tells this about itself, so that others can find out whether they may read it. The
// number must live as long as others may try.
struct MemoryProbe {
  int64_t process = 0;
  uint64_t address = 0;  // Of the number.
  uint64_t number = 0;
};
MemoryProbe probe_of_this_process(const uint64_t& number);
uint64_t number_for_probes();  // A random one.

// Whether this process can read the one that the probe comes from. A process of another name space
// may have the same id; its memory does not have the number.
bool can_read(const MemoryProbe& probe);
// Copies from the memory of the process that the probe comes from. Returns false if it is gone,
// also if another process has its id by now.
bool read_memory(const MemoryProbe& probe, uint64_t address, void* to, size_t bytes);

}  // namespace trireme::comm
