#include <trireme/checkpoint/stretches.h>

#include <algorithm>

namespace trireme::checkpoint {

PieceDigest read_piece(const InputFile& file, uint64_t begin, uint64_t end,
                       const std::vector<Stretch>& stretches, std::span<std::byte> scratch) {
  auto next = std::partition_point(stretches.begin(), stretches.end(),
                                   [&](const Stretch& each) { return each.end() <= begin; });
  std::vector<std::span<std::byte>> parts;
  for (uint64_t at = begin; at < end;) {
    const bool placed = next != stretches.end() && next->begin <= at;
    const uint64_t stop = std::min(end, placed                    ? next->end()
                                        : next != stretches.end() ? next->begin
                                                                  : end);
    parts.push_back(placed ? next->to.subspan(at - next->begin, stop - at)
                           : scratch.subspan(at - begin, stop - at));
    if (placed) ++next;
    at = stop;
  }
  file.read(begin, parts);
  return digest_of_piece(parts);
}

}  // namespace trireme::checkpoint
