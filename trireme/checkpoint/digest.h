// Digests that tell whether a file of a checkpoint is still as it was written.
//
// A digest is a tree of two levels over XXH3 (https://github.com/Cyan4973/xxHash, 128 bits): each
// piece of 256 KiB of the file is hashed by itself, and then the digests of the pieces are hashed
// in order. Therefore several threads can hash one file, and a reader can check a piece while it
// is in the cache. XXH3 finds damage at the speed of memory; SHA-256 would need more cores for
// that. XXH3 does not protect against forged files.
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
// The number of pieces in a file of `bytes` bytes.
inline constexpr size_t digest_pieces(uint64_t bytes) {
  return (bytes + kDigestPiece - 1) / kDigestPiece;
}
// The canonical form: the most significant byte comes first.
using PieceDigest = std::array<std::byte, 16>;

PieceDigest digest_of_piece(std::span<const std::byte> piece);
// The same for a piece whose bytes lie in several places.
PieceDigest digest_of_piece(std::span<const std::span<std::byte>> parts);
// Returns "xxh3-256k:" and 32 hexadecimal digits. `pieces` are in order, and all but the last
// cover kDigestPiece bytes. An empty file has no pieces.
std::string digest_text(std::span<const PieceDigest> pieces);

bool is_tree_digest(std::string_view text);

// An incremental digest for bytes that come in blocks of any size. One thread.
class Digest {
 public:
  Digest();
  ~Digest();
  void update(std::span<const std::byte> bytes);
  // Call one of these, once and last.
  std::vector<PieceDigest> pieces();
  std::string text() { return digest_text(pieces()); }

 private:
  struct State;
  // The state of the piece that is being hashed.
  std::unique_ptr<State> state_;
  size_t in_piece_ = 0;
  std::vector<PieceDigest> done_;
};

// Reads the file on `threads` threads. The digest is of the same kind as `like`: a text as above,
// or 64 digits of SHA-256 as in checkpoints of early versions. Throws Error(io), or
// Error(unsupported) for a kind that this build does not know.
std::string digest_of_file(const std::filesystem::path& path, std::string_view like, int threads);

}  // namespace trireme::checkpoint
