// The parts of a programme that a data service needs and the room `data` does not have. No torch.
#pragma once
#include <trireme/base/deadline.h>
#include <functional>
#include <string>

namespace trireme::data {

struct ServiceHooks {
  // The secret of `trireme data serve`. Throws Error(invalid_argument) if there is none.
  std::function<std::string()> token;
  // Starts the server of this host, a process that outlives this one. It inherits `listener`.
  std::function<void(int listener)> start_host;
  // The least time that the start of a run waits for a sign of the host's server, which loads
  // LibTorch first.
  Milliseconds host_patience{60'000};
};
// Any thread. The hooks that are set last count.
void set_service_hooks(ServiceHooks hooks);
ServiceHooks service_hooks();

}  // namespace trireme::data
