#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>

#include <trireme/base/error.h>
#include <trireme/comm/dtype.h>
#include <trireme/comm/host/host_team.h>
#include <trireme/parallel/compression/kernels.h>
#include <trireme/parallel/fused/kernels.h>
#include <trireme/parallel/gradients.h>
#include <trireme/parallel/shared/backward_slots.h>
#include <trireme/parallel/shared/gradient_slots.h>
#include <trireme/parallel/shared/host_means.h>
#include <trireme/parallel/shared/shared_parameters.h>
#include <trireme/parallel/shared/step_table.h>
#include <trireme/parallel/step_facts.h>
#include <algorithm>
#include <cstring>

namespace trireme {
namespace {

using plan::Slice;
using shared::StepTable;

class HostMeans : public Exchange {
 public:
  HostMeans(std::shared_ptr<Group> group, std::vector<NamedTensor> parameters,
            plan::EnginePlan plan, std::function<double()> weight)
      : group_(std::move(group)),
        team_(group_->host_team()),
        parameters_(std::move(parameters)),
        plan_(std::move(plan)),
        weight_(std::move(weight)),
        facts_(group_->size(), parameters_),
        shards_(plan::plan_shards(plan_.parameters, *plan_.layout, plan_.placement.hosts)),
        table_(nullptr, 0, 0, 0) {
    install_cpu_allocator();
    const size_t ranks = static_cast<size_t>(team_->size()),
                 rank = static_cast<size_t>(team_->rank()),
                 one = std::max<size_t>(64, plan_.layout->gradient_bytes);
    // The room behind the slots is for gradients whose slot is taken.
    memory_ = team_->allocate(2 * ranks * one, ranks * one, "gradients");
    std::vector<size_t> bytes;
    for (const plan::TensorSpec& spec : plan_.parameters)
      bytes.push_back(spec.trainable ? static_cast<size_t>(spec.bytes()) : 0);
    slots_ = std::make_shared<shared::GradientSlots>(memory_, rank * one, (ranks + rank) * one,
                                                     plan_.layout->gradients, std::move(bytes));
    const size_t table_bytes = StepTable::bytes_for(team_->size(), count(), facts_.size());
    table_memory_ = team_->allocate(table_bytes, table_bytes, "facts of a step");
    table_ = StepTable(table_memory_->data(), team_->size(), count(), facts_.size());
    shared::offer_to_backward(slots_);
  }

  StepOutcome exchange(const Contribution&, const Update&) override {
    throw Error(ErrorCode::internal, "parallel", "an exchange that leaves means has no update");
  }

  StepOutcome leave_means(const Contribution& mine) override {
    const at::NoGradGuard no_grad;
    const AllocationScope elsewhere(nullptr);  // It runs at the end of backward.
    separate_gradients(parameters_);
    post(mine);
    team_->meet({"gradients", count(), "means"});
    const StepFacts::Summed facts = facts_.read(sum_of_facts());
    StepOutcome outcome = facts.outcome;
    outcome.updated = outcome.nonfinite_ranks.empty() && outcome.samples > 0;
    if (outcome.updated)
      add_up(facts.used, facts.weighted ? static_cast<double>(mine.total_samples) /
                                              static_cast<double>(outcome.samples)
                                        : 1.0);
    team_->barrier("means");
    if (outcome.updated) {
      find_nonfinite(outcome);
      take(facts.used, outcome);
    }
    slots_->end_step();
    table_.next_step();
    return outcome;
  }

 private:
  int count() const { return static_cast<int>(parameters_.size()); }
  const plan::TensorSpec& spec(int p) const { return plan_.parameters[static_cast<size_t>(p)]; }
  const at::Tensor& tensor(int p) const { return parameters_[static_cast<size_t>(p)].tensor; }
  at::Tensor facts_of(int rank) const {
    return at::from_blob(table_.facts(rank), {facts_.size()},
                         at::TensorOptions().dtype(at::kDouble));
  }

  // Runs before the meeting: the other ranks learn where this rank's gradients are.
  void post(const Contribution& mine) {
    slots_->end_step();  // A step that ended by an error has left its marks.
    const int rank = team_->rank();
    table_.head(rank).weight = weight_();
    table_.head(rank).nonfinite = StepTable::kNone;
    std::vector<bool> has(static_cast<size_t>(count()), false);
    for (int p = 0; p < count(); ++p) {
      const at::Tensor& gradient = tensor(p).grad();
      const bool is_there = mine.change.change == Change::none && spec(p).trainable &&
                            gradient.defined() && gradient.numel() == spec(p).elements();
      has[static_cast<size_t>(p)] = is_there;
      table_.gradients(rank)[p] = is_there ? publish(p, gradient) : publish_empty(p);
    }
    facts_.write(mine, rank, has, /*gradients_are_finite=*/true, facts_of(rank));
  }

  int64_t publish(int p, const at::Tensor& gradient) {
    if (gradient.numel() == 0) return 0;
    // What is a function of the parameters itself (create_graph) may be kept for its derivative.
    at::Tensor whole = gradient.requires_grad() ? gradient.clone() : gradient;
    if (whole.is_sparse()) whole = whole.to_dense();
    whole = whole.to(to_torch(spec(p).dtype)).contiguous();
    return static_cast<int64_t>(slots_->publish(p, whole.const_data_ptr()));
  }
  int64_t publish_empty(int p) {
    if (!spec(p).trainable || spec(p).elements() == 0) return StepTable::kNoGradient;
    return StepTable::empty_at(static_cast<int64_t>(slots_->publish_empty(p)));
  }
  static int64_t place_in(int64_t entry) {
    return entry < StepTable::kNoGradient ? StepTable::empty_at(entry) : entry;
  }

