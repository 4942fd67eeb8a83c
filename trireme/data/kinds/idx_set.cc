#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/data/kinds/idx_set.h>
#include <trireme/data/kinds/image_set.h>

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_idx(const char* what, const char* remedy) {
  throw Error(ErrorCode::invalid_argument, "data", what, remedy);
}

bool is_file(const fs::path& path) {
  std::error_code status;
  return fs::is_regular_file(path, status);
}

// The file that the key names, or the one with the usual name in the folder. Empty if there is
// none and `required` is false.
fs::path find_file(const std::string& key, const std::string& named, const std::string& folder,
                   const std::string& usual_name, bool required) {
  if (!named.empty()) {
    if (is_file(named)) return named;
    throw Error(ErrorCode::not_found, "config",
                fmt::format("{} is {}, but there is no such file", key, named),
                fmt::format("{}=FILE, relative to the working directory", key));
  }
  if (!folder.empty()) {
    for (const fs::path& path :
         {fs::path(folder) / usual_name, fs::path(folder) / (usual_name + ".gz")}) {
      if (is_file(path)) return path;
    }
  }
  if (!required) return {};
  throw Error(ErrorCode::not_found, "config",
              fmt::format("there is neither {0} nor {0}.gz in the folder data.path, {1}",
                          usual_name, folder.empty() ? "which is not given" : folder),
              fmt::format("{}=FILE, or data.path=FOLDER", key));
}

std::string size_of_images(const ImageTable& table) {
  return fmt::format("{}x{}x{}", table.channels, table.height, table.width);
}

}  // namespace

void check_idx_set(const DataOptions& options) {
  if (!options.path.empty()) return;
  if (options.images.empty() || options.labels.empty())
    refuse_idx(
        "data.name is idx, but data.images and data.labels do not name the two training files",
        "data.images=FILE and data.labels=FILE, or data.path=FOLDER that holds both");
  if (options.test_images.empty() != options.test_labels.empty())
    refuse_idx(options.test_labels.empty()
                   ? "data.test_images is given without the other file, data.test_labels"
                   : "data.test_labels is given without the other file, data.test_images",
               "give both, or none");
}

Dataset read_idx_set(const DataOptions& options) {
  const std::optional<int64_t> classes = classes_of(options);
  const IdxFiles files = find_idx_files(options);
  ImageTable train = read_idx(files.images, files.labels, classes), test;
  if (!files.test_images.empty())
    test = read_idx(files.test_images, files.test_labels,
                    classes ? classes : std::optional(train.classes));
  if (test.count > 0 && size_of_images(test) != size_of_images(train))
    throw Error(
        ErrorCode::invalid_argument, "cli",
        fmt::format("the images in {} are {}, those in {} are {}", files.images.string(),
                    size_of_images(train), files.test_images.string(), size_of_images(test)),
        "a test part of the same data set");
  return dataset_of(std::move(train), std::move(test), options);
}

IdxFiles find_idx_files(const DataOptions& data) {
  IdxFiles files;
  files.images = find_file("data.images", data.images, data.path, "train-images-idx3-ubyte", true);
  files.labels = find_file("data.labels", data.labels, data.path, "train-labels-idx1-ubyte", true);
  // The test part of a folder is used only if the training files come from that folder too.
  const std::string test_folder = data.images.empty() ? data.path : "";
  files.test_images = find_file("data.test_images", data.test_images, test_folder,
                                "t10k-images-idx3-ubyte", !data.test_labels.empty());
  if (!files.test_images.empty()) {
    files.test_labels = find_file("data.test_labels", data.test_labels, test_folder,
                                  "t10k-labels-idx1-ubyte", true);
  }
  return files;
}

}  // namespace trireme::data
