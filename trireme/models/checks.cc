#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/base/error.h>
#include <trireme/models/checks.h>
#include <algorithm>

namespace trireme::models {
namespace {

bool all_positive(const std::vector<int64_t>& shape) {
  return std::all_of(shape.begin(), shape.end(), [](int64_t size) { return size > 0; });
}

}  // namespace

void refuse(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, "models", what, remedy);
}

void refuse_input(const ModelOptions& options, const InputSpec& input, const std::string& rule,
                  const std::string& remedy) {
  refuse(fmt::format("samples of shape {} do not fit model.name {}: it takes {}", input.shape,
                     options.name, rule),
         remedy);
}

void require_positive(std::string_view key, int64_t value) {
  if (value < 1)
    refuse(fmt::format("{} is {}, but must be at least 1", key, value),
           fmt::format("correct {}", key));
}

void require_positive(std::string_view key, const std::vector<int64_t>& values) {
  for (const int64_t value : values) {
    if (value < 1)
      refuse(fmt::format("{} is {}: every entry must be at least 1", key, values),
             fmt::format("correct {}", key));
  }
}

void check_features(const ModelOptions& options, const InputSpec& input) {
  if (input.shape.empty() || !all_positive(input.shape))
    refuse_input(options, input, "at least one feature", "check the data set");
  if (input.classes < 1)
    refuse(fmt::format("data.classes is {}, but must be at least 1", input.classes),
           "data.classes=10");
}

void check_images(const ModelOptions& options, const InputSpec& input) {
  if (input.shape.size() != 3 || !all_positive(input.shape))
    refuse_input(options, input, "[channels, height, width], each at least 1",
                 "model.name=mlp, which flattens its input");
  check_features(options, input);
}

}  // namespace trireme::models
