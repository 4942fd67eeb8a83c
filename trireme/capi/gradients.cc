// The exchange of gradients for other languages. Gradients travel in the buckets of a plan, each
// as soon as it is full if the group works in the background, and otherwise at the end of the step
// (Li et al. 2020, "PyTorch Distributed", section 3.2.3). The facts of the step travel before
// them. With the samples of all ranks the sum of gradients is the mean: a sum over samples may be
// too large for float16.
#include <ATen/ops/zeros.h>
#include <fmt/ranges.h>
#include <trireme/base/error_parts.h>
#include <trireme/capi/handles.h>
#include <trireme/capi/step_checks.h>
#include <trireme/comm/dtype.h>
#include <trireme/parallel/bucket_progress.h>
#include <trireme/parallel/finite_gradient.h>
#include <trireme/parallel/own_faults.h>
#include <algorithm>
#include <map>
#include <optional>

using trireme::Error;
using trireme::Phase;
using namespace trireme::capi;

struct trireme_gradients : Bound {
  trireme_gradients(trireme_world& world, const trireme_tensor* const* parameters,
                    const char* const* names, int32_t count)
      : world_(world), everything_(world.bound) {
    world.world.own_loop()->require_not_left("trireme_gradients_new");
    if (count < 1) throw refused(fmt::format("{} parameters", count), "1 or more");
    for (int i = 0; i < count; ++i) {
      const std::string name = names && names[i] ? names[i] : fmt::format("parameter {}", i);
      const at::Tensor tensor = view_of(parameters ? parameters[i] : nullptr, name);
      if (!tensor.is_floating_point())
        throw refused(fmt::format("{} is of {}, which has no gradients", name,
                                  c10::toString(tensor.scalar_type())),
                      "parameters of a floating-point type");
      specs_.push_back({name, tensor.sizes().vec(), trireme::to_plan(tensor.scalar_type())});
      parameters_.push_back({name, tensor});
    }
    adopt(trireme::plan::plan_buckets(specs_, {}));
    trireme::listen_for_faults(world.world);
    world.world.own_loop()->before_leave.emplace_back(before_leave_);
    checks_.emplace(world.world.own_loop(), parameters_);
    bind();
    everything_->push_back(this);
  }
  ~trireme_gradients() override { std::erase(*everything_, static_cast<Bound*>(this)); }

  void bind() override {
    drop_step();
    finished_ = false;
    std::map<std::string, std::string> facts;
    for (size_t i = 0; i < parameters_.size(); ++i)
      facts[fmt::format("{:06}", i)] =
          fmt::format("{}: {}", parameters_[i].name, form_of(parameters_[i].tensor));
    world_.world.agree("parameters", facts);
    group_ = world_.world.make_groups(1)[0];
    checks_->bind(group_);
    for (const auto& [name, tensor] : parameters_) group_->broadcast(tensor, 0);
    // Newcomers of an elastic job know no order yet.
    knows_order_ = false;
    adopt(trireme::plan::plan_buckets(specs_, {}));
  }
  void unbind() override {
    drop_step();
    checks_->unbind();
    group_.reset();
  }

  StepChecks& checks() { return *checks_; }

  // Gives parameter `index` another place.
  void hold(int32_t index, const trireme_tensor* tensor) {
    auto& [name, held] = parameters_[at_index(index)];
    const std::string
        form = form_of(held),
        remedy = fmt::format(
            "what trireme_gradients_new was given, {}, or new gradients on all ranks", form);
    at::Tensor now;
    try {
      now = view_of(tensor, "parameter " + name);
    } catch (const Error& error) {
      checks_->refuse(trireme::parts_of(error).what, remedy);
    }
    if (form_of(now) != form)
      checks_->refuse(fmt::format("parameter {} is {} now", name, form_of(now)), remedy);
    held = now;
    checks_->compare_now();
  }

  void begin(int64_t samples) {
    if (!group_)
      throw refused("the world of these gradients has ended", "gradients of a world that lives");
    if (in_step_ && checks_->has_sent())
      throw refused("the step before has begun to travel and was not finished",
                    "trireme_gradients_finish on all ranks");
    if (samples < 1)
      checks_->refuse(fmt::format("{} samples", samples), "the number in the mean, 1 or more");
    trireme::OwnLoop& loop = *world_.world.own_loop();
    loop.require_not_left("a step");
    end_finished_step();
    loop.enter(Phase::backward);
    drop_step();
    in_step_ = true;
    own_samples_ = samples;
    if (travels_early()) checks_->send(samples);
  }

  void ready(int32_t index, const trireme_tensor* tensor) {
    if (!in_step_)
      throw refused("a gradient is ready, and no step has begun", "trireme_gradients_begin");
    const size_t i = at_index(index);
    if (progress_->is_ready(index))
      throw refused(
          fmt::format("the gradient of {} was handed over twice in one step", parameters_[i].name),
          "each gradient once, when it is complete");
    std::optional<at::Tensor> gradient = checked(i, tensor);
    at::Tensor place = place_of(i);
    if (gradient)
      place.copy_(gradient->reshape({-1}));
    else
      place.zero_();
    gradients_[i] = std::move(gradient);
    progress_->ready(index);
    if (!travels_early() || !knows_order_) return;
    while (works_.size() < plan_.buckets.size() && progress_->is_complete(works_.size())) send();
  }

