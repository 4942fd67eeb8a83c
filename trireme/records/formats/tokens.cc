// Tokens in memory-mapped files, as blocks or as documents.
#include <fmt/format.h>
#include <trireme/base/files.h>
#include <trireme/records/formats.h>
#include <trireme/records/remote/address.h>
#include <algorithm>
#include <array>
#include "indexed_files.h"
#include "mapped_files.h"
#include "token_file.h"

namespace trireme::records {
namespace {

class TokensReader : public Reader {
 public:
  TokensReader(std::vector<TokenFile> files, std::string content)
      : files_(std::move(files)), content_(std::move(content)) {
    fields_.push_back({.name = "tokens", .dtype = files_.front().dtype});
  }
  int64_t size() const override { return size_; }
  const std::vector<FieldSpec>& fields() const override { return fields_; }
  const std::string& content() const override { return content_; }
  std::optional<int64_t> length(int64_t index) const override {
    const Place at = find(index);
    return static_cast<int64_t>(at.bytes / files_[at.file].token_bytes);
  }
  std::vector<int64_t> blocks() const override { return blocks_of_files(first_, size_); }
  std::string place(int64_t index) const override {
    const Place at = find(index);
    return fmt::format("{}, {} {} at byte {}", files_[at.file].path, word_, at.number, at.offset);
  }
  void read(int64_t index, Record& record) const override {
    const Place at = find(index);
    record.clear();
    const TokenFile& file = files_[at.file];
    with_place([&] { return place(index); },
               [&] {
                 file.check();
                 // An index that was written anew in place may lead anywhere.
                 const uint64_t all = file.tokens->bytes().size();
                 if (at.offset > all || at.bytes > all - at.offset)
                   throw Damage(fmt::format("its {} bytes should begin at byte {}, but the file "
                                            "has {}",
                                            at.bytes, at.offset, all),
                                "leave the index alone while it is read");
               });
    record.sizes.push_back(static_cast<int64_t>(at.bytes / file.token_bytes));
    record.fields.push_back({.name = "tokens",
                             .bytes = file.tokens->bytes().subspan(at.offset, at.bytes),
                             .dtype = file.dtype,
                             .shape = record.sizes});
  }
  void warm(int64_t index) const override {
    const Place at = find(index);
    warm_bytes(files_[at.file].tokens->bytes(), at.offset);
  }

 protected:
  struct Place {
    size_t file = 0;
    uint64_t number = 0;  // In the file.
    uint64_t offset = 0, bytes = 0;
  };
  // The place of a record in its file.
  virtual Place place_of(size_t file, uint64_t number) const = 0;
  void set_word(std::string_view word) { word_ = word; }
  void add_records(uint64_t count) {
    first_.push_back(size_);
    size_ += static_cast<int64_t>(count);
  }
  void set_shape(std::vector<int64_t> shape) { fields_[0].shape = std::move(shape); }
  const TokenFile& file_at(size_t file) const { return files_[file]; }
  size_t file_count() const { return files_.size(); }

 private:
  Place find(int64_t index) const {
    require_record(index, size_);
    const auto file =
        static_cast<size_t>(std::ranges::upper_bound(first_, index) - first_.begin() - 1);
    return place_of(file, static_cast<uint64_t>(index - first_[file]));
  }

  std::vector<TokenFile> files_;
  std::string content_;
  std::string_view word_ = "record";
  std::vector<int64_t> first_;  // The number of each file's first record.
  int64_t size_ = 0;
  std::vector<FieldSpec> fields_;
};

// Record i of a file has the tokens [i * block, (i + 1) * block], so that the last token is the
// target of the one before. No block reaches into the next file.
class BlocksReader : public TokensReader {
 public:
  BlocksReader(std::vector<TokenFile> files, std::string content, int64_t block)
      : TokensReader(std::move(files), std::move(content)), block_(static_cast<uint64_t>(block)) {
    for (size_t file = 0; file < file_count(); ++file)
      add_records(file_at(file).count == 0 ? 0 : (file_at(file).count - 1) / block_);
    set_shape({block + 1});
  }

 protected:
  Place place_of(size_t file, uint64_t number) const override {
    const uint64_t bytes = file_at(file).token_bytes;
    return {.file = file,
            .number = number,
            .offset = file_at(file).data + number * block_ * bytes,
            .bytes = (block_ + 1) * bytes};
  }

