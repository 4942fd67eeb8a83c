// Turns a source into this replica's batches: shuffled, shared, batched, and prefetched by threads
// in a fixed order.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/base/deadline.h>
#include <trireme/comm/world.h>
#include <trireme/data/source.h>
#include <trireme/plan/data_plan.h>
#include <cstddef>
#include <memory>
#include <vector>

namespace trireme {

struct LoaderOptions {
  int64_t batch = 64;  // Global: samples per step over all replicas.
  uint64_t seed = 0;
  bool shuffle = true;
  bool drop_last = false;
  int virtual_shards = 0;             // plan::DataPlanOptions.
  int threads = 1;                    // Prefetching threads; 0: load in the caller.
  int prefetch = 2;                   // Batches held ready, or being loaded: at least one a thread.
  at::ScalarType dtype = at::kFloat;  // Floating-point data and targets are converted to it.
  Milliseconds timeout{600'000};      // How long next() waits for its batch; not with threads = 0.
};

struct Batch {
  at::Tensor data, target;       // First dimension: this replica's share, possibly 0.
  std::vector<int64_t> indices;  // Which samples, in order.
  int64_t global_size = 0;       // Of the whole global batch.
  plan::DataPosition position;   // Of the global batch's first sample.
  plan::DataPosition next;       // Where training goes on once this batch is committed.
  int64_t size() const { return static_cast<int64_t>(indices.size()); }
};

// One thread at a time. Batches depend only on (options, source, rank, world size, position), never
// on timing. The destructor waits for the calls of the source that are running, and starts no
// further one.
class Loader {
 public:
  // Throws Error(invalid_argument) naming the option; also if the source is empty or the global
  // batch smaller than the replicas.
  Loader(std::shared_ptr<const Source> source, LoaderOptions options, int rank = 0,
         int world_size = 1);
  // This worker's share in its world, with one replica a worker.
  Loader(const World& world, std::shared_ptr<const Source> source, LoaderOptions options)
      : Loader(std::move(source), options, world.rank(), world.size()) {}
  ~Loader();
  Loader(Loader&&) noexcept;

  // The next batch, across the end of an epoch into the next one. An exception thrown by the source
  // comes out here, for its batch; the position stays, so that calling again tries that batch
  // again, and seek() leads past it. Throws Error(timeout) if the batch is not there in time
  // (calling again goes on waiting).
  Batch next();
  // True if the next batch starts a new epoch (and at the very start).
  bool at_epoch_start() const;
  int64_t batches_per_epoch() const;
  const plan::DataPlan& plan() const;
  plan::DataPosition position()
      const;  // Of the next batch that next() will give: what a checkpoint saves.
  // Goes on at any sample, also one that the batch size does not divide. Throws
  // Error(invalid_argument) outside the data set.
  void seek(plan::DataPosition position);

  // `for (const Batch& batch : loader)`: what is left of this epoch (a whole one if none has
  // begun).
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
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
