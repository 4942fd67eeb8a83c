#include <torch/optim/optimizer.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/parallel/fused/fused_optimizer.h>
#include <trireme/parallel/fused/rules.h>
#include <trireme/parallel/optimizer.h>
#include <algorithm>
#include <array>

namespace trireme::fused {
namespace {

constexpr int64_t kPieceElements = 64 << 10;

template <typename Rule>
class Fused : public FusedOptimizer {
 public:
  Fused(torch::optim::Optimizer& optimizer, const std::vector<NamedTensor>& parameters)
      : optimizer_(optimizer) {
    for (const auto& [name, tensor] : parameters) parts_.push_back({name, tensor});
  }

  // Reads the groups. Returns whether every parameter of the optimizer is in the list and of a
  // kind that kernels know. Otherwise nothing changes.
  bool fits() {
    std::vector<int> group_of(parts_.size(), -1);
    size_t known = 0;
    for (size_t group = 0; group < optimizer_.param_groups().size(); ++group) {
      for (const at::Tensor& tensor : optimizer_.param_groups()[group].params()) {
        const auto part = static_cast<size_t>(
            std::ranges::find_if(parts_,
                                 [&](const Part& each) { return each.tensor.is_same(tensor); }) -
            parts_.begin());
        const bool knows =
            tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble;
        if (part == parts_.size() || group_of[part] >= 0 || !knows || !tensor.is_contiguous() ||
            !tensor.is_cpu())
          return false;
        group_of[part] = static_cast<int>(group);
        ++known;
      }
    }
    if (known == 0) return false;
    for (size_t part = 0; part < parts_.size(); ++part) parts_[part].group = group_of[part];
    groups_ = tensors_of_groups();
    return true;
  }

  bool has(int parameter) const override { return part(parameter).group >= 0; }
  bool has_new_groups() const override { return tensors_of_groups() != groups_; }

  int state_tensors(int parameter) const override {
    return part(parameter).group < 0 ? 0 : Rule::tensors(options(part(parameter)));
  }

  void place_state(int parameter, std::vector<at::Tensor> places, bool copy) override {
    const torch::NoGradGuard no_grad;
    Part& mine = part(parameter);
    mine.places = std::move(places);
    are_placed_ = true;
    typename Rule::State* const state = find_state(mine);
    std::array<at::Tensor, 3> values;
    if (state) values = Rule::get(*state);
    for (size_t i = 0; copy && i < mine.places.size(); ++i) {
      if (values[i].defined())
        mine.places[i].copy_(values[i].view_as(mine.places[i]));
      else if (mine.has_state)
        mine.places[i].zero_();  // The old state was taken away.
    }
    if (state) Rule::set(*state, mine.places);
    mine.has_state = state != nullptr;
  }

  bool state_is_placed(int parameter) const override {
    const Part& mine = part(parameter);
    const typename Rule::State* const state = find_state(mine);
    if (!state) return !mine.has_state;
    const auto values = Rule::get(*state);
    for (size_t i = 0; i < mine.places.size(); ++i)
      if (!values[i].defined() || values[i].const_data_ptr() != mine.places[i].const_data_ptr())
        return false;
    return true;
  }

