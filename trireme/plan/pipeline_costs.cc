#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/text.h>
#include <trireme/plan/pipeline_times.h>
#include <charconv>

namespace trireme::plan {
namespace {

[[noreturn]] void refuse_cost(std::string_view word, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, "plan",
              fmt::format("pipeline costs: '{}' {}", word.substr(0, 60), what),
              "F=, B=, I=, W=, bytes=, held=, transfer= with numbers, and recompute, apart by "
              "spaces, such as 'F=1,1,2,1 B=2 transfer=0.1'");
}

std::vector<double> numbers_of(std::string_view word, std::string_view values) {
  std::vector<double> numbers;
  while (true) {
    const size_t comma = values.find(',');
    const std::string_view text = values.substr(0, comma);
    double number = 0;
    const auto [end, error] = std::from_chars(text.begin(), text.end(), number);
    if (error != std::errc() || end != text.end())
      refuse_cost(word, fmt::format("has '{}' in place of a number", text));
    numbers.push_back(number);
    if (comma == std::string_view::npos) return numbers;
    values.remove_prefix(comma + 1);
  }
}

void read_cost(std::string_view word, PipelineCosts& costs) {
  if (word == "recompute") {
    costs.recompute = true;
    return;
  }
  const size_t sign = word.find('=');
  if (sign == std::string_view::npos) refuse_cost(word, "has no value");
  const std::string_view name = word.substr(0, sign);
  std::vector<double> numbers = numbers_of(word, word.substr(sign + 1));
  const auto only = [&] {
    if (numbers.size() != 1) refuse_cost(word, "has more than one value");
    return numbers.front();
  };
  if (name == "F") {
    costs.forward = std::move(numbers);
  } else if (name == "I") {
    costs.input_gradient = std::move(numbers);
  } else if (name == "W") {
    costs.weight_gradient = std::move(numbers);
  } else if (name == "B") {
    for (double& number : numbers) number /= 2;
    costs.input_gradient = costs.weight_gradient = std::move(numbers);
  } else if (name == "bytes") {
    costs.activation_bytes = std::move(numbers);
  } else if (name == "held") {
    costs.held_after_input_gradient = only();
  } else if (name == "transfer") {
    costs.transfer = only();
  } else {
    refuse_cost(word, "names no cost");
  }
}

}  // namespace

PipelineCosts parse_pipeline_costs(std::string_view text) {
  PipelineCosts costs;
  for (text = trimmed(text); !text.empty(); text = trimmed(text)) {
    const std::string_view word = text.substr(0, text.find_first_of(" \t\r\n"));
    read_cost(word, costs);
    text.remove_prefix(word.size());
  }
  return costs;
}

}  // namespace trireme::plan
