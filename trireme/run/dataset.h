// Reads and checks the data that a configuration names. No torch.
#pragma once
#include <trireme/base/json.h>
#include <trireme/data/image_table.h>
#include <trireme/data/text_tokens.h>
#include <trireme/plan/data_plan.h>
#include <trireme/plan/tensor_spec.h>
#include <trireme/run/config.h>
#include <memory>
#include <string>

namespace trireme {

struct Dataset {
  int64_t train_samples = 0, test_samples = 0;  // test_samples may be 0.
  std::string content;  // A digest of the samples in the training files, before any are held out.
  // A digest of the samples in the test files; empty if the data has no test part of its own.
  std::string test_content;
  models::InputSpec input;
  // The samples of the file that each part holds; empty if the data has a test part of its own.
  plan::Split split;
  data::ImageTable train, test;  // For digits and idx.
  // For text: first the training samples, then the test samples.
  std::shared_ptr<const data::TextTokens> text;
};

// Turns a run's flat keys into those that identify its data (train/data_facts.h): adds
// "data.content" and "data.test_content", and removes keys that had no effect on which samples are
// held out.
void identify_data(Json& keys, const Config& config, const Dataset& data);

// Reads files, checks labels, and holds out data.test_fraction if the data has no test part. For
// images, data.split_seed draws the held-out samples; for a text, they are its end. Throws Error
// naming the file or the key.
Dataset read_data(const Config& config);

// The plan of the batches of a run that trains on `data`.
plan::DataPlan data_plan_of(const Config& config, const Dataset& data);

// The model's options, completed by the data: vocabulary and context of gpt, if the options leave
// them open.
models::ModelOptions model_for(const Config& config, const Dataset& data);

// The type in which gradients are reduced: that of train.dtype, but float32 if parameters are kept
// in 16 bits.
plan::DType reduced_dtype(const Config& config);

}  // namespace trireme
