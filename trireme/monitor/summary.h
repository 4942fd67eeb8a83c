// The last words of a run: what came out, how fast, for how much, and where everything is.
#pragma once
#include <trireme/monitor/sink.h>
#include <string>
#include <vector>

namespace trireme::monitor {

// One entry a line. What the report lacks is left out.
std::vector<std::string> summary_lines(const RunEnd& end);

}  // namespace trireme::monitor
