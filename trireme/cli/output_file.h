// The files that options name for the results of a command.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace trireme::cli {

// Asks the person in front of the terminal, and returns whether the answer is yes. Without a
// terminal, or without an answer within a minute, it is no.
bool ask_in_terminal(const std::string& question);

// Proves before anything starts that `file`, which `option` names, lies in a folder that is there
// or is one of `made`, which the command itself makes with their parents. An empty `file` is not
// written. A folder that is missing is made if `ask` returns true. Otherwise throws
// Error(not_found | invalid_argument) naming option and folder, and a folder with a similar name
// if there is one: a misspelt folder must not be made silently.
void require_place_of(const std::string& option, const std::filesystem::path& file,
                      const std::vector<std::filesystem::path>& made = {},
                      bool (*ask)(const std::string& question) = ask_in_terminal);

}  // namespace trireme::cli
