// The shape and the type of the samples that stages make. No torch.
#pragma once
#include <trireme/data/pipeline/field_choice.h>
#include <trireme/data/pipeline/stage.h>
#include <trireme/plan/tensor_spec.h>
#include <trireme/records/record.h>
#include <cstdint>
#include <vector>

namespace trireme::data {

// The shape of the tensor "data" of a sample: that of the first record, as the stages change it.
// Functions of a programme's own count as keeping it. Throws Error as Reader::read() does; with
// `skip`, records that cannot be read are left out. An image has at most `image_bytes`.
std::vector<int64_t> shape_of_samples(const records::Reader& reader, const FieldChoice& fields,
                                      const Stages& stages, bool skip, int64_t image_bytes);

// The type of the numbers in it, for samples that are no tokens: float32, or that of normalise.
plan::DType type_of_samples(const Stages& stages);

}  // namespace trireme::data
