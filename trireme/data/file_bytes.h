// The content of a data file, stored plain or packed by gzip or zstd.
#pragma once
#include <trireme/records/unpack.h>
#include <filesystem>
#include <string>
#include <string_view>

namespace trireme::data {

// Reads the whole file. Gzip and zstd are known by the first bytes and unpacked; memory grows with
// the bytes that are really unpacked, never with a size that a header claims. Throws
// Error(not_found), Error(invalid_argument) for a folder or a device or a file beyond the limit of
// memory, Error(corrupt) for an empty file, damaged or cut data or a file beyond the ratio, and
// Error(io) if the operating system refuses. Each error names the file. Any thread may call this.
std::string read_data_file(
    const std::filesystem::path& file,
    const records::UnpackLimits& limits = records::UnpackLimits::of_whole_file());

// A piece of a file's text for a message: at most 24 characters; '?' replaces an unprintable one.
std::string printable(std::string_view text);

}  // namespace trireme::data
