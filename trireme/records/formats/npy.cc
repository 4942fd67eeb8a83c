// NumPy's files: record i is the i-th part of each array along its first dimension.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/records/formats.h>
#include <trireme/records/remote/address.h>
#include <algorithm>
#include <cstring>
#include <numeric>
#include "mapped_files.h"
#include "npy_header.h"
#include "zip.h"

namespace trireme::records {
namespace {

namespace fs = std::filesystem;

struct NpyArray {
  std::string name;
  size_t file = 0;
  plan::DType dtype = plan::DType::float32;
  std::vector<int64_t> shape;  // Without the first dimension.
  int64_t records = 0;
  uint64_t record_bytes = 0;
  std::span<const std::byte> numbers;
  bool is_aligned = true;
  std::shared_ptr<const Block> block;  // If it was deflated.
};

NpyArray array_of(std::string name, size_t file, std::span<const std::byte> bytes) {
  const auto where = [&](Damage damage) {
    damage.what = fmt::format("the array '{}': {}", name, damage.what);
    return damage;
  };
  NpyHeader header;
  try {
    header = parse_npy_header(bytes, bytes.size());
    if (header.shape.empty())
      throw Damage("it is a single number, and has no records", "an array with one dimension more",
                   ErrorCode::unsupported);
  } catch (const Damage& damage) {
    throw where(damage);
  }
  NpyArray array{.name = std::move(name),
                 .file = file,
                 .dtype = header.dtype,
                 .shape = {header.shape.begin() + 1, header.shape.end()},
                 .records = header.shape[0],
                 .numbers = bytes.subspan(header.data, header.bytes)};
  if (array.records > 0) array.record_bytes = header.bytes / static_cast<uint64_t>(array.records);
  const auto size = static_cast<uint64_t>(plan::bytes_of(array.dtype));
  array.is_aligned = reinterpret_cast<uintptr_t>(array.numbers.data()) % size == 0;
  return array;
}

class NpyReader : public Reader {
 public:
  NpyReader(MappedFiles files, const OpenOptions& options) : files_(std::move(files)) {
    for (size_t file = 0; file < files_.maps.size(); ++file)
      with_place([&] { return files_.path(file); }, [&] { add_file(file, options); });
    check_sizes(options);
    for (const NpyArray& array : arrays_)
      fields_.push_back({.name = array.name, .dtype = array.dtype, .shape = array.shape});
    content_ = content_of("npy", Json::object(), files_.identities);
  }

  int64_t size() const override { return arrays_.front().records; }
  const std::vector<FieldSpec>& fields() const override { return fields_; }
  const std::string& content() const override { return content_; }
  std::string place(int64_t index) const override {
    return fmt::format("{}, record {}", files_.path(0), index);
  }
  void read(int64_t index, Record& record) const override {
    require_record(index, size());
    record.clear();
    with_place([&] { return place(index); },
               [&] {
                 for (const auto& map : files_.maps) map->check();
               });
    auto room = record.room(copied_bytes_);
    for (const NpyArray& array : arrays_) {
      auto bytes = part_of(array, index);
      if (!array.is_aligned) {
        if (!bytes.empty()) std::memcpy(room.data(), bytes.data(), bytes.size());
        bytes = room.first(bytes.size());
        room = room.subspan((bytes.size() + 15) / 16 * 16);
      }
      record.fields.push_back(
          {.name = array.name, .bytes = bytes, .dtype = array.dtype, .shape = array.shape});
    }
  }
  void warm(int64_t index) const override {
    require_record(index, size());
    for (const NpyArray& array : arrays_)
      warm_bytes(array.numbers, static_cast<uint64_t>(index) * array.record_bytes);
  }
  int64_t stamp(int64_t) const override { return newest_time(files_); }
  std::optional<int64_t> label(int64_t index) const override {
    require_record(index, size());
    if (!label_) return std::nullopt;
    const auto bytes = part_of(*label_, index);
    int64_t number = 0;  // Little-endian, and not negative.
    std::memcpy(&number, bytes.data(), bytes.size());
    return number;
  }
  void verify_files() const override {
    for (const auto& [file, member] : stored_)
      if (crc32_of(member.packed) != member.crc)
        throw Damage(fmt::format("member '{}' is damaged: its CRC-32 is wrong", member.name))
            .at(files_.path(file));
  }

