#include <trireme/base/hash.h>
#include <trireme/parallel/finite_gradient.h>
#include <trireme/parallel/flat_gradients.h>
#include <trireme/parallel/own_checks.h>
#include <algorithm>
#include <limits>
#include <utility>

namespace trireme {
namespace {

// A loss that is NaN makes whole gradients so. Of a large one the first values are looked at,
// because all of them would be one more pass over memory in each step.
constexpr int64_t kMostValuesLookedAt = int64_t{1} << 18;

}  // namespace

OwnChecks::OwnChecks(const std::vector<NamedTensor>& parameters, const OwnStepsOptions& options)
    : parameters_(parameters), wants_finite_(options.stop_on_nan), past_engine_(parameters) {
  if (!options.trains_apart) {
    apart_ = TrainedApart::of_process();
    apart_->know(parameters);
  }
  for (const auto& [name, tensor] : parameters_)
    were_finite_.push_back(wants_finite_ && is_finite_parameter(tensor));
  adopt_writes();
}

// A device would have to be waited for. Frozen parameters may be infinite, as a mask is.
bool OwnChecks::is_finite_parameter(const at::Tensor& tensor) const {
  return !tensor.is_cpu() || !tensor.requires_grad() || is_finite_gradient(tensor, tensor.numel());
}

// A value that became NaN unseen stays in its parameter, whose other values go on training.
ParameterChange OwnChecks::find_bad_parameter() const {
  for (size_t p = 0; p < parameters_.size(); ++p)
    if (were_finite_[p] && !is_finite_parameter(parameters_[p].tensor))
      return {Change::bad_parameter, static_cast<int>(p)};
  return {};
}

bool OwnChecks::has_never_had_gradients() {
  if (!has_had_gradients_) {
    const std::vector<bool> now = has_gradient(parameters_);
    has_had_gradients_ = std::ranges::find(now, true) != now.end();
  }
  return !has_had_gradients_;
}

void OwnChecks::look_at(int parameter) {
  if (!wants_finite_ || not_finite_ >= 0) return;
  const at::Tensor& gradient = parameters_[static_cast<size_t>(parameter)].tensor.grad();
  const int64_t most = looks_at_all() ? std::numeric_limits<int64_t>::max() : kMostValuesLookedAt;
  if (gradient.defined() && !is_finite_gradient(gradient, most)) not_finite_ = parameter;
}

ParameterChange OwnChecks::find(int64_t step) {
  count_moves();
  past_engine_.look();
  if (not_finite_ >= 0) return {Change::not_finite, std::exchange(not_finite_, -1)};
  if (const auto found = apart_ ? apart_->find_change() : ParameterChange();
      found.change != Change::none)
    return found;
  if (past_engine_.are_too_many()) return {Change::past_engine, static_cast<int>(step)};
  if (wants_finite_ && looks_at_all()) return find_bad_parameter();
  return {};
}

uint64_t OwnChecks::writes() const { return 1 + count_versions() - versions_ + moves_; }

void OwnChecks::adopt_writes() {
  versions_ = count_versions();
  places_ = mix_of_places();
  moves_ = 0;
  past_engine_.adopt();
}

void OwnChecks::update(const std::function<void()>& own) {
  const uint64_t before = count_versions();
  own();
  versions_ += count_versions() - before;
}

void OwnChecks::end_evaluation() { past_engine_.forget(); }

void OwnChecks::end_step() {
  end_evaluation();
  ++steps_;
  if (apart_) apart_->end_step();
}

uint64_t OwnChecks::count_versions() const {
  uint64_t count = 0;
  for (const auto& [name, tensor] : parameters_)
    if (!tensor.is_inference())
      count += tensor.unsafeGetTensorImpl()->version_counter().current_version();
  return count;
}

// torch::load() gives a parameter other memory, and does not count as a write.
uint64_t OwnChecks::mix_of_places() const {
  uint64_t mix = 0;
  for (const auto& [name, tensor] : parameters_)
    if (tensor.has_storage())
      mix = mix64(mix, reinterpret_cast<uintptr_t>(tensor.storage().data()));
  return mix;
}

void OwnChecks::count_moves() {
  if (const uint64_t now = mix_of_places(); std::exchange(places_, now) != now) ++moves_;
}

}  // namespace trireme
