#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/built_with.h>
#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/base/python_packages.h>
#include <trireme/run/libtorch_place.h>
#include <array>
#include <cstdlib>

namespace trireme {
namespace fs = std::filesystem;
namespace {

constexpr const char* kVersionFile = "include/torch/headeronly/version.h";

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

Error other_libtorch(const fs::path& folder, const std::string& version, bool in_python) {
  const std::string_view wanted = libtorch_of_build();
  return Error(ErrorCode::unsupported, "cli",
               fmt::format("this Trireme was built with LibTorch {}, and {} is LibTorch {}",
                           wanted, folder.string(), version),
               fmt::format("{}TORCH_DIR: the folder of a LibTorch {}, or a Trireme built with {}",
                           in_python ? fmt::format("pip install torch=={}, ", wanted) : "", wanted,
                           version));
}

// The first place counts that has a LibTorch, of whichever version.
bool is_right(const fs::path& folder, bool in_python) {
  const auto version = libtorch_version(folder);
  if (version && *version != libtorch_of_build())
    throw other_libtorch(folder, *version, in_python);
  return version.has_value();
}

}  // namespace

std::optional<std::string> libtorch_version(const fs::path& folder) {
  if (!path_exists(folder / kVersionFile)) return std::nullopt;
  const std::string header = read_file(folder / kVersionFile);
  std::array<std::string, 3> numbers;
  const std::array<const char*, 3> names{"MAJOR", "MINOR", "PATCH"};
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string define = fmt::format("#define TORCH_VERSION_{} ", names[i]);
    const size_t at = header.find(define);
    if (at == std::string::npos) return std::nullopt;
    for (size_t digit = at + define.size(); digit < header.size(); ++digit) {
      if (header[digit] < '0' || header[digit] > '9') break;
      numbers[i] += header[digit];
    }
  }
  return fmt::format("{}", fmt::join(numbers, "."));
}

LibTorchSearch libtorch_search(const fs::path& own_folder) {
  LibTorchSearch search{.torch_dir = variable("TORCH_DIR"), .build = libtorch_folder_of_build()};
  // In a wheel, own_folder is trireme/bin of the site-packages.
  if (path_exists(own_folder / "../__init__.py"))
    search.wheel = (own_folder / "../../torch").lexically_normal();
  for (const char* folder : {"/opt/libtorch", "/usr/local/libtorch"})
    search.others.emplace_back(folder);
  for (fs::path& folder : folders_of_python_package("torch"))
    search.others.push_back(std::move(folder));
  return search;
}

fs::path find_libtorch(const LibTorchSearch& search) {
  const std::string remedy = fmt::format(
      "pip install torch=={0}, or TORCH_DIR: the folder with include/ and lib/ of a LibTorch {0}",
      libtorch_of_build());
  if (!search.torch_dir.empty()) {
    if (is_right(search.torch_dir, false)) return search.torch_dir;
    throw Error(ErrorCode::not_found, "cli",
                fmt::format("TORCH_DIR is {}, and there is no LibTorch (no {})", search.torch_dir,
                            kVersionFile),
                remedy);
  }
  if (!search.wheel.empty() && is_right(search.wheel, true)) return search.wheel;
  std::vector<std::string> places;
  std::optional<Error> other;
  if (search.wheel.empty() && is_right(search.build, false)) return search.build;
  places.push_back((search.wheel.empty() ? search.build : search.wheel).string());
  for (const fs::path& place : search.others) {
    const auto version = libtorch_version(place);
    if (version && *version == libtorch_of_build()) return place;
    if (version && !other) other = other_libtorch(place, *version, true);
    places.push_back(place.string());
  }
  if (other) throw *other;
  throw Error(ErrorCode::not_found, "cli",
              fmt::format("there is no LibTorch {} in any of {}", libtorch_of_build(),
                          fmt::join(places, ", ")),
              remedy);
}

void use_libtorch(const fs::path& own_folder) {
  const LibTorchSearch search = libtorch_search(own_folder);
  const fs::path found = find_libtorch(search);
  if (found == search.wheel) return;  // The programmes of a wheel find this one themselves.
  std::string path = (found / "lib").string();
  const std::string before = variable("LD_LIBRARY_PATH");
  if ((before + ":").starts_with(path + ":")) return;
  if (!before.empty()) path += ":" + before;
  setenv("LD_LIBRARY_PATH", path.c_str(), 1);
}

}  // namespace trireme
