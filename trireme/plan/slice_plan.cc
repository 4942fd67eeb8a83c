#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/plan/slice_plan.h>
#include <algorithm>
#include <map>
#include <set>
#include <string_view>

namespace trireme::plan {
namespace {

using Boxes = std::vector<TensorSlice>;

// Appends what is left of `box` without `hole`, which lies inside it, as boxes that do not
// overlap.
void subtract(TensorSlice box, const TensorSlice& hole, Boxes& left) {
  for (size_t d = 0; d < box.from.size(); ++d) {
    const int64_t begin = box.from[d], end = begin + box.sizes[d];
    const int64_t hole_end = hole.from[d] + hole.sizes[d];
    if (begin < hole.from[d]) {
      left.push_back(box);
      left.back().sizes[d] = hole.from[d] - begin;
    }
    if (hole_end < end) {
      left.push_back(box);
      left.back().from[d] = hole_end;
      left.back().sizes[d] = end - hole_end;
    }
    box.from[d] = hole.from[d];
    box.sizes[d] = hole.sizes[d];
  }
}

using ByTensor = std::map<std::string_view, std::vector<size_t>>;

ByTensor by_tensor(std::span<const TensorSlice> slices) {
  ByTensor indices;
  for (size_t i = 0; i < slices.size(); ++i) indices[slices[i].tensor].push_back(i);
  return indices;
}

std::vector<SliceRead> reads_of(const TensorSlice& wanted, const std::vector<size_t>& candidates,
                                std::span<const TensorSlice> stored) {
  std::vector<SliceRead> reads;
  Boxes missing;
  if (wanted.elements() > 0) missing.push_back(wanted);
  for (const size_t i : candidates) {
    if (stored[i].shape != wanted.shape)
      throw Error(ErrorCode::invalid_argument, "plan",
                  fmt::format("{} is wanted, but the stored tensor has the shape {}",
                              wanted.describe(), stored[i].shape),
                  "the checkpoint of the same model");
    if (missing.empty()) break;
    Boxes left;
    for (TensorSlice& box : missing) {
      if (const auto common = intersect(box, stored[i])) {
        reads.push_back({i, *common});
        subtract(std::move(box), *common, left);
      } else {
        left.push_back(std::move(box));
      }
    }
    missing = std::move(left);
  }
  if (!missing.empty())
    throw Error(ErrorCode::corrupt, "plan",
                fmt::format("no slice holds {}", missing.front().describe()),
                "an older checkpoint");
  return reads;
}

// The dimension in which slices of one tensor begin at the most places.
size_t most_cut_dimension(const std::vector<size_t>& of_tensor,
                          std::span<const TensorSlice> slices) {
  size_t most_cut = 0, most_places = 0;
  for (size_t d = 0; d < slices[of_tensor[0]].shape.size(); ++d) {
    std::set<int64_t> places;
    for (const size_t i : of_tensor) places.insert(slices[i].from[d]);
    if (places.size() > most_places) most_cut = d;
    most_places = std::max(most_places, places.size());
  }
  return most_cut;
}

// Slices of one tensor, first replicas only. Returns the indices of two that overlap. Two slices
// are compared only if they overlap in the dimension that tells most of them apart.
std::optional<std::pair<size_t, size_t>> overlap(std::vector<size_t> of_tensor,
                                                 std::span<const TensorSlice> slices) {
  if (slices[of_tensor[0]].shape.empty()) return {};  // A scalar has no two different slices.
  const size_t cut = most_cut_dimension(of_tensor, slices);
  const auto begin = [&](size_t i) { return slices[i].from[cut]; };
  std::stable_sort(of_tensor.begin(), of_tensor.end(),
                   [&](size_t a, size_t b) { return begin(a) < begin(b); });
  for (size_t a = 0; a < of_tensor.size(); ++a)
    for (size_t b = a + 1; b < of_tensor.size(); ++b) {
      if (begin(of_tensor[b]) >= begin(of_tensor[a]) + slices[of_tensor[a]].sizes[cut]) break;
      if (intersect(slices[of_tensor[a]], slices[of_tensor[b]]))
        return std::minmax(of_tensor[a], of_tensor[b]);
    }
  return {};
}

std::string flaw_of(const std::vector<size_t>& all, std::span<const TensorSlice> slices,
                    std::span<const std::string> holders, std::vector<size_t>& first) {
  std::map<std::pair<std::vector<int64_t>, std::vector<int64_t>>, size_t> seen;
  std::vector<size_t> different;
  for (const size_t i : all) {
    if (slices[i].shape != slices[all[0]].shape)
      return fmt::format("{} is of another shape in {}: {}", slices[all[0]].describe(), holders[i],
                         slices[i].describe());
    first[i] = seen.try_emplace({slices[i].from, slices[i].sizes}, i).first->second;
    if (first[i] == i && slices[i].elements() > 0) different.push_back(i);
  }
  const TensorSlice whole = TensorSlice::whole(slices[all[0]].tensor, slices[all[0]].shape);
  if (!different.empty())
    if (const auto both = overlap(different, slices))
      return fmt::format("{} in {} overlaps {} in {}", slices[both->first].describe(),
                         holders[both->first], slices[both->second].describe(),
                         holders[both->second]);
  // Without overlaps the elements can be counted.
  int64_t elements = 0;
  for (const size_t i : different) elements += slices[i].elements();
  if (elements == whole.elements()) return {};
  try {
    reads_of(whole, different, slices);
  } catch (const Error& error) {
    return parts_of(error).what;
  }
  return {};
}

}  // namespace

std::optional<TensorSlice> intersect(const TensorSlice& a, const TensorSlice& b) {
  if (a.tensor != b.tensor || a.shape != b.shape) return {};
  TensorSlice common = a;
  for (size_t d = 0; d < a.from.size(); ++d) {
    const int64_t end = std::min(a.from[d] + a.sizes[d], b.from[d] + b.sizes[d]);
    common.from[d] = std::max(a.from[d], b.from[d]);
    common.sizes[d] = end - common.from[d];
    if (common.sizes[d] <= 0) return {};
  }
  return common;
}

std::vector<SliceRun> runs_of(const TensorSlice& box, const TensorSlice& source,
                              const TensorSlice& target) {
  std::vector<SliceRun> runs;
  if (box.elements() == 0) return runs;
  // The dimensions from `inner` on lie in one run.
  size_t inner = box.from.size();
  int64_t length = 1;
  while (inner > 0) {
    --inner;
    length *= box.sizes[inner];
    if (box.sizes[inner] != source.sizes[inner] || box.sizes[inner] != target.sizes[inner]) break;
  }
  const auto offset_in = [&](const TensorSlice& slice, const std::vector<int64_t>& at) {
    int64_t offset = 0;
    for (size_t d = 0; d < at.size(); ++d)
      offset = offset * slice.sizes[d] + at[d] - slice.from[d];
    return offset;
  };
  std::vector<int64_t> at = box.from;
  for (;;) {
    runs.push_back({offset_in(source, at), offset_in(target, at), length});
    size_t d = inner;
    while (d > 0 && ++at[d - 1] == box.from[d - 1] + box.sizes[d - 1]) {
      at[d - 1] = box.from[d - 1];
      --d;
    }
    if (d == 0) return runs;
  }
}

std::vector<std::vector<SliceRead>> plan_reads(std::span<const TensorSlice> wanted,
                                               std::span<const TensorSlice> stored) {
  const ByTensor candidates = by_tensor(stored);
  std::vector<std::vector<SliceRead>> reads;
  for (const TensorSlice& slice : wanted) {
    const auto found = candidates.find(slice.tensor);
    reads.push_back(reads_of(
        slice, found == candidates.end() ? std::vector<size_t>() : found->second, stored));
  }
  return reads;
}

Cover check_cover(std::span<const TensorSlice> slices, std::span<const std::string> holders) {
  Cover cover;
  cover.first.resize(slices.size());
  for (const auto& [tensor, indices] : by_tensor(slices)) {
    std::string flaw = flaw_of(indices, slices, holders, cover.first);
    if (cover.flaw.empty()) cover.flaw = std::move(flaw);
  }
  return cover;
}

}  // namespace trireme::plan
