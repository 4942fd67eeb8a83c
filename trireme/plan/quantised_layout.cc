#include <trireme/plan/operation.h>
#include <trireme/plan/quantised_layout.h>
#include <algorithm>

namespace trireme::plan {
namespace {

// Small enough for a core's caches, and large enough for a message.
constexpr int64_t kPieceElements = 128 << 10;

}  // namespace

QuantisedLayout lay_out_quantised(int64_t elements, int ranks, const BlockFormat& format) {
  const int64_t unit = format.block * ranks;
  return {format, (elements + unit - 1) / unit * format.block,
          std::max<int64_t>(1, kPieceElements / format.block) * format.block};
}

// Each rank sends every other rank its part of that rank's chunk, and then the sum of its own.
void plan_quantised(const Compression& compression, const CompressedBucketFacts& bucket,
                    OperationPlanner& operations) {
  const int ranks = operations.ranks();
  const QuantisedLayout layout =
      lay_out_quantised(bucket.elements, ranks, compression.format.value());
  for (int64_t start = 0; start < layout.chunk; start += layout.piece) {
    const int64_t bytes = layout.bytes_of(std::min(layout.piece, layout.chunk - start));
    for (int from = 0; from < ranks; ++from)
      for (int to = 0; to < ranks; ++to)
        if (from != to)
          for (int time = 0; time < 2; ++time)
            operations.send(bucket.content, from, to, DType::uint8, bytes);
  }
}

}  // namespace trireme::plan
