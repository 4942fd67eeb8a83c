// Files for the tests of this room: a folder that a test owns, and writers of IDX, gzip
// and zstd.
#pragma once
#include <gtest/gtest.h>
#include <trireme/base/error.h>
#include <unistd.h>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "../base/deflated.h"
#include "../base/zstd_packed.h"

namespace trireme::data {

class Folder {
 public:
  Folder() {
    static std::atomic<int> made{0};
    path_ = std::filesystem::temp_directory_path() /
            ("trireme-data-" + std::to_string(getpid()) + "-" + std::to_string(made++));
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(const std::string& name, const std::string& content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

// An IDX file: magic number, sizes (big-endian), values.
inline std::string idx(uint32_t magic, const std::vector<uint32_t>& sizes,
                       const std::string& values) {
  std::string bytes;
  const auto append = [&bytes](uint32_t number) {
    for (int shift = 24; shift >= 0; shift -= 8)
      bytes += static_cast<char>(number >> shift & 0xff);
  };
  append(magic);
  for (const uint32_t size : sizes) append(size);
  return bytes + values;
}

// Expects that `action` throws an Error with this code, and with a message that
// contains all `parts`.
template <typename Action>
void expect_error(Action action, ErrorCode code, const std::vector<std::string>& parts) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(to_string(error.code()), to_string(code)) << error.what();
    for (const std::string& part : parts)
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << error.what() << "\nhas no " << part;
    return;
  }
  ADD_FAILURE() << "nothing was thrown";
}

}  // namespace trireme::data
