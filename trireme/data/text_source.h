// Blocks of a text, for models that predict the next token.
#pragma once
#include <trireme/data/source.h>
#include <trireme/data/source_makers.h>
#include <trireme/data/text_tokens.h>

namespace trireme {

// Samples [first, last) of a text: data is int64 [block]; target is int64 [block], the tokens one
// place further on.
class TextSource : public Source {
 public:
  // Several sources may hold the same text. Throws Error(invalid_argument) if the range is not
  // within its samples.
  TextSource(std::shared_ptr<const data::TextTokens> text, int64_t first, int64_t last);
  int64_t size() const override { return last_ - first_; }
  Example get(const Draw& draw) const override;
  Example get_batch(const Draws& draws) const override;

 private:
  std::shared_ptr<const data::TextTokens> text_;
  int64_t first_, last_;
};

namespace data {
Sources text_sources(const Dataset& data);  // For data.name: text.
}  // namespace data

}  // namespace trireme
