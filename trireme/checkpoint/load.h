// Reads whole tensors of a checkpoint into existing ones in one pass: each block goes from the
// disk to its place and is verified while it is in the cache.
//
// To verify first and to copy then would cost two passes over memory, twice the time of a
// loader that does not verify. Therefore damage may be found when some bytes are already in
// place. load_newest() then fills the same places from an older checkpoint, or throws; it never
// returns damaged tensors.
#pragma once
#include <trireme/checkpoint/folder.h>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trireme::checkpoint {

struct Destination {
  const TensorView* tensor;    // One of Saved::model or Saved::optimizer: it is stored whole.
  std::span<std::byte> bytes;  // The destination has as many bytes as the tensor.
};

// A function that decides from the headers where the tensors of a checkpoint go. It must not read
// the tensors' bytes. Tensors without a destination are only verified. It may throw any error if
// the checkpoint does not fit; the caller gets this error if the checkpoint is whole, but not if
// its header was damaged.
using Place = std::function<std::vector<Destination>(const Saved&)>;

// Finds the checkpoint as newest_in() does, and reads it. Throws the same errors, and
// Error(invalid_argument) for a destination of another size.
std::optional<Saved> load_newest(const std::filesystem::path& folder, const Place& place);
// Reads one checkpoint; `path` is its own folder. Throws the errors of open_checkpoint(). After
// Error(corrupt) the content of the destinations is undefined.
Saved load_checkpoint(const std::filesystem::path& path, const Place& place);

}  // namespace trireme::checkpoint
