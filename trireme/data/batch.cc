#include <ATen/core/Tensor.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/data/batch.h>
#include <algorithm>

namespace trireme {

const at::Tensor& Batch::tensor(const std::string& name) const {
  if (name == "data") return data;
  if (name == "target") return target;
  if (const auto found = more.find(name); found != more.end()) return found->second;
  std::string known = "data, target";
  for (const auto& [other, tensor] : more) known += ", " + other;
  throw Error(ErrorCode::invalid_argument, "data",
              fmt::format("a batch of this source has no tensor '{}'", name),
              fmt::format("one of {}, or a source that gives it in Example::more", known));
}

int64_t Batch::row_of(int64_t place) const {
  const auto behind = std::ranges::lower_bound(places_left_out, place);
  return place - (behind - places_left_out.begin());
}

Batch Batch::part(int64_t from, int64_t count) const {
  Batch part{.data = data.narrow(0, from, count),
             .target = target.narrow(0, from, count),
             .indices = {indices.begin() + from, indices.begin() + from + count},
             .global_size = global_size,
             .global_used = global_used,
             .global_targets = global_targets,
             .position = position,
             .next = next};
  for (const auto& [name, tensor] : more) part.more.emplace(name, tensor.narrow(0, from, count));
  return part;
}

Batch Batch::on(at::Device device) const {
  const auto moved = [device](const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    return device.is_cuda() && tensor.is_cpu()
               ? tensor.pin_memory().to(device, /*non_blocking=*/true)
               : tensor.to(device);
  };
  Batch there = *this;
  there.data = moved(data);
  there.target = moved(target);
  for (auto& [name, tensor] : there.more) tensor = moved(tensor);
  return there;
}

namespace {

template <typename Samples>
int64_t bytes_of_tensors(const Samples& samples) {
  size_t bytes = samples.data.nbytes() + samples.target.nbytes();
  for (const auto& [name, tensor] : samples.more) bytes += tensor.nbytes();
  return static_cast<int64_t>(bytes);
}

}  // namespace

int64_t bytes_of(const Batch& batch) { return bytes_of_tensors(batch); }

int64_t bytes_of(const Example& example) { return bytes_of_tensors(example); }

}  // namespace trireme
