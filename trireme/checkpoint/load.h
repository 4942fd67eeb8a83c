// Reads a checkpoint into tensors that exist already: one pass from the disk to their places,
// verified while it is in the cache. No torch.
//
// Verifying first and copying then costs two passes over memory, twice the time of a loader that
// trusts its file. So damage may show only when some bytes are in place: load_newest() then fills
// the same places from an older checkpoint, or throws; it never returns with damage in them.
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
  const TensorView* tensor;    // Of Saved::model or Saved::optimizer.
  std::span<std::byte> bytes;  // As many as the tensor has.
};

// Says where the tensors of a checkpoint go, by their headers; their bytes are not to be read yet.
// Tensors that are not mentioned are verified only. May throw what it likes if the checkpoint does
// not fit: that comes out if the checkpoint is whole, and not if its header was damaged.
using Place = std::function<std::vector<Destination>(const Saved&)>;

// newest_in() and reading in one. Throws likewise, and Error(invalid_argument) for a destination of
// another size.
std::optional<Saved> load_newest(const std::filesystem::path& folder, const Place& place);
// One checkpoint, its own folder. Throws Error(corrupt): the destinations' content is of no use
// then.
Saved load_checkpoint(const std::filesystem::path& path, const Place& place);

}  // namespace trireme::checkpoint
