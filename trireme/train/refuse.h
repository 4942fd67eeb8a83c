// The error of an option of a training that cannot be used.
#pragma once
#include <trireme/base/error.h>
#include <string>

namespace trireme {

[[noreturn]] inline void refuse_option(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, "train", what, remedy);
}

}  // namespace trireme
