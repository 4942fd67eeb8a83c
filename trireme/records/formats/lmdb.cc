// LMDB: a record is a key and its value, in the order of the keys.
#include <fmt/format.h>
#include <sys/vfs.h>
#include <trireme/base/units.h>
#include <trireme/records/formats.h>
#include <trireme/records/network_files.h>
#include <trireme/records/remote/address.h>
#include <trireme/records/seen_fields.h>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include "indexed_files.h"
#include "lmdb_library.h"
#include "mapped_files.h"

namespace trireme::records {
namespace {

namespace fs = std::filesystem;

bool begins_as_image(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()),
                              std::min<size_t>(bytes.size(), 12));
  return text.starts_with("\xff\xd8\xff") || text.starts_with("\x89PNG\r\n") ||
         (text.starts_with("RIFF") && text.ends_with("WEBP"));
}

// Throws Damage unless LMDB can map the file safely.
void check_lmdb_file(const DataFile& file, bool is_remote) {
  struct statfs system {};
  if (::fstatfs(file.descriptor(), &system) == 0)
    require_local_for_lmdb(static_cast<long>(system.f_type), is_remote);
  // The first page has a head of 16 bytes, the magic number, and the version.
  std::array<std::byte, 24> head{};
  file.read(0, head);
  uint32_t magic = 0;
  std::memcpy(&magic, head.data() + 16, sizeof magic);
  if (magic != 0xbeefc0de) throw Damage("it is no LMDB file: its magic number is wrong");
}

// The place at which this process has mapped the first byte of the file whose bytes are at
// `address`.
const std::byte* begin_of_map(const void* address) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    uint64_t offset = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %*s %" SCNx64, &begin, &end,
                    &offset) != 3)
      continue;
    if (begin <= wanted && wanted < end) return reinterpret_cast<const std::byte*>(begin - offset);
  }
  throw Damage("the place where LMDB has mapped it is not known", "a machine with /proc",
               ErrorCode::unsupported);
}

// LMDB's view of a file, which only the index needs.
class LmdbFile {
 public:
  // The file is open as long as this object lives.
  explicit LmdbFile(const DataFile& file) : lmdb_(lmdb_library()), file_bytes_(file.size()) {
    require(lmdb_.env_create(&env_), "make its environment");
    try {
      // LMDB opens a path. This one leads to the file that is open, and not to one that takes its
      // place.
      const std::string path = fmt::format("/proc/self/fd/{}", file.descriptor());
      constexpr unsigned kMode = 0644;
      require(
          lmdb_.env_open(env_, path.c_str(),
                         LmdbLibrary::kNoSubdir | LmdbLibrary::kReadOnly | LmdbLibrary::kNoLock |
                             LmdbLibrary::kNoTls | LmdbLibrary::kNoReadAhead,
                         kMode),
          "open it");
      require(lmdb_.env_stat(env_, &stat_), "examine it");
      check_pages();
      require(lmdb_.txn_begin(env_, nullptr, LmdbLibrary::kReadOnly, &txn_), "begin to read");
      LmdbDatabase database = 0;
      require(lmdb_.dbi_open(txn_, nullptr, 0, &database), "open its database");
      require(lmdb_.cursor_open(txn_, database, &cursor_), "list its keys");
    } catch (...) {
      close();
      throw;
    }
  }
  ~LmdbFile() { close(); }
  LmdbFile(const LmdbFile&) = delete;

  uint64_t page_bytes() const { return stat_.page_bytes; }

  // Calls visit(key, offset, bytes) for each record: the place of its value in the file.
  template <typename Visit>
  void for_each(Visit visit) const {
    // Pages that lead to each other have keys without end. Each key takes a byte at least.
    const uint64_t most = std::min<uint64_t>(stat_.entries, file_bytes_);
    const std::byte* begin = nullptr;
    LmdbValue key, value;
    int code = lmdb_.cursor_get(cursor_, &key, &value, LmdbLibrary::kFirst);
    for (uint64_t i = 0; code == 0; ++i) {
      if (i == most)
        throw Damage(fmt::format("it has more than the {} keys that it should have", most),
                     "a whole copy of the file, which no process writes");
      if (!begin) begin = begin_of_map(value.data);
      const auto offset = static_cast<uint64_t>(static_cast<const std::byte*>(value.data) - begin);
      if (offset > file_bytes_ || value.bytes > file_bytes_ - offset)
        throw Damage(fmt::format("the file is cut: the value of a key has {} bytes at byte {}",
                                 value.bytes, offset));
      visit({static_cast<const char*>(key.data), key.bytes}, offset, value.bytes);
      code = lmdb_.cursor_get(cursor_, &key, &value, LmdbLibrary::kNext);
    }
    if (code != LmdbLibrary::kNotFound) require(code, "list its keys");
  }

