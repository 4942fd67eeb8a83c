#include <trireme/base/built_with.h>

namespace trireme {
std::string_view libtorch_of_build() { return TRIREME_TORCH_VERSION; }
std::string_view libtorch_folder_of_build() { return TRIREME_TORCH_ROOT; }
}  // namespace trireme
