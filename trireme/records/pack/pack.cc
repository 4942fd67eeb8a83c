#include <trireme/records/pack/pack.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <trireme/base/descriptor.h>
#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/base/units.h>
#include <trireme/plan/keyed_order.h>
#include <trireme/records/damage.h>
#include <trireme/records/pack/record_forms.h>
#include <trireme/records/pack/shard_file.h>
#include <trireme/records/pack/token_pair.h>
#include <algorithm>
#include <cerrno>
#include <map>
#include <system_error>

namespace trireme::records {
namespace fs = std::filesystem;
namespace {

Error wrong_pack(std::string_view what, std::string_view remedy) {
  return Error(ErrorCode::invalid_argument, "data", what, remedy);
}

// The order in which the records are written.
class PackOrder {
 public:
  PackOrder(int64_t size, std::optional<uint64_t> seed) {
    if (seed) order_.emplace(size, *seed);
  }
  int64_t at(int64_t place) const { return order_ ? order_->at(place) : place; }

 private:
  std::optional<plan::KeyedOrder> order_;
};

// Calls add(record, number) for each record in order, and names the record in errors.
template <typename Add>
void for_each_record(const Reader& reader, std::optional<uint64_t> shuffle, Add add) {
  const PackOrder order(reader.size(), shuffle);
  Record record;
  for (int64_t place = 0; place < reader.size(); ++place) {
    const int64_t number = order.at(place);
    reader.read(number, record);
    with_place([&] { return reader.place(number); }, [&] { add(record, number); });
  }
}

// Shards of a tar or TFRecord.
class ShardPacker {
 public:
  ShardPacker(const fs::path& folder, const PackOptions& options, PackedPart& packed)
      : folder_(folder), options_(options), packed_(packed) {}

  void add(const Record& record, int64_t number) {
    std::string bytes, key = last_key_;
    if (is_tar())
      append_tar(record, number, key, bytes);
    else
      append_tfrecord(record, bytes);
    const auto count = static_cast<int64_t>(bytes.size());
    if (shard_ && shard_->bytes() + count > options_.shard_bytes) finish();
    if (!shard_) begin();
    shard_->write(bytes);
    last_key_ = std::move(key);
  }

  void finish() {
    if (!shard_) return;
    if (is_tar()) shard_->write(end_of_tar());
    packed_.bytes += shard_->bytes();
    shard_->finish();
    shard_.reset();
  }

 private:
  bool is_tar() const { return options_.to == "webdataset"; }
  void begin() {
    const std::string_view packing = options_.packing == Packing::zstd   ? ".zst"
                                     : options_.packing == Packing::gzip ? ".gz"
                                                                         : "";
    std::string name = fmt::format("shard-{:06}.{}{}", packed_.files.size(),
                                   is_tar() ? "tar" : "tfrecord", packing);
    shard_.emplace(folder_ / name, options_.packing);
    packed_.files.push_back(std::move(name));
  }

