// The LibTorch with which Trireme was built. C++ gives no promise between its versions.
#pragma once
#include <string_view>

namespace trireme {
std::string_view libtorch_of_build();         // "2.13.0"
std::string_view libtorch_folder_of_build();  // The folder that held its include/ and lib/.
}  // namespace trireme
