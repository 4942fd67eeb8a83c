// Reads slices of a checkpoint's tensors, in any layout, straight into their places. It reads and
// verifies only the pieces of 256 KiB in which their bytes lie, so a rank pays for its own slices
// and not for the whole checkpoint.
#pragma once
#include <trireme/checkpoint/catalogue.h>
#include <trireme/checkpoint/pieces.h>
#include <trireme/checkpoint/stretches.h>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace trireme::checkpoint {

// The place of a slice: its elements in row-major order, of the type in which they are stored.
struct SliceDestination {
  plan::TensorSlice slice;
  std::span<std::byte> bytes;
};

class SliceReader {
 public:
  // `path` is a checkpoint's own folder. Reads the manifest and the headers, and verifies the
  // digests of pieces; formats 1 and 2 have none, so all their files are verified. Throws the
  // errors of open_checkpoint().
  explicit SliceReader(const std::filesystem::path& path);

  const Saved& saved() const { return saved_; }
  // Tensors of the model and all others have one set of names.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const StoredTensor* find(const std::string& tensor) const;
  // Fills the destinations. Throws Error(corrupt) that names a damaged file, after which their
  // content is undefined. Throws Error(invalid_argument) for a tensor that the checkpoint does not
  // have, another shape, or a place of another size.
  void read(const std::vector<SliceDestination>& destinations);
  // The bytes of tensors' files that were read so far.
  uint64_t bytes_read() const { return bytes_read_; }

 private:
  void read_places(const std::string& file, std::vector<Stretch> places);

  Saved saved_;
  std::vector<StoredTensor> tensors_;
  PiecesByFile pieces_;
  std::map<std::string, const StoredTensor*> by_name_;
  std::map<std::string, uint64_t> headers_;  // The bytes of headers that are not verified yet.
  uint64_t bytes_read_ = 0;
};

}  // namespace trireme::checkpoint
