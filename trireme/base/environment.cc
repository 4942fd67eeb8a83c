#include <trireme/base/environment.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <unistd.h>
#include <charconv>
#include <string_view>

namespace trireme {
namespace {

template <typename Number>
std::optional<Number> number_in(const std::string& name, const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  Number value = 0;
  const auto [end, status] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (status != std::errc() || end != text->data() + text->size()) {
    throw Error(ErrorCode::invalid_argument, "base",
                fmt::format("environment variable {}='{}' is not a whole number", name, *text),
                "set it to a number, or unset it");
  }
  return value;
}

}  // namespace

Environment Environment::of_process() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view text(*entry);
    const auto equals = text.find('=');
    if (equals != std::string_view::npos)
      variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return Environment(std::move(variables));
}

std::optional<std::string> Environment::get(const std::string& name) const {
  const auto found = variables_.find(name);
  if (found == variables_.end()) return std::nullopt;
  return found->second;
}

std::optional<int> Environment::get_int(const std::string& name) const {
  return number_in<int>(name, get(name));
}
std::optional<int64_t> Environment::get_int64(const std::string& name) const {
  return number_in<int64_t>(name, get(name));
}

}  // namespace trireme
