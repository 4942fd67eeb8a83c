// The name of a step's checkpoint: step-000000120.
#pragma once
#include <trireme/checkpoint/file_system.h>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace trireme::checkpoint {

std::string name_of_step(int64_t step);
// Returns the step, or nothing if `name` is not the name of a checkpoint.
std::optional<int64_t> step_of_name(const std::string& name);
// Returns the steps of the checkpoints in a folder, newest first. Throws Error(io).
std::vector<int64_t> steps_in(FileSystem& files, const std::filesystem::path& folder);

}  // namespace trireme::checkpoint
