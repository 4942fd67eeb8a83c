// Finds the packages of Python environments, some of which carry libraries that Trireme loads.
#pragma once
#include <filesystem>
#include <string_view>
#include <vector>

namespace trireme {

// The folders of the package that there are: in the active environment ($VIRTUAL_ENV,
// $CONDA_PREFIX), in the user's home folder, and in /usr/local.
std::vector<std::filesystem::path> folders_of_python_package(std::string_view package);

}  // namespace trireme