 private:
  void require(int code, std::string_view doing) const {
    if (code != 0)
      throw Damage(fmt::format("LMDB cannot {}: {}", doing, lmdb_.strerror(code)),
                   "a whole copy of the file, which no process writes",
                   code > 0 ? ErrorCode::io : ErrorCode::corrupt);
  }

  // All pages that LMDB uses must be in the file, or an access would end the process.
  void check_pages() const {
    LmdbInfo info;
    require(lmdb_.env_info(env_, &info), "examine it");
    const uint64_t pages = file_bytes_ / std::max(1U, stat_.page_bytes);
    if (info.last_page >= pages)
      throw Damage(fmt::format("the file is cut: it has {} pages, but page {} is in use", pages,
                               info.last_page));
  }

  void close() {
    if (cursor_) lmdb_.cursor_close(cursor_);
    if (txn_) lmdb_.txn_abort(txn_);
    if (env_) lmdb_.env_close(env_);
  }

  const LmdbLibrary& lmdb_;
  const uint64_t file_bytes_;
  LmdbEnv* env_ = nullptr;
  LmdbTxn* txn_ = nullptr;
  LmdbCursor* cursor_ = nullptr;
  LmdbStat stat_;
};

// The numbers of the last transactions and what else the first two pages tell. Each process that
// writes changes one of them.
class LmdbHeads {
 public:
  LmdbHeads(std::span<const std::byte> file, uint64_t page_bytes) {
    for (const uint64_t page : {uint64_t{0}, page_bytes}) {
      if (page_bytes < kLeastPage || page > file.size() || file.size() - page < kHead + kBytes)
        throw Damage("the index has a wrong size of its pages", "trireme data index");
      now_.push_back(file.subspan(page + kHead, kBytes));
      before_.emplace_back(now_.back().begin(), now_.back().end());
    }
  }
  // Throws Damage if a process has written.
  void check() const {
    for (size_t i = 0; i < now_.size(); ++i)
      if (std::memcmp(now_[i].data(), before_[i].data(), kBytes) != 0)
        throw Damage("a process has written to it since it was opened",
                     "leave the file alone while it is read");
  }

 private:
  static constexpr size_t kHead = 16, kBytes = 136, kLeastPage = 256;
  std::vector<std::span<const std::byte>> now_;
  std::vector<std::vector<std::byte>> before_;
};

constexpr const char* kPageBytes = "_page_bytes";

// Values are views of the file, whose places the index has. An entry's offset is that of the
// value, its length the place of the key in the index's names, and its extra the size of the key.
class LmdbReader : public Reader {
 public:
  LmdbReader(std::string path, std::unique_ptr<MappedFile> file,
             std::shared_ptr<const Index> index, UnpackLimits limits)
      : path_(std::move(path)),
        file_(std::move(file)),
        index_(std::move(index)),
        limits_(std::move(limits)),
        stamp_(file_->file().mtime_ns()) {
    const LmdbHeads heads(file_->bytes(), index_->facts().value(kPageBytes, uint64_t{0}));
    file_->check_also([heads] { heads.check(); });
    fields_ = seen_fields(*this, LmdbReader::size(), SeenIn::any);
  }
  int64_t size() const override { return static_cast<int64_t>(index_->entries().size()); }
  const std::vector<FieldSpec>& fields() const override { return fields_; }
  const std::string& content() const override { return index_->content(); }
  int64_t stamp(int64_t) const override { return stamp_; }
  std::string place(int64_t index) const override {
    require_record(index, size());
    return fmt::format("{}, record {}", path_, index);
  }
  void read(int64_t index, Record& record) const override {
    require_record(index, size());
    record.clear();
    with_place([&] { return place(index); },
               [&] {
                 const Entry entry = index_->entry(index);
                 file_->check();
                 const auto key = part_of(std::as_bytes(std::span(index_->names())),
                                          static_cast<uint64_t>(entry.length), entry.extra);
                 const auto value = part_of(file_->bytes(), entry.offset, entry.bytes);
                 limits_.require_memory(value.size());
                 record.fields.push_back({.name = "key", .bytes = key, .encoded = true});
                 record.fields.push_back({.name = "value", .bytes = value, .encoded = true});
                 if (begins_as_image(value))
                   record.fields.push_back({.name = "image", .bytes = value, .encoded = true});
               });
  }
  void warm(int64_t index) const override {
    require_record(index, size());
    warm_bytes(file_->bytes(), index_->entry(index).offset);
  }

