#include <trireme/net/framing.h>

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <trireme/base/cbor.h>
#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <algorithm>
#include <memory>

namespace trireme::net {
namespace {

// A process that ends by exit() has threads that still send. OpenSSL's own clean-up at exit would
// take the memory that they use.
[[maybe_unused]] const int without_clean_up = OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);

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

FrameTag tag_frame(const std::array<uint8_t, 32>& key, uint64_t number,
                   std::initializer_list<std::span<const uint8_t>> parts) {
  std::array<uint8_t, 8> counted;
  for (size_t i = 0; i < counted.size(); ++i)
    counted[i] = static_cast<uint8_t>(number >> (8 * (counted.size() - 1 - i)));
  const std::unique_ptr<EVP_MAC, decltype(&EVP_MAC_free)> hmac(
      EVP_MAC_fetch(nullptr, "HMAC", nullptr), &EVP_MAC_free);
  const std::unique_ptr<EVP_MAC_CTX, decltype(&EVP_MAC_CTX_free)> context(
      EVP_MAC_CTX_new(hmac.get()), &EVP_MAC_CTX_free);
  char digest[] = "SHA256";
  const OSSL_PARAM parameters[] = {OSSL_PARAM_construct_utf8_string("digest", digest, 0),
                                   OSSL_PARAM_construct_end()};
  std::array<uint8_t, 32> whole;
  size_t length = 0;
  bool done = context && EVP_MAC_init(context.get(), key.data(), key.size(), parameters) == 1 &&
              EVP_MAC_update(context.get(), counted.data(), counted.size()) == 1;
  for (const auto& part : parts)
    done = done && EVP_MAC_update(context.get(), part.data(), part.size()) == 1;
  if (!done || EVP_MAC_final(context.get(), whole.data(), &length, whole.size()) != 1)
    throw Error(ErrorCode::internal, "net", "OpenSSL offers no HMAC-SHA256");
  FrameTag tag;
  std::copy_n(whole.begin(), tag.size(), tag.begin());
  return tag;
}

Json decode_message(std::span<const uint8_t> cbor) {
  Json message = read_cbor(cbor, "net");
  if (!message.is_object())
    throw corrupt(fmt::format("a message that is {} instead of an object", message.type_name()));
  return message;
}

}  // namespace trireme::net
