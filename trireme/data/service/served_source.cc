#include <ATen/core/Tensor.h>

#include <trireme/data/service/sample_service.h>
#include <atomic>
#include <chrono>
#include <utility>

namespace trireme::data {
namespace {

class ServedSource : public Source {
 public:
  ServedSource(std::shared_ptr<SampleService> service, PartFacts part,
               std::shared_ptr<const Source> source, bool skips)
      : service_(std::move(service)),
        part_(std::move(part)),
        source_(std::move(source)),
        skips_(skips) {}

  int64_t size() const override { return source_->size(); }
  Example get(const Draw& draw) const override { return source_->get(draw); }
  std::optional<Example> get_if_kept(const Draw& draw) const override {
    return source_->get_if_kept(draw);
  }
  std::optional<SampleSize> size_of(const Draw& draw) const override {
    return source_->size_of(draw);
  }
  Example get_batch(const Draws& draws) const override {
    std::vector<size_t> left_out;
    if (leaves_out()) return source_->get_batch(draws);
    return get_kept(draws, left_out);
  }
  bool leaves_out() const override { return source_->leaves_out(); }
  bool mixes_batches() const override { return source_->mixes_batches(); }

  Example get_kept(const Draws& draws, std::vector<size_t>& left_out) const override {
    const auto begin = std::chrono::steady_clock::now();
    const auto count = std::ssize(draws.indices);
    std::vector<size_t> missing;
    std::optional<Example> rows = ask(draws, missing);
    asked_nanoseconds_ += (std::chrono::steady_clock::now() - begin).count();
    if (!rows) {
      made_here_ += count;
      return source_->get_kept(draws, left_out);
    }
    served_ += count;
    served_bytes_ += bytes_of(*rows);
    if (skips_) look_at(draws, missing);
    left_out.insert(left_out.end(), missing.begin(), missing.end());
    return std::move(*rows);
  }

  std::vector<StageUse> stage_use() const override {
    std::vector<StageUse> use = source_->stage_use();
    const std::vector<StageUse> whole{{.name = "load"}};
    const std::vector<StageUse> there =
        service_->work_for(part_).stages(use.empty() ? whole : use);
    use.insert(use.end(), there.begin(), there.end());
    // The time of the requests, in which the servers work.
    use.push_back(
        {"service", static_cast<double>(asked_nanoseconds_) * 1e-9, served_, served_bytes_});
    return use;
  }
  std::vector<int64_t> bad_records() const override { return source_->bad_records(); }
  std::optional<CacheUse> cache_use() const override { return source_->cache_use(); }
  std::optional<ServedCounts> served() const override {
    return ServedCounts{served_, made_here_, service_->work_for(part_).threads()};
  }

 private:
  // The rows of a padded batch have one length, which must be known before they are made.
  std::optional<Example> ask(const Draws& draws, std::vector<size_t>& missing) const {
    if (part_.longest == 0 || draws.longest > 0) return service_->ask(part_, draws, missing);
    Draws padded = draws;
    padded.longest = longest_of(*source_, draws);
    std::optional<Example> rows = service_->ask(part_, padded, missing);
    // Samples that are left out do not count in the length of a batch that stands alone.
    return missing.empty() ? std::move(rows) : std::nullopt;
  }

  void look_at(const Draws& draws, const std::vector<size_t>& places) const {
    if (places.empty()) return;
    Draws damaged = draws;
    damaged.indices.clear();
    damaged.seeds.clear();
    for (const size_t place : places) {
      damaged.indices.push_back(draws.indices[place]);
      damaged.seeds.push_back(draws.at(place).seed);
    }
    std::vector<size_t> left_out;
    source_->get_kept(damaged, left_out);
  }

  const std::shared_ptr<SampleService> service_;
  const PartFacts part_;
  const std::shared_ptr<const Source> source_;
  const bool skips_;
  mutable std::atomic<int64_t> served_{0}, made_here_{0}, asked_nanoseconds_{0};
  mutable std::atomic<int64_t> served_bytes_{0};
};

}  // namespace

std::shared_ptr<const Source> serve_source(std::shared_ptr<SampleService> service, PartFacts part,
                                           std::shared_ptr<const Source> source, bool skips) {
  return std::make_shared<ServedSource>(std::move(service), std::move(part), std::move(source),
                                        skips);
}

}  // namespace trireme::data
