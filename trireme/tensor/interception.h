// A dispatch key of our own: operations of LibTorch that a kernel is registered for under it pass
// through that kernel first, on the threads that ask for it. All other operations, and all other
// threads, pay nothing.
#pragma once
#include <c10/core/DispatchKey.h>

namespace trireme {

inline constexpr c10::DispatchKey kInterceptionKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

// While one lives, the calling thread's operations are intercepted. Objects nest in any order; each
// ends on the thread that made it.
class Interception {
 public:
  Interception();
  ~Interception();
  Interception(const Interception&) = delete;
  Interception& operator=(const Interception&) = delete;
};

}  // namespace trireme
