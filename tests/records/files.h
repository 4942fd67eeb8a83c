// Files for the tests of this room: a folder that a test owns, and gzip and zstd of a text.
#pragma once
#include <gtest/gtest.h>
#include <trireme/records/open.h>
#include <unistd.h>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "../base/deflated.h"
#include "../base/expect_error.h"
#include "../base/zstd_packed.h"

namespace trireme::records {

class Folder {
 public:
  Folder() {
    // In memory, where fsync costs nothing.
    const char* const memory = "/dev/shm";
    const std::filesystem::path place =
        ::access(memory, W_OK) == 0 ? memory : std::filesystem::temp_directory_path();
    std::string pattern = place / "trireme-records-XXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;

  std::filesystem::path path(const std::string& name = {}) const {
    return name.empty() ? path_ : path_ / name;
  }
  std::string write(const std::string& name, std::string_view content) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << content;
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

// For OpenOptions::needed: all fields.
inline std::vector<std::string> names_of_fields(const std::vector<FieldSpec>& fields) {
  std::vector<std::string> names;
  for (const FieldSpec& field : fields) names.push_back(field.name);
  return names;
}

// The number in its little-endian bytes.
template <typename T>
std::string bytes_of_number(T number) {
  std::string bytes(sizeof number, '\0');
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

template <typename T>
std::vector<T> numbers_of(const Field& field) {
  std::vector<T> numbers(field.bytes.size() / sizeof(T));
  if (!numbers.empty()) std::memcpy(numbers.data(), field.bytes.data(), field.bytes.size());
  return numbers;
}

inline Record read_record(const Reader& reader, int64_t index) {
  Record record;
  reader.read(index, record);
  return record;
}

inline std::string text_of(const Reader& reader, int64_t index, std::string_view field) {
  return std::string(read_record(reader, index).at(field).text());
}

inline std::shared_ptr<const Reader> open_path(const std::filesystem::path& path,
                                               std::string format = {}) {
  OpenOptions options;
  options.format = std::move(format);
  options.path = path;
  return open_records(options);
}

// The results of reading a damaged file.
struct DamagedReads {
  int64_t size = 0;  // The records that it claims.
  int records = 0, errors = 0;
};

// Opens a file that was damaged, reads its first records and its last one, and asks for all that a
// reader knows. Errors that say so are right; anything else, such as a crash, a hang, an exception
// of another type, or a field whose bytes do not fit its shape, fails the test.
DamagedReads read_damaged(const OpenOptions& options);

// Writes `content` cut at every byte, and with random bytes changed, under the name, and reads
// each of these files.
void read_all_damages(const Folder& folder, const std::string& name, const std::string& content,
                      const OpenOptions& options, int changes = 300);

}  // namespace trireme::records
