#include <trireme/parallel/shared/layout.h>
#include <algorithm>

namespace trireme::shared {
namespace {

size_t take(size_t& end, size_t bytes, size_t in_front = 0) {
  end += in_front;
  const size_t place = end;
  end += (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
  return place;
}

// The part of the trainable bytes [first, last) that falls into each parameter.
std::vector<Piece> pieces_between(const std::vector<Entry>& entries, const Layout& layout,
                                  size_t first, size_t last) {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!entries[i].trainable || entries[i].elements == 0) continue;
    const size_t begin = layout.gradients[i], end = begin + entries[i].bytes();
    const size_t from = std::max(first, begin), to = std::min(last, end);
    if (from >= to) continue;
    const auto element = [&](size_t at) {
      return static_cast<int64_t>((at - begin) / entries[i].element_bytes);
    };
    pieces.push_back({static_cast<int>(i), element(from), element(to)});
  }
  return pieces;
}

}  // namespace

Layout lay_out(const std::vector<Entry>& entries, int ranks) {
  Layout layout;
  for (const Entry& entry : entries) {
    layout.parameters.push_back(take(layout.model_bytes, entry.bytes()));
    layout.gradients.push_back(
        entry.trainable ? take(layout.gradient_bytes, entry.bytes(), kCacheLine) : 0);
  }
  // State lies behind the parameters, in the same order: a rank's shard is then one run of each.
  layout.states.resize(entries.size());
  for (int tensor = 0; tensor < 3; ++tensor)
    for (size_t i = 0; i < entries.size(); ++i)
      if (tensor < entries[i].state_tensors)
        layout.states[i].push_back(take(layout.model_bytes, entries[i].bytes()));
  const size_t each = (layout.gradient_bytes / static_cast<size_t>(ranks) + kCacheLine - 1) /
                      kCacheLine * kCacheLine;
  for (size_t rank = 0; rank < static_cast<size_t>(ranks); ++rank) {
    const bool last = rank + 1 == static_cast<size_t>(ranks);
    layout.shards.push_back(pieces_between(
        entries, layout, std::min(layout.gradient_bytes, rank * each),
        last ? layout.gradient_bytes : std::min(layout.gradient_bytes, (rank + 1) * each)));
  }
  return layout;
}

}  // namespace trireme::shared
