// The parts of an error's message. A message that quotes an error takes them instead of the whole
// text, so that it names one rank and one remedy.
#pragma once
#include <exception>
#include <string>

namespace trireme {

struct ErrorParts {
  std::string what;    // The text without room and rank.
  std::string remedy;  // Empty if the message has none.
};

// Takes the first line of error.what() apart. For an exception that is no Error, `what` is that
// line.
ErrorParts parts_of(const std::exception& error);

// The lines of error.what() behind the first, such as a grid, each after its '\n'.
std::string more_lines_of(const std::exception& error);

}  // namespace trireme
