#include <trireme/checkpoint/load.h>

#include <fmt/format.h>
#include <trireme/base/cores.h>
#include <trireme/base/error.h>
#include <trireme/checkpoint/digest.h>
#include <trireme/checkpoint/input_file.h>
#include <trireme/checkpoint/open_checkpoint.h>
#include <trireme/checkpoint/parallel.h>
#include <trireme/checkpoint/pieces.h>
#include <trireme/checkpoint/stretches.h>
#include <algorithm>
#include <memory>
#include <utility>

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

std::vector<Stretch> stretches_of(const SafetensorsFile& file,
                                  const std::vector<Destination>& destinations) {
  std::vector<Stretch> stretches;
  for (const auto& [tensor, bytes] : destinations) {
    const TensorView* const own = file.find(tensor->spec.name);
    // The tensor is in another file.
    if (own == nullptr || own->bytes.data() != tensor->bytes.data()) continue;
    if (tensor->bytes.size() != bytes.size())
      throw Error(ErrorCode::invalid_argument, "checkpoint",
                  fmt::format("the tensor {} has {} bytes, its place {}", tensor->spec.name,
                              tensor->bytes.size(), bytes.size()),
                  "a place of the tensor's size");
    if (!bytes.empty()) stretches.push_back({file.offset_of(*tensor), bytes});
  }
  std::sort(stretches.begin(), stretches.end(),
            [](const Stretch& a, const Stretch& b) { return a.begin < b.begin; });
  return stretches;
}

struct Reading {
  Reading(const fs::path& file_path, std::vector<Stretch> places)
      : path(file_path),
        file(path),
        stretches(std::move(places)),
        pieces(digest_pieces(file.size())) {}
  fs::path path;
  InputFile file;
  std::vector<Stretch> stretches;
  std::vector<PieceDigest> pieces;
};

void read(const std::vector<std::unique_ptr<Reading>>& readings) {
  size_t all = 0;
  for (const auto& reading : readings) all += reading->pieces.size();
  in_parallel(all, usable_cores(), [&](size_t from, size_t to) {
    std::vector<std::byte> scratch(kDigestPiece);
    size_t first = 0;
    for (const auto& reading : readings) {
      const size_t count = reading->pieces.size();
      for (size_t i = std::max(from, first); i < std::min(to, first + count); ++i) {
        const uint64_t begin = (i - first) * kDigestPiece;
        reading->pieces[i - first] =
            read_piece(reading->file, begin, std::min(reading->file.size(), begin + kDigestPiece),
                       reading->stretches, scratch);
      }
      first += count;
    }
  });
}

}  // namespace

Saved load_checkpoint(const fs::path& path, const Place& place) {
  Saved saved = open_manifest(path);
  std::vector<Destination> destinations;
  try {
    open_files(saved);
    destinations = place(saved);
  } catch (const std::exception&) {
    verify(saved);  // Damage would explain the error.
    throw;
  }
  if (!std::ranges::all_of(saved.manifest.files,
                           [](const auto& file) { return is_tree_digest(file.second); })) {
    // Checkpoints of early versions have SHA-256 hashes.
    verify(saved);
    for (const auto& [tensor, bytes] : destinations)
      std::copy(tensor->bytes.begin(), tensor->bytes.end(), bytes.begin());
    return saved;
  }
  std::vector<std::unique_ptr<Reading>> readings;
  for (const auto& [kind, opened] :
       {std::pair{kModelFile, saved.model.get()}, {kOptimizerFile, saved.optimizer.get()}}) {
    const auto names = files_of_parts(saved.manifest, kind);
    for (size_t i = 0; i < names.size(); ++i)
      readings.push_back(std::make_unique<Reading>(
          path / names[i], stretches_of(opened->files()[i], destinations)));
  }
  for (const std::string& name : files_of_parts(saved.manifest, kPiecesFile))
    readings.push_back(std::make_unique<Reading>(path / name, std::vector<Stretch>()));
  read(readings);
  for (const auto& reading : readings)
    require_digest(reading->path, digest_text(reading->pieces),
                   saved.manifest.files.at(reading->path.filename().string()));
  return saved;
}

std::optional<Saved> load_newest(const fs::path& folder, const Place& place) {
  return newest_whole(folder, [&](const fs::path& path) { return load_checkpoint(path, place); });
}

}  // namespace trireme::checkpoint
