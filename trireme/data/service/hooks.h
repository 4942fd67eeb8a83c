// The parts of a programme that a data service needs and the room `data` does not have. No torch.
#pragma once
#include <functional>
#include <string>

namespace trireme::data {

struct ServiceHooks {
  // The secret of `trireme data serve`. Throws Error(invalid_argument) if there is none.
  std::function<std::string()> token;
  // Starts the server of this host, a process that outlives this one. It inherits `listener`.
  std::function<void(int listener)> start_host;
};
// Any thread. The hooks that are set last count.
void set_service_hooks(ServiceHooks hooks);
ServiceHooks service_hooks();

}  // namespace trireme::data