  void finish() {
    if (!in_step_)
      checks_->refuse("no step has begun, and one is to be finished", "trireme_gradients_begin");
    for (size_t i = 0; i < parameters_.size(); ++i)
      if (!progress_->is_ready(static_cast<int>(i)))
        throw refused(fmt::format("the gradient of {} is missing", parameters_[i].name),
                      "trireme_gradients_ready for every parameter; NULL counts as zero");
    world_.world.own_loop()->enter(Phase::exchange);
    if (!checks_->has_sent()) checks_->send(own_samples_);
    const std::vector<int> order(progress_->order().begin(), progress_->order().end());
    early_ = works_.size();
    while (works_.size() < plan_.buckets.size()) send();
    bool all_finite = true;
    for (size_t b = 0; b < works_.size(); ++b) {
      works_[b]->wait();
      all_finite = all_finite && trireme::is_finite_gradient(flats_[b]);
    }
    // The caller's gradients are still those of this rank alone.
    nonfinite_rank_ = all_finite ? -1 : checks_->look_for_nonfinite(gradients_);
    for (size_t i = 0; i < parameters_.size(); ++i)
      if (gradients_[i]) gradients_[i]->reshape({-1}).copy_(place_of(i));
    drop_step(/*in_whole=*/true);
    if (!knows_order_ && travels_early()) learn(order);
    finished_ = true;
    world_.world.own_loop()->enter(Phase::optimizer);
  }

  void reduce(const trireme_tensor* const* tensors, int64_t samples) {
    // Wrong input is refused before anything travels.
    for (size_t i = 0; i < parameters_.size(); ++i) checked(i, tensors ? tensors[i] : nullptr);
    begin(samples);
    for (size_t i = parameters_.size(); i-- > 0;)
      ready(static_cast<int32_t>(i), tensors ? tensors[i] : nullptr);
    finish();
  }

  int32_t nonfinite_rank() const { return nonfinite_rank_; }
  int32_t early() const { return static_cast<int32_t>(early_); }
  int32_t buckets() const { return static_cast<int32_t>(plan_.buckets.size()); }

 private:
  size_t at_index(int32_t index) const {
    if (index < 0 || static_cast<size_t>(index) >= parameters_.size())
      throw refused(fmt::format("there is no parameter {}", index),
                    fmt::format("0 to {}", parameters_.size() - 1));
    return static_cast<size_t>(index);
  }
  // The step is over, whatever the caller did since its gradients were finished.
  bool end_finished_step() {
    return std::exchange(finished_, false) && world_.world.own_loop()->end_step(teller_);
  }
  bool travels_early() const { return group_->size() > 1 && group_->runs_in_background(); }

  void adopt(trireme::plan::BucketPlan plan) {
    plan_ = std::move(plan);
    progress_ = std::make_unique<trireme::BucketProgress>(plan_, parameters_);
    flats_.clear();
    places_.assign(parameters_.size(), {});
    for (size_t b = 0; b < plan_.buckets.size(); ++b) {
      const trireme::plan::Bucket& bucket = plan_.buckets[b];
      flats_.push_back(at::zeros({bucket.elements},
                                 at::TensorOptions().dtype(trireme::to_torch(bucket.dtype))));
      for (size_t k = 0; k < bucket.params.size(); ++k)
        places_[static_cast<size_t>(bucket.params[k])] = {b, bucket.offsets[k]};
    }
  }

  // From the next step on, buckets travel in the order in which rank 0's gradients were ready.
  void learn(const std::vector<int>& own) {
    at::Tensor order = at::zeros({static_cast<int64_t>(own.size())}, at::kLong);
    std::copy(own.begin(), own.end(), order.data_ptr<int64_t>());
    group_->broadcast(order, 0);
    const auto* const first = order.data_ptr<int64_t>();
    adopt(trireme::plan::plan_buckets(specs_, {}, std::vector<int>(first, first + order.numel())));
    knows_order_ = true;
  }

  std::optional<at::Tensor> checked(size_t i, const trireme_tensor* tensor) const {
    if (!tensor) return std::nullopt;
    const auto& [name, parameter] = parameters_[i];
    at::Tensor gradient = view_of(tensor, "the gradient of " + name);
    if (gradient.sizes() != parameter.sizes() || gradient.scalar_type() != parameter.scalar_type())
      throw refused(fmt::format("the gradient of {} is {}", name, form_of(gradient)),
                    fmt::format("the parameter's form, {}", form_of(parameter)));
    return gradient;
  }

  at::Tensor place_of(size_t i) const {
    const auto [bucket, offset] = places_[i];
    return flats_[bucket].narrow(0, offset, parameters_[i].tensor.numel());
  }

