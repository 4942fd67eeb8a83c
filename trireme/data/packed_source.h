// Documents of tokens, packed into samples of equal size (plan/packing.h).
#pragma once
#include <trireme/data/source.h>
#include <trireme/plan/packing.h>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace trireme {

// A sample is a pack; all its tensors are int64 [tokens of a pack]:
//   data              the tokens; behind the last document the padding token
//   target            the token behind each one, and kNoTarget behind a document's last token and
//                     in the padding
//   more "positions"  the place of each token in its document, or in its part of a split one
//   more "documents"  0, 1, ... for the documents of the pack, and -1 in the padding: a token may
//                     attend to those of its own number alone
class PackedSource : public Source {
 public:
  static constexpr int64_t kNoTarget = trireme::kNoTarget;

  // `documents` gives data of whole numbers [length], with the lengths of which `packing` was
  // made. With `leaves_out` it may leave documents out, and a pack with such a one is left out as
  // a whole. Throws Error(invalid_argument) if the numbers of documents differ, and
  // Error(unsupported) for a source that leaves samples out without it, or mixes them.
  PackedSource(std::shared_ptr<const Source> documents,
               std::shared_ptr<const plan::Packing> packing, int64_t padding = 0,
               bool leaves_out = false);
  int64_t size() const override { return packing_->packs(); }
  std::optional<SampleSize> size_of(const Draw& draw) const override {
    return SampleSize{packing_->options().tokens, packing_->targets(draw.index)};
  }
  // Throws Error(invalid_argument) naming a document that is no row of whole numbers, or is
  // shorter than its length in the plan.
  Example get(const Draw& draw) const override;
  bool leaves_out() const override { return documents_->leaves_out(); }
  std::optional<Example> get_if_kept(const Draw& draw) const override;
  Example get_kept(const Draws& draws, std::vector<size_t>& left_out) const override;
  std::vector<int64_t> bad_records() const override { return documents_->bad_records(); }
  // The packs of a window have its documents in any order.
  int64_t reads_ahead() const override;
  void announce(const Draws& draws) const override;
  void release(const Draws& draws) const override;

 private:
  Example empty_pack() const;
  std::vector<plan::PackPart> parts_of(int64_t pack) const;
  // The documents of the packs, as get() asks for them.
  Draws documents_of(const Draws& draws) const;
  std::shared_ptr<const Source> documents_;
  std::shared_ptr<const plan::Packing> packing_;
  int64_t padding_;
  mutable std::mutex mutex_;  // One thread at a time asks the plan.
};

}  // namespace trireme
