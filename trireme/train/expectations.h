// What a run that suffered faults must still have kept (`trireme train --expect`), judged from its
// report. Pure; no torch.
#pragma once
#include <trireme/base/json.h>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

enum class Expectation {
  same_loss,     // The losses of the same training without faults.
  exactly_once,  // Each sample of each epoch used by exactly one step.
};
std::string_view to_string(Expectation expectation);
// "same-loss,exactly-once"; "none" and nothing are none. Throws Error(invalid_argument) naming the
// word and what fits.
std::vector<Expectation> parse_expectations(std::string_view text);

struct Finding {
  Expectation expectation = Expectation::same_loss;
  bool holds = false;
  std::string what;  // "200 losses, equal to the last bit"
  std::string describe() const;
  Json to_json() const;
};

// `report` beside the one of the undisturbed run. While both are bit-identical nothing is allowed;
// from the first loss that differs (a run that changed size adds in another order) 1e-10 relative
// for float64, else 1e-5 over 50 steps and from there on twice as much every 15 steps, at most 5 %:
// rounding grows so in float32. A step that was lost, repeated or fed with other samples differs by
// far more at once.
Finding same_loss(const Json& report, const Json& undisturbed, bool is_float64);
// By the report's `samples`.
Finding exactly_once(const Json& report);

}  // namespace trireme