  // The next bucket of the plan.
  void send() {
    if (!weight_)
      weight_ = static_cast<double>(own_samples_) / static_cast<double>(checks_->samples_of_all());
    const at::Tensor& flat = flats_[works_.size()];
    if (*weight_ != 1) flat.mul_(*weight_);
    works_.push_back(group_->all_reduce_async(flat));
    works_.back()->start();
  }

  void drop_step(bool in_whole = false) {
    in_step_ = false;
    works_.clear();
    weight_.reset();
    checks_->end_step(in_whole);
    gradients_.assign(parameters_.size(), std::nullopt);
    if (progress_) progress_->next_step();
  }

  trireme_world& world_;
  const std::shared_ptr<std::vector<Bound*>> everything_;
  std::vector<trireme::NamedTensor> parameters_;
  std::vector<trireme::plan::TensorSpec> specs_;
  std::optional<StepChecks> checks_;
  std::shared_ptr<trireme::Group> group_;
  trireme::plan::BucketPlan plan_;
  std::unique_ptr<trireme::BucketProgress> progress_;
  std::vector<at::Tensor> flats_;  // One for each bucket.
  struct Place {
    size_t bucket = 0;
    int64_t offset = 0;
  };
  std::vector<Place> places_;  // By parameter.
  bool knows_order_ = false;
  bool finished_ = false;  // A step was finished, and the next one has not begun.
  const std::shared_ptr<const void> teller_ = std::make_shared<int>();
  // The others may be in the next step: the coordinator then sees at once that this rank is not.
  const std::shared_ptr<const std::function<void()>> before_leave_ =
      std::make_shared<const std::function<void()>>([this] {
        if (end_finished_step()) world_.world.own_loop()->enter(Phase::leaving);
      });
  // The state of the step under way follows.
  bool in_step_ = false;
  int64_t own_samples_ = 1;
  std::optional<double> weight_;
  std::vector<std::optional<at::Tensor>> gradients_;  // The caller's, by parameter.
  std::vector<trireme::WorkPtr> works_;               // The sent buckets, in the plan's order.
  size_t early_ = 0;  // The number of buckets of the last step that left before its end.
  int32_t nonfinite_rank_ = -1;  // In the last step.
};

extern "C" {

trireme_status trireme_gradients_new(trireme_world* world, const trireme_tensor* const* parameters,
                                     const char* const* names, int32_t count,
                                     trireme_gradients** gradients) {
  return guarded([&] {
    given(gradients, "the place for the gradients") = nullptr;
    *gradients = new trireme_gradients(given(world, "the world"), parameters, names, count);
  });
}
trireme_status trireme_gradients_reduce(trireme_gradients* gradients,
                                        const trireme_tensor* const* tensors, int64_t samples) {
  return guarded([&] { given(gradients, "the gradients").reduce(tensors, samples); });
}
trireme_status trireme_gradients_begin(trireme_gradients* gradients, int64_t samples) {
  return guarded([&] { given(gradients, "the gradients").begin(samples); });
}
trireme_status trireme_gradients_ready(trireme_gradients* gradients, int32_t index,
                                       const trireme_tensor* tensor) {
  return guarded([&] { given(gradients, "the gradients").ready(index, tensor); });
}
trireme_status trireme_gradients_finish(trireme_gradients* gradients) {
  return guarded([&] { given(gradients, "the gradients").finish(); });
}
trireme_status trireme_gradients_fact(trireme_gradients* gradients, const char* name,
                                      const char* value) {
  return guarded([&] {
    given(gradients, "the gradients").checks().set_fact(&given(name, "the name"), value);
  });
}
trireme_status trireme_gradients_hold(trireme_gradients* gradients, int32_t index,
                                      const trireme_tensor* tensor) {
  return guarded([&] { given(gradients, "the gradients").hold(index, tensor); });
}
trireme_status trireme_gradients_check_every(trireme_gradients* gradients, int64_t steps) {
  return guarded([&] { given(gradients, "the gradients").checks().check_every(steps); });
}
trireme_status trireme_gradients_skip_nonfinite(trireme_gradients* gradients, int skips) {
  return guarded([&] { given(gradients, "the gradients").checks().skip_nonfinite(skips != 0); });
}
int32_t trireme_gradients_nonfinite_rank(const trireme_gradients* gradients) {
  return gradients ? gradients->nonfinite_rank() : -1;
}
trireme_status trireme_gradients_refuse(trireme_gradients* gradients, const char* what,
                                        const char* remedy) {
  return guarded([&] {
    given(gradients, "the gradients")
        .checks()
        .refuse(&given(what, "the reason"), &given(remedy, "the remedy"));
  });
}
int32_t trireme_gradients_buckets(const trireme_gradients* gradients) {
  return gradients ? gradients->buckets() : -1;
}
int32_t trireme_gradients_sent_early(const trireme_gradients* gradients) {
  return gradients ? gradients->early() : -1;
}
void trireme_gradients_free(trireme_gradients* gradients) { delete gradients; }

}  // extern "C"
