// A folder of checkpoints: step-000000120/{manifest.json, model.safetensors, optimizer.safetensors}. No torch.
//
// A checkpoint is written under another name, fsynced and renamed, so one that can be seen is whole; its manifest carries each
// file's SHA-256, so one that was damaged later is never chosen.
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <trireme/base/json.h>
#include <trireme/checkpoint/safetensors.h>
#include <trireme/plan/data_plan.h>
#include <vector>

namespace trireme::checkpoint {

struct Manifest {
  int format = 1;               // A newer one than this build knows is refused with Error(unsupported).
  std::string version;          // Of Trireme.
  int64_t step = 0;             // Optimizer steps committed.
  plan::DataPosition position;  // Of the next batch.
  std::map<std::string, std::string> aliases;  // Tied weights: other name -> the name stored (safetensors has no aliases).
  std::vector<double> loss_history;            // Global mean loss of every step so far.
  Json optimizer = Json::object();             // Kind and scalar state, e.g. {"name": "Adam", "steps": {...}}.
  Json config = Json::object();                // The configuration the run had.
  Json extra = Json::object();                 // Whatever else the engine keeps.
  std::map<std::string, std::string> files;    // File -> SHA-256. Filled by save().
};

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
  // Creates the folder and proves that it can be written. Throws Error(io) with path and reason. Removes leftovers of writes that were cut off.
  explicit Folder(std::filesystem::path path, FolderOptions options = {});
  // Returns the checkpoint's path once it is durable. Throws Error(io) (no space, ...): older checkpoints stay as they were.
  std::filesystem::path save(Manifest manifest, const std::vector<TensorView>& model, const std::vector<TensorView>& optimizer);
  // The newest checkpoint whose hashes hold; damaged newer ones are logged by name with what is wrong, and skipped. Empty if the folder
  // holds none at all. Throws Error(corrupt) naming each if all are damaged: starting anew silently would be a loss.
  std::optional<Saved> newest() const;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  FolderOptions options_;
};

// Opens one checkpoint (its own folder, step-...) and verifies it. Throws Error(not_found | corrupt | unsupported).
Saved open_checkpoint(const std::filesystem::path& path);
// True if `path` is a folder with at least one checkpoint in it; writes nothing.
bool has_checkpoints(const std::filesystem::path& path);

}  // namespace trireme::checkpoint
