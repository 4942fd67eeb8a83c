#include <trireme/plan/mixture_maker.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <algorithm>
#include <cmath>
#include <numeric>
#include <queue>
#include <set>

namespace trireme::plan {
namespace {

double sum_of(const std::vector<double>& weights) {
  return std::accumulate(weights.begin(), weights.end(), 0.0);
}

void add_to(std::vector<int64_t>& sums, const std::vector<int64_t>& counts) {
  for (size_t source = 0; source < sums.size(); ++source) sums[source] += counts[source];
}

// A source that a stretch uses up, and the places until then.
struct Exhaustion {
  size_t source = 0;
  double places = INFINITY;
};

Exhaustion first_exhausted(const std::vector<double>& weights, const std::vector<int64_t>& left) {
  const double sum = sum_of(weights);
  Exhaustion first;
  for (size_t source = 0; source < weights.size(); ++source) {
    if (weights[source] == 0) continue;
    const double places = static_cast<double>(left[source]) * sum / weights[source];
    if (places < first.places) first = {source, places};
  }
  return first;
}

}  // namespace

std::vector<int64_t> apportioned(int64_t sum, const std::vector<double>& weights) {
  const double all = sum_of(weights);
  std::vector<int64_t> counts(weights.size(), 0);
  std::vector<std::pair<double, size_t>> remainders;
  int64_t given = 0;
  for (size_t source = 0; source < weights.size(); ++source) {
    if (weights[source] == 0) continue;
    const double share = static_cast<double>(sum) * weights[source] / all;
    counts[source] = std::min(static_cast<int64_t>(share), sum - given);
    given += counts[source];
    remainders.emplace_back(static_cast<double>(counts[source]) - share, source);
  }
  std::sort(remainders.begin(), remainders.end());
  for (size_t i = 0; given < sum && !remainders.empty(); i = (i + 1) % remainders.size(), ++given)
    ++counts[remainders[i].second];
  return counts;
}

Mixture::Stretch MixtureMaker::stretch(int64_t begin, std::vector<int64_t> before,
                                       std::vector<int64_t> counts) {
  Mixture::Stretch made;
  made.begin = begin;
  made.end = std::accumulate(counts.begin(), counts.end(), begin);
  // The two smallest nodes are joined; of equal ones the first.
  using Entry = std::pair<int64_t, int>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
  for (size_t source = 0; source < counts.size(); ++source) {
    if (counts[source] == 0) continue;
    open.emplace(counts[source], static_cast<int>(made.nodes.size()));
    made.nodes.push_back({.places = counts[source], .source = source});
  }
  while (open.size() > 1) {
    const auto [less, first] = open.top();
    open.pop();
    const auto [more, second] = open.top();
    open.pop();
    open.emplace(less + more, static_cast<int>(made.nodes.size()));
    made.nodes.push_back({.places = less + more, .left = less, .first = first, .second = second});
  }
  made.before = std::move(before);
  made.counts = std::move(counts);
  return made;
}

// An epoch in which no source has a second pass.
Mixture::Epochs MixtureMaker::epoch_of_passes(const MixtureOptions& options, int64_t& samples) {
  const size_t sources = options.sources.size();
  std::vector<int64_t> used(sources, 0), left;
  for (const SourceSize& source : options.sources) left.push_back(source.samples);
  Mixture::Epochs epochs{.before = used, .counts = used, .stretches = {}};
  int64_t place = 0;
  bool is_over = false;
  for (size_t part = 0; part < options.weights.size() && !is_over; ++part) {
    const bool is_last = part + 1 == options.weights.size();
    std::vector<double> weights = options.weights[part].weights;
    for (size_t source = 0; source < sources; ++source)
      if (left[source] == 0) weights[source] = 0;
    while (!is_over && (is_last || place < options.weights[part + 1].from.consumed)) {
      const auto [exhausted, until] = first_exhausted(weights, left);
      if (std::isinf(until)) {
        if (!is_last)
          throw Error(ErrorCode::invalid_argument, "plan",
                      fmt::format("mixture: at place {} no source of the weights has samples, and "
                                  "the next weights begin at {}",
                                  place, options.weights[part + 1].from.consumed),
                      "weights that change earlier, or when_exhausted: repeat");
        is_over = true;
        continue;
      }
      std::vector<int64_t> counts;
      const int64_t room = is_last ? INT64_MAX : options.weights[part + 1].from.consumed - place;
      if (static_cast<double>(room) < until) {
        counts = apportioned(room, weights);
      } else {
        const int64_t rest = left[exhausted];
        std::vector<double> others = weights;
        others[exhausted] = 0;
        counts = apportioned(std::max(rest, static_cast<int64_t>(until)) - rest, others);
        if (sum_of(others) == 0) std::fill(counts.begin(), counts.end(), 0);
        counts[exhausted] = rest;
      }
      // Rounding of the shares cannot take a source beyond its end.
      for (size_t source = 0; source < sources; ++source) {
        counts[source] = std::min(counts[source], left[source]);
        left[source] -= counts[source];
        if (left[source] > 0 || weights[source] == 0) continue;
        weights[source] = 0;
        is_over = is_over || options.when == WhenExhausted::stop;
      }
      epochs.stretches.push_back(stretch(place, used, counts));
      place = epochs.stretches.back().end;
      add_to(used, counts);
    }
  }
  samples = place;
  epochs.counts = used;
  return epochs;
}

// Epoch `number` of sources that begin again when they end.
Mixture::Epochs MixtureMaker::epoch_of_weights(const MixtureOptions& options, int64_t number,
                                               int64_t samples) {
  std::vector<int64_t> used(options.sources.size(), 0);
  Mixture::Epochs epochs{.first = number, .before = used, .counts = used, .stretches = {}};
  for (size_t part = 0; part < options.weights.size(); ++part) {
    const auto place_of = [&](size_t of) {
      if (of == options.weights.size()) return samples;
      const DataPosition from = options.weights[of].from;
      return from.epoch < number ? 0 : from.epoch > number ? samples : from.consumed;
    };
    const int64_t begin = place_of(part), end = place_of(part + 1);
    if (begin == end) continue;
    const std::vector<int64_t> counts = apportioned(end - begin, options.weights[part].weights);
    epochs.stretches.push_back(stretch(begin, used, counts));
    add_to(used, counts);
  }
  epochs.counts = used;
  return epochs;
}

std::vector<Mixture::Epochs> MixtureMaker::epochs(const MixtureOptions& options,
                                                  int64_t& samples) {
  if (options.when != WhenExhausted::repeat) return {epoch_of_passes(options, samples)};
  // An epoch in which weights change is like no other; the one behind it begins a row of equal
  // ones.
  std::set<int64_t> firsts;
  for (const Weights& weights : options.weights) {
    firsts.insert(weights.from.epoch);
    firsts.insert(weights.from.epoch + 1);
  }
  std::vector<Mixture::Epochs> all;
  for (const int64_t number : firsts) {
    Mixture::Epochs next = epoch_of_weights(options, number, samples);
    if (!all.empty()) {
      const Mixture::Epochs& last = all.back();
      for (size_t source = 0; source < next.before.size(); ++source)
        next.before[source] = last.before[source] + (number - last.first) * last.counts[source];
    }
    all.push_back(std::move(next));
  }
  return all;
}

}  // namespace trireme::plan
