#include <trireme/records/data_files.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <glob.h>
#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/records/remote/address.h>
#include <trireme/records/unpack.h>
#include <algorithm>
#include <charconv>
#include <functional>
#include <optional>
#include <set>

namespace trireme::records {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMostFiles = 1'000'000;

Error no_files(const std::string& path, std::string_view what, std::string_view remedy) {
  return Error(ErrorCode::not_found, "data", fmt::format("'{}' {}", path, what), remedy);
}

Error bad_pattern(const std::string& pattern, std::string_view what) {
  return Error(ErrorCode::invalid_argument, "data",
               fmt::format("the pattern '{}' {}", pattern, what), "{0000..0127} or {train,test}");
}

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_whole = error == std::errc{} && end == text.data() + text.size() && number >= 0;
  return is_whole ? std::optional(number) : std::nullopt;
}

// The texts that "{content}" stands for.
std::vector<std::string> choices_of(std::string_view content, const std::string& shown) {
  std::vector<std::string> choices;
  if (const size_t dots = content.find(".."); dots != std::string_view::npos) {
    const std::string_view first = content.substr(0, dots), last = content.substr(dots + 2);
    const auto from = whole_number(first), to = whole_number(last);
    if (!from || !to || *from > *to)
      throw bad_pattern(shown, fmt::format("has the range {{{}}}", content));
    if (static_cast<uint64_t>(*to - *from) >= kMostFiles)
      throw bad_pattern(shown, fmt::format("stands for more than {} files", kMostFiles));
    for (int64_t number = *from; number <= *to; ++number)
      choices.push_back(fmt::format("{:0{}}", number, first.size()));
    return choices;
  }
  for (size_t at = 0;;) {
    const size_t comma = content.find(',', at);
    choices.emplace_back(content.substr(at, comma - at));
    if (comma == std::string_view::npos) return choices;
    at = comma + 1;
  }
}

std::vector<std::string> expand_stars(const std::string& pattern) {
  if (pattern.find_first_of("*?") == std::string::npos) return {pattern};
  glob_t found{};
  const int code = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (code != 0 && code != GLOB_NOMATCH)
    throw Error(ErrorCode::io, "data", fmt::format("the files of '{}' cannot be listed", pattern),
                "check the permissions of its folders");
  return paths;
}

bool has_end(std::string_view name, std::span<const std::string_view> ends) {
  return ends.empty() ||
         std::ranges::any_of(ends, [&](std::string_view end) { return name.ends_with(end); });
}

std::vector<std::string> files_of_folder(const fs::path& folder,
                                         std::span<const std::string_view> ends) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::string name = entry->path().filename();
    if (name.starts_with('.') || !has_end(name, ends)) continue;
    std::error_code unknown;
    if (entry->is_regular_file(unknown)) names.push_back(std::move(name));
  }
  if (error)
    throw Error(
        ErrorCode::io, "data",
        fmt::format("the folder '{}' cannot be listed: {}", folder.string(), error.message()),
        "check its permissions");
  return names;
}

void refuse_commands(const std::string& path) {
  if (path.empty())
    throw Error(ErrorCode::invalid_argument, "data", "the path of the data is empty",
                "a file, a folder, or a pattern");
  if (path.starts_with("pipe:") || path.find("://") != std::string::npos)
    throw Error(ErrorCode::unsupported, "data",
                fmt::format("'{}' is a command or an address, but files are read here",
                            path.substr(0, path.find(':'))),
                "the path of the files on this machine, or their addresses with https://");
}

// The folder that has all the files, which are sorted; empty if they have none in common.
fs::path common_folder(const std::vector<std::string>& paths) {
  fs::path common = fs::path(paths.front()).parent_path();
  for (const std::string& path : paths)
    while (!common.empty() && common != "/" && !path.starts_with(common.string() + "/"))
      common = common.parent_path();
  return common;
}

DataFiles files_of_pattern(const std::string& path) {
  std::vector<std::string> paths;
  for (const std::string& each : expand_braces(path))
    for (std::string& file : expand_stars(each)) paths.push_back(std::move(file));
  if (paths.empty()) throw no_files(path, "matches no file", "correct the pattern");
  for (const std::string& file : paths) {
    std::error_code error;
    if (!fs::is_regular_file(file, error))
      throw no_files(path, fmt::format("needs '{}', which is no file", file),
                     "a pattern that matches the files alone, all of which are there");
  }
  std::ranges::sort(paths);
  const auto repeated = std::ranges::unique(paths);
  paths.erase(repeated.begin(), repeated.end());
  DataFiles files{.base = common_folder(paths), .names = {}, .given = path};
  const size_t skip = files.base.empty() ? 0 : (files.base / "").string().size();
  for (const std::string& file : paths) files.names.push_back(file.substr(skip));
  return files;
}

