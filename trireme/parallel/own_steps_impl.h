// The parts of an OwnSteps in a world of several processes. Included by its sources alone.
#pragma once
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <trireme/parallel/backward_end.h>
#include <trireme/parallel/counted_gradients.h>
#include <trireme/parallel/data_parallel_impl.h>
#include <trireme/parallel/equal_draws.h>
#include <trireme/parallel/gradient_watch.h>
#include <trireme/parallel/own_checks.h>
#include <trireme/parallel/own_differences.h>
#include <trireme/parallel/own_steps.h>
#include <trireme/parallel/shared_random.h>
#include <trireme/parallel/step_facts.h>
#include <trireme/parallel/sync_batch_norm.h>
#include <algorithm>
#include <numeric>
#include <utility>

namespace trireme {

struct OwnSteps::Impl : std::enable_shared_from_this<OwnSteps::Impl> {
  static constexpr int64_t kBackward = 0, kClosure = 1, kStep = 2;  // In LoopTurns.

  const std::shared_ptr<World::OwnLoop> loop;
  torch::optim::Optimizer& optimizer;
  const int64_t check_every;
  const bool own_samples;
  const int number;  // Among the engines of this process.
  DataParallel::Impl engine;
  OwnChecks checks;
  EqualDraws draws;
  CountedGradients counted;
  std::unique_ptr<GradientWatch> watch;
  const std::shared_ptr<const void> teller;  // OwnLoop::end_step() knows the engine by it.
  const int64_t part;                        // The engine's number in LoopTurns.
  std::shared_ptr<const std::function<void()>> before_leave;
  std::shared_ptr<const std::function<void(const OwnLoop::BatchInHand&)>> before_batch;
  int quiet = 0;               // The no_sync() objects that live.
  int reached_by = -1;         // The last backward that reached this engine.
  bool is_under_way = false;   // That one has not come to its end.
  bool has_means = false;      // Since the last step a backward has left means.
  bool has_own_alone = false;  // A backward under no_sync() has left what no other rank knows.
  bool has_reduced = false;    // In the backward under way, of which another one may be a part.
  bool knows_samples = false;  // The ranks know whether they read the same samples.
  int64_t steps = 0;
  int64_t alike_in = 0;  // The last step in which the ranks' parameters were found alike.

  Impl(World& the_world, std::shared_ptr<torch::nn::Module> module,
       torch::optim::Optimizer& the_optimizer, const OwnStepsOptions& options, int the_number,
       std::shared_ptr<const void> the_teller, int64_t the_part)
      : loop(the_world.own_loop()),
        optimizer(the_optimizer),
        check_every(options.check_every),
        own_samples(options.own_samples),
        number(the_number),
        engine(the_world.make_groups(1)[0], module,
               UpdatedTensors(*module, {std::shared_ptr<void>(), &optimizer}),
               engine_options(options)),
        checks(engine.parameters, options),
        draws(engine.device),
        counted(tensors_of(engine.parameters), {.lie_aside = [this] { return lie_aside(); },
                                                .has_own_alone = [this] { return has_own_alone; },
                                                .is_quiet = [this] { return quiet > 0; },
                                                .refuse_writes = [this] { refuse_writes(); }}),
        teller(std::move(the_teller)),
        part(the_part) {}

  DataParallelOptions engine_options(const OwnStepsOptions& options) {
    return {.buckets = options.buckets,
            .compression = options.compression,
            .weight = [this] { return loop->has_joined ? 0 : loop->weight(); },
            .state_follows = loop->world->identity().generation > 0};
  }

  int rank() const { return engine.group->rank(); }

  void begin() {
    watch = std::make_unique<GradientWatch>(tensors_of(engine.parameters),
                                            [this](int parameter) { reach(parameter); });
    watch->arm(true);
    expect_backward();
    before_leave = std::make_shared<const std::function<void()>>([this] { tell_at_the_end(); });
    loop->before_leave.emplace_back(before_leave);
    before_batch = std::make_shared<const std::function<void(const OwnLoop::BatchInHand&)>>(
        [this](const OwnLoop::BatchInHand& next) {
          weigh_own_sum(next);
          watch_for_weights(next);
        });
    watch_for_weights(loop->batch);
    loop->before_batch.emplace_back(before_batch);
    SyncBatchNorm::weigh_by(loop);
    draw_other_numbers(engine.device, rank(), number);
  }