  const fs::path folder_;
  const PackOptions& options_;
  PackedPart& packed_;
  std::optional<ShardFile> shard_;
  std::string last_key_;
};

// A file for each field. All records have the same fields and shapes.
void pack_arrays(const Reader& reader, const fs::path& folder, const PackOptions& options,
                 PackedPart& packed) {
  std::map<std::string, ShardFile, std::less<>> files;
  for (const FieldSpec& field : reader.fields()) {
    const auto refuse = [&](std::string_view why) {
      return wrong_pack(fmt::format("npy cannot hold the field '{}': {}", field.name, why),
                        "--to webdataset");
    };
    if (field.encoded) throw refuse("it is a text or a file, and not numbers");
    if (!field.shape) throw refuse("its shape differs between records, or is not known");
    if (field.name.empty() || field.name.find('/') != std::string::npos ||
        field.name.front() == '.')
      throw refuse("its name cannot be a file's");
    std::vector<int64_t> shape{reader.size()};
    shape.insert(shape.end(), field.shape->begin(), field.shape->end());
    const auto [file, is_new] =
        files.emplace(field.name, ShardFile(folder / (field.name + ".npy"), Packing::none));
    with_place([&] { return field.name; },
               [&] { file->second.write(npy_header(field.dtype, shape)); });
    packed.files.push_back(field.name + ".npy");
  }
  if (files.empty()) throw wrong_pack("its records have no fields in common", "--to webdataset");
  for_each_record(reader, options.shuffle, [&](const Record& record, int64_t) {
    if (record.fields.size() != files.size())
      throw Damage(
          fmt::format("it has {} fields, but others have {}", record.fields.size(), files.size()),
          "--to webdataset", ErrorCode::unsupported);
    for (const FieldSpec& spec : reader.fields()) {
      const Field& field = record.at(spec.name);
      if (field.dtype != spec.dtype || !std::ranges::equal(field.shape, *spec.shape))
        throw Damage(fmt::format("the field '{}' has another type or shape than in other records",
                                 spec.name),
                     "--to webdataset", ErrorCode::unsupported);
      files.find(spec.name)->second.write(field.bytes);
    }
  });
  for (auto& [name, file] : files) {
    packed.bytes += file.bytes();
    file.finish();
  }
}

// Tokens and their documents. The largest token says which type they have in the file, so all
// records are read twice.
void pack_tokens(const Reader& reader, const fs::path& folder, const PackOptions& options,
                 PackedPart& packed) {
  const std::string field = find_token_field(reader, options.field);
  int64_t largest = -1;
  for_each_record(reader, {}, [&](const Record& record, int64_t) {
    largest = std::max(largest, largest_token(record, field));
  });
  if (largest < 0)
    throw wrong_pack(fmt::format("the field '{}' has no token", field), "records with tokens");
  TokenPair pair(folder, field, largest);
  for_each_record(reader, options.shuffle,
                  [&](const Record& record, int64_t) { pair.add(record); });
  pair.finish();
  packed.files = pair.files();
  packed.bytes = pair.bytes();
}

PackedPart pack_part(const PackPart& part, const fs::path& folder, const PackOptions& options) {
  PackedPart packed{
      .folder = options.output / part.folder, .files = {}, .records = part.reader->size()};
  require_writable_folder(folder);
  if (options.to == "npy") {
    pack_arrays(*part.reader, folder, options, packed);
    return packed;
  }
  if (options.to == "tokens") {
    pack_tokens(*part.reader, folder, options, packed);
    return packed;
  }
  ShardPacker shards(folder, options, packed);
  for_each_record(*part.reader, options.shuffle,
                  [&](const Record& record, int64_t number) { shards.add(record, number); });
  shards.finish();
  return packed;
}

// The folder that gets the records: an absolute path, without links.
fs::path place_of_output(const fs::path& output) {
  std::error_code unknown;
  fs::path place = fs::weakly_canonical(fs::absolute(output), unknown);
  if (unknown) place = fs::absolute(output).lexically_normal();
  return place.filename().empty() ? place.parent_path() : place;
}

// Whether another file system, or another part of one, is mounted there.
bool is_mount_point(const fs::path& folder) {
  struct statx status {};
  if (::statx(AT_FDCWD, folder.c_str(), AT_NO_AUTOMOUNT, STATX_TYPE, &status) == 0 &&
      (status.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT))
    return (status.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
  struct stat own {
  }, above{};  // Linux before 5.8.
  return ::stat(folder.c_str(), &own) == 0 && ::stat(folder.parent_path().c_str(), &above) == 0 &&
         own.st_dev != above.st_dev;
}

void check_output(const fs::path& output) {
  const auto refuse = [&](std::string_view why, std::string_view remedy) {
    throw wrong_pack(fmt::format("the output '{}' {}", output.string(), why), remedy);
  };
  if (output.empty()) refuse("is no folder", "a folder that is not there yet, or is empty");
  std::error_code unknown;
  const fs::path place = place_of_output(output);
  if (fs::is_symlink(place, unknown)) refuse("is a link that leads nowhere", "another name");
  if (!path_exists(place)) return;
  if (!fs::is_directory(place, unknown) || !fs::is_empty(place, unknown))
    refuse("has files already, or is none", "a folder that is not there yet, or is empty");
  if (is_mount_point(place))
    refuse("is a mount point, which cannot be replaced by the finished folder",
           fmt::format("a folder in it: {}", (place / "packed").string()));
}

// The folder beside the output that has the files until all of them are whole.
class UnfinishedFolder {
 public:
  explicit UnfinishedFolder(const fs::path& output) : output_(place_of_output(output)) {
    path_ = output_.parent_path() / ("." + output_.filename().string() + ".packing");
    require_writable_folder(output_.parent_path());
    fs::create_directory(path_);
    lock_ = Descriptor(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    if (!lock_ || ::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0)
      throw Error(ErrorCode::invalid_argument, "data",
                  fmt::format("another process packs into '{}'", output.string()),
                  "another --output, or wait until it has ended");
    // Those of a process that was killed.
    for (const auto& left : fs::directory_iterator(path_)) fs::remove_all(left.path());
  }
  ~UnfinishedFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  UnfinishedFolder(const UnfinishedFolder&) = delete;

  const fs::path& path() const { return path_; }

  void finish() {
    sync_all(path_);
    if (::rename(path_.c_str(), output_.c_str()) != 0)
      throw Error(ErrorCode::io, "data",
                  fmt::format("cannot give the output its name '{}': {}", output_.string(),
                              std::generic_category().message(errno)),
                  "an empty folder, or a name that is free");
    path_.clear();
    sync_folder(output_.parent_path());
  }

 private:
  static void sync_folder(const fs::path& folder) {
    const Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (opened) ::fsync(opened.get());
  }
  static void sync_all(const fs::path& folder) {
    for (const auto& entry : fs::recursive_directory_iterator(folder))
      if (entry.is_directory()) sync_folder(entry.path());
    sync_folder(folder);
  }

  fs::path output_, path_;
  Descriptor lock_;
};

}  // namespace

Json PackedPart::to_json() const {
  return {{"folder", folder.string()}, {"files", files}, {"records", records}, {"bytes", bytes}};
}

void check_pack(const PackOptions& options) {
  if (std::ranges::find(kPackTargets, options.to) == std::end(kPackTargets))
    throw wrong_pack(fmt::format("the target is '{}'", options.to),
                     fmt::format("--to {}", fmt::join(kPackTargets, ", ")));
  const bool is_mapped = options.to == "npy" || options.to == "tokens";
  if (is_mapped && options.packing != Packing::none)
    throw wrong_pack(fmt::format("files of {} are mapped, and cannot be compressed", options.to),
                     "leave --compress out");
  if (options.to != "tokens" && !options.field.empty())
    throw wrong_pack(fmt::format("all fields are packed into {}, and --field is '{}'", options.to,
                                 options.field),
                     "--to tokens, or leave --field out");
  constexpr int64_t kLeastShard = 1 << 16;
  if (options.shard_bytes < kLeastShard)
    throw wrong_pack(fmt::format("shards of {} are too small", format_bytes(options.shard_bytes)),
                     "at least 64KiB");
  check_output(options.output);
}

std::vector<PackedPart> pack_records(const std::vector<PackPart>& parts,
                                     const PackOptions& options) {
  check_pack(options);
  try {
    UnfinishedFolder unfinished(options.output);
    std::vector<PackedPart> packed;
    for (const PackPart& part : parts)
      packed.push_back(pack_part(part, unfinished.path() / part.folder, options));
    unfinished.finish();
    return packed;
  } catch (const fs::filesystem_error& error) {
    throw Error(ErrorCode::io, "data", error.what(), "an --output that can be written");
  }
}

}  // namespace trireme::records
