#include <ATen/core/grad_mode.h>
#include <torch/optim/serialize.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/parallel/fused/fused_optimizer.h>
#include <trireme/parallel/layerwise.h>
#include <trireme/parallel/module_state.h>
#include <numeric>

namespace trireme {
namespace {

using torch::serialize::InputArchive;
using torch::serialize::OutputArchive;

template <typename Value>
void write(OutputArchive& archive, const char* name, const Value& value) {
  archive.write(name, c10::IValue(value));
}
template <typename Value>
void read(InputArchive& archive, const char* name, Value& value) {
  c10::IValue found;
  if (archive.try_read(name, found)) value = found.to<Value>();
}

void require(bool holds, const char* optimizer, const std::string& what) {
  if (!holds)
    throw Error(ErrorCode::invalid_argument, "parallel", fmt::format("{}: {}", optimizer, what));
}

// Steps one replica alone, with the fused kernels on whole parameters.
at::Tensor step_alone(torch::optim::Optimizer& optimizer,
                      const torch::optim::Optimizer::LossClosure& closure) {
  at::Tensor loss;
  if (closure) {
    const at::AutoGradMode enable_grad(true);
    loss = closure();
  }
  std::vector<NamedTensor> parameters;
  for (const auto& group : optimizer.param_groups())
    for (const at::Tensor& parameter : group.params())
      parameters.push_back({std::to_string(parameters.size()), parameter});
  const auto fused = fused::FusedOptimizer::of(optimizer, parameters);
  if (!fused)
    throw Error(ErrorCode::unsupported, "parallel",
                "a parameter is not contiguous float32 or float64 of the CPU, and Lars and Lamb "
                "have kernels for these alone",
                "float32 masters of it, or an optimizer of torch::optim on another device");
  std::vector<int> all(parameters.size());
  std::iota(all.begin(), all.end(), 0);
  fused::update_alone(*fused, parameters, all);
  return loss;
}

}  // namespace

void LarsOptions::serialize(OutputArchive& archive) const {
  write(archive, "lr", lr());
  write(archive, "momentum", momentum());
  write(archive, "weight_decay", weight_decay());
  write(archive, "trust", trust());
  write(archive, "adapt_vectors", adapt_vectors());
}
void LarsOptions::serialize(InputArchive& archive) {
  read(archive, "lr", lr_);
  read(archive, "momentum", momentum_);
  read(archive, "weight_decay", weight_decay_);
  read(archive, "trust", trust_);
  read(archive, "adapt_vectors", adapt_vectors_);
}
void LarsParamState::serialize(OutputArchive& archive) const {
  archive.write("momentum_buffer", momentum_buffer(), true);
}
void LarsParamState::serialize(InputArchive& archive) {
  archive.try_read("momentum_buffer", momentum_buffer_, true);
}

LarsOptimizer::LarsOptimizer(std::vector<at::Tensor> parameters, LarsOptions defaults)
    : Optimizer({std::move(parameters)}, std::make_unique<LarsOptions>(defaults)) {
  require(defaults.lr() >= 0, "Lars", fmt::format("a learning rate of {}", defaults.lr()));
  require(defaults.momentum() >= 0 && defaults.momentum() < 1, "Lars",
          fmt::format("a momentum of {}, outside 0..1", defaults.momentum()));
  require(defaults.weight_decay() >= 0, "Lars",
          fmt::format("a weight decay of {}", defaults.weight_decay()));
  require(defaults.trust() > 0, "Lars",
          fmt::format("a trust coefficient of {}, which must be above 0", defaults.trust()));
}
at::Tensor LarsOptimizer::step(LossClosure closure) { return step_alone(*this, closure); }
void LarsOptimizer::save(OutputArchive& archive) const {
  torch::optim::serialize<LarsParamState, LarsOptions>(archive, *this);
}
void LarsOptimizer::load(InputArchive& archive) {
  torch::optim::serialize<LarsParamState, LarsOptions>(archive, *this);
}

void LambOptions::serialize(OutputArchive& archive) const {
  write(archive, "lr", lr());
  write(archive, "beta1", beta1());
  write(archive, "beta2", beta2());
  write(archive, "eps", eps());
  write(archive, "weight_decay", weight_decay());
  write(archive, "adapt_vectors", adapt_vectors());
}
void LambOptions::serialize(InputArchive& archive) {
  read(archive, "lr", lr_);
  read(archive, "beta1", beta1_);
  read(archive, "beta2", beta2_);
  read(archive, "eps", eps_);
  read(archive, "weight_decay", weight_decay_);
  read(archive, "adapt_vectors", adapt_vectors_);
}
void LambParamState::serialize(OutputArchive& archive) const {
  write(archive, "step", step());
  archive.write("exp_avg", exp_avg(), true);
  archive.write("exp_avg_sq", exp_avg_sq(), true);
}
void LambParamState::serialize(InputArchive& archive) {
  read(archive, "step", step_);
  archive.try_read("exp_avg", exp_avg_, true);
  archive.try_read("exp_avg_sq", exp_avg_sq_, true);
}

LambOptimizer::LambOptimizer(std::vector<at::Tensor> parameters, LambOptions defaults)
    : Optimizer({std::move(parameters)}, std::make_unique<LambOptions>(defaults)) {
  require(defaults.lr() >= 0, "Lamb", fmt::format("a learning rate of {}", defaults.lr()));
  require(defaults.beta1() >= 0 && defaults.beta1() < 1, "Lamb",
          fmt::format("beta1 of {}, outside 0..1", defaults.beta1()));
  require(defaults.beta2() >= 0 && defaults.beta2() < 1, "Lamb",
          fmt::format("beta2 of {}, outside 0..1", defaults.beta2()));
  require(defaults.eps() >= 0, "Lamb", fmt::format("eps of {}", defaults.eps()));
  require(defaults.weight_decay() >= 0, "Lamb",
          fmt::format("a weight decay of {}", defaults.weight_decay()));
}
at::Tensor LambOptimizer::step(LossClosure closure) { return step_alone(*this, closure); }
void LambOptimizer::save(OutputArchive& archive) const {
  torch::optim::serialize<LambParamState, LambOptions>(archive, *this);
}
void LambOptimizer::load(InputArchive& archive) {
  torch::optim::serialize<LambParamState, LambOptions>(archive, *this);
}

}  // namespace trireme
