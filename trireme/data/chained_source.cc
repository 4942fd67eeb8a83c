#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/data/chained_source.h>
#include <algorithm>

namespace trireme {

ChainedSource::ChainedSource(std::vector<std::shared_ptr<const Source>> all)
    : ManySources(std::move(all), "a chain") {
  firsts_.push_back(0);
  for (const auto& source : sources()) firsts_.push_back(firsts_.back() + source->size());
}

std::pair<const Source*, Draw> ChainedSource::find(const Draw& draw) const {
  if (draw.index < 0 || draw.index >= size())
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("sample {} is outside 0..{}", draw.index, size() - 1));
  const auto source =
      static_cast<size_t>(std::ranges::upper_bound(firsts_, draw.index) - firsts_.begin() - 1);
  return {sources()[source].get(), {draw.index - firsts_[source], draw.epoch, draw.seed}};
}

int64_t ChainedSource::reads_ahead() const {
  int64_t most = 0;
  for (const auto& source : sources()) most = std::max(most, source->reads_ahead());
  return most;
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
    own.seeds.push_back(draws.at(i).seed);
    own.indices[i] = at(draws.indices[i]);
  }
  if (draws.before) {
    own.seed_before = draws.at_before().seed;
    own.before = at(*draws.before);
  }
  return own;
}

}  // namespace trireme