  // Ranks without batches learn only at the end of a backward that it has begun.
  void expect_backward() { engine.exchange->expect_backward(quiet == 0 && !loop->turns); }

  void watch_for_weights(const OwnLoop::BatchInHand& batch) {
    if (batch.weight >= 0) counted.begin();
  }
  bool is_weighed() const { return loop->batch.weight >= 0; }
  // Runs when a backward begins. The other ranks may have had no backward under no_sync(), so all
  // decide alike: what has counted never goes through a sum by such weights, and always through
  // one by samples.
  bool lie_aside() {
    has_reduced = false;
    if (quiet == 0 && !is_weighed()) return false;
    return counted.lie_there() || !has_own_alone;
  }

  // A sum under no_sync() has the weights of its batches: the next batch may have another one, by
  // which the whole sum will be multiplied.
  void weigh_own_sum(const OwnLoop::BatchInHand& next) {
    if (!has_own_alone || loop->weight() == loop->weight_of(next)) return;
    if (loop->weight() == 0 || loop->weight_of(next) == 0)
      throw Error(
          ErrorCode::invalid_argument, "parallel",
          fmt::format("rank {}, step {}: a batch of weight 0 in a sum of several backward() "
                      "under no_sync(): the sum cannot be multiplied by it",
                      rank(), steps + 1),
          "batches of weights above 0, or a backward() without no_sync() for each");
    counted.multiply(loop->weight() / loop->weight_of(next));
  }

  [[noreturn]] void refuse_writes() const {
    throw Error(ErrorCode::unsupported, "parallel",
                fmt::format("rank {}, step {}: gradients were written behind a backward() under "
                            "no_sync(), which follows one without it in a step with "
                            "World::weigh(): .grad has only a part of the sum there",
                            rank(), steps + 1),
                "change gradients behind the last backward() of the step, or zero_grad()");
  }
  [[noreturn]] void refuse_weights(const std::string& what, const char* remedy) const {
    throw Error(ErrorCode::unsupported, "parallel",
                fmt::format("rank {}, step {}: World::weigh() with {}", rank(), steps + 1, what),
                remedy);
  }
  // Refuses gradients that would count twice, or not at all.
  void require_sums_once() {
    if (has_means && !counted.has_seen_backward())
      refuse_weights(
          "several backward() in a step, of which this one runs on another thread than the one "
          "that called weigh(), or in a process whose autograd engine is not LibTorch's",
          "weigh() on the thread that calls backward(), or no_sync() for each backward() of a "
          "step but the last one");
    if (has_reduced && counted.has_seen_backward())
      refuse_weights(
          "a backward() inside another one (reentrant checkpointing), behind which the outer one "
          "has reached the model again: its gradients would count twice",
          "a loss that is a mean over the samples, without weigh()");
    if (counted.differs_in_quiet())
      refuse_weights("no_sync() of one of two optimizers that have a parameter of one model",
                     "no_sync() of both for the same backward()");
  }

  // Runs in backward, when a gradient has been accumulated.
  void reach(int parameter) {
    const int task = torch::autograd::get_current_graph_task_id();
    const bool is_first = std::exchange(reached_by, task) != task;
    // A device would have to be waited for at each gradient. Most losses that are NaN show in the
    // first one.
    if (!looks_at_means() && (is_first || engine.device.is_cpu())) checks.look_at(parameter);
    if (!is_first) return;
    if (std::exchange(is_under_way, true) && engine.plan.follows_ready_order && quiet == 0 &&
        !loop->turns)
      throw Error(ErrorCode::aborted, "parallel",
                  fmt::format("rank {}, step {}: the backward() before ended by an error, when "
                              "gradients of it had been sent: the ranks cannot go on",
                              rank(), steps + 1),
                  "let the error end the process, or compute what may fail before backward()");
    loop->enter(Phase::backward);
    at_end_of_backward(number, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->finish_backward();
    });
  }

  // That exchange finds values that are not finite at no cost, as it adds up.
  bool looks_at_means() const { return engine.plan.exchange == plan::ExchangeKind::host_means; }

  void finish_backward() {
    is_under_way = false;
    if (is_weighed()) require_sums_once();
    if (quiet > 0) {
      has_own_alone = true;
      return;
    }
    const auto rest = is_weighed() ? counted.leave_to_others() : nullptr;
    reduce();
    has_reduced = counted.has_seen_backward();
    has_means = true;
    has_own_alone = false;
  }

