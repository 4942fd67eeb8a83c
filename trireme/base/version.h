// The version of Trireme.
#pragma once
#include <string_view>

namespace trireme {
std::string_view version();  // "0.1.0". All ranks of a job must have the same version.
}
