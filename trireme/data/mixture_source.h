// Several sources as one, in the shares of a plan::Mixture:
//
//   const auto mixture = std::make_shared<const plan::Mixture>(options);
//   auto train = std::make_shared<MixtureSource>(sources, mixture);
//   trainer_options.shuffle.mixture = mixture;  // Or that of LoaderOptions.
#pragma once
#include <trireme/data/source.h>
#include <trireme/plan/mixture.h>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace trireme {

// The samples of all sources must stack. A source may leave samples out, but not mix those of a
// batch. A sample has the number that the mixture gives it in an epoch, so size() is
// Mixture::numbers(), of which an epoch uses Mixture::samples(). The order must have the same
// mixture; without it, an epoch would be all numbers. The draw of a sample has the pass of its
// source for an epoch, and numbers of its own in each pass.
class MixtureSource : public Source {
 public:
  // Throws Error(invalid_argument) naming a source that is missing or has another size.
  MixtureSource(std::vector<std::shared_ptr<const Source>> sources,
                std::shared_ptr<const plan::Mixture> mixture);
  int64_t size() const override { return mixture_->numbers(); }
  Example get(const Draw& draw) const override;
  std::optional<Example> get_if_kept(const Draw& draw) const override;
  bool leaves_out() const override;
  Example get_kept(const Draws& draws, std::vector<size_t>& left_out) const override;
  std::optional<SampleSize> size_of(const Draw& draw) const override;
  std::vector<data::StageUse> stage_use() const override;
  int64_t bad_records() const override;
  std::optional<data::CacheUse> cache_use() const override;

 private:
  // The source of a sample, and the draw of the sample in it.
  std::pair<const Source*, Draw> find(const Draw& draw) const;
  std::vector<std::shared_ptr<const Source>> sources_;
  std::shared_ptr<const plan::Mixture> mixture_;
};

}  // namespace trireme
