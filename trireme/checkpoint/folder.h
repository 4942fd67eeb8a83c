// A folder of checkpoints: step-000000120/{manifest.json, history.safetensors, and of each part
// model.safetensors, optimizer.safetensors and pieces.safetensors}.
//
// A checkpoint is written under another name, fsynced and then renamed, so every visible
// checkpoint is whole. Its manifest holds the hash of each file and its own hash, so a
// checkpoint that was damaged later is never chosen. Only one job at a time writes into a
// folder, with one thread.
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

// Lays out model.safetensors. Its metadata says that the tensors have PyTorch's layout.
SafetensorsLayout lay_out_model(const std::vector<TensorView>& tensors);

// The tensors' files of a part, written directly from the tensors, which must not change while
// this object lives. Parts after the first have a file of the model only if they have tensors of
// it.
class TensorFiles {
 public:
  // Throws the errors of lay_out().
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
  // Creates the folder and holds its lock while this object lives, so that no other job writes
  // there. Waits up to `lock_timeout` for another holder to release it. Removes leftovers of
  // interrupted writes. Throws Error(io) with path and reason, and Error(invalid_argument) that
  // names the holder of the folder.
  explicit Folder(std::filesystem::path path, RetentionOptions retention = {},
                  FileSystem& files = disk(), Milliseconds lock_timeout = Milliseconds(0));
  // Returns the checkpoint's path once the checkpoint is durable. A checkpoint of the same step is
  // replaced. Checkpoints that retention does not keep are removed only afterwards. Throws
  // Error(io), for example if the disk is full: older checkpoints then stay as they were. With
  // more than one part, this process writes the first part and waits for the others; it then
  // throws the errors of collect_parts() too.
  std::filesystem::path save(Manifest manifest, const std::vector<TensorView>& model,
                             const std::vector<TensorView>& optimizer);
  std::filesystem::path save(Manifest manifest, const std::vector<OutgoingFile>& content,
                             const Part& part = {}, const GoOnWaiting& go_on_waiting = {});
  std::filesystem::path path_of(int64_t step) const;
  // Removes the checkpoints that `retention` does not keep, as save() does, but never the newest
  // whole checkpoint or anything newer. The best ones are those by the measure of the run, which
  // the newest manifest names. Returns the removed steps. Throws Error(corrupt) and removes
  // nothing if no checkpoint is whole.
  std::vector<int64_t> prune();
  // Returns the newest checkpoint whose hashes are right. Newer damaged checkpoints are skipped,
  // and the log names each with its damage. Returns nothing if the folder holds no checkpoint.
  // Throws Error(corrupt) that names each checkpoint if all are damaged, because a silent start
  // from step 0 would lose work. Throws Error(unsupported) if a newer version of Trireme wrote the
  // newest checkpoint: it is whole, and to continue from an older one would lose work too.
  std::optional<Saved> newest() const;
  const std::filesystem::path& path() const { return path_; }

 private:
  void write(Manifest& manifest, const std::vector<OutgoingFile>& content, const Part& part,
             const GoOnWaiting& go_on_waiting, const std::filesystem::path& unfinished);
  void take_place(const std::filesystem::path& written, const std::filesystem::path& place);
  std::vector<int64_t> remove_outdated(int64_t saved_step);
  Measured measured();

  std::filesystem::path path_;
  RetentionOptions retention_;
  FileSystem& files_;
  std::unique_ptr<FileSystem::Lock> lock_;
  // Each manifest is read only once.
  Measured known_;
};

// Folder::newest() for a folder that is only read. Throws the same errors.
std::optional<Saved> newest_in(const std::filesystem::path& folder);
// Opens one checkpoint and verifies it. `path` is its own folder, step-... Throws Error(not_found
// | corrupt | unsupported | io).
Saved open_checkpoint(const std::filesystem::path& path);
// Returns true if `path` is a folder with at least one checkpoint. Writes nothing.
bool has_checkpoints(const std::filesystem::path& path);

}  // namespace trireme::checkpoint
