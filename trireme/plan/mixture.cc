#include <trireme/plan/mixture.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/plan/mixture_maker.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace trireme::plan {
namespace {

constexpr std::array<std::pair<std::string_view, WhenExhausted>, 3> kWhenExhausted{
    {{"stop", WhenExhausted::stop},
     {"repeat", WhenExhausted::repeat},
     {"renormalise", WhenExhausted::renormalise}}};
// A limit, so that sums over epochs stay within 64 bits.
constexpr int64_t kMostPlaces = int64_t{1} << 53;

[[noreturn]] void refuse_mixture(const std::string& what, std::string_view remedy) {
  throw Error(ErrorCode::invalid_argument, "plan", "mixture: " + what, remedy);
}

void check_sources(const MixtureOptions& options) {
  if (options.sources.empty()) refuse_mixture("there is no source", "at least one source");
  int64_t sum = 0;
  for (const SourceSize& source : options.sources) {
    if (source.samples < 1 || source.samples > kMostPlaces - sum)
      refuse_mixture(fmt::format("source {} has {} samples", source.name, source.samples),
                     "sources with at least one sample");
    sum += source.samples;
    if (source.blocks && source.blocks->samples() != source.samples)
      refuse_mixture(fmt::format("source {} has {} samples, and its blocks have {}", source.name,
                                 source.samples, source.blocks->samples()),
                     "the blocks of this source");
  }
  if (options.samples < 0 || options.samples > kMostPlaces)
    refuse_mixture(fmt::format("an epoch of {} samples", options.samples), "0: all samples");
  if (options.samples > 0 && options.when != WhenExhausted::repeat)
    refuse_mixture(fmt::format("an epoch of {} samples, and {} decides its length itself",
                               options.samples, to_string(options.when)),
                   "samples: 0, or when_exhausted: repeat");
}

void check_weights(const MixtureOptions& options, int64_t samples) {
  if (options.weights.empty() || options.weights[0].from != DataPosition{})
    refuse_mixture("no weights from the start of epoch 0", "weights from {0, 0}");
  for (size_t part = 0; part < options.weights.size(); ++part) {
    const auto& [from, weights] = options.weights[part];
    const std::string where = fmt::format("epoch {}, sample {}", from.epoch, from.consumed);
    if (part > 0 && !is_before(options.weights[part - 1].from, from))
      refuse_mixture(fmt::format("weights from {} behind later ones", where),
                     "positions in ascending order");
    if (from.consumed < 0 || from.epoch < 0 || (samples > 0 && from.consumed >= samples))
      refuse_mixture(fmt::format("weights from {}, outside an epoch of {}", where, samples),
                     "a position within an epoch");
    if (from.epoch > 0 && options.when != WhenExhausted::repeat)
      refuse_mixture(fmt::format("weights from {} would give this epoch another length", where),
                     "a position in epoch 0, which holds for all, or when_exhausted: repeat");
    if (weights.size() != options.sources.size())
      refuse_mixture(fmt::format("{} weights from {} for {} sources", weights.size(), where,
                                 options.sources.size()),
                     "a weight for each source");
    double sum = 0;
    for (size_t source = 0; source < weights.size(); ++source) {
      if (!(weights[source] >= 0) || std::isinf(weights[source]))
        refuse_mixture(fmt::format("the weight of source {} from {} is {}",
                                   options.sources[source].name, where, weights[source]),
                       "a finite number of at least 0");
      sum += weights[source];
    }
    if (!(sum > 0) || std::isinf(sum))
      refuse_mixture(fmt::format("the weights from {} add up to {}", where, sum),
                     "a weight above 0");
  }
}

// The number of things in the first group among the first `place` of a node: place * left /
// places, rounded to the nearest.
int64_t in_first_group(int64_t place, int64_t left, int64_t places) {
  if (places < int64_t{1} << 31)
    return static_cast<int64_t>((static_cast<uint64_t>(2 * place) * static_cast<uint64_t>(left) +
                                 static_cast<uint64_t>(places)) /
                                static_cast<uint64_t>(2 * places));
  const auto wide = static_cast<unsigned __int128>(2 * place) * static_cast<uint64_t>(left) +
                    static_cast<uint64_t>(places);
  return static_cast<int64_t>(wide / static_cast<uint64_t>(2 * places));
}

}  // namespace

std::string_view to_string(WhenExhausted what) {
  for (const auto& [name, value] : kWhenExhausted)
    if (value == what) return name;
  return "repeat";
}

WhenExhausted when_exhausted(std::string_view text) {
  for (const auto& [name, value] : kWhenExhausted)
    if (name == text) return value;
  refuse_mixture(fmt::format("when_exhausted is \"{}\"", text), "stop, repeat or renormalise");
}

