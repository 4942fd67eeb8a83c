#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/cli/config.h>
#include <charconv>

namespace trireme::cli {

CheckpointEvery parse_every(const std::string& text) {
  if (text.empty() || text == "never") return {};
  int64_t count = 1;  // "epoch" alone means every epoch.
  const char* end = text.data() + text.size();
  const char* unit_begin = text.data();
  const auto number = std::from_chars(text.data(), end, count);
  const bool has_number = number.ec == std::errc();
  if (has_number) unit_begin = number.ptr;
  while (unit_begin != end && *unit_begin == ' ') ++unit_begin;
  const std::string_view unit(unit_begin, end);
  if (count >= 1 && number.ec != std::errc::result_out_of_range) {
    if (unit == "epoch" || unit == "epochs") return {.epochs = count};
    if (unit == "step" || unit == "steps" || (unit.empty() && has_number)) return {.steps = count};
  }
  throw Error(ErrorCode::invalid_argument, "config",
              fmt::format("\"{}\" is not a number of steps or epochs", text),
              "\"100 steps\", \"2 epochs\" or never");
}

}  // namespace trireme::cli
