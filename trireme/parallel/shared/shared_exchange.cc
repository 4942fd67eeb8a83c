#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/comm/dtype.h>
#include <trireme/launch/phase_marks.h>
#include <trireme/parallel/gradients.h>
#include <trireme/parallel/shared/between_hosts.h>
#include <trireme/parallel/shared/content_watch.h>
#include <trireme/parallel/shared/gradient_slots.h>
#include <trireme/parallel/shared/shared_exchange.h>
#include <trireme/parallel/shared/step_table.h>
#include <trireme/parallel/shared/update_guard.h>
#include <trireme/parallel/step_facts.h>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>

namespace trireme {
namespace {

using plan::Slice;
using shared::StepTable;

// The elements that are reduced and updated at once. With momentum, a run's values fill a quarter
// of a small second-level cache, and the reduced gradient stays in the first-level cache.
constexpr int64_t kRun = 4096;
constexpr int kMostStates = 3;  // No fused optimizer has more state tensors.
constexpr int kTurns = 8;       // See content_watch.h.

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
        layout_(plan_.layout.value()),
        team_ranks_(plan_.shards.teams[static_cast<size_t>(
            plan_.placement.hosts[static_cast<size_t>(group_->rank())])]),
        table_(nullptr, 0, 0, 0) {
    install_cpu_allocator();
    allocate();
    watch_contents();
    move_in();
    release_kept_memory();  // No step would use the parameters' former storage again.
  }

  std::shared_ptr<AllocationSource> gradient_memory() override { return slots_; }
  void expect_last_backward(double gradient_scale) override {
    if (between_) between_->expect_last_backward(gradient_scale);
  }
  StateView state() override { return between_ ? between_->state() : StateView(); }
  bool is_torn() const override { return updating_; }

  StepOutcome exchange(const Contribution& mine, const Update&) override {
    const at::NoGradGuard no_grad;
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
    if (rewritten) throw *rewritten;
    return outcome;
  }

  ParameterChange find_change() const override {
    if (const ParameterChange found = find_visible_change(); found.change != Change::none)
      return found;
    for (const auto* const watch : {contents_.get(), resting_contents_.get()})
      if (const int p = watch->look(); p >= 0) return {Change::rewritten, p};
    return {};
  }

  void sync_parameters() override {
    const at::NoGradGuard no_grad;
    team_->meet({"sync parameters", count(), "shared"});
    if (team_->rank() == 0)
      for (int p = 0; p < count(); ++p)  // Loading may have given a parameter its own storage.
        if (!is_at_home(p)) shared_view(p).copy_(parameter(p));
    const launch::CollectiveMark mark("parameters of all hosts");
    lead([&](Group& leaders) {
      for (int p = 0; p < count(); ++p) leaders.broadcast(shared_view(p).view({-1}), 0);
    });
    team_->barrier("sync parameters");
    for (int p = 0; p < count(); ++p)
      if (!is_at_home(p)) parameter(p).set_data(shared_view(p));
    remember_versions();
    remember_contents();
    team_->barrier("sync parameters");  // No rank writes before all have moved.
  }

 private:
  int count() const { return static_cast<int>(parameters_.size()); }
  at::Tensor& parameter(int p) { return parameters_[static_cast<size_t>(p)].tensor; }
  const at::Tensor& parameter(int p) const { return parameters_[static_cast<size_t>(p)].tensor; }
  bool wants_norm() const { return options_.clip_norm > 0 || options_.want_norm; }
  bool is_fused() const {
    return !wants_norm() && !optimizer_->layerwise() && !between_ && !options_.accept;
  }

  // A parameter as it was when the engine was made.
  const plan::TensorSpec& spec(int p) const { return plan_.parameters[static_cast<size_t>(p)]; }

