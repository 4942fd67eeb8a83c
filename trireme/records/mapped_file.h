// A file in memory, for formats whose records are views of it.
//
// A record that is copied anyway is read with pread(), where a file that became shorter is an
// error like any other. A map saves the copy for formats of fixed sizes, but the system answers an
// access behind the end of a shortened file with the signal SIGBUS. Two things turn it into an
// error: check() compares the file's size before each record, and a handler of the signal covers
// the time between the check and the access. It puts zeros at the place of a lost page, and the
// next check() throws.
#pragma once
#include <trireme/records/data_file.h>
#include <cstddef>
#include <span>

namespace trireme::records {

// Any number of threads may use it. Signals that do not belong to a map go to the handler that was
// there before.
class MappedFile {
 public:
  // Throws Damage as DataFile does, and io if the system maps no more.
  explicit MappedFile(const std::filesystem::path& path);
  explicit MappedFile(DataFile file);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  const DataFile& file() const { return file_; }
  // Throws Damage if the file is shorter than it was, or was for a moment.
  void check() const;

 private:
  bool has_lost_pages() const;
  DataFile file_;
  std::span<const std::byte> bytes_;
  int place_ = -1;  // In the list of the handler.
};

}  // namespace trireme::records
