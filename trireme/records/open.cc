#include <trireme/records/open.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/base/files.h>
#include <trireme/base/units.h>
#include <trireme/records/data_files.h>
#include <trireme/records/index.h>
#include <trireme/records/remote/address.h>
#include <algorithm>
#include <set>

namespace trireme::records {
namespace fs = std::filesystem;
namespace {

std::vector<std::string_view> names_of_formats() {
  std::vector<std::string_view> names;
  for (const Format& format : formats()) names.push_back(format.name);
  return names;
}

Error unknown_format(std::string_view what) {
  return Error(ErrorCode::invalid_argument, "data", what,
               fmt::format("one of the formats {}", fmt::join(names_of_formats(), ", ")));
}

void check_options(const Format& format, const OpenOptions& options) {
  const OpenOptions none;
  const auto check = [&](std::string_view name, bool is_given) {
    const bool has = std::ranges::find(format.options, name) != format.options.end();
    if (is_given && !has)
      throw Error(ErrorCode::invalid_argument, "data",
                  fmt::format("the format {} has no option {}", format.name, name),
                  format.options.empty()
                      ? std::string("leave it out")
                      : fmt::format("one of its options: {}", fmt::join(format.options, ", ")));
  };
  check("delimiter", options.delimiter != none.delimiter);
  check("header", options.header != none.header);
  check("skip_lines", options.skip_lines != none.skip_lines);
  check("comment", options.comment != none.comment);
  check("columns", options.columns != none.columns);
  check("label", options.label != none.label);
  check("dtype", options.dtype != none.dtype);
  check("block", options.block != none.block);
  check("separator", options.separator != none.separator);
  check("tokens", options.tokens != none.tokens);
  check("length_of", options.length_of != none.length_of);
  check("labels", options.labels != none.labels);
  check("part", options.part != none.part);
  for (const std::string& column : options.columns)
    if (std::ranges::count(options.columns, column) > 1)
      throw Error(ErrorCode::invalid_argument, "data",
                  fmt::format("the column '{}' is chosen twice", column), "choose it once");
  const auto require = [](std::string_view name, int64_t value, int64_t least) {
    if (value < least)
      throw Error(ErrorCode::invalid_argument, "data",
                  fmt::format("{} is {}, but must be at least {}", name, value, least));
  };
  require("the memory for a record", options.memory_bytes, 1 << 16);
  require(options.name_of("max_ratio"), options.max_ratio, 1);
  require("block", options.block, 0);
  require(options.name_of("skip_lines"), options.skip_lines, 0);
}

const Format* format_of_name(std::string_view name) {
  while (name.ends_with('*')) name.remove_suffix(1);
  const Format* found = nullptr;
  size_t longest = 0;
  for (const Format& format : formats())
    for (const std::string_view end : format.ends)
      if (name.ends_with(end) && end.size() > longest) {
        found = &format;
        longest = end.size();
      }
  return found;
}

void refuse_damaged(const Reader& reader, const std::string& more_remedy) {
  const std::vector<int64_t> damaged = reader.damaged();
  if (damaged.empty()) return;
  try {
    Record record;
    reader.read(damaged[0], record);
  } catch (const Error& error) {
    const auto [what, remedy] = parts_of(error);
    throw error_of_damage(what, remedy + ", then trireme data index", damaged.size(), more_remedy);
  }
}

// The refusal of an address by a format that reads files of this machine alone.
Error refused_address(const Format& format, std::string_view address) {
  return Error(ErrorCode::unsupported, "data",
               fmt::format("the format {} is read from files on this machine, but '{}' is an "
                           "address: {}",
                           format.name, shown_address(address), format.not_remote),
               "trireme data pack --to webdataset where the images are, and then the addresses of "
               "its files");
}

}  // namespace

const Format& find_format(std::string_view name) {
  const auto found = std::ranges::find(formats(), name, &Format::name);
  if (found != formats().end()) return *found;
  std::vector<std::string_view> names = names_of_formats();
  const std::string nearest = nearest_word(name, names.data(), names.size());
  throw unknown_format(
      fmt::format("there is no format '{}' of files{}", name,
                  nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest)));
}

const Format& guess_format(const std::string& path) {
  const std::string shown = shown_path(path);
  if (const Format* const found = format_of_name(shown)) return *found;
  if (!is_address(path) && path_exists(path) && fs::is_directory(path)) {
    bool has_folder = false;
    std::set<const Format*> found;
    for (const auto& entry : fs::directory_iterator(path)) {
      const std::string name = entry.path().filename();
      if (name.starts_with('.')) continue;
      has_folder |= entry.is_directory();
      if (const Format* const format = format_of_name(name)) found.insert(format);
    }
    // A text beside folders or other files is rather about them.
    if (has_folder || found.size() > 1) found.erase(&find_format("lines"));
    if (found.size() == 1) return **found.begin();
    if (found.empty() && has_folder) return find_format("image_folder");
  }
  throw unknown_format(
      fmt::format("the names of '{}' do not tell the format of the files", shown));
}

DataFiles files_of(const OpenOptions& options, std::span<const std::string_view> ends) {
  return is_address(options.path) ? find_remote_files(options.path, options.download)
                                  : find_files(options.path, ends);
}

std::set<std::string, std::less<>> needed_of(const OpenOptions& options,
                                             const std::vector<FieldSpec>& fields) {
  if (!options.needed) return {};
  const std::vector<std::string> names = options.needed(fields);
  return {names.begin(), names.end()};
}

std::shared_ptr<const Reader> open_records(const OpenOptions& options) {
  const Format& format =
      options.format.empty() ? guess_format(options.path) : find_format(options.format);
  check_options(format, options);
  if (is_address(options.path) && !format.not_remote.empty())
    throw refused_address(format, options.path);
  try {
    auto reader = format.open(options);
    if (!options.keeps_damaged) refuse_damaged(*reader, options.remedy_of_damage);
    return reader;
  } catch (const fs::filesystem_error& error) {
    throw Error(ErrorCode::io, "data", error.what(), "check the path and its permissions");
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::corrupt, "data",
                fmt::format("'{}': its index or the names of the options are damaged: {}",
                            shown_path(options.path), error.what()),
                "trireme data index, or names in UTF-8");
  }
}

}  // namespace trireme::records
