#include <trireme/checkpoint/catalogue.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/plan/slice_plan.h>
#include <algorithm>
#include <cstring>
#include <string_view>
#include <unordered_map>

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

Error flawed(const fs::path& file, const std::string& what) {
  return Error(ErrorCode::corrupt, "checkpoint", fmt::format("{}: {}", file.string(), what),
               "an older checkpoint");
}

// Without trust: the numbers come from a manifest.
bool fits(const StoredSlice& stored, const plan::TensorSpec& spec) {
  const size_t dims = spec.shape.size();
  if (stored.shape.size() != dims || stored.from.size() != dims) return false;
  int64_t bytes = plan::bytes_of(spec.dtype);
  for (size_t d = 0; d < dims; ++d) {
    if (stored.shape[d] < 0 || stored.from[d] < 0 || spec.shape[d] > stored.shape[d] ||
        stored.from[d] > stored.shape[d] - spec.shape[d] ||
        __builtin_mul_overflow(bytes, std::max<int64_t>(stored.shape[d], 1), &bytes))
      return false;
  }
  return true;
}

StoredPart part_of(const TensorView& view, const StoredSlice* slice, const fs::path& file) {
  StoredPart part{plan::TensorSlice::whole(view.spec.name, view.spec.shape), view.bytes,
                  file.filename().string()};
  if (slice == nullptr) return part;
  if (!fits(*slice, view.spec))
    throw flawed(file, fmt::format("the manifest has no fitting slice for '{}', {}",
                                   view.spec.name, view.spec.describe()));
  part.slice = {slice->tensor, slice->shape, slice->from, view.spec.shape};
  return part;
}

void require_cover(const StoredTensor& tensor, const fs::path& path) {
  std::vector<plan::TensorSlice> slices;
  std::vector<std::string> holders;
  for (const StoredPart& part : tensor.parts) {
    slices.push_back(part.slice);
    holders.push_back(part.file);
  }
  const plan::Cover cover = plan::check_cover(slices, holders);
  if (!cover.flaw.empty()) throw flawed(path / holders[0], cover.flaw);
  for (size_t i = 0; i < slices.size(); ++i)
    if (cover.first[i] != i)
      throw flawed(path / holders[i],
                   fmt::format("it holds the tensor '{}' ({}), which another file has too: {}",
                               tensor.spec.name, slices[i].describe(), holders[cover.first[i]]));
}

}  // namespace

std::vector<StoredTensor> catalogue_of(const Saved& saved, const char* kind) {
  const auto& [path, manifest, model, optimizer] = saved;
  const auto& files = (std::string_view(kind) == kModelFile ? model : optimizer)->files();
  const std::vector<std::string> names = files_of_parts(manifest, kind);
  std::vector<StoredTensor> tensors;
  std::unordered_map<std::string, size_t> by_name;
  for (size_t i = 0; i < files.size(); ++i) {
    const auto listed = manifest.slices.find(names[i]);
    size_t used = 0;
    for (const TensorView& view : files[i].tensors()) {
      const StoredSlice* slice = nullptr;
      if (listed != manifest.slices.end())
        if (const auto found = listed->second.find(view.spec.name); found != listed->second.end())
          slice = &found->second;
      used += slice != nullptr ? 1 : 0;
      StoredPart part = part_of(view, slice, path / names[i]);
      part.offset = files[i].offset_of(view);
      const auto [place, is_new] = by_name.emplace(part.slice.tensor, tensors.size());
      if (is_new) tensors.push_back({{part.slice.tensor, part.slice.shape, view.spec.dtype}, {}});
      StoredTensor& tensor = tensors[place->second];
      if (tensor.spec.dtype != view.spec.dtype)
        throw flawed(path / names[i],
                     fmt::format("'{}' is {}, another file has it as {}", tensor.spec.name,
                                 view.spec.describe(), tensor.spec.describe()));
      tensor.parts.push_back(std::move(part));
    }
    if (listed != manifest.slices.end() && used != listed->second.size())
      throw flawed(path / names[i], "the manifest lists slices that it does not hold");
  }
  for (StoredTensor& tensor : tensors) {
    require_cover(tensor, path);
    std::ranges::sort(tensor.parts, {}, [](const StoredPart& part) { return part.slice.from; });
  }
  return tensors;
}

StoredTensor stored_whole(const TensorView& tensor) {
  return {tensor.spec,
          {{plan::TensorSlice::whole(tensor.spec.name, tensor.spec.shape), tensor.bytes, {}, 0}}};
}

std::span<const std::byte> assemble(const StoredTensor& tensor, std::vector<std::byte>& memory) {
  if (tensor.is_whole()) return tensor.parts[0].bytes;
  memory.resize(static_cast<size_t>(tensor.spec.bytes()));
  const auto whole = plan::TensorSlice::whole(tensor.spec.name, tensor.spec.shape);
  const int64_t width = plan::bytes_of(tensor.spec.dtype);
  for (const StoredPart& part : tensor.parts)
    for (const auto& [source, target, elements] : plan::runs_of(part.slice, part.slice, whole))
      std::memcpy(memory.data() + target * width, part.bytes.data() + source * width,
                  static_cast<size_t>(elements * width));
  return memory;
}

}  // namespace trireme::checkpoint
