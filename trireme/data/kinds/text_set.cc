#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/data/kinds/content_digest.h>
#include <trireme/data/kinds/text_set.h>

namespace trireme::data {
namespace {

std::string digest_of_text(const TextTokens& text) {
  checkpoint::Digest digest;
  add_values(digest, fmt::format("{} tokens of {}\n", text.tokens.size(), text.vocabulary));
  for (const std::string& character : text.characters) add_values(digest, character + "\n");
  add_values(digest, text.tokens);
  return digest.text();
}

}  // namespace

void check_text_set(const DataOptions& options) {
  if (options.path.empty())
    throw Error(ErrorCode::invalid_argument, "data",
                "data.name is text, but data.path does not name its file", "data.path=FILE");
}

Dataset read_text_set(const DataOptions& options) {
  const TextUnit unit = options.tokens == "bytes" ? TextUnit::bytes : TextUnit::characters;
  const auto text =
      std::make_shared<const TextTokens>(read_text(options.path, options.block, unit));
  const int64_t samples = text->samples();
  Dataset data;
  data.content = digest_of_text(*text);
  data.split = plan::split_at_end(samples, options.test_fraction);
  data.train_samples = data.split.train.size();
  data.test_samples = data.split.test.size();
  data.input = {{options.block}, text->vocabulary};
  data.has_tokens = true;
  data.class_names = text->characters;
  data.samples = SharedText(text);
  require_training_samples(data);
  return data;
}

}  // namespace trireme::data
