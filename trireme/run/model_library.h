// Shared objects and programmes with models, data sets, losses, metrics and functions of the
// user's own (model.library), which the macros of trireme/register.h register. A process with
// LibTorch opens a shared object, and a programme is started in place of the worker. A process
// without LibTorch, such as `trireme`, reads the names only. No torch.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace trireme {

// Makes the names of the file known, once for each file. Throws Error(not_found | io) if it cannot
// be read, and Error(invalid_argument) if it registers nothing, was built for another Trireme or
// LibTorch, cannot be opened (with the linker's reason), takes a name that is taken, or is a
// programme that does not call run_as_worker() or is not the one of this process with LibTorch.
void use_model_library(const std::filesystem::path& path);

// Whether the file is a programme. Throws Error(not_found | io) if it cannot be read.
bool is_programme(const std::filesystem::path& path);

struct Registration {
  // "model", "data", "loss", "metric", "stage", or "worker" for a call of run_as_worker().
  std::string kind, name;
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
