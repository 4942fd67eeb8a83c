// How a message lies in the stream: its length (4 bytes, big endian), its CBOR, and a tag.
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

// Length and CBOR. Throws Error(invalid_argument) if the message is over the limit.
std::vector<uint8_t> encode_frame(const Json& message, int64_t max_bytes);
// The length that the prefix announces. Throws Error(corrupt) if it is 0 or over the limit.
size_t decode_length(const LengthPrefix& prefix, int64_t max_bytes);
// What proves that a frame comes from the holder of `key` and is the one of this number. `parts`
// together are the length and the CBOR.
using FrameTag = std::array<uint8_t, 16>;
FrameTag tag_frame(const std::array<uint8_t, 32>& key, uint64_t number,
                   std::initializer_list<std::span<const uint8_t>> parts);
// Throws Error(corrupt) if this is not one whole CBOR object, or is nested too deeply to be ours.
Json decode_message(std::span<const uint8_t> cbor);

}  // namespace trireme::net
