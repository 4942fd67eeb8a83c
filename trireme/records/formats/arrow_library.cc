// CMake defines for this file: TRIREME_ARROW_VERSION, the Arrow with which libtrireme_arrow.so was
// built, and TRIREME_ARROW_LIBRARIES, the names of its libraries with commas between them;
// TRIREME_ARROW_BUILT and TRIREME_ARROW_INSTALLED, the folders where a build and an installation
// have libtrireme_arrow.so. A build without Arrow has no_arrow_library.cc instead.
#include "arrow_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <trireme/base/built_with.h>
#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/base/python_packages.h>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::records {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPluginFile = "libtrireme_arrow.so";

Error lacking_arrow(std::string_view reason) {
  return Error(ErrorCode::unsupported, "data",
               fmt::format("data in Parquet and Arrow files needs {} and the libraries of Apache "
                           "Arrow {}, which cannot be loaded: {}",
                           kPluginFile, TRIREME_ARROW_VERSION, reason),
               fmt::format("pip install pyarrow=={}, or ARROW_DIR: the folder of this Arrow; "
                           "TRIREME_ARROW_PLUGIN: the path of {}",
                           TRIREME_ARROW_VERSION, kPluginFile));
}

std::string variable_of(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

// The folders of this programme, and of the shared library that has this code.
std::vector<fs::path> own_folders() {
  std::vector<fs::path> folders;
  std::error_code ignored;
  if (const fs::path self = fs::read_symlink("/proc/self/exe", ignored); !self.empty())
    folders.push_back(self.parent_path());
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(&own_folders), &info) != 0 && info.dli_fname)
    if (const fs::path file = info.dli_fname; file.has_parent_path())
      folders.push_back(file.parent_path());
  return folders;
}

// The files that may be the library, the best first.
std::vector<std::string> places_of_plugin() {
  if (const std::string chosen = variable_of("TRIREME_ARROW_PLUGIN"); !chosen.empty())
    return {chosen};
  std::vector<std::string> places;
  const auto add = [&](const fs::path& folder) {
    if (path_exists(folder / kPluginFile)) places.push_back(folder / kPluginFile);
  };
  const std::string installed = TRIREME_ARROW_INSTALLED;
  for (const fs::path& folder : own_folders()) {
    add(folder);
    add(folder / "../lib");
    // Debian's folder for libraries is one deeper.
    if (const size_t lib = installed.rfind("/lib/"); lib != std::string::npos)
      add(folder / ".." / installed.substr(lib + 1));
  }
  add(TRIREME_ARROW_BUILT);
  add(installed);
  places.emplace_back(kPluginFile);  // Where the system's loader looks.
  return places;
}

// The folders that may have Arrow's libraries, if the loader does not find them.
std::vector<fs::path> places_of_arrow() {
  if (const std::string chosen = variable_of("ARROW_DIR"); !chosen.empty())
    return {chosen, fs::path(chosen) / "lib"};
  std::vector<fs::path> places;
  // Beside a LibTorch that is a Python package.
  if (const std::string torch = variable_of("TORCH_DIR"); !torch.empty())
    places.push_back(fs::path(torch) / "../pyarrow");
  places.push_back(fs::path(libtorch_folder_of_build()) / "../pyarrow");
  for (fs::path& folder : folders_of_python_package("pyarrow"))
    places.push_back(std::move(folder));
  return places;
}

// Loads Arrow's libraries by their paths: the loader then takes these for the library's needs.
bool load_libraries(const fs::path& folder) {
  std::string_view names = TRIREME_ARROW_LIBRARIES;
  while (!names.empty()) {
    const std::string_view name = names.substr(0, names.find(','));
    names.remove_prefix(std::min(names.size(), name.size() + 1));
    const fs::path file = folder / name;
    if (!path_exists(file) || !::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return false;
  }
  return true;
}

void* load_plugin(const std::string& file, std::string& why) {
  void* handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle) return handle;
  const std::string first = ::dlerror();
  if (why.empty()) why = first;
  // The reason begins with the file that is wrong. If that is this one, Arrow does not help.
  if (first.starts_with(file)) return nullptr;
  for (const fs::path& folder : places_of_arrow())
    if (load_libraries(folder)) {
      handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (handle) return handle;
      why = ::dlerror();
    }
  return nullptr;
}

const ArrowPlugin& load_arrow() {
  std::string why;
  for (const std::string& file : places_of_plugin()) {
    void* const handle = load_plugin(file, why);
    if (!handle) continue;
    const auto entry =
        reinterpret_cast<const ArrowPlugin* (*)()>(::dlsym(handle, "trireme_arrow_plugin"));
    const ArrowPlugin* const plugin = entry ? entry() : nullptr;
    if (plugin && plugin->version == kArrowPluginVersion) return *plugin;
    throw lacking_arrow(fmt::format("{} belongs to another version of Trireme", file));
  }
  throw lacking_arrow(why);
}

}  // namespace

const ArrowPlugin& arrow_library() {
  static const ArrowPlugin& library = load_arrow();
  return library;
}

}  // namespace trireme::records
