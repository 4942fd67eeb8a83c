// The options of the engine as JSON, with all of their fields, so that ranks can compare them.
#pragma once
#include <trireme/base/json.h>
#include <trireme/parallel/data_parallel.h>

namespace trireme {

Json to_json(const plan::BucketOptions& options);
Json to_json(const CompressionOptions& options);
Json to_json(const LocalSgdOptions& options);
Json to_json(const std::optional<GradScalerOptions>& options);  // null if there are none.
// A function is true if it is given.
Json to_json(const DataParallelOptions& options);

}  // namespace trireme
