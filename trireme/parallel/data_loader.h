// LibTorch's data loader for a loop as it stands: each rank gets its share of each global batch.
//
//   auto loader = trireme::make_data_loader(world, std::move(dataset), /*batch_size=*/64);
//
// In place of torch::data::make_data_loader(std::move(dataset), 64). Samplers, options and batches
// are those of torch::data. In a world of one process the batches are the same, bit for bit.
#pragma once
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/data/dataloader.h>
#include <torch/data/samplers/distributed.h>
#include <trireme/base/hash.h>
#include <trireme/base/json.h>
#include <trireme/comm/world.h>
#include <trireme/parallel/shared_random.h>
#include <trireme/plan/data_plan.h>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace trireme {

// The place of a loader in its data, for checkpoints (train/own_checkpoint.h). The epochs count
// from 0.
class LoaderPlace {
 public:
  virtual ~LoaderPlace() = default;
  // The same on all ranks, and for any number of ranks.
  virtual Json position() const = 0;
  // The next loop over the loader continues behind the batches of `position`.
  virtual void seek(const Json& position) = 0;
};

// The shares of a sampler of indices. Every rank walks over the whole batches, and takes its
// part of each. What a sampler draws in reset() is the same on all ranks, as rank 0 draws it. It
// must not draw in next(): batches that differ between ranks are an error in backward().
template <typename Indices>
class SharedSampler : public torch::data::samplers::Sampler<> {
 public:
  static_assert(std::is_same_v<typename Indices::BatchRequestType, std::vector<size_t>>,
                "make_data_loader takes a sampler of indices (RandomSampler, SequentialSampler, "
                "or one of your own whose requests are std::vector<size_t>)");
  static_assert(!std::is_base_of_v<torch::data::samplers::DistributedSampler<>, Indices>,
                "make_data_loader shares the batches of a sampler of all samples, such as "
                "RandomSampler(size): a DistributedSampler would share them a second time");
  // Sampler and loader both use it. The loader lives in the thread that loops over it.
  struct Place {
    int64_t epoch = 0;       // The one under way, or the next one.
    std::string numbers;     // The random numbers at its start; empty: it has not begun.
    int64_t taken = 0;       // The batches that the loop has had of it.
    bool is_sought = false;  // The next loop begins behind these batches.
    std::deque<OwnLoop::BatchInHand> read;  // The batches that are read and not taken.
  };
  SharedSampler(World& world, Indices sampler, int64_t batch, bool drop_last)
      : sampler_(std::move(sampler)),
        random_(std::make_shared<SharedRandom>(world)),
        batch_(static_cast<size_t>(batch)),
        drop_last_(drop_last) {}

  // COLLECTIVE.
  void reset(std::optional<size_t> new_size = std::nullopt) override {
    Place& place = *place_;
    const auto draws = [&] { sampler_.reset(new_size); };
    place.read.clear();
    if (std::exchange(place.is_sought, false)) {
      SharedRandom::run_as(place.numbers, draws);
      for (int64_t i = 0; i < place.taken && sampler_.next(batch_); ++i) {
      }
      return;
    }
    if (place.taken > 0) ++place.epoch;  // The loop before did not come to the end.
    place.taken = 0;
    place.numbers = random_->run(draws);
  }
  // `share` is not used: the number of samples of the whole batch counts.
  std::optional<std::vector<size_t>> next(size_t share) override {
    static_cast<void>(share);
    const auto all = sampler_.next(batch_);
    if (!all || (drop_last_ && all->size() < batch_)) return std::nullopt;
    const auto samples = static_cast<int64_t>(all->size());
    const World& world = random_->world();
    if (samples < world.size()) {
      random_->tell_left_out(samples);
      return std::nullopt;
    }
    const auto [first, last] = plan::DataPlan::share(samples, world.rank(), world.size());
    uint64_t indices = 1;
    for (const size_t index : *all) indices = mix64(indices, index);
    place_->read.push_back({last - first, samples, indices});
    return std::vector<size_t>(all->begin() + first, all->begin() + last);
  }
  void save(torch::serialize::OutputArchive& archive) const override { sampler_.save(archive); }
  void load(torch::serialize::InputArchive& archive) override { sampler_.load(archive); }
  const std::shared_ptr<Place>& place() const { return place_; }
  int number() const { return random_->number(); }

 private:
  Indices sampler_;
  std::shared_ptr<SharedRandom> random_;
  size_t batch_;
  bool drop_last_;
  std::shared_ptr<Place> place_ = std::make_shared<Place>();
};

