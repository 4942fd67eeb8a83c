#include <trireme/data/kinds/digits_set.h>
#include <trireme/data/kinds/image_set.h>
#include <trireme/data/kinds/shipped_data.h>

namespace trireme::data {
namespace fs = std::filesystem;

Dataset read_digits_set(const DataOptions& options) {
  fs::path file = options.path.empty() ? shipped_data("digits.csv.gz") : fs::path(options.path);
  std::error_code ignored;  // The reader of the file says what is wrong with it.
  if (fs::is_directory(file, ignored)) file /= "digits.csv.gz";
  return dataset_of(read_digits(file, classes_of(options)), {}, options);
}

}  // namespace trireme::data
