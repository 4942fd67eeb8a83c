#include <trireme/records/remote/address.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <algorithm>

namespace trireme::records {
namespace {

constexpr std::string_view kSlashes = "://";

// The place behind "https://".
size_t begin_of_host(std::string_view address) { return address.find(kSlashes) + kSlashes.size(); }

size_t end_of_host(std::string_view address) {
  return std::min(address.find_first_of("/?#", begin_of_host(address)), address.size());
}

// Whether a user or a password has a '/', '?' or '#': the text before that is then no host and
// port, and an '@' follows.
bool has_broken_user(std::string_view address) {
  const size_t begin = begin_of_host(address), end = end_of_host(address);
  const std::string_view host = address.substr(begin, end - begin);
  if (host.find('@') != std::string_view::npos || address.find('@', end) == std::string_view::npos)
    return false;
  const size_t bracket = host.find(']');  // An address of IPv6 has colons too.
  const size_t colon = host.find(':', bracket == std::string_view::npos ? 0 : bracket);
  if (colon == std::string_view::npos) return false;
  const std::string_view port = host.substr(colon + 1);
  return port.empty() || port.find_first_not_of("0123456789") != std::string_view::npos;
}

}  // namespace

bool is_address(std::string_view path) {
  return path.starts_with("http://") || path.starts_with("https://");
}

std::string address_of_file(std::string_view address) {
  const size_t begin = begin_of_host(address);
  if (has_broken_user(address))  // No byte of a password may be left.
    return std::string(address.substr(0, begin)).append(address.substr(address.rfind('@') + 1));
  const std::string_view host = address.substr(begin, end_of_host(address) - begin);
  const size_t user = host.rfind('@');
  std::string file(address.substr(0, begin));
  file += user == std::string_view::npos ? host : host.substr(user + 1);
  file += address.substr(end_of_host(address));
  return file;
}

std::string shown_address(std::string_view address) {
  std::string shown = address_of_file(address);
  return shown.substr(0, shown.find_first_of("?#"));
}

std::string shown_path(std::string_view path) {
  return is_address(path) ? shown_address(path) : std::string(path);
}

void check_address(std::string_view address) {
  const auto wrong = [&](std::string_view what, std::string_view remedy) {
    return Error(ErrorCode::invalid_argument, "data",
                 fmt::format("the address '{}' {}", shown_address(address), what), remedy);
  };
  if (has_broken_user(address))
    throw wrong("has a /, ? or # in its user or password", "%2F for /, %3F for ?, and %23 for #");
  const std::string shown = shown_address(address);
  if (shown.find('*') != std::string::npos)
    throw wrong("has a *, but the files of a server cannot be listed", "{0000..0127} or {a,b}");
  if (std::ranges::any_of(address, [](unsigned char c) { return c <= ' ' || c == 0x7f; }))
    throw wrong("has a space or a control character", "%20 for a space");
  if (end_of_host(shown) == begin_of_host(shown)) throw wrong("has no host", "https://HOST/FILE");
  if (shown.ends_with('/') || end_of_host(shown) == shown.size())
    throw wrong("names no file", "the addresses of its files, such as .../train-{0000..0127}.tar");
}

}  // namespace trireme::records
