// Zip files with uncompressed entries, as PyTorch writes them.
//
// Format: APPNOTE.TXT of PKWARE, sections 4.3 and 4.5.3 (zip64).
#pragma once
#include <trireme/checkpoint/input_file.h>
#include <trireme/checkpoint/output_file.h>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::checkpoint {

class ZipReader {
 public:
  // Throws Error(not_found | io), and Error(corrupt) that names the file if it is no zip.
  explicit ZipReader(const std::filesystem::path& path);
  struct Entry {
    uint64_t header = 0, bytes = 0;
    uint32_t crc = 0;
  };
  const std::map<std::string, Entry>& entries() const { return entries_; }
  // Returns the whole entry after a check of its checksum. Throws Error(corrupt), also if there is
  // no entry of that name.
  std::vector<std::byte> read(const std::string& name) const;

 private:
  // The list of entries, as it lies in the file.
  struct EntryList {
    uint64_t count = 0;
    std::vector<std::byte> bytes;
  };
  [[noreturn]] void fail(const std::string& what) const;
  EntryList read_list() const;
  // Adds the entry at this place of the list, and returns the place of the next.
  uint64_t add_entry(std::span<const std::byte> list, uint64_t at);
  // Values that do not fit are in an extra field, in this order.
  void read_large_values(std::span<const std::byte> extra,
                         std::initializer_list<uint64_t*> values) const;
  std::filesystem::path path_;
  InputFile file_;
  std::map<std::string, Entry> entries_;
};

// Writes entries one after the other. The bytes of each start at a multiple of 64. Sizes beyond 32
// bits are refused.
class ZipWriter {
 public:
  explicit ZipWriter(OutputFile& file) : file_(file) {}
  void add(const std::string& name, std::span<const std::byte> bytes);
  void finish();  // Writes the list of entries.

 private:
  struct Entry {
    std::string name;
    uint32_t header, bytes, crc;
  };
  OutputFile& file_;
  uint64_t position_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace trireme::checkpoint
