// A file that is hashed while it is written, and has its name only once it is whole and on the disk. No torch.
#pragma once
#include <trireme/base/hash.h>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace trireme::checkpoint {

class OutputFile {
 public:
  // Opens a file beside `path`; what `path` holds stays until finish(). Throws Error(io).
  explicit OutputFile(std::filesystem::path path);
  ~OutputFile();  // Without finish(): removes what was written.
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // Throws Error(io) naming path, reason (such as "No space left on device") and the bytes written so far.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  // fsync, rename, fsync of the folder. Returns the SHA-256. Throws Error(io). Call it once, last.
  std::string finish();

 private:
  [[noreturn]] void fail(const char* doing, int error_number) const;

  std::filesystem::path path_, unfinished_;
  int descriptor_ = -1;
  uint64_t written_ = 0;
  Sha256 sha_;
};

// Makes renames inside `folder` survive a loss of power. Throws Error(io).
void sync_folder(const std::filesystem::path& folder);

}  // namespace trireme::checkpoint
