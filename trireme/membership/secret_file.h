// Files that hold a job token: only their owner may read them.
#pragma once
#include <filesystem>
#include <string>

namespace trireme::membership {

inline constexpr size_t kMinTokenBytes = 16;  // Shorter tokens can be guessed.

enum class Symlink { follow, refuse };

// Returns the content without white space at its ends. Throws Error(not_found) if there is no such
// file, Error(invalid_argument) naming mode or owner if another user may read or write it, and
// Error(io) with the reason for any other failure.
std::string read_secret_file(const std::filesystem::path& path, Symlink symlink);

}  // namespace trireme::membership
