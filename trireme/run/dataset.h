// Reads and checks the data that a configuration names. No torch.
#pragma once
#include <trireme/base/json.h>
#include <trireme/data/dataset.h>
#include <trireme/plan/batch_sizes.h>
#include <trireme/plan/data_plan.h>
#include <trireme/plan/tensor_spec.h>
#include <trireme/run/config.h>

namespace trireme {

using data::Dataset;

// Turns a run's flat keys into those that identify its data (train/data_facts.h): adds
// "data.content" and "data.test_content", and removes keys that had no effect on which samples are
// held out. Keeps all keys of a data set whose content is not known.
void identify_data(Json& keys, const Config& config, const Dataset& data);

// Reads the data set with the reader of its kind (data/data_kinds.h). Throws Error naming the file
// or the key.
Dataset read_data(const Config& config);

// Throws Error(invalid_argument) naming two records whose lengths differ, if a batch of these
// sizes, or one of an evaluation, would have samples of different lengths. Without a shuffle the
// training files may have those of one length beside each other.
void require_one_length(const Config& config, const Dataset& data, const plan::BatchSizes& sizes);

// The order of the samples, with the blocks of the data set if data.shuffle asks for them. Throws
// Error(invalid_argument) that names the data sets that have blocks, if this one has none.
plan::OrderOptions order_of(const Config& config, const Dataset& data);

// The plan of the batches of a run that trains on `data`.
plan::DataPlan data_plan_of(const Config& config, const Dataset& data);

// The model's options, completed by the data: vocabulary and context of gpt, if the options leave
// them open; and without the tables that live on servers.
models::ModelOptions model_for(const Config& config, const Dataset& data);

// The options of the parameter servers. One server alone has each row of tables that have limits
// (tables.budget).
plan::PsOptions servers_for(const Config& config);

// The type in which gradients are reduced: that of train.dtype, but float32 if parameters are kept
// in 16 bits.
plan::DType reduced_dtype(const Config& config);

}  // namespace trireme