  Contribution contribution() {
    Contribution mine;
    const bool is_known = loop->batch.of_all > 0;
    mine.samples = loop->has_joined ? 0 : is_known ? loop->batch.samples : 1;
    // Weights of World::weigh() are what they are, also if some ranks have no samples.
    mine.total_samples = is_weighed() && !loop->has_joined ? 0
                         : is_known                        ? loop->batch.of_all
                                                           : engine.group->size();
    mine.groups = engine.hash_of_groups();
    return mine;
  }

  StepOutcome reduce() {
    loop->require_not_left("backward()");
    loop->require_elastic();
    loop->begin(part, kBackward);
    const bool has_joined = loop->has_joined;
    Contribution mine = contribution();
    mine.wants_regroup = loop->world->regroup_wanted();
    mine.wants_stop = loop->wants_stop && loop->wants_stop();
    mine.change = engine.forms.find_change();
    if (!has_joined) {
      const ParameterChange found = checks.find(steps + 1);
      if (mine.change.change == Change::none) mine.change = found;
      if (check_every > 0) {
        mine.digest = digest_now();
        mine.writes = checks.writes();
      }
    }
    const bool compares_now = is_digest_due();
    const int64_t samples = knows_samples ? 0 : digest_of_samples();
    const auto graphs = gradients_with_graphs();
    loop->enter(Phase::exchange);
    StepOutcome outcome = means(mine);
    if (compares_now) alike_in = steps + 1;
    if (outcome.writes_differ) compare_what_was_written();
    if (!std::exchange(knows_samples, true)) refuse_same_samples(*engine.group, place(), samples);
    if (number == 0 && check_every > 0) draws.look(*engine.group, steps + 1);
    loop->regroup = loop->regroup || outcome.regroup;
    loop->stop = loop->stop || outcome.stop;
    loop->enter(Phase::optimizer);
    keep_graphs(graphs);
    expect_backward();
    return outcome;
  }

  OwnPlace place() const { return {number, steps, loop->has_joined, alike_in}; }

  // Not every difference is a mistake: rank 0 may have loaded weights that sync() gave to the
  // others, or evaluated with other weights and put its own back.
  void compare_what_was_written() {
    refuse_other_parameters(*engine.group, place(), engine.parameters);
    checks.adopt_writes();
    alike_in = steps + 1;
  }

  // One of the first gradients, before they become means. 0: the samples are shared.
  int64_t digest_of_samples() const {
    if (number > 0 || loop->batch.of_all > 0 || loop->has_joined || own_samples) return 0;
    std::vector<NamedTensor> gradients;
    for (const auto& [name, tensor] : engine.parameters)
      if (const at::Tensor& gradient = tensor.grad(); gradient.defined() && !gradient.is_sparse())
        gradients.push_back({name, gradient});
    return gradients.empty() ? 0 : static_cast<int64_t>(digest_of(gradients));
  }

  StepOutcome means(const Contribution& mine) {
    try {
      const StepOutcome outcome = engine.exchange->leave_means(mine);
      if (outcome.nonfinite_parameter >= 0 && checks.wants_finite())
        throw ErrorOfAllRanks(change_error(outcome.nonfinite_ranks.front(),
                                           {Change::not_finite, outcome.nonfinite_parameter},
                                           names_of(engine.parameters)));
      return outcome;
    } catch (const ErrorOfAllRanks& error) {
      refuse_differences(*engine.group, place(), facts());
      if (dynamic_cast<const OtherDigests*>(&error))
        refuse_other_parameters(*engine.group, place(), engine.parameters);
      throw ErrorOfAllRanks(with_step(error, steps + 1));
    }
  }

  std::vector<OwnFact> facts() const {
    return facts_of(loop->batch, *engine.module, optimizer, engine.parameters);
  }

  // With create_graph a gradient is itself a function of the parameters, and so is the mean: its
  // derivative on this rank is that of this rank's gradient.
  std::vector<std::pair<size_t, at::Tensor>> gradients_with_graphs() const {
    std::vector<std::pair<size_t, at::Tensor>> found;
    for (size_t p = 0; p < engine.parameters.size(); ++p)
      if (const at::Tensor& gradient = engine.parameters[p].tensor.grad();
          gradient.defined() && gradient.requires_grad())
        found.emplace_back(p, gradient);
    return found;
  }
  void keep_graphs(const std::vector<std::pair<size_t, at::Tensor>>& graphs) const {
    const at::AutoGradMode with_graph(true);
    for (const auto& [p, own] : graphs) {
      at::Tensor& mean = engine.parameters[p].tensor.mutable_grad();
      if (mean.defined()) mean = mean + (own - own.detach());
    }
  }

