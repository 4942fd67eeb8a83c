// The bytes of a message in the stream: its length (4 bytes, big endian), its CBOR, and a tag.
#pragma once
#include <trireme/base/json.h>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

namespace trireme::net {

inline constexpr size_t kLengthBytes = 4;
using LengthPrefix = std::array<uint8_t, kLengthBytes>;

// Returns the length and the CBOR. Throws Error(invalid_argument) if the message is over the
// limit.
std::vector<uint8_t> encode_frame(const Json& message, int64_t max_bytes);
// Returns the length that the prefix states. Throws Error(corrupt) if it is 0 or over the limit.
size_t decode_length(const LengthPrefix& prefix, int64_t max_bytes);
// A tag proves that a frame comes from the holder of `key`, and that it is the frame of this
// number. `parts` together are the length and the CBOR.
using FrameTag = std::array<uint8_t, 16>;
FrameTag tag_frame(const std::array<uint8_t, 32>& key, uint64_t number,
                   std::initializer_list<std::span<const uint8_t>> parts);
// Throws Error(corrupt) if the bytes are not one whole CBOR object, or are nested more deeply than
// our messages are.
Json decode_message(std::span<const uint8_t> cbor);

}  // namespace trireme::net
