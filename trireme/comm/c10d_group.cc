#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <trireme/base/log.h>
#include <trireme/comm/blocks.h>
#include <trireme/comm/c10d_group.h>
#include <trireme/comm/dtype.h>
#include <trireme/comm/splits.h>
#include <trireme/plan/placement.h>
#include <algorithm>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

namespace trireme::comm {
namespace {

// The interval at which a wait checks whether a worker was lost.
constexpr Milliseconds kWorkSlice{100};

// The messages of collectives: no user's and no relayed message has this tag.
constexpr int kBlockTag = 1 << 16;

c10d::ReduceOp::RedOpType to_c10d(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
    // Gloo has no mean; the sum is divided afterwards.
    case ReduceOp::mean: return c10d::ReduceOp::SUM;
    case ReduceOp::max: return c10d::ReduceOp::MAX;
    case ReduceOp::min: return c10d::ReduceOp::MIN;
  }
  return c10d::ReduceOp::SUM;
}

// Turns an exception of c10d into one of our errors. `since` is the deadline that began with the
// operation: after it, the exception is c10d's own time-out.
[[noreturn]] void give_reason(const WaitLimits& limits, const char* operation,
                              const std::string& what, Deadline since) {
  if (since.expired()) limits.time_out(operation, "the other ranks");
  limits.explain(operation, what.substr(0, what.find('\n')));
}

class CollectiveWork : public Work {
 public:
  CollectiveWork(const char* operation, std::shared_ptr<const WaitLimits> limits,
                 c10::intrusive_ptr<c10d::Work> work, std::function<void()> after = {})
      : operation_(operation),
        limits_(std::move(limits)),
        work_(std::move(work)),
        after_(std::move(after)) {}

  // Waits in slices, because a c10d wait cannot be interrupted: the coordinator reports a lost
  // worker that is not our neighbour before c10d notices it.
  void wait() override {
    const Deadline deadline = Deadline::after(limits_->timeout());
    while (!finished_within_slice()) {
      limits_->throw_if_lost();
      if (deadline.expired()) limits_->time_out(operation_, "the other ranks");
    }
    if (after_) after_();
  }

 private:
  bool finished_within_slice() {
    try {
      work_->wait(kWorkSlice);
      return true;
    } catch (const std::exception& error) {
      if (!work_->isCompleted()) return false;
      give_reason(*limits_, operation_, error.what(), begun_);
    }
  }

  const char* operation_;
  std::shared_ptr<const WaitLimits> limits_;
  const Deadline begun_ = Deadline::after(limits_->timeout());
  c10::intrusive_ptr<c10d::Work> work_;
  std::function<void()> after_;
};

// The point-to-point waits in progress. They cannot go in slices, since a time-out of Gloo closes
// every connection; a thread of ours aborts them when a worker is lost.
class PairwiseWaits {
 public:
  explicit PairwiseWaits(std::shared_ptr<const WaitLimits> limits)
      : limits_(std::move(limits)), watcher_([this] { watch(); }) {}
  ~PairwiseWaits() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    watcher_.join();
  }
  void add(c10d::Work* work) {
    const std::lock_guard lock(mutex_);
    waits_.insert(work);
  }
  void remove(c10d::Work* work) {
    const std::lock_guard lock(mutex_);
    waits_.erase(work);
  }

 private:
  void watch() {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, kWorkSlice, [this] { return ended_; })) {
      if (!limits_->is_lost()) continue;
      for (c10d::Work* work : waits_) work->abort();
    }
  }

  std::shared_ptr<const WaitLimits> limits_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<c10d::Work*> waits_;
  bool ended_ = false;
  std::thread watcher_;
};

class PairwiseWork : public Work {
 public:
  PairwiseWork(const char* operation, std::shared_ptr<const WaitLimits> limits,
               std::shared_ptr<PairwiseWaits> waits, c10::intrusive_ptr<c10d::Work> work)
      : operation_(operation),
        limits_(std::move(limits)),
        waits_(std::move(waits)),
        work_(std::move(work)) {}
  void wait() override {
    limits_->throw_if_lost();
    waits_->add(work_.get());
    bool done = false;
    std::string what = "the wait was given up";
    const Deadline deadline = Deadline::after(limits_->timeout());
    try {
      done = work_->wait(limits_->timeout());
    } catch (const std::exception& error) {
      what = error.what();
    }
    waits_->remove(work_.get());
    if (done) return;
    if (deadline.expired()) limits_->time_out(operation_, "the other ranks");
    give_reason(*limits_, operation_, what, begun_);
  }

