// CIFAR-10 and CIFAR-100 as their authors distribute them in binary.
#include <fmt/format.h>
#include <trireme/base/files.h>
#include <trireme/base/text.h>
#include <trireme/records/formats.h>
#include <trireme/records/remote/address.h>
#include <algorithm>
#include <cstring>
#include "mapped_files.h"

namespace trireme::records {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kPixels = 3 * 32 * 32;
constexpr int64_t kLabelCounts[2] = {20, 100};  // Of coarse and fine.

// The names in a file beside the data, one a line. Empty if there is none. Throws Error.
std::vector<std::string> names_beside(const fs::path& file) {
  std::vector<std::string> names;
  if (!path_exists(file)) return names;
  std::string text;
  with_place([&] { return file.string(); },
             [&] {
               constexpr uint64_t kMostBytes = 1 << 20;
               const DataFile opened(file);
               if (opened.size() > kMostBytes)
                 throw Damage(fmt::format("it has {} bytes, more than the {} that the names of "
                                          "classes may have",
                                          opened.size(), kMostBytes),
                              "the file that came with the data", ErrorCode::invalid_argument);
               text.resize(opened.size());
               opened.read(0, std::as_writable_bytes(std::span(text)));
             });
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (const auto name = trimmed(std::string_view(text).substr(at, end - at)); !name.empty())
      names.emplace_back(name);
    at = end + 1;
  }
  return names;
}

class CifarReader : public Reader {
 public:
  explicit CifarReader(MappedFiles files) : files_(std::move(files)) {
    uint64_t label_bytes = 0;
    for (size_t file = 0; file < files_.maps.size(); ++file) {
      const uint64_t bytes = files_.maps[file]->bytes().size();
      const bool is_10 = bytes % (1 + kPixels) == 0, is_100 = bytes % (2 + kPixels) == 0;
      const uint64_t labels = is_10 && label_bytes != 2 ? 1 : is_100 ? 2 : 0;
      if (bytes == 0 || labels == 0 || (label_bytes != 0 && labels != label_bytes))
        throw Error(ErrorCode::corrupt, "data",
                    fmt::format("{}: {} bytes are no whole number of records of {} (CIFAR-10) or "
                                "{} bytes (CIFAR-100), as in the first file",
                                files_.path(file), bytes, 1 + kPixels, 2 + kPixels),
                    "fetching the file again");
      label_bytes = labels;
      first_.push_back(size_);
      size_ += static_cast<int64_t>(bytes / (labels + kPixels));
    }
    label_bytes_ = label_bytes;
    const fs::path folder = files_.files.base;
    if (!files_.files.remote)  // A server need not have that file, and may be gone.
      class_names_ =
          names_beside(folder / (label_bytes_ == 1 ? "batches.meta.txt" : "fine_label_names.txt"));
    fields_.push_back({.name = "image", .shape = image_shape_});
    for (const char* const name : {"label", "fine", "coarse"})
      if (label_bytes_ == 2 || std::string_view(name) == "label")
        fields_.push_back(
            {.name = name, .dtype = plan::DType::int64, .shape = std::vector<int64_t>{}});
    content_ = content_of("cifar", Json::object(), files_.identities);
  }

