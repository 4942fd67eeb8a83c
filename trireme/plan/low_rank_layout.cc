#include <trireme/plan/low_rank_layout.h>
#include <trireme/plan/operation.h>
#include <algorithm>

namespace trireme::plan {

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

void plan_low_rank(const Compression&, const CompressedBucketFacts& bucket,
                   OperationPlanner& operations) {
  const LowRankLayout layout = lay_out_low_rank(bucket.parameters, bucket.options.rank);
  if (layout.p_elements > 0)
    operations.all_reduce(bucket.content + ", P", bucket.dtype, layout.p_elements);
  if (layout.q_elements > 0)
    operations.all_reduce(bucket.content + ", Q", bucket.dtype, layout.q_elements);
}

}  // namespace trireme::plan
