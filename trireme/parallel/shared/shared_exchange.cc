#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/comm/dtype.h>
#include <trireme/parallel/gradients.h>
#include <trireme/parallel/shared/between_hosts.h>
#include <trireme/parallel/shared/gradient_sums.h>
#include <trireme/parallel/shared/shared_exchange.h>
#include <trireme/parallel/shared/shared_parameters.h>
#include <trireme/parallel/shared/step_table.h>
#include <trireme/parallel/shared/update_guard.h>
#include <trireme/parallel/step_facts.h>
#include <trireme/watch/phase_marks.h>
#include <array>
#include <cmath>
#include <optional>

namespace trireme {
namespace {

using plan::Slice;
using shared::StepTable;

class OneCopyOfAHost : public SharedExchange {
 public:
  OneCopyOfAHost(std::shared_ptr<Group> group, std::vector<NamedTensor> parameters,
                 std::unique_ptr<fused::FusedOptimizer> optimizer, plan::EnginePlan plan,
                 ExchangeOptions options)
      : group_(std::move(group)),
        team_(group_->host_team()),
        parameters_(std::move(parameters)),
        optimizer_(std::move(optimizer)),
        options_(std::move(options)),
        facts_(group_->size(), parameters_),
        plan_(std::move(plan)),
        copy_(team_, parameters_, *optimizer_, plan_, options_.offload, group_->rank()),
        table_(nullptr, 0, 0, 0),
        sums_(team_, copy_, plan_.layout.value(), table_,
              options_.offload.parameters ? options_.offload.folder : std::string()) {
    install_cpu_allocator();
    allocate();
    copy_.watch_contents();
    copy_.move_in();
    copy_.leave();
    release_kept_memory();  // No step would use the parameters' former storage again.
  }

  // A file has one place for each gradient, which moves there when it is complete.
  std::shared_ptr<AllocationSource> gradient_memory() override {
    return sums_.files() ? nullptr : sums_.slots();
  }
  void expect_last_backward(double gradient_scale) override {
    if (between_) between_->expect_last_backward(gradient_scale);
  }
  StateView state() override { return between_ ? between_->state() : StateView(); }
  bool is_torn() const override { return updating_; }

  StepOutcome exchange(const Contribution& mine, const Update&) override {
    const at::NoGradGuard no_grad;
    if (sums_.files()) sums_.files()->keep_all();
    if (between_) between_->backward_ended(mine.gradient_scale);
    post(mine);
    team_->meet({"gradients", count(), "shared"});
    adopt_new_state();
    const StepFacts::Summed facts =
        between_ ? reduce_between_hosts() : facts_.read(sum_of_facts());
    StepOutcome outcome = facts.outcome;
    updating_ = false;
    updated_elements_ = 0;
    if (outcome.nonfinite_ranks.empty() && !outcome.nonfinite_gradients && outcome.samples > 0) {
      find_used(facts.used, outcome);
      // Compressed gradients were scaled back before.
      const double too_large = between_ && between_->compresses() ? 1.0 : mine.gradient_scale;
      const double factor =
          1.0 / (too_large * (facts.weighted ? 1.0 : static_cast<double>(outcome.samples)));
      if (is_fused())
        outcome.updated = update_fused(factor);
      else
        outcome.updated = update_agreed(factor, outcome);
    }
    end_update();
    outcome.updated_elements = updated_elements_;
    if (between_) between_->end_step(outcome.updated);
    const auto rewritten = find_rewritten();
    finish(outcome.updated);
    if (rewritten) throw ErrorOfAllRanks(*rewritten);
    return outcome;
  }

  ParameterChange find_change() const override { return copy_.find_change(); }
  std::vector<Block> paged(const std::vector<Block>& blocks) override {
    return copy_.paged(blocks);
  }

  void sync_parameters() override {
    const at::NoGradGuard no_grad;
    team_->meet({"sync parameters", count(), "shared"});
    copy_.take_values();
    const watch::AmongSomeRanks among(team_->among_some_ranks());
    const watch::CollectiveMark mark("parameters of all hosts");
    shared::lead_host(*group_, *team_, [&](Group& leaders) {
      for (int p = 0; p < count(); ++p) leaders.broadcast(copy_.shared_view(p).view({-1}), 0);
    });
    team_->barrier("sync parameters");
    copy_.come_home();
    copy_.leave();
    team_->barrier("sync parameters");  // No rank writes before all have moved.
  }

