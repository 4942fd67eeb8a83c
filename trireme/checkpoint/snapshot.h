// A copy in memory of the files that a checkpoint will have, each in one piece as it will lie on
// the disk. No torch.
#pragma once
#include <trireme/checkpoint/folder.h>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace trireme::checkpoint {

// Pages that stay from one snapshot to the next: the system takes several times as long to hand
// them out as to copy into them.
class PageBuffer {
 public:
  PageBuffer() = default;
  ~PageBuffer();
  PageBuffer(const PageBuffer&) = delete;
  PageBuffer& operator=(const PageBuffer&) = delete;
  // At least so many bytes, at a multiple of the page size; what was in it is lost when it grows.
  // Throws std::bad_alloc.
  std::span<std::byte> resize(size_t bytes);
  std::span<const std::byte> bytes() const { return {start_, size_}; }

 private:
  std::byte* start_ = nullptr;
  size_t size_ = 0, capacity_ = 0;
};

class Snapshot {
 public:
  // Copies the tensors on `threads` threads, and hashes each piece while it is in the cache:
  // reading all of it once more later would take memory's bandwidth from training. Throws as
  // lay_out() does, with nothing copied.
  void take(const std::vector<TensorView>& model, const std::vector<TensorView>& optimizer,
            int threads);
  // As TensorFiles has them, for Folder::save() and write_part(); they point into the snapshot.
  std::vector<OutgoingFile> files(int part = 0) const;

 private:
  struct File {
    PageBuffer image;
    std::string digest;
  };
  File model_, optimizer_;
};

}  // namespace trireme::checkpoint