 private:
  const char* operation_;
  std::shared_ptr<const WaitLimits> limits_;
  const Deadline begun_ = Deadline::after(limits_->timeout());
  std::shared_ptr<PairwiseWaits> waits_;
  c10::intrusive_ptr<c10d::Work> work_;
};

// Adds up the blocks of all ranks, in rank order, when they have arrived.
class ReducingWork : public Work {
 public:
  ReducingWork(std::vector<WorkPtr> messages, std::vector<at::Tensor> terms, at::Tensor output,
               ReduceOp op)
      : messages_(std::move(messages)),
        terms_(std::move(terms)),
        output_(std::move(output)),
        op_(op) {}
  void wait() override {
    for (WorkPtr& message : std::exchange(messages_, {})) message->wait();
    if (terms_.empty()) return;
    std::vector<const void*> sources;
    for (const at::Tensor& term : terms_) sources.push_back(term.const_data_ptr());
    // The output may be part of the input, which has been sent by now.
    const bool apart = std::none_of(terms_.begin(), terms_.end(), [&](const at::Tensor& term) {
      return output_.is_alias_of(term);
    });
    const at::Tensor sum = apart ? output_ : at::empty_like(output_);
    fold_range(to_plan(sum.scalar_type()), fold_of(op_), sum.mutable_data_ptr(), sources, 0,
               sum.numel());
    if (!sum.is_same(output_)) output_.copy_(sum);
    if (op_ == ReduceOp::mean) output_.div_(static_cast<int64_t>(terms_.size()));
    terms_.clear();
  }

 private:
  std::vector<WorkPtr> messages_;
  std::vector<at::Tensor> terms_;  // [rank]
  at::Tensor output_;
  ReduceOp op_;
};

class C10dGroup : public Group {
 public:
  C10dGroup(std::string name, at::Device device, c10::intrusive_ptr<c10d::Backend> backend,
            std::shared_ptr<WaitLimits> limits)
      : Group(backend->getRank(), backend->getSize()),
        name_(std::move(name)),
        device_(device),
        limits_(std::move(limits)),
        waits_(std::make_shared<PairwiseWaits>(limits_)),
        backend_(std::move(backend)) {}

  std::string_view backend() const override { return name_; }
  bool runs_in_background() const override { return true; }
  at::Device device() const override { return device_; }
  plan::Placement placement() const override { return plan::each_alone(size(), name_); }
  void abort(const std::string& reason) override {
    // The other processes learn of it from the coordinator.
    limits_->give_up(reason);
  }

 private:
  WorkPtr do_all_reduce(at::Tensor tensor, ReduceOp op) override {
    if (size() == 1 || tensor.numel() == 0) return finished_work();
    std::function<void()> after;
    if (op == ReduceOp::mean) after = [tensor, n = size()] { tensor.div_(n); };
    return start(
        "all_reduce",
        [&] {
          c10d::AllreduceOptions options;
          options.reduceOp = to_c10d(op);
          std::vector<at::Tensor> tensors{tensor};
          return backend_->allreduce(tensors, options);
        },
        std::move(after));
  }

  WorkPtr do_reduce_scatter(at::Tensor input, at::Tensor output, ReduceOp op) override {
    if (output.numel() == 0) return finished_work();
    return device_.is_cpu() ? exchange_blocks(input, output, op)
                            : own_reduce_scatter(input, output, op);
  }

  WorkPtr own_reduce_scatter(at::Tensor input, at::Tensor output, ReduceOp op) {
    std::function<void()> after;
    if (op == ReduceOp::mean) after = [output, n = size()] { output.div_(n); };
    return start(
        "reduce_scatter",
        [&] {
          c10d::ReduceScatterOptions options;
          options.reduceOp = to_c10d(op);
          return backend_->_reduce_scatter_base(output, input, options);
        },
        std::move(after));
  }

  // Sends every other rank its block, and adds up the blocks that arrive. Gloo's own
  // reduce_scatter takes twice as long as its all_reduce for large tensors.
  WorkPtr exchange_blocks(const at::Tensor& input, const at::Tensor& output, ReduceOp op) {
    limits_->throw_if_lost();
    const at::Tensor blocks = input.view({size(), output.numel()});
    const at::Tensor arriving = size() > 1 ? at::empty_like(blocks) : at::Tensor();
    std::vector<WorkPtr> messages;
    for (int distance = 1; distance < size(); ++distance) {
      const int from = (rank() + size() - distance) % size();
      messages.push_back(message("reduce_scatter", [&] {
        std::vector<at::Tensor> place{arriving[from]};
        return backend_->recv(place, from, kBlockTag);
      }));
    }
    for (int distance = 1; distance < size(); ++distance) {
      const int to = (rank() + distance) % size();
      messages.push_back(message("reduce_scatter", [&] {
        std::vector<at::Tensor> block{blocks[to]};
        return backend_->send(block, to, kBlockTag);
      }));
    }
    std::vector<at::Tensor> terms;
    for (int source = 0; source < size(); ++source)
      terms.push_back(source == rank() ? blocks[source] : arriving[source]);
    return std::make_unique<ReducingWork>(std::move(messages), std::move(terms), output, op);
  }

