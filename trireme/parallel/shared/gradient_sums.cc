#include <ATen/core/Tensor.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/parallel/shared/gradient_sums.h>
#include <cstring>

namespace trireme::shared {

// The slots of all ranks come first. The room behind them is for copies of gradients that lie
// elsewhere; it is reserved when it is needed.
GradientSums::GradientSums(std::shared_ptr<comm::HostTeam> team, SharedParameters& parameters,
                           const plan::SharedLayout& layout, const StepTable& table,
                           const std::string& folder)
    : team_(std::move(team)), parameters_(parameters), table_(table) {
  const size_t ranks = static_cast<size_t>(team_->size()),
               rank = static_cast<size_t>(team_->rank()),
               one = std::max<size_t>(64, layout.gradient_bytes);
  memory_ = team_->allocate(2 * ranks * one, ranks * one, "gradients", folder);
  std::vector<size_t> bytes;
  for (int p = 0; p < parameters.count(); ++p) {
    const plan::TensorSpec& spec = parameters.spec(p);
    bytes.push_back(spec.trainable ? static_cast<size_t>(spec.bytes()) : 0);
  }
  slots_ = std::make_shared<GradientSlots>(memory_, rank * one, (ranks + rank) * one,
                                           layout.gradients, bytes);
  if (folder.empty()) return;
  std::vector<NamedTensor> all;
  for (int p = 0; p < parameters.count(); ++p) all.push_back({{}, parameters.tensor(p)});
  files_ = std::make_unique<GradientFiles>(std::move(all), memory_, rank * one, layout.gradients,
                                           ranks);
}

void GradientSums::publish(int p) {
  const at::Tensor& gradient = parameters_.tensor(p).grad();
  if (gradient.numel() != parameters_.spec(p).elements()) return;
  const at::Tensor whole = gradient.to(parameters_.type_of(p)).contiguous();
  table_.gradients(team_->rank())[p] =
      whole.numel() == 0 ? 0 : static_cast<int64_t>(slots_->publish(p, whole.const_data_ptr()));
}

void GradientSums::sources_of(int p, std::vector<const std::byte*>& sources) const {
  sources.clear();
  for (int rank = 0; rank < team_->size(); ++rank)
    if (const int64_t place = table_.gradients(rank)[p]; place != StepTable::kNoGradient)
      sources.push_back(memory_->data() + place);
}

std::byte* GradientSums::reduced(int p) const {
  if (between_) return between_->reduced(p);
  for (int rank = 0; rank < team_->size(); ++rank)
    if (const int64_t place = table_.gradients(rank)[p]; place != StepTable::kNoGradient)
      return memory_->data() + place;
  throw Error(ErrorCode::internal, "parallel",
              fmt::format("no replica has a gradient of parameter {}", p));
}

void GradientSums::reduce(const plan::Slice& slice) const {
  std::vector<const std::byte*> whole;
  sources_of(slice.parameter, whole);
  with_type(slice.parameter, [&](auto type) {
    using T = decltype(type);
    T* const target = reinterpret_cast<T*>(reduced(slice.parameter)) + slice.from;
    std::vector<const T*> sources;
    for (const std::byte* source : whole)
      sources.push_back(reinterpret_cast<const T*>(source) + slice.from);
    if (sources.empty())  // Only other hosts have a gradient.
      std::memset(target, 0, static_cast<size_t>(slice.to - slice.from) * sizeof(T));
    else
      fused::sum_scaled(std::span<const T* const>(sources), 1.0, target, slice.to - slice.from);
    const auto bytes = static_cast<size_t>(slice.to - slice.from) * sizeof(T);
    for (size_t k = 0; files_ && k < sources.size(); ++k)
      files_->used_in_order(k, sources[k], bytes);
  });
}

}  // namespace trireme::shared
