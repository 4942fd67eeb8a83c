#include <trireme/net/base64.h>

#include <openssl/evp.h>
#include <trireme/base/error.h>

namespace trireme::net {
namespace {

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}
unsigned char* room_in(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }

}  // namespace

std::string to_base64(std::string_view bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // OpenSSL ends the text with a zero.
  EVP_EncodeBlock(room_in(text), bytes_of(bytes), static_cast<int>(bytes.size()));
  text.pop_back();
  return text;
}

std::string from_base64(std::string_view text) {
  std::string bytes(text.size() / 4 * 3, '\0');
  if (text.size() % 4 != 0 ||
      EVP_DecodeBlock(room_in(bytes), bytes_of(text), static_cast<int>(text.size())) < 0)
    throw Error(ErrorCode::corrupt, "net", "a value that should be base64 is not");
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  bytes.resize(bytes.size() - padding);
  return bytes;
}

}  // namespace trireme::net
