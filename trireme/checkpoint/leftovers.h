// Names of unfinished checkpoints, and the removal of those that a crash left behind.
//
// A process that cleans a folder holds its lock (folder_lock.h). At the same time only the parts
// (parts.h) of an abandoned save may still be written there: they disturb nothing, and their
// writers accept that their folder disappears.
#pragma once
#include <trireme/checkpoint/file_system.h>
#include <filesystem>
#include <string>
#include <string_view>

namespace trireme::checkpoint {

// ".writing-<name>" or ".writing-<name>+<attempt>": a checkpoint that is not whole yet, or
// that is being removed.
std::string writing_name(std::string_view name, std::string_view attempt = {});
// ".replaced-<name>": a whole checkpoint that was moved aside while a new `name` takes its place.
std::string replaced_name(std::string_view name);
// Returns true if `file_name` is the replaced_name of a checkpoint.
bool is_replaced_name(std::string_view file_name);
// Returns true if `file_name` is the replaced_name or a writing_name of a checkpoint.
bool is_leftover_name(std::string_view file_name);

// Removes unfinished checkpoints in `folder`, and restores a checkpoint that was moved aside if
// its successor did not arrive. Touches only names that belong to checkpoints. Throws Error(io).
void clean_leftovers(FileSystem& files, const std::filesystem::path& folder);

}  // namespace trireme::checkpoint
