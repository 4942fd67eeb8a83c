#include <trireme/checkpoint/output_file.h>

#include <algorithm>

namespace trireme::checkpoint {
namespace {

constexpr size_t kChunkBytes = 4 << 20;

}  // namespace

void OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto chunk = bytes.first(std::min(bytes.size(), kChunkBytes));
    if (known_.empty()) digest_.update(chunk);
    for (auto rest = chunk; !rest.empty();) rest = rest.subspan(file_->write(rest));
    bytes = bytes.subspan(chunk.size());
  }
}

std::vector<PieceDigest> OutputFile::finish() {
  file_->sync();
  file_.reset();
  return known_.empty() ? digest_.pieces() : std::move(known_);
}

}  // namespace trireme::checkpoint
