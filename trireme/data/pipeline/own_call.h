// The call of a function of the user's own in a stage.
#pragma once
#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <exception>
#include <string>

namespace trireme::data {

// Returns the result of `call`, whose exceptions become errors that name `stage`. An Error keeps
// its code, and others are Error(invalid_argument) with `remedy`.
template <typename Call>
auto call_own(const std::string& stage, const char* remedy, const Call& call) {
  try {
    return call();
  } catch (const Error& error) {
    const auto [what, its_remedy] = parts_of(error);
    throw Error(error.code(), "data", fmt::format("{}: {}", stage, what), its_remedy);
  } catch (const std::exception& error) {
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("{}: the function threw: {}", stage, parts_of(error).what), remedy);
  }
}

}  // namespace trireme::data
