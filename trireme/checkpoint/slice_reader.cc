#include <trireme/checkpoint/slice_reader.h>

#include <fmt/format.h>
#include <trireme/base/cores.h>
#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/checkpoint/open_checkpoint.h>
#include <trireme/checkpoint/parallel.h>
#include <trireme/checkpoint/stretches.h>
#include <trireme/plan/slice_plan.h>
#include <algorithm>
#include <atomic>
#include <set>
#include <utility>

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using StretchesByFile = std::map<std::string, std::vector<Stretch>>;

[[noreturn]] void refuse_slice(const std::string& what) {
  throw Error(ErrorCode::invalid_argument, "checkpoint", what,
              "the checkpoint.dir of the same model, or --fresh to start anew");
}

// Moves stretches that do not overlap to the result. Two places may want the same bytes.
std::vector<Stretch> take_apart(std::vector<Stretch>& stretches) {
  std::sort(stretches.begin(), stretches.end(),
            [](const Stretch& a, const Stretch& b) { return a.begin < b.begin; });
  std::vector<Stretch> taken, rest;
  for (const Stretch& stretch : stretches)
    (taken.empty() || taken.back().end() <= stretch.begin ? taken : rest).push_back(stretch);
  stretches = std::move(rest);
  return taken;
}

std::vector<size_t> pieces_with(const std::vector<Stretch>& stretches) {
  std::vector<size_t> pieces;
  for (const Stretch& stretch : stretches)
    for (size_t i = stretch.begin / kDigestPiece; i * kDigestPiece < stretch.end(); ++i)
      if (pieces.empty() || pieces.back() < i) pieces.push_back(i);
  return pieces;
}

// Reads and verifies the pieces of a file in which the stretches lie. `known` is null if the whole
// file has been verified.
uint64_t read_file_of(const fs::path& path, const std::vector<Stretch>& stretches,
                      const std::vector<PieceDigest>* known) {
  const InputFile file(path);
  if (known != nullptr && known->size() != digest_pieces(file.size()))
    throw Error(ErrorCode::corrupt, "checkpoint",
                fmt::format("{} was cut off or grew: it has {} bytes and {} digests of pieces",
                            path.string(), file.size(), known->size()),
                "an older checkpoint");
  const std::vector<size_t> pieces = pieces_with(stretches);
  std::atomic<uint64_t> bytes = 0;
  in_parallel(pieces.size(), usable_cores(), [&](size_t from, size_t to) {
    std::vector<std::byte> scratch(kDigestPiece);
    for (size_t i = from; i < to; ++i) {
      const uint64_t begin = pieces[i] * kDigestPiece,
                     end = std::min<uint64_t>(file.size(), begin + kDigestPiece);
      const PieceDigest digest = read_piece(file, begin, end, stretches, scratch);
      bytes += end - begin;
      if (known != nullptr && digest != (*known)[pieces[i]])
        throw Error(
            ErrorCode::corrupt, "checkpoint",
            fmt::format("{} was changed between the bytes {} and {}", path.string(), begin, end),
            "an older checkpoint");
    }
  });
  return bytes;
}

}  // namespace

SliceReader::SliceReader(const fs::path& path) : saved_(open_manifest(path)) {
  try {
    open_files(saved_);
    if (saved_.manifest.format >= 3)
      pieces_ = read_pieces(path, saved_.manifest);
    else
      verify(saved_);
    for (const char* const kind : {kModelFile, kOptimizerFile})
      for (StoredTensor& tensor : catalogue_of(saved_, kind))
        tensors_.push_back(std::move(tensor));
  } catch (const std::exception&) {
    verify(saved_);  // Damage would explain the error.
    throw;
  }
  for (const StoredTensor& tensor : tensors_) {
    by_name_.emplace(tensor.spec.name, &tensor);
    for (const StoredPart& part : tensor.parts) {
      uint64_t& header = headers_.emplace(part.file, part.offset).first->second;
      header = std::min(header, part.offset);
    }
  }
}

const StoredTensor* SliceReader::find(const std::string& tensor) const {
  const auto found = by_name_.find(tensor);
  return found == by_name_.end() ? nullptr : found->second;
}

void SliceReader::read(const std::vector<SliceDestination>& destinations) {
  std::vector<plan::TensorSlice> wanted, stored;
  std::vector<const StoredPart*> parts;
  std::set<const StoredTensor*> used;
  for (const auto& [slice, bytes] : destinations) {
    const StoredTensor* const tensor = find(slice.tensor);
    if (tensor == nullptr)
      refuse_slice(fmt::format("{} has no tensor '{}'", saved_.path.string(), slice.tensor));
    if (slice.shape != tensor->spec.shape)
      refuse_slice(fmt::format("{} holds '{}' as {}, the run has {}", saved_.path.string(),
                               slice.tensor, tensor->spec.describe(), slice.describe()));
    const auto size = static_cast<size_t>(slice.elements() * plan::bytes_of(tensor->spec.dtype));
    if (size != bytes.size())
      refuse_slice(fmt::format("the slice {} has {} bytes, its place {}", slice.describe(), size,
                               bytes.size()));
    wanted.push_back(slice);
    if (!used.insert(tensor).second) continue;
    for (const StoredPart& part : tensor->parts) {
      stored.push_back(part.slice);
      parts.push_back(&part);
    }
  }
  StretchesByFile stretches;
  const auto reads = plan::plan_reads(wanted, stored);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto width = static_cast<uint64_t>(plan::bytes_of(find(wanted[i].tensor)->spec.dtype));
    for (const auto& [from, box] : reads[i])
      for (const auto& [source, target, elements] : plan::runs_of(box, stored[from], wanted[i]))
        stretches[parts[from]->file].push_back(
            {parts[from]->offset + static_cast<uint64_t>(source) * width,
             destinations[i].bytes.subspan(static_cast<uint64_t>(target) * width,
                                           static_cast<uint64_t>(elements) * width)});
  }
  for (auto& [file, places] : stretches) read_places(file, std::move(places));
}

void SliceReader::read_places(const std::string& file, std::vector<Stretch> places) {
  const auto known = pieces_.find(file);
  if (known == pieces_.end() && saved_.manifest.format >= 3)
    throw Error(ErrorCode::corrupt, "checkpoint",
                fmt::format("{} has no digests of the pieces of {}", saved_.path.string(), file),
                "an older checkpoint");
  // The header says where the tensors lie, so it is verified too.
  std::vector<std::byte> header(known == pieces_.end() ? 0 : std::exchange(headers_.at(file), 0));
  if (!header.empty()) places.push_back({0, header});
  while (!places.empty()) {
    const std::vector<Stretch> apart = take_apart(places);
    bytes_read_ +=
        read_file_of(saved_.path / file, apart, known == pieces_.end() ? nullptr : &known->second);
  }
}

}  // namespace trireme::checkpoint
