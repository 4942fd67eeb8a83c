// The data that a configuration names, read and checked. No torch.
#pragma once
#include <trireme/base/json.h>
#include <trireme/cli/config.h>
#include <trireme/data/image_table.h>
#include <trireme/data/text_tokens.h>
#include <trireme/plan/data_plan.h>
#include <trireme/plan/tensor_spec.h>
#include <memory>
#include <string>

namespace trireme::cli {

struct Dataset {
  int64_t train_samples = 0, test_samples = 0;  // The latter may be 0.
  std::string content;  // Digest of the training files' samples, before any are held out.
  models::InputSpec input;
  plan::Split
      split;  // Which samples of the file each part holds; empty where the data has a test part.
  data::ImageTable train, test;  // digits, idx
  std::shared_ptr<const data::TextTokens>
      text;  // text: first the training samples, then the test samples.
};

// Makes of a run's flat keys what identifies its data (train/data_facts.h): "data.content" comes,
// keys that had no effect on which samples are held out go.
void identify_data(Json& keys, const Config& config, const Dataset& data);

// Reads files, checks labels, and holds out data.test_fraction where there is no test part: images
// drawn by data.split_seed, of a text its end. Throws Error naming the file or the key.
Dataset read_data(const Config& config);

// The model's options with what the data decides: gpt's vocabulary and context where they are left
// to it.
models::ModelOptions model_for(const Config& config, const Dataset& data);

// The type that gradients are reduced in: train.dtype's, but float32 where parameters are kept in
// 16 bits.
plan::DType reduced_dtype(const Config& config);

}  // namespace trireme::cli
