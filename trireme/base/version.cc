#include <trireme/base/version.h>

namespace trireme {

static_assert(std::string_view(TRIREME_HEADERS_VERSION) == TRIREME_VERSION,
              "version.h and CMakeLists.txt have one version");

std::string_view version() { return TRIREME_VERSION; }
}  // namespace trireme
