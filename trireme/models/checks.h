// Checks of options and inputs that several families of models need. No torch. All of them throw
// Error(invalid_argument) that names the value, the rule and the remedy.
#pragma once
#include <trireme/models/shapes.h>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::models {

[[noreturn]] void refuse(const std::string& what, const std::string& remedy);
[[noreturn]] void refuse_input(const ModelOptions& options, const InputSpec& input,
                               const std::string& rule, const std::string& remedy);

// `key` is the name in the message: "model.width".
void require_positive(std::string_view key, int64_t value);
void require_positive(std::string_view key, const std::vector<int64_t>& values);

void check_features(const ModelOptions& options, const InputSpec& input);  // Any shape.
void check_images(const ModelOptions& options, const InputSpec& input);

}  // namespace trireme::models
