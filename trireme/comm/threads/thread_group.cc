#include <torch/torch.h>

#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/comm/dtype.h>
#include <trireme/comm/threads/reduce_kernel.h>
#include <trireme/comm/threads/thread_group.h>
#include <trireme/comm/threads/thread_hub.h>
#include <cstring>

namespace trireme::comm {
namespace {

// One round of a plan as the executor needs it: whether a chunk this rank writes is read by another in the same round, so that the
// new value must be staged until all have read the old one.
bool writes_what_others_read(const plan::CollectivePlan& plan, size_t round) {
  for (int rank = 0; rank < plan.world_size; ++rank) {
    for (const auto& receive : plan.rounds[round][rank].receives)
      for (const auto& [chunk, to] : plan.rounds[round][rank].sends)
        if (chunk == receive.chunk && to != rank) return true;
  }
  return false;
}

struct PreparedPlan {
  explicit PreparedPlan(plan::CollectivePlan prepared) : plan(std::move(prepared)) {
    for (size_t round = 0; round < plan.rounds.size(); ++round) staged.push_back(writes_what_others_read(plan, round));
  }
  plan::CollectivePlan plan;
  std::vector<bool> staged;
};

class ThreadGroup : public Group {
 public:
  ThreadGroup(int rank, std::shared_ptr<ThreadHub> hub, std::shared_ptr<const PreparedPlan> all_reduce)
      : Group(rank, hub->size()), hub_(std::move(hub)), all_reduce_(std::move(all_reduce)) {}

  std::string_view backend() const override { return "threads"; }
  void abort(const std::string& reason) override { hub_->abort(rank(), reason); }

 private:
  WorkPtr do_all_reduce(at::Tensor tensor, ReduceOp op) override {
    if (size() > 1) {
      run(*all_reduce_, "all_reduce", tensor, op);
      if (op == ReduceOp::mean) tensor.div_(size());
    }
    return finished_work();
  }

  WorkPtr do_reduce_scatter(at::Tensor input, at::Tensor output, ReduceOp op) override {
    post("reduce_scatter", input, to_string(op));
    const int64_t block = output.numel();
    std::vector<const void*> sources;
    for (int source = 0; source < size(); ++source) sources.push_back(offset(hub_->posted(source).data, rank() * block, input));
    at::Tensor reduced = at::empty_like(output);  // `output` may be part of an input that others still read.
    fold_range(to_plan(output.scalar_type()), fold_of(op), reduced.mutable_data_ptr(), sources, 0, block);
    hub_->part(rank(), "reduce_scatter");
    output.copy_(reduced);
    if (op == ReduceOp::mean) output.div_(size());
    return finished_work();
  }

  WorkPtr do_all_gather(at::Tensor input, at::Tensor output) override {
    // Staged likewise: `input` may be this rank's block of `output`.
    post("all_gather", input, "all ranks");
    at::Tensor gathered = at::empty_like(output);
    for (int source = 0; source < size(); ++source)
      copy(offset(gathered.mutable_data_ptr(), source * input.numel(), input), hub_->posted(source).data, input.nbytes());
    hub_->part(rank(), "all_gather");
    output.copy_(gathered);
    return finished_work();
  }

  WorkPtr do_broadcast(at::Tensor tensor, int root) override {
    post("broadcast", tensor, fmt::format("root {}", root));
    if (rank() != root) copy(tensor.mutable_data_ptr(), hub_->posted(root).data, tensor.nbytes());
    hub_->part(rank(), "broadcast");
    return finished_work();
  }

  void do_gather(at::Tensor input, at::Tensor output, int root) override {
    post("gather", input, fmt::format("root {}", root));
    if (rank() == root) {
      at::Tensor gathered = at::empty_like(output);
      for (int source = 0; source < size(); ++source)
        copy(offset(gathered.mutable_data_ptr(), source * input.numel(), input), hub_->posted(source).data, input.nbytes());
      hub_->part(rank(), "gather");
      output.copy_(gathered);
    } else {
      hub_->part(rank(), "gather");
    }
  }

  WorkPtr do_send(at::Tensor tensor, int to, int tag) override {
    const auto* bytes = static_cast<const std::byte*>(tensor.const_data_ptr());
    hub_->put(rank(), to, tag, std::vector<std::byte>(bytes, bytes + tensor.nbytes()));
    return finished_work();
  }

