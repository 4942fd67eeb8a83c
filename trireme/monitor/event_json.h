// The events of a run as JSON, for the log file and for the pipe to the launcher.
#pragma once
#include <trireme/monitor/sink.h>
#include <optional>
#include <variant>

namespace trireme::monitor {

struct Message {
  std::string text;
};
using Event =
    std::variant<RunStart, StepRecord, EvalRecord, Message, RunEnd, ContinueRecord, CommitRecord>;

// {"event": "start" | "step" | "eval" | "message" | "end" | "continue" | "commit", "time": ...,
// fields as in sink.h}; without "time" if none is given. NaN and infinities become strings; a
// position is {"epoch": ..., "first": ...}.
Json to_json(const Event& event, std::optional<double> unix_seconds = std::nullopt);
// What a launcher says of a worker, as a line of the log with its line break: {"event": "verdict",
// "time": ..., the record's own fields}.
std::string verdict_line(const Json& record);
double unix_seconds();  // Now, to the millisecond.
// One line, no line break at its end. Bytes that are not UTF-8 are replaced.
std::string to_line(const Json& json);
// Empty if `json` is not exactly what to_json() makes (more keys are allowed).
std::optional<Event> event_of(const Json& json);
// A number, or one of the strings that stand for NaN and infinities.
std::optional<double> read_number(const Json& json);

}  // namespace trireme::monitor
