#include <trireme/net/framing.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/units.h>

namespace trireme::net {
namespace {

constexpr int kMaxDepth = 32;

// Walks CBOR without building it and stops where it nests too deeply: the parser recurses, and a
// peer must not be able to choose how much of our stack it uses.
class DepthGuard : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool key(string_t&) override { return true; }
  bool start_object(std::size_t) override { return ++depth_ <= kMaxDepth; }
  bool end_object() override { return --depth_ >= 0; }
  bool start_array(std::size_t) override { return ++depth_ <= kMaxDepth; }
  bool end_array() override { return --depth_ >= 0; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  int depth_ = 0;
};

Error corrupt(std::string_view what) {
  return Error(ErrorCode::corrupt, "net", what, "the same version of Trireme on both sides");
}

}  // namespace

std::vector<uint8_t> encode_frame(const Json& message, int64_t max_bytes) {
  std::vector<uint8_t> frame(kLengthBytes);
  Json::to_cbor(message, frame);
  const size_t length = frame.size() - kLengthBytes;
  if (length > static_cast<size_t>(max_bytes))
    throw Error(ErrorCode::invalid_argument, "net",
                fmt::format("a control message of {} is over the limit of {}",
                            format_bytes(static_cast<int64_t>(length)), format_bytes(max_bytes)),
                "smaller values, or a tensor collective for bulk data");
  for (size_t i = 0; i < kLengthBytes; ++i)
    frame[i] = static_cast<uint8_t>(length >> (8 * (kLengthBytes - 1 - i)));
  return frame;
}

size_t decode_length(const LengthPrefix& prefix, int64_t max_bytes) {
  size_t length = 0;
  for (const uint8_t byte : prefix) length = length << 8 | byte;
  if (length == 0) throw corrupt("a message of length 0");
  if (length > static_cast<size_t>(max_bytes))
    throw corrupt(fmt::format("a message of {} bytes, more than {}", length, max_bytes));
  return length;
}

Json decode_message(std::span<const uint8_t> cbor) {
  DepthGuard guard;
  if (!Json::sax_parse(cbor.begin(), cbor.end(), &guard, Json::input_format_t::cbor))
    throw corrupt(fmt::format("{} bytes that are not one CBOR value of at most {} levels",
                              cbor.size(), kMaxDepth));
  Json message = Json::from_cbor(cbor.begin(), cbor.end());
  if (!message.is_object())
    throw corrupt(fmt::format("a message that is not an object but {}", message.type_name()));
  return message;
}

}  // namespace trireme::net
