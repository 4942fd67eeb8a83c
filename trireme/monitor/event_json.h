// The events of a run as JSON, for the log file and for the way to the launcher.
#pragma once
#include <trireme/monitor/events.h>
#include <optional>
#include <string>

namespace trireme::monitor {

// {"event": "start" | "step" | "skip" | "eval" | "message" | "end" | "continue" | "commit" |
// "fault" | "verdict", "time": ..., and the fields of events.h}. "time" is `unix_seconds` to the
// millisecond, or left out. A save or a guard is a "message" with "kind", its "text" and its
// fields; a notice is a "verdict" with the fields of its record. NaN and infinities become
// strings; a position is {"epoch": ..., "first": ...}.
Json to_json(const Event& event, std::optional<double> unix_seconds = std::nullopt);
// The same with the time of the event, and with "rank" unless it is the launcher's.
Json to_json(const Told& told);
// One line, without a line break at its end. Bytes that are not UTF-8 are replaced.
std::string to_line(const Json& json);
// The event, or empty if `json` is not what to_json() makes. More keys are allowed.
std::optional<Event> event_of(const Json& json);
std::optional<Told> told_of(const Json& json);
// The value of a number, or of a string that stands for NaN or an infinity.
std::optional<double> read_number(const Json& json);

}  // namespace trireme::monitor
