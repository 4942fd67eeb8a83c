#include <torch/nn/module.h>

#include <fmt/format.h>

#include <trireme/parallel/parameter_changes.h>
#include <algorithm>
#include <unordered_set>

namespace trireme {
namespace {

const char* const kNewEngine =
    "such a change before Distributed or DataParallel is made, or a new one after it";

Error refuse(const std::string& what, const std::string& remedy) {
  return Error(ErrorCode::invalid_argument, "parallel", what, remedy);
}

Error another(const std::string& whose, const char* what) {
  return refuse(fmt::format("{} has another {} than when its engine was made", whose, what),
                kNewEngine);
}

Error changed_while_shared(const std::string& whose, const char* how) {
  return refuse(fmt::format("{} {}, but all replicas of a host share one copy of it", whose, how),
                "change parameters inside modify_parameters(), or set share_parameters to false");
}

}  // namespace

Error change_error(int rank, ParameterChange found, std::span<const std::string> names) {
  const auto index = static_cast<size_t>(found.parameter);
  const std::string name =
      index < names.size() && found.change != Change::unknown ? names[index] : std::string();
  const std::string whose = fmt::format("rank {}: parameter '{}'", rank, name);
  switch (found.change) {
    case Change::type: return another(whose, "type");
    case Change::shape: return another(whose, "shape");
    case Change::device:
      return refuse(whose + " is on another device than when its engine was made",
                    "module.to(device) before Distributed or DataParallel is made");
    case Change::layout: return another(whose, "layout in memory");
    case Change::unfrozen:
      return refuse(
          whose + " has a gradient, but it was frozen when its engine was made",
          "requires_grad_(true) before Distributed or DataParallel is made, or a new one after "
          "it");
    case Change::replaced:
      return refuse(
          whose + " was replaced after its engine was made, and the new one would not be trained",
          kNewEngine);
    case Change::unknown:
      return refuse(fmt::format("rank {}: number {} of the module's parameters, in the order of "
                                "named_parameters(), was registered after its engine was made, "
                                "and would not be trained",
                                rank, index + 1),
                    kNewEngine);
    case Change::moved:
      return changed_while_shared(whose, "now has another storage (module.to(), load, set_data)");
    case Change::no_backward:
      return refuse(
          fmt::format("rank {}, step {}: step() without a backward() that reached a parameter of "
                      "its model",
                      rank, found.parameter),
          "loss.backward() before each step() on every rank, by a loss of the model that the "
          "optimizer was made with");
    case Change::own_alone:
      return refuse(fmt::format("rank {}, step {}: step() after a backward() under no_sync(): its "
                                "gradients are those of this rank alone",
                                rank, found.parameter),
                    "the last backward() before step() outside no_sync()");
    case Change::negative_samples:
      return refuse(fmt::format("rank {}: backward() with {} samples", rank, found.parameter),
                    "the number of samples in the mean loss");
    case Change::no_scalar:
      return refuse(fmt::format("rank {}: the loss has {} elements", rank, found.parameter),
                    "a scalar, such as its mean");
    case Change::not_finite:
      return Error(ErrorCode::internal, "parallel",
                   fmt::format("rank {}: the gradient of parameter '{}' is NaN or infinite: the "
                               "loss is, or a value that it is computed from",
                               rank, name),
                   "a look at that rank's loss and data, or a smaller learning rate. "
                   "OwnStepsOptions::stop_on_nan = false leaves such gradients to the loop");
    case Change::bad_parameter:
      return Error(ErrorCode::internal, "parallel",
                   whose + " has values that are NaN or infinite: an update has made them so",
                   "a checkpoint of before, and a look at the losses since then, or a smaller "
                   "learning rate. OwnStepsOptions::stop_on_nan = false leaves it to the loop");
    case Change::no_gradients:
      return refuse(fmt::format("rank {}, step {}: step() without gradients: they were cleared "
                                "behind backward(), and nothing would be trained",
                                rank, found.parameter),
                    "zero_grad() before backward(), or behind step()");
    case Change::trained_apart:
      return refuse(fmt::format("rank {}: a tensor of {} elements gets gradients and is updated, "
                                "but no Distributed or DataParallel has it: each rank trains one "
                                "of its own",
                                rank, found.parameter),
                    "a Distributed for its optimizer too, with the model that registers it. "
                    "OwnStepsOptions::trains_apart = true if each rank is to train its own");
    case Change::past_engine:
      return refuse(
          fmt::format("rank {}, step {}: the parameters are updated behind each backward(), but "
                      "not by the step() of their Distributed optimizer",
                      rank, found.parameter),
          "step() of the Distributed optimizer, and no other optimizer for these parameters");
    case Change::past_replica:
      return refuse(
          fmt::format("rank {}, step {}: the parameters are updated behind loss.backward(), but "
                      "not by the step() of their DataParallel: the ranks do not get each other's "
                      "gradients",
                      rank, found.parameter),
          "call replica.step(loss, samples) in the place of loss.backward() and optimizer.step(). "
          "trireme::Distributed leaves both as they are, and DataParallelOptions::trains_apart is "
          "for loops that are meant to do so");
    case Change::rewritten: return changed_while_shared(whose, "was written in place");
    case Change::told:
      return refuse(fmt::format("rank {} has refused the step", rank), "its text");
    case Change::none: break;
  }
  return Error(ErrorCode::internal, "parallel", whose + " did not change");
}

std::vector<std::string> names_of(const std::vector<NamedTensor>& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  return names;
}

ParameterForms::ParameterForms(const torch::nn::Module& module,
                               std::vector<NamedTensor> parameters)
    : module_(module), parameters_(std::move(parameters)) {
  for (const auto& [name, tensor] : parameters_)
    forms_.push_back({tensor.scalar_type(), tensor.device(), tensor.sizes().vec(),
                      tensor.requires_grad(), tensor.is_contiguous()});
}

ParameterChange ParameterForms::find_new_form() const {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& now = parameters_[i].tensor;
    const Form& form = forms_[i];
    const auto index = static_cast<int>(i);
    if (now.scalar_type() != form.type) return {Change::type, index};
    if (now.device() != form.device) return {Change::device, index};
    if (now.sizes() != at::IntArrayRef(form.shape)) return {Change::shape, index};
    if (form.contiguous && !now.is_contiguous()) return {Change::layout, index};
  }
  return {};
}

