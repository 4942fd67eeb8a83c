// A folder of checkpoints: step-000000120/{manifest.json, model.safetensors, optimizer.safetensors,
// optimizer-1.safetensors ...}. No torch.
//
// A checkpoint is written under another name, fsynced and renamed, so one that can be seen is
// whole; its manifest carries each file's hash and its own, so one that was damaged later is never
// chosen. One job at a time writes into a folder, by one thread.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/checkpoint/file_system.h>
#include <trireme/checkpoint/manifest.h>
#include <trireme/checkpoint/parts.h>
#include <trireme/checkpoint/retention.h>
#include <trireme/checkpoint/safetensors_files.h>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trireme::checkpoint {

inline constexpr const char* kManifestFile = "manifest.json";
inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";

struct Saved {
  std::filesystem::path path;
  Manifest manifest;
  std::unique_ptr<SafetensorsFiles> model, optimizer;
};

// How model.safetensors is laid out: with the metadata that says its tensors have PyTorch's layout.
SafetensorsLayout lay_out_model(const std::vector<TensorView>& tensors);

// The files of a part, straight from tensors, which stay as they are meanwhile. The model is the
// first part's alone.
class TensorFiles {
 public:
  // Throws as lay_out() does.
  TensorFiles(const std::vector<TensorView>& model, const std::vector<TensorView>& optimizer,
              int part = 0);
  TensorFiles(const TensorFiles&) = delete;
  TensorFiles& operator=(const TensorFiles&) = delete;
  const std::vector<OutgoingFile>& content() const { return content_; }

 private:
  void add(const char* name, const SafetensorsLayout& layout,
           const std::vector<TensorView>& tensors, int part);
  SafetensorsLayout model_, optimizer_;
  std::vector<OutgoingFile> content_;
};

class Folder {
 public:
  // Creates the folder and takes its lock, so that no other job writes there as long as this lives;
  // waits `lock_timeout` for another to let go of it. Removes leftovers of writes that were cut
  // off. Throws Error(io) with path and reason, Error(invalid_argument) naming who has the folder.
  explicit Folder(std::filesystem::path path, RetentionOptions retention = {},
                  FileSystem& files = disk(), Milliseconds lock_timeout = Milliseconds(0));
  // Returns the checkpoint's path once it is durable; only then those that have outlived their time
  // are removed. Throws Error(io) (no space, ...): older checkpoints stay as they were. One of the
  // same step is replaced. With more than one part this is the first of them, and waits for the
  // others: Error(io), Error(peer_lost) as collect_parts() does.
  std::filesystem::path save(Manifest manifest, const std::vector<TensorView>& model,
                             const std::vector<TensorView>& optimizer);
  std::filesystem::path save(Manifest manifest, const std::vector<OutgoingFile>& content,
                             const Part& part = {}, const GoOnWaiting& go_on_waiting = {});
  std::filesystem::path path_of(int64_t step) const;
  // Removes what `retention` does not keep, as save() does; never the newest whole one, and nothing
  // newer. Returns the steps removed. Throws Error(corrupt) and removes nothing if none is whole.
  std::vector<int64_t> prune();
  // The newest checkpoint whose hashes hold; damaged newer ones are logged by name with what is
  // wrong, and skipped. Empty if the folder holds none at all. Throws Error(corrupt) naming each if
  // all are damaged: starting anew silently would be a loss. Throws Error(unsupported) if the
  // newest is of a newer Trireme: it is whole, and going on from an older one would be a loss too.
  std::optional<Saved> newest() const;
  const std::filesystem::path& path() const { return path_; }

 private:
  void write(Manifest& manifest, const std::vector<OutgoingFile>& content, const Part& part,
             const GoOnWaiting& go_on_waiting, const std::filesystem::path& unfinished);
  void take_place(const std::filesystem::path& written, const std::filesystem::path& place);
  std::vector<int64_t> remove_outdated(int64_t saved_step);
  Losses losses();

  std::filesystem::path path_;
  RetentionOptions retention_;
  FileSystem& files_;
  std::unique_ptr<FileSystem::Lock> lock_;
  Losses known_losses_;  // Read once: a long run's manifests are long.
};

// Folder::newest() of a folder that is only read. Throws likewise.
std::optional<Saved> newest_in(const std::filesystem::path& folder);
// Opens one checkpoint (its own folder, step-...) and verifies it. Throws Error(not_found | corrupt
// | unsupported | io).
Saved open_checkpoint(const std::filesystem::path& path);
// True if `path` is a folder with at least one checkpoint in it; writes nothing.
bool has_checkpoints(const std::filesystem::path& path);

}  // namespace trireme::checkpoint
