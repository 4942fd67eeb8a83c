#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <trireme/data/padded_source.h>
#include <trireme/data/pipeline/mixed_source.h>

namespace trireme {

Example PaddedSource::get_batch(const Draws& draws) const {
  std::vector<size_t> left_out;
  Example batch = get_kept(draws, left_out);
  data::require_all(draws, left_out);
  return batch;
}

Example PaddedSource::get_kept(const Draws& draws, std::vector<size_t>& left_out) const {
  const KeptSamples kept = kept_samples(*source_, draws, left_out);
  if (!kept.examples.empty())
    return pad_examples(kept.examples, kept.indices, options_, draws.longest);
  Example none = batch_of_none(*source_);
  none.more["lengths"] = at::empty({0}, at::kLong);
  return none;
}

}  // namespace trireme
