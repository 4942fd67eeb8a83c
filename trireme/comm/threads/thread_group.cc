#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <fmt/format.h>
#include <trireme/base/cores.h>
#include <trireme/base/error.h>
#include <trireme/comm/blocks.h>
#include <trireme/comm/dtype.h>
#include <trireme/comm/host/team_group.h>
#include <trireme/comm/splits.h>
#include <trireme/comm/threads/plan_runner.h>
#include <trireme/comm/threads/thread_group.h>
#include <trireme/comm/threads/thread_mail.h>
#include <cstring>

namespace trireme::comm {
namespace {

// With 256 KiB, the piece of this rank and the piece that it reads fit together in the
// second-level cache. With more ranks than cores, barriers cost more than the cache saves.
constexpr int64_t kPieceBytes = 256 << 10, kPieceBytesWithoutCores = 4 << 20;

int64_t piece_bytes(int size) {
  return size <= usable_cores() ? kPieceBytes : kPieceBytesWithoutCores;
}

// The tensor of one rank in the collective in progress. The other ranks read it once they have
// met.
struct alignas(64) Posted {
  void* data = nullptr;
  at::Tensor owner;  // Keeps the memory for others that still read it when this rank gives up.
};

class ThreadGroup : public TeamGroup {
 public:
  // `posted`: [rank], the same for all ranks, and so is `mail`.
  ThreadGroup(std::shared_ptr<HostTeam> team, std::shared_ptr<const PlanChoice> plans,
              std::shared_ptr<std::vector<Posted>> posted, std::shared_ptr<ThreadMail> mail)
      : TeamGroup(std::move(team), std::move(plans)),
        posted_(std::move(posted)),
        mail_(std::move(mail)),
        runner_(rank(), piece_bytes(size())),
        tensors_(static_cast<size_t>(size())) {}

  std::string_view backend() const override { return "threads"; }

 private:
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
      sources.push_back(offset(data_of(source), rank() * block, input));
    // Otherwise others still read the memory that would be written.
    const bool apart = !output.is_alias_of(input);
    const at::Tensor reduced = apart ? output : at::empty_like(output);
    fold_range(to_plan(output.scalar_type()), fold_of(op), reduced.mutable_data_ptr(), sources, 0,
               block);
    part("reduce_scatter");
    if (!apart) output.copy_(reduced);
  }

  WorkPtr do_all_gather(at::Tensor input, at::Tensor output) override {
    put_block(output, input, rank());
    post("all_gather", output, "all ranks");
    run(plan::Collective::all_gather, "all_gather", output, ReduceOp::sum);
    return finished_work();
  }

  WorkPtr do_broadcast(at::Tensor tensor, int root) override {
    post("broadcast", tensor, fmt::format("root {}", root));
    run(plan::Collective::broadcast, "broadcast", tensor, ReduceOp::sum, root);
    return finished_work();
  }

  WorkPtr do_all_to_all(at::Tensor input, at::Tensor output, Splits splits) override {
    post("all_to_all", input, splits.equal ? "blocks of equal size" : "blocks of their own sizes",
         splits.total);
    for (int source = 0; source < size(); ++source) {
      const auto from = static_cast<size_t>(source);
      copy(offset(output.mutable_data_ptr(), splits.received_at[from], output),
           offset(data_of(source), splits.at_source[from], input),
           static_cast<size_t>(splits.received[from]) * input.element_size());
    }
    part("all_to_all");
    return finished_work();
  }

  void do_gather(at::Tensor input, at::Tensor output, int root) override {
    post("gather", input, fmt::format("root {}", root));
    if (rank() == root) {
      at::Tensor gathered = at::empty_like(output);
      for (int source = 0; source < size(); ++source)
        copy(offset(gathered.mutable_data_ptr(), source * input.numel(), input), data_of(source),
             input.nbytes());
      part("gather");
      output.copy_(gathered);
    } else {
      part("gather");
    }
  }

  WorkPtr do_send(at::Tensor tensor, int to, int tag) override {
    return mail_work(mail_, mail_->send(std::move(tensor), rank(), to, tag));
  }
  WorkPtr do_recv(at::Tensor tensor, int from, int tag) override {
    return mail_work(mail_, mail_->receive(std::move(tensor), from, rank(), tag));
  }

  // Runs the plan for the size of the posted tensor, in place.
  void run(plan::Collective collective, const char* operation, const at::Tensor& tensor,
           ReduceOp op, int root = 0) {
    for (int source = 0; source < size(); ++source)
      tensors_[static_cast<size_t>(source)] = data_of(source);
    runner_.run(plans_->choose(collective, bytes_of(tensor), root), tensors_, tensor.numel(),
                to_plan(tensor.scalar_type()), fold_of(op),
                [this, operation] { team_->barrier(operation); });
    mine().owner.reset();
  }

  // Begins a collective: shows this rank's tensor to the others, and waits for theirs.
  void post(const char* operation, const at::Tensor& tensor, std::string_view detail) {
    post(operation, tensor, detail, tensor.numel());
  }
  void post(const char* operation, const at::Tensor& tensor, std::string_view detail,
            int64_t elements) {
    team_->throw_if_ended();  // The others may still read what this rank showed them last.
    mine() = {tensor.mutable_data_ptr(), tensor};
    Intent intent = intent_of(operation, tensor, detail);
    intent.elements = elements;
    team_->meet(intent);
  }
  // Ends it: waits until all ranks have read the tensors.
  void part(const char* operation) {
    team_->barrier(operation);
    mine().owner.reset();
  }
  Posted& mine() { return (*posted_)[static_cast<size_t>(rank())]; }
  void* data_of(int source) const { return (*posted_)[static_cast<size_t>(source)].data; }
  static void* offset(void* data, int64_t elements, const at::Tensor& like) {
    return static_cast<std::byte*>(data) + elements * static_cast<int64_t>(like.element_size());
  }
  static void copy(void* to, const void* from, size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }

  std::shared_ptr<std::vector<Posted>> posted_;
  std::shared_ptr<ThreadMail> mail_;
  PlanRunner runner_;
  std::vector<void*> tensors_;  // By rank, for the collective in progress.
};

}  // namespace

std::vector<std::shared_ptr<Group>> make_thread_groups(int size,
                                                       const ThreadGroupOptions& options) {
  if (size < 1)
    throw Error(ErrorCode::invalid_argument, "comm",
                fmt::format("a group cannot have {} ranks", size), "at least 1");
  const auto teams = make_thread_teams(size, options.timeout);
  const auto plans =
      std::make_shared<const PlanChoice>("threads", size, options.hosts, options.table);
  const auto posted = std::make_shared<std::vector<Posted>>(static_cast<size_t>(size));
  const auto mail = std::make_shared<ThreadMail>(
      options.timeout, [team = teams.front()] { team->throw_if_ended(); });
  std::vector<std::shared_ptr<Group>> groups;
  for (const auto& team : teams)
    groups.push_back(std::make_shared<ThreadGroup>(team, plans, posted, mail));
  return groups;
}

}  // namespace trireme::comm