  // That of the number of steps, of the facts and of one value of each parameter, and in some
  // steps of all values. It is not 0.
  uint64_t digest_now() const {
    uint64_t value = mix64(checks.sample(), static_cast<uint64_t>(steps));
    for (const OwnFact& fact : facts()) value = mix64(value, fact.value);
    return std::max<uint64_t>(
        1, is_digest_due() ? mix64(value, digest_of(engine.parameters)) : value);
  }
  bool is_digest_due() const {
    return check_every > 0 && !has_means && (steps < 2 || steps % check_every == 0);
  }
  void tell_at_the_end() const {
    if (check_every == 0) return;
    loop->facts_at_the_end[fmt::format("optimizer {}", number)] =
        parameters_at_the_end(engine.parameters, steps, alike_in);
  }

  at::Tensor step_with(const Closure& closure, const std::function<at::Tensor(Closure)>& own) {
    at::Tensor first;
    const Closure of_all = [&] {
      checks.end_evaluation();
      has_means = false;  // Each evaluation has a backward() of its own.
      const at::Tensor loss = closure();
      const ParameterChange found = find_refusal();
      if (found.change != Change::none) refuse_on_all(found);
      loop->begin(part, kClosure);
      return mean_of(loss.item<double>(), loop->weight()).to(loss.device(), loss.scalar_type());
    };
    checks.update([&] { first = own(of_all); });
    end_step();
    return first;
  }

  // COLLECTIVE. All ranks decide by the same loss.
  at::Tensor mean_of(double loss, double weight) const {
    const at::NoGradGuard no_grad;
    at::Tensor sums = at::tensor({loss * weight, weight}, at::kDouble);
    engine.group->all_reduce(sums);
    return is_weighed() ? sums[0] : sums[0] / sums[1];
  }

  // The reason why this rank cannot update.
  ParameterChange find_refusal() {
    const ParameterChange form = engine.forms.find_new_form();
    if (form.change != Change::none) return form;
    if (has_own_alone) return {Change::own_alone, static_cast<int>(steps + 1)};
    if (!has_means) return {Change::no_backward, static_cast<int>(steps + 1)};
    if (checks.has_never_had_gradients())
      return {Change::no_gradients, static_cast<int>(steps + 1)};
    return {};
  }

  // The others wait in a backward() that has not reached this rank's parameters: it was left out,
  // or another type or device has cut the parameters off. Or they come to the next one, if this
  // rank has had the means of this step. So all ranks learn of it there.
  [[noreturn]] void refuse_on_all(ParameterChange found) {
    forget_gradients();
    Contribution mine = contribution();
    mine.change = found;
    if (std::exchange(has_means, false)) {
      ++steps;
      loop->begin(part, kStep);
    }
    loop->begin(part, kBackward);
    try {
      means(mine);
    } catch (const ErrorOfAllRanks&) {
      throw;
    } catch (const Error&) {  // The others were somewhere else.
    }
    throw change_error(rank(), found, names_of(engine.state.parameters));
  }

  void update(const std::function<at::Tensor(Closure)>& own) {
    const ParameterChange found = find_refusal();
    if (found.change != Change::none) refuse_on_all(found);
    tell_unused();
    checks.update([&] {
      if (engine.own_update) {
        std::vector<int> all(engine.parameters.size());
        std::iota(all.begin(), all.end(), 0);
        fused::update_alone(*engine.own_update, engine.parameters, all);
      } else {
        own(nullptr);
      }
    });
    end_step();
  }

  void end_step() {
    ++steps;
    has_means = false;
    checks.end_step();
  }

  void tell_unused() {
    if (engine.told_unused) return;
    StepOutcome outcome;
    outcome.updated = true;
    for (size_t p = 0; p < engine.parameters.size(); ++p)
      if (const at::Tensor& tensor = engine.parameters[p].tensor;
          tensor.requires_grad() && !tensor.grad().defined())
        outcome.unused.push_back(static_cast<int>(p));
    engine.tell_unused(outcome);
  }

  void forget_gradients() {
    counted.forget();
    for (const auto& [name, tensor] : engine.parameters) tensor.mutable_grad().reset();
  }

  // own_joins.cc: ranks without batches.
  void answer(int64_t what);  // Takes part without a batch.
  void join();
  int last_to_come() const;
  void take_state_of(int root);
};

}  // namespace trireme
