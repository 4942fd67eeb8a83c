#pragma once
#include <string_view>

namespace trireme {
std::string_view version();  // "0.1.0": ranks of one job must agree on it.
}