 private:
  uint64_t block_;
};

class MegatronDocuments : public TokensReader {
 public:
  MegatronDocuments(std::vector<TokenFile> files, std::string content)
      : TokensReader(std::move(files), std::move(content)) {
    set_word("document");
    for (size_t file = 0; file < file_count(); ++file) add_records(file_at(file).documents);
  }

 protected:
  Place place_of(size_t file, uint64_t number) const override {
    const uint64_t begin = file_at(file).document_begin(number);
    return {.file = file,
            .number = number,
            .offset = begin,
            .bytes = file_at(file).document_begin(number + 1) - begin};
  }
};

// Documents that begin with a token, as the index has found them.
class SeparatedDocuments : public TokensReader {
 public:
  SeparatedDocuments(std::vector<TokenFile> files, std::shared_ptr<const Index> index)
      : TokensReader(std::move(files), index->content()), index_(std::move(index)) {
    set_word("document");
    const auto entries = index_->entries();
    for (uint32_t file = 0; file < file_count(); ++file) {
      const auto [first, last] = std::ranges::equal_range(entries, file, {}, &Entry::file);
      first_entry_.push_back(first - entries.begin());
      add_records(static_cast<uint64_t>(last - first));
    }
  }

 protected:
  Place place_of(size_t file, uint64_t number) const override {
    const Entry entry = index_->entry(first_entry_[file] + static_cast<int64_t>(number));
    return {.file = file, .number = number, .offset = entry.offset, .bytes = entry.bytes};
  }

