#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/data/kinds/shipped_data.h>
#include <cstdlib>
#include <vector>

namespace trireme::data {
namespace fs = std::filesystem;

namespace {

std::vector<fs::path> places_of_data() {
  const fs::path own_folder = fs::read_symlink("/proc/self/exe").parent_path();
  std::vector<fs::path> places;
  if (const char* folder = std::getenv("TRIREME_DATA")) places.push_back(folder);
  places.push_back(own_folder / "../../data");
  places.push_back(own_folder / "../share/trireme/data");
  return places;
}

}  // namespace

std::optional<fs::path> folder_of_shipped_data() {
  for (const fs::path& place : places_of_data())
    if (path_exists(place)) return place.lexically_normal();
  return std::nullopt;
}

fs::path shipped_data(const std::string& file) {
  for (const fs::path& place : places_of_data())
    if (const fs::path found = (place / file).lexically_normal(); path_exists(found)) return found;
  throw Error(ErrorCode::not_found, "cli",
              fmt::format("the data file {} is not beside this programme", file),
              fmt::format("data.path: the file {}, or TRIREME_DATA: its folder", file));
}

}  // namespace trireme::data
