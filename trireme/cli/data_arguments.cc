#include <trireme/cli/data_arguments.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/cli/config_keys.h>
#include <trireme/data/kinds/record_set.h>
#include <trireme/records/remote/address.h>
#include <trireme/run/config.h>

namespace trireme::cli {

void DataArguments::add_to(Command command) {
  std::vector<std::string_view> names;
  for (const records::Format& format : records::formats()) names.push_back(format.name);
  command.required("path", open.path,
                   "A file, a folder, or a pattern with *, {0000..0127} or {train,test}; an "
                   "address https://... with such braces; or a configuration (.yaml), whose "
                   "data.* name the files");
  command.repeated("--set", set, "For a configuration: key=value, as in trireme train");
  command.settings(key_meant_by);
  command.option("--format", open.format,
                 fmt::format("The format of the files: {} (default: by their names)",
                             fmt::join(names, ", ")));
  command.option("--delimiter", open.delimiter,
                 "csv: one character between cells, or whitespace: any number of spaces and tabs "
                 "(default: a comma, or a tab for .tsv)");
  command.flag("--no-header", no_header, "csv: the first row has no names of columns");
  command.option("--skip-lines", open.skip_lines,
                 "csv: so many lines in front of the header or the rows are left out (default 0)");
  command.option("--comment", open.comment,
                 "csv: lines that begin with this text, such as #, are no rows");
  command.repeated("--column", open.columns,
                   "csv, jsonl, parquet, arrow: read this column alone; may be repeated");
  command.option("--label", open.label,
                 "csv, jsonl, npy, parquet, arrow: the column or array of whole numbers that are "
                 "labels");
  command.option("--dtype", open.dtype, "tokens without a header: uint8, uint16, uint32 or int32");
  command.option("--block", open.block,
                 "tokens, text: a record has one token more than this (default of tokens: "
                 "documents)");
  command.option("--separator", separator, "tokens: the token with which each document begins");
  command.option("--tokens", open.tokens, "text: characters or bytes (default: characters)");
  command.option("--length-of", open.length_of,
                 "jsonl, tfrecord, webdataset: the list, the feature or the member .npy whose "
                 "length pack, pad and bucket need");
  command.option("--labels", open.labels,
                 "idx: the file of labels (default: beside that of the images, by its name)");
  command.option("--part", open.part, "cifar, idx: train or test (default: train)");
  command.option("--index-dir", open.index_dir,
                 "The folder for indexes of data whose folder cannot be written (default: "
                 "trireme in the user's cache)");
  command.option("--download-dir", open.download.folder,
                 "The folder for files that are fetched from addresses (default: "
                 "trireme/downloads in the user's cache)");
  command.option("--download-bytes", download_bytes,
                 "The most bytes that it holds (default: half of the disk space that is free or "
                 "taken by it)");
  command.option("--download-timeout", download_timeout,
                 "A server that sends less than 1 KB a second for so long is asked again "
                 "(default 30s)");
  command.option("--download-tries", download_tries,
                 "So many requests in a row that bring nothing new of a file are an error "
                 "(default 5)");
  command.option("--memory", memory,
                 "The limit for a record, and for a file or row group that is unpacked (default "
                 "1GiB, or what data.memory_bytes of the configuration allows)");
  command.option("--max-ratio", max_ratio,
                 "The most bytes that a compressed byte may become, of data or of its index "
                 "(default 250)");
}

bool DataArguments::is_config() const {
  return open.format.empty() && (open.path.ends_with(".yaml") || open.path.ends_with(".yml"));
}

std::vector<OpenedPart> DataArguments::parts(bool make_index_anew) const {
  if (is_config()) return parts_of_config(make_index_anew);
  if (!set.empty())
    throw Error(ErrorCode::invalid_argument, "cli",
                fmt::format("--set is for a configuration, but '{}' is a path",
                            records::shown_path(open.path)),
                "the options of this command, or a file .yaml");
  return {{{},
           records::shown_path(open.path),
           records::open_records(completed(open, make_index_anew))}};
}

records::OpenOptions DataArguments::completed(records::OpenOptions options,
                                              bool make_index_anew) const {
  if (!memory.empty()) options.memory_bytes = parse_bytes(memory);
  options.remedy_of_memory = "a larger --memory";
  options.blocks = nullptr;  // A reader has the memory that the option gives.
  if (max_ratio) options.max_ratio = *max_ratio;
  options.index_dir = open.index_dir;
  options.make_index_anew = make_index_anew;
  options.keeps_damaged = true;
  if (!open.download.folder.empty()) options.download.folder = open.download.folder;
  if (!download_bytes.empty()) options.download.bytes = parse_bytes(download_bytes);
  if (!download_timeout.empty()) options.download.timeout = parse_duration(download_timeout);
  if (download_tries) options.download.tries = *download_tries;
  if (is_config()) return options;
  options.option_names = {{"dtype", "--dtype"},        {"block", "--block"},
                          {"tokens", "--tokens"},      {"skip_lines", "--skip-lines"},
                          {"comment", "--comment"},    {"max_ratio", "--max-ratio"},
                          {"length_of", "--length-of"}};
  options.header = !no_header;
  if (separator) options.separator = *separator;
  return options;
}

std::vector<OpenedPart> DataArguments::parts_of_config(bool make_index_anew) const {
  const records::OpenOptions none;
  const bool has_own = no_header || separator || open.delimiter != none.delimiter ||
                       open.skip_lines != none.skip_lines || open.comment != none.comment ||
                       open.columns != none.columns || open.label != none.label ||
                       open.dtype != none.dtype || open.block != none.block ||
                       open.tokens != none.tokens || open.length_of != none.length_of ||
                       open.labels != none.labels || open.part != none.part;
  if (has_own)
    throw Error(
        ErrorCode::invalid_argument, "cli",
        fmt::format("{} is a configuration, and its data.* say how the files are read", open.path),
        "--set data.delimiter=..., data.block=... and so on");
  std::vector<OpenedPart> opened;
  for (const data::PartFiles& part : data::files_of_parts(load_config({open.path, set}).data)) {
    try {
      opened.push_back({part.name, records::shown_path(part.open.path),
                        records::open_records(completed(part.open, make_index_anew))});
    } catch (const Error& error) {
      if (!part.may_be_missing || error.code() != ErrorCode::not_found) throw;
    }
  }
  return opened;
}

}  // namespace trireme::cli
