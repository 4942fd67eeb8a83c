// The number of classes of a data set of records. No torch.
#pragma once
#include <trireme/data/data_options.h>
#include <trireme/data/pipeline/field_choice.h>
#include <trireme/data/pipeline/stage.h>
#include <trireme/plan/split.h>
#include <trireme/records/record.h>
#include <cstdint>
#include <optional>

namespace trireme::data {

// The records of a part that count; an empty subset: all of the reader's.
struct CountedPart {
  const records::Reader& reader;
  const plan::Subset& subset;
  const Stages& stages;
};

// The number of classes of whole targets or of tokens, and the outputs of a model for others.
// data.classes says it, or else the labels of the index, the number that it keeps, or all records,
// whose result the reader keeps: those of the training part, and for tokens those of both. `test`
// may have the reader of `train`. Throws Error(invalid_argument) naming a record of either part
// whose label or token is no class, if the index knows the numbers or all records are read; or if
// data.classes does not say it and the stage decode_record makes the targets.
int64_t count_classes(const DataOptions& options, const FieldChoice& fields,
                      const CountedPart& train, const std::optional<CountedPart>& test);

}  // namespace trireme::data
