// LMDB: a record is a key and its value, in the order of the keys.
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <trireme/base/units.h>
#include <trireme/records/formats.h>
#include <trireme/records/network_files.h>
#include <trireme/records/remote/address.h>
#include <trireme/records/seen_fields.h>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
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
    if (const auto name = network_file_system(static_cast<long>(system.f_type)); !name.empty())
      throw Damage(fmt::format("it is on a network file system ({}), which LMDB cannot use", name),
                   is_remote ? "a data.download_dir on a local disk" : "a copy on a local disk",
                   ErrorCode::unsupported);
  // The first page has a head of 16 bytes, the magic number, and the version.
  std::array<std::byte, 24> head{};
  file.read(0, head);
  uint32_t magic = 0;
  std::memcpy(&magic, head.data() + 16, sizeof magic);
  if (magic != 0xbeefc0de) throw Damage("it is no LMDB file: its magic number is wrong");
}

class LmdbFile {
 public:
  // `path` leads to the file.
  LmdbFile(DataFile file, const std::string& path)
      : lmdb_(lmdb_library()), file_(std::move(file)) {
    require(lmdb_.env_create(&env_), "make its environment");
    try {
      constexpr unsigned kMode = 0644;
      require(
          lmdb_.env_open(env_, path.c_str(),
                         LmdbLibrary::kNoSubdir | LmdbLibrary::kReadOnly | LmdbLibrary::kNoLock |
                             LmdbLibrary::kNoTls | LmdbLibrary::kNoReadAhead,
                         kMode),
          "open it");
      check_pages();
      LmdbTxn* const txn = begin();
      const int code = lmdb_.dbi_open(txn, nullptr, 0, &database_);
      give_back(txn);
      require(code, "open its database");
    } catch (...) {
      close();
      throw;
    }
  }
  ~LmdbFile() { close(); }
  LmdbFile(const LmdbFile&) = delete;

  const DataFile& file() const { return file_; }

  // Calls visit(key, value) for each record.
  template <typename Visit>
  void for_each(Visit visit) const {
    LmdbStat stat;
    require(lmdb_.env_stat(env_, &stat), "examine it");
    // Pages that lead to each other have keys without end. Each key takes a byte at least.
    const uint64_t most = std::min<uint64_t>(stat.entries, file_.size());
    LmdbTxn* const txn = begin();
    LmdbCursor* cursor = nullptr;
    int code = lmdb_.cursor_open(txn, database_, &cursor);
    LmdbValue key, value;
    try {
      if (code == 0) code = lmdb_.cursor_get(cursor, &key, &value, LmdbLibrary::kFirst);
      for (uint64_t i = 0; code == 0; ++i) {
        if (i == most)
          throw Damage(fmt::format("it has more than the {} keys that it should have", most),
                       "a whole copy of the file, which no process writes");
        visit(bytes_of_value(key), bytes_of_value(value));
        code = lmdb_.cursor_get(cursor, &key, &value, LmdbLibrary::kNext);
      }
    } catch (...) {
      if (cursor) lmdb_.cursor_close(cursor);
      give_back(txn);
      throw;
    }
    if (cursor) lmdb_.cursor_close(cursor);
    give_back(txn);
    if (code != LmdbLibrary::kNotFound) require(code, "list its keys");
  }

  // Calls use(value), whose bytes are valid until it returns.
  template <typename Use>
  void get(std::string_view key, Use use) const {
    check_size();
    LmdbTxn* const txn = begin();
    LmdbValue wanted{key.size(), const_cast<char*>(key.data())}, value;
    const int code = lmdb_.get(txn, database_, &wanted, &value);
    try {
      if (code == 0) use(bytes_of_value(value));
    } catch (...) {
      give_back(txn);
      throw;
    }
    give_back(txn);
    require(code, "read the key");
  }

 private:
  static std::span<const std::byte> bytes_of_value(const LmdbValue& value) {
    return {static_cast<const std::byte*>(value.data), value.bytes};
  }

  void require(int code, std::string_view doing) const {
    if (code != 0)
      throw Damage(fmt::format("LMDB cannot {}: {}", doing, lmdb_.strerror(code)),
                   "a whole copy of the file, which no process writes",
                   code > 0 ? ErrorCode::io : ErrorCode::corrupt);
  }

  // All pages that LMDB uses must be in the file, or an access would end the process.
  void check_pages() const {
    LmdbStat stat;
    LmdbInfo info;
    require(lmdb_.env_stat(env_, &stat), "examine it");
    require(lmdb_.env_info(env_, &info), "examine it");
    const uint64_t pages = file_.size() / std::max(1U, stat.page_bytes);
    if (info.last_page >= pages)
      throw Damage(fmt::format("the file is cut: it has {} pages, but page {} is in use", pages,
                               info.last_page));
  }

  void check_size() const {
    struct stat status {};
    if (::fstat(file_.descriptor(), &status) != 0)
      throw Damage(
          fmt::format("it cannot be examined: {}", std::generic_category().message(errno)),
          "check the file and its disk", ErrorCode::io);
    if (static_cast<uint64_t>(status.st_size) < file_.size())
      throw Damage(fmt::format("the file had {} bytes when it was opened, and now has {}",
                               file_.size(), status.st_size),
                   "leave the file alone while it is read");
  }

