// Addresses of data: http and https.
#pragma once
#include <string>
#include <string_view>

namespace trireme::records {

// True for "http://..." and "https://...".
bool is_address(std::string_view path);
// The address as messages show it: without a user, a password, and what is behind '?' or '#',
// which may be secrets. The name of its file is therefore at the end.
std::string shown_address(std::string_view address);
// The same for an address, and a path of this machine as it is.
std::string shown_path(std::string_view path);
// The address without the user and the password: it says which file it is.
std::string address_of_file(std::string_view address);
// Throws Error(invalid_argument) that says what is wrong with it.
void check_address(std::string_view address);

}  // namespace trireme::records
