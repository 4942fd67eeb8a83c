// Image lists: a text file with a path and a label in each line.
#include <fmt/format.h>
#include <trireme/base/text.h>
#include <trireme/records/formats.h>
#include <trireme/records/remote/address.h>
#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include "image_files.h"

namespace trireme::records {
namespace {

namespace fs = std::filesystem;

struct ListLine {
  std::string name, label;
  uint64_t number;
};

ListLine parse_list_line(std::string_view line, uint64_t number) {
  size_t split = line.find('\t');
  if (split == std::string_view::npos) split = line.rfind(',');
  if (split == std::string_view::npos) split = line.rfind(' ');
  ListLine parsed{.name = {}, .label = {}, .number = number};
  if (split != std::string_view::npos) {
    parsed.name = trimmed(line.substr(0, split));
    parsed.label = trimmed(line.substr(split + 1));
  }
  if (parsed.name.empty() || parsed.label.empty())
    throw Damage(fmt::format("line {} is not a path and a label, with a tab, a comma or a space "
                             "between them",
                             number),
                 "images/cat.jpg 0", ErrorCode::invalid_argument);
  return parsed;
}

// The lines are checked like the entries that they become, because they take as much memory.
std::vector<ListLine> lines_of_list(const Shards& shards, const IndexContent& content) {
  std::vector<ListLine> lines;
  Scanner scanner = shards.scanner(0);
  uint64_t number = 0;
  for (uint64_t at = 0; at < scanner.size();) {
    const std::string_view line = scanner.line(at);
    at += line.size();
    ++number;
    if (const std::string_view text = trimmed(line); !text.empty())
      lines.push_back(parse_list_line(text, number));
    content.check_count(lines.size());
  }
  return lines;
}

bool is_label_number(const std::string& text, int64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size();
}

// Labels are whole numbers from 0, or names, which get numbers in their order.
std::vector<int64_t> labels_of_list(const std::vector<ListLine>& lines, Json& facts) {
  std::vector<int64_t> labels(lines.size());
  bool are_numbers = true;
  for (size_t i = 0; i < lines.size(); ++i)
    are_numbers &= is_label_number(lines[i].label, labels[i]);
  if (are_numbers) {
    for (size_t i = 0; i < lines.size(); ++i)
      if (labels[i] < 0)
        throw Damage(fmt::format("line {} has the label {}", lines[i].number, labels[i]),
                     "labels from 0 on, or names", ErrorCode::invalid_argument);
    return labels;
  }
  std::map<std::string, int64_t> numbers;
  for (const ListLine& line : lines) numbers[line.label] = 0;
  std::vector<std::string> names;
  for (auto& [name, number] : numbers) {
    number = static_cast<int64_t>(names.size());
    names.push_back(name);
  }
  for (size_t i = 0; i < lines.size(); ++i) labels[i] = numbers.at(lines[i].label);
  facts["classes"] = names;
  return labels;
}

Damage address_in_list(std::string_view address) {
  return Damage(fmt::format("'{}' is an address: {}", shown_address(address),
                            find_format("image_list").not_remote),
                "trireme data pack --to webdataset where the images are", ErrorCode::unsupported);
}

IndexContent scan_list(const Shards& shards, const fs::path& base) {
  IndexContent content;
  content.begin_file(shards.packed_bytes(0), shards.limits());
  const std::vector<ListLine> lines = lines_of_list(shards, content);
  const std::vector<int64_t> labels = labels_of_list(lines, content.facts);
  std::set<fs::path> known_folders;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string where = fmt::format("{}, line {}", shards.path(0).string(), lines[i].number);
    if (is_address(lines[i].name)) {
      add_name(content, shown_address(lines[i].name), labels[i], 0);
      content.damage_last(where, address_in_list(lines[i].name));
      continue;
    }
    require_inside(lines[i].name, where);
    const fs::path folder = fs::path(lines[i].name).parent_path();
    std::error_code unknown;
    if (known_folders.insert(folder).second && !(fs::weakly_canonical(base / folder, unknown) / "")
                                                    .string()
                                                    .starts_with((base / "").string()))
      throw Error(ErrorCode::invalid_argument, "data",
                  fmt::format("{}: the folder '{}' is a link that leads outside of '{}'", where,
                              folder.string(), base.string()),
                  "a folder in place of the link");
    try {
      add_image(content, base, lines[i].name, labels[i]);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::not_found) throw;
      add_name(content, lines[i].name, labels[i], 0);
      content.damage_last(
          where, Damage(fmt::format("there is no file '{}'", (base / lines[i].name).string()),
                        "correct the path, which is relative to the list", ErrorCode::not_found));
    }
  }
  return content;
}

}  // namespace

SharedReader open_image_list(const OpenOptions& options) {
  const auto shards = shards_of(options, "image_list");
  if (shards->count() != 1)
    throw Error(
        ErrorCode::invalid_argument, "data",
        fmt::format("'{}' means {} files, but there is one list", options.path, shards->count()),
        "the path of one list");
  const fs::path base = fs::canonical(shards->path(0)).parent_path();
  IndexRequest request = request_for(options, "image_list", shards->files());
  request.identities = [&] { return shards->identities(); };
  request.check = [&](const Index& index) { check_damaged_images(index, base); };
  request.make = [&] {
    return with_place([&] { return shards->path(0).string(); },
                      [&] { return scan_list(*shards, base); });
  };
  return std::make_shared<ImageFilesReader>(base, open_index(request), options.unpack_limits());
}

}  // namespace trireme::records
