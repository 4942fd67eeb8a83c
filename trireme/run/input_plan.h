// The way of the samples from their files to the batches, as a configuration says it. No torch.
#pragma once
#include <trireme/base/json.h>
#include <trireme/data/pipeline/stage.h>
#include <trireme/run/config.h>
#include <string>
#include <vector>

namespace trireme {

// Pure: equal on all ranks whose configurations give the same samples in the same order, wherever
// their files are. It says nothing of what the files hold ("data.content"), and nothing of
// threads, memory, caches' places and services, which change no sample.
struct InputPlan {
  std::string order;  // "full", "blocks, in windows of 4096"
  // The data set, and behind it the sources of a mixture or a zip. Each has its format, the keys
  // that are not at their defaults, and its stages, those of evaluations too. The stages of a
  // mixture that work on batches are in its own line alone.
  std::vector<std::string> sets;

  std::string digest() const;  // 16 hexadecimal digits, as EnginePlan's.
  // A line for the order, and one for each of the sets; each with its end.
  std::string describe() const;
  Json to_json() const;  // digest, order, sets
};

// Throws Error(invalid_argument) as load_config() does for wrong stages and sources.
InputPlan input_plan_of(const Config& config);

// The stages of all data sets and parts that call functions of the user's own, each once.
data::Stages stages_with_functions(const Config& config);

}  // namespace trireme
