// Writes files so that a crash leaves the old content or the new content, never a mixture.
#pragma once
#include <trireme/base/descriptor.h>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

// Writes a temporary file beside `path`, calls fsync, renames it to `path`, and calls fsync on the
// folder. Throws Error(io) with the path and the reason (such as "No space left on device"); then
// the old content stays, and the temporary file is removed. Removes temporary files of `path` that
// killed processes left. Keeps the permissions of the file that it replaces, and a link to it. A
// path that is not a regular file (/dev/stdout, a pipe) is written in place.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);
// Throws Error(not_found) or Error(io).
std::string read_file(const std::filesystem::path& path);
// Returns true if something has this name, and false for a link that leads nowhere. Throws
// Error(io) with the path and the reason if the system cannot tell, as for a link to itself.
bool path_exists(const std::filesystem::path& path);
// Creates the folder with its parents, durably, and proves that a file can be written in it. An
// empty path is the working directory. Throws Error(io) with the path and the reason.
void require_writable_folder(const std::filesystem::path& path);

// Makes a file without a name, which vanishes with its last descriptor, however the process ends.
// `flags` such as O_DIRECT are added to those of open(). Returns no descriptor, and errno, if the
// system refuses.
Descriptor make_nameless_file(const std::filesystem::path& folder, int flags = 0);
// Whether the files of a folder are in memory instead of on a disk (tmpfs). False if the system
// cannot tell.
bool is_in_memory(const std::filesystem::path& folder);

}  // namespace trireme
