#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/data/many_sources.h>
#include <algorithm>

namespace trireme {

ManySources::ManySources(std::vector<std::shared_ptr<const Source>> sources, const char* name)
    : sources_(std::move(sources)) {
  const auto refuse = [name](const char* what, const char* remedy) {
    throw Error(ErrorCode::invalid_argument, "data", fmt::format("{} {}", name, what), remedy);
  };
  if (sources_.empty()) refuse("of no sources", "at least one");
  for (const auto& source : sources_) {
    if (!source) refuse("with a source that is null", "sources");
    if (source->mixes_batches()) require_single_samples(source.get(), name);
  }
}

Example ManySources::get(const Draw& draw) const {
  const auto [source, own] = find(draw);
  return source->get(own);
}

std::optional<Example> ManySources::get_if_kept(const Draw& draw) const {
  const auto [source, own] = find(draw);
  return source->get_if_kept(own);
}

bool ManySources::leaves_out() const {
  return std::ranges::any_of(sources_, [](const auto& source) { return source->leaves_out(); });
}

Example ManySources::get_kept(const Draws& draws, std::vector<size_t>& left_out) const {
  return kept_one_by_one(*this, draws, left_out, *sources_.front());
}

std::optional<SampleSize> ManySources::size_of(const Draw& draw) const {
  const auto [source, own] = find(draw);
  return source->size_of(own);
}

std::vector<data::StageUse> ManySources::stage_use() const {
  std::vector<data::StageUse> all;
  for (const auto& source : sources_)
    for (const data::StageUse& use : source->stage_use()) {
      const auto found = std::ranges::find_if(all, [&](const data::StageUse& other) {
        return other.name == use.name && other.in_service == use.in_service;
      });
      if (found == all.end()) {
        all.push_back(use);
      } else {
        found->add(use);
      }
    }
  return all;
}

std::optional<data::CacheUse> ManySources::cache_use() const {
  std::optional<data::CacheUse> all;
  for (const auto& source : sources_) {
    const std::optional<data::CacheUse> one = source->cache_use();
    if (!one) continue;
    if (!all || (all->place != "memory" && one->place == "memory")) {
      all = one;
    } else if (one->place == all->place) {
      all->limit += one->limit;
      all->bytes += one->bytes;
      all->samples += one->samples;
      all->is_full = all->is_full || one->is_full;
      all->hits += one->hits;
      all->misses += one->misses;
    }
  }
  return all;
}

std::vector<std::pair<const Source*, Draws>> ManySources::draws_of_sources(
    const Draws& draws) const {
  std::vector<std::pair<const Source*, Draws>> parts;
  for (size_t i = 0; i < draws.indices.size(); ++i) {
    const auto found = find(draws.at(i));
    const Draw& own = found.second;
    if (found.first->reads_ahead() == 0) continue;
    auto part = std::ranges::find_if(parts, [&](const auto& each) {
      return each.first == found.first && each.second.epoch == own.epoch;
    });
    if (part == parts.end())
      part = parts.insert(part, {found.first, Draws({}, own.epoch, draws.seed)});
    part->second.indices.push_back(own.index);
  }
  return parts;
}

void ManySources::announce(const Draws& draws) const {
  for (const auto& [source, own] : draws_of_sources(draws)) source->announce(own);
}

void ManySources::release(const Draws& draws) const {
  for (const auto& [source, own] : draws_of_sources(draws)) source->release(own);
}

std::vector<int64_t> ManySources::bad_records() const {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < std::ssize(sources_); ++i)
    for (const int64_t record : sources_[static_cast<size_t>(i)]->bad_records())
      all.push_back(record * std::ssize(sources_) + i);
  return all;
}

}  // namespace trireme
