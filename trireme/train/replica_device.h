// The device on which a replica trains.
#pragma once
#include <c10/core/Device.h>
#include <trireme/membership/identity.h>
#include <trireme/train/trainer_options.h>

namespace trireme {

// The CPU, the named device, or the device whose number is that of the replica among those of its
// host. `replica`: among those of this worker. Connects nothing. Throws Error(unsupported) if
// LibTorch sees no such device, and Error(invalid_argument) if the replicas of the host are more
// than its devices.
c10::Device device_of_replica(const TrainerOptions& options, const membership::Identity& identity,
                              int replica);
// The number of devices that LibTorch sees: 0 without a backend for them.
int devices_of(c10::DeviceType type);

}  // namespace trireme
