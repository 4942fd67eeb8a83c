// MNIST's format IDX: a file of images and one of their labels, plain or packed by gzip or zstd.
#include <fmt/format.h>
#include <trireme/checkpoint/digest.h>
#include <trireme/records/damage.h>
#include <trireme/records/data_files.h>
#include <trireme/records/formats.h>
#include <trireme/records/formats/idx_files.h>
#include <trireme/records/indexed_reader.h>
#include <trireme/records/mapped_file.h>
#include <trireme/records/remote/address.h>
#include <trireme/records/remote/remote_files.h>
#include <trireme/records/unpack.h>
#include <algorithm>
#include <cstring>
#include <mutex>

namespace trireme::records {
namespace {

namespace fs = std::filesystem;

// One of the two files.
struct IdxFile {
  std::string path;
  std::unique_ptr<MappedFile> map;
  int64_t mtime_ns = 0;
  bool is_remote = false;
  IdxHeader header;
  std::span<const std::byte> values;

  // Throws Damage that names the file.
  void check() const {
    try {
      map->check();
    } catch (Damage& damage) {
      damage.what = fmt::format("{}: {}", path, damage.what);
      throw;
    }
  }
};

// The two files of a part. Those on a server are fetched before they are opened, and no index
// knows which version is the right one.
class IdxFiles {
 public:
  IdxFiles(const fs::path& labels, const fs::path& images, const OpenOptions& options) {
    std::vector<std::string> addresses;
    for (const fs::path& path : {labels, images})
      if (is_address(path.string())) addresses.push_back(path.string());
    if (addresses.empty()) return;
    remote_ = std::make_unique<RemoteFiles>(std::move(addresses), options.download);
    remote_->ask_for_changes();
  }

  // Labels first.
  DataFile open(const fs::path& path, IdxKind kind) {
    if (!is_address(path.string())) return DataFile(path);
    try {
      return remote_->open_to_stay(next_++);
    } catch (Damage& damage) {
      if (kind == IdxKind::labels && damage.code == ErrorCode::not_found)
        damage.remedy = "put the file there, or name it with the option labels";
      throw;
    }
  }

 private:
  std::unique_ptr<RemoteFiles> remote_;
  size_t next_ = 0;
};

IdxFile open_idx_file(const fs::path& path, IdxKind kind, const OpenOptions& options,
                      IdxFiles& files) {
  IdxFile opened;
  opened.path = shown_path(path.string());
  opened.is_remote = is_address(path.string());
  with_place([&] { return opened.path; },
             [&] {
               opened.map =
                   std::make_unique<MappedFile>(files.open(path, kind), options.unpack_limits());
             });
  opened.mtime_ns = opened.map->file().mtime_ns();
  const std::span<const std::byte> bytes = opened.map->bytes();
  opened.header = parse_idx_header(bytes, kind, opened.path);
  opened.values = bytes.subspan(opened.header.bytes);
  return opened;
}

class IdxReader : public Reader {
 public:
  IdxReader(IdxFile images, IdxFile labels)
      : images_(std::move(images)), labels_(std::move(labels)) {
    require_label_for_each_image(images_.path, images_.header, labels_.path, labels_.header);
    const auto& sizes = images_.header.sizes;
    size_ = static_cast<int64_t>(sizes[0]);
    shape_ = {1, static_cast<int64_t>(sizes[1]), static_cast<int64_t>(sizes[2])};
    image_bytes_ = sizes[1] * sizes[2];
    fields_ = {{.name = "image", .shape = shape_},
               {.name = "label", .dtype = plan::DType::int64, .shape = std::vector<int64_t>{}}};
  }

  int64_t size() const override { return size_; }
  const std::vector<FieldSpec>& fields() const override { return fields_; }
  // All bytes are read for it, at the first call.
  const std::string& content() const override {
    std::call_once(has_content_, [&] { content_ = digest(); });
    return content_;
  }
  std::string place(int64_t index) const override {
    require_record(index, size_);
    return fmt::format("{}, record {} at byte {}", images_.path, index,
                       images_.header.bytes + static_cast<uint64_t>(index) * image_bytes_);
  }
  int64_t stamp(int64_t) const override {
    // Fetched files have no times, but numbers of their bytes.
    if (images_.is_remote || labels_.is_remote) return images_.mtime_ns ^ labels_.mtime_ns;
    return std::max(images_.mtime_ns, labels_.mtime_ns);
  }
  std::optional<int64_t> label(int64_t index) const override {
    require_record(index, size_);
    with_place([&] { return place(index); }, [&] { labels_.check(); });
    return label_of(static_cast<size_t>(index));
  }
  void read(int64_t index, Record& record) const override {
    require_record(index, size_);
    record.clear();
    with_place([&] { return place(index); },
               [&] {
                 images_.check();
                 labels_.check();
               });
    const auto number = static_cast<size_t>(index);
    record.fields.push_back({.name = "image",
                             .bytes = images_.values.subspan(number * image_bytes_, image_bytes_),
                             .shape = shape_});
    const auto room = record.room(sizeof(int64_t)).first(sizeof(int64_t));
    const int64_t label = label_of(number);
    std::memcpy(room.data(), &label, sizeof label);
    record.fields.push_back({.name = "label", .bytes = room, .dtype = plan::DType::int64});
  }
  void warm(int64_t index) const override {
    require_record(index, size_);
    warm_bytes(images_.values, static_cast<uint64_t>(index) * image_bytes_);
  }

