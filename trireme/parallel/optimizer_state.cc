#include <torch/optim.h>
#include <torch/serialize/archive.h>

#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/parallel/layerwise.h>
#include <trireme/parallel/model_device.h>
#include <trireme/parallel/optimizer.h>
#include <cstring>
#include <sstream>

namespace trireme {
namespace {

// Visits the parts of one parameter's state, in the same way for saving and loading, by
// visit(name, value, setter).
template <typename Visit>
void visit_parts(torch::optim::SGDParamState& s, Visit visit) {
  visit("momentum_buffer", s.momentum_buffer(), [&](at::Tensor t) { s.momentum_buffer(t); });
}
template <typename State, typename Visit>
void visit_adam_parts(State& s, Visit visit) {
  visit("step", s.step(), [&](int64_t n) { s.step(n); });
  visit("exp_avg", s.exp_avg(), [&](at::Tensor t) { s.exp_avg(t); });
  visit("exp_avg_sq", s.exp_avg_sq(), [&](at::Tensor t) { s.exp_avg_sq(t); });
  visit("max_exp_avg_sq", s.max_exp_avg_sq(), [&](at::Tensor t) { s.max_exp_avg_sq(t); });
}
template <typename Visit>
void visit_parts(torch::optim::AdamParamState& s, Visit visit) {
  visit_adam_parts(s, visit);
}
template <typename Visit>
void visit_parts(torch::optim::AdamWParamState& s, Visit visit) {
  visit_adam_parts(s, visit);
}
template <typename Visit>
void visit_parts(torch::optim::RMSpropParamState& s, Visit visit) {
  visit("step", s.step(), [&](int64_t n) { s.step(n); });
  visit("square_avg", s.square_avg(), [&](at::Tensor t) { s.square_avg(t); });
  visit("momentum_buffer", s.momentum_buffer(), [&](at::Tensor t) { s.momentum_buffer(t); });
  visit("grad_avg", s.grad_avg(), [&](at::Tensor t) { s.grad_avg(t); });
}
template <typename Visit>
void visit_parts(torch::optim::AdagradParamState& s, Visit visit) {
  visit("step", s.step(), [&](int64_t n) { s.step(n); });
  visit("sum", s.sum(), [&](at::Tensor t) { s.sum(t); });
}

template <typename Visit>
void visit_parts(LarsParamState& s, Visit visit) {
  visit("momentum_buffer", s.momentum_buffer(), [&](at::Tensor t) { s.momentum_buffer(t); });
}
template <typename Visit>
void visit_parts(LambParamState& s, Visit visit) {
  visit("step", s.step(), [&](int64_t n) { s.step(n); });
  visit("exp_avg", s.exp_avg(), [&](at::Tensor t) { s.exp_avg(t); });
  visit("exp_avg_sq", s.exp_avg_sq(), [&](at::Tensor t) { s.exp_avg_sq(t); });
}

template <typename State>
struct Saver {
  OptimizerState& out;
  const std::string& parameter;
  template <typename Setter>
  void operator()(const char* part, const at::Tensor& value, Setter) const {
    if (value.defined()) out.tensors.push_back({std::string(part) + "/" + parameter, value});
  }
  template <typename Setter>
  void operator()(const char* part, int64_t value, Setter) const {
    out.counters[part][parameter] = value;
  }
};

template <typename State>
struct Restorer {
  const std::map<std::string, at::Tensor>& tensors;
  const Json& counters;
  const NamedTensor& parameter;
  bool* found;
  template <typename Setter>
  void operator()(const char* part, const at::Tensor&, Setter set) const {
    const auto entry = tensors.find(std::string(part) + "/" + parameter.name);
    if (entry == tensors.end()) return;
    if (entry->second.numel() != parameter.tensor.numel())
      throw Error(ErrorCode::invalid_argument, "parallel",
                  fmt::format("the optimizer state '{}' has {} elements, the parameter {}",
                              entry->first, entry->second.numel(), parameter.tensor.numel()),
                  "the checkpoint of the same model");
    set(entry->second.to(parameter.tensor.device(), parameter.tensor.scalar_type())
            .view(parameter.tensor.sizes())
            .clone());
    *found = true;
  }
  template <typename Setter>
  void operator()(const char* part, int64_t, Setter set) const {
    if (!counters.contains(part) || !counters[part].contains(parameter.name)) return;
    set(counters[part][parameter.name].template get<int64_t>());
    *found = true;
  }
};

template <typename State>
OptimizerState save_as(const char* kind, torch::optim::Optimizer& optimizer,
                       const std::vector<NamedTensor>& parameters) {
  OptimizerState out;
  out.kind = kind;
  for (const auto& parameter : parameters) {
    const auto found = optimizer.state().find(parameter.tensor.unsafeGetTensorImpl());
    if (found == optimizer.state().end()) continue;
    visit_parts(static_cast<State&>(*found->second), Saver<State>{out, parameter.name});
  }
  return out;
}

template <typename State>
void load_as(torch::optim::Optimizer& optimizer, const std::vector<NamedTensor>& parameters,
             const OptimizerState& saved) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& [name, tensor] : saved.tensors) tensors.emplace(name, tensor);
  for (const auto& parameter : parameters) {
    auto state = std::make_unique<State>();
    bool found = false;
    visit_parts(*state, Restorer<State>{tensors, saved.counters, parameter, &found});
    void* const key = parameter.tensor.unsafeGetTensorImpl();
    if (found)
      optimizer.state()[key] = std::move(state);
    else
      optimizer.state().erase(key);  // It had no state when the checkpoint was saved.
  }
}