  // Receiving waits when it is asked to, not when it is posted: two ranks may both post before either sends.
  class Receive : public Work {
   public:
    Receive(std::shared_ptr<ThreadHub> hub, at::Tensor tensor, int from, int to, int tag)
        : hub_(std::move(hub)), tensor_(std::move(tensor)), from_(from), to_(to), tag_(tag) {}
    void wait() override {
      const std::vector<std::byte> message = hub_->take(from_, to_, tag_);
      if (message.size() != tensor_.nbytes())
        throw Error(ErrorCode::invalid_argument, "comm",
                    fmt::format("recv: rank {} sent {} bytes, the tensor has {}", from_, message.size(), tensor_.nbytes()),
                    "tensors of the same size and type");
      copy(tensor_.mutable_data_ptr(), message.data(), message.size());
    }

   private:
    std::shared_ptr<ThreadHub> hub_;
    at::Tensor tensor_;
    int from_, to_, tag_;
  };
  WorkPtr do_recv(at::Tensor tensor, int from, int tag) override {
    return std::make_unique<Receive>(hub_, std::move(tensor), from, rank(), tag);
  }

  void do_barrier() override {
    hub_->meet(rank(), {.operation = "barrier", .form = "no tensor"});
    hub_->part(rank(), "barrier");
  }

  void run(const PreparedPlan& prepared, const char* operation, at::Tensor& tensor, ReduceOp op) {
    post(operation, tensor, to_string(op));
    const plan::CollectivePlan& plan = prepared.plan;
    for (size_t round = 0; round < plan.rounds.size(); ++round) {
      const auto& receives = plan.rounds[round][rank()].receives;
      at::Tensor stage = prepared.staged[round] && !receives.empty() ? at::empty_like(tensor) : tensor;
      for (const plan::Transfer& receive : receives) fold_chunk(plan, receive, tensor, stage, op);
      const bool last = round + 1 == plan.rounds.size();
      next_round(operation, last && !prepared.staged[round]);
      if (!prepared.staged[round]) continue;
      for (const plan::Transfer& receive : receives) {
        const auto [first, end] = plan.chunk_range(receive.chunk, tensor.numel());
        copy(offset(tensor.mutable_data_ptr(), first, tensor), offset(stage.mutable_data_ptr(), first, tensor),
             (end - first) * tensor.element_size());
      }
      next_round(operation, last);
    }
  }
  void next_round(const char* operation, bool was_last) {
    if (was_last)
      hub_->part(rank(), operation);
    else
      hub_->arrive_and_wait(rank(), operation);
  }

  void fold_chunk(const plan::CollectivePlan& plan, const plan::Transfer& receive, const at::Tensor& tensor, at::Tensor& target,
                  ReduceOp op) {
    const auto [first, last] = plan.chunk_range(receive.chunk, tensor.numel());
    std::vector<const void*> sources;
    for (const int source : receive.sources) sources.push_back(hub_->posted(source).data);
    fold_range(to_plan(tensor.scalar_type()), fold_of(op), target.mutable_data_ptr(), sources, first, last);
  }

  void post(const char* operation, const at::Tensor& tensor, std::string_view detail) {
    hub_->meet(rank(), {operation, tensor.mutable_data_ptr(), tensor.numel(),
                        fmt::format("{}, {}", c10::toString(tensor.scalar_type()), detail), std::make_shared<at::Tensor>(tensor)});
  }
  static Fold fold_of(ReduceOp op) { return op == ReduceOp::max ? Fold::max : op == ReduceOp::min ? Fold::min : Fold::sum; }
  static void* offset(void* data, int64_t elements, const at::Tensor& like) {
    return static_cast<std::byte*>(data) + elements * static_cast<int64_t>(like.element_size());
  }
  static void copy(void* to, const void* from, size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }

  std::shared_ptr<ThreadHub> hub_;
  std::shared_ptr<const PreparedPlan> all_reduce_;
};

}  // namespace

std::vector<std::shared_ptr<Group>> make_thread_groups(int size, const ThreadGroupOptions& options) {
  if (size < 1) throw Error(ErrorCode::invalid_argument, "comm", fmt::format("a group of {} ranks", size), "at least 1");
  auto hub = std::make_shared<ThreadHub>(size, options.timeout);
  auto all_reduce = std::make_shared<const PreparedPlan>(plan::plan_collective(plan::Collective::all_reduce, options.all_reduce, size));
  std::vector<std::shared_ptr<Group>> groups;
  for (int rank = 0; rank < size; ++rank) groups.push_back(std::make_shared<ThreadGroup>(rank, hub, all_reduce));
  return groups;
}

}  // namespace trireme::comm
