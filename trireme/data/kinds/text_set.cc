#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/data/kinds/record_set.h>
#include <trireme/data/kinds/text_set.h>
#include <trireme/data/pipeline/field_choice.h>
#include <algorithm>

namespace trireme::data {
namespace {

constexpr const char* kField = "tokens";  // The only one of a text.

void refuse_documents(std::string_view key, const std::string& stages) {
  for (const Stage& stage : parse_stages(key, stages))
    for (const std::string_view name : {"pack", "pad", "bucket"})
      if (stage.form->name == name)
        throw Error(ErrorCode::invalid_argument, "data",
                    fmt::format("{}: {} is for documents of different lengths, and data.name is "
                                "text, whose samples all have the tokens of data.block",
                                key, name),
                    "data.block; or data.name=tokens with data.token_type=uint8 and "
                    "data.separator=10, whose documents are the lines of a text");
}

// All tokens are input and target, also if they are named. Their number is that of the text.
DataOptions options_of_records(const DataOptions& options) {
  DataOptions own = options;
  if (names_of_inputs(own.inputs) == std::vector<std::string>{kField}) own.inputs.clear();
  if (own.target == kField) own.target.clear();
  own.classes = -1;
  return own;
}

// Reads the whole text at once.
Dataset read_text_table(const DataOptions& options) {
  const TextUnit unit = options.tokens == "bytes" ? TextUnit::bytes : TextUnit::characters;
  const auto text = std::make_shared<const TextTokens>(
      read_text(options.path, options.block, unit,
                records::UnpackLimits::of_whole_file(options.max_ratio, "data.max_ratio")));
  Dataset data;
  data.content = text->digest();
  data.split = plan::split_at_end(text->samples(), options.test_fraction);
  data.train_samples = data.split.train.size();
  data.test_samples = data.split.test.size();
  data.input = {{options.block}, text->vocabulary};
  data.has_tokens = true;
  data.class_names = text->characters;
  data.samples = SharedText(text);
  require_training_samples(data);
  return data;
}

}  // namespace

DataKind text_kind() {
  DataKind kind{.name = kText,
                .about = "any text file, for gpt",
                .path = "the file, plain, gzip or zstd.",
                .keys = {"data.tokens", "data.block"},
                .has_tokens = true,
                .check = check_text_set,
                .read = read_text_set};
  add_record_keys(kind);
  // Its end is held out, and its own characters are its classes.
  for (const std::string_view key : {"data.test_path", "data.split_seed", "data.classes"})
    std::erase(kind.keys, key);
  return kind;
}

void check_text_set(const DataOptions& options) {
  if (options.path.empty())
    throw Error(ErrorCode::invalid_argument, "data",
                "data.name is text, but data.path does not name its file", "data.path=FILE");
  if (!needs_records(options)) return;
  check_record_set(options);
  refuse_documents("data.stages", options.stages);
  refuse_documents("data.test_stages", options.test_stages);
}

Dataset read_text_set(const DataOptions& options) {
  return needs_records(options) ? read_record_set(options_of_records(options))
                                : read_text_table(options);
}

}  // namespace trireme::data
