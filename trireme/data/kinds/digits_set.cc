#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/data/kinds/digits_set.h>
#include <trireme/data/kinds/image_set.h>
#include <cstdlib>

namespace trireme::data {
namespace fs = std::filesystem;

Dataset read_digits_set(const DataOptions& options) {
  fs::path file = options.path.empty() ? shipped_digits() : fs::path(options.path);
  std::error_code ignored;  // The reader of the file says what is wrong with it.
  if (fs::is_directory(file, ignored)) file /= "digits.csv.gz";
  return dataset_of(read_digits(file, classes_of(options)), {}, options);
}

fs::path shipped_digits() {
  const fs::path own_folder = fs::read_symlink("/proc/self/exe").parent_path();
  std::vector<fs::path> places;
  if (const char* folder = std::getenv("TRIREME_DATA")) places.push_back(folder);
  places.push_back(own_folder / "../../data");
  places.push_back(own_folder / "../share/trireme/data");
  for (const fs::path& place : places)
    if (const fs::path file = (place / "digits.csv.gz").lexically_normal(); path_exists(file))
      return file;
  throw Error(ErrorCode::not_found, "cli", "the digits data set is not beside this programme",
              "data.path: the file digits.csv.gz, or TRIREME_DATA: its folder");
}

}  // namespace trireme::data