 private:
  std::shared_ptr<const Index> index_;
  std::vector<int64_t> first_entry_;
};

IndexContent find_documents(const std::vector<TokenFile>& files, int64_t separator) {
  IndexContent content;
  for (uint32_t number = 0; number < files.size(); ++number) {
    const TokenFile& file = files[number];
    uint64_t begin = 0;
    const auto add = [&](uint64_t end) {
      if (end == begin) return;
      content.entries.push_back({.offset = file.data + begin * file.token_bytes,
                                 .bytes = (end - begin) * file.token_bytes,
                                 .length = static_cast<int64_t>(end - begin),
                                 .file = number});
      begin = end;
    };
    for (uint64_t i = 0; i < file.count; ++i)
      if (token_at(file, i) == separator) add(i);
    add(file.count);
    with_place([&] { return file.path; }, [&] { file.check(); });
  }
  return content;
}

std::vector<FileIdentity> identities_of_tokens(const std::vector<TokenFile>& files) {
  std::vector<FileIdentity> all;
  for (const TokenFile& file : files)
    with_place([&] { return file.path; },
               [&] {
                 all.push_back(file.tokens->file().identity());
                 if (file.index) all.push_back(file.index->file().identity());
               });
  return all;
}

// It would be taken for tokens: on a server nothing tells which files belong together.
void refuse_packed_index(const std::string& address) {
  if (!address.ends_with(".idx") && unpacked_name(address).ends_with(".idx"))
    throw Error(
        ErrorCode::unsupported, "data",
        fmt::format("{}: an index of Megatron's on a server must not be packed", address),
        "the .idx file unpacked; the .bin file may be packed where the data is in a folder");
}

// On a server, the index of a file follows its tokens.
std::vector<TokenFile> open_remote_token_files(const DataFiles& files, const TokenType& type,
                                               UnpackLimits limits) {
  std::vector<TokenFile> opened;
  files.remote->ask_for_changes();
  for (size_t i = 0; i < files.names.size(); ++i) {
    refuse_packed_index(files.path_of(i).string());
    const bool has_index = i + 1 < files.names.size() && files.names[i + 1].ends_with(".idx");
    const std::string tokens = files.path_of(i).string();
    opened.push_back(open_token_file(
        tokens, has_index ? files.path_of(i + 1).string() : std::string(),
        [&](const std::string& name) { return open_to_stay(files, name == tokens ? i : i + 1); },
        type, limits));
    limits.taken_bytes += opened.back().unpacked_bytes();
    i += has_index ? 1 : 0;
  }
  return opened;
}

std::vector<TokenFile> open_token_files(const DataFiles& files, const TokenType& type,
                                        UnpackLimits limits) {
  std::vector<TokenFile> opened;
  if (files.remote) opened = open_remote_token_files(files, type, limits);
  for (size_t i = 0; i < files.names.size() && !files.remote; ++i) {
    opened.push_back(open_token_file(files.path_of(i), type, limits));
    limits.taken_bytes += opened.back().unpacked_bytes();
  }
  for (size_t i = 0; i < opened.size(); ++i) {
    if (opened[i].dtype != opened[0].dtype)
      throw Error(ErrorCode::invalid_argument, "data",
                  fmt::format("{} has tokens of {}, but {} of {}", opened[i].path,
                              plan::to_string(opened[i].dtype), opened[0].path,
                              plan::to_string(opened[0].dtype)),
                  "files with one type of tokens");
    if (!opened[i].index != !opened[0].index)
      throw Error(ErrorCode::invalid_argument, "data",
                  fmt::format("only one of {} and {} has an index of Megatron beside it",
                              opened[0].path, opened[i].path),
                  "files of one kind");
  }
  return opened;
}

// The index of Megatron's tells where the documents are, so its address means both files.
DataFiles remote_files_of_tokens(const OpenOptions& options) {
  if (!shown_address(options.path).ends_with(".idx")) return files_of(options);
  OpenOptions both = options;
  if (!both.path.ends_with(".idx"))
    throw Error(
        ErrorCode::invalid_argument, "data",
        fmt::format("'{}' has a '?' behind it, so the address of its .bin file is not known",
                    shown_address(options.path)),
        "an address that ends in .idx");
  both.path.replace(both.path.size() - 3, 3, "{bin,idx}");
  return files_of(both);
}

// A prefix of Megatron's means the files PREFIX.bin and PREFIX.idx.
DataFiles files_of_tokens(const OpenOptions& options) {
  if (is_address(options.path)) return remote_files_of_tokens(options);
  if (!path_exists(options.path) && !existing_name_of(options.path + ".idx").empty()) {
    const std::string tokens = existing_name_of(options.path + ".bin");
    return find_files(tokens.empty() ? options.path + ".bin" : tokens);
  }
  static constexpr std::string_view kEnds[] = {".bin", ".bin.gz", ".bin.zst"};
  return find_files(options.path, kEnds);
}

}  // namespace

SharedReader open_tokens(const OpenOptions& options) {
  const std::string& dtype = options.dtype;
  constexpr std::array<std::string_view, 5> kTypes{"", "uint8", "uint16", "uint32", "int32"};
  if (std::ranges::find(kTypes, dtype) == kTypes.end())
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("the type of the tokens is '{}'", dtype),
                fmt::format("{}=uint8, uint16, uint32 or int32", options.name_of("dtype")));
  if (options.block > 0 && options.separator)
    throw Error(
        ErrorCode::invalid_argument, "data",
        fmt::format("there are blocks of {} tokens and a separator of documents", options.block),
        "one of them");
  const DataFiles names = without_packed_twins(files_of_tokens(options));
  std::vector<TokenFile> files =
      open_token_files(names, {dtype, options.name_of("dtype")}, options.unpack_limits());
  if (!dtype.empty() && dtype != plan::to_string(files[0].dtype))
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("the type of the tokens is given as {}, but {} has {}", dtype,
                            files[0].path, plan::to_string(files[0].dtype)),
                fmt::format("leave {} out", options.name_of("dtype")));
  const bool has_documents = files[0].index != nullptr;
  const std::vector<FileIdentity> identities = identities_of_tokens(files);
  const Json about{{"block", options.block}, {"dtype", plan::to_string(files[0].dtype)}};
  std::shared_ptr<const TokensReader> reader;
  if (options.block > 0) {
    reader = std::make_shared<BlocksReader>(
        std::move(files), content_of("tokens", about, identities), options.block);
  } else if (has_documents) {
    reader = std::make_shared<MegatronDocuments>(std::move(files),
                                                 content_of("tokens", about, identities));
  } else if (options.separator) {
    IndexRequest request = request_for(options, "tokens", names,
                                       {{"dtype", dtype}, {"separator", *options.separator}});
    request.identities = [&] {
      std::vector<FileIdentity> named = identities;
      for (size_t i = 0; i < named.size(); ++i) named[i].name = names.names[i];
      return named;
    };
    request.make = [&] { return find_documents(files, *options.separator); };
    request.check = [&](const Index& index) {
      for (size_t i = 0; i < identities.size() && names.remote; ++i)
        if (identities[i].mtime_ns != index.files()[i].mtime_ns)
          throw Damage(fmt::format("{} was changed", files[i].path));
    };
    auto index = open_index(request);
    reader = std::make_shared<SeparatedDocuments>(std::move(files), std::move(index));
  } else {
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("{} does not tell where its documents begin", files[0].path),
                "a block of so many tokens, or the separator with which each document begins");
  }
  if (reader->size() == 0)
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("'{}' has no record", shown_path(options.path)),
                "more tokens, or a smaller block");
  return reader;
}

}  // namespace trireme::records
