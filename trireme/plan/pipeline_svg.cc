#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <trireme/plan/pipeline_picture.h>
#include <trireme/plan/pipeline_run.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>

namespace trireme::plan {
namespace {

constexpr size_t kMostDrawnSteps = 20'000;
constexpr double kRow = 30, kCellHeight = 26, kLeft = 70, kTop = 44, kLetter = 7.5, kLine = 18;
constexpr double kLeastWidth = 640, kMostDrawnWidth = 20'000;

struct Colour {
  double red, green, blue;  // 0 to 255.

  Colour towards_white(double share) const {
    const auto mix = [&](double value) { return value + (255 - value) * share; };
    return {mix(red), mix(green), mix(blue)};
  }
  std::string hex() const {
    const auto byte = [](double value) { return static_cast<int>(std::lround(value)); };
    return fmt::format("#{:02x}{:02x}{:02x}", byte(red), byte(green), byte(blue));
  }
  // Black or white: the one that is easier to read on this colour.
  const char* text() const {
    return 0.299 * red + 0.587 * green + 0.114 * blue > 125 ? "#000" : "#fff";
  }
};

struct TaskLook {
  PipelineTask task;
  Colour colour;
  const char* name;
};
constexpr std::array kLooks = {
    TaskLook{PipelineTask::forward, {31, 70, 135}, "forward"},
    TaskLook{PipelineTask::backward, {76, 175, 120}, "backward"},
    TaskLook{PipelineTask::input_gradient, {214, 127, 24}, "gradient of the input"},
    TaskLook{PipelineTask::weight_gradient, {186, 174, 216}, "gradient of the weights"},
};
const TaskLook& look_of(PipelineTask task) {
  return *std::ranges::find(kLooks, task, &TaskLook::task);
}

// Coordinates with at most two digits behind the point.
std::string point(double value) { return fmt::format("{}", std::round(value * 100) / 100); }

class PipelineDrawing {
 public:
  PipelineDrawing(const PipelinePlan& plan, const PipelineCosts& costs)
      : plan_(plan), costs_(costs), times_(simulate(plan, costs)) {
    double shortest = std::numeric_limits<double>::infinity();
    for_each_step(plan_, [&](const PipelineStep& step, PipelinePlace) {
      const double time = costs_.of(step);
      if (time > 0) shortest = std::min(shortest, time);
    });
    const auto digits = fmt::formatted_size("{}", plan_.facts.microbatches - 1);
    const double cell = std::max(20.0, static_cast<double>(digits) * kLetter + 8);
    if (times_.total > 0) scale_ = std::min(cell / shortest, kMostDrawnWidth / times_.total);
  }

  std::string draw() {
    const double cells = times_.total * scale_;
    const double width = std::max(kLeastWidth, kLeft + cells + 20);
    const double bottom = kTop + kRow * static_cast<double>(plan_.steps.size());
    std::string body = grid(cells) + legend(bottom + 38) + caption(bottom + 64);
    const double height = bottom + 64 + kLine * static_cast<double>(captions().size());
    const std::string name = title();
    return fmt::format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" width=\"{}\" "
               "height=\"{}\" role=\"img\" aria-labelledby=\"name about\" "
               "font-family=\"sans-serif\" font-size=\"13\">\n"
               "<title id=\"name\">{}</title>\n<desc id=\"about\">{}</desc>\n"
               "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
               point(width), point(height), point(width), point(height), name,
               fmt::join(captions(), " ")) +
           fmt::format("<text x=\"10\" y=\"24\" font-size=\"15\" font-weight=\"bold\">{}</text>\n",
                       name) +
           body + "</svg>\n";
  }

 private:
  std::string title() const {
    const PipelineFacts& facts = plan_.facts;
    return fmt::format(
        "{}: {} stage{}, {} micro-batch{}{}", facts.schedule, facts.stages,
        facts.stages == 1 ? "" : "s", facts.microbatches, facts.microbatches == 1 ? "" : "es",
        facts.chunks == 1 ? ""
                          : fmt::format(", {} parts of the model on each stage", facts.chunks));
  }

