#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/base/hash.h>
#include <trireme/base/log.h>
#include <trireme/parallel/agreement.h>
#include <trireme/parallel/backward_end.h>
#include <trireme/parallel/data_parallel_impl.h>
#include <trireme/parallel/gradient_watch.h>
#include <trireme/parallel/optimizer_transfer.h>
#include <trireme/parallel/own_differences.h>
#include <trireme/parallel/own_faults.h>
#include <trireme/parallel/own_steps.h>
#include <trireme/parallel/step_facts.h>
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace trireme {
namespace {

std::shared_ptr<torch::optim::Optimizer> not_owned(torch::optim::Optimizer& optimizer) {
  return {std::shared_ptr<void>(), &optimizer};
}

// In LoopTurns.
constexpr int64_t kBackward = 0, kClosure = 1, kStep = 2;

}  // namespace

struct OwnSteps::Impl : std::enable_shared_from_this<OwnSteps::Impl> {
  const std::shared_ptr<World::OwnLoop> loop;
  torch::optim::Optimizer& optimizer;
  const int64_t check_every;
  const int number;  // Among the engines of this process.
  DataParallel::Impl engine;
  std::unique_ptr<GradientWatch> watch;
  const std::shared_ptr<const void> teller;  // OwnLoop::end_step() knows the engine by it.
  const int64_t part;                        // The engine's number in LoopTurns.
  std::shared_ptr<const std::function<void()>> before_leave;
  std::shared_ptr<const std::function<void(int64_t, int64_t)>> before_batch;
  int quiet = 0;               // The no_sync() objects that live.
  int reached_by = -1;         // The last backward that reached this engine.
  bool is_under_way = false;   // That one has not come to its end.
  int first_gradient = -1;     // The parameter whose gradient was the first of that backward.
  bool has_means = false;      // Since the last step a backward has left means.
  bool has_own_alone = false;  // A backward under no_sync() has left what no other rank knows.
  int64_t steps = 0;

  Impl(World& the_world, std::shared_ptr<torch::nn::Module> module,
       torch::optim::Optimizer& the_optimizer, const OwnStepsOptions& options, int the_number,
       std::shared_ptr<const void> the_teller, int64_t the_part)
      : loop(the_world.own_loop()),
        optimizer(the_optimizer),
        check_every(options.check_every),
        number(the_number),
        engine(the_world.make_groups(1)[0], module, UpdatedTensors(*module, not_owned(optimizer)),
               engine_options(options)),
        teller(std::move(the_teller)),
        part(the_part) {}

  DataParallelOptions engine_options(const OwnStepsOptions& options) {
    return {.buckets = options.buckets, .compression = options.compression, .weight = [this] {
              return loop->has_joined ? 0 : loop->weight();
            }};
  }

  int rank() const { return engine.group->rank(); }

  void begin() {
    std::vector<at::Tensor> tensors;
    for (const auto& [name, tensor] : engine.parameters) tensors.push_back(tensor);
    watch = std::make_unique<GradientWatch>(tensors, [this](int parameter) { reach(parameter); });
    watch->arm(true);
    expect_backward();
    before_leave = std::make_shared<const std::function<void()>>([this] { tell_at_the_end(); });
    loop->before_leave.emplace_back(before_leave);
    before_batch = std::make_shared<const std::function<void(int64_t, int64_t)>>(
        [this](int64_t samples, int64_t of_all) { weigh_own_sum(samples, of_all); });
    loop->before_batch.emplace_back(before_batch);
    draw_other_numbers();
  }

  // Ranks without batches learn only at the end of a backward that it has begun.
  void expect_backward() { engine.exchange->expect_backward(quiet == 0 && !loop->turns); }

  // A sum under no_sync() has the weights of its batches: the next batch may have another one, by
  // which the whole sum will be multiplied.
  void weigh_own_sum(int64_t samples, int64_t of_all) const {
    if (!has_own_alone || samples == 0) return;
    const double factor = loop->weight() / loop->weight_of(samples, of_all);
    if (factor == 1) return;
    const at::NoGradGuard no_grad;
    for (const auto& [name, tensor] : engine.parameters)
      if (tensor.grad().defined()) tensor.mutable_grad().mul_(factor);
  }

  // Dropout and noise differ on every rank. Rank 0 draws what a process alone would draw.
  void draw_other_numbers() const {
    if (rank() == 0) return;
    draw_other_numbers_from(at::detail::getDefaultCPUGenerator());
    if (!engine.device.is_cpu())
      draw_other_numbers_from(at::globalContext().defaultGenerator(engine.device));
  }
  void draw_other_numbers_from(at::Generator generator) const {
    const std::lock_guard lock(generator.mutex());
    generator.set_current_seed(mix64(generator.current_seed(), static_cast<uint64_t>(rank()),
                                     static_cast<uint64_t>(number)));
  }

  // Runs in backward, when a gradient has been accumulated.
  void reach(int parameter) {
    const int task = torch::autograd::get_current_graph_task_id();
    if (std::exchange(reached_by, task) == task) return;
    if (std::exchange(is_under_way, true) && engine.plan.follows_ready_order && quiet == 0 &&
        !loop->turns)
      throw Error(ErrorCode::aborted, "parallel",
                  fmt::format("rank {}, step {}: the backward() before ended by an error, when "
                              "gradients of it had been sent: the ranks cannot go on",
                              rank(), steps + 1),
                  "let the error end the process, or compute what may fail before backward()");
    first_gradient = parameter;
    loop->enter(Phase::backward);
    at_end_of_backward(number, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->finish_backward();
    });
  }

  void finish_backward() {
    is_under_way = false;
    if (quiet > 0) {
      has_own_alone = true;
      return;
    }
    reduce();
    has_means = true;
    has_own_alone = false;
  }

  // A loss that is NaN mostly makes all gradients NaN, and the first one is small.
  bool first_gradient_is_finite() const {
    const int parameter = first_gradient;
    if (parameter < 0) return true;
    const at::Tensor& gradient = engine.parameters[static_cast<size_t>(parameter)].tensor.grad();
    return !gradient.defined() || gradient.is_sparse() ||
           std::isfinite(gradient.detach().sum(at::kDouble).item<double>());
  }

  Contribution contribution() {
    Contribution mine;
    const bool is_known = loop->of_all > 0;
    mine.samples = loop->has_joined ? 0 : is_known ? loop->samples : 1;
    mine.total_samples = is_known ? loop->of_all : engine.group->size();
    mine.groups = engine.hash_of_groups();
    return mine;
  }

  StepOutcome reduce() {
    loop->require_not_left("backward()");
    loop->begin(part, kBackward);
    const bool has_joined = loop->has_joined;
    Contribution mine = contribution();
    if (!has_joined && !first_gradient_is_finite()) mine.loss_sum = std::nan("");
    mine.wants_regroup = loop->world->regroup_wanted();
    mine.wants_stop = loop->wants_stop && loop->wants_stop();
    mine.change = engine.forms.find_change();
    if (!has_joined && check_every > 0) mine.digest = digest_now();
    tell_unshared();
    const auto graphs = gradients_with_graphs();
    loop->enter(Phase::exchange);
    StepOutcome outcome = means(mine);
    if (!outcome.nonfinite_ranks.empty()) refuse_nonfinite(outcome);
    loop->regroup = loop->regroup || outcome.regroup;
    loop->stop = loop->stop || outcome.stop;
    loop->enter(Phase::optimizer);
    keep_graphs(graphs);
    expect_backward();
    return outcome;
  }

  [[noreturn]] void refuse_nonfinite(const StepOutcome& outcome) const {
    const int rank = outcome.nonfinite_ranks.front(), parameter = outcome.nonfinite_parameter;
    const std::string which =
        parameter < 0 ? fmt::format("the gradients of rank {} are", rank)
                      : fmt::format("the gradient of '{}' of rank {} is",
                                    engine.parameters[static_cast<size_t>(parameter)].name, rank);
    throw Error(
        ErrorCode::internal, "parallel",
        fmt::format("{} NaN or infinite in step {}: its loss is, or its data", which, steps + 1),
        "a look at that rank's loss and data, or a smaller learning rate");
  }

  // A loader that was left as it is gives each rank all samples.
  void tell_unshared() const {
    if (steps > 0 || has_means || rank() != 0 || number > 0 || loop->of_all > 0) return;
    log_warning(
        "the samples of the first step were not shared by trireme::make_data_loader() or "
        "World::share(): each rank counts alike, and has to read other samples than the others; "
        "try: one of the two");
  }

  StepOutcome means(const Contribution& mine) {
    try {
      return engine.exchange->leave_means(mine);
    } catch (const ErrorOfAllRanks& error) {
      refuse_differences(*engine.group, {number, steps, loop->has_joined}, facts());
      const auto [what, remedy] = parts_of(error);
      const std::string step = fmt::format("step {}: ", steps + 1);
      if (what.find(step) != std::string::npos) throw;
      throw ErrorOfAllRanks(error.code(), "parallel", step + what, remedy);
    }
  }

  std::vector<OwnFact> facts() const {
    return facts_of(loop->of_all, *engine.module, optimizer, engine.parameters);
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

  // That of the number of steps and of the facts, and in some steps of the parameters. It is not
  // 0.
  uint64_t digest_now() const {
    uint64_t value = mix64(1, static_cast<uint64_t>(steps));
    for (const OwnFact& fact : facts()) value = mix64(value, fact.value);
    const bool is_due = !has_means && (steps < 2 || steps % check_every == 0);
    return std::max<uint64_t>(1, is_due ? mix64(value, digest_of(engine.parameters)) : value);
  }
  void tell_at_the_end() const {
    if (check_every > 0)
      loop->facts_at_the_end[fmt::format("engine {}", number)] =
          fmt::format("{:x}", digest_of(engine.parameters));
  }

  at::Tensor step_with(const Closure& closure, const std::function<at::Tensor(Closure)>& own) {
    at::Tensor first = own([&] {
      has_means = false;  // Each evaluation has a backward() of its own.
      const at::Tensor loss = closure();
      const ParameterChange found = find_refusal();
      if (found.change != Change::none) refuse_on_all(found);
      loop->begin(part, kClosure);
      return mean_of(loss.item<double>(), loop->weight()).to(loss.device(), loss.scalar_type());
    });
    ++steps;
    has_means = false;
    return first;
  }

  // COLLECTIVE. All ranks decide by the same loss.
  at::Tensor mean_of(double loss, double weight) const {
    const at::NoGradGuard no_grad;
    at::Tensor sums = at::tensor({loss * weight, weight}, at::kDouble);
    engine.group->all_reduce(sums);
    return sums[0] / sums[1];
  }

  // The reason why this rank cannot update.
  ParameterChange find_refusal() const {
    const ParameterChange form = engine.forms.find_new_form();
    if (form.change != Change::none) return form;
    if (has_own_alone) return {Change::own_alone, static_cast<int>(steps + 1)};
    if (!has_means) return {Change::no_backward, static_cast<int>(steps + 1)};
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
    if (engine.own_update) {
      std::vector<int> all(engine.parameters.size());
      std::iota(all.begin(), all.end(), 0);
      fused::update_alone(*engine.own_update, engine.parameters, all);
    } else {
      own(nullptr);
    }
    ++steps;
    has_means = false;
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

  // Takes part without a batch.
  void answer(int64_t what) {
    if (what == kBackward) {
      forget_gradients();
      reduce();
    } else if (what == kClosure) {
      mean_of(0, 0);
    } else {
      ++steps;
      loop->end_step(teller);
    }
  }

  void forget_gradients() {
    first_gradient = -1;
    for (const auto& [name, tensor] : engine.parameters) tensor.mutable_grad().reset();
  }

  void join() {
    if (loop->turns) return loop->join();
    int engines = 0;
    for (const auto& each : loop->rebind) engines += each.expired() ? 0 : 1;
    if (engines > 1)
      throw Error(
          ErrorCode::unsupported, "parallel",
          fmt::format("join() in a loop with {} optimizers: a rank cannot know in which of "
                      "them the others wait",
                      engines),
          "OwnStepsOptions::joins for each of them");
    if (loop->meetings > 0)
      throw Error(
          ErrorCode::unsupported, "parallel",
          "join() in a loop with a LoopRecord or a Checkpoint: the ranks that have batches "
          "would wait in them for this one",
          "OwnStepsOptions::joins for its optimizers");
    loop->has_joined = true;
    const std::shared_ptr<void> until_the_end(nullptr,
                                              [this](void*) { loop->has_joined = false; });
    while (true) {
      forget_gradients();
      if (reduce().samples == 0) break;
      loop->end_step(teller);
    }
    take_state_of(last_to_come());
    has_means = false;
  }

  // The rank that has made the most steps.
  int last_to_come() const {
    const at::Tensor mine = at::tensor({steps}, at::kLong);
    const at::Tensor all = at::zeros({engine.group->size()}, at::kLong);
    engine.group->all_gather(mine, all);
    return static_cast<int>(all.argmax().item<int64_t>());
  }

  void take_state_of(int root) {
    broadcast_tensors(*engine.group, engine.state.parameters, root);
    broadcast_tensors(*engine.group, engine.state.buffers, root);
    take_optimizer_of(root, *engine.group, optimizer, engine.parameters);
    at::Tensor made = at::tensor({steps}, at::kLong);
    engine.group->broadcast(made, root);
    steps = made.item<int64_t>();
  }
};

OwnSteps::OwnSteps(World& world, std::shared_ptr<torch::nn::Module> module,
                   torch::optim::Optimizer& optimizer, const OwnStepsOptions& options)
    : loop_(world.own_loop()),
      module_(std::move(module)),
      optimizer_(optimizer),
      options_(options),
      number_(loop_->engines++),
      rebind_(std::make_shared<const std::function<void()>>([this] { bind(); })),
      take_state_(std::make_shared<const std::function<void(int)>>([this](int root) {
        impl_->forget_gradients();
        impl_->take_state_of(root);
        impl_->has_means = false;
      })),
      part_(std::make_shared<const LoopTurns::Part>(
          LoopTurns::Part{{fmt::format("backward() of optimizer {}", number_),
                           fmt::format("the loss of a closure of optimizer {}", number_),
                           fmt::format("step() of optimizer {}", number_)},
                          [this](const LoopTurns::Turn& turn) { impl_->answer(turn.what); }})),
      part_number_(loop_->add(part_)) {
  if (options_.joins && world.is_elastic())
    throw Error(ErrorCode::unsupported, "parallel",
                "OwnStepsOptions::joins in an elastic job: a rank without batches has not the "
                "newest state, from which the others would have to go on without a lost one",
                "a job without --elastic, or the same number of batches on each rank");
  world.connect();
  listen_for_faults(world);
  loop_->rebind.emplace_back(rebind_);
  loop_->take_state.emplace_back(take_state_);
  bind();
}

// leave() compares the parameters of an engine that is gone too.
OwnSteps::~OwnSteps() {
  if (impl_ && std::uncaught_exceptions() == 0) impl_->tell_at_the_end();
}

void OwnSteps::bind() {
  forget_backward(number_);  // One that an error ended may have left it.
  impl_.reset();
  if (loop_->world->size() == 1) return;
  impl_ = std::make_shared<Impl>(*loop_->world, module_, optimizer_, options_, number_, rebind_,
                                 part_number_);
  agree(*impl_->engine.group, {{"OwnStepsOptions::joins", options_.joins}});
  if (options_.joins && !loop_->turns)
    loop_->turns = std::make_unique<LoopTurns>(loop_->world->make_groups(1)[0], loop_->parts);
  impl_->begin();
}

at::Tensor OwnSteps::step(const Closure& closure, const std::function<at::Tensor(Closure)>& own) {
  at::Tensor loss;
  if (!impl_) {
    loop_->enter(Phase::optimizer);
    loss = own(closure);
  } else if (closure) {
    loss = impl_->step_with(closure, own);
  } else {
    impl_->update(own);
  }
  if (impl_) loop_->begin(part_number_, kStep);
  if (loop_->end_step(rebind_)) loop_->enter(Phase::forward);
  return loss;
}

std::shared_ptr<void> OwnSteps::no_sync() {
  if (!impl_) return std::make_shared<int>();
  ++impl_->quiet;
  impl_->expect_backward();
  return {nullptr, [impl = impl_](void*) {
            --impl->quiet;
            impl->expect_backward();
          }};
}

void OwnSteps::join() {
  if (impl_) impl_->join();
}
void OwnSteps::sync() {
  if (impl_) impl_->take_state_of(0);
}

}  // namespace trireme