// Used as torch's loader is: for (auto& batch : *loader).
template <typename Dataset, typename Sampler>
class RankDataLoader : public LoaderPlace {
  // A loop that ended early (a break, or an error of a lost worker) leaves batches that threads
  // read ahead. Another loop may begin all the same.
  struct Inner : torch::data::StatelessDataLoader<Dataset, SharedSampler<Sampler>> {
    using torch::data::StatelessDataLoader<Dataset, SharedSampler<Sampler>>::StatelessDataLoader;
    void drop_what_is_read() { this->shuttle_.drain(); }
  };

 public:
  using BatchType = typename Inner::BatchType;
  RankDataLoader(World& world, Dataset dataset, SharedSampler<Sampler> sampler,
                 torch::data::DataLoaderOptions options)
      : loop_(world.own_loop()),
        place_(sampler.place()),
        inner_(std::move(dataset), std::move(sampler), std::move(options)) {}

  class Iterator {
   public:
    BatchType& operator*() { return *at_; }
    BatchType* operator->() { return &*at_; }
    Iterator& operator++() {
      loader_->loop_->enter(Phase::data);
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
  // COLLECTIVE. The rest of an epoch that was sought, or the next whole one.
  Iterator begin() {
    loop_->enter(Phase::data);
    inner_.drop_what_is_read();
    Iterator first(this, inner_.begin());
    take(first.at_);
    return first;
  }
  Iterator end() { return Iterator(this, inner_.end()); }
  int64_t epoch() const { return place_->epoch; }  // The one under way, or the next one.
  const torch::data::FullDataLoaderOptions& options() const { return inner_.options(); }
  void join() { inner_.join(); }

  Json position() const override {
    return {{"epoch", place_->epoch}, {"numbers", place_->numbers}, {"batches", place_->taken}};
  }
  void seek(const Json& position) override {
    place_->epoch = position.at("epoch");
    place_->numbers = position.at("numbers");
    place_->taken = position.at("batches");
    place_->is_sought = !place_->numbers.empty();
  }

 private:
  // The gradients of the batch in hand count by its samples. An evaluation computes none, and
  // changes nothing for the loop that it interrupts.
  void take(torch::data::Iterator<BatchType>& at) {
    if (at == inner_.end()) {
      ++place_->epoch;
      place_->numbers.clear();
      place_->taken = 0;
      if (before_) loop_->take_batch(*before_);
      before_.reset();
      loop_->enter(Phase::forward);
    } else if (!place_->read.empty()) {
      OwnLoop::BatchInHand next = place_->read.front();
      next.loader = this;
      place_->read.pop_front();
      ++place_->taken;
      loop_->enter(at::GradMode::is_enabled() ? Phase::forward : Phase::evaluate);
      if (!at::GradMode::is_enabled()) return;
      if (!before_) before_ = loop_->batch;
      loop_->take_batch(next);
    }
  }

  std::optional<OwnLoop::BatchInHand> before_;  // That of before this epoch.
  std::shared_ptr<World::OwnLoop> loop_;
  std::shared_ptr<typename SharedSampler<Sampler>::Place> place_;
  Inner inner_;
};

// COLLECTIVE. options.batch_size() is that of the global batch. Batches come in order. Throws
// Error(invalid_argument) if the batch has fewer samples than there are ranks, or naming two ranks
// whose loaders differ.
template <typename Dataset, typename Sampler>
std::unique_ptr<RankDataLoader<Dataset, Sampler>> make_data_loader(
    World& world, Dataset dataset, Sampler sampler, torch::data::DataLoaderOptions options) {
  static_assert(
      !Dataset::is_stateful,
      "make_data_loader takes a data set with an index (torch::data::datasets::Dataset); "
      "a stateful one shares itself: give each rank its part by world.rank()");
  world.connect();
  const auto batch = static_cast<int64_t>(options.batch_size());
  check_batch(world, batch);
  SharedSampler<Sampler> shares(world, std::move(sampler), batch, options.drop_last());
  // A process that joins an elastic job makes its loaders alone.
  if (world.identity().generation == 0)
    world.agree(fmt::format("loader {}", shares.number()),
                {{"samples", std::to_string(dataset.size().value_or(0))},
                 {"batch", std::to_string(batch)},
                 {"drop_last", options.drop_last() ? "yes" : "no"}});
  const auto [first, last] = plan::DataPlan::share(batch, world.rank(), world.size());
  options.batch_size(static_cast<size_t>(last - first)).drop_last(false);
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

// A first try that cannot work: the compiler's message says what does.
template <typename Dataset, typename... Rest>
  requires requires { typename std::remove_cvref_t<Dataset>::BatchType; }
void make_data_loader(Dataset&&, Rest&&...) {
  static_assert(!sizeof(Dataset),
                "trireme::make_data_loader takes the World first: (world, dataset, batch)");
}

}  // namespace trireme
