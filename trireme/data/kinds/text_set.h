// data.name: text. No torch.
#pragma once
#include <trireme/data/data_kinds.h>
#include <trireme/data/data_options.h>
#include <trireme/data/dataset.h>
#include <trireme/data/text_tokens.h>
#include <memory>

namespace trireme::data {

inline constexpr const char* kText = "text";  // Also the name of the format of records.

// The samples of a Dataset of a text that is no data set of records: first those for training,
// then those for the test.
using SharedText = std::shared_ptr<const TextTokens>;

DataKind text_kind();
// The path, and stages if there are any.
void check_text_set(const DataOptions& options);
// Holds out the end of the text, because neighbouring blocks are not independent samples.
Dataset read_text_set(const DataOptions& options);

}  // namespace trireme::data