  int64_t size() const override { return size_; }
  const std::vector<FieldSpec>& fields() const override { return fields_; }
  const std::string& content() const override { return content_; }
  std::vector<int64_t> blocks() const override { return blocks_of_files(first_, size_); }
  std::vector<std::string> class_names() const override { return class_names_; }
  std::string place(int64_t index) const override {
    const auto [file, number] = find(index);
    return fmt::format("{}, record {} at byte {}", files_.path(file), number,
                       number * (label_bytes_ + kPixels));
  }
  int64_t stamp(int64_t) const override { return newest_time(files_); }
  std::optional<int64_t> label(int64_t index) const override {
    return with_place([&] { return place(index); },
                      [&] {
                        const auto bytes = bytes_of(index);
                        return label_in(bytes, label_bytes_ - 1);
                      });
  }
  void read(int64_t index, Record& record) const override {
    require_record(index, size_);
    record.clear();
    with_place([&] { return place(index); },
               [&] {
                 const auto bytes = bytes_of(index);
                 record.fields.push_back(
                     {.name = "image", .bytes = bytes.last(kPixels), .shape = image_shape_});
                 const size_t labels = label_bytes_ == 1 ? 1 : 3;
                 const auto room = record.room(labels * sizeof(int64_t));
                 for (size_t i = 0; i < labels; ++i) {
                   const auto place_of_label = room.subspan(i * sizeof(int64_t), sizeof(int64_t));
                   // "label" is the fine one.
                   const int64_t value = label_in(bytes, i == 2 ? 0 : label_bytes_ - 1);
                   std::memcpy(place_of_label.data(), &value, sizeof value);
                   record.fields.push_back({.name = fields_[1 + i].name,
                                            .bytes = place_of_label,
                                            .dtype = plan::DType::int64});
                 }
               });
  }
  void warm(int64_t index) const override {
    const auto [file, number] = find(index);
    warm_bytes(files_.maps[file]->bytes(), number * (label_bytes_ + kPixels));
  }

 private:
  std::pair<size_t, uint64_t> find(int64_t index) const {
    require_record(index, size_);
    const auto file =
        static_cast<size_t>(std::ranges::upper_bound(first_, index) - first_.begin() - 1);
    return {file, static_cast<uint64_t>(index - first_[file])};
  }
  std::span<const std::byte> bytes_of(int64_t index) const {
    const auto [file, number] = find(index);
    files_.maps[file]->check();
    const uint64_t bytes = label_bytes_ + kPixels;
    return files_.maps[file]->bytes().subspan(number * bytes, bytes);
  }
  int64_t label_in(std::span<const std::byte> bytes, size_t at) const {
    const auto label = std::to_integer<int64_t>(bytes[at]);
    const int64_t count = label_bytes_ == 1 ? 10 : kLabelCounts[at];
    if (label >= count)
      throw Damage(fmt::format("the label is {}, but must be below {}", label, count));
    return label;
  }

  MappedFiles files_;
  std::vector<int64_t> image_shape_{3, 32, 32};
  std::vector<int64_t> first_;  // The number of each file's first record.
  int64_t size_ = 0;
  uint64_t label_bytes_ = 1;
  std::vector<FieldSpec> fields_;
  std::vector<std::string> class_names_;
  std::string content_;
};

DataFiles files_of_cifar(const OpenOptions& options) {
  const std::string part = options.part.empty() ? "train" : options.part;
  if (part != "train" && part != "test")
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("the part of CIFAR is '{}'", part), "train or test");
  if (is_address(options.path) || !fs::is_directory(options.path)) return files_of(options);
  const fs::path folder = options.path;
  for (const std::string name : {part == "train" ? "data_batch_*.bin" : "test_batch.bin",
                                 part == "train" ? "train.bin" : "test.bin"}) {
    DataFiles found{.base = folder, .names = {}, .given = options.path};
    for (const std::string_view end : kPackedEnds) {
      try {
        for (std::string& each : find_files((folder / name).string().append(end)).names)
          found.names.push_back(std::move(each));
      } catch (const Error& error) {
        if (error.code() != ErrorCode::not_found) throw;
      }
    }
    std::ranges::sort(found.names);
    if (!found.names.empty()) return found;
  }
  throw Error(ErrorCode::not_found, "data",
              fmt::format("'{}' has no files of CIFAR for the part {}", options.path, part),
              "the folder with data_batch_1.bin or train.bin, plain, .gz or .zst");
}

}  // namespace

SharedReader open_cifar(const OpenOptions& options) {
  return std::make_shared<CifarReader>(
      map_files(files_of_cifar(options), options.unpack_limits()));
}

}  // namespace trireme::records
