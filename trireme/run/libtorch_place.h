// The LibTorch that the programmes with torch load. `trireme` loads none itself, so it can look
// for one first, and name what is wrong. No torch.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace trireme {

// The version of the LibTorch in a folder with include/ and lib/. Empty if there is none.
std::optional<std::string> libtorch_version(const std::filesystem::path& folder);

struct LibTorchSearch {
  std::string torch_dir;                      // $TORCH_DIR. If it is set, no other place counts.
  std::filesystem::path wheel;                // The torch beside the Python package, or empty.
  std::filesystem::path build;                // The LibTorch with which Trireme was built.
  std::vector<std::filesystem::path> others;  // Places where a LibTorch may be.
};
// The search of the programme in `own_folder`: the variables are those of this process.
LibTorchSearch libtorch_search(const std::filesystem::path& own_folder);

// The folder of the first LibTorch of the right version. Throws Error(not_found) that names the
// places, or Error(unsupported) that names both versions.
std::filesystem::path find_libtorch(const LibTorchSearch& search);

// Makes the programmes with torch in `own_folder`, started from now on, load the right LibTorch.
// Throws as find_libtorch() does. Sets LD_LIBRARY_PATH, since a package cannot know the place.
void use_libtorch(const std::filesystem::path& own_folder);

}  // namespace trireme
