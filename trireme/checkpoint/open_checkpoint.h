// Opening and verifying a checkpoint in steps, for who reads in another way than open_checkpoint().
// No torch.
#pragma once
#include <trireme/checkpoint/folder.h>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace trireme::checkpoint {

// The manifest, which is sealed, of a checkpoint whose files are all there. Throws as
// open_checkpoint() does.
Saved open_manifest(const std::filesystem::path& path);
// The tensors, as the files' headers tell: Error(corrupt | unsupported) may be damage that only
// verify() is sure of.
void open_files(Saved& saved);
// Reads every file and compares its hash. Throws Error(corrupt | io | unsupported).
void verify(const Saved& saved);
// Throws Error(corrupt) if they differ.
void require_digest(const std::filesystem::path& file, const std::string& actual,
                    const std::string& expected);

// What `open` makes of the newest checkpoint that it does not find damaged (Error(corrupt),
// Error(io), Error(not_found)); see newest_in().
std::optional<Saved> newest_whole(const std::filesystem::path& folder,
                                  const std::function<Saved(const std::filesystem::path&)>& open);

}  // namespace trireme::checkpoint
