// The options of the engine as JSON, with all that the ranks compare.
#pragma once
#include <trireme/base/json.h>
#include <trireme/config/rows.h>
#include <trireme/parallel/data_parallel_options.h>

namespace trireme {

config::Rows rows_of(const DataParallelOptions*);
// A function is "true" if it is given.
Json to_json(const DataParallelOptions& options);

}  // namespace trireme
