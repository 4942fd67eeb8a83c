#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/run/places.h>

namespace trireme {
namespace {

namespace fs = std::filesystem;

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

}  // namespace

IdxFiles find_idx_files(const data::DataOptions& data) {
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

}  // namespace trireme
