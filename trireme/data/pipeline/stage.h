// The stages of an input pipeline, as values:
//
//   decode | random_resized_crop(32, scale=0.8:1) | flip | normalise(cifar10)
//
// A stage is a name with values for its parameters. A value is a number, several numbers with ":"
// between them, or a word. No torch: `trireme` checks stages and prints them.
#pragma once
#include <trireme/base/json.h>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

// The form of a sample between two stages.
enum class SampleForm {
  record,  // The fields of its file.
  image,   // Bytes with rows, columns and channels.
  tensors  // The tensors of a trireme::Example.
};
std::string_view to_string(SampleForm form);

struct ParameterForm {
  std::string_view name;
  std::string_view meaning;
  std::string_view standard = "";  // The value if none is given; empty: it must be given.
  bool is_word = false;
  size_t most_numbers = 1;
  double least = 0, most = 1e18;  // Each number lies in this range.
  // The words that the value may be. None: any word, if it is one at all.
  std::vector<std::string_view> words{};
};

// The things that a stage works on.
enum class StageKind {
  sample,  // A sample by itself.
  order,   // Which samples there are, and in which order; it is computed from the index.
  pack,    // The same, and samples become others: packs of documents.
  pad,     // The samples of a batch: it gives them one length.
  mix,     // The samples of a batch: it mixes them.
};

struct StageForm {
  std::string_view name;
  std::string_view meaning;
  SampleForm takes, gives;
  std::vector<ParameterForm> parameters{};
  bool is_random = false;         // An evaluation leaves it out, or does `instead`.
  std::string_view instead = "";  // The stage with the same first parameter.
  StageKind kind = StageKind::sample;
  bool keeps_form = false;  // It takes an image or tensors, and gives the same.
};

// All stages, in the order of the documents.
const std::vector<StageForm>& stage_forms();

struct StageValue {
  std::string name;
  std::vector<double> numbers;
  std::string word;
  std::string text;  // As it was written.
};

struct Stage {
  const StageForm* form = nullptr;
  std::vector<StageValue> values;  // One for each parameter of the form, in its order.

  double number(std::string_view name) const { return numbers(name).front(); }
  // Empty for a word.
  const std::vector<double>& numbers(std::string_view name) const { return at(name).numbers; }
  const std::string& word(std::string_view name) const { return at(name).word; }
  // The shortest text that means the same.
  std::string describe() const;

 private:
  const StageValue& at(std::string_view name) const;
};

using Stages = std::vector<Stage>;

// Throws Error(invalid_argument) that begins with `key`, names the stage and what is wrong with
// it, and says what is known instead.
Stages parse_stages(std::string_view key, std::string_view text);
// The text from which parse_stages() makes the same stages.
std::string describe(const Stages& stages);
Json to_json(const Stages& stages);
// The table of all stages for docs/input.md.
std::string table_of_stages();

// Checks that each stage takes what the one before gives, for samples that begin as `first`.
// Returns the form of the last one. Throws as parse_stages() does.
SampleForm check_forms(std::string_view key, const Stages& stages, SampleForm first);

// The same stages for evaluations: without the random ones, and without those of the order.
Stages without_random(const Stages& stages);
// Without those of the order and `pack`: the stages through which each sample goes.
Stages of_samples(const Stages& stages);
// Without the stage cache, which changes no sample; but for one behind a map, whose function gets
// another draw in front of a cache.
Stages without_cache(const Stages& stages);
// Whether the stage calls a function of the user's own, its word "function".
bool calls_function(const Stage& stage);
// The name of a stage, with that of its function, which tells them from each other: "map(darker)".
std::string name_with_function(const Stage& stage);
// The stages of a key as ranks compare them: in their usual form, without the stage cache. Each
// host may have it at another place.
std::string text_to_agree(std::string_view key, const std::string& text);
// Null if there is none.
const Stage* find_stage(const Stages& stages, std::string_view name);
// Whether `stage` decodes only what `next`, which is behind it, keeps. It also scales large images
// while it decodes them, so the pixels are not quite those of a crop of the whole image.
bool crops_while_decoding(const Stage& stage, const Stage& next);

}  // namespace trireme::data