 private:
  void add_file(size_t file, const OpenOptions& options) {
    const fs::path name = unpacked_name(files_.files.names[file]);
    const auto bytes = files_.maps[file]->bytes();
    if (name.extension() != ".npz") {
      arrays_.push_back(array_of(name.stem(), file, bytes));
      return;
    }
    if (files_.maps.size() != 1)
      throw Damage("there are other files beside it, but a .npz file has all arrays",
                   "the path of one .npz file", ErrorCode::invalid_argument);
    UnpackLimits limits = options.unpack_limits();
    limits.taken_bytes = files_.maps[file]->unpacked_bytes();
    for (const ZipMember& member : members_of_zip(bytes)) {
      const fs::path inner = member.name;
      if (inner.extension() != ".npy")
        throw Damage(fmt::format("member '{}' is no .npy file", member.name), "numpy.savez",
                     ErrorCode::unsupported);
      if (!member.is_deflated) {
        stored_.emplace_back(file, member);
        arrays_.push_back(array_of(inner.stem(), file, member.packed));
        continue;
      }
      auto block = inflate_member(member, limits);
      limits.taken_bytes += static_cast<int64_t>(block->bytes().size());
      arrays_.push_back(array_of(inner.stem(), file, block->bytes()));
      arrays_.back().block = std::move(block);
    }
  }

  void check_sizes(const OpenOptions& options) {
    if (arrays_.empty())
      throw Error(ErrorCode::invalid_argument, "data",
                  fmt::format("'{}' has no array", shown_path(options.path)), "another file");
    for (const NpyArray& array : arrays_) {
      const NpyArray& first = arrays_.front();
      const auto same = std::ranges::find(arrays_, array.name, &NpyArray::name);
      if (&*same != &array)
        throw Error(ErrorCode::invalid_argument, "data",
                    fmt::format("both {} and {} have an array '{}'", files_.path(same->file),
                                files_.path(array.file), array.name),
                    "one of them, or another name");
      if (array.records != first.records)
        throw Error(ErrorCode::invalid_argument, "data",
                    fmt::format("{}: the array '{}' has {} records, but '{}' has {}",
                                files_.path(array.file), array.name, array.records, first.name,
                                first.records),
                    "arrays with the same first dimension");
      if (!array.is_aligned) copied_bytes_ += (array.record_bytes + 15) / 16 * 16;
    }
    if (size() == 0)
      throw Error(ErrorCode::invalid_argument, "data",
                  fmt::format("{}: the arrays have no record", files_.path(0)), "other files");
    if (copied_bytes_ > static_cast<uint64_t>(options.memory_bytes))
      throw Error(ErrorCode::invalid_argument, "data",
                  fmt::format("{}: a record has {} bytes, more than the memory for one",
                              files_.path(0), copied_bytes_),
                  options.remedy_of_memory);
    if (options.label.empty()) return;
    const auto found = std::ranges::find(arrays_, options.label, &NpyArray::name);
    using plan::DType;
    const bool is_label = found != arrays_.end() && found->shape.empty() &&
                          (found->dtype == DType::uint8 || found->dtype == DType::uint16 ||
                           found->dtype == DType::uint32 || found->dtype == DType::int64);
    if (!is_label)
      throw Error(ErrorCode::invalid_argument, "data",
                  fmt::format("{}: there is no array '{}' with one label for each record, of "
                              "uint8, uint16, uint32 or int64",
                              files_.path(0), options.label),
                  "numpy.save of labels.astype(numpy.int64)");
    label_ = &*found;
  }

  static std::span<const std::byte> part_of(const NpyArray& array, int64_t index) {
    return array.numbers.subspan(static_cast<uint64_t>(index) * array.record_bytes,
                                 array.record_bytes);
  }

  MappedFiles files_;
  std::vector<NpyArray> arrays_;
  std::vector<std::pair<size_t, ZipMember>> stored_;
  const NpyArray* label_ = nullptr;
  uint64_t copied_bytes_ = 0;
  std::vector<FieldSpec> fields_;
  std::string content_;
};

}  // namespace

SharedReader open_npy(const OpenOptions& options) {
  return std::make_shared<NpyReader>(
      map_files(files_of(options, find_format("npy").ends), options.unpack_limits()), options);
}

}  // namespace trireme::records
