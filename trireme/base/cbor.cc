#include <trireme/base/cbor.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <array>
#include <cstddef>
#include <optional>

namespace trireme {
namespace {

enum Major : uint8_t { kUnsigned, kNegative, kBytes, kText, kArray, kMap, kTag, kSimple };
constexpr uint8_t kOneByte = 24, kEightBytes = 27;  // The number follows the first byte.

struct Head {
  Major major;
  uint64_t number = 0;
};

// Takes the first bytes of the next item off `rest`. The result is empty if they are cut off, or
// of a kind that we do not write.
std::optional<Head> take_head(std::span<const uint8_t>& rest) {
  if (rest.empty()) return std::nullopt;
  Head head{static_cast<Major>(rest[0] >> 5), static_cast<uint64_t>(rest[0] & 31)};
  rest = rest.subspan(1);
  if (head.major == kTag || head.number > kEightBytes) return std::nullopt;
  if (head.number < kOneByte) return head;
  const size_t length = size_t{1} << (head.number - kOneByte);
  if (rest.size() < length) return std::nullopt;
  head.number = 0;
  for (const uint8_t byte : rest.first(length)) head.number = head.number << 8 | byte;
  rest = rest.subspan(length);
  return head;
}

// Whether a recursive parser can read the bytes: they are not nested beyond the limit, and no
// count exceeds the bytes that are left.
bool is_bounded(std::span<const uint8_t> rest) {
  // The number of items that are still to come at each level.
  std::array<uint64_t, kMaxCborDepth> left{};
  size_t depth = 0;
  do {
    if (depth > 0) --left[depth - 1];
    const auto head = take_head(rest);
    if (!head) return false;
    switch (head->major) {
      case kBytes:
      case kText:
        if (head->number > rest.size()) return false;
        rest = rest.subspan(head->number);
        break;
      case kArray:
      case kMap:
        if (head->number > rest.size() || depth == kMaxCborDepth) return false;
        left[depth++] = head->number * (head->major == kMap ? 2 : 1);
        break;
      default: break;
    }
    while (depth > 0 && left[depth - 1] == 0) --depth;
  } while (depth > 0);
  return rest.empty();
}

}  // namespace

Json read_cbor(std::span<const uint8_t> cbor, std::string_view room) {
  if (is_bounded(cbor)) {
    Json value = Json::from_cbor(cbor.begin(), cbor.end(), /*strict=*/true,
                                 /*allow_exceptions=*/false);
    if (!value.is_discarded()) return value;
  }
  throw Error(ErrorCode::corrupt, room,
              fmt::format("{} bytes that are not one CBOR value of at most {} levels", cbor.size(),
                          kMaxCborDepth),
              "the same version of Trireme on both sides");
}

}  // namespace trireme