  void allocate() {
    model_ = team_->allocate(std::max<size_t>(64, layout_.model_bytes), layout_.model_bytes,
                             "parameters and optimizer state");
    // The slots of all ranks come first. The room behind them is for copies of gradients that lie
    // elsewhere; it is reserved when it is needed.
    const size_t ranks = static_cast<size_t>(team_->size()),
                 one = std::max<size_t>(64, layout_.gradient_bytes);
    gradients_ = team_->allocate(2 * ranks * one, ranks * one, "gradients");
    if (group_->hosts() > 1)
      between_ = std::make_unique<shared::BetweenHosts>(
          group_, parameters_, plan_.buckets, options_.compression,
          shared::BetweenHosts::Actions{[this](int p) { publish(p); },
                                        [this](int p) { reduce({p, 0, spec(p).elements()}); }});
    std::vector<size_t> bytes;
    for (const plan::TensorSpec& spec : plan_.parameters)
      bytes.push_back(spec.trainable ? static_cast<size_t>(spec.bytes()) : 0);
    const size_t rank = static_cast<size_t>(team_->rank());
    slots_ = std::make_shared<shared::GradientSlots>(gradients_, rank * one, (ranks + rank) * one,
                                                     layout_.gradients, bytes);

    if (options_.guard.wanted)
      guard_ = std::make_unique<shared::UpdateGuard>(
          team_, (1 + kMostStates) * kRun * sizeof(double), options_.guard);

    // The facts of all hosts arrive behind the table.
    const size_t table_bytes = StepTable::bytes_for(team_->size(), count(), facts_.size());
    const size_t whole = table_bytes + static_cast<size_t>(facts_.size()) * sizeof(double);
    table_memory_ = team_->allocate(whole, whole, "facts of a step");
    table_ = StepTable(table_memory_->data(), team_->size(), count(), facts_.size());
    all_facts_ = at::from_blob(table_memory_->data() + table_bytes, {facts_.size()},
                               at::TensorOptions().dtype(at::kDouble));
  }

  at::Tensor view(const std::shared_ptr<net::SharedMemory>& memory, size_t offset,
                  const at::Tensor& like) const {
    return at::from_blob(
        memory->data() + offset, like.sizes(), [memory](void*) {},
        like.options().requires_grad(false));
  }
  at::Tensor shared_view(int p) const {
    return view(model_, layout_.parameters[static_cast<size_t>(p)], parameter(p));
  }

  // The team's first rank brings the values. Then the modules and optimizers of all ranks use the
  // shared values.
  void move_in() {
    const at::NoGradGuard no_grad;
    if (team_->rank() == 0)
      for (int p = 0; p < count(); ++p) shared_view(p).copy_(parameter(p));
    place_state(team_->rank() == 0);
    team_->barrier("shared parameters");
    for (int p = 0; p < count(); ++p) parameter(p).set_data(shared_view(p));
    remember_versions();
    remember_contents();
    team_->barrier("shared parameters");
  }

  void place_state(bool copy) {
    for (int p = 0; p < count(); ++p) {
      std::vector<at::Tensor> places;
      for (const size_t offset : layout_.states[static_cast<size_t>(p)])
        places.push_back(view(model_, offset, parameter(p)));
      optimizer_->place_state(p, std::move(places), copy);
    }
  }

  // This rank watches its shard of the parameters that the optimizer has, and its part of all
  // others.
  void watch_contents() {
    const auto bytes_of = [this](const Slice& run) {
      const auto element = static_cast<size_t>(plan::bytes_of(spec(run.parameter).dtype));
      return std::span<const std::byte>(
          model_->data() + layout_.parameters[static_cast<size_t>(run.parameter)] +
              static_cast<size_t>(run.from) * element,
          static_cast<size_t>(run.to - run.from) * element);
    };
    const auto may_be_updated = [this](int p) { return spec(p).trainable && optimizer_->has(p); };
    std::vector<Slice> updated, resting;
    for (const Slice& slice : shard())
      if (may_be_updated(slice.parameter)) updated.push_back(slice);
    for (int p = 0; p < count(); ++p) {
      const int64_t elements = may_be_updated(p) ? 0 : spec(p).elements();
      const int64_t from = elements * team_->rank() / team_->size(),
                    to = elements * (team_->rank() + 1) / team_->size();
      if (from < to) resting.push_back({p, from, to});
    }
    contents_ = std::make_unique<shared::ContentWatch>(updated, kRun, kTurns, bytes_of);
    resting_contents_ = std::make_unique<shared::ContentWatch>(resting, kRun, 1, bytes_of);
  }

  void remember_contents() {
    contents_->remember_all();
    resting_contents_->remember_all();
  }

  void remember_versions() {
    versions_.clear();
    for (int p = 0; p < count(); ++p)
      versions_.push_back(static_cast<int64_t>(parameter(p)._version()));
  }

