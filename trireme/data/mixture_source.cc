#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/data/mixture_source.h>
#include <utility>

namespace trireme {

MixtureSource::MixtureSource(std::vector<std::shared_ptr<const Source>> all,
                             std::shared_ptr<const plan::Mixture> mixture)
    : ManySources(std::move(all), "mixture"), mixture_(std::move(mixture)) {
  const auto refuse = [](const std::string& what) {
    throw Error(ErrorCode::invalid_argument, "data", "mixture: " + what,
                "a source for each of the mixture's, in the same order");
  };
  if (!mixture_) refuse("there is no plan::Mixture");
  const auto& sizes = mixture_->options().sources;
  if (sizes.size() != sources().size())
    refuse(fmt::format("{} sources for the {} of the plan", sources().size(), sizes.size()));
  for (size_t i = 0; i < sizes.size(); ++i)
    if (sources()[i]->size() != sizes[i].samples)
      refuse(fmt::format("source {} has {} samples, and {} in the plan", sizes[i].name,
                         sources()[i]->size(), sizes[i].samples));
}

int64_t MixtureSource::reads_ahead() const {
  int64_t sum = 0;
  for (const auto& source : sources()) sum += source->reads_ahead();
  return sum;
}

std::pair<const Source*, Draw> MixtureSource::find(const Draw& draw) const {
  const auto [source, pass, index] = mixture_->sample_of(draw.epoch, draw.index);
  return {sources()[source].get(), {index, pass, draw.seed}};
}

}  // namespace trireme
