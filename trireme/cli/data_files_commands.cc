// `trireme data index`, `verify` and `head`: the files of a data set, without LibTorch.
#include <trireme/cli/data_files_commands.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/cores.h>
#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/base/units.h>
#include <trireme/checkpoint/parallel.h>
#include <trireme/cli/record_text.h>
#include <trireme/records/open.h>
#include <algorithm>

namespace trireme::cli {
namespace {

using records::Reader;

struct DataArguments {
  records::OpenOptions open;
  std::string memory = "1GiB";
  std::optional<int> separator;
  bool no_header = false, json = false;
  int64_t count = 5, from = 0;

  void add_to(Command command) {
    std::vector<std::string_view> names;
    for (const records::Format& format : records::formats()) names.push_back(format.name);
    command.required("path", open.path,
                     "A file, a folder, or a pattern with *, {0000..0127} or {train,test}");
    command.option("--format", open.format,
                   fmt::format("The format of the files: {} (default: by their names)",
                               fmt::join(names, ", ")));
    command.option("--delimiter", open.delimiter,
                   "csv: one character between cells (default: a comma, or a tab for .tsv)");
    command.flag("--no-header", no_header, "csv: the first line has no names of columns");
    command.repeated("--column", open.columns,
                     "csv, jsonl, parquet, arrow: read this column alone; may be repeated");
    command.option("--label", open.label,
                   "csv, jsonl, npy, parquet, arrow: the column or array of whole numbers that "
                   "are labels");
    command.option("--dtype", open.dtype, "tokens without a header: uint16, uint32 or int32");
    command.option("--block", open.block,
                   "tokens: a record has one token more than this (default: documents)");
    command.option("--separator", separator, "tokens: the token with which each document begins");
    command.option("--part", open.part, "cifar: train or test (default: train)");
    command.option("--index-dir", open.index_dir,
                   "The folder for indexes of data whose folder cannot be written (default: "
                   "trireme in the user's cache)");
    command.option("--memory", memory,
                   "The limit for a record, and for a file or row group that is unpacked (default "
                   "1GiB)");
    command.option("--max-ratio", open.max_ratio,
                   "The most bytes that a compressed byte may become (default 250)");
  }

  std::shared_ptr<const Reader> reader(bool make_index_anew = false) const {
    records::OpenOptions options = open;
    options.memory_bytes = parse_bytes(memory);
    options.header = !no_header;
    options.make_index_anew = make_index_anew;
    if (separator) options.separator = *separator;
    return records::open_records(options);
  }
};

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
          {"content", reader.content()},
          {"fields", fields},
          {"classes", reader.class_names()}};
}

int index(const DataArguments& arguments) {
  const auto reader = arguments.reader(true);
  if (arguments.json) {
    fmt::print("{}\n", json_of(*reader).dump(2));
    return kExitOk;
  }
  fmt::print("{}: {} records in {} block{}, content {}\n", arguments.open.path, reader->size(),
             reader->blocks().size(), reader->blocks().size() == 1 ? "" : "s", reader->content());
  for (const auto& field : reader->fields()) fmt::print("{}", describe_field(field));
  if (const auto names = reader->class_names(); !names.empty())
    fmt::print(
        "{} classes: {}{}\n", names.size(),
        fmt::join(names.begin(), names.begin() + std::min<ptrdiff_t>(std::ssize(names), 10), ", "),
        names.size() > 10 ? ", ..." : "");
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

int verify(const DataArguments& arguments) {
  const auto reader = arguments.reader();
  const auto size = static_cast<size_t>(reader->size());
  const int threads = usable_cores();
  std::vector<std::vector<std::string>> parts(static_cast<size_t>(threads));
  checkpoint::in_parallel(parts.size(), threads, [&](size_t from, size_t to) {
    for (size_t part = from; part < to; ++part)
      parts[part] =
          bad_records(*reader, size * part / parts.size(), size * (part + 1) / parts.size());
  });
  std::vector<std::string> bad;
  for (auto& part : parts) bad.insert(bad.end(), part.begin(), part.end());
  const size_t bad_count = bad.size();
  try {
    reader->verify_files();
  } catch (const Error& error) {
    bad.push_back(parts_of(error).what);
  }
  if (arguments.json) {
    fmt::print("{}\n", Json{{"records", size}, {"bad", bad}}.dump(2));
  } else {
    for (const std::string& line : bad) fmt::print("{}\n", line);
    fmt::print("{}: {} records, {} bad\n", arguments.open.path, size, bad_count);
  }
  return bad.empty() ? kExitOk : kExitFailed;
}

int head(const DataArguments& arguments) {
  const auto reader = arguments.reader();
  const int64_t from = arguments.from;
  if (arguments.count < 1 || from < 0 || from >= reader->size())
    throw Error(
        ErrorCode::invalid_argument, "cli",
        fmt::format("records {} to {} of {}", from, from + arguments.count - 1, reader->size()),
        "records that there are");
  Json all = Json::array();
  records::Record record;
  for (int64_t i = from; i < std::min(reader->size(), from + arguments.count); ++i) {
    reader->read(i, record);
    if (!arguments.json) {
      fmt::print("{}\n{}", reader->place(i), describe_record(record));
      continue;
    }
    Json json{{"index", i}, {"place", reader->place(i)}, {"fields", json_of_record(record)}};
    if (const auto label = reader->label(i)) json["label"] = *label;
    if (const auto length = reader->length(i)) json["length"] = *length;
    all.push_back(std::move(json));
  }
  if (arguments.json) fmt::print("{}\n", all.dump(2));
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