  std::vector<int> begin_step(const std::vector<int>& parameters) override {
    if (has_new_groups() && !fits())
      throw Error(ErrorCode::unsupported, "parallel",
                  "the optimizer's parameter groups changed, and one of them has a parameter that "
                  "is not contiguous float32 or float64 of the CPU, or was not there before",
                  "make a new DataParallel with the new groups");
    std::vector<int> optimized;
    for (const int parameter : parameters) {
      Part& mine = part(parameter);
      if (mine.group < 0) continue;
      optimized.push_back(parameter);
      const auto needed = static_cast<size_t>(Rule::tensors(options(mine)));
      typename Rule::State* state = find_state(mine);
      if (!are_placed_) mine.places = own_places(mine, state, needed);
      if (mine.places.size() < needed)
        throw Error(
            ErrorCode::unsupported, "parallel",
            fmt::format(
                "the optimizer's options for '{}' now need {} state tensors, but {} were planned",
                mine.name, needed, mine.places.size()),
            "momentum, amsgrad and similar options set before the engine is made");
      const bool first = state == nullptr;
      if (first) {
        auto made = std::make_unique<typename Rule::State>();
        state = made.get();
        Rule::set(*state, mine.places);
        optimizer_.state()[mine.tensor.unsafeGetTensorImpl()] = std::move(made);
        mine.has_state = true;
      }
      mine.kernel = Rule::begin(*state, options(mine), first);
      if constexpr (Rule::kLayerwise) Rule::know_shape(mine.kernel, mine.tensor.dim());
      for (size_t i = 0; i < mine.places.size(); ++i)
        mine.state[i] = mine.places[i].mutable_data_ptr();
      mine.data = mine.tensor.mutable_data_ptr();
      mine.is_double = mine.tensor.scalar_type() == at::kDouble;
    }
    return optimized;
  }

  void update(const Range& range, const void* gradient) override {
    Part& mine = part(range.parameter);
    mine.is_double ? run<double>(mine, range, gradient) : run<float>(mine, range, gradient);
  }

  bool layerwise() const override { return Rule::kLayerwise; }
  Squares measure(const Range& range, const void* gradient) override {
    if constexpr (Rule::kLayerwise) {
      Part& mine = part(range.parameter);
      return mine.is_double ? measure_as<double>(mine, range, gradient)
                            : measure_as<float>(mine, range, gradient);
    }
    return {};
  }
  void set_norms(int parameter, const Squares& squares) override {
    if constexpr (Rule::kLayerwise) Rule::know_norms(part(parameter).kernel, squares);
  }

 private:
  struct Part {
    std::string name;
    at::Tensor tensor;
    int group = -1;  // The optimizer's group, or -1 if it has no such parameter.
    std::vector<at::Tensor> places;
    bool has_state = false;  // The places hold state.
    // The state of the current step follows.
    typename Rule::Kernel kernel{};
    std::array<void*, 3> state{};
    void* data = nullptr;
    bool is_double = false;
  };

  // The parameters of all groups in order. A null ends each group.
  std::vector<const void*> tensors_of_groups() const {
    std::vector<const void*> tensors;
    for (const auto& group : optimizer_.param_groups()) {
      for (const at::Tensor& tensor : group.params())
        tensors.push_back(tensor.unsafeGetTensorImpl());
      tensors.push_back(nullptr);
    }
    return tensors;
  }
  Part& part(int parameter) { return parts_[static_cast<size_t>(parameter)]; }
  const Part& part(int parameter) const { return parts_[static_cast<size_t>(parameter)]; }
  const typename Rule::Options& options(const Part& mine) const {
    return static_cast<const typename Rule::Options&>(
        optimizer_.param_groups()[static_cast<size_t>(mine.group)].options());
  }
  typename Rule::State* find_state(const Part& mine) const {
    const auto found = optimizer_.state().find(mine.tensor.unsafeGetTensorImpl());
    return found == optimizer_.state().end()
               ? nullptr
               : static_cast<typename Rule::State*>(found->second.get());
  }

  // If no places were given, the state is this replica's own, as in torch::optim.
  static std::vector<at::Tensor> own_places(const Part& mine, typename Rule::State* state,
                                            size_t needed) {
    std::array<at::Tensor, 3> values;
    if (state) values = Rule::get(*state);
    std::vector<at::Tensor> places;
    for (size_t i = 0; i < needed; ++i)
      places.push_back(values[i].defined()
                           ? values[i].contiguous()
                           : at::zeros_like(mine.tensor, at::MemoryFormat::Contiguous));
    if (state) Rule::set(*state, places);
    return places;
  }

