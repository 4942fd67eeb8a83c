#include <fmt/chrono.h>

#include <trireme/base/error.h>
#include <trireme/cli/paths.h>
#include <trireme/plan/data_plan.h>
#include <unistd.h>
#include <cstdlib>

namespace trireme::cli {
namespace fs = std::filesystem;

namespace {
fs::path own_folder() { return fs::read_symlink("/proc/self/exe").parent_path(); }
}  // namespace

fs::path sibling_program(const std::string& name) {
  const fs::path path = own_folder() / name;
  if (!fs::exists(path))
    throw Error(ErrorCode::not_found, "cli", fmt::format("the program {} is missing", path.string()), "build or install Trireme again");
  return path;
}

fs::path shipped_digits() {
  std::vector<fs::path> places;
  if (const char* folder = std::getenv("TRIREME_DATA")) places.push_back(folder);
  places.push_back(own_folder() / "../../data");
  places.push_back(own_folder() / "../share/trireme/data");
  for (const fs::path& place : places)
    if (const fs::path file = (place / "digits.csv.gz").lexically_normal(); fs::exists(file)) return file;
  throw Error(ErrorCode::not_found, "cli", "the digits data set is not beside this program",
              "data.path: the file digits.csv.gz, or TRIREME_DATA: its folder");
}

Tables read_tables(const Config& config) {
  const std::optional<int64_t> classes = config.data.classes > 0 ? std::optional(config.data.classes) : std::nullopt;
  Tables tables;
  if (config.data.name == "idx") {
    const IdxFiles files = find_idx_files(config);
    tables.train = data::read_idx(files.images, files.labels, classes);
    if (!files.test_images.empty())
      tables.test = data::read_idx(files.test_images, files.test_labels, classes ? classes : std::optional(tables.train.classes));
    const auto size_of = [](const data::ImageTable& table) { return fmt::format("{}x{}x{}", table.channels, table.height, table.width); };
    if (tables.test.count > 0 && size_of(tables.test) != size_of(tables.train))
      throw Error(ErrorCode::invalid_argument, "cli",
                  fmt::format("the images in {} are {}, those in {} are {}", files.images.string(), size_of(tables.train),
                              files.test_images.string(), size_of(tables.test)),
                  "a test part of the same data set");
  } else {
    fs::path file = config.data.path.empty() ? shipped_digits() : fs::path(config.data.path);
    if (fs::is_directory(file)) file /= "digits.csv.gz";
    tables.train = data::read_digits(file, classes);
  }
  if (tables.test.count == 0 && config.data.test_fraction > 0) {
    tables.split = plan::plan_split(tables.train.count, config.data.test_fraction, static_cast<uint64_t>(config.data.split_seed));
    tables.test = data::select(tables.train, tables.split.test);
    tables.train = data::select(tables.train, tables.split.train);
  }
  return tables;
}

std::string make_run_dir(const Config& config) {
  if (!config.run.dir.empty()) return config.run.dir;
  const std::string stem = fmt::format("runs/{}-{:%Y%m%d-%H%M%S}", config.data.name, fmt::localtime(std::time(nullptr)));
  std::string dir = stem;
  for (int again = 2; fs::exists(dir); ++again) dir = fmt::format("{}-{}", stem, again);
  return dir;
}

std::string checkpoint_dir(const Config& config) {
  return config.checkpoint.dir.empty() ? (fs::path(config.run.dir) / "checkpoint").string() : config.checkpoint.dir;
}

}  // namespace trireme::cli
