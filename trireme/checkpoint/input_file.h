// A file that is read and not mapped, so that a failing disk gives an error and
// not a signal.
#pragma once
#include <trireme/base/descriptor.h>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace trireme::checkpoint {

class InputFile {
 public:
  // Throws Error(not_found), or Error(io), also if `path` is not a regular file.
  explicit InputFile(std::filesystem::path path);

  uint64_t size() const { return size_; }
  int descriptor() const { return descriptor_.get(); }
  // Fills `bytes` with the file's bytes from `offset`. Throws Error(io), or Error(corrupt) if the
  // file ends too early. Any number of threads.
  void read(uint64_t offset, std::span<std::byte> bytes) const;
  // Does the same for several blocks of memory, one after the other.
  void read(uint64_t offset, std::span<const std::span<std::byte>> parts) const;

 private:
  std::filesystem::path path_;
  Descriptor descriptor_;
  uint64_t size_ = 0;
};

}  // namespace trireme::checkpoint