  // Runs before the meeting. Writes what the other ranks must know, and checks that user code did
  // not change the parameters.
  void post(Contribution mine) {
    if (guard_) guard_->begin_step();
    if (mine.change.change == Change::none) mine.change = find_change_of_step();
    const bool is_unchanged = mine.change.change == Change::none;
    StepTable::Head& head = table_.head(team_->rank());
    head = {0, StepTable::kNone, 0, between_ ? between_->buckets_in_backward() : 0};
    std::vector<bool> has(static_cast<size_t>(count()), false);
    for (int p = 0; p < count(); ++p) {
      const bool is_published = between_ && between_->is_published(p);
      if (!is_published) table_.gradients(team_->rank())[p] = StepTable::kNoGradient;
      if (!optimizer_->state_is_placed(p)) head.state_is_new = 1;
      const bool has_gradient = is_unchanged && spec(p).trainable && parameter(p).grad().defined();
      if (has_gradient && !is_published) publish(p);
      has[static_cast<size_t>(p)] = has_gradient || is_published;
    }
    facts_.write(mine, group_->rank(), has, /*gradients_are_finite=*/true,
                 facts_of(team_->rank()));
  }

  at::Tensor facts_of(int rank) const {
    return at::from_blob(table_.facts(rank), {facts_.size()},
                         at::TensorOptions().dtype(at::kDouble));
  }

  // In backward the shape may be one that the exchange does not know yet; post() finds it later.
  void publish(int p) {
    const at::Tensor& gradient = parameter(p).grad();
    if (gradient.numel() != spec(p).elements()) return;
    const at::Tensor whole = gradient.to(type_of(p)).contiguous();
    table_.gradients(team_->rank())[p] =
        whole.numel() == 0 ? 0 : static_cast<int64_t>(slots_->publish(p, whole.const_data_ptr()));
  }

  at::ScalarType type_of(int p) const {
    return spec(p).dtype == plan::DType::float64 ? at::kDouble : at::kFloat;
  }
  bool is_at_home(int p) const {
    return spec(p).elements() == 0 ||
           parameter(p).const_data_ptr() ==
               model_->data() + layout_.parameters[static_cast<size_t>(p)];
  }

  // Finds changes by user code before a step. The update, or the reduction between hosts, compares
  // what the optimizer has.
  ParameterChange find_change_of_step() {
    // The contents are watched anew after a change of the groups.
    if (optimizer_->has_new_groups()) return find_change();
    if (const ParameterChange found = find_visible_change(); found.change != Change::none)
      return found;
    if (const int p = resting_contents_->look_at_next(); p >= 0) return {Change::rewritten, p};
    return {};
  }

  ParameterChange find_visible_change() const {
    for (int p = 0; p < count(); ++p) {
      if (!is_at_home(p)) return {Change::moved, p};
      if (static_cast<int64_t>(parameter(p)._version()) != versions_[static_cast<size_t>(p)])
        return {Change::rewritten, p};
    }
    return {};
  }

  // Returns a write that the update found on some rank. This happens only on a single host.
  std::optional<Error> find_rewritten() const {
    for (int rank = 0; rank < team_->size(); ++rank)
      if (const int64_t p = table_.head(rank).rewritten; p != StepTable::kNone)
        return change_error(rank, {Change::rewritten, static_cast<int>(p)}, names_of(parameters_));
    return std::nullopt;
  }

  // After load_state() every rank's optimizer has its own state. The first rank's becomes the
  // common one.
  void adopt_new_state() {
    bool is_new = false;
    for (int rank = 0; rank < team_->size(); ++rank)
      is_new = is_new || table_.head(rank).state_is_new != 0;
    if (!is_new) return;
    if (team_->rank() == 0) place_state(true);
    team_->barrier("optimizer state");
    if (team_->rank() != 0) place_state(false);
    team_->barrier("optimizer state");
  }

  at::Tensor sum_of_facts() const {
    at::Tensor sum = facts_of(0).clone();
    for (int rank = 1; rank < team_->size(); ++rank) sum += facts_of(rank);
    return sum;
  }