Mixture::Mixture(MixtureOptions options) : options_(std::move(options)) {
  check_sources(options_);
  samples_ = options_.samples;
  if (samples_ == 0 && options_.when == WhenExhausted::repeat)
    for (const SourceSize& source : options_.sources) samples_ += source.samples;
  check_weights(options_, samples_);
  epochs_ = MixtureMaker::epochs(options_, samples_);
  bases_.push_back(0);
  for (size_t source = 0; source < options_.sources.size(); ++source) {
    const int64_t size = options_.sources[source].samples;
    int64_t most = 0;
    for (const Epochs& epochs : epochs_) most = std::max(most, epochs.counts[source]);
    // An epoch may begin at the last sample of a pass.
    int64_t passes = most == 0 ? 0 : (size + most - 2) / size + 1;
    if (options_.when != WhenExhausted::repeat) passes = 1;
    bases_.push_back(bases_.back() + passes * size);
  }
}

const Mixture::Epochs& Mixture::epochs_at(int64_t epoch) const {
  const auto behind = std::upper_bound(epochs_.begin(), epochs_.end(), epoch,
                                       [](int64_t e, const Epochs& of) { return e < of.first; });
  return *std::prev(behind);
}

int64_t Mixture::used_before(const Epochs& epochs, int64_t epoch, size_t source) const {
  if (options_.when != WhenExhausted::repeat) return epoch * options_.sources[source].samples;
  return epochs.before[source] + (epoch - epochs.first) * epochs.counts[source];
}

Mixture::Place Mixture::at(int64_t epoch, int64_t place) const {
  if (epoch < 0 || place < 0 || place >= samples_)
    refuse_mixture(
        fmt::format("place {} of epoch {} is outside an epoch of {}", place, epoch, samples_),
        "a place within the epoch");
  const Epochs& epochs = epochs_at(epoch);
  const auto behind = std::upper_bound(epochs.stretches.begin(), epochs.stretches.end(), place,
                                       [](int64_t p, const Stretch& of) { return p < of.begin; });
  const Stretch& stretch = *std::prev(behind);
  const Node* node = &stretch.nodes.back();
  int64_t within = place - stretch.begin;
  while (node->first >= 0) {
    const int64_t before = in_first_group(within, node->left, node->places);
    const bool is_in_first = in_first_group(within + 1, node->left, node->places) > before;
    within = is_in_first ? before : within - before;
    node = &stretch.nodes[static_cast<size_t>(is_in_first ? node->first : node->second)];
  }
  const size_t source = node->source;
  const int64_t used = used_before(epochs, epoch, source) + stretch.before[source] + within;
  const int64_t size = options_.sources[source].samples;
  return {source, used / size, used % size};
}

int64_t Mixture::number_of(int64_t epoch, const Sample& sample) const {
  const int64_t size = options_.sources[sample.source].samples;
  const int64_t first_pass = used_before(epochs_at(epoch), epoch, sample.source) / size;
  return bases_[sample.source] + (sample.pass - first_pass) * size + sample.index;
}

Mixture::Sample Mixture::sample_of(int64_t epoch, int64_t number) const {
  if (number < 0 || number >= numbers())
    refuse_mixture(fmt::format("sample {} is outside 0..{}", number, numbers() - 1),
                   "a number that the plan of the mixture gives");
  const auto behind = std::upper_bound(bases_.begin(), bases_.end(), number);
  const auto source = static_cast<size_t>(std::prev(behind) - bases_.begin());
  const int64_t size = options_.sources[source].samples, within = number - bases_[source];
  const int64_t first_pass = used_before(epochs_at(epoch), epoch, source) / size;
  return {source, first_pass + within / size, within % size};
}

std::vector<int64_t> Mixture::counts(int64_t epoch, int64_t place) const {
  const Epochs& epochs = epochs_at(epoch);
  if (place >= samples_) return epochs.counts;
  std::vector<int64_t> counts(options_.sources.size(), 0);
  for (const Stretch& stretch : epochs.stretches) {
    if (place < stretch.begin) break;
    counts = stretch.before;
    std::vector<std::pair<const Node*, int64_t>> open{
        {&stretch.nodes.back(), std::min(place, stretch.end) - stretch.begin}};
    while (!open.empty()) {
      const auto [node, within] = open.back();
      open.pop_back();
      if (node->first < 0) {
        counts[node->source] += within;
        continue;
      }
      const int64_t left = in_first_group(within, node->left, node->places);
      open.emplace_back(&stretch.nodes[static_cast<size_t>(node->first)], left);
      open.emplace_back(&stretch.nodes[static_cast<size_t>(node->second)], within - left);
    }
  }
  return counts;
}

}  // namespace trireme::plan
