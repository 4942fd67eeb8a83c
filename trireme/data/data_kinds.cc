#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/base/error.h>
#include <trireme/config/names.h>
#include <trireme/config/registry.h>
#include <trireme/data/data_kinds.h>
#include <trireme/data/kinds/criteo_set.h>
#include <trireme/data/kinds/digits_set.h>
#include <trireme/data/kinds/idx_set.h>
#include <trireme/data/kinds/mixture_set.h>
#include <trireme/data/kinds/record_set.h>
#include <trireme/data/kinds/text_set.h>
#include <trireme/data/kinds/zip_set.h>
#include <algorithm>
#include <utility>

namespace trireme::data {
namespace {

// The kinds that come with Trireme. A new kind has its row here, and one in source_makers.cc.
std::vector<DataKind> shipped_kinds() {
  std::vector<DataKind> kinds{
      {.name = "digits",
       .about = "ships with Trireme",
       .path = "its file; empty: the one that ships.",
       .keys = {"data.classes", "data.split_seed"},
       .read = read_digits_set},
      idx_kind(),
      text_kind(),
      {.name = "criteo",
       .about = "clicks in Criteo's format, for dlrm",
       .path = "the file, plain, gzip or zstd; empty: the generated one that ships.",
       .keys = {"data.split_seed"},
       .read = read_criteo_set}};
  for (DataKind& kind : record_kinds()) kinds.push_back(std::move(kind));
  kinds.push_back(zip_kind());
  kinds.push_back(mixture_kind(kinds));
  return kinds;
}

class KnownKinds {
 public:
  KnownKinds() {
    for (DataKind& kind : shipped_kinds()) add(std::move(kind));
  }
  void add(DataKind kind) {
    const std::string name = kind.name;
    kinds_.add(name, kind.read ? std::make_shared<const DataKind>(std::move(kind)) : nullptr);
    names_.add(name);
  }
  const config::Registry<std::shared_ptr<const DataKind>>& kinds() const { return kinds_; }
  // In the order of the table; kinds that a programme has added come last.
  std::vector<std::string> names() const { return names_.all(); }

 private:
  config::Registry<std::shared_ptr<const DataKind>> kinds_{"data set"};
  config::Names names_{{}};
};

KnownKinds& known_kinds() {
  static KnownKinds known;
  return known;
}

}  // namespace

bool DataKind::uses(std::string_view key) const {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

std::shared_ptr<const DataKind> find_kind(const std::string& name) {
  return known_kinds().kinds().find(name);
}

std::shared_ptr<const DataKind> find_kind_or_null(const std::string& name) {
  return known_kinds().kinds().has(name) ? find_kind(name) : nullptr;
}

void add_kind(DataKind kind) { known_kinds().add(std::move(kind)); }

std::vector<std::string> data_sets() { return known_kinds().names(); }

void require_blocks(const DataKind& kind) {
  if (kind.has_blocks) return;
  std::vector<std::string> with_blocks;
  for (const std::string& name : data_sets())
    if (find_kind(name)->has_blocks) with_blocks.push_back(name);
  throw Error(
      ErrorCode::invalid_argument, "config",
      fmt::format("data.shuffle is \"blocks\", and the data set {} has no blocks; {}", kind.name,
                  with_blocks.empty() ? "no data set has any"
                                      : fmt::format("{} have them", fmt::join(with_blocks, ", "))),
      "data.shuffle=index (no table in memory) or full");
}

config::OnlyFor only_kinds_with(std::string_view key) {
  config::OnlyFor only{"data.name", {}};
  for (const std::string& name : data_sets()) {
    const auto kind = find_kind(name);
    if (kind->uses(key)) only.values.emplace_back(kind->name);  // A kind stays once it is known.
  }
  return only;
}

std::string about_kinds() {
  std::vector<std::string> phrases;
  for (const DataKind& kind : shipped_kinds())
    phrases.push_back(fmt::format("{} ({})", kind.name, kind.about));
  const std::string last = phrases.back();
  phrases.pop_back();
  return fmt::format("{} or {}", fmt::join(phrases, ", "), last);
}

std::string paths_of_kinds() {
  std::vector<std::string> sentences;
  for (const DataKind& kind : shipped_kinds())
    sentences.push_back(
        fmt::format("{}: {}{}", kind.name, kind.path, kind.path.ends_with('.') ? "" : "."));
  return fmt::format("{}", fmt::join(sentences, " "));
}

void check(const DataOptions& options) {
  const auto kind = find_kind(options.name);
  if (kind->check) kind->check(options);
}

void require_training_samples(const Dataset& data) {
  if (data.train_samples == 0)
    throw Error(ErrorCode::invalid_argument, "cli", "no training samples are left",
                "a smaller data.test_fraction");
}

}  // namespace trireme::data
