// Counts the members of a struct, so that one without a row is noticed when it is compiled.
#pragma once
#include <cstddef>
#include <optional>
#include <utility>

namespace trireme::config {
namespace detail {

template <typename T>
inline constexpr bool kIsOptional = false;
template <typename T>
inline constexpr bool kIsOptional<std::optional<T>> = true;

// Initialises a member of any type. (An optional takes it as its value.)
struct AnyMember {
  template <typename T>
    requires(!kIsOptional<T>)
  operator T() const;
};

template <typename Struct, size_t... index>
consteval bool takes(std::index_sequence<index...>) {
  return requires { Struct{(static_cast<void>(index), AnyMember())...}; };
}

}  // namespace detail

// The number of members of an aggregate without base classes and arrays.
template <typename Struct, size_t least = 0>
consteval size_t count_fields() {
  if constexpr (detail::takes<Struct>(std::make_index_sequence<least + 1>())) {
    return count_fields<Struct, least + 1>();
  } else {
    return least;
  }
}

}  // namespace trireme::config
