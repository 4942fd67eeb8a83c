// The expectations that a run with injected faults must still meet (`trireme train --expect`),
// judged from its report. Pure; no torch.
#pragma once
#include <trireme/base/json.h>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

enum class Expectation {
  same_loss,     // The losses equal those of the same training without faults.
  exactly_once,  // Exactly one step used each sample of each epoch.
};
std::string_view to_string(Expectation expectation);
// Parses a list such as "same-loss,exactly-once". "none" and an empty text give an empty list.
// Throws Error(invalid_argument) that names the word and the words that are allowed.
std::vector<Expectation> parse_expectations(std::string_view text);

struct Finding {
  Expectation expectation = Expectation::same_loss;
  bool holds = false;
  std::string what;  // "200 losses, equal to the last bit"
  std::string describe() const;
  Json to_json() const;
};

// Compares `report` with the report of the undisturbed run. Up to the first loss that differs,
// losses must be equal to the last bit. From there on (a run that changed its size adds in another
// order) the relative tolerance for float64 is 1e-10. For other types it is 1e-5 over the first 50
// steps and then doubles every 15 steps, up to 5 %, because rounding grows like that in float32. A
// step that was missed, repeated or given other samples differs by far more at once.
Finding same_loss(const Json& report, const Json& undisturbed, bool is_float64);
// Judges by `samples` of the report.
Finding exactly_once(const Json& report);

}  // namespace trireme