  std::vector<std::string> captions() const {
    const std::string apart =
        times_.span < times_.total
            ? fmt::format(" ({:.1f} % if no stage waits for the others between batches)",
                          times_.bubble_in_span * 100)
            : "";
    std::vector<std::string> lines = {
        fmt::format("Bubble: {:.1f} % of the time{}.", times_.bubble * 100, apart)};
    const auto& peaks = times_.peak_microbatches;
    const bool equal = std::ranges::all_of(peaks, [&](int peak) { return peak == peaks.front(); });
    const char* unit = plan_.facts.chunks == 1 ? "micro-batches" : "micro-batches of a part";
    lines.push_back(
        equal ? fmt::format("Activations at most: {} {} on each stage.", peaks.front(), unit)
        : peaks.size() <= 16 ? fmt::format("Activations at most: {} {} on stages 0 to {}.",
                                           fmt::join(peaks, ", "), unit, peaks.size() - 1)
                             : fmt::format("Activations at most: {} {} on a stage.",
                                           *std::ranges::max_element(peaks), unit));
    return lines;
  }

  Colour colour_of(const PipelineStep& step) const {
    const double chunks = plan_.facts.chunks;
    const double chunk = std::floor(static_cast<double>(step.part) / plan_.facts.stages);
    return look_of(step.task).colour.towards_white(chunk / chunks * 0.8);
  }

  std::string grid(double cells) const {
    std::string text;
    for (size_t stage = 0; stage < plan_.steps.size(); ++stage) {
      const double y = kTop + kRow * static_cast<double>(stage);
      text += fmt::format(
          "<text x=\"10\" y=\"{}\">stage {}</text>\n"
          "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"#f3f3f3\"/>\n",
          point(y + 18), stage, point(kLeft), point(y), point(cells), point(kCellHeight));
      for (size_t place = 0; place < plan_.steps[stage].size(); ++place)
        text += cell(plan_.steps[stage][place], times_.steps[stage][place], y);
    }
    return text +
           fmt::format("<text x=\"{}\" y=\"{}\" font-size=\"12\">time \xE2\x86\x92</text>\n",
                       point(kLeft),
                       point(kTop + kRow * static_cast<double>(plan_.steps.size()) + 12));
  }

  std::string cell(const PipelineStep& step, const PipelineTime& time, double y) const {
    const double x = kLeft + time.start * scale_, width = (time.end - time.start) * scale_;
    const Colour colour = colour_of(step);
    const std::string number = fmt::format("{}", step.microbatch);
    std::string text = fmt::format(
        "<g><title>{} of part {}, micro-batch {}, from {:g} to {:g}</title><rect x=\"{}\" "
        "y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\" stroke=\"#fff\"/>",
        look_of(step.task).name, step.part, step.microbatch, time.start, time.end, point(x),
        point(y), point(width), point(kCellHeight), colour.hex());
    if (width > static_cast<double>(number.size()) * kLetter)
      text += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"{}\">{}</text>",
                          point(x + width / 2), point(y + 18), colour.text(), number);
    return text + "</g>\n";
  }

  std::string legend(double y) const {
    std::set<PipelineTask> used;
    for_each_step(plan_, [&](const PipelineStep& step, PipelinePlace) { used.insert(step.task); });
    std::string text;
    double x = 10;
    const int shades = std::min(plan_.facts.chunks, 4);
    for (const PipelineTask task : used) {
      for (int chunk = 0; chunk < shades; ++chunk, x += 18)
        text += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"18\" height=\"14\" fill=\"{}\"/>\n",
                            point(x), point(y - 12),
                            colour_of({task, 0, chunk * plan_.facts.stages}).hex());
      const std::string name = look_of(task).name;
      text += fmt::format("<text x=\"{}\" y=\"{}\">{}</text>\n", point(x + 5), point(y), name);
      x += 5 + static_cast<double>(name.size()) * kLetter + 10;
    }
    if (shades > 1)
      text += fmt::format("<text x=\"{}\" y=\"{}\">(lighter: later parts)</text>\n", point(x),
                          point(y));
    return text;
  }

  std::string caption(double y) const {
    std::string text;
    for (const std::string& line : captions()) {
      text += fmt::format("<text x=\"10\" y=\"{}\">{}</text>\n", point(y), line);
      y += kLine;
    }
    return text;
  }

  const PipelinePlan& plan_;
  const PipelineCosts& costs_;
  const PipelineTimes times_;
  double scale_ = 1;  // Pixels for a unit of time.
};

}  // namespace

std::string draw_svg(const PipelinePlan& plan, const PipelineCosts& costs) {
  size_t steps = 0;
  for (const auto& own : plan.steps) steps += own.size();
  if (steps > kMostDrawnSteps)
    throw Error(ErrorCode::unsupported, "plan",
                fmt::format("a picture of {} steps, more than {}", steps, kMostDrawnSteps),
                "fewer micro-batches for the picture: its pattern repeats");
  return PipelineDrawing(plan, costs).draw();
}

}  // namespace trireme::plan
