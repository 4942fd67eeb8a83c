// The samples of a part of a data set, as the stages take, repeat, pack and bucket make them of
// its records. All of it is computed from the index of the records. No torch.
#pragma once
#include <trireme/data/pipeline/field_choice.h>
#include <trireme/data/pipeline/stage.h>
#include <trireme/plan/bucketing.h>
#include <trireme/plan/packing.h>
#include <trireme/plan/split.h>
#include <trireme/records/record.h>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace trireme::data {

using SharedReader = std::shared_ptr<const records::Reader>;

struct SamplePlan {
  plan::Subset subset;                           // The records that count; none: all.
  std::shared_ptr<const plan::Packing> packing;  // Null: a record is a sample.
  bool has_lengths = false;                      // Reader::length() is that of the inputs.
  int64_t longest = 0;  // The longest record that counts, if lengths are known and differ.
  // Two records of different lengths, if the index knows them and nothing gives samples of one
  // length: no pack, pad or bucket, and no function. Empty: there are none.
  std::string uneven = {};
  int64_t samples = 0;
  // [repeat]: the samples before it, of which sample i is number i modulo this.
  std::vector<int64_t> repeated;
  // The sizes of blocks of samples; empty: one block.
  std::vector<int64_t> blocks;
  std::shared_ptr<const plan::LengthBatches> by_length;  // For the stage bucket.

  // The record or pack of a sample.
  int64_t number_of(int64_t sample) const;
};

// Whether Reader::length() is that of the input: of the field for which the reader was asked, or
// of its only field without a shape.
bool knows_lengths(const records::Reader& reader, const FieldChoice& fields);

// `subset` are the records that are not held out; none: all. The stages have been checked. Throws
// Error(invalid_argument) naming the stage, or a document that is too long for a pack.
SamplePlan plan_samples(const SharedReader& reader, plan::Subset subset, const Stages& stages,
                        const FieldChoice& fields);

// A text that differs if stages make other samples of the same records; empty: there are none.
std::string stages_of_numbers(const Stages& stages);

}  // namespace trireme::data
