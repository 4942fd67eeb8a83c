// What this process says. Any thread.
#pragma once
#include <string>

namespace trireme {

// Writes `line`, which ends with a newline. A reader that has stopped reading stops nobody: what
// finds no room soon is dropped, and counted for the next line that finds some.
void write_to_standard_error(std::string line);

}  // namespace trireme
