// The line that shows how far a run is: laid out for the width of a terminal, or plain.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace trireme::monitor {

struct ProgressView {
  int64_t epoch = 1;   // Counted from 1, for people.
  int64_t epochs = 0;  // 0: unknown.
  int64_t step = 0;
  int64_t total_steps = 0;  // 0: unknown. Then there is no bar and no time left.
  std::optional<double> loss, samples_per_second, seconds_left;
  double waited_share = 0;  // Of the last steps: the part in which they waited for data.
};

// A line of at most `width` - 1 columns, so that the cursor stays on it. Where the terminal is
// narrow, the line leaves out words first, then the bar, then the speed, then the time left.
std::string bar_line(const ProgressView& view, int width);
// "epoch 3/20  step 123/460  loss 0.1234  2,345 samples/s  12 s left"
std::string plain_line(const ProgressView& view);

}  // namespace trireme::monitor
