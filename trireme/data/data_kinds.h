// The kinds of data sets that a configuration can name, in one table. No torch: the table of the
// sources that train on them is in data/source_makers.h.
#pragma once
#include <trireme/config/row.h>
#include <trireme/data/data_options.h>
#include <trireme/data/dataset.h>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

struct DataKind {
  std::string name;  // The value of data.name.
  // The kind in one phrase, and what it takes for data.path, for the meanings of these keys.
  std::string_view about{}, path{};
  // The keys that it has in common with some kinds, or with none. Keys of all kinds are not here.
  std::vector<std::string_view> keys{};
  // The part of a message that says where the samples are.
  std::string_view holder = "the file of data.path holds";
  bool has_blocks = false;  // Its Dataset has train_blocks, for data.shuffle: blocks.
  bool has_tokens = false;  // Samples are blocks of tokens, which only some models take.
  // Checks the options before any file is read. Throws Error(invalid_argument) that names the
  // option. May be empty.
  std::function<void(const DataOptions&)> check{};
  // Reads files, checks labels, and holds out data.test_fraction if the data has no test part.
  // Throws Error naming the file or the key.
  std::function<Dataset(const DataOptions&)> read{};

  bool uses(std::string_view key) const;
  // False for a kind that a programme has added.
  bool ships() const { return !about.empty(); }
};

// Any thread. Throws Error(invalid_argument) that lists the known names.
std::shared_ptr<const DataKind> find_kind(const std::string& name);
// Null if there is no such kind.
std::shared_ptr<const DataKind> find_kind_or_null(const std::string& name);
// Adds a kind. Throws Error(invalid_argument) if its name is taken, or if it reads nothing.
void add_kind(DataKind kind);
// Throws Error(invalid_argument) that lists the kinds that have blocks, if this one has none.
void require_blocks(const DataKind& kind);
// For the rows of the keys: the kinds that use the key, and the kinds' phrases.
config::OnlyFor only_kinds_with(std::string_view key);
std::string about_kinds();     // "digits (ships with Trireme), idx (...) or text (...)"
std::string paths_of_kinds();  // "digits: its file; ... idx: the folder ..."

}  // namespace trireme::data
