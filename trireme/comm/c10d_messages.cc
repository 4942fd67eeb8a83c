#include <trireme/comm/c10d_messages.h>

namespace trireme::comm {

void give_reason(const WaitLimits& limits, const char* operation, const std::string& what,
                 Deadline since) {
  if (since.expired()) limits.time_out(operation, "the other ranks");
  limits.explain(operation, what.substr(0, what.find('\n')));
}

}  // namespace trireme::comm
