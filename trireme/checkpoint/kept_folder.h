// A folder with one checkpoint of another folder, such as the best one, which the keeping rule of
// that folder does not remove.
#pragma once
#include <trireme/checkpoint/file_system.h>
#include <cstdint>
#include <filesystem>
#include <optional>

namespace trireme::checkpoint {

// One thread of one process at a time. A crash at any point leaves the old checkpoint, the new
// one, or both, each whole; names of unfinished checkpoints are removed by the next object.
class KeptFolder {
 public:
  // Makes the folder, and removes leftovers. Throws Error(io).
  explicit KeptFolder(std::filesystem::path folder, FileSystem& files = disk());

  // Gives a checkpoint, which another process may remove or replace, a second name in this folder,
  // under which its files stay: hard links, or copies where the file system has none. Returns
  // nothing if the checkpoint is gone, or went meanwhile. Throws Error(io).
  std::optional<std::filesystem::path> take(const std::filesystem::path& checkpoint);
  // Makes what take() returned the one checkpoint of the folder. Returns its path once it is
  // durable. Throws Error(io).
  std::filesystem::path keep(const std::filesystem::path& taken);
  void drop(const std::filesystem::path& taken);  // What take() returned. Throws Error(io).
  // Removes all checkpoints but this one, if it is there. Throws Error(io).
  void keep_only(int64_t step);

 private:
  void copy(const std::filesystem::path& from, const std::filesystem::path& to);

  const std::filesystem::path folder_;
  FileSystem& files_;
};

}  // namespace trireme::checkpoint
