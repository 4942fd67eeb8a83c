// Opens a data set by the name of its format and the path of its files.
#pragma once
#include <trireme/records/block_memory.h>
#include <trireme/records/record.h>
#include <trireme/records/remote/fetch.h>
#include <trireme/records/unpack.h>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::records {

struct DataFiles;

struct ColumnChoice {
  std::vector<std::string> columns;
  std::string label;
};

// The limit for one record, and for one unpacked file or row group, where none is given.
inline constexpr int64_t kUsualMemory = int64_t{1} << 30;

struct OpenOptions {
  std::string format;  // A name of formats(); empty: by the names of the files.
  // A file, a folder, or a pattern with *, {0000..0127} or {train,test}. For most formats also an
  // address, or a pattern of addresses without *.
  std::string path;

  // Options of single formats. An option that the format does not have must keep its default.
  // csv: one character, or whitespace: any number of spaces and tabs. Empty: a comma, or a tab for
  // .tsv.
  std::string delimiter;
  bool header = true;      // csv: the first row of each file names the columns.
  int64_t skip_lines = 0;  // csv: the lines of each file that stand in front of its rows.
  std::string comment;     // csv: a line that begins with this text is no row; empty: each is one.
  // csv, jsonl, parquet, arrow: only these columns, in this order; empty: all.
  std::vector<std::string> columns;
  // csv, jsonl, npy, parquet, arrow: the column of whole numbers that are labels.
  std::string label;
  // parquet, arrow: chooses columns and label by the fields of the first file, which are those of
  // `columns`.
  std::function<ColumnChoice(const std::vector<FieldSpec>&)> choose = {};
  std::string dtype;  // tokens without a header: uint8, uint16, uint32 or int32.
  // tokens, text: a record has one token more than this; tokens: 0 for documents.
  int64_t block = 0;
  std::optional<int64_t> separator;  // tokens: the token with which each document begins.
  std::string tokens;                // text: characters or bytes; empty: characters.
  // jsonl, tfrecord, webdataset: the list of numbers whose length Reader::length() gives. The index
  // of it is another one, because all bytes of TFRecord files are read for it. Empty: none, but for
  // the only list of jsonl.
  std::string length_of;
  std::string labels;  // idx: the file of labels; empty: by the name of the images.
  std::string part;    // cifar, idx: train or test; empty: train.

  // The folder for indexes of data whose folder cannot be written. Empty: a cache of the user's
  // (index_folder()).
  std::filesystem::path index_dir;
  bool make_index_anew = false;
  // Damaged records have numbers, and read() throws for them. Otherwise they are an error of
  // open_records(), if the index can know them: lines of csv and jsonl that cannot be read, empty
  // images, members of tar files, and the rest of a file that is cut.
  bool keeps_damaged = false;
  std::string remedy_of_damage;  // A further remedy in that error.
  // Together with it, for csv, jsonl and webdataset: chooses, by all fields that all or most
  // records have, the names of those that are needed. A record without a needed one is damaged.
  // Others that not all records have are left out (Reader::doubtful_fields()), as all are without
  // a function. jsonl asks it first without the lists and texts that some lines lack, and again
  // with them if it throws.
  std::function<std::vector<std::string>(const std::vector<FieldSpec>&)> needed = {};
  // The names of options of formats in messages, where the caller has others than these members:
  // {"dtype", "data.token_type"}.
  std::map<std::string, std::string, std::less<>> option_names = {};
  std::string name_of(std::string_view option) const {
    const auto found = option_names.find(option);
    return found == option_names.end() ? std::string(option) : found->second;
  }
  DownloadOptions download;  // For addresses.
  // The limit for one record, and for one unpacked file or row group. Sizes that a header claims
  // are compared with it before memory is allocated.
  int64_t memory_bytes = kUsualMemory;
  std::string remedy_of_memory =
      "a larger memory_bytes";  // The remedy in errors about that limit.
  // The memory of the unpacked files and row groups that are kept for later records; null: so many
  // bytes as memory_bytes for this reader alone.
  std::shared_ptr<BlockMemory> blocks = {};
  std::shared_ptr<BlockMemory> memory_of_blocks() const {
    return blocks ? blocks : std::make_shared<BlockMemory>(memory_bytes);
  }
  // The most bytes that a compressed byte may become, in files of more than 16 MiB.
  int64_t max_ratio = 250;
  UnpackLimits unpack_limits() const {
    return {memory_bytes, max_ratio, name_of("max_ratio"), remedy_of_memory};
  }
};

struct Format {
  std::string_view name, about;
  std::string_view path;                    // What the path means.
  std::vector<std::string_view> options{};  // The names of its own options.
  std::vector<std::string_view> ends{};     // Files whose names end so have this format.
  // Columns that are not chosen are not read at all, and may have values without a field.
  bool reads_columns = false;
  std::shared_ptr<const Reader> (*open)(const OpenOptions&) = nullptr;
  // The reason why its files cannot have addresses; empty: they can.
  std::string_view not_remote = {};
  // The version of the scan that makes its index.
  int scans = 2;
};

// The formats that there are, in the order of the documents.
const std::vector<Format>& formats();
// Throws Error(invalid_argument) that lists the names.
const Format& find_format(std::string_view name);
// The format of a path, by the names of its files. Throws Error(invalid_argument) that lists the
// names if that does not tell it.
const Format& guess_format(const std::string& path);

// The files of the path, on this machine or on a server: see find_files() and find_remote_files().
DataFiles files_of(const OpenOptions& options, std::span<const std::string_view> ends = {});

// The names that OpenOptions::needed chooses of the fields; none without it.
std::set<std::string, std::less<>> needed_of(const OpenOptions& options,
                                             const std::vector<FieldSpec>& fields);

// Opens the files, makes their index if there is none, and checks everything that can be known
// without reading all records. Throws Error: invalid_argument for a wrong option, not_found for a
// missing file, corrupt for a damaged one or one that changed after it was indexed, unsupported
// for what the format cannot do here, io. Any thread; several may open the same files at once.
std::shared_ptr<const Reader> open_records(const OpenOptions& options);

}  // namespace trireme::records
