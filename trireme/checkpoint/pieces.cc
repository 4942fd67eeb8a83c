#include <trireme/checkpoint/pieces.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <cstring>

namespace trireme::checkpoint {
namespace {

Error wrong_pieces(const std::filesystem::path& path, const std::string& what) {
  return Error(ErrorCode::corrupt, "checkpoint", fmt::format("{} {}", path.string(), what),
               "an older checkpoint");
}

}  // namespace

PiecesFile::PiecesFile(const PiecesByFile& pieces, int part) {
  std::vector<TensorView> tensors;
  for (const auto& [file, digests] : pieces)
    tensors.push_back({{file,
                        {static_cast<int64_t>(digests.size()), int64_t{sizeof(PieceDigest)}},
                        plan::DType::uint8},
                       std::as_bytes(std::span(digests))});
  layout_ = lay_out(tensors);
  content_ = {file_of_part(kPiecesFile, part), {std::as_bytes(std::span(layout_.header))}};
  for (const size_t i : layout_.order) content_.bytes.push_back(tensors[i].bytes);
}

PiecesByFile read_pieces(const std::filesystem::path& checkpoint, const Manifest& manifest) {
  PiecesByFile pieces;
  for (const std::string& name : files_of_parts(manifest, kPiecesFile)) {
    const SafetensorsFile file(checkpoint / name);
    for (const TensorView& tensor : file.tensors()) {
      auto& digests = pieces[tensor.spec.name];
      digests.resize(tensor.bytes.size() / sizeof(PieceDigest));
      if (!digests.empty())
        std::memcpy(digests.data(), tensor.bytes.data(), digests.size() * sizeof(PieceDigest));
      const auto expected = manifest.files.find(tensor.spec.name);
      if (expected == manifest.files.end() || expected->second != digest_text(digests))
        throw wrong_pieces(checkpoint / name,
                           fmt::format("was changed: its digests of {} are not those that the "
                                       "manifest vouches for",
                                       tensor.spec.name));
    }
  }
  return pieces;
}

}  // namespace trireme::checkpoint
