// A device for tests on machines without accelerators. LibTorch calls it "hpu": LibTorch knows the
// name, has no kernels for it, and can move modules to it. Its tensors lie at addresses that no
// code may read or write: the first access ends the process. Its own copies and operations reach
// the same bytes by a second mapping, and compute with LibTorch's kernels of the CPU. So a run on
// it has the losses of a run on the CPU, and code that takes a tensor of a device for one of the
// host fails as it would with a GPU.
#pragma once
#include <c10/core/Device.h>

namespace trireme::tests {

// The number of devices is TRIREME_TEST_DEVICES, or else 0: LibTorch then sees none. Programmes
// that link the stand-in and shared objects that contain it register it at their start.
constexpr c10::DeviceType kStandIn = c10::DeviceType::HPU;
int stand_in_devices();
// For tests in one process, before its first backward.
void set_stand_in_devices(int count);

}  // namespace trireme::tests
