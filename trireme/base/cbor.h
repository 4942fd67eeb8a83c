// Reads CBOR (RFC 8949) that others have written.
#pragma once
#include <trireme/base/json.h>
#include <cstdint>
#include <span>
#include <string_view>

namespace trireme {

// How deeply arrays and maps may lie in each other.
inline constexpr size_t kMaxCborDepth = 32;

// The one value that these bytes hold. Only what Json::to_cbor() writes is read: no strings, arrays
// or maps of indefinite length, and no tags. The parser recurses for each level of nesting, so the
// bytes are checked by a loop first. Throws Error(corrupt), in the name of `room`.
Json read_cbor(std::span<const uint8_t> cbor, std::string_view room);

}  // namespace trireme
