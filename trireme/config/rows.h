// Declares the type of rows, for headers of option structs (row.h has the rest).
#pragma once
#include <vector>

namespace trireme::config {

struct Row;
using Rows = std::vector<Row>;

}  // namespace trireme::config
