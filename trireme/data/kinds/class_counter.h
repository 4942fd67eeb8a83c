// The number of classes of a data set of records. No torch.
#pragma once
#include <trireme/data/data_options.h>
#include <trireme/data/pipeline/field_choice.h>
#include <trireme/records/record.h>
#include <cstdint>

namespace trireme::data {

// The number of classes of whole targets, and the outputs of a model for others. data.classes says
// it, or else the labels of the index, the number that it keeps, or all records, whose result the
// reader keeps. Throws Error(invalid_argument) naming a record whose label is no class, or if
// data.classes does not say it and the stage decode_record makes the targets.
int64_t count_classes(const DataOptions& options, const records::Reader& reader,
                      const FieldChoice& fields);

}  // namespace trireme::data