 private:
  int count() const { return copy_.count(); }
  const plan::TensorSpec& spec(int p) const { return copy_.spec(p); }
  bool wants_norm() const { return options_.clip_norm > 0 || options_.want_norm; }
  bool is_fused() const {
    return !wants_norm() && !optimizer_->layerwise() && !between_ && !options_.accept;
  }

  void allocate() {
    if (group_->hosts() > 1) {
      between_ = std::make_unique<shared::BetweenHosts>(
          group_, parameters_, plan_.buckets, options_.compression,
          shared::BetweenHosts::Actions{
              [this](int p) { sums_.publish(p); },
              [this](int p) { sums_.reduce({p, 0, spec(p).elements()}); }});
      sums_.reduce_into(*between_);
    }
    if (options_.guard.wanted)
      guard_ = std::make_unique<shared::UpdateGuard>(
          team_, (1 + shared::kMostStates) * shared::kRun * sizeof(double), options_.guard);

    // The facts of all hosts arrive behind the table.
    const size_t table_bytes = StepTable::bytes_for(team_->size(), count(), facts_.size());
    const size_t whole = table_bytes + static_cast<size_t>(facts_.size()) * sizeof(double);
    table_memory_ = team_->allocate(whole, whole, "facts of a step");
    table_ = StepTable(table_memory_->data(), team_->size(), count(), facts_.size());
    all_facts_ = at::from_blob(table_memory_->data() + table_bytes, {facts_.size()},
                               at::TensorOptions().dtype(at::kDouble));
  }

  // Runs before the meeting. Writes what the other ranks must know, and checks that user code did
  // not change the parameters.
  void post(Contribution mine) {
    if (guard_) guard_->begin_step();
    if (mine.change.change == Change::none) mine.change = copy_.find_change_of_step();
    const bool is_unchanged = mine.change.change == Change::none;
    StepTable::Head& head = table_.head(team_->rank());
    head = {0, StepTable::kNone, 0, between_ ? between_->buckets_in_backward() : 0};
    std::vector<bool> has(static_cast<size_t>(count()), false);
    for (int p = 0; p < count(); ++p) {
      const bool is_published = between_ && between_->is_published(p);
      if (!is_published) table_.gradients(team_->rank())[p] = StepTable::kNoGradient;
      if (!optimizer_->state_is_placed(p)) head.state_is_new = 1;
      const bool has_gradient =
          is_unchanged && spec(p).trainable && copy_.tensor(p).grad().defined();
      if (has_gradient && !is_published) sums_.publish(p);
      has[static_cast<size_t>(p)] = has_gradient || is_published;
    }
    facts_.write(mine, group_->rank(), has, /*gradients_are_finite=*/true,
                 facts_of(team_->rank()));
  }

  at::Tensor facts_of(int rank) const {
    return at::from_blob(table_.facts(rank), {facts_.size()},
                         at::TensorOptions().dtype(at::kDouble));
  }

  // Returns a write that the update found on some rank. This happens only on a single host.
  std::optional<Error> find_rewritten() const {
    for (int rank = 0; rank < team_->size(); ++rank)
      if (const int64_t p = table_.head(rank).rewritten; p != StepTable::kNone)
        return change_error(rank, {Change::rewritten, static_cast<int>(p)}, names_of(parameters_));
    return std::nullopt;
  }

  // After load_state() some rank's optimizer has its own state.
  void adopt_new_state() {
    bool is_new = false;
    for (int rank = 0; rank < team_->size(); ++rank)
      is_new = is_new || table_.head(rank).state_is_new != 0;
    if (is_new) copy_.adopt_state();
  }

  at::Tensor sum_of_facts() const {
    at::Tensor sum = facts_of(0).clone();
    for (int rank = 1; rank < team_->size(); ++rank) sum += facts_of(rank);
    return sum;
  }

  void find_used(const std::vector<bool>& used, StepOutcome& outcome) {
    used_.clear();
    for (int p = 0; p < count(); ++p) {
      if (!spec(p).trainable) continue;
      if (used[static_cast<size_t>(p)])
        used_.push_back(p);
      else
        outcome.unused.push_back(p);
    }
    is_used_ = used;
  }

