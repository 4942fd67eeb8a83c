// Names of what is not finished yet, and what becomes of those that a crash left behind. No torch.
//
// Whoever cleans a folder holds its lock (folder_lock.h). Only parts (parts.h) of a save that is
// given up may still be written there: they are in nobody's way, and their writers take it that
// their folder goes.
#pragma once
#include <trireme/checkpoint/file_system.h>
#include <filesystem>
#include <string>
#include <string_view>

namespace trireme::checkpoint {

// ".writing-<name>" or ".writing-<name>+<attempt>": not whole yet, or on its way out.
std::string writing_name(std::string_view name, std::string_view attempt = {});
// ".replaced-<name>": whole, moved aside while a new `name` takes its place.
std::string replaced_name(std::string_view name);
// True if `file_name` is the replaced_name of a checkpoint.
bool is_replaced_name(std::string_view file_name);
// Likewise, or one of its writing names.
bool is_leftover_name(std::string_view file_name);

// Removes what was left unfinished in `folder`, and puts back what was moved aside if its successor
// did not arrive. Touches only what a checkpoint would be called. Throws Error(io).
void clean_leftovers(FileSystem& files, const std::filesystem::path& folder);

}  // namespace trireme::checkpoint
