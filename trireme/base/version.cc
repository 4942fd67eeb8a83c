#include <trireme/base/version.h>

namespace trireme {
std::string_view version() { return TRIREME_VERSION; }
}  // namespace trireme
