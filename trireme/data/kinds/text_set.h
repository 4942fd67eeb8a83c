// data.name: text. No torch.
#pragma once
#include <trireme/data/data_options.h>
#include <trireme/data/dataset.h>
#include <trireme/data/text_tokens.h>
#include <memory>

namespace trireme::data {

// The samples of a Dataset of a text: first those for training, then those for the test.
using SharedText = std::shared_ptr<const TextTokens>;

void check_text_set(const DataOptions& options);
// Holds out the end of the text, because neighbouring blocks are not independent samples.
Dataset read_text_set(const DataOptions& options);

}  // namespace trireme::data