  bool update_fused(double factor) {
    begin_update();
    from_all_ranks_ = true;
    update_shards(factor);
    return true;
  }

  void begin_update() {
    watch_is_old_ = watch_is_old_ || optimizer_->has_new_groups();
    updated_ = optimizer_->begin_step(used_);
    if (std::exchange(watch_is_old_, false)) {
      copy_.watch_contents();
      copy_.remember_contents();
    }
    is_updated_.assign(static_cast<size_t>(count()), false);
    for (const int p : updated_) is_updated_[static_cast<size_t>(p)] = true;
  }

  // Before this call nothing of this step has been written to parameters and state.
  void update_shards(double factor) {
    watch::mark_phase(Phase::optimizer);
    update_factor_ = factor;
    updating_ = guard_ != nullptr;
    update_shard(team_->rank());
  }

  void update_shard(int rank) {
    const auto sources_for = [this](int p, std::vector<const std::byte*>& sources) {
      if (from_all_ranks_)
        sums_.sources_of(p, sources);
      else
        sources = {sums_.reduced(p)};
    };
    int64_t run = 0;
    const bool watches = rank == team_->rank() && !between_;
    sums_.for_runs(copy_.shard_of(rank), is_updated_, update_factor_, sources_for,
                   [&](const fused::Range& range, const auto* gradient) {
                     const auto update = [&] {
                       const Slice slice{range.parameter, range.from, range.from + range.count};
                       if (watches && !copy_.contents().is_as_left(slice))
                         table_.head(rank).rewritten = range.parameter;
                       optimizer_->update(range, gradient);
                       if (rank == team_->rank()) copy_.contents().remember(slice);
                       updated_elements_ += range.count;
                       copy_.used(range);
                     };
                     if (!guard_) return update();
                     std::array<std::span<std::byte>, 1 + shared::kMostStates> regions;
                     guard_->run(rank, run++, copy_.written_by(range, regions), update);
                   });
    if (guard_) guard_->end_shard(rank);
  }

  // Either all ranks passed the last meeting before the update, or none did. A rank that is lost
  // later has left its gradients and stamps in shared memory. The step is committed without that
  // rank, and the next meeting reports it.
  void end_update() {
    try {
      team_->barrier("update");
    } catch (const Error&) {
      if (!updating_ || !guard_->finish_for_the_lost([this](int rank) { update_shard(rank); }))
        throw;
    }
    updating_ = false;
  }

  // Updates when something about the whole gradient must be known first, or when other hosts have
  // a part in it. Returns whether there was an update.
  bool update_agreed(double factor, StepOutcome& outcome) {
    if (!between_) reduce_left(0);
    if (wants_norm()) {
      outcome.gradient_norm = agree_on_norm(factor);
      outcome.nonfinite_gradients = !std::isfinite(outcome.gradient_norm);
      if (outcome.nonfinite_gradients) return false;
    } else if (guard_ && !between_) {
      // A rank that takes over a shard needs the reduced gradient.
      team_->barrier("reduced");
    }
    if (options_.accept && !options_.accept(outcome.loss, outcome.gradient_norm)) return false;
    factor *= clip_factor(outcome.gradient_norm, options_.clip_norm);
    // A step that overflowed must not reach begin_step(), because it does not count for the
    // optimizer either.
    begin_update();
    if (optimizer_->layerwise()) agree_on_layers(factor);
    from_all_ranks_ = false;
    update_shards(factor);
    return true;
  }

  // Reduces this rank's shard of the buckets that were not reduced in backward. Each rank
  // completed `in_backward` buckets there.
  void reduce_left(int in_backward) {
    for (const Slice& slice : copy_.shard())
      if (between_ ? between_->is_left(slice.parameter, in_backward)
                   : is_used_[static_cast<size_t>(slice.parameter)])
        sums_.reduce(slice);
  }

