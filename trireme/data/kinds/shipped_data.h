// The data files that ship with Trireme. No torch.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

namespace trireme::data {

// A file of $TRIREME_DATA, the source tree's data/, or the installed share/trireme/data/. Throws
// Error(not_found) that names it.
std::filesystem::path shipped_data(const std::string& file);
// The first of these folders that is there.
std::optional<std::filesystem::path> folder_of_shipped_data();

}  // namespace trireme::data
