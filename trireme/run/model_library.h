// Shared objects with models, data sets, losses, metrics and functions of the user's own
// (model.library), which the macros of trireme/register.h register. A process with LibTorch opens
// them. One without it, such as `trireme`, reads the names only. No torch.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace trireme {

// Makes the names of the shared object known, once for each file. Throws Error(not_found | io) if
// it cannot be read, and Error(invalid_argument) if it registers nothing, was built for another
// Trireme or LibTorch, cannot be opened (with the linker's reason), or takes a name that is taken.
void use_model_library(const std::filesystem::path& path);

struct Registration {
  std::string kind, name;  // "model", "data", "loss", "metric" or "stage"
  // The LibTorch and the Trireme with whose headers it was compiled.
  std::string torch, trireme;
  bool operator==(const Registration&) const = default;
};
// The registrations in a file's bytes, in order.
std::vector<Registration> registrations_in(const std::string& bytes);

// How this process opens a shared object; at first it only reads the names (run/training.cc).
using OpenLibrary = void (*)(const std::filesystem::path& path,
                             const std::vector<Registration>& registrations);
bool set_library_opener(OpenLibrary open);

}  // namespace trireme
