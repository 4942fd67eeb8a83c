// LibTorch's data loader for a loop as it stands: each rank gets its share of each global batch.
//
//   auto loader = trireme::make_data_loader(world, std::move(dataset), /*batch_size=*/64);
//
// In place of torch::data::make_data_loader(std::move(dataset), 64). Samplers, options and batches
// are those of torch::data. In a world of one process the batches are the same, bit for bit.
#pragma once
#include <torch/data/dataloader.h>
#include <trireme/comm/world.h>
#include <trireme/parallel/shared_random.h>
#include <trireme/plan/data_plan.h>
#include <deque>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace trireme {

// The shares of a sampler of indices. Every rank walks over the whole batches, and takes its
// part of each. Random samplers draw the same numbers on all ranks: those of rank 0.
template <typename Indices>
class SharedSampler : public torch::data::samplers::Sampler<> {
 public:
  static_assert(std::is_same_v<typename Indices::BatchRequestType, std::vector<size_t>>,
                "make_data_loader takes a sampler of indices (RandomSampler, SequentialSampler, "
                "or one of your own whose requests are std::vector<size_t>)");
  SharedSampler(World& world, Indices sampler, int64_t batch, bool drop_last)
      : sampler_(std::move(sampler)),
        random_(std::make_shared<SharedRandom>(world)),
        rank_(world.rank()),
        ranks_(world.size()),
        batch_(static_cast<size_t>(batch)),
        drop_last_(drop_last) {}

  // COLLECTIVE.
  void reset(std::optional<size_t> new_size = std::nullopt) override {
    sizes_->clear();
    random_->run([&] { sampler_.reset(new_size); });
  }
  // `share` is not used: the number of samples of the whole batch counts.
  std::optional<std::vector<size_t>> next(size_t share) override {
    static_cast<void>(share);
    const auto all = sampler_.next(batch_);
    if (!all || (drop_last_ && all->size() < batch_)) return std::nullopt;
    const auto samples = static_cast<int64_t>(all->size());
    if (samples < ranks_) {
      random_->tell_left_out(samples);
      return std::nullopt;
    }
    const auto [first, last] = plan::DataPlan::share(samples, rank_, ranks_);
    sizes_->push_back(last - first);
    return std::vector<size_t>(all->begin() + first, all->begin() + last);
  }
  void save(torch::serialize::OutputArchive& archive) const override { sampler_.save(archive); }
  void load(torch::serialize::InputArchive& archive) override { sampler_.load(archive); }

  // The sizes of this rank's shares that next() has given and nobody has taken.
  const std::shared_ptr<std::deque<int64_t>>& sizes() const { return sizes_; }

 private:
  Indices sampler_;
  std::shared_ptr<SharedRandom> random_;
  int rank_, ranks_;
  size_t batch_;
  bool drop_last_;
  std::shared_ptr<std::deque<int64_t>> sizes_ = std::make_shared<std::deque<int64_t>>();
};

// Used as torch's loader is: for (auto& batch : *loader).
template <typename Dataset, typename Sampler>
class RankDataLoader {
  using Inner = torch::data::StatelessDataLoader<Dataset, SharedSampler<Sampler>>;

 public:
  using BatchType = typename Inner::BatchType;
  RankDataLoader(World& world, Dataset dataset, SharedSampler<Sampler> sampler,
                 torch::data::DataLoaderOptions options)
      : loop_(world.own_loop()),
        sizes_(sampler.sizes()),
        inner_(std::move(dataset), std::move(sampler), std::move(options)) {}

  class Iterator {
   public:
    BatchType& operator*() { return *at_; }
    BatchType* operator->() { return &*at_; }
    Iterator& operator++() {
      ++at_;
      loader_->take(at_);
      return *this;
    }
    bool operator!=(const Iterator& other) const { return at_ != other.at_; }
    bool operator==(const Iterator& other) const { return at_ == other.at_; }

   private:
    friend class RankDataLoader;
    Iterator(RankDataLoader* loader, torch::data::Iterator<BatchType> at)
        : loader_(loader), at_(std::move(at)) {}
    RankDataLoader* loader_;
    torch::data::Iterator<BatchType> at_;
  };
  // COLLECTIVE. An epoch.
  Iterator begin() {
    Iterator first(this, inner_.begin());
    take(first.at_);
    return first;
  }
  Iterator end() { return Iterator(this, inner_.end()); }
  const torch::data::FullDataLoaderOptions& options() const { return inner_.options(); }
  void join() { inner_.join(); }

 private:
  // The gradients of the batch in hand count by its samples.
  void take(torch::data::Iterator<BatchType>& at) {
    if (at == inner_.end() || sizes_->empty()) return;
    loop_->samples = sizes_->front();
    sizes_->pop_front();
  }

  std::shared_ptr<World::OwnLoop> loop_;
  std::shared_ptr<std::deque<int64_t>> sizes_;
  Inner inner_;
};

// COLLECTIVE. options.batch_size() is that of the global batch. Batches come in order. Throws
// Error(invalid_argument) if the batch has fewer samples than there are ranks.
template <typename Dataset, typename Sampler>
std::unique_ptr<RankDataLoader<Dataset, Sampler>> make_data_loader(
    World& world, Dataset dataset, Sampler sampler, torch::data::DataLoaderOptions options) {
  static_assert(
      !Dataset::is_stateful,
      "make_data_loader takes a data set with an index (torch::data::datasets::Dataset); "
      "a stateful one shares itself: give each rank its part by world.rank()");
  world.connect();
  const auto batch = static_cast<int64_t>(options.batch_size());
  SharedSampler<Sampler> shares(world, std::move(sampler), batch, options.drop_last());
  options.batch_size(static_cast<size_t>(world.share(batch))).drop_last(false);
  options.enforce_ordering(true);
  return std::make_unique<RankDataLoader<Dataset, Sampler>>(world, std::move(dataset),
                                                            std::move(shares), std::move(options));
}
template <typename Sampler = torch::data::samplers::RandomSampler, typename Dataset>
auto make_data_loader(World& world, Dataset dataset, torch::data::DataLoaderOptions options = {}) {
  const std::optional<size_t> size = dataset.size();
  TORCH_CHECK(size.has_value(), "make_data_loader takes a data set with a size");
  return make_data_loader(world, std::move(dataset), Sampler(*size), std::move(options));
}

}  // namespace trireme
