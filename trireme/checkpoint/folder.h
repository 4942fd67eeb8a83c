// A folder of checkpoints: step-000000120/{manifest.json, model.safetensors, optimizer.safetensors}. No torch.
//
// A checkpoint is written under another name, fsynced and renamed, so one that can be seen is whole; its manifest carries each
// file's SHA-256 and its own, so one that was damaged later is never chosen. One thread of one process at a time writes into a folder.
#pragma once
#include <trireme/checkpoint/manifest.h>
#include <trireme/checkpoint/safetensors.h>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

namespace trireme::checkpoint {

inline constexpr const char* kManifestFile = "manifest.json";
inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";

struct Saved {
  std::filesystem::path path;
  Manifest manifest;
  std::unique_ptr<SafetensorsFile> model, optimizer;
};

struct FolderOptions {
  int keep = 2;  // The newest so many are kept; older ones are removed only after a newer one is durable. At least 1.
};

class Folder {
 public:
  // Creates the folder and proves that it can be written. Throws Error(io) with path and reason. Removes leftovers of writes that were cut
  // off.
  explicit Folder(std::filesystem::path path, FolderOptions options = {});
  // Returns the checkpoint's path once it is durable. Throws Error(io) (no space, ...): older checkpoints stay as they were.
  // One of the same step is replaced. Ones of later steps (damaged, or of another run) are left alone.
  std::filesystem::path save(Manifest manifest, const std::vector<TensorView>& model, const std::vector<TensorView>& optimizer);
  // The newest checkpoint whose hashes hold; damaged newer ones are logged by name with what is wrong, and skipped. Empty if the folder
  // holds none at all. Throws Error(corrupt) naming each if all are damaged: starting anew silently would be a loss. Throws
  // Error(unsupported) if the newest is of a newer Trireme: it is whole, and going on from an older one would be a loss too.
  std::optional<Saved> newest() const;
  const std::filesystem::path& path() const { return path_; }

 private:
  void prune(int64_t saved_step) const;

  std::filesystem::path path_;
  FolderOptions options_;
};

// Folder::newest() of a folder that is only read. Throws likewise.
std::optional<Saved> newest_in(const std::filesystem::path& folder);
// Opens one checkpoint (its own folder, step-...) and verifies it. Throws Error(not_found | corrupt | unsupported | io).
Saved open_checkpoint(const std::filesystem::path& path);
// True if `path` is a folder with at least one checkpoint in it; writes nothing.
bool has_checkpoints(const std::filesystem::path& path);

}  // namespace trireme::checkpoint
