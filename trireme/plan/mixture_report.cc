#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <trireme/plan/mixture.h>
#include <algorithm>
#include <numeric>

namespace trireme::plan {
namespace {

constexpr int64_t kWholeWalk = 1 << 20;
constexpr int64_t kAroundChanges = 1024;

[[noreturn]] void is_wrong(const std::string& what) {
  throw Error(ErrorCode::internal, "plan", "mixture: " + what);
}

}  // namespace

std::string Mixture::describe() const {
  std::string text;
  for (size_t part = 0; part < options_.weights.size(); ++part) {
    const auto& [from, weights] = options_.weights[part];
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    std::vector<std::string> shares;
    for (size_t source = 0; source < weights.size(); ++source)
      shares.push_back(
          fmt::format("{} {:.4g}%", options_.sources[source].name, 100 * weights[source] / sum));
    text += part == 0 ? fmt::format("  mixture of {}\n", fmt::join(shares, ", "))
                      : fmt::format("  from epoch {}, sample {}: {}\n", from.epoch, from.consumed,
                                    fmt::join(shares, ", "));
  }
  const std::vector<int64_t> first = counts(0, samples_);
  for (size_t source = 0; source < first.size(); ++source)
    text += fmt::format("  {}: {} of its {} samples in epoch 0\n", options_.sources[source].name,
                        first[source], options_.sources[source].samples);
  return text;
}

Json Mixture::to_json() const {
  Json sources = Json::array(), weights = Json::array();
  for (const SourceSize& source : options_.sources) {
    Json entry = {{"name", source.name}, {"samples", source.samples}};
    if (source.blocks) entry["blocks"] = source.blocks->to_json();
    sources.push_back(std::move(entry));
  }
  for (const Weights& part : options_.weights)
    weights.push_back({part.from.epoch, part.from.consumed, part.weights});
  return {{"sources", sources},
          {"weights", weights},
          {"when_exhausted", to_string(options_.when)},
          {"samples", samples_}};
}

Mixture Mixture::from_json(const Json& json) {
  MixtureOptions options;
  for (const Json& entry : json.at("sources")) {
    SourceSize source{entry.at("name").get<std::string>(), entry.at("samples").get<int64_t>(), {}};
    if (entry.contains("blocks"))
      source.blocks = std::make_shared<const BlockSizes>(BlockSizes::from_json(entry["blocks"]));
    options.sources.push_back(std::move(source));
  }
  for (const Json& part : json.at("weights"))
    options.weights.push_back({{part.at(0).get<int64_t>(), part.at(1).get<int64_t>()},
                               part.at(2).get<std::vector<double>>()});
  options.when = when_exhausted(json.at("when_exhausted").get<std::string>());
  if (options.when == WhenExhausted::repeat) options.samples = json.at("samples").get<int64_t>();
  return Mixture(std::move(options));
}

void check(const Mixture& mixture) {
  const int64_t samples = mixture.samples();
  const auto& sources = mixture.options().sources;
  // [source]: the places that a walk expects next, counted over passes.
  const auto walk = [&](int64_t epoch, int64_t begin, int64_t end) {
    std::vector<int64_t> next = mixture.counts(epoch, begin);
    const Mixture::Epochs& epochs = mixture.epochs_at(epoch);
    for (size_t source = 0; source < next.size(); ++source)
      next[source] += mixture.used_before(epochs, epoch, source);
    for (int64_t place = begin; place < end; ++place) {
      const Mixture::Place at = mixture.at(epoch, place);
      const int64_t size = sources[at.source].samples;
      if (at.pass * size + at.place != next[at.source]++)
        is_wrong(
            fmt::format("place {} of epoch {} is sample {} of pass {} of source {}, which is "
                        "not its next",
                        place, epoch, at.place, at.pass, sources[at.source].name));
    }
    const std::vector<int64_t> then = mixture.counts(epoch, end);
    for (size_t source = 0; source < next.size(); ++source)
      if (next[source] != then[source] + mixture.used_before(epochs, epoch, source))
        is_wrong(fmt::format("source {} has another count at place {} of epoch {}",
                             sources[source].name, end, epoch));
  };
  for (const Mixture::Epochs& epochs : mixture.epochs_) {
    int64_t end = 0;
    for (const Mixture::Stretch& stretch : epochs.stretches) {
      if (stretch.begin != end)
        is_wrong(fmt::format("places {} to {} have no shares", end, stretch.begin));
      end = stretch.end;
      if (samples <= kWholeWalk) continue;
      walk(epochs.first, std::max<int64_t>(0, stretch.begin - kAroundChanges),
           std::min(samples, stretch.begin + kAroundChanges));
    }
    if (end != samples) is_wrong(fmt::format("{} places of {}", end, samples));
    if (samples <= kWholeWalk) walk(epochs.first, 0, samples);
    for (size_t source = 0; source < sources.size(); ++source) {
      const Mixture::Epochs& next = mixture.epochs_at(epochs.first + 1);
      if (mixture.used_before(next, epochs.first + 1, source) !=
          mixture.used_before(epochs, epochs.first, source) +
              (mixture.options().when == WhenExhausted::repeat ? epochs.counts[source]
                                                               : sources[source].samples))
        is_wrong(fmt::format("source {} does not go on from epoch {} to the next",
                             sources[source].name, epochs.first));
    }
  }
}

}  // namespace trireme::plan
