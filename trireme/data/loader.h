// Turns a source into the batches of one replica: shuffled, cut into shares, batched, and
// prefetched by threads in a fixed order.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/base/deadline.h>
#include <trireme/data/batch.h>
#include <trireme/data/ordered_batches.h>
#include <trireme/data/source.h>
#include <trireme/data/tuner.h>
#include <trireme/plan/data_plan.h>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace trireme {

struct LoaderOptions {
  static constexpr int kTuned = -1;  // Chosen while training goes on (tuner.h).

  int64_t batch = 64;  // The global batch: samples per step over all replicas.
  uint64_t seed = 0;
  // The order of an epoch's samples; true is full, false is none (plan/sample_order.h).
  plan::OrderOptions shuffle;
  bool drop_last = false;
  int virtual_shards = 0;  // See plan::DataPlanOptions.
  // The number of prefetching threads; at 0 the caller loads. Tuned, it begins with 1.
  int threads = kTuned;
  // The number of batches that are ready or being loaded; at least one per thread. Tuned, it
  // begins with 2.
  int prefetch = kTuned;
  // The setting that tuning has found earlier, to begin with.
  std::optional<data::LoaderSetting> start = {};
  // The loaders of this host that divide its cores and memory, each for one replica.
  int loaders_of_host = 1;
  int compute_threads = 0;  // The threads of the replica that compute beside the loader's.
  // Tuning keeps the batches of all loaders of the host in so many bytes, of which caches in
  // memory and unpacked files have their parts; -1: a quarter of the memory that is free.
  int64_t memory_bytes = -1;
  // Floating-point data and targets are converted to this type.
  at::ScalarType dtype = at::kFloat;
  // Batches come on this device. The thread that loads one copies it there (Batch::on), ahead of
  // need.
  at::Device device = at::kCPU;
  // The time that next() waits for its batch. It has no effect with threads = 0.
  Milliseconds timeout{600'000};
};

// The choice of a loader, and why it chooses no more.
struct LoaderTuning {
  data::LoaderSetting setting;  // Without threads: 0 threads.
  double mean_threads = 0;      // Over the time of its batches.
  bool tunes_threads = false, tunes_prefetch = false;
  bool is_settled = true;
  data::TunedBy reason = data::TunedBy::fixed;
};

// One thread at a time may use a loader. Its batches depend only on (options, source, rank, world
// size, position), never on timing. The destructor waits for the calls of the source that are
// running; it starts no further call.
class Loader {
 public:
  // Throws Error(invalid_argument) naming the option. It also does so if the source is empty, or
  // if the global batch has fewer samples than there are replicas.
  Loader(std::shared_ptr<const Source> source, LoaderOptions options, int rank = 0,
         int world_size = 1);
  // Loads the share of the calling rank of a World, with one replica per worker, or of a Group. In
  // the next generation of an elastic job a World has other ranks, and its loaders other shares.
  template <typename Ranks>
  Loader(const Ranks& ranks, std::shared_ptr<const Source> source, LoaderOptions options)
      : Loader(std::move(source), options, ranks.rank(), ranks.size()) {
    if constexpr (requires { ranks.own_loop()->world->rank(); })
      follow([loop = ranks.own_loop()] {
        return loop->world ? std::optional(std::pair(loop->world->rank(), loop->world->size()))
                           : std::nullopt;
      });
  }
  // First tries that cannot work: the compiler's message says what does.
  template <typename Ranks, typename Dataset>
    requires requires { typename std::remove_cvref_t<Dataset>::BatchType; }
  Loader(const Ranks&, Dataset&&, LoaderOptions) {
    static_assert(
        !sizeof(Ranks),
        "Loader takes a trireme::Source: trireme::from_dataset(dataset) makes one of a data set "
        "of torch::data. trireme::make_data_loader(world, dataset, batch) "
        "loads it without one.");
  }
  template <typename Ranks, typename Data, typename Sampler>
    requires requires { typename std::remove_cvref_t<Sampler>::BatchRequestType; }
  Loader(const Ranks&, Data&&, Sampler&&, LoaderOptions = {}) {
    static_assert(!sizeof(Ranks),
                  "Loader takes no sampler of torch::data: LoaderOptions::shuffle says in which "
                  "order samples come. trireme::make_data_loader(world, dataset, sampler, batch) "
                  "takes one.");
  }
  ~Loader();
  Loader(Loader&&) noexcept;

  // Returns the next batch; after the end of an epoch the next epoch follows. An exception from
  // the source is thrown here, for the batch that caused it. The position then stays: another call
  // tries the same batch again, and seek() skips it. Throws Error(timeout) if the batch is not
  // there in time; another call continues to wait for it.
  Batch next();
  // True if the next batch starts a new epoch. It is also true at the very start.
  bool at_epoch_start() const;
  int64_t batches_per_epoch() const;
  const plan::DataPlan& plan() const;
  // The position of the batch that next() returns next. A checkpoint saves it.
  plan::DataPosition position() const;
  // Continues at any sample, even one that the batch size does not divide. Batches that were read
  // ahead from there on are kept. Throws Error(invalid_argument) for a position outside the data
  // set.
  void seek(plan::DataPosition position);
  // The seconds in which next() waited for its batches.
  double seconds_waited() const;
  // The work of the source's stages, or of the source as a whole.
  std::vector<data::StageUse> stage_use() const;
  LoaderTuning tuning() const;

  // The reading ahead that an evaluation may do meanwhile: with as many threads, in the memory
  // that the loader's own batches leave.
  data::ReadAhead beside() const;

  // The threads read ahead every `batches`-th batch from now on, at least 1: the caller seeks
  // before each next(). A guess, which changes no batch.
  void read_ahead_every(int64_t batches);

  // `for (const Batch& batch : loader)` visits the rest of this epoch, or a whole epoch if none
  // has begun.
  class Iterator {
   public:
    const Batch& operator*() const { return batch_; }
    Iterator& operator++();
    bool operator!=(std::nullptr_t) const { return loader_ != nullptr; }

   private:
    friend class Loader;
    Loader* loader_ = nullptr;
    Batch batch_;
    int64_t epoch_ = 0;
  };
  Iterator begin();
  std::nullptr_t end() { return nullptr; }

 private:
  struct Impl;
  // Gives the rank and the number of replicas that count now; nothing: they stay.
  using ShareNow = std::function<std::optional<std::pair<int, int>>()>;
  void follow(ShareNow share_now);
  // Drops the batches that were read ahead, if another share counts.
  void take_share();
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
