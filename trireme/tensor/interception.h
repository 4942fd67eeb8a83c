// A dispatch key of Trireme's own. On the threads that ask for it, an operation of LibTorch with a
// kernel registered under this key passes through that kernel first. All other operations and
// threads pay nothing.
#pragma once
#include <c10/core/DispatchKey.h>

namespace trireme {

inline constexpr c10::DispatchKey kInterceptionKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

// While an Interception lives, the calling thread's operations are intercepted. Objects nest in
// any order; each ends on the thread that made it.
class Interception {
 public:
  Interception();
  ~Interception();
  Interception(const Interception&) = delete;
  Interception& operator=(const Interception&) = delete;
};

}  // namespace trireme
