// Reads CBOR (RFC 8949) that other processes have written.
#pragma once
#include <trireme/base/json.h>
#include <cstdint>
#include <span>
#include <string_view>

namespace trireme {

// The greatest depth to which arrays and maps may be nested.
inline constexpr size_t kMaxCborDepth = 32;

// Returns the one value that the bytes hold. It accepts only what Json::to_cbor() writes: no
// strings, arrays or maps of indefinite length, and no tags. The parser recurses at each level of
// nesting, so a loop checks the bytes first. Throws Error(corrupt), in the name of `room`.
Json read_cbor(std::span<const uint8_t> cbor, std::string_view room);

}  // namespace trireme
