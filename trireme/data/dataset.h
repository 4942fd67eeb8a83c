// A data set that was read, whatever its kind. No torch.
#pragma once
#include <trireme/base/json.h>
#include <trireme/plan/bucketing.h>
#include <trireme/plan/data_plan.h>
#include <trireme/plan/mixture.h>
#include <trireme/plan/split.h>
#include <trireme/plan/tensor_spec.h>
#include <any>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace trireme::data {

// The form of a sample, for which models are made.
struct InputSpec {
  // The shape of one sample: [channels, height, width], [features], or [tokens] for gpt.
  std::vector<int64_t> shape;
  int64_t classes = 10;
  // Categorical features: the named tensor "categories" of a sample, int64 [categories], if not 0.
  int64_t categories = 0;
  // Samples are packs of documents (data/packed_source.h): they have the named tensors "positions"
  // and "documents".
  bool is_packed = false;
  // Batches are padded, so that their samples are as long as the longest one, or longer. `shape`
  // has the longest of all.
  bool is_ragged = false;
  // The type in which stages give numbers: float32 or bfloat16. A loader makes its own of it.
  plan::DType type = plan::DType::float32;
};

struct Dataset {
  int64_t train_samples = 0, test_samples = 0;  // test_samples may be 0.
  // A digest of the samples in the training files, before any are held out. For a data set that a
  // programme has registered: what it tells of the content, or else data.path.
  std::string content;
  // A digest of the samples in the test files; empty if the data has no test part of its own.
  std::string test_content;
  // The sizes of blocks of training samples that are best read as a whole, in the order of the
  // samples (records::Reader::blocks()); empty: one block.
  std::vector<int64_t> train_blocks;
  InputSpec input;
  // Names two samples of different lengths that might meet in a batch; empty: none are known.
  std::string uneven, uneven_test;
  // Samples are rows of tokens, which only some models take.
  bool has_tokens = false;
  // The names of the classes 0, 1, ...; empty if they have none.
  std::vector<std::string> class_names;
  // The order must have these, if there are any: samples of several sources, with the blocks of
  // each; and the lengths of samples that meet in a batch, whose batch is 0 for that of the run.
  std::shared_ptr<const plan::Mixture> mixture;
  std::vector<std::vector<int64_t>> source_blocks;
  std::shared_ptr<const plan::LengthBatches> by_length;
  // For people and for JSON: what a plan says of packs and sources. Lines, each with its end.
  std::string about;
  Json facts;
  // The targets are values, for which a loss such as mse is needed, and not classes.
  bool has_values = false;
  // False: the records have no field for a target, and each sample is its own.
  bool has_target = true;
  // The samples of the file that each part holds; none if the data has a test part of its own.
  plan::Split split;
  // What the kind has read. Only the kind's own sources (data/source_makers.h) look into it.
  std::any samples;
};

// Readers of files call it last: all samples may have been held out. Throws
// Error(invalid_argument) if no training samples are left.
void require_training_samples(const Dataset& data);

}  // namespace trireme::data
