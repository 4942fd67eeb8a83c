// The stages of a mixture that work on batches, which have samples of all its sources: bucket,
// pad, mixup and cutmix of data.stages. No torch.
#pragma once
#include <trireme/data/kinds/mixture_options.h>
#include <trireme/data/kinds/record_set.h>
#include <vector>

namespace trireme::data {

// Those of each part, in their order. Throws Error(invalid_argument) naming a stage that stands
// behind one that works on batches, and a stage of the test part that mixes samples.
StagesOfParts batch_stages_of(const DataOptions& options);

// Without those that work on batches.
Stages without_batch_stages(const Stages& stages);

// The sources of a mixture. Those without stages of their own have those of data.stages for single
// samples.
std::vector<SourceOptions> sources_of_mixture(const DataOptions& options);

// The sources of a mixture with the stages that each of them runs: its own ones, or those of
// data.stages for single samples; and those of the mixture that a source has to know before its
// samples can be padded or sorted by length. A source whose stages have a cache keeps it if
// data.cache of the mixture is auto. Throws Error(invalid_argument) naming a source that has a
// stage for batches itself, or that gives no lengths.
std::vector<SourceOptions> sources_with_stages(const DataOptions& options);

}  // namespace trireme::data
