// A file of tokens: llm.c's, Megatron's, or numbers alone.
#pragma once
#include <trireme/plan/tensor_spec.h>
#include <trireme/records/mapped_file.h>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace trireme::records {

struct TokenFile {
  std::string path;  // Of the tokens.
  std::unique_ptr<MappedFile> tokens;
  plan::DType dtype = plan::DType::uint16;
  uint64_t token_bytes = 2;
  uint64_t data = 0;   // Where the tokens begin.
  uint64_t count = 0;  // Of tokens.
  // Megatron's index. Document d has the tokens [begin of its first sequence, begin of the next
  // document's).
  std::unique_ptr<MappedFile> index;
  uint64_t sequences = 0, documents = 0;
  uint64_t pointers_at = 0, documents_at = 0;  // Places of the tables in the index.

  // Throws Damage if one of the files became shorter.
  void check() const;
  // The memory of its own that it takes.
  int64_t unpacked_bytes() const {
    return tokens->unpacked_bytes() + (index ? index->unpacked_bytes() : 0);
  }
  // The first byte of a document's tokens, or the byte behind the last token.
  uint64_t document_begin(uint64_t document) const;
};

// The type of the tokens in a file without a header, as the options have it.
struct TokenType {
  std::string dtype;  // Empty: not given.
  std::string name;   // That of the option, for messages.
};

// Either file may be packed by gzip or zstd: the tokens if their name ends in .gz or .zst, because
// tokens alone may begin as packed bytes do. Throws Error naming the file.
TokenFile open_token_file(const std::filesystem::path& path, const TokenType& type,
                          const UnpackLimits& limits);
// The same for files that `open` opens by their names. Without Megatron's index, `index` is empty.
TokenFile open_token_file(const std::string& tokens, const std::string& index,
                          const std::function<DataFile(const std::string&)>& open,
                          const TokenType& type, const UnpackLimits& limits);

// The file of this name that is there, or that of its packed form; empty if there is none.
std::string existing_name_of(const std::filesystem::path& path);

// The token as a number.
int64_t token_at(const TokenFile& file, uint64_t index);

}  // namespace trireme::records
