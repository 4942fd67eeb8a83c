#include <trireme/config/names.h>
#include <trireme/config/row.h>
#include <trireme/plan/compression_plan.h>
#include <trireme/plan/kept_values.h>
#include <trireme/plan/low_rank_layout.h>
#include <trireme/plan/quantised_layout.h>
#include <algorithm>
#include <array>

namespace trireme::plan {
namespace {

// Blocks of codes, each behind a float32 scale.
constexpr BlockFormat scaled_blocks(int64_t block, int64_t code_bytes) {
  return {block, 4 + block * code_bytes};
}

constexpr auto kCompressions =
    std::to_array<Compression>({{"bf16", BlockFormat{1, 2}, plan_quantised},
                                {"fp16", scaled_blocks(1024, 2), plan_quantised},
                                {"int8", scaled_blocks(256, 1), plan_quantised},
                                {"topk", std::nullopt, plan_topk},
                                {"powersgd", std::nullopt, plan_low_rank}});

// Returns null for a name that a programme added.
const Compression* find_compression(std::string_view name) {
  const auto found = std::ranges::find(kCompressions, name, &Compression::name);
  return found == kCompressions.end() ? nullptr : &*found;
}

config::Names& known_compressions() {
  static config::Names names = [] {
    std::vector<std::string> shipped;
    for (const Compression& compression : kCompressions) shipped.emplace_back(compression.name);
    return config::Names(std::move(shipped));
  }();
  return names;
}

}  // namespace

std::vector<std::string> compressions() { return known_compressions().all(); }
void add_compression(const std::string& name) { known_compressions().add(name); }

config::Rows rows_of(const CompressionOptions*) {
  using O = CompressionOptions;
  return config::all_of<O>(
      {config::row(
           &O::name,
           {.name = "strategy.compression",
            .meaning =
                "How gradients are made smaller before they are sent (docs/compression.md).",
            .choices = [] { return config::with("none", compressions()); }}),
       config::row(&O::rank, {.name = "strategy.compression_rank",
                              .meaning = "powersgd: columns of each factor.",
                              .range = config::from_to(1, 1024),
                              .only_for = {"strategy.compression", {"powersgd"}}}),
       config::row(&O::ratio, {.name = "strategy.compression_ratio",
                               .meaning = "topk: fraction of the values that is sent.",
                               .range = {.least = 0, .most = 1, .least_excluded = true},
                               .only_for = {"strategy.compression", {"topk"}}})});
}

std::optional<BlockFormat> block_format_of(const std::string& compression) {
  const Compression* const known = find_compression(compression);
  return known ? known->format : std::nullopt;
}

bool plan_compressed(const CompressedBucketFacts& bucket, OperationPlanner& operations) {
  const Compression* const known = find_compression(bucket.options.name);
  if (known) known->plan(*known, bucket, operations);
  return known != nullptr;
}

}  // namespace trireme::plan