  // Gradients travel before it is known whether the step counts: some were sent while other ranks
  // still ran backward.
  StepFacts::Summed reduce_between_hosts() {
    int64_t in_backward = table_.head(0).buckets_in_backward;
    for (int rank = 1; rank < team_->size(); ++rank)
      in_backward = std::min(in_backward, table_.head(rank).buckets_in_backward);
    reduce_left(static_cast<int>(in_backward));
    // All hosts must know of a rewritten parameter in this step, before the update.
    if (const int p = copy_.contents().look(); p >= 0)
      facts_.report_change(facts_of(team_->rank()), group_->rank(), {Change::rewritten, p});
    team_->barrier("reduced on this host");
    const watch::AmongSomeRanks among(team_->among_some_ranks());
    const watch::CollectiveMark mark("reduced on all hosts");
    shared::lead_host(*group_, *team_, [&](Group& leaders) {
      all_facts_.copy_(sum_of_facts());
      between_->all_reduce(leaders, all_facts_, [&] { facts_.report_bad_gradients(all_facts_); });
    });
    between_->next_step();
    team_->barrier("reduced on all hosts");
    return facts_.read(all_facts_.clone());
  }

  double agree_on_norm(double factor) {
    double mine = 0;
    sums_.for_reduced(is_used_, 1.0, [&](const fused::Range& range, const auto* gradient) {
      mine += fused::sum_of_squares(gradient, range.count);
    });
    table_.head(team_->rank()).squares = mine;
    team_->barrier("gradient norm");
    double sum = 0;
    for (int rank = 0; rank < team_->size(); ++rank) sum += table_.head(rank).squares;
    return std::sqrt(sum) * factor;
  }

  void agree_on_layers(double factor) {
    fused::Squares* const mine = table_.squares(team_->rank());
    for (int p = 0; p < count(); ++p) mine[p] = {};
    sums_.for_reduced(is_updated_, factor, [&](const fused::Range& range, const auto* gradient) {
      const fused::Squares part = optimizer_->measure(range, gradient);
      mine[range.parameter].parameter += part.parameter;
      mine[range.parameter].direction += part.direction;
      copy_.used(range);
    });
    team_->barrier("layer norms");
    for (const int p : updated_) {
      fused::Squares sum;
      for (int rank = 0; rank < team_->size(); ++rank) {
        sum.parameter += table_.squares(rank)[p].parameter;
        sum.direction += table_.squares(rank)[p].direction;
      }
      optimizer_->set_norms(p, sum);
    }
  }

  void finish(bool updated) {
    // An undefined .grad lets the next backward leave its gradients where it makes them, and
    // nothing has to be zeroed.
    for (int p = 0; p < count(); ++p) copy_.tensor(p).mutable_grad().reset();
    sums_.slots()->end_step();
    if (sums_.files()) sums_.files()->leave();
    table_.next_step();
    copy_.leave();
    if (!updated) return;
    // Autograd does not see a write through another tensor.
    for (const int p : updated_) copy_.tensor(p).unsafeGetTensorImpl()->bump_version();
    copy_.remember_versions();
  }

  std::shared_ptr<Group> group_;
  std::shared_ptr<comm::HostTeam> team_;
  std::vector<NamedTensor> parameters_;
  std::unique_ptr<fused::FusedOptimizer> optimizer_;
  ExchangeOptions options_;
  StepFacts facts_;
  const plan::EnginePlan plan_;
  shared::SharedParameters copy_;
  std::shared_ptr<net::SharedMemory> table_memory_;
  StepTable table_;
  shared::GradientSums sums_;
  at::Tensor all_facts_;
  std::unique_ptr<shared::BetweenHosts> between_;  // Null if there is no other host.
  std::unique_ptr<shared::UpdateGuard> guard_;     // Null if a lost rank ends the job.
  bool watch_is_old_ = false;  // The optimizer's groups are no longer those of the watches.
  // The state of the current step follows.
  int64_t updated_elements_ = 0;     // By this rank.
  std::vector<int> used_, updated_;  // updated_ is the part of used_ that the optimizer has.
  std::vector<bool> is_used_, is_updated_;
  double update_factor_ = 1;     // The factor for gradients in the update.
  bool from_all_ranks_ = false;  // The update itself adds up all ranks' gradients.
  // Some rank may have written, and it is not known that all have.
  bool updating_ = false;
};

}  // namespace

std::unique_ptr<SharedExchange> make_shared_exchange(
    std::shared_ptr<Group> group, std::vector<NamedTensor> parameters,
    std::unique_ptr<fused::FusedOptimizer> optimizer, plan::EnginePlan plan,
    ExchangeOptions options) {
  return std::make_unique<OneCopyOfAHost>(std::move(group), std::move(parameters),
                                          std::move(optimizer), std::move(plan),
                                          std::move(options));
}

}  // namespace trireme