 private:
  int64_t label_of(size_t number) const {
    return std::to_integer<int64_t>(labels_.values[number]);
  }

  // The digest that a table of these images has (data/kinds/image_set.cc), so that a run may get
  // stages, or other packing of its files, when it continues.
  std::string digest() const {
    checkpoint::Digest digest;
    const std::string form = fmt::format("{} images of {} x {} x {}, up to 255\n", size_,
                                         shape_[0], shape_[1], shape_[2]);
    digest.update(std::as_bytes(std::span(form)));
    digest.update(images_.values);
    std::vector<int64_t> labels;
    for (size_t i = 0; i < labels_.values.size(); ++i) {
      labels.push_back(label_of(i));
      if (labels.size() < kLabelsAtOnce && i + 1 < labels_.values.size()) continue;
      digest.update(std::as_bytes(std::span(labels)));
      labels.clear();
    }
    for (const IdxFile* const file : {&images_, &labels_})
      with_place([&] { return file->path; }, [&] { file->map->check(); });
    return digest.text();
  }

  static constexpr size_t kLabelsAtOnce = 1 << 15;
  IdxFile images_, labels_;
  int64_t size_ = 0;
  uint64_t image_bytes_ = 0;
  std::vector<int64_t> shape_;
  std::vector<FieldSpec> fields_;
  mutable std::once_flag has_content_;
  mutable std::string content_;
};

struct IdxPaths {
  fs::path images, labels;
};

Error no_idx_file(const std::string& what, std::string_view remedy) {
  return Error(ErrorCode::not_found, "data", what, remedy);
}

IdxPaths paths_in_folder(const OpenOptions& options) {
  const auto find = [&](IdxKind kind) {
    const std::string name = usual_idx_name(options.part, kind);
    const fs::path path = find_idx_file(options.path, name);
    if (path.empty())
      throw no_idx_file(
          fmt::format("there is neither {0} nor {0}.gz in the folder '{1}'", name, options.path),
          "a folder with MNIST's names of files, or the path of a file of images");
    return path;
  };
  return {find(IdxKind::images),
          options.labels.empty() ? find(IdxKind::labels) : fs::path(options.labels)};
}

IdxPaths paths_of_idx(const OpenOptions& options) {
  if (!options.part.empty() && options.part != "train" && options.part != "test")
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("the part of idx is '{}'", options.part), "train or test");
  std::error_code unknown;
  if (fs::is_directory(options.path, unknown)) return paths_in_folder(options);
  const DataFiles files = files_of(options);
  if (files.names.size() != 1)
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("'{}' means {} files, but the images of idx are in one", files.given,
                            files.names.size()),
                "the path of that file, or of its folder");
  if (!options.part.empty())
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("the part is '{}', but '{}' is a file and no folder with both parts",
                            options.part, files.given),
                "the file of this part, and no part");
  IdxPaths paths{files.remote ? fs::path(files.remote->address(0)) : files.path_of(0),
                 options.labels};
  if (paths.labels.empty()) paths.labels = labels_beside(paths.images);
  if (paths.labels.empty())
    throw no_idx_file(
        fmt::format("the file of labels is not beside '{}', with labels-idx1 in its name for "
                    "images-idx3",
                    files.given),
        "the option labels, which names it");
  return paths;
}

// The address of the one file that `labels` names, without braces.
std::string address_of_labels(const fs::path& labels, const OpenOptions& options) {
  const DataFiles files = find_remote_files(labels.string(), options.download);
  if (files.names.size() == 1) return files.remote->address(0);
  throw Error(ErrorCode::invalid_argument, "data",
              fmt::format("'{}' names {} files, but the labels of idx are in one",
                          shown_path(labels.string()), files.names.size()),
              "the address of that file");
}

}  // namespace

SharedReader open_idx(const OpenOptions& options) {
  IdxPaths paths = paths_of_idx(options);
  if (is_address(paths.labels.string())) paths.labels = address_of_labels(paths.labels, options);
  IdxFiles files(paths.labels, paths.images, options);
  IdxFile labels = open_idx_file(paths.labels, IdxKind::labels, options, files);
  return std::make_shared<IdxReader>(open_idx_file(paths.images, IdxKind::images, options, files),
                                     std::move(labels));
}

}  // namespace trireme::records
