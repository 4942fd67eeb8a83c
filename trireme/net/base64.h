// Bytes as text, as JSON carries them.
#pragma once
#include <string>
#include <string_view>

namespace trireme::net {

std::string to_base64(std::string_view bytes);
// Throws Error(corrupt) for what is none.
std::string from_base64(std::string_view text);

}  // namespace trireme::net
