// The last lines of a run: its result, speed and cost, and the places of its files.
#pragma once
#include <trireme/monitor/sink.h>
#include <string>
#include <vector>

namespace trireme::monitor {

// One entry a line. Values that the report lacks are left out.
std::vector<std::string> summary_lines(const RunEnd& end);

}  // namespace trireme::monitor
