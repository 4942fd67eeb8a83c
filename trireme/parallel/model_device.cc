#include <ATen/core/Tensor.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/parallel/model_device.h>

namespace trireme {

at::Device device_of(const std::vector<NamedTensor>& parameters) {
  if (parameters.empty()) return at::kCPU;
  const NamedTensor& first = parameters.front();
  for (const NamedTensor& each : parameters)
    if (each.tensor.device() != first.tensor.device())
      throw Error(ErrorCode::invalid_argument, "parallel",
                  fmt::format("the parameter '{}' is on {}, and '{}' is on {}: a model is on one "
                              "device",
                              first.name, first.tensor.device().str(), each.name,
                              each.tensor.device().str()),
                  "module.to(device) for the whole module, before Distributed or DataParallel is "
                  "made");
  return first.tensor.device();
}

std::string type_of(at::Device device) {
  return c10::DeviceTypeName(device.type(), /*lower_case=*/true);
}

}  // namespace trireme
