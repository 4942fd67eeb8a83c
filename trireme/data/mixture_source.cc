#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/data/chained_source.h>
#include <trireme/data/mixture_source.h>
#include <algorithm>
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
  for (const auto& source : sources_)
    if (source && source->mixes_batches()) require_single_samples(source.get(), "mixture");
  for (size_t i = 0; i < sizes.size(); ++i)
    if (!sources_[i] || sources_[i]->size() != sizes[i].samples)
      refuse(fmt::format("source {} has {} samples, and {} in the plan", sizes[i].name,
                         sources_[i] ? sources_[i]->size() : 0, sizes[i].samples));
}

std::pair<const Source*, Draw> MixtureSource::find(const Draw& draw) const {
  const auto [source, pass, index] = mixture_->sample_of(draw.epoch, draw.index);
  return {sources_[source].get(), {index, pass, draw.seed}};
}

Example MixtureSource::get(const Draw& draw) const {
  const auto [source, own] = find(draw);
  return source->get(own);
}

std::optional<Example> MixtureSource::get_if_kept(const Draw& draw) const {
  const auto [source, own] = find(draw);
  return source->get_if_kept(own);
}

bool MixtureSource::leaves_out() const {
  return std::ranges::any_of(sources_, [](const auto& source) { return source->leaves_out(); });
}

Example MixtureSource::get_kept(const Draws& draws, std::vector<size_t>& left_out) const {
  return kept_one_by_one(*this, draws, left_out, *sources_.front());
}

std::optional<SampleSize> MixtureSource::size_of(const Draw& draw) const {
  const auto [source, own] = find(draw);
  return source->size_of(own);
}

std::vector<data::StageUse> MixtureSource::stage_use() const { return data::use_of_all(sources_); }

int64_t MixtureSource::bad_records() const {
  int64_t sum = 0;
  for (const auto& source : sources_) sum += source->bad_records();
  return sum;
}

std::optional<data::CacheUse> MixtureSource::cache_use() const {
  return data::caches_of_all(sources_);
}

}  // namespace trireme