  template <typename T>
  std::array<T*, 3> state_at(const Part& mine, int64_t from) const {
    std::array<T*, 3> at{};
    for (size_t i = 0; i < mine.places.size(); ++i) at[i] = static_cast<T*>(mine.state[i]) + from;
    return at;
  }
  template <typename T>
  void run(Part& mine, const Range& range, const void* gradient) {
    Rule::run(mine.kernel, static_cast<T*>(mine.data) + range.from,
              static_cast<const T*>(gradient), state_at<T>(mine, range.from), range.count);
  }
  template <typename T>
  Squares measure_as(Part& mine, const Range& range, const void* gradient) {
    return Rule::measure(mine.kernel, static_cast<const T*>(mine.data) + range.from,
                         static_cast<const T*>(gradient), state_at<T>(mine, range.from),
                         range.count);
  }

  torch::optim::Optimizer& optimizer_;
  std::vector<Part> parts_;
  std::vector<const void*> groups_;  // The groups that parts_ are in.
  bool are_placed_ = false;
};

template <typename Rule>
std::unique_ptr<FusedOptimizer> make(torch::optim::Optimizer& optimizer,
                                     const std::vector<NamedTensor>& parameters) {
  auto made = std::make_unique<Fused<Rule>>(optimizer, parameters);
  if (!made->fits()) return nullptr;
  return made;
}

}  // namespace

std::unique_ptr<FusedOptimizer> FusedOptimizer::of(torch::optim::Optimizer& optimizer,
                                                   const std::vector<NamedTensor>& parameters) {
  namespace optim = torch::optim;
  // The type must be exactly one of these: a derived class may do something else in its step().
  const std::type_info& type = class_of(optimizer);
  if (type == typeid(optim::SGD)) return make<SgdRule>(optimizer, parameters);
  if (type == typeid(optim::Adam))
    return make<AdamRule<optim::AdamParamState, optim::AdamOptions, false>>(optimizer, parameters);
  if (type == typeid(optim::AdamW))
    return make<AdamRule<optim::AdamWParamState, optim::AdamWOptions, true>>(optimizer,
                                                                             parameters);
  if (type == typeid(optim::RMSprop)) return make<RmsPropRule>(optimizer, parameters);
  if (type == typeid(optim::Adagrad)) return make<AdagradRule>(optimizer, parameters);
  if (type == typeid(LarsOptimizer)) return make<LarsRule>(optimizer, parameters);
  if (type == typeid(LambOptimizer)) return make<LambRule>(optimizer, parameters);
  return nullptr;
}

void update_whole(FusedOptimizer& optimizer, int parameter, const at::Tensor& gradient,
                  const std::function<void(const Range&)>& used) {
  const auto* const data = static_cast<const std::byte*>(gradient.const_data_ptr());
  const int64_t elements = gradient.numel();
  const int64_t piece = used ? kPieceElements : std::max<int64_t>(1, elements);
  for (int64_t from = 0; from < elements; from += piece) {
    const Range range{parameter, from, std::min(piece, elements - from)};
    optimizer.update(range, data + from * gradient.element_size());
    if (used) used(range);
  }
}

int64_t update_alone(FusedOptimizer& optimizer, const std::vector<NamedTensor>& parameters,
                     std::span<const int> candidates,
                     const std::function<void(const Range&)>& used) {
  const torch::NoGradGuard no_grad;
  int64_t elements = 0;
  std::vector<int> with_gradient;
  for (const int p : candidates)
    if (parameters[static_cast<size_t>(p)].tensor.grad().defined()) with_gradient.push_back(p);
  for (const int p : optimizer.begin_step(with_gradient)) {
    const at::Tensor& parameter = parameters[static_cast<size_t>(p)].tensor;
    const at::Tensor gradient = parameter.grad().contiguous();
    const Range whole{p, 0, parameter.numel()};
    if (optimizer.layerwise())
      optimizer.set_norms(p, optimizer.measure(whole, gradient.const_data_ptr()));
    update_whole(optimizer, p, gradient, used);
    torch::autograd::impl::bump_version(parameter);
    elements += parameter.numel();
  }
  return elements;
}

}  // namespace trireme::fused
