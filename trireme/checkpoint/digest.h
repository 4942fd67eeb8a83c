// What tells whether a file of a checkpoint is as it was written. No torch.
//
// A tree of two levels over XXH3 (https://github.com/Cyan4973/xxHash, 128 bits): the file's pieces
// of 256 KiB are hashed each by itself, then their digests one after the other. So several threads
// can hash one file, and a reader can check a piece while it is in the cache. XXH3 finds damage at
// the speed of memory, which SHA-256 does not on few cores; it is no proof against someone who
// forges files.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::checkpoint {

inline constexpr size_t kDigestPiece = 256 << 10;
inline constexpr size_t digest_pieces(uint64_t bytes) {
  return (bytes + kDigestPiece - 1) / kDigestPiece;
}                                               // Of a file.
using PieceDigest = std::array<std::byte, 16>;  // Canonical: most significant byte first.

PieceDigest digest_of_piece(std::span<const std::byte> piece);
PieceDigest digest_of_piece(
    std::span<const std::span<std::byte>> parts);  // Of a piece that lies in several places.
// "xxh3-256k:" and 32 hexadecimal digits. `pieces` in order; all but the last of kDigestPiece
// bytes; an empty file has none.
std::string digest_text(std::span<const PieceDigest> pieces);

bool is_tree_digest(std::string_view text);

// Incremental, for bytes that come in parts of any size. One thread.
class Digest {
 public:
  Digest();
  ~Digest();
  void update(std::span<const std::byte> bytes);
  std::string text();  // Call it once, last.

 private:
  struct State;
  std::unique_ptr<State> state_;  // Of the piece under way.
  size_t in_piece_ = 0;
  std::vector<PieceDigest> pieces_;
};

// Reads the file on `threads` threads. Of the kind that `like` is: a text as above, or 64 digits of
// SHA-256, which checkpoints of Trireme's first weeks have. Throws Error(io), or Error(unsupported)
// for a kind this build does not know.
std::string digest_of_file(const std::filesystem::path& path, std::string_view like, int threads);

}  // namespace trireme::checkpoint
