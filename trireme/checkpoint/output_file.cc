#include <trireme/base/error.h>
#include <trireme/checkpoint/leftovers.h>
#include <trireme/checkpoint/output_file.h>

#include <algorithm>

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

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

std::vector<PieceDigest> write_whole_file(const fs::path& path,
                                          const std::function<void(OutputFile&)>& write) {
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  const fs::path unfinished = folder / writing_name(path.filename().string());
  try {
    OutputFile file(disk(), unfinished);
    write(file);
    std::vector<PieceDigest> digests = file.finish();
    disk().rename(unfinished, path);
    disk().sync_folder(folder);
    return digests;
  } catch (const Error&) {
    std::error_code ignored;
    fs::remove(unfinished, ignored);
    throw;
  }
}

}  // namespace trireme::checkpoint
