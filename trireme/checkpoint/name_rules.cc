#include <trireme/checkpoint/name_rules.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <map>
#include <regex>

namespace trireme::checkpoint {
namespace {

[[noreturn]] void refuse_rule(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, "checkpoint", what, remedy);
}

std::regex compiled(const std::string& expression) {
  try {
    return std::regex(expression);
  } catch (const std::regex_error& error) {
    refuse_rule(
        fmt::format("the rule '{}' is no regular expression: {}", expression, error.what()),
        "an expression of ECMAScript, such as '^module\\.'");
  }
}

// std::regex needs stack for each letter.
constexpr size_t kLongestRuled = 2048;

bool is_found(const std::string& name, const std::regex& what) {
  if (name.size() > kLongestRuled)
    refuse_rule(fmt::format("the tensor name '{}...' has {} letters, and rules take {}",
                            name.substr(0, 40), name.size(), kLongestRuled),
                "no rules for this file");
  return std::regex_search(name, what);
}

void refuse_idle(const std::string& expression, bool has_fit, const char* what) {
  if (!has_fit)
    refuse_rule(
        fmt::format("the rule '{}' {} no tensor", expression, what),
        "an expression that is found in a name; `trireme ckpt inspect` or `diff` lists them");
}

}  // namespace

std::vector<std::optional<std::string>> renamed(const NameRules& rules,
                                                const std::vector<std::string>& names) {
  std::vector<std::optional<std::string>> result(names.begin(), names.end());
  for (const std::string& expression : rules.drop) {
    const std::regex what = compiled(expression);
    bool has_fit = false;
    for (size_t i = 0; i < names.size(); ++i)
      if (is_found(names[i], what)) has_fit = true, result[i].reset();
    refuse_idle(expression, has_fit, "drops");
  }
  for (const auto& [expression, replacement] : rules.rename) {
    const std::regex what = compiled(expression);
    bool has_fit = false;
    for (auto& name : result)
      if (name && is_found(*name, what)) {
        has_fit = true;
        name = std::regex_replace(*name, what, replacement);
      }
    refuse_idle(expression, has_fit, "renames");
  }
  std::map<std::string, std::string> taken;  // New name -> old name.
  for (size_t i = 0; i < names.size(); ++i) {
    if (!result[i]) continue;
    if (result[i]->empty())
      refuse_rule(fmt::format("the rules leave no name for '{}'", names[i]), "drop it instead");
    const auto [other, is_new] = taken.emplace(*result[i], names[i]);
    if (!is_new)
      refuse_rule(fmt::format("the rules give '{}' and '{}' one name: '{}'", other->second,
                              names[i], *result[i]),
                  "rules that keep them apart, or that drop one");
  }
  return result;
}

bool matches_any(const std::vector<std::string>& expressions, const std::string& name) {
  for (const std::string& expression : expressions)
    if (is_found(name, compiled(expression))) return true;
  return false;
}

std::pair<std::string, std::string> read_rename(const std::string& option,
                                                const std::string& text) {
  const size_t at = text.rfind('=');
  if (at == std::string::npos || at == 0)
    refuse_rule(fmt::format("{} is '{}'; expected: REGEX=REPLACEMENT", option, text),
                option + " '^module\\.='");
  return {text.substr(0, at), text.substr(at + 1)};
}

}  // namespace trireme::checkpoint
