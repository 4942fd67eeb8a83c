// The files of a data set while it is read: each is opened when it is needed, and a compressed one
// is unpacked as one block.
#pragma once
#include <trireme/records/block_cache.h>
#include <trireme/records/data_files.h>
#include <trireme/records/record.h>
#include <trireme/records/scanner.h>
#include <list>
#include <memory>
#include <mutex>

namespace trireme::records {

struct BytesAndRoom {
  std::span<const std::byte> bytes;
  std::span<std::byte> room;
};

// Any number of threads.
class Shards {
 public:
  // Only formats that may be compressed look for a packing. Throws Error naming a file that cannot
  // be opened.
  // Unpacked files share the memory `blocks`.
  Shards(DataFiles files, UnpackLimits limits, std::shared_ptr<BlockMemory> blocks,
         bool may_be_packed = true);

  size_t count() const { return files_.names.size(); }
  const DataFiles& files() const { return files_; }
  const std::string& name(size_t file) const { return files_.names[file]; }
  std::filesystem::path path(size_t file) const { return files_.path_of(file); }
  bool is_remote() const { return files_.remote != nullptr; }
  bool is_packed(size_t file) const { return packings_[file] != Packing::none; }
  // A format knows better than the first bytes.
  void set_plain(size_t file) { packings_[file] = Packing::none; }
  // The bytes of a packed file; 0 for another one. Throws Damage.
  uint64_t packed_bytes(size_t file) const { return is_packed(file) ? open(file)->size() : 0; }
  const UnpackLimits& limits() const { return limits_; }
  int64_t memory_bytes() const { return limits_.memory_bytes; }

  // Reads every file's head and tail. Throws Error naming the file.
  std::vector<FileIdentity> identities() const;
  FileIdentity identity(size_t file) const;
  // From now on, a file that is opened and has another size is an error. In the files' order.
  void expect(std::span<const FileIdentity> identities);
  // The file, which stays open for a while. Throws Damage.
  std::shared_ptr<const DataFile> open(size_t file) const;
  // For files on a server: those that are read next, in this order, and a file of which an
  // announced use is over. For other files they do nothing.
  void announce(std::span<const size_t> files) const;
  void release(size_t file) const;
  // So many of `records` are worth announcing: those of two files; 0: none.
  int64_t reads_ahead(int64_t records) const;
  // Throws Damage.
  Scanner scanner(size_t file) const;
  // The bytes of a record: in its memory, or of an unpacked block that the record keeps. Throws
  // Damage.
  std::span<const std::byte> read(size_t file, uint64_t offset, uint64_t bytes,
                                  Record& record) const;
  // The same, and `more` bytes of the record's memory for what is made of them, aligned for any
  // number.
  BytesAndRoom read_with_room(size_t file, uint64_t offset, uint64_t bytes, uint64_t more,
                              Record& record) const;
  // The bytes, always in the record's memory, with room for `more` bytes behind them.
  std::span<std::byte> copy(size_t file, uint64_t offset, uint64_t bytes, uint64_t more,
                            Record& record) const;

 private:
  using SharedBlock = std::shared_ptr<const Block>;
  std::shared_ptr<const DataFile> open_remote(size_t file) const;
  void close_idle() const;
  SharedBlock block(size_t file) const;

  DataFiles files_;
  UnpackLimits limits_;
  std::vector<Packing> packings_;
  std::vector<int64_t> sizes_;  // What the files should have; empty before it is known.
  mutable std::mutex mutex_;
  mutable std::vector<std::shared_ptr<const DataFile>> open_;
  mutable std::list<size_t> opened_;  // The oldest first.
  mutable BlockCache<size_t, Block> blocks_;
};

}  // namespace trireme::records
