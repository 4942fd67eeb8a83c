#include <trireme/checkpoint/digest.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <trireme/checkpoint/input_file.h>
#include <trireme/checkpoint/parallel.h>
#include <algorithm>
#include <cstring>
#if defined(__x86_64__)
#include <xxh_x86dispatch.h>  // Chooses the widest instructions that this processor has.
#else
#include <xxhash.h>
#endif

namespace trireme::checkpoint {
namespace {

constexpr std::string_view kKind = "xxh3-256k:";
static_assert(kDigestPiece == 256 << 10, "the kind's name says so");

PieceDigest canonical(XXH128_hash_t hash) {
  XXH128_canonical_t text;
  XXH128_canonicalFromHash(&text, hash);
  PieceDigest digest;
  std::memcpy(digest.data(), text.digest, sizeof digest);
  return digest;
}

class XxhState {
 public:
  XxhState() { XXH3_128bits_reset(state_.get()); }
  XXH3_state_t* get() const { return state_.get(); }

 private:
  // XXH3 needs an aligned state, so XXH3_createState() allocates it.
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_{XXH3_createState(),
                                                                  &XXH3_freeState};
};

std::string sha256_of(const InputFile& file) {
  std::vector<std::byte> buffer(std::min<uint64_t>(file.size(), 1 << 20));
  Sha256 sha;
  for (uint64_t at = 0; at < file.size(); at += buffer.size()) {
    const auto part = std::span(buffer).first(std::min<uint64_t>(buffer.size(), file.size() - at));
    file.read(at, part);
    sha.update(part);
  }
  return sha.hex();
}

}  // namespace

PieceDigest digest_of_piece(std::span<const std::byte> piece) {
  return canonical(XXH3_128bits(piece.data(), piece.size()));
}

PieceDigest digest_of_piece(std::span<const std::span<std::byte>> parts) {
  if (parts.size() == 1) return digest_of_piece(parts[0]);
  const XxhState state;
  for (const auto& part : parts) XXH3_128bits_update(state.get(), part.data(), part.size());
  return canonical(XXH3_128bits_digest(state.get()));
}

bool is_tree_digest(std::string_view text) { return text.starts_with(kKind); }

std::string digest_text(std::span<const PieceDigest> pieces) {
  std::string text(kKind);
  for (const std::byte byte : digest_of_piece(std::as_bytes(pieces)))
    text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

struct Digest::State {
  XxhState xxh;
};

Digest::Digest() : state_(std::make_unique<State>()) {}
Digest::~Digest() = default;

void Digest::update(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(bytes.size(), kDigestPiece - in_piece_));
    bytes = bytes.subspan(part.size());
    // A whole piece is hashed at once, which is faster.
    if (part.size() == kDigestPiece) {
      done_.push_back(digest_of_piece(part));
      continue;
    }
    XXH3_128bits_update(state_->xxh.get(), part.data(), part.size());
    in_piece_ += part.size();
    if (in_piece_ < kDigestPiece) continue;
    done_.push_back(canonical(XXH3_128bits_digest(state_->xxh.get())));
    XXH3_128bits_reset(state_->xxh.get());
    in_piece_ = 0;
  }
}

std::vector<PieceDigest> Digest::pieces() {
  if (in_piece_ > 0) done_.push_back(canonical(XXH3_128bits_digest(state_->xxh.get())));
  return std::move(done_);
}

std::string digest_of_file(const std::filesystem::path& path, std::string_view like, int threads) {
  const InputFile file(path);
  const bool is_sha = like.size() == 64 && like.find(':') == std::string_view::npos;
  if (is_sha) return sha256_of(file);
  if (!is_tree_digest(like))
    throw Error(ErrorCode::unsupported, "checkpoint",
                fmt::format("the hash of {} is {}, of a kind this build does not know",
                            path.string(), like),
                "a newer Trireme");
  std::vector<PieceDigest> pieces(digest_pieces(file.size()));
  in_parallel(pieces.size(), threads, [&](size_t from, size_t to) {
    std::vector<std::byte> buffer(std::min<uint64_t>(file.size(), kDigestPiece));
    for (size_t i = from; i < to; ++i) {
      const auto part = std::span(buffer).first(
          std::min<uint64_t>(kDigestPiece, file.size() - i * kDigestPiece));
      file.read(i * kDigestPiece, part);
      pieces[i] = digest_of_piece(part);
    }
  });
  return digest_text(pieces);
}

}  // namespace trireme::checkpoint
