#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/data/mixture_source.h>
#include <utility>

namespace trireme {

MixtureSource::MixtureSource(std::vector<std::shared_ptr<const Source>> sources,
                             std::shared_ptr<const plan::Mixture> mixture)
    : sources_(std::move(sources)), mixture_(std::move(mixture)) {
  const auto refuse = [](const std::string& what) {
    throw Error(ErrorCode::invalid_argument, "data", "mixture: " + what,
                "a source for each of the mixture's, in the same order");
  };
  if (!mixture_) refuse("there is no plan::Mixture");
  const auto& sizes = mixture_->options().sources;
  if (sizes.size() != sources_.size())
    refuse(fmt::format("{} sources for the {} of the plan", sources_.size(), sizes.size()));
  for (const auto& source : sources_) require_single_samples(source.get(), "mixture");
  for (size_t i = 0; i < sizes.size(); ++i)
    if (!sources_[i] || sources_[i]->size() != sizes[i].samples)
      refuse(fmt::format("source {} has {} samples, and {} in the plan", sizes[i].name,
                         sources_[i] ? sources_[i]->size() : 0, sizes[i].samples));
}

Example MixtureSource::get(const Draw& draw) const {
  const auto [source, pass, index] = mixture_->sample_of(draw.epoch, draw.index);
  return sources_[source]->get({index, pass, draw.seed});
}

}  // namespace trireme
