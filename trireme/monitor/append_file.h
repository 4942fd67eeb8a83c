// A file that grows by whole records.
#pragma once
#include <filesystem>
#include <string_view>

namespace trireme::monitor {

// Each record goes to the kernel at once. It therefore survives a crash of this process, and
// readers see it without delay. One thread at a time may use an object.
class AppendFile {
 public:
  // Creates missing folders. Throws Error(io) naming the path.
  explicit AppendFile(std::filesystem::path path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  void append(std::string_view record);  // Throws Error(io) naming the path and the reason.

 private:
  std::filesystem::path path_;
  int file_ = -1;
};

}  // namespace trireme::monitor
