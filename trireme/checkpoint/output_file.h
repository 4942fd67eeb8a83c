// A file that is hashed while it is written, unless its digests are already known.
#pragma once
#include <trireme/checkpoint/digest.h>
#include <trireme/checkpoint/file_system.h>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::checkpoint {

class OutputFile {
 public:
  // Creates an empty file `path`; a file of that name is unlinked first. Throws Error(io).
  // `known` are the digests of all its pieces.
  OutputFile(FileSystem& files, const std::filesystem::path& path,
             std::vector<PieceDigest> known = {})
      : file_(files.create(path)), known_(std::move(known)) {}
  // Throws Error(io) that names the path, the reason (such as "No space left on device") and the
  // number of bytes written so far.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  // Makes the bytes durable and returns the digests of their pieces. The name becomes durable when
  // the folder is synced. Throws Error(io). Call it once, as the last call.
  std::vector<PieceDigest> finish();

 private:
  std::unique_ptr<FileSystem::File> file_;
  Digest digest_;
  std::vector<PieceDigest> known_;
};

// Writes a file beside `path` by `write`, and gives it its name once it is durable. An error
// leaves no file behind. Returns the digests of its pieces. Throws Error(io), and what `write`
// throws.
std::vector<PieceDigest> write_whole_file(const std::filesystem::path& path,
                                          const std::function<void(OutputFile&)>& write);

}  // namespace trireme::checkpoint