  // A transaction that no other thread uses.
  LmdbTxn* begin() const {
    LmdbTxn* txn = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        txn = idle_.back();
        idle_.pop_back();
      }
    }
    if (!txn) {
      require(lmdb_.txn_begin(env_, nullptr, LmdbLibrary::kReadOnly, &txn), "begin to read");
    } else if (const int code = lmdb_.txn_renew(txn); code != 0) {
      lmdb_.txn_abort(txn);
      require(code, "begin to read");
    }
    return txn;
  }
  void give_back(LmdbTxn* txn) const {
    lmdb_.txn_reset(txn);
    const std::lock_guard lock(mutex_);
    idle_.push_back(txn);
  }

  void close() {
    for (LmdbTxn* const txn : idle_) lmdb_.txn_abort(txn);
    if (env_) lmdb_.env_close(env_);
  }

  const LmdbLibrary& lmdb_;
  DataFile file_;
  LmdbEnv* env_ = nullptr;
  LmdbDatabase database_ = 0;
  mutable std::mutex mutex_;
  mutable std::vector<LmdbTxn*> idle_;
};

// An entry's offset and extra are the place and the size of its key in the index's names.
class LmdbReader : public Reader {
 public:
  LmdbReader(std::string path, std::unique_ptr<LmdbFile> file, std::shared_ptr<const Index> index,
             int64_t memory_bytes)
      : path_(std::move(path)),
        file_(std::move(file)),
        index_(std::move(index)),
        memory_bytes_(static_cast<uint64_t>(memory_bytes)),
        stamp_(file_->file().mtime_ns()) {
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
    with_place(
        [&] { return place(index); },
        [&] {
          const Entry entry = index_->entry(index);
          const std::string_view names = index_->names();
          if (entry.offset > names.size() || entry.extra > names.size() - entry.offset)
            throw Damage("its key is not in the index", "trireme data index");
          const std::string_view key = names.substr(entry.offset, entry.extra);
          record.fields.push_back(
              {.name = "key", .bytes = std::as_bytes(std::span(key)), .encoded = true});
          file_->get(key, [&](std::span<const std::byte> value) {
            if (value.size() != entry.bytes)
              throw Damage(fmt::format("the value has {} bytes, but had {} when it was indexed",
                                       value.size(), entry.bytes),
                           "trireme data index, if the change was meant");
            if (value.size() > memory_bytes_)
              throw Damage(fmt::format("the value has {} bytes, more than the memory for a record",
                                       value.size()),
                           "more memory for a record", ErrorCode::invalid_argument);
            const auto room = record.room(value.size());
            if (!value.empty()) std::memcpy(room.data(), value.data(), value.size());
            record.fields.push_back({.name = "value", .bytes = room, .encoded = true});
          });
          if (const Field value = record.fields.back(); begins_as_image(value.bytes))
            record.fields.push_back({.name = "image", .bytes = value.bytes, .encoded = true});
        });
  }

 private:
  std::string path_;
  std::unique_ptr<LmdbFile> file_;
  std::shared_ptr<const Index> index_;
  std::vector<FieldSpec> fields_;
  uint64_t memory_bytes_;
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
std::unique_ptr<LmdbFile> open_lmdb_file(const DataFiles& files) {
  const std::string name = files.path_of(0).string();
  return with_place([&] { return name; },
                    [&] {
                      DataFile file = open_to_stay(files, 0);
                      check_lmdb_file(file, files.remote != nullptr);
                      // LMDB opens a path. This one leads to the file that is open, and not to one
                      // that takes its place in the folder of downloads.
                      const std::string path =
                          files.remote ? fmt::format("/proc/self/fd/{}", file.descriptor()) : name;
                      return std::make_unique<LmdbFile>(std::move(file), path);
                    });
}

}  // namespace

SharedReader open_lmdb(const OpenOptions& options) {
  const DataFiles files = file_of_lmdb(options);
  const std::string path = files.path_of(0).string();
  std::unique_ptr<LmdbFile> file;
  // The index of a file on a server says which version of it is the right one.
  if (!files.remote) file = open_lmdb_file(files);
  IndexRequest request = request_for(options, "lmdb", files);
  request.identities = [&] {
    if (files.remote) {
      files.remote->ask_for_changes();
      file = open_lmdb_file(files);
    }
    return with_place([&] { return path; },
                      [&] {
                        FileIdentity identity = file->file().identity();
                        identity.name = files.names[0];
                        return std::vector{identity};
                      });
  };
  request.make = [&] {
    IndexContent content;
    file->for_each([&](std::span<const std::byte> key, std::span<const std::byte> value) {
      content.entries.push_back({.offset = content.names.size(),
                                 .bytes = value.size(),
                                 .extra = static_cast<uint32_t>(key.size())});
      content.names.append(reinterpret_cast<const char*>(key.data()), key.size());
    });
    return content;
  };
  auto index = with_place([&] { return path; }, [&] { return open_index(request); });
  if (!file) {
    files.remote->expect(index->files());
    file = open_lmdb_file(files);
  }
  return std::make_shared<LmdbReader>(path, std::move(file), std::move(index),
                                      options.memory_bytes);
}

}  // namespace trireme::records
