#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

#include <trireme/base/cores.h>
#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/comm/blocks.h>
#include <trireme/comm/dtype.h>
#include <trireme/comm/host/host_team.h>
#include <trireme/comm/splits.h>
#include <trireme/comm/threads/plan_runner.h>
#include <trireme/comm/threads/thread_group.h>
#include <trireme/comm/threads/thread_hub.h>
#include <trireme/plan/placement.h>
#include <cstring>
#include <thread>

namespace trireme::comm {
namespace {

// With 256 KiB, the piece of this rank and the piece that it reads fit together in the
// second-level cache. With more ranks than cores, barriers cost more than the cache saves.
constexpr int64_t kPieceBytes = 256 << 10, kPieceBytesWithoutCores = 4 << 20;

int64_t piece_bytes(int size) {
  return size <= usable_cores() ? kPieceBytes : kPieceBytesWithoutCores;
}

class ThreadGroup : public Group {
 public:
  ThreadGroup(int rank, std::shared_ptr<ThreadHub> hub, std::shared_ptr<HostTeam> team,
              std::shared_ptr<const PlanChoice> plans)
      : Group(rank, hub->size()),
        hub_(std::move(hub)),
        team_(std::move(team)),
        plans_(std::move(plans)),
        runner_(rank, piece_bytes(size())),
        tensors_(static_cast<size_t>(size())) {}

  std::string_view backend() const override { return "threads"; }
  void do_abort(const std::string& reason) override {
    hub_->abort(rank(), reason);
    team_->abort(reason);
  }
  std::shared_ptr<HostTeam> host_team() const override { return team_; }
  plan::Placement placement() const override {
    plan::Placement threads = plan::on_one_host(size(), "threads", plans_->table());
    threads.inside.front().hosts = plans_->hosts();
    return threads;
  }

 private:
  int64_t bytes_sent_in(plan::Collective collective, int64_t elements, int64_t element_bytes,
                        int root) const override {
    return plans_->bytes_sent(rank(), collective, elements, element_bytes, root);
  }

  WorkPtr do_all_reduce(at::Tensor tensor, ReduceOp op) override {
    if (size() == 1) return finished_work();
    post("all_reduce", tensor, to_string(op));
    run(plan::Collective::all_reduce, "all_reduce", tensor, op);
    if (op == ReduceOp::mean) tensor.div_(size());
    return finished_work();
  }

  WorkPtr do_reduce_scatter(at::Tensor input, at::Tensor output, ReduceOp op) override {
    const plan::Collective collective = plan::Collective::reduce_scatter;
    const PreparedPlan& chosen = plans_->choose(collective, bytes_of(input));
    if (chosen.plan.rounds.size() > 1) {
      at::Tensor work = input.clone();  // The rounds overwrite it.
      post("reduce_scatter", work, to_string(op));
      run(collective, "reduce_scatter", work, op);
      take_block(output, work, rank());
    } else {
      post("reduce_scatter", input, to_string(op));
      reduce_block(input, output, op);
    }
    if (op == ReduceOp::mean) output.div_(size());
    return finished_work();
  }

  // A plan of one round needs no copy of the input.
  void reduce_block(const at::Tensor& input, const at::Tensor& output, ReduceOp op) {
    const int64_t block = output.numel();
    std::vector<const void*> sources;
    for (int source = 0; source < size(); ++source)
      sources.push_back(offset(hub_->posted(source).data, rank() * block, input));
    // Otherwise others still read the memory that would be written.
    const bool apart = !output.is_alias_of(input);
    const at::Tensor reduced = apart ? output : at::empty_like(output);
    fold_range(to_plan(output.scalar_type()), fold_of(op), reduced.mutable_data_ptr(), sources, 0,
               block);
    hub_->part(rank(), "reduce_scatter");
    if (!apart) output.copy_(reduced);
  }

  WorkPtr do_all_gather(at::Tensor input, at::Tensor output) override {
    put_block(output, input, rank());
    post("all_gather", output, "all ranks");
    run(plan::Collective::all_gather, "all_gather", output, ReduceOp::sum);
    return finished_work();
  }

  WorkPtr do_broadcast(at::Tensor tensor, int root) override {
    post("broadcast", tensor, {}, root);
    run(plan::Collective::broadcast, "broadcast", tensor, ReduceOp::sum, root);
    return finished_work();
  }

  WorkPtr do_all_to_all(at::Tensor input, at::Tensor output, Splits splits) override {
    post("all_to_all", input, splits.total,
         splits.equal ? "blocks of equal size" : "blocks of their own sizes");
    for (int source = 0; source < size(); ++source) {
      const auto from = static_cast<size_t>(source);
      copy(offset(output.mutable_data_ptr(), splits.received_at[from], output),
           offset(hub_->posted(source).data, splits.at_source[from], input),
           static_cast<size_t>(splits.received[from]) * input.element_size());
    }
    hub_->part(rank(), "all_to_all");
    return finished_work();
  }

