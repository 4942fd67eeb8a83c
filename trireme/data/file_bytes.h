// The content of a data file, stored plain or compressed with gzip.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>

namespace trireme::data {

// Reads the whole file. Gzip is recognized by its first two bytes and decompressed; memory grows
// with the bytes that are really decompressed, never with a size that a header claims. Throws
// Error(not_found), Error(invalid_argument) for a folder or a device, Error(corrupt) for an empty
// file or damaged or truncated gzip data, and Error(io) if the operating system refuses. Each
// error names the file. Any thread may call this.
std::string read_data_file(const std::filesystem::path& file);

// A piece of a file's text for a message: at most 24 characters; '?' replaces an unprintable one.
std::string printable(std::string_view text);

}  // namespace trireme::data
