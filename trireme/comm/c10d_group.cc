#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <trireme/comm/blocks.h>
#include <trireme/comm/c10d_group.h>
#include <trireme/comm/c10d_messages.h>
#include <trireme/comm/message_form.h>
#include <trireme/comm/splits.h>
#include <trireme/plan/placement.h>
#include <algorithm>
#include <functional>
#include <utility>

namespace trireme::comm {
namespace {

// The messages of collectives: no user's and no relayed message has this tag.
constexpr int kBlockTag = 1 << 16;
// The tags of the two parts of a message: its header by the message's tag, its body by a number.
constexpr int kHeaderTag = 1 << 17, kBodyTag = 1 << 20;

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
    while (!finished_within(kWorkSlice)) {
      limits_->throw_if_lost();
      if (deadline.expired()) limits_->time_out(operation_, "the other ranks");
    }
  }
  bool wait_for(Milliseconds patience) override {
    const Deadline until = Deadline::after(patience);
    while (!finished_within(std::min(kWorkSlice, until.remaining()))) {
      limits_->throw_if_lost();
      if (begun_.expired()) limits_->time_out(operation_, "the other ranks");
      if (until.expired()) return false;
    }
    return true;
  }

 private:
  bool finished_within(Milliseconds slice) {
    try {
      if (slice <= Milliseconds(0) && !work_->isCompleted()) return false;
      work_->wait(std::max(Milliseconds(1), slice));  // To c10d, 0 is a time-out of its own.
    } catch (const std::exception& error) {
      if (!work_->isCompleted()) return false;
      // It may have been completed just after the slice had ended.
      if (work_->exception()) give_reason(*limits_, operation_, error.what(), begun_);
    }
    if (auto after = std::exchange(after_, {})) after();
    return true;
  }

  const char* operation_;
  std::shared_ptr<const WaitLimits> limits_;
  const Deadline begun_ = Deadline::after(limits_->timeout());
  c10::intrusive_ptr<c10d::Work> work_;
  std::function<void()> after_;
};

class C10dGroup : public Group {
 public:
  C10dGroup(std::string name, at::Device device, c10::intrusive_ptr<c10d::Backend> backend,
            std::shared_ptr<WaitLimits> limits)
      : Group(backend->getRank(), backend->getSize()),
        name_(std::move(name)),
        device_(device),
        limits_(std::move(limits)),
        backend_(std::move(backend)),
        mail_(std::make_shared<Mail>(limits_, backend_)) {}
  ~C10dGroup() override { mail_->end(); }

  std::string_view backend() const override { return name_; }
  bool runs_in_background() const override { return true; }
  at::Device device() const override { return device_; }
  plan::Placement placement() const override { return plan::each_alone(size(), name_); }
  void do_abort(const std::string& reason) override {
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
    auto pending = std::make_shared<Pending>();
    for (int distance = 1; distance < size(); ++distance) {
      const int from = (rank() + size() - distance) % size();
      pending->add(mail_->receive("reduce_scatter", arriving[from], from, kBlockTag));
    }
    for (int distance = 1; distance < size(); ++distance) {
      const int to = (rank() + distance) % size();
      pending->add(mail_->send("reduce_scatter", blocks[to], to, kBlockTag));
    }
    std::vector<at::Tensor> terms;
    for (int source = 0; source < size(); ++source)
      terms.push_back(source == rank() ? blocks[source] : arriving[source]);
    return std::make_unique<Unhurried>(
        mail_, pending,
        [pending, terms, output, op] {
          pending->wait();
          reduce_blocks(terms, output, op);
        },
        /*needs_thread_of_its_own=*/false);
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

  // NCCL's messages do not say what they are. With Gloo a header goes ahead, and a message that
  // does not fit lands elsewhere: Gloo would end the process.
  WorkPtr do_send(at::Tensor tensor, int to, int tag) override {
    limits_->throw_if_lost();
    auto pending = std::make_shared<Pending>();
    int body_tag = tag;
    if (device_.is_cpu()) {
      const MessageForm form = form_of(tensor);
      body_tag = static_cast<int>(kBodyTag + mail_->next_number() % kBodyTag);
      const at::Tensor header = at::empty({3}, at::kLong);
      auto* const numbers = header.mutable_data_ptr<int64_t>();
      numbers[0] = form.bytes, numbers[1] = form.type, numbers[2] = body_tag;
      pending->add(mail_->send("send", header, to, kHeaderTag + tag));
    }
    if (tensor.numel() > 0) pending->add(mail_->send("send", tensor, to, body_tag));
    return std::make_unique<Unhurried>(
        mail_, pending, [pending] { pending->wait(); }, /*needs_thread_of_its_own=*/false);
  }
  // The body is asked for when the header has come, so a thread has to wait for the header.
  WorkPtr do_recv(at::Tensor tensor, int from, int tag) override {
    limits_->throw_if_lost();
    auto pending = std::make_shared<Pending>();
    if (!device_.is_cpu()) {
      if (tensor.numel() > 0) pending->add(mail_->receive("recv", tensor, from, tag));
      return std::make_unique<Unhurried>(
          mail_, pending, [pending] { pending->wait(); }, /*needs_thread_of_its_own=*/false);
    }
    const at::Tensor header = at::empty({3}, at::kLong);
    pending->add(mail_->receive("recv", header, from, kHeaderTag + tag));
    return std::make_unique<Unhurried>(
        mail_, pending,
        [mail = mail_, pending, header, tensor, from, tag] {
          pending->wait();
          const auto* const numbers = header.const_data_ptr<int64_t>();
          const MessageForm sent{numbers[0], static_cast<int32_t>(numbers[1])};
          const MessageDifference difference{sent, form_of(tensor), from, tag};
          if (sent.bytes > 0) {
            const at::Tensor place =
                difference.empty() ? tensor : at::empty({sent.bytes}, at::kByte);
            const PairwisePtr body =
                mail->receive("recv", place, from, static_cast<int>(numbers[2]));
            pending->add(body);
            body->wait();
          }
          refuse_message(difference);
        },
        /*needs_thread_of_its_own=*/true);
  }

  // An all_reduce, because a wait in Gloo's own barrier cannot go in slices.
  void do_barrier() override {
    do_all_reduce(at::zeros({1}, at::TensorOptions(device()).dtype(at::kByte)), ReduceOp::sum)
        ->wait();
  }

  template <typename Start>
  WorkPtr start(const char* operation, Start begin, std::function<void()> after = {}) {
    limits_->throw_if_lost();
    return std::make_unique<CollectiveWork>(operation, limits_, mail_->started(operation, begin),
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
  const c10::intrusive_ptr<c10d::Backend> backend_;
  const std::shared_ptr<Mail> mail_;
};

}  // namespace

std::shared_ptr<Group> make_c10d_group(const std::string& name, at::Device device,
                                       c10::intrusive_ptr<c10d::Backend> backend,
                                       std::shared_ptr<WaitLimits> limits) {
  return std::make_shared<C10dGroup>(name, device, std::move(backend), std::move(limits));
}

}  // namespace trireme::comm