ParameterChange ParameterForms::find_change() {
  if (const ParameterChange found = find_new_form(); found.change != Change::none) return found;
  int without_gradient = 0;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const bool has = parameters_[i].tensor.grad().defined();
    // No step uses a gradient from before the parameter was frozen.
    if (has && !forms_[i].trainable && parameters_[i].tensor.requires_grad())
      return {Change::unfrozen, static_cast<int>(i)};
    without_gradient += !has;
  }
  const bool others_are_missing =
      std::exchange(without_gradient_, without_gradient) != without_gradient;
  if (others_are_missing || looks_++ % kStepsBetweenWalks == 0) return find_foreign();
  return {};
}

// A walk over the module costs more than all other checks together.
ParameterChange ParameterForms::find_foreign() const {
  std::unordered_set<const void*> known;
  for (const auto& [name, tensor] : parameters_) known.insert(tensor.unsafeGetTensorImpl());
  const auto now = module_.named_parameters();
  for (size_t i = 0; i < now.size(); ++i) {
    if (!now[i].value().requires_grad() || known.contains(now[i].value().unsafeGetTensorImpl()))
      continue;
    const auto before = std::ranges::find(parameters_, now[i].key(), &NamedTensor::name);
    if (before != parameters_.end())
      return {Change::replaced, static_cast<int>(before - parameters_.begin())};
    return {Change::unknown, static_cast<int>(i)};
  }
  return {};
}

}  // namespace trireme
