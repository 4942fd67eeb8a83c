#include <trireme/data/file_bytes.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <algorithm>
#include <cctype>

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

Error corrupt(const fs::path& file, std::string_view what) {
  return Error(ErrorCode::corrupt, "data", fmt::format("{}: {}", file.string(), what),
               "fetching the file again");
}

void require_regular_file(const fs::path& file) {
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  if (status.type() == fs::file_type::not_found)
    throw Error(ErrorCode::not_found, "data",
                fmt::format("data file '{}' does not exist", file.string()),
                "the path of an existing file, absolute or relative to the current folder");
  if (status.type() == fs::file_type::directory)
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("'{}' is a folder, but must be a file", file.string()),
                "the path of the file inside it");
  if (status.type() == fs::file_type::none)
    throw Error(
        ErrorCode::io, "data",
        fmt::format("data file '{}' cannot be examined: {}", file.string(), error.message()),
        "check the path, its links and its permissions");
  if (status.type() != fs::file_type::regular)
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("'{}' is not a regular file", file.string()), "a copy of it on disk");
}

}  // namespace

std::string read_data_file(const fs::path& file, const records::UnpackLimits& limits) {
  require_regular_file(file);
  if (fs::file_size(file) == 0) throw corrupt(file, "the file is empty");
  std::string content = records::read_unpacked(file, limits);
  if (content.empty()) throw corrupt(file, "the packed file holds no data");
  return content;
}

std::string printable(std::string_view text) {
  constexpr size_t kShown = 24;
  std::string shown(text.substr(0, kShown));
  std::replace_if(
      shown.begin(), shown.end(), [](unsigned char c) { return !std::isprint(c); }, '?');
  return fmt::format("'{}{}'", shown, text.size() > kShown ? "..." : "");
}

}  // namespace trireme::data
