#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/train/refuse.h>
#include <trireme/train/replica_device.h>

namespace trireme {
namespace {

c10::Device parsed_device(const std::string& name) {
  try {
    return c10::Device(name);
  } catch (const c10::Error&) {
    refuse_option(fmt::format("device.name is \"{}\", which is no device of this LibTorch", name),
                  "cpu or cuda");
  }
}

}  // namespace

int devices_of(c10::DeviceType type) {
  return c10::impl::hasDeviceGuardImpl(type)
             ? static_cast<int>(c10::impl::getDeviceGuardImpl(type)->deviceCount())
             : 0;
}

c10::Device device_of_replica(const TrainerOptions& options, const membership::Identity& identity,
                              int replica) {
  const c10::Device named = parsed_device(options.device);
  if (named.is_cpu()) return named;
  const std::string type = c10::DeviceTypeName(named.type(), /*lower_case=*/true);
  const int count = devices_of(named.type()), replicas = options.replicas,
            here = identity.local_workers * replicas;
  if (count == 0)
    throw Error(ErrorCode::unsupported, "train",
                fmt::format("device.name is {}, and LibTorch sees no device of type {} here",
                            options.device, type),
                "device.name=cpu, or a LibTorch and a machine that have one (trireme doctor)");
  if (named.has_index()) {
    if (named.index() >= count)
      refuse_option(fmt::format("device.name is {}, and LibTorch sees {} {} here", options.device,
                                count, count == 1 ? "device" : "devices"),
                    fmt::format("{}:0 to {}:{}", type, type, count - 1));
    if (here > 1)
      refuse_option(fmt::format("device.name is {}, and this host has {} replicas: each takes a "
                                "device of its own",
                                options.device, here),
                    fmt::format("device.name={}", type));
    return named;
  }
  if (here > count)
    refuse_option(fmt::format("device.name is {}, and this host has {} replicas and {} {}: each "
                              "takes a device of its own",
                              options.device, here, count, count == 1 ? "device" : "devices"),
                  fmt::format("{} replicas or fewer on this host, or device.name=cpu", count));
  const int index = (identity.local_worker * replicas + replica) % count;
  return {named.type(), static_cast<c10::DeviceIndex>(index)};
}

}  // namespace trireme
