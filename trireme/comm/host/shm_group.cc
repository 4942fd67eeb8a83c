#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <fmt/format.h>
#include <trireme/comm/blocks.h>
#include <trireme/comm/dtype.h>
#include <trireme/comm/host/mailboxes.h>
#include <trireme/comm/host/shared_tensors.h>
#include <trireme/comm/host/shm_direct.h>
#include <trireme/comm/host/shm_group.h>
#include <trireme/comm/host/shm_plans.h>
#include <trireme/comm/host/team_group.h>
#include <future>

namespace trireme::comm {
namespace {

using plan::Algorithm;
using plan::Collective;

// The plans that ShmDirect runs: every rank reads every other. On one host hierarchical is direct.
bool is_whole(const plan::CollectivePlan& plan) { return plan.algorithm == Algorithm::naive; }
bool is_by_parts(const plan::CollectivePlan& plan) {
  return plan.algorithm == Algorithm::direct || plan.algorithm == Algorithm::hierarchical;
}

class ShmGroup : public TeamGroup {
 public:
  ShmGroup(const std::shared_ptr<HostTeam>& team, std::shared_ptr<const PlanChoice> plans,
           const ShmGroupOptions& options)
      : TeamGroup(team, std::move(plans)),
        mail_(std::make_shared<Mailboxes>(team, options.timeout, options.reads_peers)),
        staging_(team),
        direct_(staging_),
        by_plan_(staging_),
        shared_(team) {}

  std::string_view backend() const override { return "shm"; }
  at::Tensor shared_tensor(at::IntArrayRef sizes, at::ScalarType type) override {
    return shared_.make(sizes, type);
  }

 private:
  WorkPtr do_all_reduce(at::Tensor tensor, ReduceOp op) override {
    if (size() == 1) return finished_work();
    const PreparedPlan& chosen = plans_->choose(Collective::all_reduce, bytes_of(tensor));
    const std::string how =
        fmt::format("{} by {}", to_string(op), plan::to_string(chosen.plan.algorithm));
    if (const auto place = shared_.find(tensor)) {
      reduce_shared(
          tensor, op, chosen, *place,
          intent_of("all_reduce", tensor,
                    fmt::format("{} in tensor {} at {}", how, place->number, place->offset)));
    } else if (is_whole(chosen.plan)) {
      direct_.reduce_whole(tensor, op, intent_of("all_reduce", tensor, how));
    } else if (is_by_parts(chosen.plan)) {
      direct_.reduce_by_parts(tensor, op, intent_of("all_reduce", tensor, how));
    } else {
      const ChunkRun all{cut_of(tensor).data, 0, chosen.plan.chunks};
      by_plan_.run_staged(chosen, all, all, to_plan(tensor.scalar_type()), fold_of(op),
                          intent_of("all_reduce", tensor, how));
      if (op == ReduceOp::mean) tensor.div_(size());
    }
    return finished_work();
  }

  void reduce_shared(const at::Tensor& tensor, ReduceOp op, const PreparedPlan& chosen,
                     const SharedPlace& place, const Intent& intent) {
    if (is_whole(chosen.plan) || is_by_parts(chosen.plan))
      return direct_.reduce_in_place(tensor, op, place.begin, intent);
    by_plan_.run_in_place(chosen, place.begin, to_plan(tensor.scalar_type()), fold_of(op), intent);
    if (op == ReduceOp::mean) tensor.div_(size());
  }

