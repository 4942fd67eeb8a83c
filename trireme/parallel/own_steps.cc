#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <trireme/checkpoint/digest.h>
#include <trireme/parallel/data_parallel_impl.h>
#include <trireme/parallel/gradient_watch.h>
#include <trireme/parallel/optimizer_transfer.h>
#include <trireme/parallel/own_steps.h>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <utility>

namespace trireme {
namespace {

// The engines whose parameters the backward under way has reached, by their order of making. All
// ranks finish them in this order, so that no two ranks wait for each other.
using Reached = std::map<int, std::function<void()>>;
Reached& reached_now() {
  static thread_local Reached reached;
  return reached;
}

// Calls `finish` at the end of the backward under way. A backward that ends by an error calls
// nothing, and what it had reached is forgotten by the next one.
void at_end_of_backward(int engine, std::function<void()> finish) {
  static thread_local int task = -1;  // The backward of `reached_now()`.
  Reached& reached = reached_now();
  if (const int now = torch::autograd::get_current_graph_task_id(); now != task) {
    task = now;
    reached.clear();
    torch::autograd::Engine::get_default_engine().queue_callback([] {
      for (const auto& [number, each] : std::exchange(reached_now(), {})) each();
    });
  }
  reached.emplace(engine, std::move(finish));
}

std::shared_ptr<torch::optim::Optimizer> not_owned(torch::optim::Optimizer& optimizer) {
  return {std::shared_ptr<void>(), &optimizer};
}

void add_to_digest(checkpoint::Digest& digest, const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().contiguous();
  digest.update({static_cast<const std::byte*>(flat.const_data_ptr()), flat.nbytes()});
}

}  // namespace

struct OwnSteps::Impl : std::enable_shared_from_this<OwnSteps::Impl> {
  World& world;
  const std::shared_ptr<World::OwnLoop> loop;
  torch::optim::Optimizer& optimizer;
  const int64_t check_every;
  const int number;  // Among the engines of this process.
  DataParallel::Impl engine;
  std::unique_ptr<GradientWatch> watch;
  std::shared_ptr<const std::function<void()>> before_leave;
  int quiet = 0;               // The no_sync() objects that live.
  bool has_joined = false;     // This rank has no samples any more.
  int reached_by = -1;         // The last backward that reached this engine.
  int first_gradient = -1;     // The parameter whose gradient was the first of that backward.
  bool has_means = false;      // Since the last step a backward has left means.
  bool has_own_alone = false;  // A backward under no_sync() has left what no other rank knows.
  int64_t steps = 0;

  Impl(World& the_world, std::shared_ptr<torch::nn::Module> module,
       torch::optim::Optimizer& the_optimizer, const OwnStepsOptions& options, int the_number)
      : world(the_world),
        loop(world.own_loop()),
        optimizer(the_optimizer),
        check_every(options.check_every),
        number(the_number),
        engine(world.make_groups(1)[0], module, UpdatedTensors(*module, not_owned(optimizer)),
               engine_options(options)) {}

  DataParallelOptions engine_options(const OwnStepsOptions& options) {
    return {.buckets = options.buckets, .compression = options.compression, .samples = [this] {
              return has_joined ? 0 : loop->samples;
            }};
  }

  int rank() const { return engine.group->rank(); }

  void begin() {
    std::vector<at::Tensor> tensors;
    for (const auto& [name, tensor] : engine.parameters) tensors.push_back(tensor);
    watch = std::make_unique<GradientWatch>(tensors, [this](int parameter) { reach(parameter); });
    watch->arm(true);
    engine.exchange->expect_backward(true);
    before_leave = std::make_shared<const std::function<void()>>([this] { compare_at_the_end(); });
    loop->before_leave.emplace_back(before_leave);
    draw_other_numbers();
  }

  // Dropout and noise differ on every rank. Rank 0 draws what a process alone would draw.
  void draw_other_numbers() const {
    if (rank() == 0) return;
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(generator.mutex());
    generator.set_current_seed(mix64(generator.current_seed(), static_cast<uint64_t>(rank()),
                                     static_cast<uint64_t>(number)));
  }

  // Runs in backward, when a gradient has been accumulated.
  void reach(int parameter) {
    const int task = torch::autograd::get_current_graph_task_id();
    if (std::exchange(reached_by, task) == task) return;
    first_gradient = parameter;
    at_end_of_backward(number, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->finish_backward();
    });
  }

  void finish_backward() {
    if (quiet > 0) {
      has_own_alone = true;
      return;
    }
    reduce();
    has_means = true;
    has_own_alone = false;
  }

  // The gradients of a loss that is NaN are NaN from the first one on.
  bool first_gradient_is_finite() const {
    const int parameter = first_gradient;
    if (parameter < 0) return true;
    const at::Tensor& gradient = engine.parameters[static_cast<size_t>(parameter)].tensor.grad();
    return !gradient.defined() || gradient.is_sparse() ||
           std::isfinite(gradient.detach().sum().item<double>());
  }

