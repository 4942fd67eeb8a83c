// Common parts of the checkpoint tests: a temporary folder, small tensors, and files that are
// damaged on purpose.
#pragma once
#include <gtest/gtest.h>
#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/checkpoint/safetensors.h>
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace trireme::checkpoint {

class TemporaryFolder : public testing::Test {
 protected:
  explicit TemporaryFolder(
      const std::filesystem::path& base = std::filesystem::temp_directory_path()) {
    std::string pattern = (base / "trireme-checkpoint-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryFolder() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  // Every name in `folder`, sorted.
  static std::vector<std::string> names_in(const std::filesystem::path& folder) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  std::filesystem::path folder_;
};

// A tensor that owns its bytes. Element i of a float tensor is start + i; other dtypes hold bytes
// that count up from start.
struct OwnedTensor {
  OwnedTensor(std::string name, std::vector<int64_t> shape,
              plan::DType dtype = plan::DType::float32, int start = 0)
      : spec{std::move(name), std::move(shape), dtype}, bytes(static_cast<size_t>(spec.bytes())) {
    for (size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<std::byte>(start + static_cast<int>(i));
    for (size_t i = 0; dtype == plan::DType::float32 && i < bytes.size() / 4; ++i) {
      const float value = static_cast<float>(start) + static_cast<float>(i);
      std::memcpy(&bytes[4 * i], &value, 4);
    }
  }
  TensorView view() const { return {spec, bytes}; }

  plan::TensorSpec spec;
  std::vector<std::byte> bytes;
};

// Writes a new file without fsync, so that thousands of calls take a second.
inline void overwrite(const std::filesystem::path& path, const std::string& content) {
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary) << content;
}

inline void flip_bit(const std::filesystem::path& path, size_t byte, int bit = 0) {
  std::string content = read_file(path);
  content.at(byte) = static_cast<char>(content[byte] ^ (1 << bit));
  overwrite(path, content);
}

// Returns the error that `action` throws. The test fails if there is none.
inline Error error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return Error(ErrorCode::internal, "test", "no error");
}

inline testing::AssertionResult fails_with(ErrorCode code, const std::vector<std::string>& words,
                                           const std::function<void()>& action) {
  const Error error = error_of(action);
  const std::string text = error.what();
  if (error.code() != code)
    return testing::AssertionFailure() << to_string(error.code()) << ": " << text;
  for (const std::string& word : words)
    if (text.find(word) == std::string::npos)
      return testing::AssertionFailure() << "no \"" << word << "\" in: " << text;
  return testing::AssertionSuccess();
}

}  // namespace trireme::checkpoint
