// A text of characters or bytes as blocks of tokens.
#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/records/damage.h>
#include <trireme/records/formats.h>
#include <trireme/records/formats/text_tokens.h>
#include <trireme/records/indexed_reader.h>
#include <trireme/records/remote/address.h>
#include <trireme/records/unpack.h>

namespace trireme::records {
namespace {

// Record i has the tokens [i * block, (i + 1) * block], so that the last token is the target of
// the one before. All tokens are in memory: a character is one to four bytes of the file.
class TextReader : public Reader {
 public:
  TextReader(TextTokens text, int64_t mtime_ns)
      : text_(std::move(text)),
        content_(text_.digest()),
        mtime_ns_(mtime_ns),
        shape_{text_.block + 1},
        fields_{{.name = "tokens", .dtype = plan::DType::int32, .shape = shape_}} {}

  int64_t size() const override { return text_.samples(); }
  const std::vector<FieldSpec>& fields() const override { return fields_; }
  // It does not depend on the packing of the file, and is that of a run which reads no records.
  const std::string& content() const override { return content_; }
  std::string place(int64_t index) const override {
    require_record(index, size());
    return fmt::format("{}, record {} at {} {}", text_.origin, index,
                       text_.characters.empty() ? "byte" : "character", index * text_.block);
  }
  int64_t stamp(int64_t) const override { return mtime_ns_; }
  std::optional<int64_t> largest(std::string_view field) const override {
    if (field != fields_[0].name) return std::nullopt;
    return text_.vocabulary - 1;
  }
  std::vector<std::string> class_names() const override { return text_.characters; }
  void read(int64_t index, Record& record) const override {
    require_record(index, size());
    record.clear();
    const std::span tokens(text_.tokens);
    record.fields.push_back(
        {.name = fields_[0].name,
         .bytes = std::as_bytes(tokens.subspan(static_cast<size_t>(index * text_.block),
                                               static_cast<size_t>(text_.block + 1))),
         .dtype = plan::DType::int32,
         .shape = shape_});
  }

 private:
  TextTokens text_;
  std::string content_;
  int64_t mtime_ns_;
  std::vector<int64_t> shape_;
  std::vector<FieldSpec> fields_;
};

TextUnit unit_of(const OpenOptions& options) {
  if (options.tokens.empty() || options.tokens == "characters") return TextUnit::characters;
  if (options.tokens == "bytes") return TextUnit::bytes;
  throw Error(ErrorCode::invalid_argument, "data",
              fmt::format("the tokens of a text are '{}'", options.tokens),
              fmt::format("{}=characters or bytes", options.name_of("tokens")));
}

// A copy of the file, which may be written while its characters are counted.
std::shared_ptr<const Block> content_of_file(const DataFile& file, const OpenOptions& options) {
  // The whole text is one block, which its tokens exceed.
  if (const Packing packing = packing_of(file); packing != Packing::none)
    return unpack(file, packing,
                  UnpackLimits::of_whole_file(options.max_ratio, options.name_of("max_ratio")));
  auto content = std::make_shared<Block>();
  file.read(0, content->room(file.size()).first(file.size()));
  content->add(file.size());
  return content;
}

// No index knows which version of a file on a server is the right one.
DataFile file_of(const OpenOptions& options) {
  if (!is_address(options.path)) return DataFile(options.path);
  const DataFiles files = files_of(options);
  if (files.names.size() != 1)
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("'{}' names {} files, and a text is one", shown_path(options.path),
                            files.names.size()),
                "the address of one file");
  files.remote->ask_for_changes();
  return files.remote->open_to_stay(0);
}

}  // namespace

SharedReader open_text(const OpenOptions& options) {
  const TextForm form{options.block, unit_of(options), options.name_of("block"),
                      options.name_of("tokens")};
  require_block(form);
  return with_place([&] { return shown_path(options.path); },
                    [&]() -> SharedReader {
                      const DataFile file = file_of(options);
                      const auto content = content_of_file(file, options);
                      const auto* const first =
                          reinterpret_cast<const char*>(content->bytes().data());
                      const std::string_view text(first, content->bytes().size());
                      return std::make_shared<TextReader>(
                          tokens_of_text(shown_path(options.path), text, form), file.mtime_ns());
                    });
}

}  // namespace trireme::records
