// The content of a data file, whether stored plain or compressed with gzip.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>

namespace trireme::data {

// Reads the whole file. Gzip is told by its first two bytes and undone; memory grows with what was
// really decompressed, never with what a header claims. Throws Error(not_found),
// Error(invalid_argument) for a folder or a device, Error(corrupt) for an empty file or damaged or
// truncated gzip data, Error(io) where the operating system refuses. Each names the file. Any
// thread.
std::string read_data_file(const std::filesystem::path& file);

// A piece of a file's text fit for a message: at most 24 characters, unprintable ones as '?'.
std::string printable(std::string_view text);

}  // namespace trireme::data
