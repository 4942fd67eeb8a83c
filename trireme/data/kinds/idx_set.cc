#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/data/kinds/idx_set.h>
#include <trireme/data/kinds/image_set.h>
#include <trireme/data/kinds/record_set.h>
#include <trireme/records/formats/idx_files.h>
#include <trireme/records/remote/address.h>
#include <tuple>
#include <utility>

namespace trireme::data {
namespace {

namespace fs = std::filesystem;
using records::IdxKind;

[[noreturn]] void refuse_idx(const char* what, const char* remedy) {
  throw Error(ErrorCode::invalid_argument, "data", what, remedy);
}

// An address is always that of a file, because the folders of a server cannot be listed.
bool is_file(const fs::path& path) {
  if (records::is_address(path.string())) return true;
  std::error_code status;
  return fs::is_regular_file(path, status);
}

struct KeyOfFile {
  const char* name;
  const std::string& value;
};

// The keys that name the files of a part.
struct KeysOfPart {
  const char* part;  // train, test
  KeyOfFile images, labels, path;
  bool is_required = true;
};

// The file that the key names, or the one with the usual name in the folder. Empty if there is
// none and `is_required` is false.
fs::path find_file(const KeyOfFile& key, const KeyOfFile& folder, const std::string& usual_name,
                   bool is_required) {
  if (!key.value.empty()) {
    if (is_file(key.value)) return key.value;
    throw Error(ErrorCode::not_found, "config",
                fmt::format("{} is {}, but there is no such file", key.name, key.value),
                fmt::format("{}=FILE, relative to the working directory", key.name));
  }
  if (!folder.value.empty())
    if (const fs::path path = records::find_idx_file(folder.value, usual_name); !path.empty())
      return path;
  if (!is_required) return {};
  throw Error(
      ErrorCode::not_found, "config",
      fmt::format("there is neither {0} nor {0}.gz in the folder {1}, {2}", usual_name,
                  folder.name,
                  folder.value.empty() ? "which is not given" : records::shown_path(folder.value)),
      fmt::format("{}=FILE, or {}=FOLDER", key.name, folder.name));
}

// The labels of the file of images that data.path or data.test_path names.
fs::path labels_of_file(const KeysOfPart& keys) {
  if (!keys.labels.value.empty())
    return find_file(keys.labels, keys.path, /*usual_name=*/"", /*is_required=*/true);
  fs::path labels = records::labels_beside(keys.path.value);
  if (!labels.empty()) return labels;
  throw Error(ErrorCode::not_found, "config",
              fmt::format("{} is {}, and the file of labels is not beside it, with labels-idx1 in "
                          "its name for images-idx3",
                          keys.path.name, records::shown_path(keys.path.value)),
              fmt::format("{}=FILE", keys.labels.name));
}

// The files of images and labels; both empty if the part is not there and not required.
std::pair<fs::path, fs::path> find_pair(const KeysOfPart& keys) {
  if (keys.images.value.empty() && is_file(keys.path.value))
    return {keys.path.value, labels_of_file(keys)};
  const auto find = [&](const KeyOfFile& key, IdxKind kind, bool is_required) {
    return find_file(key, keys.path, records::usual_idx_name(keys.part, kind), is_required);
  };
  const fs::path images = find(keys.images, IdxKind::images, keys.is_required);
  if (images.empty()) return {};
  return {images, find(keys.labels, IdxKind::labels, true)};
}

std::string size_of_images(const ImageTable& table) {
  return fmt::format("{}x{}x{}", table.channels, table.height, table.width);
}

// Reads all images at once.
Dataset read_idx_tables(const DataOptions& options) {
  const std::optional<int64_t> classes = classes_of(options);
  const IdxFiles files = find_idx_files(options);
  const auto limits = records::UnpackLimits::of_whole_file(options.max_ratio, "data.max_ratio");
  ImageTable train = read_idx(files.images, files.labels, classes, limits), test;
  if (!files.test_images.empty())
    test = read_idx(files.test_images, files.test_labels,
                    classes ? classes : std::optional(train.classes), limits);
  if (test.count > 0 && size_of_images(test) != size_of_images(train))
    throw Error(
        ErrorCode::invalid_argument, "cli",
        fmt::format("the images in {} are {}, those in {} are {}", files.images.string(),
                    size_of_images(train), files.test_images.string(), size_of_images(test)),
        "a test part of the same data set");
  return dataset_of(std::move(train), std::move(test), options);
}

}  // namespace

DataKind idx_kind() {
  DataKind kind{.name = kIdx,
                .about = "MNIST's file format",
                .path =
                    "the folder that holds the files under their usual names, or the file of "
                    "the training images.",
                .keys = {"data.images", "data.labels", "data.test_images", "data.test_labels"},
                .holder = "the files of data.path, data.images and data.labels hold",
                .has_blocks = true,
                .check = check_idx_set,
                .read = read_idx_set};
  add_record_keys(kind);
  return kind;
}

void check_idx_files(const DataOptions& options) {
  if (!options.test_path.empty() && !options.test_images.empty())
    refuse_idx("data.test_path and data.test_images are given, and both name the test images",
               "one of them");
  if (!options.path.empty()) return;
  if (options.images.empty() || options.labels.empty())
    refuse_idx(
        "data.name is idx, but data.images and data.labels do not name the two training files",
        "data.images=FILE and data.labels=FILE, or data.path=FOLDER that holds both");
  if (options.test_path.empty() && options.test_images.empty() != options.test_labels.empty())
    refuse_idx(options.test_labels.empty()
                   ? "data.test_images is given without the other file, data.test_labels"
                   : "data.test_labels is given without the other file, data.test_images",
               "give both, or none");
}

void check_idx_set(const DataOptions& options) {
  if (needs_records(options))
    check_record_set(options);
  else
    check_idx_files(options);
}

Dataset read_idx_set(const DataOptions& options) {
  return needs_records(options) ? read_record_set(options) : read_idx_tables(options);
}

IdxFiles find_idx_files(const DataOptions& data) {
  const std::string none;
  IdxFiles files;
  std::tie(files.images, files.labels) = find_pair({"train",
                                                    {"data.images", data.images},
                                                    {"data.labels", data.labels},
                                                    {"data.path", data.path}});
  // The test part of a folder is used only if the training files come from that folder too.
  const bool has_folder = data.images.empty() && !is_file(data.path);
  const bool has_path = !data.test_path.empty();
  const KeyOfFile beside{"data.path", has_folder ? data.path : none};
  std::tie(files.test_images, files.test_labels) =
      find_pair({"test",
                 {"data.test_images", data.test_images},
                 {"data.test_labels", data.test_labels},
                 has_path ? KeyOfFile{"data.test_path", data.test_path} : beside,
                 /*is_required=*/has_path || !data.test_labels.empty()});
  return files;
}

}  // namespace trireme::data
