// A file in memory, for formats whose records are views of it.
//
// A record that is copied anyway is read with pread(), where a file that became shorter is an
// error like any other. A map saves the copy for formats of fixed sizes, but the system answers an
// access behind the end of a shortened file with the signal SIGBUS. Two things turn it into an
// error: check() compares the file's size before each record, and a guard (page_guard.h) covers
// the time between the check and the access. It puts zeros at the place of a lost page, and the
// next check() throws.
#pragma once
#include <trireme/records/data_file.h>
#include <trireme/records/page_guard.h>
#include <trireme/records/unpack.h>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace trireme::records {

// Any number of threads may use it. It outlives each LateChecks in which it is checked.
class MappedFile {
 public:
  // Throws Damage as DataFile does, and io if the system maps no more.
  explicit MappedFile(const std::filesystem::path& path);
  explicit MappedFile(DataFile file);
  // The same, but a file that is packed by gzip or zstd is unpacked into memory. Throws Damage as
  // unpack() does.
  MappedFile(DataFile file, const UnpackLimits& limits);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  // The memory of its own that it takes; 0 for a file that is mapped.
  int64_t unpacked_bytes() const {
    return unpacked_ ? static_cast<int64_t>(unpacked_->bytes().size()) : 0;
  }
  const DataFile& file() const { return file_; }
  // Throws Damage if the file is shorter than it was, or was for a moment, or what `also` throws.
  void check() const;
  // Lets `also` look for changes that a format can tell. Call it before other threads check.
  void check_also(std::function<void()> also) { also_ = std::move(also); }

 private:
  friend class LateChecks;
  void map();
  bool has_lost_pages() const;
  void check_content() const;
  DataFile file_;
  std::shared_ptr<const Block> unpacked_;  // Null: the file is mapped.
  std::span<const std::byte> bytes_;
  std::optional<PageGuard> guard_;
  std::function<void()> also_;
};

// While it lives, check() of its thread only looks whether pages were lost, and leaves the rest to
// are_whole(), because a call of the system for each record takes longer than to copy some
// kilobytes. For a thread that copies many records before anybody sees them.
class LateChecks {
 public:
  LateChecks();
  ~LateChecks();
  LateChecks(const LateChecks&) = delete;
  LateChecks& operator=(const LateChecks&) = delete;

  // False: a file that was checked since is shorter than it was, or was for a moment, or has
  // changed by its `also`. What was copied may be wrong.
  bool are_whole() const;

 private:
  friend class MappedFile;
  void add(const MappedFile& file);
  LateChecks* const outer_;
  std::vector<const MappedFile*> files_;
};

// Has the processor fetch the bytes from `offset` on, for a Reader's warm(). Nothing happens if
// they are not in memory, or behind the end.
inline void warm_bytes(std::span<const std::byte> bytes, uint64_t offset) {
  constexpr uint64_t kLine = 64, kLines = 4;  // The processor goes on by itself from there.
  if (offset >= bytes.size()) return;
  for (uint64_t line = 0; line < kLines; ++line)
    __builtin_prefetch(bytes.data() + offset + line * kLine);
}

}  // namespace trireme::records
