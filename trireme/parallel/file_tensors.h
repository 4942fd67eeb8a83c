// Tensors in a file, for a model or a state that is larger than memory while it is made.
#pragma once
#include <trireme/net/file_pages.h>
#include <trireme/tensor/cpu_allocator.h>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

namespace trireme {

// Gives tensors of 64 KiB and more memory in a file without a name. A tensor begins to leave
// memory when the next ones are made, and its space on the disk is free when it is. Use it with an
// AllocationScope, after install_cpu_allocator():
//   const AllocationScope scope(std::make_shared<FileTensors>("/fast/disk"));
//   Net net;
// One thread at a time makes tensors; any thread may free them.
class FileTensors : public AllocationSource {
 public:
  // Throws Error(io) that names the folder.
  explicit FileTensors(const std::string& folder);

  // Throws Error(io) that names folder, bytes needed and bytes free if the disk is too small.
  void* try_allocate(size_t bytes) override;
  void give_back(void* data) override;

 private:
  std::shared_ptr<net::SharedMemory> memory_;
  net::PageTrail trail_;
  size_t end_ = 0;                               // No tensor lies behind it.
  size_t newest_ = 0, newest_bytes_ = 0;         // The tensor that is being filled.
  std::mutex mutex_;                             // Guards what follows.
  std::unordered_map<size_t, size_t> bytes_at_;  // The tensors' bytes by their offsets.
};

// While an object lives, tensors that this thread makes lie in a file of the folder; in ordinary
// memory if the folder is empty. Throws what FileTensors throws.
class TensorsInFiles {
 public:
  explicit TensorsInFiles(const std::string& folder);

 private:
  std::optional<AllocationScope> scope_;
};

}  // namespace trireme
