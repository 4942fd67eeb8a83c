#include <fmt/chrono.h>

#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/run/places.h>
#include <unistd.h>
#include <cstdlib>

namespace trireme {
namespace fs = std::filesystem;

namespace {
fs::path own_folder() { return fs::read_symlink("/proc/self/exe").parent_path(); }
}  // namespace

fs::path sibling_program(const std::string& name) {
  const fs::path path = own_folder() / name;
  if (!path_exists(path))
    throw Error(ErrorCode::not_found, "cli",
                fmt::format("the programme {} is missing", path.string()),
                fmt::format("build it (cmake --build build --target {}), or install "
                            "Trireme again",
                            name));
  return path;
}

fs::path shipped_digits() {
  std::vector<fs::path> places;
  if (const char* folder = std::getenv("TRIREME_DATA")) places.push_back(folder);
  places.push_back(own_folder() / "../../data");
  places.push_back(own_folder() / "../share/trireme/data");
  for (const fs::path& place : places)
    if (const fs::path file = (place / "digits.csv.gz").lexically_normal(); path_exists(file))
      return file;
  throw Error(ErrorCode::not_found, "cli", "the digits data set is not beside this programme",
              "data.path: the file digits.csv.gz, or TRIREME_DATA: its folder");
}

std::string make_run_dir(const Config& config) {
  if (!config.record.dir.empty()) return config.record.dir;
  const std::string stem = fmt::format("runs/{}-{:%Y%m%d-%H%M%S}", config.data.name,
                                       fmt::localtime(std::time(nullptr)));
  std::string dir = stem;
  for (int again = 2; path_exists(dir); ++again) dir = fmt::format("{}-{}", stem, again);
  return dir;
}

std::string checkpoint_dir(const Config& config) {
  return config.trainer.checkpoint.dir.empty()
             ? (fs::path(config.record.dir) / "checkpoint").string()
             : config.trainer.checkpoint.dir;
}

std::filesystem::path marks_dir(const std::filesystem::path& checkpoint_dir) {
  return checkpoint_dir / "faults";
}

}  // namespace trireme
