// A file that is written from front to back, and compressed on its way.
#pragma once
#include <trireme/base/descriptor.h>
#include <trireme/records/unpack.h>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace trireme::records {

class ShardFile {
 public:
  // Throws Error(io) naming the file, as all of its methods do.
  ShardFile(std::filesystem::path path, Packing packing);
  ~ShardFile();
  ShardFile(ShardFile&&) noexcept;
  ShardFile& operator=(ShardFile&&) noexcept;

  const std::filesystem::path& path() const { return path_; }
  // Before they are compressed.
  int64_t bytes() const { return bytes_; }
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  // Writes the rest, and returns when it is on the disk.
  void finish();

 private:
  struct Packer;
  void flush();
  std::filesystem::path path_;
  Descriptor file_;
  int64_t bytes_ = 0;
  std::string buffer_;
  std::unique_ptr<Packer> packer_;  // Null: the bytes are written as they are.
};

}  // namespace trireme::records
