// The version of Trireme.
#pragma once
#include <string_view>

// That of these headers: a shared object is compared by it with the programme that opens it.
#define TRIREME_HEADERS_VERSION "0.1.0"

namespace trireme {
std::string_view version();  // "0.1.0". All ranks of a job must have the same version.
}
