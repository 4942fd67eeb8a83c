// A copy in memory of the files of a future checkpoint, each in one piece as it will lie on the
// disk.
#pragma once
#include <trireme/checkpoint/digest.h>
#include <trireme/checkpoint/folder.h>
#include <cstddef>
#include <span>
#include <vector>

namespace trireme::checkpoint {

// Pages that are kept from one snapshot to the next, because the system takes several times as
// long to allocate them as a copy into them takes.
class PageBuffer {
 public:
  PageBuffer() = default;
  ~PageBuffer();
  PageBuffer(const PageBuffer&) = delete;
  PageBuffer& operator=(const PageBuffer&) = delete;
  // Returns at least `bytes` bytes at a multiple of the page size. The old content is lost when
  // the buffer grows. Throws std::bad_alloc.
  std::span<std::byte> resize(size_t bytes);
  std::span<const std::byte> bytes() const { return {start_, size_}; }

 private:
  std::byte* start_ = nullptr;
  size_t size_ = 0, capacity_ = 0;
};

class Snapshot {
 public:
  // Copies the tensors on `threads` threads, and hashes each piece while it is in the cache.
  // Another pass for the hash would take memory bandwidth from training. Throws the errors of
  // lay_out(); nothing has been copied then.
  void take(const std::vector<TensorView>& model, const std::vector<TensorView>& optimizer,
            int threads);
  // Returns files like those of TensorFiles, for Folder::save() and write_part(). They
  // point into the snapshot.
  std::vector<OutgoingFile> files(int part = 0) const;

 private:
  struct File {
    PageBuffer image;
    std::vector<PieceDigest> pieces;
  };
  File model_, optimizer_;
  bool has_model_ = false;
};

}  // namespace trireme::checkpoint
