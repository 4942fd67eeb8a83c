#include <trireme/parallel/agreement.h>
#include <trireme/parallel/lone_steps.h>
#include <trireme/parallel/own_faults.h>
#include <trireme/parallel/own_steps_impl.h>
#include <exception>

namespace trireme {

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
  lone_.reset();
  if (loop_->world->size() == 1) {
    lone_ = std::make_shared<LoneSteps>(loop_, module_, optimizer_, options_);
    return;
  }
  impl_ = std::make_shared<Impl>(*loop_->world, module_, optimizer_, options_, number_, rebind_,
                                 part_number_);
  agree(*impl_->engine.group, {{"OwnStepsOptions::joins", options_.joins},
                               {"OwnStepsOptions::check_every", options_.check_every},
                               {"OwnStepsOptions::stop_on_nan", options_.stop_on_nan},
                               {"OwnStepsOptions::own_samples", options_.own_samples},
                               {"OwnStepsOptions::trains_apart", options_.trains_apart}});
  if (options_.joins && !loop_->turns)
    loop_->turns = std::make_unique<LoopTurns>(loop_->world->make_groups(1)[0], loop_->parts);
  impl_->begin();
}

at::Tensor OwnSteps::step(const Closure& closure, const std::function<at::Tensor(Closure)>& own) {
  at::Tensor loss;
  if (lone_) {
    loss = lone_->step(closure, own);
  } else if (closure) {
    loss = impl_->step_with(closure, own);
  } else {
    impl_->update(own);
  }
  if (impl_) loop_->begin(part_number_, Impl::kStep);
  if (loop_->end_step(rebind_)) loop_->enter(Phase::forward);
  return loss;
}

std::shared_ptr<void> OwnSteps::no_sync() {
  if (lone_) return lone_->no_sync();
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