  // Runs `action` on the host's first rank, with the first ranks of the other hosts. If it fails,
  // the host's other ranks must not wait for it.
  template <typename Action>
  void lead(Action action) {
    const auto leaders = group_->between_hosts();
    if (!leaders) return;
    try {
      action(*leaders);
    } catch (const std::exception& error) {
      team_->abort(parts_of(error).what);  // Each rank adds its own number to the text.
      throw;
    }
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

  // The existing gradients of parameter p, in the order of ranks.
  void sources_of(int p, std::vector<const std::byte*>& sources) const {
    sources.clear();
    for (int rank = 0; rank < team_->size(); ++rank)
      if (const int64_t place = table_.gradients(rank)[p]; place != StepTable::kNoGradient)
        sources.push_back(gradients_->data() + place);
  }

  // Calls visit(T{}) with the element type of parameter p.
  template <typename Visit>
  void with_type(int p, Visit visit) const {
    if (type_of(p) == at::kDouble)
      visit(double{});
    else
      visit(float{});
  }
  // The shard of a rank of the team.
  const std::vector<Slice>& shard_of(int place) const {
    return plan_.shards.ranks[static_cast<size_t>(team_ranks_[static_cast<size_t>(place)])];
  }
  const std::vector<Slice>& shard() const { return shard_of(team_->rank()); }

  // Calls visit(range, scaled gradient of the range) for the runs of a shard whose parameters are
  // in `wanted`; some replica of the job must have a gradient for these. `sources_for` fills in
  // the gradients to add up for a parameter, in the order of ranks.
  template <typename SourcesFor, typename Visit>
  void for_runs(const std::vector<Slice>& shard, const std::vector<bool>& wanted, double factor,
                SourcesFor sources_for, Visit visit) const {
    std::vector<const std::byte*> whole;
    for (const Slice& slice : shard) {
      if (!wanted[static_cast<size_t>(slice.parameter)]) continue;
      sources_for(slice.parameter, whole);
      with_type(slice.parameter, [&](auto type) {
        using T = decltype(type);
        T scaled[kRun];
        std::vector<const T*> sources(whole.size());
        for (int64_t from = slice.from; from < slice.to; from += kRun) {
          const fused::Range range{slice.parameter, from, std::min(kRun, slice.to - from)};
          for (size_t k = 0; k < whole.size(); ++k)
            sources[k] = reinterpret_cast<const T*>(whole[k]) + from;
          if (sources.size() == 1 && factor == 1) {
            visit(range, sources[0]);
          } else {
            fused::sum_scaled(std::span<const T* const>(sources), factor, scaled, range.count);
            visit(range, static_cast<const T*>(scaled));
          }
        }
      });
    }
  }
  template <typename Visit>
  void for_reduced(const std::vector<bool>& wanted, double factor, Visit visit) const {
    for_runs(
        shard(), wanted, factor,
        [this](int p, std::vector<const std::byte*>& sources) { sources = {reduced(p)}; }, visit);
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
      watch_contents();
      remember_contents();
    }
    is_updated_.assign(static_cast<size_t>(count()), false);
    for (const int p : updated_) is_updated_[static_cast<size_t>(p)] = true;
  }

  // Before this call nothing of this step has been written to parameters and state.
  void update_shards(double factor) {
    launch::mark_phase(Phase::optimizer);
    update_factor_ = factor;
    updating_ = guard_ != nullptr;
    update_shard(team_->rank());
  }

  void update_shard(int rank) {
    const auto sources_for = [this](int p, std::vector<const std::byte*>& sources) {
      if (from_all_ranks_)
        sources_of(p, sources);
      else
        sources = {reduced(p)};
    };
    int64_t run = 0;
    const bool watches = rank == team_->rank() && !between_;
    for_runs(shard_of(rank), is_updated_, update_factor_, sources_for,
             [&](const fused::Range& range, const auto* gradient) {
               const auto update = [&] {
                 const Slice slice{range.parameter, range.from, range.from + range.count};
                 if (watches && !contents_->is_as_left(slice))
                   table_.head(rank).rewritten = range.parameter;
                 optimizer_->update(range, gradient);
                 if (rank == team_->rank()) contents_->remember(slice);
                 updated_elements_ += range.count;
               };
               if (!guard_) return update();
               std::array<std::span<std::byte>, 1 + kMostStates> regions;
               guard_->run(rank, run++, written_by(range, regions), update);
             });
    if (guard_) guard_->end_shard(rank);
  }

