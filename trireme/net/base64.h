// Base64: bytes as text, for JSON.
#pragma once
#include <string>
#include <string_view>

namespace trireme::net {

std::string to_base64(std::string_view bytes);
// Throws Error(corrupt) if the text is not base64.
std::string from_base64(std::string_view text);

}  // namespace trireme::net
