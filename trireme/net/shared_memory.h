// Memory that several ranks of one host see: threads of a process, or processes that were handed
// its descriptor.
//
// Between processes it is a memfd: not bound by the size of /dev/shm, without a name that could
// stay behind, gone with the last process that holds it however that ends. Between threads it is
// anonymous memory, which may use huge pages.
#pragma once
#include <trireme/base/descriptor.h>
#include <cstddef>
#include <string>

namespace trireme::net {

enum class Sharing { threads, processes };

class SharedMemory {
 public:
  // Addresses for `bytes`, all zero. Memory stands behind a range only after reserve(). `purpose`
  // is for messages ("parameters"). Throws Error(io).
  static SharedMemory create(size_t bytes, Sharing sharing, std::string purpose);
  // The same memory from a descriptor that another process sent. Throws Error(io | corrupt).
  static SharedMemory open(Descriptor descriptor, std::string purpose);
  SharedMemory() = default;
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  int descriptor() const { return descriptor_.get(); }  // -1 between threads.

  // Memory for this range, for every process, from now on: where there is too little, this throws
  // Error(io) with sizes and remedy, and no later access dies of SIGBUS. Any process that has it
  // open may call it; twice does no harm.
  void reserve(size_t from, size_t bytes);
  // Enters the range in this process's page tables, so that no step pays for it later (0.2-0.4 ms a
  // MB, once). After reserve().
  void prefault(size_t from, size_t bytes) const;

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  Descriptor descriptor_;
  std::string purpose_;
};

// Memory that this process may still take: the least of what the system has available and what its
// control groups allow.
int64_t available_memory_bytes();

}  // namespace trireme::net
