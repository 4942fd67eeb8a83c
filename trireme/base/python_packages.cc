#include <trireme/base/python_packages.h>
#include <cstdlib>
#include <string>
#include <system_error>

namespace trireme {
namespace {

namespace fs = std::filesystem;

// The package of the Pythons in `folder`.
void add_of_pythons(const fs::path& folder, const char* packages, std::string_view package,
                    std::vector<fs::path>& found) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().filename().string().starts_with("python3"))
      if (const fs::path place = entry.path() / packages / package; fs::exists(place, ignored))
        found.push_back(place);
}

}  // namespace

std::vector<fs::path> folders_of_python_package(std::string_view package) {
  std::vector<fs::path> found;
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value ? value : "");
  };
  for (const char* const name : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const std::string folder = variable(name); !folder.empty())
      add_of_pythons(fs::path(folder) / "lib", "site-packages", package, found);
  if (const std::string home = variable("HOME"); !home.empty())
    add_of_pythons(fs::path(home) / ".local/lib", "site-packages", package, found);
  add_of_pythons("/usr/local/lib", "dist-packages", package, found);
  add_of_pythons("/usr/local/lib", "site-packages", package, found);
  return found;
}

}  // namespace trireme
