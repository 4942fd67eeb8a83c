// Files written so that a crash leaves the old content or the new, never half of it.
#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

// Writes beside `path`, fsyncs, renames over it, fsyncs the folder. Throws Error(io) with path and
// reason (such as "No space left on device"); what was there before stays, and the part written so
// far is removed. What a killed process left of the same file is removed, too. Keeps the
// permissions of the file it replaces, and a link to it; what is no regular file (/dev/stdout, a
// pipe) is written in place.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);
// Throws Error(not_found) or Error(io).
std::string read_file(const std::filesystem::path& path);
// Creates the folder with its parents, durably, and proves that a file can be written in it. Throws
// Error(io) with path and reason.
void require_writable_folder(const std::filesystem::path& folder);

}  // namespace trireme
