#include <trireme/parallel/shared/step_table.h>

namespace trireme::shared {

size_t StepTable::row_bytes(int parameters, int64_t facts) {
  const size_t each = sizeof(int64_t) + sizeof(fused::Squares);
  const size_t bytes = sizeof(Head) + static_cast<size_t>(facts) * sizeof(double) +
                       static_cast<size_t>(parameters) * each;
  return (bytes + 127) / 128 * 128;  // Two cache lines: processors fetch them in pairs.
}

size_t StepTable::bytes_for(int ranks, int parameters, int64_t facts) {
  return 2 * static_cast<size_t>(ranks) * row_bytes(parameters, facts);
}

}  // namespace trireme::shared