  StepOutcome reduce() {
    Contribution mine;
    mine.samples = has_joined ? 0 : loop->samples;
    if (!has_joined && !first_gradient_is_finite()) mine.loss_sum = std::nan("");
    mine.wants_regroup = world.regroup_wanted();
    mine.change = engine.forms.find_change();
    mine.groups = engine.hash_of_groups();
    if (!has_joined && check_every > 0 && !has_means && (steps < 2 || steps % check_every == 0))
      mine.digest = digest_of_parameters();
    const auto graphs = gradients_with_graphs();
    StepOutcome outcome = engine.exchange->leave_means(mine);
    if (!outcome.nonfinite_ranks.empty())
      throw Error(ErrorCode::internal, "parallel",
                  fmt::format("the gradients of rank {} are NaN or infinite in step {}: its loss "
                              "is, or its data",
                              outcome.nonfinite_ranks.front(), steps + 1),
                  "a look at that rank's loss and data, or a smaller learning rate");
    loop->regroup = loop->regroup || outcome.regroup;
    keep_graphs(graphs);
    engine.exchange->expect_backward(quiet == 0);
    return outcome;
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

  uint64_t digest_of_parameters() const {
    checkpoint::Digest digest;
    for (const auto& [name, tensor] : engine.parameters) add_to_digest(digest, tensor);
    uint64_t value = 0;
    for (const checkpoint::PieceDigest& piece : digest.pieces()) {
      uint64_t word = 0;
      std::memcpy(&word, piece.data(), sizeof word);
      value = mix64(value, word);
    }
    return std::max<uint64_t>(1, value);
  }

  // After such a change backward may no longer reach the parameters that the engine knows.
  void refuse_new_forms() const {
    if (const ParameterChange found = engine.forms.find_new_form(); found.change != Change::none)
      throw change_error(rank(), found, names_of(engine.state.parameters));
  }

  void compare_at_the_end() {
    refuse_new_forms();
    if (check_every > 0)
      world.agree(fmt::format("the parameters of engine {} at leave()", number),
                  {{"digest", fmt::format("{:x}", digest_of_parameters())}});
  }

  at::Tensor step_with(const Closure& closure, const std::function<at::Tensor(Closure)>& own) {
    at::Tensor first = own([&] { return mean_of(closure()); });
    ++steps;
    has_means = false;
    return first;
  }

  // COLLECTIVE. All ranks decide by the same loss.
  at::Tensor mean_of(const at::Tensor& loss) const {
    const at::NoGradGuard no_grad;
    const auto samples = static_cast<double>(loop->samples);
    at::Tensor sums = at::tensor({loss.item<double>() * samples, samples}, at::kDouble);
    engine.group->all_reduce(sums);
    return (sums[0] / sums[1]).to(loss.scalar_type());
  }

  void refuse_step(const std::string& what, const std::string& remedy) const {
    throw Error(ErrorCode::invalid_argument, "parallel",
                fmt::format("rank {}, step {}: step() {}", rank(), steps + 1, what), remedy);
  }

  void update(const std::function<at::Tensor(Closure)>& own) {
    refuse_new_forms();
    if (has_own_alone)
      refuse_step("after a backward() under no_sync(): its gradients are those of this rank alone",
                  "the last backward() before step() outside no_sync()");
    if (!has_means)
      refuse_step("without a backward() that reached a parameter of its model",
                  "loss.backward() before each step(), by a loss of the model that the optimizer "
                  "was made with");
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

  void join() {
    has_joined = true;
    first_gradient = -1;
    for (const auto& [name, tensor] : engine.parameters) tensor.mutable_grad().reset();
    while (reduce().samples > 0) {
    }
    take_state_of(last_to_come());
    has_joined = false;
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
    for (const std::vector<NamedTensor>* tensors :
         {&engine.state.parameters, &engine.state.buffers})
      for (const auto& [name, tensor] : *tensors) {
        at::Tensor bytes = as_bytes(tensor.detach());
        engine.group->broadcast(bytes, root);
      }
    take_optimizer_of(root, *engine.group, optimizer, engine.parameters);
    at::Tensor made = at::tensor({steps}, at::kLong);
    engine.group->broadcast(made, root);
    steps = made.item<int64_t>();
  }
};

OwnSteps::OwnSteps(World& world, std::shared_ptr<torch::nn::Module> module,
                   torch::optim::Optimizer& optimizer, const OwnStepsOptions& options)
    : world_(world),
      module_(std::move(module)),
      optimizer_(optimizer),
      options_(options),
      number_(world.own_loop()->engines++),
      rebind_(std::make_shared<const std::function<void()>>([this] { bind(); })) {
  world.connect();
  world.own_loop()->rebind.emplace_back(rebind_);
  bind();
}

void OwnSteps::bind() {
  reached_now().erase(number_);  // A backward that an error ended may have left it.
  impl_.reset();
  if (world_.size() == 1) return;
  impl_ = std::make_shared<Impl>(world_, module_, optimizer_, options_, number_);
  impl_->begin();
}
OwnSteps::~OwnSteps() = default;

at::Tensor OwnSteps::step(const Closure& closure, const std::function<at::Tensor(Closure)>& own) {
  if (!impl_) return own(closure);
  if (closure) return impl_->step_with(closure, own);
  impl_->update(own);
  return {};
}

std::shared_ptr<void> OwnSteps::no_sync() {
  if (!impl_) return std::make_shared<int>();
  ++impl_->quiet;
  impl_->engine.exchange->expect_backward(false);
  return {nullptr, [impl = impl_](void*) {
            if (--impl->quiet == 0) impl->engine.exchange->expect_backward(true);
          }};
}

void OwnSteps::join() {
  if (impl_) impl_->join();
}
void OwnSteps::sync() {
  if (impl_) impl_->engine.sync_state();
}
int64_t OwnSteps::steps() const { return impl_ ? impl_->steps : 0; }

}  // namespace trireme
