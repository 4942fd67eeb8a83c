#include <torch/nn/module.h>

#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/tensor/deferred_model.h>
#include <trireme/tensor/hollow.h>
#include <map>
#include <utility>

namespace trireme {
namespace {

using Kind = ConstructionPass::Kind;

std::map<std::string, at::Tensor> registered_tensors(const torch::nn::Module& module) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& all : {module.named_parameters(), module.named_buffers()})
    for (const auto& each : all)
      if (each.value().defined() && each.value().has_storage())
        tensors.emplace(each.key(), each.value());
  return tensors;
}

at::Tensor tensor_named(const std::map<std::string, at::Tensor>& tensors,
                        const std::string& name) {
  const auto found = tensors.find(name);
  if (found == tensors.end())
    throw Error(ErrorCode::invalid_argument, "tensor",
                "the model has no parameter or buffer '" + name + "'",
                "a name of named_parameters() or named_buffers()");
  return found->second;
}

std::shared_ptr<torch::nn::Module> run(const DeferredModel::Make& make, ConstructionPass& pass) {
  const ConstructionScope scope(pass);
  return make();
}

[[noreturn]] void refuse_another_model(const std::string& what) {
  throw Error(ErrorCode::unsupported, "tensor",
              "the model's factory made another model when it was called again: " + what,
              "a factory that does the same at each call, and keeps no tensors between calls");
}

}  // namespace

DeferredModel::DeferredModel(Make make) : make_(std::move(make)) { record(); }

void DeferredModel::record() {
  recording_ = std::make_unique<ConstructionPass>(Kind::recording);
  if (can_intercept_construction()) {
    try {
      module_ = run(make_, *recording_);
    } catch (const Error& error) {
      // All others are errors of the factory, which it would throw again.
      if (error.code() != ErrorCode::unsupported) throw;
      obstacle_ = brief(error);
    } catch (const std::exception& error) {
      obstacle_ = brief(error);
    }
  } else {
    obstacle_ = "this LibTorch does not let operations be intercepted below autograd";
  }
  if (!obstacle_.empty()) {
    log_warning("the whole model is allocated while it is made: {}", obstacle_);
    restore(recording_->record().states_before());
    recording_ = std::make_unique<ConstructionPass>(Kind::ordinary);
    module_ = run(make_, *recording_);
  }
  const ConstructionRecord& record = recording_->record();
  restore(record.states_before());
  std::set<int> registered;
  for (const auto& [name, tensor] : registered_tensors(*module_))
    if (const auto number = record.number_of(tensor.storage())) {
      registered.insert(*number);
      make_hollow(tensor);
    }
  for (int number = 0; number < record.storages(); ++number)
    if (!registered.contains(number) && is_hollow(record.storage(number)))
      unregistered_.insert(number);
}

std::set<int> DeferredModel::numbers_of(const std::set<std::string>& names) const {
  const auto tensors = registered_tensors(*module_);
  std::set<int> numbers;
  for (const std::string& name : names) {
    const at::Tensor tensor = tensor_named(tensors, name);
    if (!is_hollow(tensor)) continue;
    const auto number = recording_->record().number_of(tensor.storage());
    if (!number)
      throw Error(ErrorCode::unsupported, "tensor",
                  "the storage of '" + name + "' was not made with the model",
                  "conversions of the module in the function that makes it");
    numbers.insert(*number);
  }
  return numbers;
}

std::unique_ptr<ConstructionPass> DeferredModel::make_again(const std::set<int>& wanted) {
  const ConstructionRecord& record = recording_->record();
  if (obstacle_.empty()) {
    try {
      auto pass = std::make_unique<ConstructionPass>(record, wanted);
      run(make_, *pass);
      return pass;
    } catch (const std::exception& error) {
      obstacle_ = brief(error);
      log_warning("the whole model is allocated while it is made: {}", obstacle_);
      restore(record.states_before());
    }
  }
  auto pass = std::make_unique<ConstructionPass>(Kind::ordinary, wanted);
  run(make_, *pass);
  return pass;
}

void DeferredModel::materialise(const std::set<std::string>& names) {
  std::set<int> wanted = numbers_of(names);
  wanted.merge(std::exchange(unregistered_, {}));
  if (wanted.empty() && !is_first_) return;
  const ConstructionRecord& record = recording_->record();
  const auto states = states_now(record.states_before());
  restore(record.states_before());
  const std::unique_ptr<ConstructionPass> pass = make_again(wanted);
  for (const int number : wanted) {
    const c10::Storage to = record.storage(number), from = pass->kept(number);
    if (!to) continue;  // It was unregistered, and nobody holds it any more.
    if (!from || is_hollow(from) || from.nbytes() != to.nbytes())
      refuse_another_model("a tensor is missing or has another size");
    move_memory(from, to);
  }
  if (!std::exchange(is_first_, false)) restore(states);
}

void DeferredModel::release(const std::set<std::string>& names) {
  const auto tensors = registered_tensors(*module_);
  for (const std::string& name : names) make_hollow(tensor_named(tensors, name));
}

}  // namespace trireme