// LBFGS leaves a list with undefined tensors in its state, which its archive cannot hold. Each
// step fills the list again before reading it.
void drop_scratch(torch::optim::Optimizer& optimizer) {
  if (dynamic_cast<torch::optim::LBFGS*>(&optimizer) == nullptr) return;
  for (auto& [parameter, state] : optimizer.state())
    static_cast<torch::optim::LBFGSParamState&>(*state).al(std::nullopt);
}

OptimizerState save_opaque(torch::optim::Optimizer& optimizer) {
  drop_scratch(optimizer);
  torch::serialize::OutputArchive archive;
  optimizer.save(archive);
  std::ostringstream stream;
  archive.save_to(stream);
  const std::string bytes = stream.str();
  at::Tensor blob = at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
  std::memcpy(blob.mutable_data_ptr(), bytes.data(), bytes.size());
  return {"opaque", {{"archive", blob}}, Json::object()};
}

void load_opaque(torch::optim::Optimizer& optimizer, const OptimizerState& saved,
                 at::Device device) {
  if (saved.tensors.size() != 1 || saved.tensors[0].tensor.scalar_type() != at::kByte)
    throw Error(ErrorCode::invalid_argument, "parallel",
                fmt::format("an opaque optimizer state of {} tensors is not an archive",
                            saved.tensors.size()),
                "the state that the same optimizer saved");
  const at::Tensor blob = saved.tensors[0].tensor.contiguous();
  std::istringstream stream(
      std::string(static_cast<const char*>(blob.const_data_ptr()), blob.nbytes()));
  torch::serialize::InputArchive archive;
  archive.load_from(stream, device);
  optimizer.state().clear();  // load() adds to the state.
  optimizer.load(archive);
}

}  // namespace

std::string kind_of(const torch::optim::Optimizer& optimizer) {
  if (dynamic_cast<const torch::optim::SGD*>(&optimizer)) return "SGD";
  if (dynamic_cast<const torch::optim::Adam*>(&optimizer)) return "Adam";
  if (dynamic_cast<const torch::optim::AdamW*>(&optimizer)) return "AdamW";
  if (dynamic_cast<const torch::optim::RMSprop*>(&optimizer)) return "RMSprop";
  if (dynamic_cast<const torch::optim::Adagrad*>(&optimizer)) return "Adagrad";
  if (dynamic_cast<const LarsOptimizer*>(&optimizer)) return "Lars";
  if (dynamic_cast<const LambOptimizer*>(&optimizer)) return "Lamb";
  return "opaque";
}

OptimizerState state_of(torch::optim::Optimizer& optimizer,
                        const std::vector<NamedTensor>& parameters) {
  const std::string kind = kind_of(optimizer);
  if (kind == "SGD") return save_as<torch::optim::SGDParamState>("SGD", optimizer, parameters);
  if (kind == "Adam") return save_as<torch::optim::AdamParamState>("Adam", optimizer, parameters);
  if (kind == "AdamW")
    return save_as<torch::optim::AdamWParamState>("AdamW", optimizer, parameters);
  if (kind == "RMSprop")
    return save_as<torch::optim::RMSpropParamState>("RMSprop", optimizer, parameters);
  if (kind == "Adagrad")
    return save_as<torch::optim::AdagradParamState>("Adagrad", optimizer, parameters);
  if (kind == "Lars") return save_as<LarsParamState>("Lars", optimizer, parameters);
  if (kind == "Lamb") return save_as<LambParamState>("Lamb", optimizer, parameters);
  return save_opaque(optimizer);
}

void load_state(torch::optim::Optimizer& optimizer, const std::vector<NamedTensor>& parameters,
                const OptimizerState& state) {
  const std::string kind = kind_of(optimizer);
  if (kind != state.kind)
    throw Error(
        ErrorCode::invalid_argument, "parallel",
        fmt::format("the checkpoint's optimizer is {}, this run's is {}", state.kind, kind),
        fmt::format("optimizer.name of the checkpoint ({}), or --fresh to start again",
                    state.kind));
  if (kind == "SGD") return load_as<torch::optim::SGDParamState>(optimizer, parameters, state);
  if (kind == "Adam") return load_as<torch::optim::AdamParamState>(optimizer, parameters, state);
  if (kind == "AdamW") return load_as<torch::optim::AdamWParamState>(optimizer, parameters, state);
  if (kind == "RMSprop")
    return load_as<torch::optim::RMSpropParamState>(optimizer, parameters, state);
  if (kind == "Adagrad")
    return load_as<torch::optim::AdagradParamState>(optimizer, parameters, state);
  if (kind == "Lars") return load_as<LarsParamState>(optimizer, parameters, state);
  if (kind == "Lamb") return load_as<LambParamState>(optimizer, parameters, state);
  load_opaque(optimizer, state, device_of(parameters));
}

}  // namespace trireme
