#include <trireme/config/names.h>
#include <trireme/config/row.h>
#include <trireme/plan/compression_plan.h>
#include <algorithm>
#include <cmath>

namespace trireme::plan {
namespace {

config::Names& known_compressions() {
  static config::Names names({"bf16", "fp16", "int8", "topk", "powersgd"});
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
namespace {

constexpr int64_t kScaleBytes = 4;  // A float32 scale in front of a block of codes.
// Small enough for a core's caches, and large enough for a message.
constexpr int64_t kPieceElements = 128 << 10;

}  // namespace

std::optional<BlockFormat> block_format_of(const std::string& compression) {
  if (compression == "bf16") return BlockFormat{1, 2};
  if (compression == "fp16") return BlockFormat{1024, kScaleBytes + 1024 * 2};
  if (compression == "int8") return BlockFormat{256, kScaleBytes + 256};
  return std::nullopt;
}

QuantisedLayout lay_out_quantised(int64_t elements, int ranks, const BlockFormat& format) {
  const int64_t unit = format.block * ranks;
  return {format, (elements + unit - 1) / unit * format.block,
          std::max<int64_t>(1, kPieceElements / format.block) * format.block};
}

int64_t kept_values(int64_t elements, double ratio) {
  if (elements == 0) return 0;
  return std::clamp<int64_t>(std::llround(std::ceil(ratio * static_cast<double>(elements))), 1,
                             elements);
}

LowRankLayout lay_out_low_rank(std::span<const TensorSpec> parameters, int rank) {
  LowRankLayout layout;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const TensorSpec& parameter = parameters[i];
    const int64_t rows = parameter.shape.size() > 1 ? parameter.shape[0] : 0;
    const int64_t columns = rows > 0 ? parameter.elements() / rows : 0;
    const int64_t kept = std::min<int64_t>({rank, rows, columns});
    if ((rows + columns) * kept < rows * columns) {
      layout.matrices.push_back({i, rows, columns, kept, layout.p_elements, layout.q_elements});
      layout.p_elements += kept * rows;
      layout.q_elements += kept * columns;
    } else {
      layout.whole.push_back({i, 0});
    }
  }
  for (LowRankLayout::Whole& part : layout.whole) {
    part.place = layout.p_elements;
    layout.p_elements += parameters[part.parameter].elements();
  }
  return layout;
}

}  // namespace trireme::plan
