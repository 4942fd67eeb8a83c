// The data sets of data.name=mixture and their weights, as a configuration says them. No torch.
#pragma once
#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/data/data_options.h>
#include <trireme/plan/mixture.h>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

struct SourceOptions {
  std::string name;     // For messages.
  DataOptions options;  // The configuration's, with the entry's own.
};

// data.sources is a JSON list of objects whose values are texts (config::Row::has_entries). An
// entry may have `weight`, `as`, and every key of the section data that its data set uses.
std::vector<SourceOptions> sources_of(const DataOptions& options);

// The text of data.sources with other stages in its entries. A source without a value here keeps
// what it has. No entry has the key `cache` any more.
std::string sources_with(const std::string& sources,
                         const std::vector<std::optional<std::string>>& stages);

// The shares of the sources, without their sizes: data.weights_at is a list of objects with
// `epoch`, `sample` and `weights`, a list or an object with the names of sources. Sources that an
// object does not name keep their weight. Throws Error(invalid_argument) naming key, entry and
// value, as sources_of() does.
std::vector<plan::Weights> weights_of(const DataOptions& options,
                                      const std::vector<SourceOptions>& sources);

// Returns what `make` does. An error of it gets the key and the source in front.
template <typename Make>
auto with_source(const std::string& source, const Make& make) {
  try {
    return make();
  } catch (const Error& error) {
    const auto [what, remedy] = parts_of(error);
    throw Error(error.code(), "data", "data.sources: source " + source + ": " + what, remedy);
  }
}

}  // namespace trireme::data