 private:
  static std::span<const std::byte> part_of(std::span<const std::byte> all, uint64_t offset,
                                            uint64_t bytes) {
    if (offset > all.size() || bytes > all.size() - offset)
      throw Damage("its place in the index is outside of the file", "trireme data index");
    return all.subspan(offset, bytes);
  }

  std::string path_;
  std::unique_ptr<MappedFile> file_;
  std::shared_ptr<const Index> index_;
  std::vector<FieldSpec> fields_;
  UnpackLimits limits_;
  int64_t stamp_;
};

// The folder's data.mdb, or the file itself.
DataFiles file_of_lmdb(OpenOptions options) {
  const std::string given = shown_path(options.path);
  if (!is_address(options.path) && fs::is_directory(options.path))
    options.path = fs::path(options.path) / "data.mdb";
  DataFiles files = files_of(options);
  const fs::path path = files.path_of(0);
  const auto leaves_folder = [&] {
    const fs::path folder = fs::canonical(path.has_parent_path() ? path.parent_path() : ".");
    return fs::canonical(path).parent_path() != folder;
  };
  if (files.names.size() != 1 || (!files.remote && leaves_folder()))
    throw Error(
        ErrorCode::invalid_argument, "data",
        fmt::format("'{}' is not one file in its folder, but several, or a link that leads "
                    "outside",
                    given),
        "the folder of data.mdb, or the path of one file");
  if (files.remote) return files;
  return {.base = path.parent_path(), .names = {path.filename()}, .given = path.string()};
}

// Throws Error naming the file.
std::unique_ptr<MappedFile> map_lmdb_file(const DataFiles& files) {
  return with_place([&] { return files.path_of(0).string(); },
                    [&] {
                      DataFile file = open_to_stay(files, 0);
                      check_lmdb_file(file, files.remote != nullptr);
                      return std::make_unique<MappedFile>(std::move(file));
                    });
}

IndexContent index_of_lmdb(const DataFile& file) {
  const LmdbFile lmdb(file);
  IndexContent content;
  content.facts[kPageBytes] = lmdb.page_bytes();
  lmdb.for_each([&](std::string_view key, uint64_t offset, uint64_t bytes) {
    content.entries.push_back({.offset = offset,
                               .bytes = bytes,
                               .length = std::ssize(content.names),
                               .extra = static_cast<uint32_t>(key.size())});
    content.names.append(key);
  });
  return content;
}

}  // namespace

SharedReader open_lmdb(const OpenOptions& options) {
  const DataFiles files = file_of_lmdb(options);
  const std::string path = files.path_of(0).string();
  std::unique_ptr<MappedFile> file;
  // The index of a file on a server says which version of it is the right one.
  if (!files.remote) file = map_lmdb_file(files);
  IndexRequest request = request_for(options, "lmdb", files);
  // The content of a data set stays what it was before the index had the places of values.
  request.counted = [](const Entry& entry) {
    return Entry{
        .offset = static_cast<uint64_t>(entry.length), .bytes = entry.bytes, .extra = entry.extra};
  };
  request.identities = [&] {
    if (files.remote) {
      files.remote->ask_for_changes();
      file = map_lmdb_file(files);
    }
    return with_place([&] { return path; },
                      [&] {
                        FileIdentity identity = file->file().identity();
                        identity.name = files.names[0];
                        return std::vector{identity};
                      });
  };
  request.make = [&] { return index_of_lmdb(file->file()); };
  auto index = with_place([&] { return path; }, [&] { return open_index(request); });
  if (!file) {
    files.remote->expect(index->files());
    file = map_lmdb_file(files);
  }
  return with_place([&] { return path; },
                    [&] {
                      return std::make_shared<LmdbReader>(path, std::move(file), std::move(index),
                                                          options.unpack_limits());
                    });
}

}  // namespace trireme::records
