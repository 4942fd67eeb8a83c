// A source whose batches are mixed: the last stages of a pipeline.
#pragma once
#include <trireme/data/pipeline/batch_mix.h>
#include <trireme/data/source.h>
#include <memory>
#include <vector>

namespace trireme::data {

// `mix` has stages.
std::shared_ptr<const Source> mix_source(std::shared_ptr<const Source> samples, BatchMix mix);

// Throws Error(invalid_argument) naming the first sample that is left out, for get_batch().
void require_all(const Draws& draws, const std::vector<size_t>& left_out);

}  // namespace trireme::data
