// Opens and verifies a checkpoint in separate steps, for callers that read it in another way than
// open_checkpoint().
#pragma once
#include <trireme/checkpoint/folder.h>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace trireme::checkpoint {

// Returns the manifest of a checkpoint whose files all exist. The manifest's own hash is checked.
// Throws the errors of open_checkpoint().
Saved open_manifest(const std::filesystem::path& path);
// Opens the tensors as the headers of the files describe them, checks that slices make up whole
// tensors, and reads and verifies the history.
// Error(corrupt | unsupported) may come from damage; only verify() can tell.
void open_files(Saved& saved);
// Reads every file and compares its hash. Throws Error(corrupt | io | unsupported).
void verify(const Saved& saved);
// Throws Error(corrupt) if the digests differ.
void require_digest(const std::filesystem::path& file, const std::string& actual,
                    const std::string& expected);

// Calls `open` on the checkpoints from the newest on, until one is not damaged, and returns its
// result. Error(corrupt), Error(io) and Error(not_found) count as damage; see newest_in().
std::optional<Saved> newest_whole(const std::filesystem::path& folder,
                                  const std::function<Saved(const std::filesystem::path&)>& open);

}  // namespace trireme::checkpoint