// The paths of a part of a pattern, which messages show as `shown`.
std::vector<std::string> expand_part(const std::string& pattern, const std::string& shown) {
  const size_t open = pattern.find('{');
  if (open == std::string::npos) return {pattern};
  const size_t close = pattern.find('}', open);
  if (close == std::string::npos) throw bad_pattern(shown, "has a { without a }");
  const std::string_view content = std::string_view(pattern).substr(open + 1, close - open - 1);
  const std::vector<std::string> rest = expand_part(pattern.substr(close + 1), shown);
  std::vector<std::string> expanded;
  for (const std::string& choice : choices_of(content, shown))
    for (const std::string& end : rest) {
      if (expanded.size() >= kMostFiles)
        throw bad_pattern(shown, fmt::format("stands for more than {} files", kMostFiles));
      expanded.push_back(pattern.substr(0, open) + choice + end);
    }
  return expanded;
}

}  // namespace

std::vector<std::string> expand_braces(const std::string& pattern) {
  return expand_part(pattern, shown_path(pattern));
}

DataFiles find_remote_files(const std::string& address, const DownloadOptions& options) {
  std::vector<std::pair<std::string, std::string>> files;  // As it is shown, and whole.
  for (std::string& each : expand_braces(address)) {
    check_address(each);
    std::string shown = shown_address(each);
    files.emplace_back(std::move(shown), std::move(each));
  }
  std::ranges::sort(files);
  std::vector<std::string> shown, addresses;
  for (auto& [name, whole] : files) {
    if (!shown.empty() && shown.back() == name) {
      if (addresses.back() == whole) continue;
      throw Error(ErrorCode::invalid_argument, "data",
                  fmt::format("'{}' means several files that differ only behind the '?'", name),
                  "addresses that end in the names of the files");
    }
    shown.push_back(name), addresses.push_back(std::move(whole));
  }
  // A name is what is behind the host at least.
  fs::path base = common_folder(shown);
  if (!is_address(base.string()) || shown_address(base.string()) != base.string() ||
      base.string().ends_with(':') || base.string().ends_with('/'))
    base.clear();
  const size_t skip = base.empty() ? 0 : base.string().size() + 1;
  DataFiles found{.base = base,
                  .names = {},
                  .given = shown_address(address),
                  .remote = std::make_shared<RemoteFiles>(std::move(addresses), options)};
  for (const std::string& each : shown) found.names.push_back(each.substr(skip));
  return found;
}

DataFiles find_files(const std::string& path, std::span<const std::string_view> ends) {
  refuse_commands(path);
  if (!path_exists(path)) {
    if (path.find_first_of("*?{") != std::string::npos) return files_of_pattern(path);
    throw no_files(path, "does not exist", "the path of a file, a folder, or a pattern with *");
  }
  if (!fs::is_directory(path)) {
    if (!fs::is_regular_file(path))
      throw Error(ErrorCode::invalid_argument, "data",
                  fmt::format("'{}' is not a regular file", path), "a copy of it on disk");
    return {
        .base = fs::path(path).parent_path(), .names = {fs::path(path).filename()}, .given = path};
  }
  DataFiles files{.base = path, .names = files_of_folder(path, ends), .given = path};
  if (files.names.empty())
    throw no_files(path,
                   ends.empty()
                       ? std::string("has no file")
                       : fmt::format("has no file that ends in {}", fmt::join(ends, ", ")),
                   "another folder, or the path of the file");
  std::ranges::sort(files.names);
  return files;
}

DataFiles without_packed_twins(DataFiles files) {
  if (files.remote) return files;  // Each was named.
  std::set<std::string, std::less<>> known;
  std::erase_if(files.names, [&known](const std::string& name) {  // "x" stands in front of "x.gz".
    return !known.emplace(unpacked_name(name)).second;
  });
  return files;
}

bool leads_outside(std::string_view name) {
  if (name.empty() || name.front() == '/') return true;
  // Readers of image files ask for each record, so this makes no paths.
  int64_t depth = 0;
  for (size_t at = 0; at <= name.size();) {
    const size_t end = std::min(name.find('/', at), name.size());
    const std::string_view part = name.substr(at, end - at);
    if (part == "..")
      --depth;
    else if (!part.empty() && part != ".")
      ++depth;
    if (depth < 0) return true;
    at = end + 1;
  }
  return false;
}

void require_inside(std::string_view name, std::string_view where) {
  if (leads_outside(name))
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("{}: the name '{}' leads outside of the data's folder", where, name),
                "a relative name without \"..\"");
}

}  // namespace trireme::records
