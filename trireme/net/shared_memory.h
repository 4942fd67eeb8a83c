// Memory that several ranks of one host see. They are threads of one process, or processes that
// received its descriptor.
//
// Between processes it is a memfd. The size of /dev/shm does not limit it, it has no name that
// could be left behind, and it goes with the last process that holds it, however that process
// ends. Between threads it is anonymous memory, which may use huge pages. It may also be a file on
// a disk, which threads and processes map, and of which the system keeps in memory what it can.
#pragma once
#include <trireme/base/descriptor.h>
#include <cstddef>
#include <string>
#include <utility>

namespace trireme::net {

enum class Sharing { threads, processes };

// The use of a memory, as messages name it.
struct MemoryUse {
  MemoryUse(std::string what) : purpose(std::move(what)) {}
  MemoryUse(const char* what) : purpose(what) {}
  MemoryUse(std::string what, std::string its_remedy, std::string its_folder_key = "")
      : purpose(std::move(what)),
        remedy(std::move(its_remedy)),
        folder_key(std::move(its_folder_key)) {}
  std::string purpose;  // A word, such as "parameters".
  // The remedy if there is too little memory, or space on a disk. Empty: that for what ranks
  // share, or for the files of memory.swap_dir.
  std::string remedy = {};
  std::string folder_key = {};  // The key that names the folder of a file. Empty: memory.swap_dir.
};

class SharedMemory {
 public:
  // Reserves addresses for `bytes`, all zero. A range has memory only after reserve(). Throws
  // Error(io).
  static SharedMemory create(size_t bytes, Sharing sharing, MemoryUse use);
  // Makes a file without a name in `folder`, for so many bytes, all zero. reserve() takes the
  // space on the disk. Throws Error(io) that names the folder.
  static SharedMemory create_in(const std::string& folder, size_t bytes, MemoryUse use);
  // Maps the same memory from a descriptor that another process sent. `folder` is that of a file,
  // or empty. Throws Error(io | corrupt).
  static SharedMemory open(Descriptor descriptor, MemoryUse use, std::string folder = {});
  SharedMemory() = default;
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  int descriptor() const { return descriptor_.get(); }  // -1 between threads, but for a file.

  // No process can change the size any more. A process that shrank it would end the others by
  // SIGBUS. Between processes only. Throws Error(io).
  void seal_size();
  // The memory stays; only no further process can be given it.
  void close_descriptor() { descriptor_ = Descriptor(); }

  // Provides memory for this range, for every process, from now on. If there is too little, this
  // call throws Error(io) with the sizes and a remedy, so no later access dies of SIGBUS. Any
  // process that has the memory open may call it; a second call does no harm.
  void reserve(size_t from, size_t bytes);
  // Enters the range in this process's page tables, so that no step pays for it later (0.2-0.4 ms
  // a MB, once). Call it after reserve(). It does nothing for a file.
  void prefault(size_t from, size_t bytes) const;

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  Descriptor descriptor_;
  MemoryUse use_ = "";
  std::string folder_;  // The place of a file on a disk.
};

// The memory that this process may still take: the smallest of the amount that the system has
// available and the amounts that its control groups allow.
int64_t available_memory_bytes();

}  // namespace trireme::net
