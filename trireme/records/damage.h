// The reason why a file or a record cannot be read, before it is known which one it is.
#pragma once
#include <trireme/base/error.h>
#include <string>
#include <string_view>
#include <utility>

namespace trireme::records {

// Readers throw it where the place is not known, and the caller that knows the place makes an
// Error of it. It never leaves this room.
struct Damage {
  explicit Damage(std::string text, std::string with_remedy = "fetching or writing the file again",
                  ErrorCode error_code = ErrorCode::corrupt)
      : what(std::move(text)), remedy(std::move(with_remedy)), code(error_code) {}
  Error at(std::string_view place) const {
    return Error(code, "data", std::string(place) + ": " + what, remedy);
  }

  std::string what, remedy;
  ErrorCode code;
};

// Runs `action`. Gives a Damage that it throws the place, which place() returns.
template <typename Place, typename Action>
decltype(auto) with_place(Place place, Action action) {
  try {
    return action();
  } catch (const Damage& damage) {
    throw damage.at(place());
  }
}

}  // namespace trireme::records