  // The memory that a run writes: a part of the parameter and of each state tensor.
  std::span<const std::span<std::byte>> written_by(const fused::Range& range,
                                                   std::span<std::span<std::byte>> regions) const {
    const auto p = static_cast<size_t>(range.parameter);
    const auto element = static_cast<size_t>(parameter(range.parameter).element_size());
    const auto region = [&](size_t offset) {
      return std::span(model_->data() + offset + static_cast<size_t>(range.from) * element,
                       static_cast<size_t>(range.count) * element);
    };
    size_t count = 0;
    regions[count++] = region(layout_.parameters[p]);
    for (const size_t offset : layout_.states[p]) regions[count++] = region(offset);
    return regions.first(count);
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

  // The place of the reduced gradient of parameter p. On a single host it overwrites the first
  // replica's own gradient, which no other rank reads in this shard. Between hosts it is the
  // bucket that travels.
  std::byte* reduced(int p) const {
    if (between_) return between_->reduced(p);
    for (int rank = 0; rank < team_->size(); ++rank)
      if (const int64_t place = table_.gradients(rank)[p]; place != StepTable::kNoGradient)
        return gradients_->data() + place;
    throw Error(ErrorCode::internal, "parallel",
                fmt::format("no replica has a gradient of parameter {}", p));
  }

  void reduce(const Slice& slice) {
    std::vector<const std::byte*> whole;
    sources_of(slice.parameter, whole);
    with_type(slice.parameter, [&](auto type) {
      using T = decltype(type);
      T* const target = reinterpret_cast<T*>(reduced(slice.parameter)) + slice.from;
      std::vector<const T*> sources;
      for (const std::byte* source : whole)
        sources.push_back(reinterpret_cast<const T*>(source) + slice.from);
      if (sources.empty())  // Only other hosts have a gradient.
        std::memset(target, 0, static_cast<size_t>(slice.to - slice.from) * sizeof(T));
      else
        fused::sum_scaled(std::span<const T* const>(sources), 1.0, target, slice.to - slice.from);
    });
  }

  // Reduces this rank's shard of the buckets that were not reduced in backward. Each rank
  // completed `in_backward` buckets there.
  void reduce_left(int in_backward) {
    for (const Slice& slice : shard())
      if (between_ ? between_->is_left(slice.parameter, in_backward)
                   : is_used_[static_cast<size_t>(slice.parameter)])
        reduce(slice);
  }

  // Gradients travel before it is known whether the step counts: some were sent while other ranks
  // still ran backward.
  StepFacts::Summed reduce_between_hosts() {
    int64_t in_backward = table_.head(0).buckets_in_backward;
    for (int rank = 1; rank < team_->size(); ++rank)
      in_backward = std::min(in_backward, table_.head(rank).buckets_in_backward);
    reduce_left(static_cast<int>(in_backward));
    // All hosts must know of a rewritten parameter in this step, before the update.
    if (const int p = contents_->look(); p >= 0)
      facts_.report_change(facts_of(team_->rank()), group_->rank(), {Change::rewritten, p});
    team_->barrier("reduced on this host");
    const launch::CollectiveMark mark("reduced on all hosts");
    lead([&](Group& leaders) {
      all_facts_.copy_(sum_of_facts());
      between_->all_reduce(leaders, all_facts_, [&] { facts_.report_bad_gradients(all_facts_); });
    });
    between_->next_step();
    team_->barrier("reduced on all hosts");
    return facts_.read(all_facts_.clone());
  }

  double agree_on_norm(double factor) {
    double mine = 0;
    for_reduced(is_used_, 1.0, [&](const fused::Range& range, const auto* gradient) {
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
    for_reduced(is_updated_, factor, [&](const fused::Range& range, const auto* gradient) {
      const fused::Squares part = optimizer_->measure(range, gradient);
      mine[range.parameter].parameter += part.parameter;
      mine[range.parameter].direction += part.direction;
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
    for (int p = 0; p < count(); ++p) parameter(p).mutable_grad().reset();
    slots_->end_step();
    table_.next_step();
    if (!updated) return;
    // Autograd does not see a write through another tensor.
    for (const int p : updated_) parameter(p).unsafeGetTensorImpl()->bump_version();
    remember_versions();
  }

  std::shared_ptr<Group> group_;
  std::shared_ptr<comm::HostTeam> team_;
  std::vector<NamedTensor> parameters_;
  std::unique_ptr<fused::FusedOptimizer> optimizer_;
  ExchangeOptions options_;
  StepFacts facts_;
  const plan::EnginePlan plan_;
  const plan::SharedLayout& layout_;
  const std::vector<int>& team_ranks_;  // By place in the team.
  std::shared_ptr<net::SharedMemory> model_, gradients_, table_memory_;
  std::shared_ptr<shared::GradientSlots> slots_;
  StepTable table_;
  at::Tensor all_facts_;
  std::unique_ptr<shared::BetweenHosts> between_;  // Null if there is no other host.
  std::unique_ptr<shared::UpdateGuard> guard_;     // Null if a lost rank ends the job.
  std::vector<int64_t> versions_;
  // The watch of this rank's shard of what the optimizer has, and that of its part of the rest.
  std::unique_ptr<shared::ContentWatch> contents_, resting_contents_;
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
