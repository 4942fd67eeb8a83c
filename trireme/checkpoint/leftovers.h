// Names of what is not finished yet, and what becomes of those that a crash left behind. No torch.
//
// Each name carries the process that uses it (pid and start time, so that a reused pid is another process).
#pragma once
#include <filesystem>
#include <string>
#include <string_view>

namespace trireme::checkpoint {

// ".writing-<pid>-<start>-<name>": not whole yet, or on its way out. Nobody needs it once its process is gone.
std::string writing_name(std::string_view name);
// ".replaced-<pid>-<start>-<name>": whole, moved aside while a new `name` takes its place.
std::string replaced_name(std::string_view name);

// Removes what processes that are gone left unfinished in `folder`, and puts back what they moved aside if its successor did not arrive.
// Touches no other name, and nothing of a living process of this host. Several processes may call it at once. Throws Error(io).
void clean_leftovers(const std::filesystem::path& folder);
// True if `file_name` is a replaced_name of any process.
bool is_replaced_name(std::string_view file_name);

}  // namespace trireme::checkpoint
