// Writes lines to standard error without waiting long for a reader. Any thread may call it.
#pragma once
#include <string>

namespace trireme {

// Writes `line`, which ends with a newline. If a reader has stopped reading, the line is dropped
// after a short wait, and the next line that is written starts with the number of dropped lines.
void write_to_standard_error(std::string line);

}  // namespace trireme
