// `trireme data index`, `verify` and `head`: the files of a data set, without LibTorch.
#include <trireme/cli/data_files_commands.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/cores.h>
#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/checkpoint/parallel.h>
#include <trireme/cli/data_arguments.h>
#include <trireme/cli/record_text.h>
#include <algorithm>

namespace trireme::cli {
namespace {

using records::Reader;

// The JSON of a path, or that of each part by its name.
template <typename Make>
Json json_of_parts(const std::vector<OpenedPart>& parts, Make make) {
  if (parts.size() == 1 && parts[0].name.empty()) return make(parts[0]);
  Json json = Json::object();
  for (const OpenedPart& part : parts) json[part.name] = make(part);
  return json;
}

Json json_of(const Reader& reader) {
  Json fields = Json::array();
  for (const records::FieldSpec& field : reader.fields()) {
    Json json{{"name", field.name}, {"encoded", field.encoded}};
    if (!field.encoded) json["dtype"] = plan::to_string(field.dtype);
    if (field.shape) json["shape"] = *field.shape;
    fields.push_back(std::move(json));
  }
  return {{"records", reader.size()},
          {"blocks", reader.blocks().size()},
          {"damaged", reader.damaged().size()},
          {"content", reader.content()},
          {"fields", fields},
          {"classes", reader.class_names()}};
}

// The classes of a text are its characters, such as the end of a line.
std::string shown_class(const std::string& name) {
  const bool has_control = std::ranges::any_of(
      name, [](char letter) { return static_cast<unsigned char>(letter) < ' '; });
  return has_control ? Json(name).dump(-1, ' ', false, Json::error_handler_t::replace) : name;
}

void print_index(const OpenedPart& part) {
  const Reader& reader = *part.reader;
  fmt::print("{}: {} records in {} block{}, content {}\n", part.title(), reader.size(),
             reader.blocks().size(), reader.blocks().size() == 1 ? "" : "s", reader.content());
  if (const auto damaged = reader.damaged(); !damaged.empty())
    fmt::print("{} damaged record{} (trireme data verify names each), such as {}\n",
               damaged.size(), damaged.size() == 1 ? "" : "s", reader.place(damaged[0]));
  for (const auto& field : reader.fields()) fmt::print("{}", describe_field(field));
  std::vector<std::string> names = reader.class_names();
  if (names.empty()) return;
  const size_t count = names.size();
  names.resize(std::min<size_t>(count, 10));
  std::ranges::transform(names, names.begin(), shown_class);
  fmt::print("{} classes: {}{}\n", count, fmt::join(names, ", "),
             count > names.size() ? ", ..." : "");
}

int index(const DataArguments& arguments) {
  const std::vector<OpenedPart> parts = arguments.parts(true);
  if (arguments.json)
    fmt::print("{}\n", json_of_parts(parts, [](const OpenedPart& part) {
                         return json_of(*part.reader);
                       }).dump(2));
  else
    for (const OpenedPart& part : parts) print_index(part);
  return kExitOk;
}

// The messages of the records [from, to) that cannot be read.
std::vector<std::string> bad_records(const Reader& reader, size_t from, size_t to) {
  std::vector<std::string> bad;
  records::Record record;
  for (size_t i = from; i < to; ++i) {
    try {
      reader.read(static_cast<int64_t>(i), record);
    } catch (const Error& error) {
      bad.push_back(parts_of(error).what);
    }
  }
  return bad;
}

// What is bad about the records and files of a reader.
struct BadParts {
  std::vector<std::string> lines;
  size_t records = 0;
};

BadParts bad_parts_of(const Reader& reader) {
  const auto size = static_cast<size_t>(reader.size());
  const int threads = usable_cores();
  std::vector<std::vector<std::string>> parts(static_cast<size_t>(threads));
  checkpoint::in_parallel(parts.size(), threads, [&](size_t from, size_t to) {
    for (size_t part = from; part < to; ++part)
      parts[part] =
          bad_records(reader, size * part / parts.size(), size * (part + 1) / parts.size());
  });
  BadParts bad;
  for (auto& part : parts) bad.lines.insert(bad.lines.end(), part.begin(), part.end());
  bad.records = bad.lines.size();
  try {
    reader.verify_files();
  } catch (const Error& error) {
    bad.lines.push_back(parts_of(error).what);
  }
  return bad;
}

int verify(const DataArguments& arguments) {
  bool has_bad = false;
  const std::vector<OpenedPart> parts = arguments.parts();
  const Json json = json_of_parts(parts, [&](const OpenedPart& part) {
    const BadParts bad = bad_parts_of(*part.reader);
    has_bad |= !bad.lines.empty();
    if (!arguments.json) {
      for (const std::string& line : bad.lines) fmt::print("{}\n", line);
      fmt::print("{}: {} records, {} bad\n", part.title(), part.reader->size(), bad.records);
    }
    return Json{{"records", part.reader->size()}, {"bad", bad.lines}};
  });
  if (arguments.json) fmt::print("{}\n", json.dump(2));
  return has_bad ? kExitFailed : kExitOk;
}

Json json_of_head(const Reader& reader, int64_t index, const records::Record& record) {
  Json json{{"index", index}, {"place", reader.place(index)}, {"fields", json_of_record(record)}};
  if (const auto label = reader.label(index)) json["label"] = *label;
  if (const auto length = reader.length(index)) json["length"] = *length;
  return json;
}

Json head_of(const OpenedPart& part, const DataArguments& arguments) {
  const Reader& reader = *part.reader;
  const int64_t from = arguments.from;
  if (arguments.count < 1 || from < 0 || from >= reader.size())
    throw Error(
        ErrorCode::invalid_argument, "cli",
        fmt::format("records {} to {} of {}", from, from + arguments.count - 1, reader.size()),
        "records that there are");
  Json all = Json::array();
  records::Record record;
  if (!part.name.empty() && !arguments.json) fmt::print("{}\n", part.title());
  for (int64_t i = from; i < std::min(reader.size(), from + arguments.count); ++i) {
    reader.read(i, record);
    if (arguments.json)
      all.push_back(json_of_head(reader, i, record));
    else
      fmt::print("{}\n{}", reader.place(i), describe_record(record));
  }
  return all;
}

int head(const DataArguments& arguments) {
  const Json json = json_of_parts(
      arguments.parts(), [&](const OpenedPart& part) { return head_of(part, arguments); });
  if (arguments.json) fmt::print("{}\n", json.dump(2));
  return kExitOk;
}

}  // namespace

void add_data_files(Command data) {
  const auto add = [&](const char* name, const char* what, const char* example,
                       int (*run)(const DataArguments&)) {
    auto arguments = std::make_shared<DataArguments>();
    Command command = data.subcommand(name, what);
    arguments->add_to(command);
    command.flag("--json", arguments->json, "Print JSON");
    command.examples({fmt::format("trireme data {}", example)});
    command.action([arguments, run] { return run(*arguments); });
    return std::pair(command, arguments);
  };
  add("index", "Find the records of a data set's files, and write their index anew",
      "index 'shards/train-{0000..0127}.tar'", index);
  add("verify",
      "Read every record of a data set's files and check its checksums; exit code 1 if one is bad",
      "verify shards/ --format webdataset", verify);
  auto [command, arguments] = add("head", "Print the first records of a data set's files",
                                  "head train.csv --count 2", head);
  command.option("--count", arguments->count, "The number of records (default 5)");
  command.option("--from", arguments->from, "The number of the first one (default 0)");
}

}  // namespace trireme::cli