  WorkPtr do_reduce_scatter(at::Tensor input, at::Tensor output, ReduceOp op) override {
    const PreparedPlan& chosen = plans_->choose(Collective::reduce_scatter, bytes_of(input));
    const Intent meaning =
        intent_of("reduce_scatter", input,
                  fmt::format("{} by {}", to_string(op), plan::to_string(chosen.plan.algorithm)));
    if (chosen.plan.rounds.size() <= 1) {
      direct_.reduce_block(input, output, op, meaning);
      return finished_work();
    }
    // If the output is part of the input, later chunks would be overwritten before they
    // are laid out.
    const at::Tensor reduced = output.is_alias_of(input) ? at::empty_like(output) : output;
    by_plan_.run_staged(chosen, {cut_of(input).data, 0, size()},
                        {cut_of(reduced).data, rank(), rank() + 1}, to_plan(input.scalar_type()),
                        fold_of(op), meaning);
    if (!reduced.is_same(output)) output.copy_(reduced);
    if (op == ReduceOp::mean) output.div_(size());
    return finished_work();
  }

  WorkPtr do_all_gather(at::Tensor input, at::Tensor output) override {
    const PreparedPlan& chosen = plans_->choose(Collective::all_gather, bytes_of(output));
    const Intent meaning = intent_of("all_gather", output,
                                     fmt::format("by {}", plan::to_string(chosen.plan.algorithm)));
    if (chosen.plan.rounds.size() <= 1)
      direct_.collect(input, output, meaning);
    else
      by_plan_.run_staged(chosen, {cut_of(input).data, rank(), rank() + 1},
                          {cut_of(output).data, 0, size()}, to_plan(input.scalar_type()),
                          Fold::sum, meaning);
    return finished_work();
  }

  WorkPtr do_broadcast(at::Tensor tensor, int root) override {
    const PreparedPlan& chosen = plans_->choose(Collective::broadcast, bytes_of(tensor), root);
    const Intent meaning =
        intent_of("broadcast", tensor,
                  fmt::format("root {} by {}", root, plan::to_string(chosen.plan.algorithm)));
    if (chosen.plan.rounds.size() <= 1) {
      direct_.hand_out(tensor, root, meaning);
    } else {
      const ChunkRun all{cut_of(tensor).data, 0, chosen.plan.chunks}, none;
      const bool gives = rank() == root;
      by_plan_.run_staged(chosen, gives ? all : none, gives ? none : all,
                          to_plan(tensor.scalar_type()), Fold::sum, meaning);
    }
    return finished_work();
  }

  WorkPtr do_all_to_all(at::Tensor input, at::Tensor output, Splits splits) override {
    Intent meaning = intent_of("all_to_all", input,
                               splits.equal ? "equal blocks" : "blocks of their own sizes");
    meaning.elements = splits.total;
    direct_.exchange(input, output, splits, meaning);
    return finished_work();
  }

  void do_gather(at::Tensor input, at::Tensor output, int root) override {
    direct_.collect(input, rank() == root ? output : at::Tensor(),
                    intent_of("gather", input, fmt::format("root {}", root)));
  }

  WorkPtr do_send(at::Tensor tensor, int to, int tag) override {
    return mail_work(mail_, mail_->send(std::move(tensor), to, tag));
  }
  WorkPtr do_recv(at::Tensor tensor, int from, int tag) override {
    return mail_work(mail_, mail_->receive(std::move(tensor), from, tag));
  }

  std::shared_ptr<Mailboxes> mail_;
  ShmStaging staging_;
  ShmDirect direct_;
  ShmPlans by_plan_;
  SharedTensors shared_;
};

}  // namespace

std::vector<std::shared_ptr<Group>> make_shm_groups(
    const std::vector<std::shared_ptr<HostTeam>>& teams, const ShmGroupOptions& options) {
  const auto plans = std::make_shared<const PlanChoice>("shm", teams.at(0)->size(),
                                                        std::vector<int>{}, options.table);
  // Making a group waits for the other ranks, so each rank of this process needs a thread.
  std::vector<std::future<std::shared_ptr<Group>>> made;
  for (const auto& team : teams)
    made.push_back(std::async(std::launch::async, [&]() -> std::shared_ptr<Group> {
      return std::make_shared<ShmGroup>(team, plans, options);
    }));
  std::vector<std::shared_ptr<Group>> groups;
  for (auto& group : made) groups.push_back(group.get());
  return groups;
}

}  // namespace trireme::comm
