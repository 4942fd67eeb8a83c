// The digests of the pieces of a checkpoint's files, so that a reader can verify the pieces that
// it reads without the rest of the file.
//
// Each part has a file of them, pieces.safetensors, pieces-1.safetensors and so on: for each other
// file of the part a tensor of its name, uint8[pieces, 16]. The digest of a file in the manifest
// is that of these digests, so the manifest vouches for them too.
#pragma once
#include <trireme/checkpoint/digest.h>
#include <trireme/checkpoint/parts.h>
#include <trireme/checkpoint/safetensors.h>
#include <map>
#include <string>
#include <vector>

namespace trireme::checkpoint {

inline constexpr const char* kPiecesFile = "pieces.safetensors";

using PiecesByFile = std::map<std::string, std::vector<PieceDigest>>;

// The file of a part. `pieces` must outlive it.
class PiecesFile {
 public:
  PiecesFile(const PiecesByFile& pieces, int part);
  PiecesFile(const PiecesFile&) = delete;
  PiecesFile& operator=(const PiecesFile&) = delete;
  const OutgoingFile& content() const { return content_; }

 private:
  SafetensorsLayout layout_;
  OutgoingFile content_;
};

// Reads the digests of all parts, and compares those of each file with the file's digest in the
// manifest. Throws Error(corrupt) that names the file of digests, and the errors of
// SafetensorsFile.
PiecesByFile read_pieces(const std::filesystem::path& checkpoint, const Manifest& manifest);

}  // namespace trireme::checkpoint
