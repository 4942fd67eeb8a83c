// A source whose samples have different lengths, as batches of one length.
#pragma once
#include <trireme/data/pad.h>
#include <trireme/data/wrapped_source.h>
#include <memory>
#include <utility>
#include <vector>

namespace trireme {

// Asks for single samples, which keep their lengths, and pads those of a batch (pad.h). The batch
// is as long as the longest sample of the global batch, if Source::size_of() tells the lengths.
class PaddedSource : public WrappedSource {
 public:
  PaddedSource(std::shared_ptr<const Source> samples, PadOptions options)
      : WrappedSource(std::move(samples)), options_(options) {}
  Example get_batch(const Draws& draws) const override;
  Example get_kept(const Draws& draws, std::vector<size_t>& left_out) const override;

 private:
  const PadOptions options_;
};

}  // namespace trireme