  WorkPtr do_all_gather(at::Tensor input, at::Tensor output) override {
    if (input.numel() == 0) return finished_work();
    return start("all_gather", [&] {
      std::vector<std::vector<at::Tensor>> outputs{blocks_of(output, input)};
      std::vector<at::Tensor> inputs{input};
      return backend_->allgather(outputs, inputs);
    });
  }

  WorkPtr do_broadcast(at::Tensor tensor, int root) override {
    if (size() == 1 || tensor.numel() == 0) return finished_work();
    return start("broadcast", [&] {
      c10d::BroadcastOptions options;
      options.rootRank = root;
      std::vector<at::Tensor> tensors{tensor};
      return backend_->broadcast(tensors, options);
    });
  }

  WorkPtr do_all_to_all(at::Tensor input, at::Tensor output, Splits splits) override {
    if (splits.total == 0) return finished_work();
    return start("all_to_all", [&] {
      std::vector<int64_t> sent, received;  // If empty, the blocks are equal.
      if (!splits.equal) sent = splits.sent, received = splits.received;
      at::Tensor from = input.view({-1}), to = output.view({-1});
      return backend_->alltoall_base(to, from, received, sent);
    });
  }

  void do_gather(at::Tensor input, at::Tensor output, int root) override {
    if (input.numel() == 0) return;
    start("gather", [&] {
      c10d::GatherOptions options;
      options.rootRank = root;
      std::vector<std::vector<at::Tensor>> outputs;
      if (rank() == root) outputs.push_back(blocks_of(output, input));
      std::vector<at::Tensor> inputs{input};
      return backend_->gather(outputs, inputs, options);
    })->wait();
  }

  WorkPtr do_send(at::Tensor tensor, int to, int tag) override {
    limits_->throw_if_lost();
    std::vector<at::Tensor> tensors{tensor};
    return message("send", [&] { return backend_->send(tensors, to, tag); });
  }
  WorkPtr do_recv(at::Tensor tensor, int from, int tag) override {
    limits_->throw_if_lost();
    std::vector<at::Tensor> tensors{tensor};
    return message("recv", [&] { return backend_->recv(tensors, from, tag); });
  }
  template <typename Start>
  WorkPtr message(const char* operation, Start begin) {
    return std::make_unique<PairwiseWork>(operation, limits_, waits_, started(operation, begin));
  }

  // An all_reduce, because a wait in Gloo's own barrier cannot go in slices.
  void do_barrier() override {
    do_all_reduce(at::zeros({1}, at::TensorOptions(device()).dtype(at::kByte)), ReduceOp::sum)
        ->wait();
  }

  template <typename Start>
  c10::intrusive_ptr<c10d::Work> started(const char* operation, Start begin) {
    try {
      // Threads of a hybrid group send and receive through one group of leaders.
      const std::lock_guard one_at_a_time(starting_);
      return begin();
    } catch (const std::exception& error) {
      give_reason(*limits_, operation, error.what(), Deadline::after(limits_->timeout()));
    }
  }
  template <typename Start>
  WorkPtr start(const char* operation, Start begin, std::function<void()> after = {}) {
    limits_->throw_if_lost();
    return std::make_unique<CollectiveWork>(operation, limits_, started(operation, begin),
                                            std::move(after));
  }
  std::vector<at::Tensor> blocks_of(const at::Tensor& output, const at::Tensor& input) const {
    std::vector<at::Tensor> blocks;
    for (const at::Tensor& block : output.view({size(), -1}).unbind(0))
      blocks.push_back(block.view(input.sizes()));
    return blocks;
  }

  const std::string name_;
  const at::Device device_;
  const std::shared_ptr<WaitLimits> limits_;
  const std::shared_ptr<PairwiseWaits> waits_;
  const c10::intrusive_ptr<c10d::Backend> backend_;
  std::mutex starting_;
};

}  // namespace

std::shared_ptr<Group> make_c10d_group(const std::string& name, at::Device device,
                                       c10::intrusive_ptr<c10d::Backend> backend,
                                       std::shared_ptr<WaitLimits> limits) {
  return std::make_shared<C10dGroup>(name, device, std::move(backend), std::move(limits));
}

}  // namespace trireme::comm
