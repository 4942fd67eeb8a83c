#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/data/chained_source.h>
#include <algorithm>

namespace trireme {

ChainedSource::ChainedSource(std::vector<std::shared_ptr<const Source>> sources)
    : sources_(std::move(sources)) {
  if (sources_.empty())
    throw Error(ErrorCode::invalid_argument, "data", "a chain of no sources", "at least one");
  firsts_.push_back(0);
  for (const auto& source : sources_) {
    if (!source)
      throw Error(ErrorCode::invalid_argument, "data", "a chain with a source that is null",
                  "sources");
    if (source->mixes_batches()) require_single_samples(source.get(), "a chain of sources");
    firsts_.push_back(firsts_.back() + source->size());
  }
}

std::pair<const Source*, Draw> ChainedSource::find(const Draw& draw) const {
  if (draw.index < 0 || draw.index >= size())
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("sample {} is outside 0..{}", draw.index, size() - 1));
  const auto source =
      static_cast<size_t>(std::ranges::upper_bound(firsts_, draw.index) - firsts_.begin() - 1);
  return {sources_[source].get(), {draw.index - firsts_[source], draw.epoch, draw.seed}};
}

Example ChainedSource::get(const Draw& draw) const {
  const auto [source, own] = find(draw);
  return source->get(own);
}

std::optional<Example> ChainedSource::get_if_kept(const Draw& draw) const {
  const auto [source, own] = find(draw);
  return source->get_if_kept(own);
}

bool ChainedSource::leaves_out() const {
  return std::ranges::any_of(sources_, [](const auto& source) { return source->leaves_out(); });
}

Example ChainedSource::get_kept(const Draws& draws, std::vector<size_t>& left_out) const {
  return kept_one_by_one(*this, draws, left_out, *sources_.front());
}

std::optional<SampleSize> ChainedSource::size_of(const Draw& draw) const {
  const auto [source, own] = find(draw);
  return source->size_of(own);
}

std::vector<data::StageUse> ChainedSource::stage_use() const { return data::use_of_all(sources_); }

int64_t ChainedSource::bad_records() const {
  int64_t sum = 0;
  for (const auto& source : sources_) sum += source->bad_records();
  return sum;
}

std::optional<data::CacheUse> ChainedSource::cache_use() const {
  return data::caches_of_all(sources_);
}

void RenumberedSource::announce(const std::vector<int64_t>& samples) const {
  std::vector<int64_t> own;
  for (const int64_t sample : samples) own.push_back(at(sample));
  source_->announce(own);
}

int64_t RenumberedSource::at(int64_t index) const {
  if (index < 0 || index >= samples_)
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("sample {} is outside 0..{}", index, samples_ - 1));
  return number_(index);
}

Draws RenumberedSource::renumbered(const Draws& draws) const {
  Draws own = draws;
  own.seeds.clear();
  for (size_t i = 0; i < draws.indices.size(); ++i) {
    // A source that mixes a batch needs the bits of the sample before it too, and derives all.
    if (!mixes_batches()) own.seeds.push_back(draws.at(i).seed);
    own.indices[i] = at(draws.indices[i]);
  }
  if (draws.before) own.before = at(*draws.before);
  return own;
}

namespace data {

std::vector<StageUse> use_of_all(const std::vector<std::shared_ptr<const Source>>& sources) {
  std::vector<StageUse> all;
  for (const auto& source : sources)
    for (const StageUse& use : source->stage_use()) {
      const auto found = std::ranges::find(all, use.name, &StageUse::name);
      if (found == all.end()) {
        all.push_back(use);
      } else {
        found->seconds += use.seconds;
        found->samples += use.samples;
      }
    }
  return all;
}

std::optional<CacheUse> caches_of_all(const std::vector<std::shared_ptr<const Source>>& sources) {
  std::optional<CacheUse> all;
  for (const auto& source : sources) {
    const std::optional<CacheUse> one = source->cache_use();
    if (!one) continue;
    if (!all || (all->place != "memory" && one->place == "memory")) {
      all = one;
    } else if (one->place == all->place) {
      all->limit += one->limit;
      all->bytes += one->bytes;
      all->samples += one->samples;
      all->is_full = all->is_full || one->is_full;
    }
  }
  return all;
}

}  // namespace data
}  // namespace trireme