  void do_gather(at::Tensor input, at::Tensor output, int root) override {
    post("gather", input, {}, root);
    if (rank() == root) {
      at::Tensor gathered = at::empty_like(output);
      for (int source = 0; source < size(); ++source)
        copy(offset(gathered.mutable_data_ptr(), source * input.numel(), input),
             hub_->posted(source).data, input.nbytes());
      hub_->part(rank(), "gather");
      output.copy_(gathered);
    } else {
      hub_->part(rank(), "gather");
    }
  }

  class Message : public Work {
   public:
    Message(std::shared_ptr<ThreadHub> hub, ThreadMail::ParcelPtr parcel, bool receives)
        : hub_(std::move(hub)), parcel_(std::move(parcel)), receives_(receives) {}
    void wait() override {
      receives_ ? hub_->mail().finish_receive(parcel_) : hub_->mail().finish_send(parcel_);
    }
    bool wait_for(Milliseconds patience) override {
      return hub_->mail().wait_for(parcel_, patience);
    }

   private:
    std::shared_ptr<ThreadHub> hub_;
    ThreadMail::ParcelPtr parcel_;
    bool receives_;
  };
  WorkPtr do_send(at::Tensor tensor, int to, int tag) override {
    auto parcel = hub_->mail().send(std::move(tensor), rank(), to, tag);
    return std::make_unique<Message>(hub_, std::move(parcel), /*receives=*/false);
  }
  WorkPtr do_recv(at::Tensor tensor, int from, int tag) override {
    auto parcel = hub_->mail().receive(std::move(tensor), from, rank(), tag);
    return std::make_unique<Message>(hub_, std::move(parcel), /*receives=*/true);
  }

  void do_barrier() override {
    hub_->meet(rank(), {.operation = "barrier", .type = "no tensor"});
    hub_->part(rank(), "barrier");
  }

  // Runs the plan for the size of the posted tensor, in place.
  void run(plan::Collective collective, const char* operation, const at::Tensor& tensor,
           ReduceOp op, int root = 0) {
    for (int source = 0; source < size(); ++source)
      tensors_[static_cast<size_t>(source)] = hub_->posted(source).data;
    runner_.run(plans_->choose(collective, bytes_of(tensor), root), tensors_, tensor.numel(),
                to_plan(tensor.scalar_type()), fold_of(op),
                [this, operation] { hub_->arrive_and_wait(rank(), operation); });
    hub_->forget(rank());
  }

  void post(const char* operation, const at::Tensor& tensor, std::string_view detail,
            int root = -1) {
    post(operation, tensor, tensor.numel(), detail, root);
  }
  void post(const char* operation, const at::Tensor& tensor, int64_t elements,
            std::string_view detail, int root = -1) {
    hub_->meet(rank(), {.operation = operation,
                        .data = tensor.mutable_data_ptr(),
                        .elements = elements,
                        .type = c10::toString(tensor.scalar_type()),
                        .detail = detail,
                        .root = root,
                        .owner = std::make_shared<at::Tensor>(tensor)});
  }
  static int64_t bytes_of(const at::Tensor& tensor) {
    return static_cast<int64_t>(tensor.nbytes());
  }
  static void* offset(void* data, int64_t elements, const at::Tensor& like) {
    return static_cast<std::byte*>(data) + elements * static_cast<int64_t>(like.element_size());
  }
  static void copy(void* to, const void* from, size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }

  std::shared_ptr<ThreadHub> hub_;
  std::shared_ptr<HostTeam> team_;
  std::shared_ptr<const PlanChoice> plans_;
  PlanRunner runner_;
  std::vector<void*> tensors_;  // By rank, for the collective in progress.
};

}  // namespace

std::vector<std::shared_ptr<Group>> make_thread_groups(int size,
                                                       const ThreadGroupOptions& options) {
  if (size < 1)
    throw Error(ErrorCode::invalid_argument, "comm",
                fmt::format("a group cannot have {} ranks", size), "at least 1");
  auto hub = std::make_shared<ThreadHub>(size, options.timeout);
  const auto teams = make_thread_teams(size, options.timeout);
  const auto plans =
      std::make_shared<const PlanChoice>("threads", size, options.hosts, options.table);
  std::vector<std::shared_ptr<Group>> groups;
  for (int rank = 0; rank < size; ++rank)
    groups.push_back(std::make_shared<ThreadGroup>(rank, hub, teams[rank], plans));
  return groups;
}

}  // namespace trireme::comm