  at::Tensor sum_of_facts() const {
    at::Tensor sum = facts_of(0).clone();
    for (int rank = 1; rank < team_->size(); ++rank) sum += facts_of(rank);
    return sum;
  }

  void add_up(const std::vector<bool>& used, double factor) const {
    for (const Slice& slice : shards_.ranks[static_cast<size_t>(team_->rank())])
      if (!used[static_cast<size_t>(slice.parameter)])
        continue;
      else if (spec(slice.parameter).dtype == plan::DType::float64)
        add_up_slice<double>(slice, factor);
      else
        add_up_slice<float>(slice, factor);
  }

  // Sums pieces that stay in cache, and writes each to all ranks.
  template <typename T>
  void add_up_slice(const Slice& slice, double factor) const {
    std::vector<const T*> sources;
    std::vector<double> weights;
    std::vector<int> ranks;  // Those of the sources.
    std::vector<T*> targets;
    for (int rank = 0; rank < team_->size(); ++rank) {
      const int64_t entry = table_.gradients(rank)[slice.parameter];
      targets.push_back(reinterpret_cast<T*>(memory_->data() + place_in(entry)) + slice.from);
      if (entry < 0) continue;
      sources.push_back(targets.back());
      weights.push_back(table_.head(rank).weight * factor);
      ranks.push_back(rank);
    }
    T sum[shared::kRun];
    for (int64_t from = 0; from < slice.to - slice.from; from += shared::kRun) {
      const int64_t elements = std::min(shared::kRun, slice.to - slice.from - from);
      fused::sum_weighted(std::span<const T* const>(sources), std::span<const double>(weights),
                          sum, elements);
      if (!compression::is_finite(sum, elements)) {
        const auto bad = std::ranges::find_if_not(
            sources, [&](const T* source) { return compression::is_finite(source, elements); });
        const bool is_overflow = bad == sources.end();  // Of the sum: all ranks have a part in it.
        report_nonfinite(slice.parameter,
                         ranks[is_overflow ? 0 : static_cast<size_t>(bad - sources.begin())]);
      }
      for (T*& target : targets) {
        std::memcpy(target, sum, static_cast<size_t>(elements) * sizeof(T));
        target += elements;
      }
      for (const T*& source : sources) source += elements;
    }
  }

  void report_nonfinite(int parameter, int rank) const {
    StepTable::Head& head = table_.head(team_->rank());
    if (head.nonfinite != StepTable::kNone) return;
    head.nonfinite = parameter;
    head.nonfinite_rank = rank;
  }
  // Runs when all ranks have added up.
  void find_nonfinite(StepOutcome& outcome) const {
    for (int rank = 0; rank < team_->size(); ++rank) {
      const StepTable::Head& head = table_.head(rank);
      if (head.nonfinite == StepTable::kNone) continue;
      outcome.nonfinite_ranks = {static_cast<int>(head.nonfinite_rank)};
      outcome.nonfinite_parameter = static_cast<int>(head.nonfinite);
      return;
    }
  }

  // Makes each .grad the mean, which lies there already for most of them.
  void take(const std::vector<bool>& used, StepOutcome& outcome) const {
    for (int p = 0; p < count(); ++p) {
      if (!spec(p).trainable) continue;
      at::Tensor& gradient = tensor(p).mutable_grad();
      if (!used[static_cast<size_t>(p)]) {
        gradient.reset();
        outcome.unused.push_back(p);
        continue;
      }
      const bool is_own = gradient.defined() && !gradient.is_sparse() && !gradient.requires_grad();
      if (!is_own) gradient = at::empty_like(tensor(p), at::MemoryFormat::Contiguous);
      if (gradient.numel() == 0) continue;
      const std::byte* const place =
          memory_->data() + place_in(table_.gradients(team_->rank())[p]);
      if (gradient.const_data_ptr() == place) continue;
      gradient.copy_(at::from_blob(const_cast<std::byte*>(place), gradient.sizes(),
                                   at::TensorOptions().dtype(to_torch(spec(p).dtype))));
    }
  }

  std::shared_ptr<Group> group_;
  std::shared_ptr<comm::HostTeam> team_;
  std::vector<NamedTensor> parameters_;
  plan::EnginePlan plan_;
  std::function<double()> weight_;
  StepFacts facts_;
  plan::ShardPlan shards_;  // The elements that each rank adds up.
  std::shared_ptr<net::SharedMemory> memory_, table_memory_;
  std::shared_ptr<shared::GradientSlots> slots_;
  StepTable table_;
};

}  // namespace

std::unique_ptr<Exchange> make_host_means(std::shared_ptr<Group> group,
                                          std::vector<NamedTensor> parameters,
                                          plan::EnginePlan plan, std::function<double()> weight) {
  return std::make_unique<HostMeans>(std::move(group), std::move(parameters), std::move(plan),
                                     std::move(weight));
}

}  // namespace trireme
