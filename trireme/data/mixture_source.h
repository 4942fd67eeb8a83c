// Several sources as one, in the shares of a plan::Mixture:
//
//   const auto mixture = std::make_shared<const plan::Mixture>(options);
//   auto train = std::make_shared<MixtureSource>(sources, mixture);
//   trainer_options.shuffle.mixture = mixture;  // Or that of LoaderOptions.
#pragma once
#include <trireme/data/many_sources.h>
#include <trireme/plan/mixture.h>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace trireme {

// A sample has the number that the mixture gives it in an epoch, so size() is Mixture::numbers(),
// of which an epoch uses Mixture::samples(). The order must have the same mixture; without it, an
// epoch would be all numbers. The draw of a sample has the pass of its source for an epoch, and
// numbers of its own in each pass.
class MixtureSource : public ManySources {
 public:
  // Throws Error(invalid_argument) naming a source that is missing or has another size.
  MixtureSource(std::vector<std::shared_ptr<const Source>> sources,
                std::shared_ptr<const plan::Mixture> mixture);
  int64_t size() const override { return mixture_->numbers(); }
  // What all sources want together: each gets its share of it, and files of several sources may be
  // needed at the same time.
  int64_t reads_ahead() const override;

 private:
  std::pair<const Source*, Draw> find(const Draw& draw) const override;
  std::shared_ptr<const plan::Mixture> mixture_;
};

}  // namespace trireme
